#!/usr/bin/env python3
"""Our tokenizer compared with the `tokenizers` package: the same model folder, the same lines, one core each, one after
the other, both by processor time.

usage: bench_tokenizer.py SLUICE_DEV MODEL_DIR FILE [ROUNDS]
"""
import json
import os
import pathlib
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402 (reads the variable)

MAX_TOKENS, SECONDS = 256, 2


def ours(sluice, folder, path):
    command = [sluice, "bench", "tokenizer", "--model", folder, "--input", path, "--max-tokens", str(MAX_TOKENS),
               "--round-ms", str(1000 * SECONDS), "--json", "-"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def theirs(folder, lines):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    started, tokens = time.process_time(), 0
    while time.process_time() - started < SECONDS:
        tokens += sum(map(len, tokenizer.encode_batch_fast(lines)))
    return tokens / (time.process_time() - started)


def main():
    sluice, folder, path = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    lines = path.read_text().rstrip("\n").split("\n")
    for _ in range(int(sys.argv[4]) if len(sys.argv) > 4 else 3):
        found, other = ours(sluice, folder, path), theirs(folder, lines)
        every, short, long = found["runs"]
        print(f"ours {every['tokens_per_s'] / 1e6:.2f} M tokens/s ({every['mb_per_s']:.0f} MB/s, opened in {found['open_ms']} ms), "
              f"tokenizers {other / 1e6:.2f} M tokens/s: {every['tokens_per_s'] / other:.1f} times; "
              f"one short text {short['p50_us']} us, one of {long['bytes'] / 1e6:.0f} MB {long['p50_us']} us")


if __name__ == "__main__":
    main()

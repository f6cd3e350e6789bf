#!/usr/bin/env python3
"""Our tokenizer beside the `tokenizers` package: the same model folder, the same lines, one core each, one after the other.

usage: bench_tokenizer.py BENCH_TOKENIZER MODEL_DIR FILE [ROUNDS]
"""
import json
import os
import pathlib
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402 (reads the variable)

MAX_TOKENS = 512


def theirs(folder, lines):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    started, tokens = time.perf_counter(), 0
    while time.perf_counter() - started < 2:
        tokens += sum(map(len, tokenizer.encode_batch_fast(lines)))
    return tokens / (time.perf_counter() - started)


def main():
    bench, folder, path = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    lines = path.read_text().rstrip("\n").split("\n")
    for _ in range(int(sys.argv[4]) if len(sys.argv) > 4 else 3):
        ours = json.loads(subprocess.run([bench, folder, path, str(MAX_TOKENS)], check=True, capture_output=True).stdout)
        other = theirs(folder, lines)
        print(f"ours {ours['tokens_per_s'] / 1e6:.2f} M tokens/s ({ours['mb_per_s']:.0f} MB/s, opened in {ours['open_ms']} ms), "
              f"tokenizers {other / 1e6:.2f} M tokens/s: {ours['tokens_per_s'] / other:.1f} times")


if __name__ == "__main__":
    main()

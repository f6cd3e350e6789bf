#!/usr/bin/python3
"""A bulk job compared with sentence-transformers' encode: same file, same model, same threads, alternating.

    bench_bulk_peer.py BUILD PYTHON [ROWS [ROUNDS]]

PYTHON is an interpreter with sentence-transformers and its torch. Both read a file of lines and write an .npy; the time
is that of the whole process (for sentence-transformers also that of `encode` alone, without importing torch), the
memory its peak. Each computes once in f32, the default of sentence-transformers, and once in bf16."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODEL = SOURCE / "config/models/sluice-mini-en"

PEER = """
import json, sys, time
import numpy, torch
from sentence_transformers import SentenceTransformer
model, texts, output, precision, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model = SentenceTransformer(model, device="cpu", model_kwargs={"torch_dtype": {"f32": torch.float32, "bf16": torch.bfloat16}[precision]})
with open(texts, encoding="utf-8") as file:
    lines = [line.rstrip("\\n") for line in file]
model.encode(lines[:64])
started = time.monotonic()
vectors = model.encode(lines, batch_size=64, show_progress_bar=False, convert_to_numpy=True)
print(json.dumps({"encode_s": time.monotonic() - started}))
numpy.save(output, numpy.asarray(vectors, dtype=numpy.float32))
"""

COMPARE = """
import sys, numpy
a, b = (numpy.load(path).astype(numpy.float64) for path in sys.argv[1:3])
cosine = (a * b).sum(1) / numpy.linalg.norm(a, axis=1) / numpy.linalg.norm(b, axis=1)
print(f"{cosine.min():.6f}")
"""


class Run:
    def __init__(self, command):
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        started = time.monotonic()
        child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        said, complaint = child.stdout.read(), child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        self.wall_s, self.peak_mb = time.monotonic() - started, usage.ru_maxrss / 1024
        self.processor_s = usage.ru_utime + usage.ru_stime
        assert status == 0, complaint.decode()[-2000:]
        self.said = json.loads(said.splitlines()[-1]) if said.strip() else {}


def main():
    python = sys.argv[2]
    rows, rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20_000, int(sys.argv[4]) if len(sys.argv) > 4 else 3
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        texts, ours, theirs = (os.path.join(folder, name) for name in ("texts.txt", "ours.npy", "theirs.npy"))
        subprocess.run([sys.executable, SOURCE / "tools/bench/bulk_rows.py", str(rows), texts], check=True, capture_output=True)
        for precision in ("f32", "bf16"):
            ratios, encodes, memory = [], [], []
            for number in range(rounds):
                runs = {}
                for who in ("sluice", "peer") if number % 2 == 0 else ("peer", "sluice"):
                    command = [BUILD / "sluice", "embed", texts, "--model", MODEL, "--precision", precision, "--output", ours, "--overwrite"] \
                        if who == "sluice" else [python, "-c", PEER, MODEL, texts, theirs, precision, threads]
                    runs[who] = Run(command)
                ours_run, peer = runs["sluice"], runs["peer"]
                ratios.append(peer.wall_s / ours_run.wall_s)
                encodes.append(peer.said["encode_s"] / ours_run.wall_s)
                memory.append(peer.peak_mb / ours_run.peak_mb)
                print(f"{precision}: sluice {ours_run.wall_s:.2f} s, {ours_run.peak_mb:.0f} MB; sentence-transformers {peer.wall_s:.2f} s "
                      f"(encode alone {peer.said['encode_s']:.2f}), {peer.peak_mb:.0f} MB", flush=True)
            least = subprocess.run([python, "-c", COMPARE, ours, theirs], check=True, capture_output=True, text=True).stdout.strip()
            print(f"{precision}, {rows:,} rows: sentence-transformers takes {statistics.median(ratios):.1f} times as long (encode alone "
                  f"{statistics.median(encodes):.1f}), with {statistics.median(memory):.1f} times the memory; medians of {rounds}; the least "
                  f"cosine between its vectors and ours is {least}", flush=True)


if __name__ == "__main__":
    main()

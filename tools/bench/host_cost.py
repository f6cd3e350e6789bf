#!/usr/bin/python3
"""What the host costs beside a fast GPU, without one: processor time of each thread of the daemon and of Redis, or of
`sluice embed`, for a text, and texts/s. The GPU only takes time, as long as an H100 does for MiniLM (tests/support/cuda_paced.c).

usage: host_cost.py [-n TEXTS] [-p PREP_THREADS] BINARY...

BINARY: build/release/tests/sluice_paced, also of other commits; each runs in turn. A stream of TEXTS texts is filled
before the daemon starts; the figures are of the middle of the run, between 85 and 15 % of the stream. Those of
`sluice embed` are of the middle of a job of three times as many texts. Then the engine by itself (`bench engine`), with
passes of 16,384 tokens."""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import daemon  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from waiting import wait_until  # noqa: E402

KINDS = [("single", "f32", 1), ("inputs", "f32", 64), ("inputs", "json", 64)]
JOBS = [("txt", "npy"), ("txt", "jsonl"), ("jsonl", "npy")]
VECTOR_BYTES = 4 * 384
STREAM = "sluice:{paced}:requests"


def make_texts(count):
    """34 tokens on average, as in docs/speed.md, and all different."""
    rng = random.Random(1)
    lengths = [min(510, 3 + int(rng.expovariate(1 / 29.5))) for _ in range(count)]
    words = [f"word{rng.randrange(20000)}" for _ in range(50000)]
    starts = [rng.randrange(len(words) - 510) for _ in range(count)]
    return [" ".join([f"word{i % 20000}", *words[start:start + length - 1]]) for i, (start, length) in enumerate(zip(starts, lengths))]


def fill(client, texts, encoding, per_request):
    for at in range(0, len(texts), 256 * per_request):
        pipe = client.pipeline(transaction=False)
        for first in range(at, min(len(texts), at + 256 * per_request), per_request):
            field = {"inputs": json.dumps(texts[first:first + per_request])} if per_request > 1 else {"text": texts[first]}
            pipe.xadd(STREAM, {**field, "encoding": encoding})
        pipe.execute()
    return client.xlen(STREAM)


def thread_us(pid):
    """(thread id, name) -> processor time so far."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found[task.name, (task / "comm").read_text().strip()] = int((task / "schedstat").read_text().split()[0]) / 1000
    return found


def by_name(before, after, texts):
    """us for a text, of all threads of a kind."""
    sums = {}
    for key in after:
        name = key[1].split("-")[0]
        sums[name] = sums.get(name, 0) + (after[key] - before.get(key, 0)) / texts
    return "  ".join(f"{name} {us:.2f}" for name, us in sorted(sums.items(), key=lambda item: -item[1]) if us >= 0.01)


def measure(options, binary, folder, server, model, texts, kind):
    name, encoding, per_request = kind
    client = server.client()
    entries = fill(client, texts, encoding, per_request)
    daemon.BINARY = binary
    flags = ["--backend", "cuda", "--prep-threads", options.prep_threads, "--stats-s", 0, "--cache-dir", folder]
    worker = daemon.Daemon(folder, 1, server.socket, model, "paced", flags).start()
    marks = []
    for part in (0.85, 0.15):
        wait_until(lambda: worker.running() and client.xlen(STREAM) <= part * entries, worker.read_log, timeout=120)
        marks.append((client.time(), client.xlen(STREAM), thread_us(worker.pid), thread_us(server.process.pid)))
    wait_until(lambda: client.xlen(STREAM) == 0, worker.read_log, timeout=120)
    worker.stop()
    client.flushall()
    (begin, first, worker_0, redis_0), (end, last, worker_1, redis_1) = marks
    seconds, done = end[0] - begin[0] + (end[1] - begin[1]) / 1e6, (first - last) / entries * len(texts)
    print(f"{binary}: {name} {encoding}: {done / seconds:,.0f} texts/s; us a text: daemon {by_name(worker_0, worker_1, done)}"
          f" | redis {by_name(redis_0, redis_1, done)}", flush=True)


def write_inputs(folder, texts):
    with open(f"{folder}/in.txt", "w", encoding="utf-8") as lines, open(f"{folder}/in.jsonl", "w", encoding="utf-8") as objects:
        for number, text in enumerate(texts):
            lines.write(text + "\n")
            objects.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")


def measure_job(binary, folder, model, texts, kinds):
    """Reads the clocks at 15 and 85 % of the vectors, which JSON Lines have in a scratch file."""
    source, ending = kinds
    output = f"{tempfile.mkdtemp(dir=folder)}/out.{ending}"
    vectors = output if ending == "npy" else f"{output}.job/vectors"
    options = ["--model", model, "--backend", "cuda", "--progress", "none"]
    options += ["--id-field", "id"] if source == "jsonl" else []
    job = subprocess.Popen([binary, "embed", f"{folder}/in.{source}", "--output", output, *options])
    marks = []
    for part in (0.15, 0.85):
        rows = 0
        while rows < part * texts:
            if job.poll() is not None:
                raise SystemExit(f"{binary} embed ended early, with {job.returncode}")
            rows = os.stat(vectors).st_size // VECTOR_BYTES if os.path.exists(vectors) else 0
            time.sleep(0.002)
        marks.append((time.monotonic(), rows, thread_us(job.pid)))
    if job.wait() != 0:
        raise SystemExit(f"{binary} embed ended with {job.returncode}")
    (begin, first, before), (end, last, after) = marks
    done = last - first
    shutil.rmtree(os.path.dirname(output))
    print(f"{binary}: embed {source} to {ending}: {done / (end - begin):,.0f} texts/s; us a text: {by_name(before, after, done)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", dest="texts", type=int, default=100_000)
    parser.add_argument("-p", dest="prep_threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("binary", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, texts = os.path.join(folder, "minilm"), make_texts(options.texts)
        subprocess.run([sys.executable, ROOT / "tools/bench/shapes.py", "minilm", model], check=True)
        server = RedisServer(folder, aof=None).start()
        try:
            for kind in KINDS:
                for binary in options.binary:
                    measure(options, os.path.abspath(binary), folder, server, model, texts, kind)
        finally:
            server.cleanup()
        write_inputs(folder, make_texts(3 * options.texts))
        for kinds in JOBS:
            for binary in options.binary:
                measure_job(os.path.abspath(binary), folder, model, 3 * options.texts, kinds)
        for binary in options.binary:
            lines = subprocess.run([binary, "bench", "engine", "--model", model, "--backend", "cuda", "--tokens", "16,32,64,128",
                                    "--batch-tokens", "16384"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
            at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("threads"))
            print(f"{binary}: bench engine", *lines[at:at + 5], sep="\n", flush=True)


if __name__ == "__main__":
    main()

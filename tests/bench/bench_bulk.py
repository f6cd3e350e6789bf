"""Bulk jobs beside the engine's own ceiling, in turn on the same file and threads; and their memory.

    bench_bulk.py BUILD [ROWS] [ROUNDS]

The texts are the demo's package summaries with variation, so that none is equal to another. A job's rate is what it says of
itself: rows over the time from the first row read to the last one durable."""

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "config", "models", "sluice-mini-en")


def write_texts(path, rows):
    with open(os.path.join(ROOT, "tests", "demo", "packages.tsv"), encoding="utf-8") as file:
        summaries = [line.rstrip("\n").split("\t")[1] for line in file]
    with open(path, "w", encoding="utf-8") as file:
        for i in range(rows):
            file.write(f"{summaries[i % len(summaries)]} {summaries[i * 7919 % len(summaries)][:i % 40]} {i}\n")


def median(values):
    return sorted(values)[len(values) // 2]


def run_job(build, texts, output):
    """Rows per second, seconds of processor time, and the peak of its memory in MB."""
    job = subprocess.Popen([os.path.join(build, "sluice"), "embed", texts, "--model", MODEL, "--output", output, "--overwrite",
                            "--progress", "json"], stderr=subprocess.PIPE)
    said = job.stderr.read()
    _, status, usage = os.wait4(job.pid, 0)
    assert status == 0, said
    return json.loads(said.splitlines()[-1])["rows_per_s"], usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def main():
    build = sys.argv[1]
    rows, rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 200000, int(sys.argv[3]) if len(sys.argv) > 3 else 3
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        texts, output = os.path.join(folder, "texts.txt"), os.path.join(folder, "vectors.npy")
        write_texts(texts, rows)
        shares, processor, peaks = [], [], []
        for number in range(rounds):
            said = subprocess.run([os.path.join(build, "tests", "bulk_ceiling"), MODEL, texts, str(threads), "1024"],
                                  check=True, capture_output=True).stdout
            ceiling, least = map(float, said.split())
            rate, seconds, peak = run_job(build, texts, output)
            shares.append(rate / ceiling)
            processor.append(least / seconds)
            peaks.append(peak)
            print(f"round {number + 1}: engine {ceiling:,.0f} rows/s, job {rate:,.0f} rows/s, {100 * rate / ceiling:.1f} %, "
                  f"processor {least:.2f} s of {seconds:.2f} s, {peak} MB",
                  flush=True)
        print(f"{rows:,} rows, {threads} threads: {100 * median(shares):.1f} % of the engine's ceiling (median of {rounds}), "
              f"{100 * median(processor):.1f} % by processor time, at most {max(peaks)} MB")


if __name__ == "__main__":
    main()

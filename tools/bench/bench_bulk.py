#!/usr/bin/python3
"""Bulk jobs compared with the engine's own ceiling, on the same rows, threads and machine.

    bench_bulk.py BUILD [ROWS [ROUNDS]]    local and through a queue, alternating with the ceiling

A job's rate is its rows over the wall time of the whole process, from its start (the model is read) to its end (every file is
on the disk and has its SHA-256). The ceiling has all texts tokenised and sorted beforehand and keeps no vector. Through a
queue, Redis, one daemon and the job share the cores that the engine has for itself in the ceiling."""

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
os.environ["SLUICE_BINARY"] = str(BUILD / "sluice")
sys.path.insert(0, str(SOURCE / "tests/support"))

from daemon import BINARY, Daemon  # noqa: E402
from redis_server import RedisServer  # noqa: E402

MODEL = SOURCE / "config/models/sluice-mini-en"
CEILING = BUILD / "tools/bulk_ceiling"
BATCH_TOKENS = 1024  # the fastest number for the engine with this model


class Run:
    """The measurements of one job, from start to end."""

    def __init__(self, command):
        started = time.monotonic()
        job = subprocess.Popen([*map(str, command), "--overwrite", "--progress", "json"], stderr=subprocess.PIPE)
        said = job.stderr.read()
        _, status, usage = os.wait4(job.pid, 0)
        self.wall_s = time.monotonic() - started
        assert status == 0, said.decode()
        self.said = json.loads(said.splitlines()[-1])
        self.rate = self.said["rows"] / self.wall_s
        self.user_s, self.kernel_s = usage.ru_utime, usage.ru_stime
        self.peak_mb = usage.ru_maxrss / 1024

    def __str__(self):
        return f"{self.rate:9,.0f} rows/s ({self.said['rows_per_s']:,.0f} by itself), processor {self.user_s + self.kernel_s:.1f} s, {self.peak_mb:.0f} MB"


def ceiling(texts):
    """Rows per second, and seconds of processor time."""
    command = [CEILING, MODEL, texts, str(len(os.sched_getaffinity(0))), str(BATCH_TOKENS)]
    rate, processor_s = map(float, subprocess.run(command, check=True, capture_output=True).stdout.split())
    print(f"  engine alone {rate:9,.0f} rows/s, processor {processor_s:.1f} s", flush=True)
    return rate


def local(folder, texts):
    run = Run([BINARY, "embed", texts, "--model", MODEL, "--output", os.path.join(folder, "local.npy")])
    print(f"  local        {run}", flush=True)
    return run


def queue(folder, texts):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        server = RedisServer(place, aof=None).start()
        daemon = Daemon(place, 0, server.socket, MODEL, "default").start()
        try:
            daemon.wait_ready(server.client())
            run = Run([BINARY, "embed", texts, "--redis", server.socket, "--output", os.path.join(folder, "queue.npy")])
            print(f"  queue        {run}, daemon {daemon.peak_bytes() / 2**20:.0f} MB, Redis "
                  f"{server.client().info('memory')['used_memory_peak'] / 2**20:.0f} MB", flush=True)
            assert daemon.stop() == 0
        finally:
            daemon.cleanup()
            server.cleanup()
    return run


def rates(rows=1_000_000, rounds=2):
    with tempfile.TemporaryDirectory() as folder:
        texts = os.path.join(folder, "texts.txt")
        # In another process, because a child's peak includes the memory that its parent has when it starts.
        said = subprocess.run([sys.executable, SOURCE / "tools/bench/bulk_rows.py", str(rows), texts], check=True, capture_output=True)
        print(f"{rows:,} rows, {said.stdout.decode().strip()}; {os.path.getsize(texts) / rows:.0f} bytes on average", flush=True)
        shares, peaks = {local: [], queue: []}, {local: [], queue: []}
        for number in range(rounds):
            print(f"round {number + 1}")
            before = ceiling(texts)
            order = (local, queue) if number % 2 == 0 else (queue, local)
            runs = {how: how(folder, texts) for how in order}
            after = ceiling(texts) if number == rounds - 1 else before
            for how, run in runs.items():
                shares[how].append(run.rate / statistics.mean((before, after)))
                peaks[how].append(run.peak_mb)
        for how, values in shares.items():
            print(f"{how.__name__}: {100 * statistics.median(values):.1f} % of the engine's ceiling (median of {rounds}: "
                  f"{', '.join(f'{100 * value:.1f}' for value in values)}), at most {max(peaks[how]):.0f} MB")


if __name__ == "__main__":
    rates(*map(int, sys.argv[2:]))

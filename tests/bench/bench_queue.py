#!/usr/bin/python3
"""The queue loop without the model: how near the daemon comes to what the same Redis can do.

The null engine answers at once with 384 floats, so that only the loop is left: XREADGROUP, tokenise, window, reply,
settle. Beside it, in turn, a bare pipelined client (queue_ceiling) issues the same commands with replies formatted
beforehand. Both share the machine's cores with Redis; the stream is filled by one script before each measurement.

usage: bench_queue.py BUILD_DIR [REQUESTS [ROUNDS]]
"""
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

from daemon import Daemon  # noqa: E402
from model import write_model  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from waiting import wait_until  # noqa: E402

REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
STREAM, DIM = "sluice:{default}:requests", 384
FILL = """for i = 1, ARGV[1] do
  redis.call('XADD', KEYS[1], '*', 'text', 'the quick brown fox jumps over the lazy dog, number ' .. i, 'encoding', ARGV[2])
end"""


def fill(client, encoding):
    """The stream as both find it: a group and all requests, none delivered."""
    client.xgroup_create(STREAM, "sluice", "0", mkstream=True)
    client.eval(FILL, 1, STREAM, REQUESTS, encoding)


def ceiling(directory, server, client, encoding):
    fill(client, encoding)
    command = [BUILD / "tests/queue_ceiling", server.socket, SOURCE / "lua/settle.lua", str(REQUESTS), str(DIM), encoding]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def daemon_rate(directory, server, client, encoding):
    """Requests per second over the middle 80 % of the run: the start of the process is not part of the loop."""
    model = write_model(os.path.join(directory, "model"), hidden=DIM, heads=12, layers=1)
    fill(client, encoding)
    daemon = Daemon(directory, 0, server.socket, model, "default", ["--backend", "null"]).start()
    marks = []
    try:
        for share in (0.9, 0.1):
            wait_until(lambda: client.xlen(STREAM) <= share * REQUESTS, "the queue to drain", timeout=120)
            marks.append((time.monotonic(), client.xlen(STREAM)))
        assert daemon.stop() == 0, daemon.read_log()
    finally:
        daemon.cleanup()
    (begin, left_first), (end, left_last) = marks
    return (left_first - left_last) / (end - begin)


def with_server(aof, measure, encoding):
    """One measurement on a server and a directory of its own; what earlier ones left to the disk is written first."""
    os.sync()
    with tempfile.TemporaryDirectory() as directory:
        server = RedisServer(directory, aof=aof).start()
        try:
            return measure(directory, server, server.client(), encoding)
        finally:
            server.cleanup()


def main():
    print(f"queue loop, null engine, {DIM} floats a reply, {REQUESTS} requests, {ROUNDS} rounds in turn, medians")
    print(f"{'encoding':10}{'AOF':10}{'daemon/s':>12}{'ceiling/s':>12}{'share':>8}")
    for aof in (None, "everysec"):
        for encoding in ("f32", "json"):
            rates = {daemon_rate: [], ceiling: []}
            for round_ in range(ROUNDS):
                order = (daemon_rate, ceiling) if round_ % 2 == 0 else (ceiling, daemon_rate)
                for measure in order:
                    rates[measure].append(with_server(aof, measure, encoding))
            daemon, bare = (statistics.median(values) for values in rates.values())
            share = statistics.median(a / b for a, b in zip(*rates.values()))
            print(f"{encoding:10}{aof or 'off':10}{daemon:12,.0f}{bare:12,.0f}{share:8.2f}", flush=True)


if __name__ == "__main__":
    main()

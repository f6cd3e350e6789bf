#!/usr/bin/python3
"""Online requests beside a bulk job through the same queue: the effect on their 99th percentile.

    bench_bulk_online.py BUILD [SHARE [SECONDS [DAEMON FLAG ...]]]

Single texts arrive at random times (Poisson) at SHARE percent of the daemon's capacity for such requests, which is
measured first. One job runs all the time and is stopped (SIGSTOP) in every other interval, so that both cases
alternate; the first second of each does not count. The latency is the time of the entry in the results stream minus
that of the request, both by Redis' clock, in ms."""

import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
os.environ["SLUICE_BINARY"] = str(BUILD / "sluice")
sys.path.insert(0, str(SOURCE / "tests/support"))

from bulk_rows import rows  # noqa: E402
from daemon import BINARY, Daemon  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from waiting import wait_until  # noqa: E402

MODEL = SOURCE / "config/models/sluice-mini-en"
STREAM, RESULTS = "sluice:{default}:requests", "sluice:{default}:results:online"
WORDS = (b"XADD", STREAM.encode(), b"*", b"encoding", b"f32", b"ttl", b"10", b"notify", b"stream:online", b"text")
REQUEST = b"*11\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in WORDS) + b"$%d\r\n%s\r\n"
INTERVAL_S, SETTLE_S = 6, 1


def millis(entry):
    return int(entry.split(b"-")[0])


class Online:
    """Sends single texts at a rate, and measures how long each took. It uses a bare socket because it shares the cores
    with the measured processes: the Redis package would need more processor time than Redis."""

    def __init__(self, server, texts):
        self.client, self.texts, self.random = server.client(), texts, random.Random(1)
        self.sent, self.cursor = 0, "0"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(server.socket)
        self.answers = self.socket.makefile("rb")

    def send(self, count):
        commands = []
        for _ in range(count):
            self.sent += 1  # no two are equal, because equal texts are computed once
            text = f"{self.random.choice(self.texts)} {self.sent}".encode()
            commands.append(REQUEST % (len(text), text))
        self.socket.sendall(b"".join(commands))
        return [self.answers.readline() and self.answers.readline().rstrip() for _ in range(count)]

    def run(self, rate, seconds):
        """The latencies of requests sent after the first second, in ms."""
        begin = time.monotonic()
        due, entries = begin, []
        while (now := time.monotonic()) < begin + seconds:
            count = 0
            while due <= now:
                due += self.random.expovariate(rate)
                count += 1
            sent = self.send(count) if count else []
            if now - begin >= SETTLE_S:
                entries += sent
            time.sleep(max(0.0005, due - time.monotonic()))
        answered = {}

        def all_answered():
            for _, found in self.client.xread({RESULTS: self.cursor}, count=100_000):
                for name, fields in found:
                    answered[fields[b"entry"]] = millis(name)
                self.cursor = found[-1][0]
            return entries[-1] in answered and all(entry in answered for entry in entries)

        wait_until(all_answered, "answers")
        return [answered[entry] - millis(entry) for entry in entries]


def capacity(online, count):
    """Single texts per second when all of them wait."""
    for _ in range(count // 1000):
        online.send(1000)
    begin = time.monotonic()
    wait_until(lambda: online.client.xlen(STREAM) == 0, "the queue to drain", timeout=120)
    online.cursor = online.client.xinfo_stream(RESULTS)["last-generated-id"]
    return count / (time.monotonic() - begin)


def percentile(values, share):
    """The percentile of whole milliseconds, with the values of each millisecond spread evenly over it."""
    rank = int(share * len(values))
    found = sorted(values)[rank]
    return found - 0.5 + (rank - sum(value < found for value in values)) / values.count(found)


def main():
    share = float(sys.argv[2]) / 100 if len(sys.argv) > 2 else 0.25
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 120
    texts, _ = rows(2_000_000 // 10)
    online_texts = [text for text in texts[:2000] if len(text) < 200]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        source = os.path.join(place, "texts.txt")
        with open(source, "w", encoding="utf-8") as file:
            for i in range(20):
                file.writelines(f"{text} {i}\n" for text in texts)
        server = RedisServer(place, aof=None).start()
        daemon = Daemon(place, 0, server.socket, MODEL, "default", sys.argv[4:]).start()
        job = None
        try:
            client = server.client()
            daemon.wait_ready(client)
            online = Online(server, online_texts)
            capacity(online, 4000)
            most = capacity(online, 20_000)
            wait_until(lambda: client.dbsize() < 100, "those replies to expire: many at a time hold Redis up for 25 ms", timeout=60)
            rate = share * most
            print(f"single texts: {most:,.0f} a second at most; {rate:,.0f} a second from here on", flush=True)
            job = subprocess.Popen([BINARY, "embed", source, "--redis", server.socket, "--output", os.path.join(place, "v.npy"),
                                    "--progress", "none"])
            bulk = lambda: client.xinfo_stream("sluice:{default}:results:bulk")["entries-added"]  # noqa: E731
            wait_until(lambda: client.exists("sluice:{default}:results:bulk") and bulk() > 10, "the job to begin")
            latencies, ratios, batches, busy_s = {False: [], True: []}, [], 0, 0
            for _ in range(max(1, seconds // (2 * INTERVAL_S))):
                p99 = {}
                for beside in (False, True):
                    job.send_signal(signal.SIGCONT if beside else signal.SIGSTOP)
                    before, begin = bulk(), time.monotonic()
                    found = online.run(rate, INTERVAL_S)
                    if beside:
                        batches += bulk() - before
                        busy_s += time.monotonic() - begin
                    latencies[beside] += found
                    p99[beside] = percentile(found, 0.99)
                ratios.append(p99[True] / p99[False])
                assert job.poll() is None, "the job has ended: it needs more rows"
            for beside, values in latencies.items():
                print(f"{'beside the job' if beside else 'alone':15} {len(values):7,} requests: p50 {percentile(values, 0.5):.1f} ms, "
                      f"p90 {percentile(values, 0.9):.1f}, p99 {percentile(values, 0.99):.1f}, p99.9 {percentile(values, 0.999):.1f}")
            whole = percentile(latencies[True], 0.99) / percentile(latencies[False], 0.99)
            print(f"p99 beside the job is {whole:.2f} of its value without; by interval {', '.join(f'{ratio:.2f}' for ratio in ratios)}, "
                  f"median {statistics.median(ratios):.2f}. The job had {64 * batches / busy_s:,.0f} rows/s at most")
        finally:
            if job is not None:
                job.kill()
                job.wait()
            daemon.cleanup()
            server.cleanup()


if __name__ == "__main__":
    main()

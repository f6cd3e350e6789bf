#!/usr/bin/python3
"""The whole daemon: with a real engine the latency of single texts in sequence, memory, and the cost of monitoring;
with a null engine the cost of a request in Redis.

usage: bench_daemon.py BUILD_DIR [latency|memory|http|redis ...]
"""
import http.client
import os
import pathlib
import random
import statistics
import sys
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
os.environ["SLUICE_BINARY"] = str(BUILD / "sluice")
sys.path.insert(0, str(SOURCE / "tests/support"))

import shapes  # noqa: E402
from daemon import Daemon  # noqa: E402
from sentinel import free_port  # noqa: E402
from stage import Stage  # noqa: E402
from waiting import wait_until  # noqa: E402

STREAM, REPLY, WAKE = "sluice:{default}:requests", "sluice:{default}:reply:", "sluice:{default}:wake:"


def mixed_texts(count):
    """Real texts of mixed length: 1 … 12 package summaries and descriptions from the sample, joined."""
    lines = [line.replace("\t", ": ") for line in (SOURCE / "tools/demo/packages.tsv").read_text().splitlines()]
    rng = random.Random(1)
    return [". ".join(rng.sample(lines, min(12, 1 + int(rng.expovariate(0.6))))) for _ in range(count)]


def minilm():
    return Stage(words=shapes.words(), positions=512, max_tokens=256, **shapes.SHAPES["minilm"])


def fill(client, texts):
    pipe = client.pipeline(transaction=False)
    for text in texts:
        pipe.xadd(STREAM, {"text": text, "encoding": "f32"})
    pipe.execute()


def drain(client):
    wait_until(lambda: client.xlen(STREAM) == 0, "the queue to drain", timeout=300)


def ask(client, text):
    """Sends one request and waits for its wake token: (ms from XADD to reply, the engine's own ms)."""
    started = time.perf_counter()
    entry = client.xadd(STREAM, {"text": text, "encoding": "f32", "notify": "1"}).decode()
    assert client.blpop([WAKE + entry], timeout=30), "no reply"
    elapsed = 1000 * (time.perf_counter() - started)
    return elapsed, float(client.hget(REPLY + entry, "compute_ms"))


def threads(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def waited_ms(pids):
    """Milliseconds for which the threads of these processes have waited for a processor."""
    waited = 0
    for pid in pids:
        for thread in threads(pid):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                waited += int(file.read().split()[1])
    return waited / 1e6


def schedule(pids, policy, priority):
    for pid in pids:
        for thread in threads(pid):
            os.sched_setscheduler(thread, policy, os.sched_param(priority))


def go_first(pids):
    """Schedules these processes before all others, as on an idle machine; False if that is not allowed."""
    try:
        schedule(pids, os.SCHED_RR, 2)
    except PermissionError:
        return False
    return True


def quantile(values, share):
    return sorted(values)[int(share * len(values))]


def latency():
    text = "the quick brown fox jumps over the lazy dog"
    with minilm() as stage:
        redis = stage.client.info("server")["process_id"]
        for precision, flags in [(p, f) for p in ("f32", "bf16", "int8") for f in ((), ("--threads", "1"))]:
            daemon = stage.daemon("--precision", precision, *flags)
            pids = (daemon.pid, redis, os.getpid())
            first, rows = go_first(pids), []
            for _ in range(550):
                before = waited_ms(pids)
                rows.append((*ask(stage.client, text), waited_ms(pids) - before))
            if first:
                schedule((os.getpid(), redis), os.SCHED_OTHER, 0)
            assert daemon.stop() == 0
            total, engine, waited = zip(*rows[50:])
            p50, p99 = statistics.median(total), quantile(total, 0.99)
            print(f"latency {precision} {' '.join(flags)}: XADD to reply p50 {p50:.2f} ms, p99 {p99:.2f} ({p99 / p50:.2f} times); engine p50 "
                  f"{statistics.median(engine):.2f}, p99 {quantile(engine, 0.99):.2f}; waits for a processor, of all threads together, p50 "
                  f"{statistics.median(waited):.2f}, p99 {quantile(waited, 0.99):.2f}; {'before all others' if first else 'among the others'}",
                  flush=True)


def status_kb(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def memory():
    with minilm() as stage:
        weights = os.path.getsize(os.path.join(stage.model, "model.safetensors")) / 1e6
        for precision in ("f32", "bf16"):
            daemon = stage.daemon("--precision", precision)
            fill(stage.client, mixed_texts(2000))
            drain(stage.client)
            print(f"memory {precision}: peak {status_kb(daemon.pid, 'VmHWM') / 1024:.0f} MiB, now {status_kb(daemon.pid, 'VmRSS') / 1024:.0f} MiB; "
                  f"weights {weights:.0f} MB in the file (f32)", flush=True)
            assert daemon.stop() == 0
        daemon = stage.daemon("--backend", "null")
        for round_ in range(11):
            fill(stage.client, mixed_texts(10_000))
            drain(stage.client)
            if round_ in (0, 10):
                print(f"memory null engine after {10_000 * (round_ + 1)} requests: {status_kb(daemon.pid, 'VmRSS') / 1024:.1f} MiB")
            stage.client.flushall() if round_ == 10 else [stage.client.delete(*chunk) for chunk in chunks(stage.client)]
        assert daemon.stop() == 0


def watch(port, paths):
    """Requests these paths, as a scraper or an open page does; returns the ms of each."""
    connection, took = http.client.HTTPConnection("127.0.0.1", port, timeout=30), []
    for path in paths:
        started = time.perf_counter()
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        assert answer.read() and answer.status == 200, (path, answer.status)
        took.append(1000 * (time.perf_counter() - started))
    return took


def cpu_ns(pid):
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0])


def http_cost(rounds=20, seconds=3):
    """Alternates a saturated daemon without monitoring, scraped once a second, and with the dashboard's page of dead
    letters open. The daemon computes all the time, so monitoring lowers its rate by the added time of its I/O thread
    and the admin API's."""
    watched = {"nobody": (), "scrape": ("/metrics",), "page": ("/api/queues?queue=default", "/api/dead?queue=default")}
    port = free_port()
    with minilm() as stage:
        daemon = stage.daemon("--precision", "f32", "--http", f"127.0.0.1:{port}")
        names = {number: pathlib.Path(f"/proc/{daemon.pid}/task/{number}/comm").read_text().strip() for number in threads(daemon.pid)}
        summaries = [line.split("\t")[1] for line in (SOURCE / "tools/demo/packages.tsv").read_text().splitlines()]
        serving = [number for number, name in names.items() if number == daemon.pid or name.startswith("admin")]
        texts, rates, takes, times = summaries * 10, {}, {}, {}
        for round_ in range(rounds):
            for at in range(len(watched)):  # each is first in a third of the rounds
                who, paths = list(watched.items())[(at + round_) % len(watched)]
                if stage.client.xlen(STREAM) < 10_000:
                    fill(stage.client, texts)
                    stage.client.delete(*[key for chunk in chunks(stage.client) for key in chunk] or ["none"])
                left, started = stage.client.xlen(STREAM), time.monotonic()
                took = sum(cpu_ns(number) for number in serving)
                while (now := time.monotonic() - started) < seconds:
                    times.setdefault(who, []).extend(watch(port, paths))
                    time.sleep(min(1, seconds - now))
                passed = time.monotonic() - started
                rates.setdefault(who, []).append((left - stage.client.xlen(STREAM)) / passed)
                takes.setdefault(who, []).append((sum(cpu_ns(number) for number in serving) - took) / passed / 1e9)
        assert daemon.stop() == 0
    for who in watched:
        ratios = [mine / none for mine, none in zip(rates[who], rates["nobody"])]
        more = [mine - none for mine, none in zip(takes[who], takes["nobody"])]
        print(f"http {who}: {statistics.median(rates[who]):.0f} texts/s, {statistics.median(ratios):.3f} of nobody's in pairs; its threads take "
              f"{statistics.median(more):+.2%} of a core more" + (f"; an answer p50 {statistics.median(times[who]):.2f} ms, p99 "
              f"{quantile(times[who], 0.99):.2f}" if times[who] else ""), flush=True)


def chunks(client):
    keys = list(client.scan_iter(match=REPLY + "*", count=10_000))
    return [keys[i:i + 1000] for i in range(0, len(keys), 1000)]


def redis_round(queues, encoding, count=40_000):
    """us of Redis' main thread per request, from XADD to the reply, and bytes per reply, with one daemon per queue."""
    with minilm() as stage:
        names = [f"queue{number}" for number in range(queues)]
        stage.daemons = [Daemon(stage.folder.name, number, stage.server.socket, stage.model, name, ["--backend", "null"]).start()
                         for number, name in enumerate(names)]
        for daemon in stage.daemons:
            daemon.wait_ready(stage.client)

        def used():
            cpu = stage.client.info("cpu")
            return 1e6 * (cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]), stage.client.info("memory")["used_memory"]

        streams = [f"sluice:{{{name}}}:requests" for name in names]
        before = used()
        for first in range(0, count, 1000):
            pipe = stage.client.pipeline(transaction=False)
            for number in range(first, first + 1000):
                pipe.xadd(streams[number % queues], {"text": f"the quick brown fox jumps over the lazy dog, number {number}", "encoding": encoding})
            pipe.execute()
        wait_until(lambda: not any(map(stage.client.xlen, streams)), "the queues to drain", timeout=300)
        return [(b - a) / count for a, b in zip(before, used())]


def redis_time(rounds=5):
    for queues in (1, 4):
        for encoding in ("f32", "json"):
            took, size = zip(*(redis_round(queues, encoding) for _ in range(rounds)))
            print(f"redis, 384 floats, {encoding}, queues: {queues}: {statistics.median(took):.1f} us of the main thread a request "
                  f"({min(took):.1f} to {max(took):.1f}), so {1e6 / statistics.median(took):,.0f}/s; {statistics.median(size):,.0f} bytes a reply",
                  flush=True)


if __name__ == "__main__":
    for name in sys.argv[2:] or ["latency", "memory"]:
        {"latency": latency, "memory": memory, "http": http_cost, "redis": redis_time}[name]()

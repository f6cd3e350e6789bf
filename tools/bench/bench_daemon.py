#!/usr/bin/python3
"""The whole daemon: with a real engine the latency of single texts in sequence; with a null engine the cost of a request
in Redis.

usage: bench_daemon.py BUILD_DIR [latency|redis ...]
"""
import os
import pathlib
import statistics
import sys
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
os.environ["SLUICE_BINARY"] = str(BUILD / "sluice")
sys.path.insert(0, str(SOURCE / "tests/support"))

import shapes  # noqa: E402
from daemon import Daemon  # noqa: E402
from stage import Stage  # noqa: E402
from waiting import wait_until  # noqa: E402

STREAM, REPLY, WAKE = "sluice:{default}:requests", "sluice:{default}:reply:", "sluice:{default}:wake:"


def minilm():
    return Stage(words=shapes.words(), positions=512, max_tokens=256, **shapes.SHAPES["minilm"])


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
    for name in sys.argv[2:] or ["latency", "redis"]:
        {"latency": latency, "redis": redis_time}[name]()

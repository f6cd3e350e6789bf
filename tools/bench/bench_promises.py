#!/usr/bin/python3
"""The cost of the queue's promises: taking over from a dead worker, Redis' time for a request, and an occasional request
of class high behind a backlog.

usage: bench_promises.py BUILD_DIR [reclaim|takeover|redis|high ...]
HELD=100,4000 sets the numbers of held requests for takeover; BACKLOG=20000 and FLAGS="--target-p99-ms 20" set the
numbers of waiting requests and the daemon's flags for high.
"""
import json
import os
import pathlib
import statistics
import sys
import time

import redis

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
os.environ["SLUICE_BINARY"] = str(BUILD / "sluice")
sys.path.insert(0, str(SOURCE / "tests/support"))

from bulk_rows import rows  # noqa: E402
from daemon import Daemon  # noqa: E402
from stage import Stage  # noqa: E402
from waiting import wait_until  # noqa: E402

PREFIX = "sluice:{default}:"
STREAM, DIM = PREFIX + "requests", 384


def null_engine(aof=None, where="/dev/shm"):
    return Stage(("--backend", "null"), aof, where, hidden=DIM, heads=12, layers=1)


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


# --- reclaim

def reclaim(kills=40, held=20):
    """The time from the kill -9 of a worker that holds entries in its window to each reply, while another one is
    idle."""
    for lease in (500, 1500):
        times = []
        with null_engine() as stage:
            for _ in range(kills):
                victim = stage.daemon("--lease-ms", lease, "--window", "fixed", "--window-ms", 60000)
                pipe = stage.client.pipeline(transaction=False)
                for number in range(held):
                    pipe.xadd(STREAM, {"text": f"text {number}", "encoding": "f32"})
                entries = pipe.execute()
                wait_until(lambda: stage.client.xpending(STREAM, "sluice")["pending"] == held, "all to be held",
                           ignore=(redis.ResponseError,))  # no group yet
                heir = stage.daemon("--lease-ms", lease)
                time.sleep(1.2 * lease / 1000)  # a new worker judges nobody for a lease, which is not measured
                victim.kill()
                killed = time.time()
                wait_until(lambda: stage.client.xlen(STREAM) == 0, "all to be answered")
                pipe = stage.client.pipeline(transaction=False)
                for entry in entries:
                    pipe.hget(PREFIX + "reply:" + entry.decode(), "info")
                times += [json.loads(info)["done_at"] - 1000 * killed for info in pipe.execute()]
                heir.stop()
        print(f"reclaim, lease {lease} ms, {kills} kills, {len(times)} entries: from kill -9 to reply p50 "
              f"{statistics.median(times):.0f} ms, p99 {share(times, 0.99):.0f}, most {max(times):.0f}", flush=True)


# --- takeover

def counters(client):
    stats, cpu = client.info("stats"), client.info("cpu")
    return stats["total_commands_processed"], cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def seconds(held, aof, dead):
    """The time until an idle worker has answered `held` requests that are held by a worker without a lease, or
    unread."""
    with null_engine(aof, where="/tmp") as stage:
        stage.client.xgroup_create(STREAM, "sluice", "0", mkstream=True)
        for first in range(0, held, 10000):
            pipe = stage.client.pipeline(transaction=False)
            for number in range(first, min(first + 10000, held)):
                pipe.xadd(STREAM, {"text": f"text {number}", "encoding": "f32"})
            pipe.execute()
        if dead:
            stage.client.execute_command("XREADGROUP", "GROUP", "sluice", "dead", "COUNT", held, "STREAMS", STREAM, ">")
        stage.daemon("--lease-ms", 500)
        started, cpu = time.monotonic(), counters(stage.client)
        wait_until(lambda: stage.client.xlen(STREAM) == 0, "all to be answered", timeout=1800)
        took = time.monotonic() - started
        return took, [after - before for after, before in zip(counters(stage.client), cpu)]


def takeover():
    """The time from a worker's start to the last answer; for half a second of it, a lease, the worker judges nobody."""
    for aof in ("everysec", "always"):
        for held in map(int, os.environ.get("HELD", "100,4000,100000").split(",")):
            for dead in (False, True):
                took, (calls, cpu) = seconds(held, aof, dead)
                print(f"takeover, appendfsync {aof}, {held} {'held by a dead worker' if dead else 'unread'}: {took:.2f} s, "
                      f"{calls} commands, {cpu:.2f} s of Redis; load {os.getloadavg()[0]:.1f}", flush=True)


# --- redis

def redis_round(queues, encoding, count=40_000):
    """us of Redis' main thread per request, from XADD to the reply, and bytes per reply, with one daemon per queue."""
    with null_engine() as stage:
        names = [f"queue{number}" for number in range(queues)]
        stage.daemons = [Daemon(stage.folder.name, number, stage.server.socket, stage.model, name, stage.flags).start()
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


# --- high


def backlog(client, texts):
    """Adds requests without notification whose replies expire soon."""
    for first in range(0, len(texts), 500):
        pipe = client.pipeline(transaction=False)
        for text in texts[first:first + 500]:
            pipe.xadd(STREAM, {"encoding": "f32", "ttl": 60, "text": text})
        pipe.execute()


def behind(stage, texts, every):
    """Returns, while `texts` wait: the times of single requests of class high, in ms, how many others ended during
    each, and how many of the backlog ended per second. every 0: none are sent."""
    backlog(stage.client, texts)
    client, times, passed = stage.client, [], []
    left = lambda: client.xlen(STREAM)  # noqa: E731
    stage.start("--precision", "f32", *os.environ.get("FLAGS", "").split())
    wait_until(lambda: left() < 0.95 * len(texts), "the backlog to move", timeout=60)
    begin, first = time.monotonic(), left()
    while (waiting := left()) > 0.05 * len(texts):
        if every == 0:
            time.sleep(0.02)
            continue
        sent = time.monotonic()
        entry = client.xadd(STREAM + ":high", {"text": f"where did number {len(times)} go?", "encoding": "f32", "notify": 1})
        assert client.blpop(PREFIX + "wake:high:" + entry.decode(), 60)
        times.append(1000 * (time.monotonic() - sent))
        passed.append(waiting - left())
        time.sleep(max(0.0, every - (time.monotonic() - sent)))
    rate = (first - left()) / (time.monotonic() - begin)
    wait_until(lambda: left() == 0, "the rest", timeout=120)
    return times, passed, rate


def high(every=0.1):
    """Uses the shipped model in f32. A request of class high comes every tenth of a second, and none in every other
    run."""
    texts, _ = rows(40_000)
    longest = sorted(texts, key=len)[-2000:]
    kinds = {"mixed": texts, "long": longest}
    for count in map(int, os.environ.get("BACKLOG", "20000,100000").split(",")):
        for kind, some in kinds.items():
            waiting = [f"{some[number % len(some)]} {number}" for number in range(count if kind == "mixed" else count // 5)]
            found, passed, rates = [], [], {0: [], every: []}
            while len(found) < 200 or len(rates[every]) < 2:
                for pause in (every, 0):
                    with Stage(model=SOURCE / "config/models/sluice-mini-en") as stage:
                        times, others, rate = behind(stage, waiting, pause)
                        found, passed = found + times, passed + others
                        rates[pause].append(rate)
            with_, without = (statistics.median(rates[pause]) for pause in (every, 0))
            print(f"high, behind {len(waiting)} {kind}: {len(found)} requests, p50 {statistics.median(found):.1f} ms, p99 "
                  f"{share(found, 0.99):.1f}, most {max(found):.1f}; others that ended meanwhile p50 {statistics.median(passed):.0f}, "
                  f"most {max(passed)}; backlog {with_:,.0f} a second, {without:,.0f} without high; load {os.getloadavg()[0]:.1f}",
                  flush=True)


if __name__ == "__main__":
    for name in sys.argv[2:] or ["reclaim", "takeover", "redis", "high"]:
        {"reclaim": reclaim, "takeover": takeover, "redis": redis_time, "high": high}[name]()

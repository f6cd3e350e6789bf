#!/usr/bin/python3
"""The cost of the queue's promises: taking over from a dead worker, a thousand clients that wait, requests with
features compared with plain ones, and an occasional request of class high behind a backlog.

usage: bench_promises.py BUILD_DIR [reclaim|takeover|waiters|features|high ...]
HELD=100,4000 sets the numbers of held requests for takeover; BACKLOG=20000 and FLAGS="--target-p99-ms 20" set the
numbers of waiting requests and the daemon's flags for high.
"""
import os
import pathlib
import selectors
import socket
import statistics
import sys
import time

import redis

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
os.environ["SLUICE_BINARY"] = str(BUILD / "sluice")
sys.path.insert(0, str(SOURCE / "tests/support"))

from bulk_rows import rows  # noqa: E402
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
                    pipe.hget(PREFIX + "reply:" + entry.decode(), "done_at")
                times += [int(done_at) - 1000 * killed for done_at in pipe.execute()]
                heir.stop()
        print(f"reclaim, lease {lease} ms, {kills} kills, {len(times)} entries: from kill -9 to reply p50 "
              f"{statistics.median(times):.0f} ms, p99 {share(times, 0.99):.0f}, most {max(times):.0f}", flush=True)


# --- takeover

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


# --- waiters

def encode(*words):
    return encode_bytes(*(str(word).encode() for word in words))


def encode_bytes(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Connections:
    """Many plain sockets, one per client."""

    def __init__(self, path, count):
        self.selector, self.sockets = selectors.DefaultSelector(), []
        for number in range(count):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ, number)
            self.sockets.append(connection)

    def wait(self, seconds):
        for key, _ in self.selector.select(seconds):
            yield key.data, key.fileobj.recv(1 << 16)

    def close(self):
        for connection in self.sockets:
            connection.close()


def counters(client):
    stats, cpu = client.info("stats"), client.info("cpu")
    return stats["total_commands_processed"], cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def by_wake_list(stage, ids, submit):
    """Each client blocks on its own wake key."""
    connections = Connections(stage.server.socket, len(ids))
    for connection, id in zip(connections.sockets, ids):
        connection.sendall(encode("BLPOP", f"{PREFIX}wake:{id}", 30))
    sent, seen = submit(notify=1), {}
    while len(seen) < len(ids):
        for number, answer in connections.wait(30):
            assert answer.startswith(b"*2"), answer
            seen[number] = time.monotonic() - sent
    connections.close()
    return list(seen.values())


def by_results_stream(stage, ids, submit):
    """One reader waits for all of them, as in a web process."""
    last, seen = "0", {}
    sent = submit(notify="stream:web")
    while len(seen) < len(ids):
        for _, entries in stage.client.xread({PREFIX + "results:web": last}, block=30000, count=1000):
            for last, fields in entries:
                seen[fields[b"id"]] = time.monotonic() - sent
    return list(seen.values())


def by_polling(stage, ids, submit, pause=0.02):
    """Each client polls every 20 ms."""
    connections = Connections(stage.server.socket, len(ids))
    sent, seen, due = submit(), {}, [0.0] * len(ids)
    while len(seen) < len(ids):
        now = time.monotonic()
        for number, id in enumerate(ids):
            if number not in seen and now >= due[number]:
                connections.sockets[number].sendall(encode("HGET", f"{PREFIX}reply:{id}", "status"))
                due[number] = now + pause
        for number, answer in connections.wait(0.001):
            if b"done" in answer:
                seen.setdefault(number, time.monotonic() - sent)
    connections.close()
    return list(seen.values())


def waiters(count=1000, rounds=5):
    """A thousand clients wait for a thousand replies; the cost of waiting shows without a real engine."""
    ways = {"poll each 20 ms": by_polling, "wake list": by_wake_list, "results stream": by_results_stream}
    found = {way: [] for way in ways}
    with null_engine() as stage:
        stage.daemon()
        for round_ in range(rounds):
            for way, wait in ways.items():
                ids = [f"{way.replace(' ', '-')}-{round_}-{number}" for number in range(count)]

                def submit(**fields):
                    pipe = stage.client.pipeline(transaction=False)
                    for id in ids:
                        pipe.xadd(STREAM, {"text": "a text to wait for", "id": id, "encoding": "f32", **fields})
                    started = time.monotonic()
                    pipe.execute()
                    return started

                commands, cpu = counters(stage.client)
                times = wait(stage, ids, submit)
                commands_after, cpu_after = counters(stage.client)
                found[way].append((statistics.median(times) * 1000, share(times, 0.99) * 1000,
                                   (commands_after - commands) / count, (cpu_after - cpu) / count * 1e6))
                stage.client.delete(PREFIX + "results:web")
    for way, rows in found.items():
        p50, p99, commands, cpu = (statistics.median(column) for column in zip(*rows))
        print(f"waiters, {count} at once, {way:16}: to the answer p50 {p50:.0f} ms, p99 {p99:.0f}; {commands:.2f} commands and "
              f"{cpu:.0f} us of Redis per request", flush=True)


# --- features


FILL = """local used = {}
for word in ARGV[2]:gmatch('[^ ]+') do used[word] = true end
for i = 1, ARGV[1] do
  local fields = {'text', 'the quick brown fox jumps over the lazy dog, number ' .. i, 'encoding', 'f32'}
  local values = {expires_in = 3600000, tenant = 't' .. (i % 7), meta = 'number ' .. i, id = 'r' .. i, notify = 'stream:web'}
  for _, name in ipairs({'expires_in', 'tenant', 'meta', 'id', 'notify'}) do
    if used[name] then
      fields[#fields + 1], fields[#fields + 2] = name, values[name]
    end
  end
  local stream = used.class and ((i % 10 == 0 and 1) or (i % 10 < 4 and 3)) or 2
  redis.call('XADD', KEYS[stream], '*', unpack(fields))
end"""


FEATURES = ("class", "expires_in", "tenant", "meta", "id", "notify")


def rate(features, requests, aof):
    """Requests per second of a full queue, and Redis' time per request in microseconds."""
    with null_engine(aof) as stage:
        keys = [STREAM + ":high", STREAM, STREAM + ":low"]
        for key in keys:
            stage.client.xgroup_create(key, "sluice", "0", mkstream=True)
        stage.client.eval(FILL, 3, *keys, requests, " ".join(features))
        left = lambda: sum(stage.client.xlen(key) for key in keys)  # noqa: E731
        stage.start()
        marks = []
        for part in (0.9, 0.1):
            wait_until(lambda: left() <= part * requests, "the queue to drain", timeout=120)
            marks.append((time.monotonic(), left(), counters(stage.client)[1]))
        (begin, first, before), (end, last, after) = marks
        return (first - last) / (end - begin), (after - before) / (first - last) * 1e6


def features(requests=60000, rounds=3):
    """Compares requests that use features, one by one and all together, with plain ones."""
    kinds = {"plain": (), **{name: (name,) for name in FEATURES}, "all but notify": FEATURES[:-1], "all": FEATURES}
    for aof in (None, "everysec"):
        found = {name: [] for name in kinds}
        for _ in range(rounds):
            for name, used in kinds.items():
                found[name].append(rate(used, requests, aof))
        plain = [row[0] for row in found["plain"]]
        for name, rows in found.items():
            rates, cpu = zip(*rows)
            ratio = statistics.median(a / b for a, b in zip(rates, plain))
            print(f"features, AOF {aof or 'off':9}{name:20}{statistics.median(rates):8,.0f} requests/s, {ratio:.2f} of plain, "
                  f"{statistics.median(cpu):.1f} us of Redis per request", flush=True)


# --- high


def backlog(server, texts):
    """Adds requests without notification whose replies expire soon, over a bare socket."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server.socket)
    answers = connection.makefile("rb")
    for first in range(0, len(texts), 500):
        part = texts[first:first + 500]
        connection.sendall(b"".join(encode_bytes(b"XADD", STREAM.encode(), b"*", b"encoding", b"f32", b"ttl", b"60", b"text",
                                                 text.encode()) for text in part))
        for _ in part:
            answers.readline()
            answers.readline()
    connection.close()


def behind(stage, texts, every):
    """Returns, while `texts` wait: the times of single requests of class high, in ms, how many others ended during
    each, and how many of the backlog ended per second. every 0: none are sent."""
    backlog(stage.server, texts)
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
    for name in sys.argv[2:] or ["reclaim", "takeover", "waiters", "features", "high"]:
        {"reclaim": reclaim, "takeover": takeover, "waiters": waiters, "features": features, "high": high}[name]()

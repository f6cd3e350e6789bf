#!/usr/bin/python3
"""The cost in Redis of each transition per request: the scripts of lua/, called with the daemon's batch sizes.

usage: bench_scripts.py [ROUNDS]

Time is the processor time of Redis' main thread (used_cpu of INFO): the script, reading its arguments and writing to
the append-only file; unlike the clock it does not run while others have the processor. Each round starts on an empty
server; the medians of the rounds are printed, with the lowest in brackets."""

import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/support"))

from redis_server import RedisServer  # noqa: E402
from scripts import Desk, End, Park, source  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
ENTRIES, TEXT = 3200, "a text of about the length that a search query has"
JSON = "[" + ",".join(["-0.012345678"] * 384) + "]"
F32 = b"\x3d\x12\x34\x56" * 384


def vector(embedding):
    return {"id": "x", "dim": "384", "encoding": "json", "embedding": embedding, "tokens": "18", "compute_ms": "1.234"}


class Bench:
    def __init__(self, server):
        self.desk = Desk(server.client())

    def used(self):
        cpu = self.desk.client.info("cpu")
        return cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]

    def run(self, left, per_call, prepare, make_calls):
        """us of the main thread per entry; `left` entries stay in their stream."""
        client = self.desk.client
        client.flushall()
        self.desk.groups()
        prepare()
        calls = make_calls([f"{i}-1" for i in range(1, ENTRIES + 1)], per_call)
        digest = client.script_load(source(calls[0].script))
        pipe = client.pipeline(transaction=False)
        for call in calls:
            pipe.execute_command("EVALSHA", digest, len(call.keys), *call.keys, *call.arguments)
        before = self.used()
        pipe.execute()
        used = self.used() - before
        assert client.xlen(self.desk.stream()) == left, "the scripts did something else"
        return used * 1e6 / ENTRIES

    def add(self, which="normal", make=lambda i: {"text": TEXT}):
        pipe = self.desk.client.pipeline(transaction=False)
        for i in range(1, ENTRIES + 1):
            pipe.xadd(self.desk.stream(which), make(i), f"{i}-1")
        pipe.execute()

    def deliver(self, which="normal", make=lambda i: {"text": TEXT}):
        self.add(which, make)
        self.desk.read("me", which)

    def stage(self):
        self.deliver()
        pipe = self.desk.client.pipeline(transaction=False)
        for i in range(1, ENTRIES + 1):
            pipe.hset(self.desk.key(f"stage:{i}-1"), mapping=vector(JSON))
        pipe.execute()

    def park(self):
        self.deliver()
        for call in self.groups_of(lambda part: self.desk.defer(*map(Park, part)))(
                [f"{i}-1" for i in range(1, ENTRIES + 1)], 64):
            self.desk.run(call)

    def parked_and_asked(self):
        self.park()
        self.ask()

    def asked(self):
        self.add()
        self.ask()

    def ask(self):
        self.deliver("high", lambda i: {"cancel": f"{i}-1"})

    @staticmethod
    def groups_of(make):
        return lambda ids, size: [make(ids[at:at + size]) for at in range(0, len(ids), size)]

    def settle(self, **more):
        def end(i):
            return End(i, **{key: value(i) if callable(value) else value for key, value in more.items()})

        return self.groups_of(lambda part: self.desk.settle(*map(end, part)))

    def cases(self):
        desk, each = self.desk, self.groups_of
        plain, json = vector(F32), vector(JSON)
        yield "settle, f32", 0, 20, self.deliver, self.settle(fields=plain)
        yield "settle, f32, notify 1", 0, 20, self.deliver, self.settle(fields=plain, notify="1")
        yield "settle, f32, results stream", 0, 20, self.deliver, self.settle(fields=plain, notify="hits")
        yield "settle, json", 0, 7, self.deliver, self.settle(fields=json)
        yield "settle, sent ahead (that apart)", 0, 7, self.stage, self.settle(staged=lambda i: int(i[:-2]))
        yield "settle, error", 0, 64, self.deliver, self.settle(kind="error")
        yield "settle, dead letter", 0, 64, self.deliver, self.settle(kind="dead")
        yield "defer", 0, 64, self.deliver, each(lambda part: desk.defer(*map(Park, part)))
        yield "promote", ENTRIES, 100, self.park, lambda ids, size: [desk.promote(size)] * (len(ids) // size)
        yield "cancel, in its stream", 0, 1, self.asked, each(lambda part: desk.cancel(part[0], part[0]))
        yield "cancel, parked", 0, 1, self.parked_and_asked, each(lambda part: desk.cancel(part[0], part[0]))
        yield "cancel, nothing there", 0, 1, self.ask, each(lambda part: desk.cancel(part[0], part[0]))
        yield "charge", ENTRIES, 1, self.deliver, each(lambda part: desk.charge(*part))
        yield "shed", ENTRIES, 100, self.add, lambda ids, size: [desk.shed(0, most=size)] * (len(ids) // size)
        yield "release", ENTRIES, 64, self.deliver, each(lambda part: desk.release(*part))


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for aof in (None, "everysec"):
            server = RedisServer(folder, f"redis-{aof}", aof=aof).start()
            bench = Bench(server)
            measured = {}
            for _ in range(ROUNDS):
                for name, *case in bench.cases():
                    measured.setdefault((name, case[1]), []).append(bench.run(*case))
            print(f"append-only file: {aof or 'off'}; us of Redis for each request, medians (lowest) of {ROUNDS}")
            for (name, size), times in measured.items():
                print(f"{name:32} {size:3} a call {statistics.median(times):6.1f} ({min(times):5.1f})")
            server.cleanup()


main()

#!/usr/bin/python3
"""The cost in Redis of the scripts with which a daemon inspects a queue now and then, while 10^3 to 10^7 entries wait.

usage: bench_looks.py [DEPTHS [CALLS]]

Entries are of one tenant, a worker holds 2,000, and as many before them were settled. Time is that of Redis' main
thread for a call (used_cpu of INFO)."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/support"))

from redis_server import RedisServer  # noqa: E402
from scripts import Desk, source  # noqa: E402

DEPTHS = [int(depth) for depth in (sys.argv[1] if len(sys.argv) > 1 else "1000,100000,1000000,10000000").split(",")]
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 300
HELD = 2000
FILL = """for i = 1, ARGV[1] do
  redis.call('XADD', KEYS[1], '*', 'text', 'the quick brown fox jumps over the lazy dog', 'tenant', 'one')
end"""


def fill(desk, count):
    while count > 0:
        desk.do("EVAL", FILL, 1, desk.stream(), min(count, 10000))
        count -= min(count, 10000)


def prepare(desk, depth):
    """Fills the queue; returns the id of an entry in the middle of those that wait."""
    desk.client.flushall()
    desk.groups()
    fill(desk, 2 * HELD + depth // 2)
    middle = desk.client.xrevrange(desk.stream(), count=1)[0][0]
    fill(desk, depth - depth // 2)
    settled = [entry for entry, _ in desk.client.xreadgroup("sluice", "me", {desk.stream(): ">"}, HELD)[0][1]]
    desk.client.xdel(desk.stream(), *settled)
    desk.client.xack(desk.stream(), "sluice", *settled)
    desk.client.xreadgroup("sluice", "me", {desk.stream(): ">"}, HELD)
    return middle.decode()


def used(client):
    cpu = client.info("cpu")
    return cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]


def run(client, call, times):
    """us of the main thread per call."""
    digest = client.script_load(source(call.script))
    pipe = client.pipeline(transaction=False)
    for _ in range(times):
        pipe.execute_command("EVALSHA", digest, len(call.keys), *call.keys, *call.arguments)
    before = used(client)
    pipe.execute()
    return (used(client) - before) * 1e6 / times


def cases(desk, depth, middle):
    yield "pulse of the housekeeper", desk.pulse(rows_per_s=1000), CALLS
    yield "pulse of another", desk.pulse("other", rows_per_s=1000), CALLS
    yield "reclaim, nobody died", desk.reclaim("released"), CALLS
    yield "sweep, 64 in hand", desk.sweep(), CALLS // 10
    if depth >= 2 * HELD:  # 64 entries to look at
        yield "fair, behind what was read", desk.fair("one"), CALLS // 10
        yield "fair, in the middle", desk.fair("one", after=middle), CALLS // 10
    yield "shed, the last 100 of all", desk.shed(depth // 2), 5


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        server = RedisServer(folder, "redis").start()
        desk, found = Desk(server.client()), {}
        for depth in DEPTHS:
            for name, call, times in cases(desk, depth, prepare(desk, depth)):
                found.setdefault(name, {})[depth] = run(desk.client, call, times)
        print(f"{'us of Redis for a call':28}" + "".join(f"{depth:>12,}" for depth in DEPTHS))
        for name, times in found.items():
            print(f"{name:28}" + "".join(f"{times[depth]:12.1f}" if depth in times else f"{'-':>12}" for depth in DEPTHS))
        server.cleanup()


main()

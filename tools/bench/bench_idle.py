#!/usr/bin/python3
"""The cost of idle workers in Redis, by their number: calls per second and the time of its main thread.

usage: bench_idle.py BUILD_DIR [WORKERS ...]      10r: ten real daemons; 100: one, and 99 connections that send the commands
                                                  of an idle worker other than the housekeeper
LOOK_S=20 sets how long each is observed. Calls are counted as clients send them; those inside scripts separately."""

import asyncio
import os
import pathlib
import sys
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
os.environ["SLUICE_BINARY"] = str(BUILD / "sluice")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/support"))

from scripts import Desk, source  # noqa: E402
from stage import Stage  # noqa: E402
from waiting import wait_until  # noqa: E402

LOOK_S = float(os.environ.get("LOOK_S", 20))
HEARTBEAT = {"state": "running", "held": 0, "waiting": 0, "computing": 0, "done": 0, "errors": 0, "dead": 0, "devices": 1,
             "devices_lost": 0, "rows_per_s": "1000.000"}


def wire(*words):
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def script(digests, call):
    return wire("EVALSHA", digests[call.script], len(call.keys), *call.keys, *call.arguments)


async def drain(reader):
    while await reader.read(65536):
        pass


async def send_at(writer, every, phase, data, stop):
    await asyncio.sleep(phase * every)
    while not stop.is_set():
        writer.write(data)
        await asyncio.sleep(every)


async def idle_worker(path, desk, digests, number, stop):
    """Sends what src/redis sends for an idle worker: pulse, INFO and a list of its pending entries each second, renew
    at a third of a lease of 5 s, and a read that blocks for 2 s. Its rank is too low to take the chores from the real
    worker."""
    name, phase = f"simulated-{number}-00000000", (number * 0.618) % 1
    connections = [await asyncio.open_unix_connection(path) for _ in range(2)]
    drains = [asyncio.create_task(drain(reader)) for reader, _ in connections]
    streams = [desk.stream(which) for which in ("high", "normal", "low")]
    listed = b"".join(wire("XPENDING", stream, "sluice", "(0-0", "+", 16, name) for stream in streams)
    pulse = script(digests, desk.pulse(name, 0, 3000, **HEARTBEAT)) + wire("INFO", "memory") + listed
    read = wire("XREADGROUP", "GROUP", "sluice", name, "COUNT", 512, "BLOCK", 2000, "STREAMS", *streams, ">", ">", ">")
    await asyncio.gather(
        send_at(connections[1][1], 1, phase, pulse, stop),
        send_at(connections[1][1], 5 / 3, phase, script(digests, desk.renew(f"token-{number}", name)), stop),
        send_at(connections[0][1], 2, phase, read, stop))
    for task, (_, writer) in zip(drains, connections):
        writer.close()
        task.cancel()


def counted(client):
    stats = client.info("commandstats")
    cpu = client.info("cpu")
    outer = {"cmdstat_evalsha", "cmdstat_xreadgroup", "cmdstat_info", "cmdstat_xinfo|consumers"}
    return (sum(one["calls"] for name, one in stats.items() if name in outer), sum(one["calls"] for one in stats.values()),
            cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])


async def look(stage, simulated):
    desk = Desk(stage.client, "default")
    digests = {name: stage.client.script_load(source(name)) for name in ("pulse", "renew")}
    stop = asyncio.Event()
    for number in range(simulated):
        stage.client.set(desk.key(f"alive:simulated-{number}-00000000"), f"token-{number}", px=5000)
    workers = [asyncio.create_task(idle_worker(stage.server.socket, desk, digests, number, stop)) for number in range(simulated)]
    await asyncio.sleep(6)
    before, began = counted(stage.client), time.monotonic()
    await asyncio.sleep(LOOK_S)
    after, took = counted(stage.client), time.monotonic() - began
    stop.set()
    await asyncio.gather(*workers)
    return [(b - a) / took for a, b in zip(before, after)]


def main():
    print(f"{'workers':>8} {'calls/s':>10} {'inside too':>12} {'% of a core':>12}")
    for words in sys.argv[2:] or ["1", "10r", "10", "100", "300"]:
        real = int(words[:-1]) if words.endswith("r") else 1
        simulated = 0 if words.endswith("r") else int(words) - 1
        with Stage(("--backend", "null")) as stage:
            for _ in range(real):
                stage.daemon()
            wait_until(lambda: stage.client.hlen("sluice:{default}:workers") >= real, "heartbeats")
            calls, inside, cpu = asyncio.run(look(stage, simulated))
            print(f"{words:>8} {calls:10.1f} {inside:12.1f} {cpu * 100:12.2f}", flush=True)


if __name__ == "__main__":
    main()

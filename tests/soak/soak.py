"""A long run with all kinds of work and faults at once: requests of every kind through two workers, while workers and Redis
are killed, stopped and restarted at random. `make soak`; tests/soak/soak.py --help says what can be changed.

It ends when the requests are sent and answered, or when the time is over: then the requests that were sent must still be
answered. The independent checker judges the run; memory, descriptors and threads of the workers must be back where they began.

--adversary adds a hostile producer and an honest tenant beside it, whose p99 is reported: compare with --honest, which adds
the honest tenant alone. The checker judges strangers' requests only by one rule: they change nothing for the others."""

import argparse
import os
import random
import signal
import sys
import time

import redis

from acl import rules
from adversary import Adversary, Honest
from case import SluiceCase
from checker import Checker
from corpus import texts
from mixed import Mixed

from waiting import wait_until

FAULTS = ("worker kill", "worker stopped", "deploy", "redis kill")


class Progress:
    """Counts the answered requests, without asking twice."""

    def __init__(self, producer, journal):
        self.producer, self.journal = producer, journal
        self.open, self.taken, self.answered = [], 0, 0

    def look(self):
        """Asks for the oldest open requests; returns the number that is still open."""
        requests = list(self.journal.requests.values())
        self.open += requests[self.taken:]
        self.taken = len(requests)
        while self.open:
            some, rest = self.open[:2000], self.open[2000:]
            pipe = self.producer.client.pipeline(transaction=False)
            for request in some:
                pipe.hget(self.producer.key(f"reply:{request.id}"), "status")
            left = [request for request, status in zip(some, pipe.execute()) if status not in (b"done", b"error", b"cancelled")]
            self.answered += len(some) - len(left)
            self.open = left + rest
            if left:
                break
        return len(self.open)


class Counting(Mixed):
    """Stops by itself after `most` requests; several threads share the work."""

    def __init__(self, *arguments, most, **options):
        super().__init__(*arguments, **options)
        self.most = most

    def _submit(self, id, text):
        if self.count >= self.most:
            self._stop.set()
        else:
            super()._submit(id, text)


class Soak(SluiceCase):
    lease_ms = 2000

    def runTest(self):
        self.generator = random.Random(OPTIONS.seed)
        # The append-only file is rewritten now and then, so that a restart after a million replies takes seconds and not minutes.
        users = self.write("users.acl", " ".join(["user", "sluice-producer", *rules("producer", self.queue), ">pw\n"]))
        self.server = self.start_redis(aof="always", options=["--aclfile", users, "--slowlog-log-slower-than", "1000",
                                                              "--slowlog-max-len", "1000", "--aof-use-rdb-preamble", "yes",
                                                              "--auto-aof-rewrite-percentage", "100", "--auto-aof-rewrite-min-size", "32mb"])
        self.server.start_timeout = 300
        self.daemons = [self.start_daemon(self.server) for _ in range(2)]
        self.sender = self.producer(self.server)
        before = [self.footprint(daemon) for daemon in self.daemons]
        loads = [self.counting(number) for number in range(OPTIONS.producers)]
        self.honest = self.adversary = None
        if OPTIONS.honest or OPTIONS.adversary:
            self.honest = Honest(self.producer(self.server), texts(200, seed=99, longest=12))
            self.loads.append(self.honest.start())
        if OPTIONS.adversary:
            self.adversary = Adversary(self.server, self.queue, self.honest)
            self.loads.append(self.adversary.start())
        progress = Progress(self.sender, self.journal)
        self.ends = time.monotonic() + OPTIONS.minutes * 60
        self.run_faults(loads, progress)
        for load in self.loads:
            load.stop()
        if self.honest:
            wait_until(lambda: self.honest.flush() == 0, lambda: f"{len(self.honest.open)} honest requests", timeout=300)
        wait_until(lambda: self.look(progress) == 0, lambda: f"{len(progress.open)} answers, such as "
                   f"{[request.id for request in progress.open[:5]]}", timeout=300, ignore=(redis.ConnectionError,))
        wait_until(lambda: self.sender.unfinished() == 0, "empty streams")
        self.report(loads)
        self.check(before)

    def counting(self, number):
        load = Counting(self.server, self.queue, self.journal, texts(400, seed=number, longest=12), depth=1500,
                        prefix=f"soak-{number}", seed=OPTIONS.seed + number, most=OPTIONS.requests // OPTIONS.producers)
        self.loads.append(load)
        return load.start()

    def footprint(self, daemon):
        folder = f"/proc/{daemon.pid}"
        return {"descriptors": len(os.listdir(f"{folder}/fd")), "threads": len(os.listdir(f"{folder}/task")),
                "bytes": daemon.rss_bytes()}

    def look(self, progress):
        left = progress.look()
        if sys.stderr.isatty():
            print(f"\r{progress.answered} of {progress.taken} answered, {self.journal.faults}", end="", file=sys.stderr)
        return left

    # --- faults

    def name_of(self, daemon):
        """The daemon's name once it has joined, from its heartbeat: to look through a million keys would take too long."""
        client = self.server.client()
        names = [name.decode() for name in client.hkeys(self.sender.key("workers"))]
        own = [name for name in names if f"-{daemon.pid}-" in name and client.exists(self.sender.key(f"alive:{name}"))]
        return own[0] if own else None

    def wait_joined(self, daemon):
        return wait_until(lambda: self.name_of(daemon), "a worker to join", timeout=120,
                          ignore=(redis.ConnectionError, redis.TimeoutError))

    def run_faults(self, loads, progress):
        """A fault every few hundred milliseconds until all is sent, the rare ones after a number of the others."""
        for number in range(1, 1 << 30):
            if not any(load.running() for load in loads) or time.monotonic() > self.ends:
                return
            # The pause between faults is the shape of the run, not a wait for something.
            time.sleep(self.generator.uniform(0.2, 0.8))
            try:
                if number % 16 == 0:
                    self.kill_redis()
                elif number % 7 == 0:
                    self.stop_worker()
                elif number % 5 == 0:
                    self.deploy()
                else:
                    self.kill_worker()
                self.look(progress)
            except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
                continue

    def victim(self):
        return self.generator.choice(self.daemons)

    def kill_worker(self):
        daemon = self.victim()
        name = self.wait_joined(daemon)
        daemon.kill()
        self.journal.kills.append(name)
        self.journal.fault("worker kill", self.pending(self.server.client(), worker=name) > 0)
        self.wait_joined(daemon.start())

    def deploy(self):
        daemon = self.victim()
        self.assertEqual(daemon.stop(), 0, daemon.read_log()[-2000:])
        self.journal.fault("deploy")
        self.wait_joined(daemon.start())

    def stop_worker(self):
        daemon = self.victim()
        name = self.wait_joined(daemon)
        daemon.signal(signal.SIGSTOP)
        wait_until(lambda: self.server.client().exists(self.sender.key(f"alive:{name}")) == 0, "its lease to end")
        daemon.signal(signal.SIGCONT)
        self.journal.fault("worker stopped")

    def kill_redis(self):
        self.server.kill()
        self.server.start()
        self.journal.fault("redis kill")
        for daemon in self.daemons:
            self.wait_joined(daemon)

    # --- the end

    def report(self, loads):
        kinds = {}
        for load in loads:
            for kind, count in load.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + count
        faults = ", ".join(f"{count} times {kind}" for kind, count in sorted(self.journal.faults.items()))
        self.report_slow_commands()
        if self.honest:
            print(f"\n{self.honest.count} requests of the honest tenant: p50 {self.honest.percentile(.5):.3f} s, "
                  f"p99 {self.honest.percentile(.99):.3f} s, XADD refused for {self.honest.refused:.1f} s at the longest")
        if self.adversary:
            self.assertEqual(self.adversary.allowed, [])
            print(f"the adversary's actions: {self.adversary.done}")
        print(f"\n{len(self.journal.requests)} requests ({', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))}); {faults}")

    def report_slow_commands(self):
        """Prints the commands that blocked all others longest since Redis was started last, by Redis' clock, on a machine that is busy
        otherwise, too."""
        slowest = {}
        for entry in self.server.client().slowlog_get(1000):
            word = (entry["command"].split() or [b"(none)"])[0].decode().upper()  # Redis may know the words no longer
            slowest[word] = max(slowest.get(word, 0), entry["duration"])
        print("\nthe longest commands: " + (", ".join(f"{word} {took / 1000:.1f} ms" for word, took in sorted(slowest.items())) or "below 1 ms"))

    def check(self, before):
        # The append-only file was rewritten, so it is no history of the whole run: only the final state is judged.
        self.server.aof = None
        problems = Checker(self.server, self.queue, self.journal, self.reference()).violations(faults=FAULTS, strangers=OPTIONS.adversary)
        shown = "\n  ".join(problems[:20])
        self.assertEqual(problems, [], f"{len(problems)} violations:\n  {shown}")
        for daemon, then in zip(self.daemons, before):
            wait_until(lambda: self.back_to(then, daemon), lambda: f"{self.footprint(daemon)} to be back at {then}")
            self.assertEqual(daemon.stop(), 0)

    def back_to(self, then, daemon):
        """Memory may have grown by a working daemon's buffers, and by what the allocator keeps."""
        now = self.footprint(daemon)
        return now["descriptors"] <= then["descriptors"] and now["threads"] <= then["threads"] and \
            now["bytes"] <= then["bytes"] + OPTIONS.memory_mib * 2**20


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=1000000, help="how many to send [1000000]")
    parser.add_argument("--minutes", type=float, default=60, help="stop sending after so long [60]")
    parser.add_argument("--producers", type=int, default=2, help="threads that send [2]")
    parser.add_argument("--memory-mib", type=float, default=96, help="how much more memory a worker may hold at the end [96]")
    parser.add_argument("--honest", action="store_true", help="an honest tenant's p99, too")
    parser.add_argument("--adversary", action="store_true", help="and a producer that means harm")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    OPTIONS = options()
    import unittest
    outcome = unittest.TextTestRunner(verbosity=0).run(Soak())
    sys.exit(0 if outcome.wasSuccessful() else 1)

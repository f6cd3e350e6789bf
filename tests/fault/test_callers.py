"""Callers that wait with the recipe of docs/producers.md and its deadline of 10 s, while workers are killed: no caller
gets an error, all with the default lease. Also: how a living worker takes over from a dead worker of the same host."""
# ctest-cost: 40

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from case import RedisCase, scaled
from corpus import texts
from daemon import SOURCE

sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
from blocks import only_block, put_in  # noqa: E402

CALLERS = 60


class Recipe:
    """Callers of embed(), each in its own thread, one text after another until they are stopped or get an error."""

    def __init__(self, case, server):
        with open(os.path.join(SOURCE, "docs", "producers.md"), encoding="utf-8") as page:
            code = put_in(only_block(page.read(), "class EmbeddingError"), "redis.Redis()",
                          f"redis.Redis(unix_socket_path={server.socket!r})")
        self.names, self.counts, self.errors, self.longest, self.ends = {}, [0] * CALLERS, [], 0, False
        exec(compile(code, "producers.md", "exec"), self.names)  # pylint: disable=exec-used
        self.case, self.texts = case, texts(400, seed=9, longest=10)
        self.threads = [threading.Thread(target=self._call, args=(number,)) for number in range(CALLERS)]
        for thread in self.threads:
            thread.start()
        case.addCleanup(self.stop)

    def _call(self, number):
        while not self.ends:
            began = time.monotonic()
            try:
                self.names["embed"](self.texts[(number + self.counts[number]) % len(self.texts)])
            except Exception as error:  # pylint: disable=broad-except
                self.errors.append(f"{type(error).__name__}: {error}")
                return
            self.longest = max(self.longest, time.monotonic() - began)
            self.counts[number] += 1

    def wait_round(self):
        """Waits until each caller has sent a new request and received its vector."""
        before = list(self.counts)
        self.case.wait_until(lambda: self.errors or all(now > then + 1 for now, then in zip(self.counts, before)),
                             "each caller to be served")
        self.case.assertEqual(self.errors, [])

    def stop(self):
        self.ends = True
        for thread in self.threads:
            thread.join()
        self.case.assertEqual(self.errors, [])


class Callers(RedisCase):
    queue = "default"

    def setUp(self):
        super().setUp()
        self.daemons = [self.start_slow(self.server) for _ in range(2)]
        self.callers = Recipe(self, self.server)
        self.callers.wait_round()

    def make_daemon(self, *arguments, **options):
        daemon = super().make_daemon(*arguments, **options)
        at = daemon.argv.index("--lease-ms")
        del daemon.argv[at:at + 2]
        return daemon

    def kill(self, victim):
        """Sends kill -9 while the worker holds requests of callers."""
        self.catch(victim, self.client)
        held = self.held_by(victim, self.client)
        victim.kill()
        return held

    def test_ten_kills_one_after_another(self):
        """As a supervisor would, the test restarts each killed worker at once, so two stay alive."""
        held = []
        for number in range(scaled(10)):
            victim = self.daemons[number % 2]
            held.append(self.kill(victim))
            victim.start()
            self.callers.wait_round()
        self.callers.stop()
        print(f"killed with {held} requests in hand; {sum(self.callers.counts)} answers, the last to come within "
              f"{self.callers.longest:.1f} s")

    def test_a_kill_without_a_successor(self):
        """Kills the housekeeper, so that a new one has to be elected first: the worst case on several hosts, too."""
        keeper = self.client.get("sluice:{default}:housekeeper").decode().split()[1]
        victim = next(daemon for daemon in self.daemons if daemon.last_name() == keeper)
        held = self.kill(victim)
        self.callers.wait_round()
        self.callers.stop()
        print(f"killed with {held} requests in hand; the last answer came within {self.callers.longest:.1f} s")


class Neighbours(RedisCase):
    """Leases last a minute: a worker that waits for one to end would not finish before the test does."""

    lease_ms = 60_000


    def start_holder(self):
        """Starts a worker and waits until its window holds 30 requests."""
        holder = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000")
        self.sender.submit_many(texts(30, seed=4, longest=4), encoding="f32")
        self.wait_until(lambda: self.held_by(holder, self.client) == 30, "all entries to be held")
        return holder

    def heartbeat(self, name):
        return (self.client.hget(self.sender.key("workers"), name) or b"0").decode()

    def wait_heartbeats(self, name, count):
        for _ in range(count):
            before = self.heartbeat(name).split()[0]
            self.wait_until(lambda: self.heartbeat(name).split()[0] != before, "a heartbeat")

    def assert_taken_over_at_once(self, victim, since):
        self.wait_finished(self.sender, timeout=30)
        self.assertFalse(self.client.exists(self.sender.key("alive:" + victim)))
        self.assertLess(time.monotonic() - since, self.lease_ms / 2000, "the lease was waited for")
        self.finish(self.server, self.sender)

    def test_a_successor_waits_for_nothing(self):
        """It waits neither for its predecessor's lease to end nor for a lease's length of its own before it judges
        other workers."""
        victim = self.start_holder()
        name = victim.last_name()
        victim.kill()
        self.journal.kills.append(name)
        since = time.monotonic()
        successor = self.start_daemon(self.server)
        self.assert_taken_over_at_once(name, since)
        self.logged(successor, f"lease_given_up.*{name}")

    def test_the_housekeeper_looks_at_its_neighbours(self):
        """The neighbour was running before: it is elected when the dead housekeeper's token has expired."""
        victim = self.start_holder()
        neighbour = self.start_daemon(self.server)
        self.wait_heartbeats(neighbour.last_name(), 2)
        name = victim.last_name()
        victim.kill()
        self.journal.kills.append(name)
        self.assert_taken_over_at_once(name, time.monotonic())
        self.logged(neighbour, f"lease_given_up.*{name}")

    def test_a_stopped_neighbour_keeps_its_lease(self):
        """After SIGSTOP the neighbour is silent, but its process exists, and its late results are still accepted as
        replies."""
        stopped = self.start_holder()
        name = stopped.last_name()
        stopped.signal(signal.SIGSTOP)
        newcomer = self.start_daemon(self.server)
        self.wait_until(lambda: newcomer.last_name().encode() in (self.client.get(self.sender.key("housekeeper")) or b""),
                        "the newcomer to be elected")
        self.wait_heartbeats(newcomer.last_name(), 4)
        self.assertTrue(self.client.exists(self.sender.key("alive:" + name)))
        self.assertEqual(self.held_by(stopped, self.client), 30)
        stopped.signal(signal.SIGCONT)
        self.assertEqual(stopped.stop(), 0)  # returns the requests in its window
        self.finish(self.server, self.sender)

    def test_only_what_is_proved_dead_loses_its_lease(self):
        """Fake leases: one of a free process id, which is provably dead; each of the others differs from it in one
        point."""
        living = self.start_daemon(self.server)
        words = self.heartbeat(living.last_name()).split()
        space = words[words.index("pid_space") + 1]
        host, gone = socket.gethostname(), self.free_pid()
        old, now = 1, 4102444800000  # now: the server's clock never reaches it
        fakes = {
            "dead": (f"{host}-{gone}-00000001", old, space),
            "of a living process": (f"{host}-{os.getpid()}-00000002", old, space),
            "of another host": (f"{host}x-{gone}-00000003", old, space),
            "of another boot": (f"{host}-{gone}-00000004", old, "0" + space),
            "of another container": (f"{host}-{gone}-00000005", old, space + "0"),
            "has just spoken": (f"{host}-{gone}-00000006", now, space),
            "of another shape": (f"{host}-{gone}-nobody", old, space),
            "without a process id": (f"{host}-0-00000007", old, space),
            "of all processes": (f"{host}--1-00000008", old, space),
            "of an old version": (f"{host}-{gone}-00000009", old, None),
        }
        for name, spoke, where in fakes.values():
            self.client.set(self.sender.key("alive:" + name), "token")
            self.client.hset(self.sender.key("workers"), name,
                             f"{spoke} state running lease 999999999999999" + (f" pid_space {where}" if where else ""))
        self.wait_until(lambda: not self.client.exists(self.sender.key("alive:" + fakes["dead"][0])), "the dead one's to go")
        self.wait_heartbeats(living.last_name(), 3)
        left = {why for why, (name, _, _) in fakes.items() if self.client.exists(self.sender.key("alive:" + name))}
        self.assertEqual(left, set(fakes) - {"dead"})
        self.assertEqual(len(re.findall("lease_given_up", living.read_log())), 1)

    def free_pid(self):
        """The id of a process that has ended."""
        child = subprocess.Popen(["true"])
        child.wait()
        return child.pid

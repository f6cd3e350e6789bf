"""Mishaps under a running daemon: each of our keys with a wrong type, and clocks that jump. docs/operations.md
describes the effects."""
# ctest: threads
# ctest-cost: 10

import os
import signal
import struct

import daemon as daemon_module
from case import RedisCase, SluiceCase
from corpus import texts

SHIM = os.path.join(os.path.dirname(daemon_module.BINARY), "tests", "libclock_shim.so")
HOUR_MS = 3600_000


class WrongTypes(RedisCase):
    """The key holds somebody else's value; the daemon goes on without the key and never overwrites it (except for
    replies)."""


    def goes_on_beside(self, *names, before=True):
        keys = [self.sender.key(name) for name in names]
        if before:
            for key in keys:
                self.client.set(key, "not yours")
        served = self.start_daemon(self.server)
        if not before:
            for key in keys:
                self.client.delete(key)
                self.client.set(key, "not yours")
        self.wait_finished(self.sender, self.sender.submit_many(texts(60, seed=5), encoding="f32", notify="1"))
        self.wait_empty(self.sender)
        for key in keys:
            self.assertEqual(self.client.get(key), b"not yours", key)
            self.client.delete(key)
        self.assertEqual(served.stop(), 0)
        self.assert_clean(self.server)

    def test_trouble(self):
        self.goes_on_beside("trouble")

    def test_workers(self):
        self.goes_on_beside("workers")

    def test_dead(self):
        self.goes_on_beside("dead")

    def test_later(self):
        self.goes_on_beside("later", "later:data")

    def test_all_of_them_while_it_runs(self):
        self.goes_on_beside("trouble", "workers", "dead", before=False)

    def test_paused_of_any_type_is_a_pause(self):
        self.client.hset(self.sender.key("paused"), "by", "somebody")
        served = self.start_daemon(self.server)
        request = self.sender.submit("waits")
        name = served.worker_name(self.client)
        self.wait_until(lambda: self.client.hexists(self.sender.key("workers"), name), "the worker to have asked")
        self.assertEqual(self.client.xlen(self.sender.stream), 1)
        self.client.delete(self.sender.key("paused"))
        self.wait_finished(self.sender, [request])

    def test_meta_stops_nobody_who_has_joined(self):
        """`meta` holds the model's id: a worker cannot join while it has a wrong type, and says so until the key is
        gone."""
        served = self.start_daemon(self.server)
        self.wait_finished(self.sender, self.sender.submit_many(texts(20, seed=1)))
        meta = self.sender.key("meta")
        self.client.rename(meta, "kept")
        self.client.set(meta, "not yours")
        self.wait_finished(self.sender, self.sender.submit_many(texts(20, seed=2)))
        second = self.make_daemon(self.server).start()
        self.wait_until(lambda: "WRONGTYPE" in second.read_log(), "a word about the key")
        self.assertEqual(self.client.get(meta), b"not yours")
        self.client.rename("kept", meta)
        second.wait_ready(self.client)
        for daemon in (served, second):
            self.assertEqual(daemon.stop(), 0)
        self.assert_clean(self.server)

    def test_a_reply_key_is_the_daemons(self):
        """Any value at the reply's key is replaced; a wake key is left alone, and the reply is written all the same."""
        self.start_daemon(self.server)
        self.client.rpush(self.sender.key("reply:mine"), "x")
        self.client.set(self.sender.key("wake:mine"), "not yours")
        self.sender.submit("words", id="mine", notify="1")
        self.wait_until(lambda: self.client.type(self.sender.key("reply:mine")) == b"hash", "the reply in its place")
        self.assertEqual(self.client.hget(self.sender.key("reply:mine"), "status"), b"done")
        self.assertEqual(self.client.get(self.sender.key("wake:mine")), b"not yours")


class Clocks(SluiceCase):
    """The clock of Redis' machine, or of a worker's, is set while requests are processed."""

    def setUp(self):
        super().setUp()
        self.assertTrue(os.path.exists(SHIM), f"{SHIM} is not built")
        self.write("shift", struct.pack("=q", 0))
        self.server = self.start_redis(environment={"LD_PRELOAD": SHIM, "CLOCK_SHIM": self.path("shift")})
        self.client = self.server.client()
        self.sender = self.producer(self.server)

    def shift(self, name, shift_ms):
        """Writes in place, because the library has the file mapped."""
        with open(self.path(name), "r+b") as file:
            file.write(struct.pack("=q", shift_ms))

    def set_clock(self, shift_ms):
        before = self.now_ms()
        self.shift("shift", shift_ms)
        self.wait_until(lambda: abs(self.now_ms() - before) > HOUR_MS // 2, "Redis to see its new clock")
        self.journal.fault("clock jumped")

    def finish(self, load):
        load.stop()
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        self.assert_clean(self.server, faults=["clock jumped"], ttl_seconds=4 * HOUR_MS // 1000)  # a TTL also ends at a point in time

    def test_back_two_hours(self):
        """Ids and leases continue: nothing is lost, answered twice or blamed. Requests that wait for a time wait
        longer."""
        daemons = [self.start_daemon(self.server), self.start_daemon(self.server)]
        load = self.start_load(self.server)
        self.wait_until(lambda: load.count > 200, "some requests to be answered")
        self.set_clock(-2 * HOUR_MS)
        self.wait_until(lambda: load.count > 600, "requests to be answered after the jump")
        self.finish(load)
        for served in daemons:
            self.assertEqual(served.stop(), 0)

    def test_ahead_with_delays_and_deadlines(self):
        """All leases end at once: workers find theirs gone, finish what they hold, and join again. Delayed requests
        become due, and those whose deadline has passed are answered with `expired`."""
        names = set()
        served = self.start_daemon(self.server)
        names.add(served.worker_name(self.client))
        self.sender.submit_many(texts(50, seed=3), ttl="604800")
        self.wait_finished(self.sender)
        delayed = self.sender.submit("not before in an hour", delay=str(HOUR_MS), ttl="604800")
        expiring = self.sender.submit("within the hour", "expired", delay=str(HOUR_MS // 2), expires_in=str(HOUR_MS // 2), ttl="604800")
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 2, "both to be parked")
        self.set_clock(HOUR_MS + 1000)
        self.wait_finished(self.sender, [delayed, expiring])
        self.wait_until(lambda: served.worker_name(self.client) not in names | {None}, "the worker to join under a new name")
        self.wait_finished(self.sender, self.sender.submit_many(texts(50, seed=4), ttl="604800"))
        self.wait_empty(self.sender)
        self.assert_clean(self.server, faults=["clock jumped"], ttl_seconds=604800)
        self.assertEqual(served.stop(), 0)

    def test_back_while_a_worker_is_dead(self):
        """The jump lengthens a dead worker's lease: its requests wait until the lease ends, and are then taken over."""
        dead = self.start_daemon(self.server)
        load = self.start_load(self.server)
        name = self.catch(dead, self.client)
        self.set_clock(-2 * HOUR_MS)
        dead.signal(signal.SIGCONT)
        dead.kill()
        self.journal.kills.append(name)
        heir = self.start_daemon(self.server)
        if self.pending(self.client, worker=name) > 0:
            self.assertEqual(self.client.exists(self.sender.key("alive:" + name)), 1)
        self.client.delete(self.sender.key("alive:" + name))  # as an operator does who will not wait
        self.finish(load)
        self.assertEqual(heir.stop(), 0)

    def test_a_workers_clock_is_of_no_account(self):
        """The clock of the worker's machine is wrong: delays and deadlines follow Redis' clock, leases a monotonic
        one."""
        self.write("worker-shift", struct.pack("=q", 5 * HOUR_MS))
        served = self.make_daemon(self.server, environment={"LD_PRELOAD": SHIM, "CLOCK_SHIM": self.path("worker-shift"),
                                                            "ASAN_OPTIONS": "verify_asan_link_order=0"})
        served.start().wait_ready(self.client)
        name = served.worker_name(self.client)
        parked = self.sender.submit("in an hour, by Redis", delay=str(HOUR_MS), ttl="604800")
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 1, "it to be parked")
        first = self.sender.submit_many(texts(50, seed=6), expires_in="60000", ttl="604800")
        self.wait_finished(self.sender, first)
        self.shift("worker-shift", -5 * HOUR_MS)
        self.wait_finished(self.sender, self.sender.submit_many(texts(50, seed=7), expires_in="60000", ttl="604800"))
        self.assertFalse(self.sender.finished([parked]))
        self.assertEqual(served.worker_name(self.client), name, "it has kept its lease")
        self.set_clock(HOUR_MS + 1000)
        self.wait_finished(self.sender, [parked])
        self.wait_empty(self.sender)
        self.assert_clean(self.server, faults=["clock jumped"], ttl_seconds=604800)
        self.assertEqual(served.stop(), 0)

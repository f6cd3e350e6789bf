"""A worker that stands still longer than its lease and then goes on: its late results are dropped, and it joins again."""

import signal
import time

from case import SluiceCase, scaled
from corpus import texts


class Pause(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_redis()
        self.client = self.server.client()
        self.sender = self.producer(self.server)

    def finish(self, **options):
        self.wait_finished(self.sender)
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 0, "an empty stream")
        self.assert_clean(self.server, **options)

    def lease_ended(self, name):
        return self.client.exists(self.sender.key(f"alive:{name}")) == 0

    def test_stopped_past_the_lease(self):
        daemons = [self.start_daemon(self.server), self.start_daemon(self.server)]
        for round in range(scaled(6)):
            sleeper = daemons[round % 2]
            name = sleeper.worker_name(self.client)
            self.sender.submit_many(texts(400, seed=round), encoding="f32")
            self.wait_until(lambda: self.pending(self.client, worker=name) > 0 or self.client.xlen(self.sender.stream) == 0,
                            "the sleeper to hold something")
            sleeper.signal(signal.SIGSTOP)
            held = self.pending(self.client, worker=name)
            self.wait_until(lambda: self.lease_ended(name), "its lease to end")
            # While it stands still, the other one answers everything, what the sleeper held included.
            self.wait_finished(self.sender)
            self.journal.fault("stopped with entries", held > 0)
            sleeper.signal(signal.SIGCONT)
            self.wait_until(lambda: sleeper.alive_key(self.client), "the sleeper to join again")
        self.finish(faults=["stopped with entries"])
        for daemon in daemons:
            self.assertEqual(daemon.stop(), 0)

    def test_stopped_alone(self):
        """With nobody else there, the sleeper finishes its own work when it wakes."""
        daemon = self.start_daemon(self.server)
        for round in range(scaled(3)):
            name = daemon.worker_name(self.client)
            self.sender.submit_many(texts(500, seed=20 + round), encoding="f32")
            self.wait_until(lambda: self.pending(self.client) > 0, "entries in its hands")
            daemon.signal(signal.SIGSTOP)
            self.wait_until(lambda: self.lease_ended(name), "its lease to end")
            self.journal.fault("stopped alone", self.pending(self.client) > 0)
            daemon.signal(signal.SIGCONT)
            self.wait_finished(self.sender)
            self.wait_until(lambda: daemon.alive_key(self.client), "the sleeper to join again")
        self.finish(faults=["stopped alone"])

    def test_redis_stopped(self):
        """Redis stands still for longer than a lease: when it goes on, nobody is robbed and nothing is lost."""
        daemons = [self.start_daemon(self.server), self.start_daemon(self.server)]
        for round in range(scaled(3)):
            self.sender.submit_many(texts(500, seed=40 + round), encoding="f32")
            self.wait_until(lambda: self.pending(self.client) > 0, "entries in somebody's hands")
            self.server.process.send_signal(signal.SIGSTOP)
            self.journal.fault("redis stopped")
            # Nothing in a Redis that stands still can be watched; the length of the pause is the fault itself.
            time.sleep(2 * self.lease_ms / 1000)
            self.server.process.send_signal(signal.SIGCONT)
            self.wait_finished(self.sender)
        self.finish(faults=["redis stopped"])
        self.assertTrue(all(daemon.running() for daemon in daemons))

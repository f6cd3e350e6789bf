"""A worker that is stopped for longer than its lease and then goes on: its late results are dropped, and it joins
again."""
# ctest-cost: 15

import signal
import time

from case import SOON, RedisCase, scaled


class Pause(RedisCase):
    lease_ms = SOON


    def finish(self, load, **options):
        load.stop()
        super().finish(self.server, self.sender, **options)

    def stop_past_lease(self, daemon):
        """Stops the worker (SIGSTOP) while it holds entries, until its lease has ended; returns the name that it
        had."""
        name = self.catch(daemon, self.client)
        self.journal.fault("stopped with entries", self.pending(self.client, worker=name) > 0)
        self.wait_until(lambda: self.client.exists(self.sender.key(f"alive:{name}")) == 0, "its lease to end")
        return name

    def wake(self, daemon, name):
        daemon.signal(signal.SIGCONT)
        self.wait_until(lambda: daemon.alive_key(self.client), "the sleeper to join again")
        self.assertNotEqual(daemon.worker_name(self.client), name, "a lease that has ended does not come back")

    def test_stopped_past_the_lease(self):
        daemons = [self.start_slow(self.server), self.start_slow(self.server)]
        load = self.start_mixed(self.server)
        for round in range(scaled(8)):
            sleeper = daemons[round % 2]
            name = self.stop_past_lease(sleeper)
            # While it is stopped, the other one takes over its entries.
            self.wait_until(lambda: self.pending(self.client, worker=name) == 0, "its entries to be taken over")
            self.wake(sleeper, name)
        self.finish(load, faults=["stopped with entries"])
        for daemon in daemons:
            self.assertEqual(daemon.stop(), 0)

    def test_stopped_alone(self):
        """With no other worker, the stopped one finishes its own work when it wakes."""
        daemon = self.start_daemon(self.server)
        load = self.start_load(self.server)
        for _ in range(scaled(4)):
            self.wake(daemon, self.stop_past_lease(daemon))
        self.finish(load, faults=["stopped with entries"])

    def test_redis_stopped(self):
        """Redis is stopped for longer than a lease: when it goes on, no worker loses its entries to another and no
        request is lost."""
        daemons = [self.start_daemon(self.server), self.start_daemon(self.server)]
        load = self.start_load(self.server)
        for _ in range(scaled(3)):
            self.wait_until(lambda: self.pending(self.client) > 0, "entries in somebody's hands")
            self.server.process.send_signal(signal.SIGSTOP)
            self.journal.fault("redis stopped")
            # A stopped Redis shows nothing to wait for; the length of the pause is the fault itself.
            time.sleep(2 * self.lease_ms / 1000)
            self.server.process.send_signal(signal.SIGCONT)
        self.finish(load, faults=["redis stopped"])
        self.assertTrue(all(daemon.running() for daemon in daemons))

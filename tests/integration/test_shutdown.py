"""After SIGTERM a worker finishes requests in flight and gives the rest back; after a second one it exits at once;
nothing is lost either way."""
# ctest: threads

import signal

from case import RedisCase
from corpus import texts


class Shutdown(RedisCase):
    def wait_held(self, count=1):
        """Waits until a daemon holds that many unanswered entries."""
        self.wait_until(lambda: self.pending(self.client) >= count, "entries in a daemon's hands")

    def finish(self, *loads):
        for load in loads:
            load.stop()
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        self.assert_clean(self.server)

    def test_idle(self):
        daemon = self.start_daemon(self.server)
        name = daemon.worker_name(self.client)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.client.exists(self.sender.key(f"alive:{name}")), 0)
        consumers = [c["name"].decode() for c in self.client.xinfo_consumers(self.sender.stream, "sluice")]
        self.assertNotIn(name, consumers)

    def test_interrupt_is_the_same(self):
        daemon = self.start_daemon(self.server)
        daemon.signal(signal.SIGINT)
        self.assertEqual(daemon.wait_exit(), 0)

    def test_in_flight_is_finished_or_given_back(self):
        """Under load the daemon exits 0, and requests that were not computed are given back for the next daemon."""
        daemon = self.start_daemon(self.server, "--max-batch-rows", "4")
        load = self.start_load(self.server, depth=200)
        self.wait_held()
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.pending(self.client), self.pending(self.client, worker="released"), "held by one that has left")
        self.start_daemon(self.server)
        self.finish(load)

    def test_released_entries_are_taken_at_once(self):
        """Returned entries do not wait for a lease to end: even with a long lease they are answered soon."""
        self.lease_ms = 60_000
        daemon = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "30000")
        self.sender.submit_many(texts(20, seed=2), encoding="f32")
        self.wait_held(20)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.pending(self.client, worker="released"), self.client.xlen(self.sender.stream))
        self.start_daemon(self.server)
        self.wait_finished(self.sender, timeout=30)
        self.finish()

    def test_second_signal_leaves_at_once(self):
        daemon = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000")
        self.sender.submit_many(texts(20, seed=3), encoding="f32")
        self.wait_held(20)
        daemon.stop_twice()
        self.start_daemon(self.server)
        self.finish()

    def test_second_signal_while_redis_is_silent(self):
        """A daemon that cannot reach its Redis still exits, at the second signal at once."""
        daemon = self.start_daemon(self.server)
        load = self.start_load(self.server)
        self.wait_held()
        self.server.process.send_signal(signal.SIGSTOP)
        self.assertNotEqual(daemon.stop_twice(), 0)
        self.server.process.send_signal(signal.SIGCONT)
        self.start_daemon(self.server)
        self.finish(load)

    def test_shutdown_timeout_bounds_the_wait(self):
        daemon = self.start_daemon(self.server, "--shutdown-timeout-ms", "300")
        load = self.start_load(self.server)
        self.wait_held()
        self.server.process.send_signal(signal.SIGSTOP)
        daemon.signal(signal.SIGTERM)
        daemon.wait_exit(timeout=20)
        self.server.process.send_signal(signal.SIGCONT)
        self.start_daemon(self.server)
        self.finish(load)

    def test_term_before_redis_is_there(self):
        """A daemon that still waits for its Redis exits when told to."""
        self.server.kill()
        daemon = self.make_daemon(self.server).start()
        self.wait_until(lambda: "redis_unavailable" in daemon.read_log() or not daemon.running(), "a word about Redis")
        self.assertTrue(daemon.running(), daemon.read_log())
        self.assertEqual(daemon.stop(), 0)

    def test_rolling_restart(self):
        """Daemons are replaced one after the other under load; each exits with 0."""
        daemons = [self.start_daemon(self.server), self.start_daemon(self.server)]
        load = self.start_load(self.server)
        for round in range(4):
            daemon = daemons[round % 2]
            self.wait_held()
            self.assertEqual(daemon.stop(), 0)
            self.restart(daemon, self.server)
        self.finish(load)

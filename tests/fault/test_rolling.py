"""Rolling deploys under load: one worker after the other is stopped and replaced. No request waits for a lease, none is
charged, none is lost."""
# ctest-processors: 2
# ctest-cost: 10

from case import RedisCase, scaled


class Rolling(RedisCase):
    def deploy(self, rounds, load, stop):
        daemons = [self.start_daemon(self.server) for _ in range(2)]
        for _ in range(rounds):
            for daemon in daemons:
                self.wait_until(lambda: self.held_by(daemon, self.client) > 0, "the worker to hold something")
                stop(daemon)
                self.journal.fault("deploy")
                self.restart(daemon, self.server)
        load.stop()
        self.finish(self.server, load.producer, faults=["deploy"])
        return daemons

    def attempts(self, load):
        return {load.producer.reply(request).get("attempts", 1) for request in self.journal.requests.values()} - {0}

    def test_ten_deploys_in_a_row(self):
        """Twenty shutdowns; each worker exits 0 and returns what it has not started."""
        load = self.start_mixed(self.server, seed=11)
        self.deploy(scaled(10), load, lambda daemon: self.assertEqual(daemon.stop(), 0))
        self.assertEqual(self.attempts(load), {1}, "a deploy has charged somebody")
        self.assertEqual(self.client.xlen(load.producer.key("dead")), 0)

    def test_impatient_deploys(self):
        """SIGTERM twice: the next worker finds the requests that were being computed, and none of them is charged."""
        load = self.start_mixed(self.server, seed=12)
        self.deploy(scaled(3), load, lambda daemon: daemon.stop_twice())
        self.assertEqual(self.client.xlen(load.producer.key("dead")), 0)

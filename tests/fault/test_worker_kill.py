"""kill -9 of workers: nothing is lost, no request gets two different replies, and no request is blamed because a dead
worker merely held it."""
# ctest-cost: 30

import random
import time

from case import SOON, RedisCase, SluiceCase, scaled
from corpus import texts


class WorkerKill(RedisCase):
    lease_ms = SOON

    def setUp(self):
        super().setUp()
        self.model = self.make_model("wide", hidden=320, heads=4)  # wide enough that replies in JSON are staged

    def finish(self, sender, **options):
        super().finish(self.server, sender, model=self.model, **options)

    def kill(self, daemon):
        """Sends kill -9; returns whether the worker held entries at that moment, according to Redis after its death."""
        daemon.kill()
        self.journal.kills.append(daemon.last_name())
        return self.held_by(daemon, self.client) > 0

    def run_kills(self, load, count, seed):
        """Kills workers at random moments under load. Only kills of a worker that held entries are counted."""
        generator = random.Random(seed)
        daemons = [self.start_slow(self.server, model=self.model) for _ in range(2)]
        kills = 0
        while self.journal.faults.get("kill mid-batch", 0) < count:
            victim, sent = daemons[kills % 2], load.count
            self.wait_until(lambda: load.error or load.count >= sent + 20, "the load to go on")
            # The random moment is the fault itself, not a wait for something.
            self.catch(victim, self.client, lambda: time.sleep(generator.uniform(0, 0.01)))
            kills += 1
            self.journal.fault("kill mid-batch", self.kill(victim))
            self.assertLess(kills, 2 * count + 5, "the kills miss")
            self.restart(victim, self.server)
        load.stop()
        self.finish(load.producer, faults=["kill mid-batch"])
        print(f"{self.journal.faults['kill mid-batch']} kills mid-batch of {kills}, {len(self.journal.requests)} requests")

    def test_kill_mid_batch(self):
        self.run_kills(self.start_load(self.server, longest=60, depth=128), scaled(25), seed=20261121)

    def test_kill_with_every_feature(self):
        """The dead workers hold every kind of request: delays, deadlines, cancels, several texts, classes, tenants,
        duplicate ids."""
        load = self.start_mixed(self.server, seed=7, longest=60, depth=128)
        self.run_kills(load, scaled(35), seed=20261122)
        print(", ".join(f"{count} {kind}" for kind, count in sorted(load.kinds.items())))

    def test_kill_while_reclaimed_entries_run(self):
        """The worker that has taken over dies, too, again and again, while the suspects run in a group and then alone.
        The group waits in the window, so that the first kill always finds it."""
        self.lease_ms = SluiceCase.lease_ms  # no worker loses it on a busy machine
        sender = self.producer(self.server)
        window = ("--window", "fixed", "--window-ms", "60000")
        first = self.start_daemon(self.server, *window, model=self.model)
        sender.submit_many(texts(60, seed=2, longest=4), encoding="f32")
        self.wait_until(lambda: self.held_by(first, self.client) == 60, "all entries to be held")
        self.assertTrue(self.kill(first))
        for _ in range(max(2, scaled(5))):
            heir = self.start_daemon(self.server, *window, model=self.model)
            self.wait_until(lambda: self.held_by(heir, self.client) > 0 or self.client.xlen(sender.stream) == 0,
                            "the heir to take over")
            if self.kill(heir):
                self.journal.fault("kill while suspects run")
        self.start_daemon(self.server, model=self.model)
        self.finish(sender, faults=["kill while suspects run"])

    def test_all_workers_killed(self):
        """All workers die at once and come back under new names."""
        daemons = [self.start_slow(self.server, model=self.model) for _ in range(3)]
        load = self.start_load(self.server, seed=2, longest=60, depth=128)
        for _ in range(scaled(3)):
            self.wait_until(lambda: self.pending(self.client) > 0, "entries in somebody's hands")
            hits = [self.kill(daemon) for daemon in daemons]
            self.journal.fault("all workers dead", any(hits))
            for daemon in daemons:
                self.restart(daemon, self.server)
        load.stop()
        self.finish(load.producer, faults=["all workers dead"])

    def test_kill_in_the_window(self):
        """Requests that waited in a dead worker's window are answered by another one, and none is charged."""
        self.lease_ms = SluiceCase.lease_ms  # no worker loses it on a busy machine
        sender = self.producer(self.server)
        victim = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000", model=self.model)
        sender.submit_many(texts(30, seed=4, longest=4), encoding="f32")  # too few to start a batch, however slow the machine is
        self.wait_until(lambda: self.held_by(victim, self.client) == 30, "all entries to be held")
        self.assertTrue(self.kill(victim))
        self.journal.fault("kill in the window")
        self.start_daemon(self.server, model=self.model)
        self.finish(sender, faults=["kill in the window"])
        replies = [sender.reply(request) for request in self.journal.requests.values()]
        self.assertEqual({reply.get("attempts", 1) for reply in replies}, {1})

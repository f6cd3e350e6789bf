"""The name service hangs: a queue that has to reconnect waits for it; everything else in the daemon goes on."""
# ctest: threads
# ctest-cost: 10

import os

from case import SluiceCase
from corpus import texts


class SlowNames(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.new_redis()
        self.port = self.server.start_on_tcp()
        self.client = self.server.client()
        self.gate = self.path("gate")

    def hang(self):
        self.write("gate", "")

    def go_on(self):
        os.unlink(self.gate)

    def serve(self, *queues):
        """Starts a daemon for these queues; looking up its Redis' host name may hang."""
        model = self.make_model()
        return self.make_configured(self.server, {"threads": 1, "queues": [{"queue": queue, "model": model} for queue in queues]}, faults=(),
                                    environment={"SLOW_NAMES": self.gate}, address=f"redis://redis.slow:{self.port}").start()

    def alive(self, queue):
        return self.client.keys(f"sluice:{{{queue}}}:alive:*")

    def cut(self, queue):
        """Closes the connections of one queue of the daemon."""
        def connections():
            names = [key.decode().split(":alive:")[1] for key in self.alive(queue)]
            return [c["id"] for c in self.client.client_list() if c["name"] in names]
        self.wait_until(lambda: len(connections()) == 2, "both connections")  # the lease is there before the second one
        for victim in connections():
            self.client.client_kill_filter(_id=victim)

    def test_other_queues_keep_their_lease(self):
        daemon = self.serve("a", "b")
        self.wait_until(lambda: self.alive("a") and self.alive("b"), "both queues to be served")
        kept = self.alive("b")
        self.hang()
        self.cut("a")
        self.journal.fault("name service hangs")
        self.wait_until(lambda: not self.alive("a"), "the lease of the queue that was cut off to end")
        sender = self.producer(self.server, queue="b")
        for round in range(3):
            self.wait_finished(sender, sender.submit_many(texts(30, seed=round), encoding="f32"))
        self.assertEqual(self.alive("b"), kept, "the other queue's lease was lost meanwhile")
        self.go_on()
        self.wait_until(lambda: self.alive("a"), "the queue that was cut off to come back")
        self.assert_clean(self.server, queue="b", faults=["name service hangs"])
        self.assertEqual(daemon.stop(), 0)

    def test_it_is_said_and_waited_out(self):
        """At the start: the daemon is up before the name service is."""
        self.hang()
        daemon = self.serve("a")
        self.wait_until(lambda: "the name service does not answer in time" in daemon.read_log(), "a word about it")
        self.go_on()
        self.wait_until(lambda: self.alive("a"), "the queue to be served")
        self.assertEqual(daemon.stop(), 0)

    def test_signals_are_heard(self):
        """SIGTERM ends the daemon though a lookup hangs; the hanging thread does not delay the exit."""
        daemon = self.serve("a")
        self.wait_until(lambda: self.alive("a"), "the queue to be served")
        self.hang()
        self.cut("a")
        # The second event appears where the lease was set but the other connection had not been answered yet.
        noticed = ("redis_lost", "redis_unavailable")
        self.wait_until(lambda: any(event in daemon.read_log() for event in noticed), "the loss to be noticed")
        self.assertEqual(daemon.stop(), 0)

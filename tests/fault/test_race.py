"""Two workers that compute the same entry at the same time: one reply, whoever comes first."""

import os

import daemon
from case import SluiceCase, scaled
from history import History
from model import vocabulary

FAULTY = os.path.join(os.path.dirname(daemon.BINARY), "tests", "sluice_faulty")


class Race(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_redis()
        self.client = self.server.client()
        self.sender = self.producer(self.server)
        self.token = vocabulary().index("kernel")

    def slow_daemon(self, ms, fault="slow"):
        served = self.make_daemon(self.server, environment={"FAULTY_ENGINE": f"{fault}:{self.token}:{ms}",
                                                            "FAULTY_ENGINE_LOG": self.path("faults")})
        served.argv[0] = FAULTY
        return served.start().wait_ready(self.client)

    def take_away(self, entry, name):
        """What a lease that is judged too early does, at the worst moment: the entry is another one's from now on."""
        self.client.xclaim(self.sender.stream, "sluice", name, 0, [entry], justid=True)

    def test_both_compute_and_one_answers(self):
        """The entry is taken from a worker that computes it and given to another, which computes it as well."""
        first, second = self.slow_daemon(1500), None
        for number in range(scaled(10)):
            request = self.sender.submit(f"the kernel {number}", id=f"raced-{number}", encoding="f32")
            entry = request.entries[0]
            self.wait_until(lambda: self.client.xpending_range(self.sender.stream, "sluice", entry, entry, 1), "it to be taken")
            # Nobody renews a name that nobody has: whoever has room reclaims it from there.
            self.take_away(entry, "ghost")
            second = second or self.slow_daemon(1500)
            self.journal.fault("taken away")
        self.finish(self.server, self.sender, faults=["taken away"])
        self.assertTrue(first.running() and second.running())
        history = History(self.server.directory, self.queue)
        twice = [names for names in history.deliveries.values() if len(set(names) - {"ghost"}) > 1]
        self.assertTrue(twice, "no entry was ever in two workers' hands")

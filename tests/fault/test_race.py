"""Two workers compute the same entry at the same time: there is one reply, whichever worker is first."""

import signal

from case import SOON, RedisCase
from history import History


class Race(RedisCase):
    lease_ms = SOON

    def take_away(self, entry, name):
        """Transfers the entry to another consumer, as happens when a lease is judged too early, at the worst moment."""
        self.client.xclaim(self.sender.stream, "sluice", name, 0, [entry], justid=True)

    def test_both_compute_and_one_answers(self):
        """Entries are taken from a worker that is computing them; another one reclaims them and computes them as
        well."""
        first = self.make_faulty(self.server, faults=["held:{kernel}"]).start().wait_ready(self.client)
        self.shut_gate()
        requests = [self.sender.submit(f"the kernel {number}", id=f"raced-{number}", encoding="f32") for number in range(10)]
        self.wait_until(lambda: self.held_by(first, self.client) == len(requests), "all to be taken")
        first.signal(signal.SIGTSTP)  # it continues to compute but reclaims nothing
        second = self.start_daemon(self.server)
        for request in requests:
            # No worker renews the lease of this name, so the other worker reclaims the entry from it.
            self.take_away(request.entries[0], "ghost")
            self.journal.fault("taken away")
        self.wait_finished(self.sender)
        self.open_gate()
        self.finish(self.server, self.sender, faults=["taken away"])
        self.assertTrue(first.running() and second.running())
        history = History(self.server.directory, self.queue)
        twice = [holders for holders in map(set, history.deliveries.values()) if holders & set(first.names()) and holders & set(second.names())]
        self.assertTrue(twice, "no entry was ever in two workers' hands")
        first.signal(signal.SIGCONT)
        self.assertEqual(first.stop(), 0)  # once it has seen that it was too late

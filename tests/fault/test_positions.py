"""A guilty request at every position of batches of 1 to 33: it alone is answered with its error, all others with their vectors,
no other request is charged, and isolating it costs at most 2 log2(n) + 1 additional passes."""
# ctest-cost: 20

import math

from case import SCALE, SOON, RedisCase
from corpus import texts
from producer import Journal

WORD = "kernel"
SIZES = range(1, 34)


class Positions(RedisCase):
    def setUp(self):
        super().setUp()
        self.healthy = [text.replace(WORD, "music") for text in texts(600, seed=3, longest=6)]

    def serve(self, fault, *flags, queue=None):
        return self.make_faulty(self.server, *flags, faults=[f"{fault}:{{{WORD}}}"], queue=queue).start()

    def submit_batch(self, sender, size, guilty_at, expected):
        """Submits `size` entries that a worker can only read together. Returns the guilty one, which gets no second
        attempt."""
        batch = [self.healthy[(size * 37 + guilty_at * 11 + i) % len(self.healthy)] + f" {i}" for i in range(size)]
        batch[guilty_at] = f"{WORD} {batch[guilty_at]}"
        guilty = sender.submit_many(batch, together=True, encoding="f32", max_attempts=1)[guilty_at]
        guilty.expected = expected
        return guilty

    def test_error_at_every_position(self):
        """Batches of exactly n: the window waits for n texts and no longer."""
        sizes = SIZES if SCALE >= 1 else SIZES[::8]
        for size in sizes:
            served = self.serve("error", "--window", "fixed", "--window-ms", 60000, "--max-batch-rows", size, "--threads", 1)
            served.wait_ready(self.client)
            for position in range(size):
                before = self.fired("error")
                self.submit_batch(self.sender, size, position, "internal")
                self.wait_until(lambda: self.sender.unfinished() == 0, f"the batch of {size} with position {position}")
                # Each failed pass contains the guilty one: first the whole batch, then one half at a time.
                self.assertLessEqual(self.fired("error") - before, math.ceil(math.log2(size)) + 1 if size > 1 else 1)
                self.journal.fault("error", self.fired("error") - before)
            served.stop()
        may_die = [request.id for request in self.journal.requests.values() if request.expected == "internal"]
        self.finish(self.server, self.sender, faults=["error"], may_die=may_die)
        print(f"{len(may_die)} positions, {len(self.journal.requests)} requests")

    def test_crash_at_every_position_of_five(self):
        """The guilty one kills its workers: three crashes in lonely runs, then poison; the four others are answered."""
        self.lease_ms = SOON
        size, queues = 5, []
        for position in range(size if SCALE >= 1 else 2):
            sender = self.producer(self.server, queue=f"position-{position}", journal=Journal())
            queues.append((sender, self.submit_batch(sender, size, position, "poison")))
        served = {sender.queue: self.serve("crash", queue=sender.queue) for sender, _ in queues}
        crashes = dict.fromkeys(served, 0)

        def all_answered():
            for sender, guilty in queues:
                if not served[sender.queue].running():
                    served[sender.queue].wait_exit()
                    crashes[sender.queue] += 1
                    self.assertLess(crashes[sender.queue], 10, "crashes for ever")
                    served[sender.queue].start()
            return all(sender.finished(sender.journal.requests.values()) for sender, _ in queues)

        self.wait_until(all_answered, "all batches to be answered", timeout=240)
        for sender, guilty in queues:
            self.wait_empty(sender)
            self.assertIn(crashes[sender.queue], (3, 4, 5), "as a new request and in a group perhaps, then three times alone")
            self.assert_clean(self.server, queue=sender.queue, journal=sender.journal, may_die=[guilty.id])

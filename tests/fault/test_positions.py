"""A guilty request at every position of batches of 1 to 33: it alone is answered with its error, all others with their vectors,
nobody else is charged, and isolating it costs at most 2 log2(n) + 1 passes more."""

import math

from case import SCALE, SluiceCase
from corpus import texts

WORD = "kernel"
SIZES = range(1, 34)


class Positions(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_redis()
        self.client = self.server.client()
        self.sender = self.producer(self.server)
        self.healthy = [text.replace(WORD, "music") for text in texts(600, seed=3, longest=6)]

    def serve(self, fault, *flags, queue=None):
        return self.make_faulty(self.server, *flags, faults=[f"{fault}:{{{WORD}}}"], queue=queue).start()

    def submit_batch(self, size, guilty_at):
        """`size` entries that a worker can only read together; the guilty one gets no second attempt."""
        batch = [self.healthy[(size * 37 + guilty_at * 11 + i) % len(self.healthy)] + f" {i}" for i in range(size)]
        pipe = self.client.pipeline(transaction=True)
        requests = []
        for at, text in enumerate(batch):
            fields = {"text": f"{WORD} {text}" if at == guilty_at else text, "encoding": "f32", "max_attempts": 1}
            requests.append(fields)
            pipe.xadd(self.sender.stream, fields)
        for at, (fields, entry) in enumerate(zip(requests, pipe.execute())):
            self.journal_request(entry.decode(), fields, "internal" if at == guilty_at else "done")

    def journal_request(self, entry, fields, expected):
        from producer import Request
        request = self.journal.add(Request(entry, fields["text"], fields))
        request.entries.append(entry)
        request.expected = expected

    # ctest-cost: 7
    def test_error_at_every_position(self):
        """Batches of exactly n: the window waits for n texts and no longer."""
        sizes = SIZES if SCALE >= 1 else SIZES[::8]
        for size in sizes:
            served = self.serve("error", "--window", "fixed", "--window-ms", 60000, "--max-batch-rows", size, "--threads", 1)
            served.wait_ready(self.client)
            for position in range(size):
                before = self.fired("error")
                self.submit_batch(size, position)
                self.wait_until(lambda: self.sender.unfinished() == 0, f"the batch of {size} with position {position}")
                # Each failed pass holds the guilty one: once in the whole batch, then in a half each time.
                self.assertLessEqual(self.fired("error") - before, math.ceil(math.log2(size)) + 1 if size > 1 else 1)
                self.journal.fault("error", self.fired("error") - before)
            served.stop()
        may_die = [request.id for request in self.journal.requests.values() if request.expected == "internal"]
        self.finish(self.server, self.sender, faults=["error"], may_die=may_die)
        print(f"{len(may_die)} positions, {len(self.journal.requests)} requests")

    def test_crash_at_every_position_of_five(self):
        """The guilty one kills its workers: three lonely crashes, then poison; the four others are answered."""
        size, queues = 5, []
        for position in range(size if SCALE >= 1 else 2):
            sender = self.producer(self.server, queue=f"position-{position}", journal=type(self.journal)())
            self.sender, self.journal, kept = sender, sender.journal, (self.sender, self.journal)
            self.submit_batch(size, position)
            guilty = next(r for r in self.journal.requests.values() if r.expected == "internal")
            guilty.expected = "poison"
            queues.append((sender, guilty))
            self.sender, self.journal = kept
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
            self.wait_until(lambda: sender.unfinished() == 0, "an empty stream")
            self.assertIn(crashes[sender.queue], (3, 4), "first in company perhaps, then three times alone")
            self.assert_clean(self.server, queue=sender.queue, journal=sender.journal, may_die=[guilty.id])

"""A malicious producer beside honest ones: whatever its rights let it do, honest requests are answered, no class
refuses XADD for long, and the workers stay up."""
# ctest-cost: 10

import time

from acl import make_user
from adversary import Adversary, Honest
from case import SCALE, SluiceCase
from corpus import texts

RUN_S = 10
REFUSED_MOST_S = 30


class AdversaryCase(SluiceCase):
    lease_ms = 2000

    def test_honest_requests_are_answered(self):
        server = self.start_redis()
        client = server.client()
        make_user(client, "producer", self.queue)
        daemons = [self.start_daemon(server) for _ in range(2)]
        honest = Honest(self.producer(server), texts(200, seed=3, longest=12))
        adversary = Adversary(server, self.queue, honest)
        self.loads += [honest.start(), adversary.start()]
        ends = time.monotonic() + max(5, RUN_S * SCALE)
        self.wait_until(lambda: time.monotonic() > ends or honest.error or adversary.error, "the run to end", timeout=120)
        adversary.stop()
        honest.stop()
        self.wait_until(lambda: honest.flush() == 0, lambda: f"{len(honest.open)} of {honest.count} honest requests, such as "
                        f"{[request.entries for request, _ in list(honest.open.values())[:5]]}, after {adversary.done}", timeout=60)
        self.assertEqual(adversary.allowed, [])
        self.assertLess(honest.refused, REFUSED_MOST_S)
        self.assertTrue(all(daemon.running() for daemon in daemons))
        self.check_replies(honest)
        print(f"{honest.count} honest requests, p50 {honest.percentile(.5):.3f} s, p99 {honest.percentile(.99):.3f} s, XADD refused for "
              f"{honest.refused:.1f} s at the longest; the adversary: {adversary.done}")

    def check_replies(self, honest):
        reference = self.reference()
        requests = list(self.journal.requests.values())
        reference.learn([request.text for request in requests])
        for request in requests:
            reply = honest.producer.reply(request)
            self.assertEqual(reply.get(b"status"), b"done", (request.entries, reply))
            self.assertEqual(reply["entry"], request.entries[-1])
            self.assertEqual(reply[b"embedding"], reference(request.text), request.text)

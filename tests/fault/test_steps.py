"""kill -9 at each command that a worker sends: before Redis sees it, and after Redis has executed it. Then the same
points again with only the connections cut."""
# ctest-cost: 15

import json
import signal

from case import SOON, SluiceCase, scaled
from checker import Checker
from corpus import texts
from producer import Journal, Request
from proxy import Proxy

TOGETHER = 8  # queues side by side: most of the time is spent waiting for leases to end


class Steps(SluiceCase):
    lease_ms = SOON

    def setUp(self):
        super().setUp()
        self.model = self.make_model("wide", hidden=320, heads=4)  # wide enough that a reply in JSON is staged
        self.local = self.reference(self.model)

    def requests(self, queue):
        """Submits a small mix: good requests, a bad one, and one that needs a wake token."""
        sender = self.producer(self.server, queue=queue, journal=Journal())
        for text in texts(3, seed=5):
            sender.submit(text, encoding="f32")
        sender.submit_fields({"text": "", "id": "bad"}, expected="bad_request")
        sender.submit("with a wake token", id="woken", notify=1)
        for level in ("high", "low"):
            sender.push(sender.journal.add(Request(f"of-{level}", f"a {level} one", {"text": f"a {level} one", "id": f"of-{level}"})), level)
        several = ["one of three", "two of three", "three of three"]
        sender.push(sender.journal.add(Request("several", several, {"inputs": json.dumps(several), "id": "several", "notify": "stream:web"})))
        sender.submit("a later one", id="later", delay=150, tenant="a")
        sender.submit("too late", id="expired", expected="expired", delay=60, expires_in=30)
        gone = sender.submit("not any more", id="cancelled", expected="cancelled", delay=100000)
        sender.cancel(gone, "high")
        return sender

    def behind_proxy(self, queue, act, strike):
        """Starts a daemon behind a proxy without waiting for it. `strike` is called with both."""
        daemon = self.make_daemon(self.server, model=self.model, queue=queue)
        proxy = Proxy(self.directory, self.server.socket, act, lambda: strike(proxy, daemon))
        self.children.append(proxy)
        daemon.argv[daemon.argv.index(self.server.socket)] = proxy.path
        daemon.start()
        return proxy, daemon

    def points(self):
        """The numbers of all commands that a worker sends until it has answered the requests, and of a few that follow.
        With a scale below 1, every n-th of them."""
        self.server = self.start_redis("redis-count")
        sender = self.requests("count")
        proxy, daemon = self.behind_proxy("count", lambda number, words: None, None)
        self.wait_finished(sender)
        daemon.kill()
        steps = len(proxy.commands)
        self.assertGreater(steps, 8)
        points = range(min(steps, 40))
        return points[::max(1, len(points) // scaled(len(points)))]

    def drained(self, sender):
        return sender.finished(sender.journal.requests.values()) and sender.unfinished() == 0

    def run_points(self, moment, strike, until, heal):
        """Strikes at every point, eight queues at a time. Each group of eight has its own Redis, because the checker
        reads all that has ever been written."""
        points, struck = self.points(), 0
        for start in range(0, len(points), TOGETHER):
            for child in self.children:
                child.cleanup()
            self.server = self.start_redis(f"redis-{start}")
            runs = []
            for number in points[start:start + TOGETHER]:
                sender = self.requests(f"step-{number}")
                act = lambda at, words, number=number: moment if at == number else None
                runs.append((sender, *self.behind_proxy(sender.queue, act, strike), number))
            for sender, proxy, daemon, point in runs:
                # The run may end, with everything answered, before a late point is reached.
                self.wait_until(lambda: until(sender, proxy, daemon), f"the strike at {point}")
                heal(daemon, sender)
            for sender, proxy, daemon, point in runs:
                self.wait_finished(sender, timeout=40)  # soon, not only after a periodic last resort
                self.wait_empty(sender)
                problems = Checker(self.server, sender.queue, sender.journal, self.local).violations()
                self.assertEqual(problems, [], f"struck {moment} command {point}: {proxy.struck and proxy.struck[:3]}")
                struck += proxy.struck is not None
        self.assertGreaterEqual(struck, len(points) * 2 // 3, f"{struck} of {len(points)} points were reached")
        print(f"{struck} points of the protocol struck")

    def kill(self, moment):
        def heal(daemon, sender):
            daemon.kill()
            self.make_daemon(self.server, model=self.model, queue=sender.queue).start()

        self.run_points(moment, strike=lambda proxy, daemon: daemon.process.send_signal(signal.SIGKILL),
                        until=lambda sender, proxy, daemon: not daemon.running() or self.drained(sender), heal=heal)

    def cut(self, moment):
        """The worker itself goes on, connects again and finishes."""
        self.run_points(moment, strike=lambda proxy, daemon: proxy.cut(),
                        until=lambda sender, proxy, daemon: proxy.struck is not None or self.drained(sender),
                        heal=lambda daemon, sender: self.assertTrue(daemon.running()))

    def test_kill_before_every_step(self):
        self.kill("before")

    def test_kill_after_every_step(self):
        self.kill("after")

    def test_connection_cut_before_every_step(self):
        self.cut("before")

    def test_connection_cut_after_every_step(self):
        self.cut("after")

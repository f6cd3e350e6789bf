"""A full Redis: only an operator's order stops progress, and used memory stays within 10 % above maxmemory, however
large replies are compared with their requests and whoever filled it."""
# ctest: threads
# ctest-cost: 20

import json
import signal
import threading
import time

from case import RedisCase
from corpus import texts

MIB = 1 << 20


class Watch:
    """Records the peak memory use of a server by polling: replies come and go, but stay for a second."""

    def __init__(self, server, most):
        self.client, self.most, self.peak, self.ended = server.client(), most, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.ended.wait(0.01):
            self.peak = max(self.peak, self.client.info("memory")["used_memory"])

    def end(self):
        self.ended.set()
        self.thread.join()
        return self.peak / self.most


class Full(RedisCase):
    redis_options = {"aof": None}

    def start_paused(self, **options):
        """Starts a daemon that joins and claims nothing, so that its own share of Redis' memory is already used."""
        self.client.set(self.sender.key("paused"), 1)
        return self.start_daemon(self.server, **options)

    def limit(self, percent):
        """Sets maxmemory so that the memory used now is `percent` of it, and lets the daemons begin."""
        workers, limit = self.sender.key("workers"), [0]

        def tight():
            used = self.client.info("memory")["used_memory"]
            if not limit[0] * percent * 0.99 < used * 100 < limit[0] * percent * 1.01:  # buffers shrink gradually
                limit[0] = used * 100 // percent
                self.client.config_set("maxmemory", limit[0])
            return all(b"state tight" in value for value in self.client.hvals(workers))

        self.wait_until(tight, "tight workers")
        self.client.delete(self.sender.key("paused"))
        return limit[0]

    def enqueue(self, count, **fields):
        pipe = self.client.pipeline(transaction=False)
        for text in texts(count, longest=8):
            pipe.xadd(self.sender.stream, {"text": text, "ttl": 1, **fields})
        pipe.execute()

    def done(self):
        return sum(int(dict(zip(words[1::2], words[2::2])).get(b"done", 0))
                   for name, value in self.client.hgetall(self.sender.key("workers")).items()
                   if not name.startswith(b"command:") for words in [value.split()])

    def finish(self, count, most, timeout=60):
        watch = Watch(self.server, most)
        try:
            self.wait_until(lambda: self.done() >= count and self.sender.unfinished() == 0,
                            lambda: f"{count} requests to be done; {self.done()} are", timeout=timeout)
        finally:
            peak = watch.end()
        self.assertEqual(self.done(), count)
        self.assertLessEqual(peak, 1.10, f"used memory was at {peak * 100:.1f} % of maxmemory")

    def test_a_backlog_above_the_limit_is_worked_off(self):
        """This once stalled for ever: requests fill nine tenths of Redis, and every reply is larger than its
        request."""
        self.enqueue(5000, encoding="f32")
        self.client.set("others", bytes(12 * MIB))
        daemon = self.start_paused()
        most = self.limit(90)
        self.finish(5000, most)
        self.logged(daemon, "redis_tight")
        self.assertEqual(daemon.stop(), 0)

    def test_large_replies_to_small_requests(self):
        """Redis is completely full, and every request has a reply thirty times as large."""
        model = self.make_model("wide", hidden=384, heads=6, layers=1, intermediate=64)
        self.client.set("others", bytes(12 * MIB))
        self.enqueue(500)
        daemon = self.start_paused(model=model)
        most = self.limit(99)
        self.assertRegex(self.run_sluice("stats", "--redis", self.server.socket, "--queue", self.queue).stdout.decode(),
                         r"tight    1 of them hold little: memory:\d+%\n")
        told = json.loads(self.run_sluice("stats", "--json", "--redis", self.server.socket, "--queue", self.queue).stdout)
        self.assertEqual(told["tight"], 1)
        self.assertRegex(told["reason"], r"^memory:\d+%$")
        self.assertRegex(self.run_sluice("workers", "list", "--redis", self.server.socket, "--queue", self.queue).stdout.decode(),
                         r"state=tight .*reason=memory:\d+%")
        self.finish(500, most)
        self.assertEqual(daemon.stop(), 0)

    def test_others_have_filled_it(self):
        """Foreign data that stays exceeds maxmemory before the daemon starts; there are requests of all kinds: held by
        a dead worker, delayed, of several texts, invalid, a cancel."""
        self.enqueue(120)
        self.client.xgroup_create(self.sender.stream, "sluice", id="0")
        self.client.xreadgroup("sluice", "somebody-dead", {self.sender.stream: ">"}, count=60)
        self.enqueue(20, delay=10)
        self.enqueue(10, encoding="nonsense")
        self.client.xadd(self.sender.stream, {"inputs": json.dumps(texts(20, longest=8)), "ttl": 1})
        self.client.xadd(self.sender.stream, {"cancel": "1-1"})
        self.client.set("others", bytes(12 * MIB))
        daemon = self.start_paused()
        most = self.limit(101)
        watch = Watch(self.server, most)
        self.wait_until(lambda: self.sender.unfinished() == 0 and self.client.zcard(self.sender.key("later")) == 0,
                        lambda: f"an end; {self.sender.unfinished()} wait", timeout=120)
        self.assertLessEqual(watch.end(), 1.10)
        self.assertEqual(len(self.client.keys(self.sender.key("wake:*"))), 0)
        self.assertEqual(daemon.stop(), 0)

    def test_two_workers_and_a_kill(self):
        """Each worker uses its part of the memory that is left."""
        model = self.make_model("wide", hidden=384, heads=6, layers=1, intermediate=64)
        self.client.set("others", bytes(12 * MIB))
        self.enqueue(300)
        daemons = [self.start_paused(model=model) for _ in range(2)]
        most = self.limit(100)
        watch = Watch(self.server, most)
        self.wait_until(lambda: self.done() > 0, "some of them to be done")
        daemons[0].signal(signal.SIGKILL)
        self.wait_until(lambda: self.sender.unfinished() == 0, lambda: f"an end; {self.sender.unfinished()} wait")
        self.assertLessEqual(watch.end(), 1.10)
        self.assertEqual(daemons[1].stop(), 0)

    def test_four_queues_of_two_daemons(self):
        """None of the eight workers knows what the seven others start; together they keep to the limit."""
        model = self.make_model("wide", hidden=384, heads=6, layers=1, intermediate=64)
        senders = [self.producer(self.server, queue) for queue in "abcd"]
        self.client.set("others", bytes(40 * MIB))
        for sender in senders:
            self.client.set(sender.key("paused"), 1)
            pipe = self.client.pipeline(transaction=False)
            for text in texts(300, longest=8):  # equal texts are computed once, so computing is not the limit
                pipe.xadd(sender.stream, {"inputs": json.dumps([text] * 16), "encoding": "f32", "ttl": 1})
            pipe.execute()
        settings = {"queues": [{"queue": queue, "model": model} for queue in "abcd"], "threads": 2}
        daemons = [self.make_configured(self.server, settings).start() for _ in range(2)]
        self.wait_until(lambda: all(self.client.hlen(sender.key("workers")) == 2 for sender in senders), "all to have joined")
        used = lambda: self.client.info("memory")["used_memory"]
        self.wait_until(lambda: used() < 64 * MIB, lambda: f"Redis to free the buffer of that SET; it uses {used()}")
        most = used() * 100 // 96
        self.client.config_set("maxmemory", most)
        self.wait_until(lambda: all(b"state tight" in value for sender in senders for value in self.client.hvals(sender.key("workers"))),
                        "tight workers")
        watch = Watch(self.server, most)
        self.client.delete(*(sender.key("paused") for sender in senders))
        self.wait_until(lambda: not any(sender.unfinished() for sender in senders),
                        lambda: f"an end; {[sender.unfinished() for sender in senders]} wait", timeout=120)
        self.assertLessEqual(watch.end(), 1.10)
        for daemon in daemons:
            self.assertEqual(daemon.stop(), 0)

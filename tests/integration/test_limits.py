"""Limits of Redis that refuse a reply or an entry by closing the connection without giving a reason: a request that
cannot pass gets a final answer that names the limits, from one worker, and everything else goes on. A Redis that goes
away proves nothing."""
# ctest: threads
# ctest-cost: 30

import json
import re

import redis

from case import SluiceCase
from corpus import texts
from proxy import Proxy

MIB = 1 << 20
LARGE = 3000  # texts: a reply of more than 1 MiB in f32, and more in JSON
CLOSED = "redis_closed_connection"


class Limits(SluiceCase):
    def begin(self, *options, workers=2):
        self.server = self.start_redis(aof=None, options=options)
        self.client = self.server.client()
        self.sender = self.producer(self.server)
        flags = ("--max-inputs", "4096", "--max-text-bytes", str(4 * MIB), "--truncate")
        self.daemons = [self.start_daemon(self.server, *flags) for _ in range(workers)]

    def large_reply(self, **fields):
        """Submits a request whose answer is larger than itself."""
        return self.sender.submit_fields({"inputs": json.dumps(["a"] * LARGE), "encoding": "json", **fields}, ["a"] * LARGE, expected="too_large")

    def large_entry(self, megabytes=2, **fields):
        return self.sender.submit("a " * (megabytes * MIB // 2), expected="too_large", **fields)

    def small(self, seed, count=20):
        return self.sender.submit_many(texts(count, seed=seed), encoding="f32")

    def closed(self):
        """Returns how often each worker's connection was closed."""
        return [daemon.read_log().count(CLOSED) for daemon in self.daemons]

    def check(self, large, *settings, losses=4):
        """Asserts that small requests sent before, meanwhile and afterwards are answered; so is the large one, and its
        answer names the settings concerned. It costs one worker a few connections, and the others none."""
        early = self.small(1)
        meanwhile = []
        self.wait_until(lambda: meanwhile.append(self.small(2 + len(meanwhile), 3)) or self.sender.finished([large]),
                        lambda: f"the large one; closed: {self.closed()}")
        self.wait_finished(self.sender, [*early, *sum(meanwhile, []), *self.small(99)])
        reply = self.sender.reply(large)
        self.assertEqual(reply[b"code"], b"too_large", reply)
        for setting in settings:
            self.assertIn(setting, reply[b"message"].decode())
        self.assertIn(sorted(self.closed()), [[0] * (len(self.daemons) - 1) + [count] for count in range(1, losses + 1)])
        self.wait_empty(self.sender)

    def finish_all(self):
        self.assert_clean(self.server)
        self.assertEqual([daemon.stop() for daemon in self.daemons], [0] * len(self.daemons))

    def test_a_string_that_is_too_long(self):
        self.begin("--proto-max-bulk-len", "1mb")
        self.check(self.large_reply(), "proto-max-bulk-len")
        words = "invalid bulk length (a string is longer than its proto-max-bulk-len)"
        self.wait_until(lambda: any(words in daemon.read_log() for daemon in self.daemons), words)
        before = sum(self.closed())
        known = [self.large_reply() for _ in range(5)]  # by a worker that knows the limit, or one that still has to learn it
        self.wait_finished(self.sender, known)
        self.assertLessEqual(sum(self.closed()) - before, 4)
        self.finish_all()

    def test_a_command_that_is_too_long(self):
        self.begin("--client-query-buffer-limit", "1mb")
        self.check(self.large_reply(notify="1"), "client-query-buffer-limit")
        self.finish_all()

    def test_a_limit_that_is_raised(self):
        """After the limit is raised nothing needs a restart."""
        self.begin("--proto-max-bulk-len", "1mb", workers=1)
        large = self.large_reply()
        self.wait_until(lambda: sum(self.closed()) == 2, "two losses")
        self.client.config_set("proto-max-bulk-len", 8 * MIB)
        large.expected = "done"
        self.wait_finished(self.sender)
        self.finish_all()

    def test_an_answer_that_is_too_long(self):
        self.begin("--client-output-buffer-limit", "normal 1mb 0 0")
        self.check(self.large_entry(id="order-42", notify="1", meta="m"), "client-output-buffer-limit")
        self.assertTrue(self.client.exists(self.sender.key("wake:order-42")))
        before = sum(self.closed())
        more = [self.large_entry() for _ in range(3)]
        self.wait_finished(self.sender, more)
        self.assertLessEqual(sum(self.closed()) - before, 4 * 2 + 2)  # each worker learns the limit on its own
        self.finish_all()

    def test_answers_of_several_entries(self):
        """Each answer may pass alone, but not several at once: all requests succeed."""
        self.begin("--client-output-buffer-limit", "normal 1mb 0 0")
        requests = [self.sender.submit("a " * 150000, encoding="f32") for _ in range(24)]
        self.wait_finished(self.sender, requests + self.small(5))
        self.finish_all()

    def test_entries_of_a_dead_worker(self):
        """They arrive in a script's answer, on the other connection; some of them can be read."""
        self.server = self.start_redis(aof=None, options=("--client-output-buffer-limit", "normal 1mb 0 0"))
        self.client, self.sender = self.server.client(), self.producer(self.server)
        self.client.xgroup_create(self.sender.stream, "sluice", id="0", mkstream=True)
        held = [*self.small(1, 5), self.large_entry(), *self.small(2, 5), self.large_entry(3), *self.small(3, 5)]
        for request in held:
            self.client.xclaim(self.sender.stream, "sluice", "somebody-dead", 0, request.entries, force=True, justid=True)
        self.client.execute_command("XGROUP", "SETID", self.sender.stream, "sluice", held[-1].entries[0])
        self.daemons = [self.start_daemon(self.server, "--max-text-bytes", str(4 * MIB)) for _ in range(2)]
        self.wait_finished(self.sender, held + self.small(4))
        self.wait_empty(self.sender)
        self.assertLessEqual(sum(self.closed()), 2 * 4)  # each of the two costs one worker a few connections
        self.finish_all()

    def test_replies_and_the_memory_of_all_clients(self):
        self.begin("--maxmemory-clients", "1500kb", workers=1)
        self.check(self.large_reply(), "maxmemory-clients")
        self.finish_all()

    def test_entries_and_the_memory_of_all_clients(self):
        self.begin("--maxmemory-clients", "0", workers=1)
        self.client.set(self.sender.key("paused"), 1)
        large = self.large_entry(3)
        self.client.config_set("maxmemory-clients", 1500 << 10)
        self.client.delete(self.sender.key("paused"))
        self.check(large, "maxmemory-clients")
        self.finish_all()

    def strike(self, fault, count=6):
        """A large reply meets a fault each time it is sent, `count` times in a row; then it succeeds."""
        self.server = self.start_redis()
        self.client, self.sender = self.server.client(), self.producer(self.server)
        left = [count]

        def act(_, words):
            return "before" if words[0] == b"HSET" and b":stage:" in words[1] and left[0] > 0 else None

        def strike():
            left[0] -= 1
            fault(proxy)
            proxy.struck = None  # it may strike again

        proxy = Proxy(self.directory, self.server.socket, act, strike)
        self.children.append(proxy)
        self.daemons = [self.make_daemon(self.server, "--max-inputs", "4096", address=proxy.path).start().wait_ready(self.client)]
        large = self.large_reply()
        large.expected = "done"
        self.wait_until(lambda: self.revive() and self.sender.finished([large]), lambda: f"the reply; {left[0]} faults are left",
                        ignore=(redis.ConnectionError, redis.BusyLoadingError))
        self.assertEqual(left[0], 0)
        self.wait_empty(self.sender)
        self.finish_all()

    def revive(self):
        if self.server.process.poll() is not None:
            self.server.start()
        return True

    def test_redis_killed_while_a_large_reply_is_sent(self):
        self.strike(lambda _: self.server.kill())

    def test_a_line_that_is_cut_while_a_large_reply_is_sent(self):
        self.strike(lambda proxy: proxy.cut())

    def test_connections_that_never_last(self):
        """A worker whose connections are closed as soon as they are open waits longer each time."""
        self.begin(workers=1)

        def kill():
            for connection in self.client.client_list():
                if connection["name"] == self.daemons[0].last_name():
                    self.client.client_kill_filter(_id=connection["id"])

        def waits():
            return [int(ms) for ms in re.findall(r"redis_(?:lost|unavailable).*retry_in_ms=(\d+)", self.daemons[0].read_log())]

        self.wait_until(lambda: kill() or len(waits()) >= 6, "six losses")
        self.assertGreater(max(waits()), 8 * waits()[0])
        self.wait_finished(self.sender, self.small(1))
        self.finish_all()

"""The cache of gateways: a text that was computed before is answered from Redis, with the same bits."""
# ctest: threads
# ctest-cost: 20

import base64
import json
import re

from corpus import texts
from gateway_case import GatewayCase

CAP = 20_000_000  # nothing is removed for want of room


def encoded(vector):
    return base64.b64encode(vector).decode()


class Cache(GatewayCase):
    def start(self, *flags, pin="f32", precision="f32", cap=CAP):
        self.worker = self.start_daemon(self.server, "--precision", precision, *flags)
        self.start_gateway(None, f"--cache-bytes={cap}")
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        if pin:
            self.pin(pin)

    def pin(self, precision):
        """Pins, and waits until the gateway looks into the cache."""
        self.client.hset(self.sender.key("meta"), "precision", precision)
        self.wait_until(lambda: "x-sluice-cache" in self.embed("a probe").headers, "the gateway to read the pin")

    def how(self, text, **options):
        answer = self.embed(text, **options)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.headers.get("x-sluice-cache"), answer.body

    def keys(self):
        return set(self.client.keys(self.sender.key("cache:*")))

    def names(self):
        """Those that the index has, the oldest first."""
        return self.client.zrange(self.sender.key("cache"), 0, -1)

    def wait_hit(self, text, **options):
        """The texts are written after the answer."""
        self.wait_until(lambda: self.how(text, **options)[0] == "hit", f"a hit of {text}")

    def count(self):
        return self.client.xinfo_stream(self.sender.stream)["entries-added"]

    def test_a_hit_has_the_bits_of_a_computation_in_any_gateway(self):
        self.start()
        some = texts(7)
        first, computed = self.how(some)
        self.assertEqual(first, "miss")
        self.wait_hit(some)
        sent = self.count()
        self.assertEqual(self.how(some)[1], computed)
        self.assertEqual((self.how(some)[0], self.count()), ("hit", sent))
        self.assertEqual([item["embedding"] for item in json.loads(computed)["data"]],
                         [encoded(vector) for vector in self.expected(some)])
        other = self.make_gateway(None, f"--cache-bytes={CAP}").start().wait_listening()
        self.wait_hit(some[0], gateway=other)
        sent = self.count()
        how, body = self.how(some[::-1], gateway=other)
        backwards = json.loads(body)
        self.assertEqual((how, self.count()), ("hit", sent))
        self.assertEqual([item["embedding"] for item in backwards["data"]],
                         [item["embedding"] for item in json.loads(computed)["data"]][::-1])
        self.assertEqual(backwards["usage"], json.loads(computed)["usage"])

    def test_a_call_with_one_new_text_is_computed(self):
        self.start()
        self.how(["one", "two"])
        self.wait_hit(["two", "one", "one"])
        how, body = self.how(["one", "three", "two"])
        self.assertEqual(how, "miss")
        self.assertEqual([item["embedding"] for item in json.loads(body)["data"]],
                         [encoded(vector) for vector in self.expected(["one", "three", "two"])])
        self.wait_hit("three")

    def test_hits_and_misses_are_counted(self):
        def counted():
            text = self.ask("GET", "/metrics").body.decode()
            return [int(re.search(rf'(?m)^sluice_gateway_cache_{name}_total (\d+)$', text)[1])
                    for name in ("hits", "misses")]
        self.start()
        self.wait_hit("a probe")
        hits, misses = counted()
        self.how("a probe")
        self.how(["a probe", "another"])
        self.ask("POST", "/embed", {"inputs": ""})
        self.assertEqual(counted(), [hits + 1, misses + 1])

    def test_what_decides_the_bits_decides_the_key(self):
        self.start()
        self.how("hello")
        self.wait_hit("hello")
        bodies = [{"inputs": "hello", "normalize": False}, {"inputs": "hello", "normalize": True},
                  {"inputs": "hello", "dimensions": 4}, {"inputs": "hello", "truncate": True}]
        for body in bodies:
            with self.subTest(body):
                first = self.ask("POST", "/embed", body)
                self.assertEqual((first.status, first.headers["x-sluice-cache"]), (200, "miss"), first.body)
                self.wait_until(lambda b=body: self.ask("POST", "/embed", b).headers["x-sluice-cache"] == "hit", "a hit")
                self.assertEqual(self.ask("POST", "/embed", body).body, first.body)

    def test_without_a_pin_or_the_setting_there_is_no_cache(self):
        self.start(pin=None)
        plain = self.make_gateway().start().wait_listening()
        for _ in range(3):
            self.assertIsNone(self.how("hello")[0])
        self.pin("f32")
        self.assertIsNone(self.how("hello", gateway=plain)[0])
        self.wait_hit("hello")
        for headers in ({"Prefer": "respond-async"}, {"Idempotency-Key": "k"}):
            self.assertNotIn("x-sluice-cache", self.embed("hello", **headers).headers)

    def test_another_precision_is_not_answered_with_the_old_one(self):
        self.start()
        self.how("hello")
        self.wait_hit("hello")
        self.client.hset(self.sender.key("meta"), "precision", "bf16")  # the worker goes on in f32
        sent = self.count()
        self.assertIn(self.how("hello")[0], ("miss", None), "at once, before the gateway has read the pin by itself")
        self.assertEqual(self.count(), sent + 1)
        self.gateway = self.make_gateway(None, f"--cache-bytes={CAP}").start().wait_listening()
        self.pin("bf16")  # this gateway has never seen another
        for _ in range(3):  # the third look would find what the first two have written
            self.assertEqual(self.how("hello")[0], "miss")
        self.worker.stop()
        self.worker = self.start_daemon(self.server, "--precision", "bf16")
        self.wait_hit("hello")
        answer = json.loads(self.how("hello")[1])["data"][0]["embedding"]
        self.assertEqual(answer, encoded(self.reference(precision="bf16")("hello")))

    def test_another_kind_of_worker_is_not_answered_with_the_old_bits(self):
        self.start()
        self.how("hello")
        self.wait_hit("hello")
        generic = self.make_daemon(self.server, "--precision", "f32", environment={"SLUICE_ISA": "generic"})
        generic.start().wait_ready(self.client)
        self.assertEqual(self.how("hello")[0], "miss", "at once, before the gateway has read it by itself")
        generic.stop()
        for _ in range(3):  # the worker that is left is of the old kind
            self.assertEqual(self.how("world")[0], "miss")
        self.worker.stop()
        self.restart(self.worker, self.server)
        self.wait_hit("world")

    def test_a_producers_login_is_enough(self):
        self.server = self.start_guarded(self.queue, name="guarded")
        self.client = self.server.client()
        self.sender = self.producer(self.server)
        self.start()
        self.how("hello")
        self.wait_hit("hello")

    def test_clients_that_go_away_while_the_cache_is_looked_through(self):
        self.start()
        self.wait_hit("hello")
        self.client.client_pause(1000)
        some = [self.send("POST", "/v1/embeddings", {"input": "hello"}) for _ in range(20)]
        for connection in some[::2]:
            connection.close()
        for connection in some[1::2]:
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.headers["X-Sluice-Cache"]), (200, "hit"), answer.read())
            connection.close()
        self.assertEqual(self.gateway.stop(), 0)

    def test_vectors_expire(self):
        self.start()
        self.how("hello")
        self.wait_hit("hello")
        for key in self.keys():
            self.assertTrue(0 < self.client.pttl(key) <= 86_400_000)
            self.client.pexpire(key, 1)
        self.wait_until(lambda: not self.keys(), "the keys to expire")
        self.assertEqual(self.how("hello")[0], "miss")

    def test_a_call_of_many_texts_hits(self):
        self.start()
        some = [f"text {number}" for number in range(2048)]
        computed = self.how(some)[1]
        self.wait_hit(some)
        self.assertEqual(self.how(some), ("hit", computed))
        self.assertEqual({self.sender.key("cache:" + name.decode()).encode() for name in self.names()}, self.keys())

    def test_the_cap_holds_and_the_oldest_go(self):
        cap = 100_000
        self.start(cap=cap)
        most = 0
        for first in range(0, 400, 50):
            some = [f"text {number}" for number in range(first, first + 50)]
            self.how(some)
            self.wait_hit(some)  # the newest are there
            most = max(most, len(self.names()))
            self.wait_until(lambda: {self.sender.key("cache:" + name.decode()).encode() for name in self.names()} ==
                            self.keys(), "the oldest to go")
            used = sum(self.client.memory_usage(key, samples=0) for key in self.keys() | {self.sender.key("cache")})
            self.assertLessEqual(used, cap)
        self.assertGreater(most, 100)
        self.assertLess(most, 300)
        self.assertEqual(self.how("text 0")[0], "miss")
        self.assertTrue(0 < self.client.pttl(self.sender.key("cache")) <= 86_400_000)

    def test_a_call_above_the_cap_leaves_no_more_than_fits(self):
        cap = 20_000
        self.start(cap=cap)
        self.how([f"text {number}" for number in range(400)])
        self.wait_hit("the last")
        self.assertGreater(len(self.keys()), 5)
        self.wait_until(lambda: sum(self.client.memory_usage(key, samples=0)
                                    for key in self.keys() | {self.sender.key("cache")}) <= cap, "what is too much to go")

    def test_without_an_index_nothing_is_written(self):
        self.start()
        self.wait_hit("a probe")
        before = self.keys()
        self.client.set(self.sender.key("cache"), "not an index")
        for _ in range(3):
            self.assertEqual(self.how("hello")[0], "miss")
        self.assertEqual(self.keys(), before)

    def test_a_broken_cache_fails_no_call(self):
        self.start()
        computed = self.how("hello")[1]
        self.wait_hit("hello")
        for value in (b"", b"x" * 36, b"x" * 100):
            for key in self.keys():
                self.client.set(key, value)
            self.assertEqual(self.how("hello"), ("miss", computed))
            self.wait_hit("hello")
        for key in self.keys():
            self.client.set(key, self.client.get(key)[:-3])
        self.assertEqual(self.how("hello"), ("miss", computed))
        self.wait_hit("hello")
        for key in self.keys():
            self.client.delete(key)
            self.client.hset(key, "a", "b")
        self.assertEqual(self.how("hello"), ("miss", computed))

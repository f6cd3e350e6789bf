"""The main job: a text goes in with a plain XADD, its vector comes out of a hash."""
# ctest: threads
# ctest-cost: 15

import json
import re
import subprocess

from case import RedisCase, scaled
from corpus import AWKWARD, texts
from model import write_model
from vectors import decode_f32


class StraightLine(RedisCase):
    def serve(self, *flags):
        self.daemon = self.start_daemon(self.server, *flags)

    def finish(self, **options):
        self.wait_finished(self.sender)
        self.assert_clean(self.server, **options)

    def redis_cli(self, *words):
        return subprocess.run(["redis-cli", "-s", self.server.socket, *words], capture_output=True, check=True,
                              timeout=30).stdout.decode().rstrip("\n")

    def test_redis_cli(self):
        """The two lines of the README."""
        self.serve()
        entry = self.redis_cli("XADD", f"sluice:{{{self.queue}}}:requests", "*", "text", "hello world")
        self.assertRegex(entry, r"^\d+-\d+$")
        key = f"sluice:{{{self.queue}}}:reply:{entry}"
        self.wait_until(lambda: self.redis_cli("HGET", key, "status") == "done", "the reply")
        lines = self.redis_cli("HGETALL", key).split("\n")
        reply = dict(zip(lines[::2], lines[1::2]))
        self.assertEqual(set(reply), {"status", "embedding", "info"})
        info = json.loads(reply["info"])
        self.assertEqual((info["entry"], info["dim"], info["tokens"]), (entry, 64, 4))
        self.assertEqual(decode_f32("json", reply["embedding"]), self.reference()("hello world"))
        length = sum(value * value for value in json.loads(reply["embedding"])) ** 0.5
        self.assertAlmostEqual(length, 1.0, places=5)

    def test_every_encoding(self):
        self.serve()
        for number, text in enumerate(AWKWARD + texts(50)):
            self.sender.submit(text, encoding=("json", "f32")[number % 2])
        self.finish()
        sizes = {len(self.sender.reply(r)[b"embedding"]) for r in self.journal.requests.values() if r.encoding == "f32"}
        self.assertEqual(sizes, {64 * 4})

    def test_default_encoding_setting(self):
        self.serve("--default-encoding", "f32")
        request = self.sender.submit("hello world")
        self.wait_finished(self.sender)
        reply = self.sender.reply(request)
        self.assertEqual(reply["encoding"], "f32")
        self.assertEqual(reply[b"embedding"], self.reference()("hello world"))

    def test_json_is_a_plain_array(self):
        self.serve()
        request = self.sender.submit("hello world")
        self.finish()
        embedding = self.sender.reply(request)[b"embedding"].decode()
        self.assertRegex(embedding, r"^\[-?[0-9.e+-]+(,-?[0-9.e+-]+){63}\]$")
        for number in embedding[1:-1].split(","):
            digits = re.sub(r"e.*|[-.]", "", number).lstrip("0")
            self.assertLessEqual(len(digits), 9, number)

    def test_reply_fields(self):
        self.serve()
        first = self.sender.submit("hello world")
        second = self.sender.submit("hello world " * 60, meta='{"user": "é"}')
        self.finish()
        reply = self.sender.reply(first)
        self.assertEqual(set(reply) - {"precision"}, {b"status", b"embedding", b"info", "entry", "model", "revision", "engine", "dim", "encoding", "tokens",
                                                      "queued_ms", "compute_ms", "done_at"})
        self.assertEqual(reply["model"], "tiny")
        self.assertEqual(reply["tokens"], 4)
        self.assertRegex(reply["revision"], "^[0-9a-f]{16}$")
        self.assertRegex(reply["engine"], "^[0-9a-f]{16}$")
        now_ms = int(self.client.time()[0]) * 1000
        self.assertLess(abs(reply["done_at"] - now_ms), 600_000)
        reply = self.sender.reply(second)
        self.assertIs(reply["truncated"], True)
        self.assertEqual(reply["tokens"], 64)
        self.assertEqual(reply["meta"], '{"user": "é"}')

    def test_ids(self):
        self.serve()
        ids = ["a", "A.b_c:d-e", "0", 'say "hi" \\ /', "9" * 128, "order-42", "18446744073709551616", "1-", "-1", "1-2-3", "middle:1-1"]
        for id in ids:
            self.sender.submit(f"text of {id[:20]}", id=id)
        self.finish()

    def test_same_id_again(self):
        """A retried XADD is harmless, and the newest text wins in whatever order they are computed."""
        self.serve()
        self.sender.submit("the same text", id="twice", encoding="f32")
        again = self.client.xadd(self.sender.stream, {"text": "the same text", "id": "twice", "encoding": "f32"}).decode()
        self.journal.requests["twice"].entries.append(again)
        for number in range(20):
            entry = self.client.xadd(self.sender.stream, {"text": f"text {number}", "id": "often", "encoding": "f32"})
        drained = lambda: self.client.xlen(self.sender.stream) == 0
        self.wait_until(drained, "an empty stream")
        reply = self.sender.reply("often")
        self.assertEqual(reply["entry"], entry.decode())
        self.assertEqual(reply[b"embedding"], self.reference()("text 19"))
        self.finish()

    def test_ttl(self):
        self.serve("--default-ttl-s", "1000", "--error-ttl-s", "5000")
        cases = [(self.sender.submit("default"), 1000), (self.sender.submit("short", ttl=2), 2),
                 (self.sender.submit("cap", ttl=604800), 604800),
                 (self.sender.submit_fields({"text": "", "ttl": 10}, expected="bad_request"), 5000),
                 (self.sender.submit_fields({"text": "", "ttl": 9000}, expected="bad_request"), 9000)]
        self.wait_empty(self.sender)
        for request, seconds in cases:
            left = self.client.pttl(self.sender.key(f"reply:{request.id}"))
            if seconds > 2:
                self.assertTrue(seconds * 1000 - 60_000 < left <= seconds * 1000, f"{request.fields}: {left} ms left")
        gone = lambda: self.client.exists(self.sender.key(f"reply:{cases[1][0].id}")) == 0
        self.wait_until(gone, "the short reply to expire")

    def test_wake_token(self):
        self.serve()
        one = self.sender.submit("named", id="wanted", notify=1)
        woken = self.client.blpop([self.sender.key("wake:wanted")], timeout=30)
        self.assertEqual(woken[1].decode(), one.entries[0])
        self.assertEqual(self.sender.reply(one)[b"status"], b"done")
        two = self.sender.submit("unnamed", notify=1, ttl=100)
        wake = self.sender.key(f"wake:{two.id}")
        self.wait_until(lambda: self.client.llen(wake) == 1, "a wake token")
        self.assertTrue(0 < self.client.pttl(wake) <= 100_000)
        three = self.sender.submit_fields({"text": "", "notify": 1}, expected="bad_request")
        self.wait_until(lambda: self.client.llen(self.sender.key(f"wake:{three.id}")) == 1, "a wake token of an error")
        four = self.sender.submit("no token asked for", notify=0)
        self.finish()
        self.assertEqual(self.client.exists(self.sender.key(f"wake:{four.id}")), 0)

    def test_wake_key_of_wrong_type(self):
        """A side key of a wrong type never delays the reply."""
        self.serve()
        self.client.set(self.sender.key("wake:blocked"), "in the way", ex=1000)
        self.client.set(self.sender.key("reply:blocked"), "in the way", ex=1000)
        self.sender.submit("hello world", id="blocked", notify=1)
        self.wait_until(lambda: self.client.type(self.sender.key("reply:blocked")) == b"hash", "the reply")
        self.finish()

    def test_truncate(self):
        """A long text is cut at the model's limit by default, and refused if the request or the daemon says so."""
        long, fits = "hello " * 100, "world " * 62
        self.serve()
        cut = self.sender.submit(long)
        self.sender.submit(long, truncate=1)
        self.sender.submit(fits, truncate=0)
        self.sender.submit_fields({"text": long, "truncate": 0}, expected="too_long")
        self.finish()
        self.assertEqual(self.sender.reply(cut)["tokens"], 64)
        self.assertIs(self.sender.reply(cut)["truncated"], True)
        self.assertEqual(self.daemon.stop(), 0)
        self.serve("--no-truncate")
        self.sender.submit_fields({"text": long}, expected="too_long")
        self.sender.submit(long, truncate=1)
        self.finish()

    def test_model_assertion(self):
        self.serve()
        model_id = self.client.hget(self.sender.key("meta"), "model_id")
        self.sender.submit("by name", model="tiny")
        self.sender.submit("by id", model=model_id)
        self.sender.submit_fields({"text": "x", "model": "huge"}, expected="wrong_model")
        self.sender.submit_fields({"text": "x", "model": ""}, expected="wrong_model")
        self.finish()

    def test_task_field(self):
        self.serve()
        self.sender.submit("right", task="embed")
        for task in ("rerank", "generate", "", "EMBED"):
            self.sender.submit_fields({"text": "x", "task": task}, expected="unknown_task")
        self.finish()

    def test_many_texts_at_once(self):
        self.serve()
        self.sender.submit_many(texts(max(300, scaled(1500)), seed=3), encoding="f32")
        self.finish()

    def test_padded_layout_has_the_same_bits(self):
        batch = texts(200, seed=4)
        self.serve("--layout", "padded")
        self.sender.submit_many(batch, encoding="f32")
        self.finish()
        self.assertEqual(self.daemon.stop(), 0)
        padded = {r.text: self.sender.reply(r)[b"embedding"] for r in self.journal.requests.values()}
        self.serve("--layout", "packed")
        again = self.sender.submit_many(batch, encoding="f32")
        self.finish()
        self.assertEqual(padded, {r.text: self.sender.reply(r)[b"embedding"] for r in again})

    def test_fixed_window(self):
        """Requests that arrive within a fixed window share a batch, and an idle engine does not start early."""
        self.serve("--window", "fixed", "--window-ms", "400")
        requests = self.sender.submit_many(texts(8, seed=5, longest=4), together=True)
        self.finish()
        for request in requests:
            self.assertGreaterEqual(self.sender.reply(request)["queued_ms"], 300)
        done = {self.sender.reply(request)["done_at"] for request in requests}
        self.assertLessEqual(max(map(int, done)) - min(map(int, done)), 200)

    def test_small_batches(self):
        """Limits of one row or a few tokens bound a batch and lose no request."""
        self.serve("--max-batch-rows", "1")
        self.sender.submit_many(texts(40, seed=6), encoding="f32")
        self.finish()
        self.assertEqual(self.daemon.stop(), 0)
        self.serve("--max-batch-tokens", "8")
        self.sender.submit_many(texts(40, seed=7), encoding="f32")
        self.finish()

    def test_max_tokens_setting(self):
        self.serve("--max-tokens", "16")
        text = "hello " * 50
        request = self.sender.submit(text, encoding="f32")
        self.wait_finished(self.sender)
        self.assertEqual(self.sender.reply(request)["tokens"], 16)
        self.assertEqual(self.sender.reply(request)[b"embedding"], self.reference(flags=["--max-tokens", "16"])(text))

    def test_bf16_replies_equal_local_ones(self):
        """This needs a processor with bf16; on others, asking for bf16 is an error that says so."""
        result = self.run_sluice("embed", "--model", self.make_model(), "--precision", "bf16", "--input", "-",
                                 "--output", self.path("bf16.npy"), input=b"hello world\n")
        if result.returncode != 0:
            self.assertIn(b"bf16", result.stderr)
            return
        self.serve("--precision", "bf16")
        requests = self.sender.submit_many(texts(60, seed=9), encoding="f32")
        self.wait_finished(self.sender)
        local = self.reference(precision="bf16")
        local.learn(request.text for request in requests)
        for request in requests:
            self.assertEqual(self.sender.reply(request)[b"embedding"], local(request.text))
        self.assertEqual(self.sender.reply(requests[0])["precision"], "bf16")

    def test_queue_name(self):
        """Names may contain dots, dashes and underscores; each queue is separate."""
        for queue in ("a", "a.b-c_d", "0" * 64):
            self.start_daemon(self.server, queue=queue)
            sender = self.producer(self.server, queue=queue)
            request = sender.submit(f"on {queue}", id=f"id-{queue}"[:60])
            self.wait_finished(sender, [request])
            self.assertEqual(decode_f32("json", sender.reply(request)[b"embedding"]), self.reference()(f"on {queue}"))

    def test_two_queues_two_models(self):
        """Two daemons with two models serve two queues of one Redis."""
        other = write_model(self.path("other"), seed=2, hidden=32, heads=1)
        self.serve()
        self.start_daemon(self.server, model=other, queue="second")
        second = self.producer(self.server, queue="second", journal=type(self.journal)())
        self.sender.submit("hello world", encoding="f32")
        second.submit("hello world", encoding="f32")
        self.finish()
        self.wait_finished(second)
        self.assert_clean(self.server, queue="second", model=other, journal=second.journal)

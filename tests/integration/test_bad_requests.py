"""Whatever a producer writes into the stream, it gets an error reply that names the field, its entry is acknowledged,
and no other request is affected."""

from case import RedisCase
from corpus import texts


class BadRequests(RedisCase):
    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon(self.server)
        self.bad = []

    def send(self, fields, code, names, named=True):
        """Sends the request between two healthy ones, which must not be affected."""
        self.sender.submit(f"before {len(self.bad)}", encoding="f32")
        request = self.sender.submit_fields(fields, expected=code, named=named)
        self.bad.append((request, names))
        self.sender.submit(f"after {len(self.bad)}", encoding="f32")

    def finish(self):
        self.wait_finished(self.sender)
        for request, names in self.bad:
            reply = self.sender.reply(request)
            message = reply.get(b"message", b"").decode()
            self.assertIn(names, message, f"{str(request.fields)[:200]} -> {reply}")
            self.assertIs(reply["retryable"], False)
            self.assertLess(len(message), 400)
        self.assertTrue(self.daemon.running())
        self.assertEqual(self.client.exists(self.sender.key("dead")), 0)
        self.assert_clean(self.server)

    def test_text(self):
        self.send({"text": ""}, "bad_request", "text")
        self.send({"id": "no-text"}, "bad_request", "text")
        self.send([("text", "a"), ("text", "b")], "bad_request", "text")
        self.send({"TEXT": "upper case is another field"}, "bad_request", "text")
        self.finish()

    def test_text_that_is_not_utf8(self):
        for number, bad in enumerate((b"\xff", b"abc\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80b")):
            self.send({"text": bad, "id": f"utf8-{number}"}, "bad_utf8", "text")
        self.finish()

    def test_text_with_nul(self):
        """A NUL is a character like any other: the text after it counts, too."""
        request = self.sender.submit_fields({"text": b"hello\0world", "encoding": "f32"})
        other = self.sender.submit_fields({"text": b"hello", "encoding": "f32"})
        self.wait_finished(self.sender)
        self.assertEqual(self.sender.reply(request)[b"status"], b"done")
        self.assertNotEqual(self.sender.reply(request)[b"embedding"], self.sender.reply(other)[b"embedding"])
        self.finish()

    def test_large_text(self):
        """10 MB are refused because of their size; 1 MiB is read up to the model's token limit."""
        self.send({"text": "a" * 10_000_000}, "too_large", "text")
        self.send({"text": "a " * 524289}, "too_large", "text")
        self.sender.submit("hello " * 174762)
        self.finish()

    def test_entry_above_the_reply_limit(self):
        """An entry that the daemon cannot even read is answered unread."""
        request = self.sender.submit_fields({"text": "b" * 80_000_000}, expected="too_large")
        self.sender.submit("behind it")
        self.wait_finished(self.sender)
        self.assertTrue(self.daemon.running())
        self.assertIn(self.sender.reply(request)[b"code"], (b"too_large",))
        self.assert_clean(self.server)

    def test_id(self):
        name = "1795252518106-0"
        for bad in ("", "ä", "x" * 129, name, "high:" + name, "low:" + name, b"\xff", b"a\0b", "a\n", "\x7f"):
            self.send({"text": "x", "id": bad}, "bad_id", "id", named=False)
        for good in (" ", "user 42", "a/b", "x" * 128, "12-34", "high:12-34", "*", "{x}", "~", "179525251810-0", "any:" + name):
            self.sender.submit("hello", id=good)
        self.send([("text", "x"), ("id", "one"), ("id", "two")], "bad_request", "id", named=False)
        self.finish()

    def test_encoding(self):
        for bad in ("", "F32", "f8", "base64url", "xml", b"\xff", "f32 ", b"f32\0"):
            self.send({"text": "x", "encoding": bad}, "bad_request", "encoding")
        self.send([("text", "x"), ("encoding", "f32"), ("encoding", "json")], "bad_request", "encoding")
        self.finish()

    def test_ttl(self):
        for bad in ("", "0", "-1", "604801", "1.5", "1e3", "abc", "99999999999999999999", " 5", "5 ", "+5", "0x10", b"5\0"):
            self.send({"text": "x", "ttl": bad}, "bad_request", "ttl")
        self.send([("text", "x"), ("ttl", "5"), ("ttl", "5")], "bad_request", "ttl")
        self.finish()

    def test_max_attempts(self):
        for bad in ("", "0", "11", "-1", "many", "4294967297"):
            self.send({"text": "x", "max_attempts": bad}, "bad_request", "max_attempts")
        self.sender.submit("right", max_attempts=10)
        self.finish()

    def test_notify_truncate_meta(self):
        for bad in ("", "2", "yes", "true", "stream:", "stream:UPPER"):
            self.send({"text": "x", "notify": bad}, "bad_request", "notify")
        for bad in ("", "2", "no", "-0"):
            self.send({"text": "x", "truncate": bad}, "bad_request", "truncate")
        self.send({"text": "x", "meta": "m" * 4097}, "bad_request", "meta")
        self.send({"text": "x", "meta": b"\xff\xfe"}, "bad_utf8", "meta")
        self.finish()

    def test_model_and_task(self):
        self.send({"text": "x", "model": "another"}, "wrong_model", "model")
        self.send({"text": "x", "model": b"\xff\0"}, "wrong_model", "model")
        self.send({"text": "x", "task": "rerank"}, "unknown_task", "task: this queue does embed")
        self.send({"query": "x"}, "bad_request", "query: not with task embed")
        self.send([("text", "x"), ("task", "embed"), ("task", "embed")], "bad_request", "task")
        self.finish()

    def test_promised_fields_of_later_versions(self):
        """A protocol field that this version does not implement is refused, not silently ignored."""
        self.send({"text": "x", "pairs": "[]"}, "bad_request", "pairs")
        self.send({"pairs": "[]"}, "bad_request", "pairs: not supported yet")
        self.finish()

    def test_own_fields_from_outside(self):
        """Fields with an underscore belong to the daemon; nonsense in them does no harm."""
        self.send({"text": "x", "_id": "not a name"}, "bad_request", "_id")
        self.send({"text": "x", "_attempt": "-3"}, "bad_request", "_attempt")
        self.send({"text": "x", "_first_at": "never"}, "bad_request", "_first_at")
        self.finish()

    def test_number_of_fields(self):
        """64 fields are accepted, 65 are not; users' own fields and unknown ones are ignored."""
        many = {f"x-{number}": "v" for number in range(63)}
        self.sender.submit_fields({"text": "with 64 fields", **many}, text="with 64 fields")
        self.sender.submit_fields({"text": "unknown", "colour": "red", "": "empty", b"\xff": b"\xff"}, text="unknown")
        self.send({"text": "x", "id": "with-65", **many}, "bad_request", "fields")
        self.send({"text": "x", **{f"x-{n}": "v" for n in range(5000)}}, "bad_request", "fields")
        self.finish()

    def test_hundreds_of_bad_ones_among_good_ones(self):
        kinds = [({"text": ""}, "bad_request"), ({"text": b"\xff"}, "bad_utf8"), ({"text": "x", "ttl": "0"}, "bad_request"),
                 ({"text": "x", "task": "t"}, "unknown_task"), ({"nothing": "here"}, "bad_request")]
        for number, text in enumerate(texts(150, seed=11)):
            self.sender.submit(text, encoding="f32")
            fields, code = kinds[number % len(kinds)]
            self.sender.submit_fields(fields, expected=code)
        self.finish()

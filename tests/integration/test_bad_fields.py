"""A table of everything that can be wrong with each field of a request, in one queue with healthy requests in between: each
bad one gets an error reply with the right code whose message names the field, and the healthy ones their vectors."""

from case import RedisCase

LARGE = "9" * 10_000_000
NOT_UTF8 = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80")
WITH_NUL = (b"1\0", b"\0")

NUMBERS = ("", " ", "-1", "+1", "1.5", "1e3", "0x1", "one", " 1", "1 ", "1\n", "١", "18446744073709551616", "9" * 50)
WORDS = ("yes", "true", "no", "on", "2", "-0", "00", "01", "1 ", "{}", "null")

# field: wrong values, all bad_request. Added to each: empty (except for prompt), not UTF-8, with NUL, 10 MB long, twice.
TABLE = {
    "ttl": NUMBERS + ("0", "604801"),
    "max_attempts": NUMBERS + ("0", "11"),
    "delay": NUMBERS + ("2592000001",),
    "expires_in": NUMBERS + ("0", "31622400001"),
    "dims": NUMBERS + ("0", "65"),
    "normalize": WORDS,
    "truncate": WORDS,
    "notify": WORDS + ("stream", "stream:", "stream:UPPER", "stream:a/b", "stream:" + "r" * 65, "Stream:a"),
    "encoding": ("JSON", "F32", "f64", "float32", "base64url", "json,f32", " json"),
    "prompt": ("nope", "Query", "query ", "1"),
    "tenant": ("a b", "é", "a/b", "t" * 65, "{a}", "*"),
    "query": ("hello",),
    "top_n": ("1",),
    "raw": ("1",),
    "pairs": ('[["a","b"]]',),
}


class BadFields(RedisCase):
    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon(self.server, model=self.make_model(prompts={"query": "find: "}))
        self.bad = []

    def send(self, fields, code, names, index=None):
        number = len(self.bad)
        self.sender.submit(f"before {number}", encoding="f32")
        self.bad.append((self.sender.submit_fields(fields, expected=code), names, index))

    def finish(self):
        self.sender.submit("behind all", encoding="f32")
        self.wait_finished(self.sender)
        for request, names, index in self.bad:
            reply = self.sender.reply(request)
            shown = f"{str(request.fields)[:200]} -> {str(reply)[:400]}"
            message = reply.get(b"message", b"").decode()
            self.assertIn(names, message, shown)
            self.assertLess(len(message), 300, shown)
            self.assertTrue(message.isprintable(), shown)
            self.assertIs(reply.get("retryable"), False, shown)
            self.assertEqual(reply.get("index"), index, shown)
        self.assertTrue(self.daemon.running())
        self.assertEqual(self.client.exists(self.sender.key("dead")), 0)
        self.assert_clean(self.server)

    def send_table(self, fields):
        for field in fields:
            for value in TABLE[field] + NOT_UTF8 + WITH_NUL + (() if field == "prompt" else ("",)):
                self.send({"text": "x", field: value}, "bad_request", field)
            self.send([("text", "x"), (field, "1"), (field, "1")], "bad_request", field)
            self.send({"text": "x", field: LARGE}, "bad_request", field)

    def test_numbers_of_life(self):
        self.send_table(("ttl", "max_attempts", "delay"))
        self.finish()

    def test_deadlines(self):
        self.send_table(("expires_in",))
        self.finish()

    def test_switches_and_numbers_of_work(self):
        self.send_table(("normalize", "truncate", "dims"))
        self.finish()

    def test_words(self):
        self.send_table(("notify", "encoding", "prompt", "tenant"))
        self.finish()

    def test_of_other_tasks_and_reserved(self):
        self.send_table(("query", "top_n", "raw", "pairs"))
        self.finish()

    def test_meta(self):
        for value in NOT_UTF8:
            self.send({"text": "x", "meta": value}, "bad_utf8", "meta")
        for value in ("", "m" * 4097, LARGE):
            self.send({"text": "x", "meta": value}, "bad_request", "meta")
        self.send([("text", "x"), ("meta", "1"), ("meta", "1")], "bad_request", "meta")
        nul = self.sender.submit_fields({"text": "x", "meta": b"a\0b"})
        self.finish()
        self.assertEqual(self.sender.reply(nul)["meta"], "a\0b")

    def test_model_and_task(self):
        for field, code in (("model", "wrong_model"), ("task", "unknown_task")):
            for value in ("", "other", LARGE, b"\xff", b"tiny\0", b"embed\0", "Embed", "TINY"):
                self.send({"text": "x", field: value}, code, field)
            self.send([("text", "x"), (field, "embed"), (field, "tiny")], "bad_request", field)
        self.finish()

    def test_inputs(self):
        whole = ("", "a", '"a"', "{}", "null", "7", "[", '["a"', '["a"]]', '["a"] b', "[]", " [ ] ", b'["a"]\0', b'\xff["a"]',
                 '\ufeff["a"]', '["a" "b"]', "['a'", '["a",]', "[" * 100_000)
        for value in whole:
            names_one = str(value).startswith("[[")
            self.send({"inputs": value}, "bad_request", "inputs", 0 if names_one else None)
        for value, index in (('["a", 1]', 1), ('["a", null]', 1), ('[["a"]]', 0), ('["a", "b", {"c": "d"}]', 2), ('[true]', 0),
                             ('["a", ""]', 1), ('["", "a"]', 0), ('["a", "\\x"]', 1), ('["a\n"]', 0), ('["a', 0),
                             (b'["a", "b\0"]', 1), ('["\\u12"]', 0)):
            self.send({"inputs": value}, "bad_request", "inputs", index)
        for value, index in ((b'["a", "\xff"]', 1), (b'["\xed\xa0\x80"]', 0), ('["a", "b", "\\ud800"]', 2), ('["\\udc00\\ud800"]', 0)):
            self.send({"inputs": value}, "bad_utf8", "inputs", index)
        self.send({"inputs": "[" + ",".join(['"a"'] * 257) + "]"}, "too_many_inputs", "inputs")
        self.send({"inputs": '["' + "a" * 1_048_576 + '","b"]'}, "too_large", "inputs")
        self.send({"inputs": '["' + LARGE + '"]'}, "too_large", "inputs")
        self.send({"inputs": LARGE}, "bad_request", "inputs")
        self.finish()

    def test_a_text_that_is_too_long(self):
        """Only the tokeniser can tell: all texts are refused together, and the message names the first one."""
        long = "hello " * 100
        for inputs, index in (([long], 0), (["a", "b", long, long], 2)):
            self.send({"inputs": self.array(inputs), "truncate": "0"}, "too_long", "inputs", index)
        self.send({"text": long, "truncate": "0"}, "too_long", "text")
        self.finish()

    @staticmethod
    def array(texts):
        return "[" + ",".join('"' + text + '"' for text in texts) + "]"

    def test_only_one_of_two(self):
        fields = {"text": "x", "inputs": '["a"]'}
        self.send(fields, "bad_request", "text")
        self.send(dict(reversed(fields.items())), "bad_request", "inputs")
        self.finish()

    def test_cancel(self):
        for value in ("", "order-42", "1", "1-", "-1", "mid:1-1", "1-1 ", "*", "high:", "18446744073709551616-0", b"1-1\0", b"\xff", LARGE):
            self.send({"cancel": value}, "bad_request", "cancel")
        for field, value in (("text", "a"), ("inputs", '["a"]'), ("meta", "m"), ("ttl", "5"), ("notify", "1"), ("tenant", "t"),
                             ("delay", "1"), ("model", "tiny")):
            self.send({"cancel": "1-1", field: value}, "bad_request", "cancel")
        self.send([("cancel", "1-1"), ("cancel", "1-1")], "bad_request", "cancel")
        self.finish()

    def test_own_fields(self):
        for field, values in (("_id", ("", "x", "1", "mid:1-1", LARGE, b"1-1\0", b"\xff")), ("_attempt", ("", "1", "x", LARGE)),
                              ("_first_at", ("", "1", "x", LARGE))):
            for value in values:
                self.send({"text": "x", field: value}, "bad_request", field)
        self.finish()

    def test_names_of_any_bytes(self):
        """Unknown field names do no harm, and are not taken for known ones."""
        for name in ("", " text", "text ", "TEXT", b"text\0", b"\xff", "x-", "x", "_", "_idea", "{}", LARGE):
            self.sender.submit_fields({"text": "healthy", name: "1"}, text="healthy")
            self.send({name: "only this"}, "bad_request", "text")
        self.finish()

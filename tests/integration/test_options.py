"""Options of a request: several texts at once, encodings, fewer floats, no normalising, prompts, echoes. Vectors are
compared with those of `sluice embed`, which knows nothing of requests."""

import base64
import json
import math
import struct

from case import RedisCase
from corpus import AWKWARD, texts
from vectors import decode_f32

PROMPTS = {"query": "find: ", "plain": ""}
MANY = texts(30, seed=5) + AWKWARD
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def floats(encoding, embedding):
    """Decodes an embedding into a list of numbers, or a list of such lists."""
    if encoding == "json":
        return json.loads(embedding)
    if encoding == "base64":
        embedding = base64.b64decode(embedding, validate=True)
    kind = "e" if encoding == "f16" else "f"
    return list(struct.unpack(f"<{len(embedding) // struct.calcsize(kind)}{kind}", embedding))


def f32(vector):
    return struct.pack(f"<{len(vector)}f", *vector)


def rows_of(encoding, reply):
    """The vectors of a reply to `inputs`, each as f32 bytes."""
    dim, count = reply["dim"], reply["count"]
    vectors = floats(encoding, reply[b"embedding"])
    if encoding != "json":
        vectors = [vectors[i * dim:(i + 1) * dim] for i in range(len(vectors) // dim)]
    assert len(vectors) == count and all(len(vector) == dim for vector in vectors), (count, dim)
    return [f32(vector) for vector in vectors]


class Options(RedisCase):
    def serve(self, *flags, **shape):
        self.model = self.make_model(prompts=PROMPTS, **shape)
        self.daemon = self.start_daemon(self.server, *flags, model=self.model)

    def vector(self, text):
        return self.reference(self.model)(text)

    def ask(self, expected="done", **fields):
        return self.sender.submit_fields(fields, expected=expected)

    def reply(self, **fields):
        request = self.ask(**fields)
        self.wait_finished(self.sender, [request])
        return self.sender.reply(request)

    def finish(self):
        self.wait_finished(self.sender)
        self.assertTrue(self.daemon.running())
        self.assert_clean(self.server)

    def raw(self, text):
        """The vector as pooled, from a model with the same weights that does not normalise."""
        if not hasattr(self, "raw_reference"):
            self.raw_reference = self.reference(self.make_model("raw", normalize=False))
        return struct.unpack("<64f", self.raw_reference(text))

    def test_inputs_in_every_encoding(self):
        self.serve()
        reference = self.reference(self.model)
        reference.learn(MANY)
        for encoding in ("json", "f32", "base64"):
            reply = self.reply(inputs=json.dumps(MANY), encoding=encoding)
            self.assertEqual(reply["count"], len(MANY))
            self.assertEqual(rows_of(encoding, reply), [reference(text) for text in MANY], encoding)
        halves = rows_of("f16", self.reply(inputs=json.dumps(MANY), encoding="f16"))
        for half, text in zip(halves, MANY):
            exact = struct.unpack("<64f", reference(text))
            self.assertEqual(half, f32(struct.unpack("<64e", struct.pack("<64e", *exact))))
        self.finish()

    def test_one_of_inputs_is_an_array_of_arrays(self):
        self.serve()
        reply = self.reply(inputs='["hello world"]')
        self.assertEqual(reply["count"], 1)
        self.assertEqual(rows_of("json", reply), [self.vector("hello world")])
        self.assertNotIn("count", self.reply(text="hello world"))
        self.finish()

    def test_every_encoding_of_one_text(self):
        self.serve()
        for encoding in ("json", "f32", "base64"):
            reply = self.reply(text="hello world", encoding=encoding)
            self.assertEqual(reply["encoding"], encoding)
            self.assertEqual(f32(floats(encoding, reply[b"embedding"])), self.vector("hello world"))
        reply = self.reply(text="hello world", encoding="f16")
        self.assertEqual(len(reply[b"embedding"]), 128)

    def test_default_encoding_base64(self):
        self.serve("--default-encoding", "base64")
        self.assertEqual(base64.b64decode(self.reply(text="hello world")[b"embedding"]), self.vector("hello world"))

    def test_inputs_far_larger_than_a_batch(self):
        """More texts than a batch has rows, and more tokens than a batch takes; others share the batches."""
        self.serve("--max-batch-rows", "16", "--max-batch-tokens", "200", "--max-inputs", "1000")
        many = texts(700, seed=9, longest=30)
        reference = self.reference(self.model)
        reference.learn(many)
        bulk = self.ask(inputs=json.dumps(many), encoding="f32")
        for number in range(50):
            self.sender.submit(many[number * 3], encoding="f32")
        self.wait_finished(self.sender, [bulk])
        self.assertEqual(rows_of("f32", self.sender.reply(bulk)), [reference(text) for text in many])
        self.finish()

    def test_same_text_many_times(self):
        self.serve()
        reply = self.reply(inputs=json.dumps(["hello world", "other", "hello world"] * 50), encoding="f32")
        rows = rows_of("f32", reply)
        self.assertEqual(rows, [self.vector("hello world"), self.vector("other"), self.vector("hello world")] * 50)

    def test_tokens_and_truncated_are_of_all_texts(self):
        self.serve()
        one = self.reply(text="hello world")["tokens"]
        reply = self.reply(inputs=json.dumps(["hello world", "hello " * 300, "hello world"]))
        self.assertEqual(reply["tokens"], 64 + 2 * one)
        self.assertIs(reply["truncated"], True)

    def test_escapes(self):
        """Texts are the same however they are escaped in JSON."""
        self.serve()
        text = 'Größe "世界" \\ / \t \U0001f680'
        plain, escaped = json.dumps([text], ensure_ascii=False), json.dumps([text], ensure_ascii=True).replace("/", "\\/")
        one = self.reply(text=text, encoding="f32")[b"embedding"]
        for inputs in (plain, escaped, " \n" + escaped + "\t"):
            self.assertEqual(self.reply(inputs=inputs, encoding="f32")[b"embedding"], one)
        self.assertEqual(self.reply(inputs='["a\\u0000b"]', encoding="f32")[b"embedding"],
                         self.reply(text=b"a\0b", encoding="f32")[b"embedding"])

    def test_normalize(self):
        """normalize 0 on a model that normalises, and 1 on one that does not; rows of both kinds share batches."""
        self.serve()
        for text in MANY[:10]:
            self.assertEqual(decode_f32("f32", self.reply(text=text, normalize="1", encoding="f32")[b"embedding"]), self.vector(text))
            self.assertEqual(struct.unpack("<64f", self.reply(text=text, normalize="0", encoding="f32")[b"embedding"]), self.raw(text))
        asked = [self.ask(text="hello world", normalize=str(i % 2), encoding="f32") for i in range(100)]
        self.wait_finished(self.sender, asked)
        both = [self.sender.reply(request)[b"embedding"] for request in asked]
        self.assertEqual(both, [f32(self.raw("hello world")), self.vector("hello world")] * 50)

    def test_normalize_on_a_model_that_does_not(self):
        self.serve(normalize=False)
        normal = self.reference(self.make_model("normal"))
        self.assertEqual(self.reply(text="hello world", encoding="f32")[b"embedding"], self.vector("hello world"))
        self.assertEqual(self.reply(text="hello world", encoding="f32", normalize="1")[b"embedding"], normal("hello world"))
        self.assertNotEqual(self.vector("hello world"), normal("hello world"))

    def test_dims(self):
        self.serve()
        raw = self.raw("hello world")
        for dims in (1, 2, 63, 64):
            reply = self.reply(text="hello world", dims=str(dims), encoding="f32")
            self.assertEqual(reply["dim"], dims)
            vector = struct.unpack(f"<{dims}f", reply[b"embedding"])
            length = math.sqrt(sum(value * value for value in raw[:dims]))
            for value, expected in zip(vector, raw[:dims]):
                self.assertAlmostEqual(value, expected / length, places=6)
            self.assertAlmostEqual(sum(value * value for value in vector), 1, places=5)
            cut = self.reply(text="hello world", dims=str(dims), encoding="f32", normalize="0")[b"embedding"]
            self.assertEqual(cut, f32(raw[:dims]))
        self.assertEqual(self.reply(text="hello world", dims="64", encoding="f32")[b"embedding"], self.vector("hello world"))
        rows = rows_of("json", self.reply(inputs='["hello world", "other"]', dims="3", normalize="0"))
        self.assertEqual(rows, [f32(raw[:3]), f32(self.raw("other")[:3])])

    def test_prompt(self):
        self.serve()
        for fields, text in (({"prompt": "query"}, "find: hello"), ({"prompt": ""}, "hello"), ({"prompt": "plain"}, "hello")):
            self.assertEqual(self.reply(text="hello", encoding="f32", **fields)[b"embedding"], self.vector(text), fields)
        rows = rows_of("f32", self.reply(inputs='["one", "two"]', encoding="f32", prompt="query"))
        self.assertEqual(rows, [self.vector("find: one"), self.vector("find: two")])

    def test_the_model_is_known_before_anything_is_sent(self):
        self.serve()
        dim = self.reply(text="hello")["dim"]
        facts = json.loads(self.client.hget(self.sender.key("meta"), "model_facts"))
        self.assertRegex(facts.pop("engine"), "^[0-9a-f]{16}$")
        self.assertEqual(facts, {"tasks": ["embed"], "dim": dim, "max_tokens": 64, "prompts": list(PROMPTS)})

    def test_prompt_against_the_queues_own(self):
        self.serve("--prompt", "query")
        self.assertEqual(self.reply(text="hello", encoding="f32")[b"embedding"], self.vector("find: hello"))
        self.assertEqual(self.reply(text="hello", encoding="f32", prompt="plain")[b"embedding"], self.vector("hello"))
        self.assertEqual(self.reply(text="say hello", encoding="f32", prompt="")[b"embedding"], self.vector("say hello"))

    def test_echoes(self):
        self.serve("--log-level", "debug")
        echoes = {"meta": '{"user": "é"}', "tenant": "acme:7", "traceparent": PARENT, "tracestate": "a=1,b=x y"}
        for expected, fields in (("done", {"text": "hello"}), ("bad_request", {"text": ""}), ("bad_request", {"inputs": "[]"})):
            reply = self.reply(expected=expected, **fields, **echoes)
            for name, value in echoes.items():
                self.assertEqual(reply[name], value, fields)
        self.logged(self.daemon, "request_refused", 2)
        log = self.daemon.read_log()
        for word in ("request_refused", "code=bad_request", "tenant=acme:7", f"traceparent={echoes['traceparent']}"):
            self.assertEqual(log.count(word), 2, word)
        bare = self.reply(text="hello")
        self.assertFalse({"meta", "tenant", "traceparent", "tracestate"} & set(bare))
        malformed = self.reply(text="hello", traceparent="00-1-2-03", tracestate="a=1")
        self.assertFalse({"traceparent", "tracestate"} & set(malformed))
        self.finish()

    def test_echoes_of_a_cancelled_request(self):
        self.serve()
        echoes = {"meta": "m", "tenant": "acme", "traceparent": PARENT, "tracestate": "a=1"}
        request = self.ask(text="hello", delay="600000", expected="cancelled", **echoes)
        malformed = self.ask(text="hello", delay="600000", expected="cancelled", traceparent="00-1-2-03", tracestate="a=1")
        wrong = self.ask(text="hello", delay="600000", tenant="not one", expected="bad_request")
        self.wait_finished(self.sender, [wrong])
        for one in (request, malformed):
            self.sender.client.xadd(self.sender.stream, {"cancel": one.id})
        self.wait_finished(self.sender)
        reply = self.sender.reply(request)
        self.assertEqual(reply[b"status"], b"cancelled")
        for name, value in echoes.items():
            self.assertEqual(reply[name], value)
        self.assertFalse({"traceparent", "tracestate"} & set(self.sender.reply(malformed)))
        self.finish()

    def test_most_inputs(self):
        """The largest configurable number of inputs in one request; test_memory checks memory."""
        self.serve("--max-inputs", "4096")
        many = [MANY[i % len(MANY)] + f" {i}" for i in range(4096)]
        reference = self.reference(self.model)
        reference.learn(many)
        reply = self.reply(inputs=json.dumps(many), encoding="json")
        self.assertEqual(rows_of("json", reply), [reference(text) for text in many])
        self.reply(inputs=json.dumps(["a"] * 4097), expected="too_many_inputs")
        self.finish()

"""Memory: after 200,000 requests a daemon needs no more than after a short while."""
# ctest-processors: 2
# ctest-cost: 25

import array
import itertools
import json
import os
import statistics
import struct

from case import SANITIZED, SluiceCase

WORDS = 250_002  # the number in XLM-RoBERTa
NARROW = {"BF16": lambda value: struct.unpack("<HH", struct.pack("<f", value))[1],
          "F16": lambda value: struct.unpack("<H", struct.pack("<e", value))[0]}


def enlarge(directory, dtype):
    """Rewrites a small model: WORDS Unigram tokens, whose embeddings repeat those of the small vocabulary (drawing each
    would take a minute), and every weight in 16 bits. Returns the size of its weights' file."""
    path = lambda name: os.path.join(directory, name)
    with open(path("model.safetensors"), "rb") as file:
        header, data = json.loads(file.read(*struct.unpack("<Q", file.read(8)))), file.read()
    blobs, end = [], 0
    for name, tensor in header.items():
        values = array.array("f", data[slice(*tensor["data_offsets"])])
        bits = {value: NARROW[dtype](value) for value in set(values)}
        blob = array.array("H", map(bits.__getitem__, values)).tobytes()
        if name == "embeddings.word_embeddings.weight":
            rows, columns = tensor["shape"]
            blob = (blob * (WORDS // rows + 1))[:WORDS * columns * 2]
            tensor["shape"][0] = WORDS
        blobs.append(blob)
        tensor.update(dtype=dtype, data_offsets=[end, end := end + len(blob)])
    with open(path("model.safetensors"), "wb") as file:
        text = json.dumps(header).encode()
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = [[token, 0] for token in specials] + [[f"\u2581w{i}", -8 - i / WORDS] for i in range(WORDS - len(specials))]
    changes = {
        "config.json": {"vocab_size": WORDS},
        "tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512},
        "tokenizer.json": {
            "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]},
            "model": {"type": "Unigram", "unk_id": 3, "vocab": vocabulary}}}
    with open(path("config.json"), encoding="utf-8") as file:
        changes["config.json"] = {**json.load(file), **changes["config.json"]}
    for name, content in changes.items():
        with open(path(name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    return os.path.getsize(path("model.safetensors"))


class Memory(SluiceCase):
    def push(self, server, client, sender, count):
        """Enqueues in pipelines with a bounded backlog; replies expire soon, so that Redis stays small as well."""
        stream, sent = sender.stream, 0
        while sent < count:
            self.wait_until(lambda: client.xlen(stream) < 4000, "the backlog to shrink")
            pipe = client.pipeline(transaction=False)
            for _ in range(min(1000, count - sent)):
                pipe.xadd(stream, {"text": f"request number {sent}", "encoding": "f32", "ttl": 1})
                sent += 1
            pipe.execute()
        self.wait_empty(sender)

    def test_no_growth_over_200000_requests(self):
        """Uses the null engine, so that only the queue's own memory is measured."""
        count = 10_000 if SANITIZED else 200_000  # a sanitizer's allocator keeps freed memory, so the run is short there
        server = self.start_redis(aof=None)
        client = server.client()
        sender = self.producer(server)
        daemon = self.make_daemon(server, "--backend", "null")
        for first in range(0, count // 10, 1000):  # with a deep backlog at the start, everything is as full as it gets
            sender.submit_many([f"request number {first + i}" for i in range(1000)], encoding="f32", ttl=1)
        daemon.start().wait_ready(client)
        self.wait_empty(sender)
        looks = []
        for _ in range(20):
            self.push(server, client, sender, count // 20)
            looks.append(daemon.rss_bytes())
        self.assertEqual(self.pending(client), 0)
        if not SANITIZED:
            # Bursts add a MB or so until one was as large as they get, and the allocator may give it back: in a few steps.
            # A leak adds to all of them (40 bytes a request: 400 KB), so it shows in most pairs of looks.
            pairs = itertools.combinations(enumerate(looks), 2)
            step = statistics.median((later - earlier) / (after - before) for (before, earlier), (after, later) in pairs)
            self.assertLess(step, 200 << 10, [look >> 10 for look in looks])
            self.assertLess(looks[-1] - looks[0], 8 << 20, [look >> 10 for look in looks])

    def test_large_backlog_costs_credit_only(self):
        """190 MB wait in the stream; the daemon holds only as much as its credit, not the backlog."""
        server = self.start_redis(aof=None)
        client = server.client()
        sender = self.producer(server)
        text = "hello " * 8000
        pipe = client.pipeline(transaction=False)
        for number in range(4000):
            pipe.xadd(sender.stream, {"text": text, "encoding": "f32", "ttl": 60})
        pipe.execute()
        model = self.make_model("slow", hidden=384, heads=6, layers=6)
        daemon = self.start_daemon(server, "--max-tokens", "16", model=model)
        peak = 0

        def drained():
            nonlocal peak
            peak = max(peak, daemon.rss_bytes())
            return client.xlen(sender.stream) == 0

        self.wait_until(drained, "an empty stream")
        if not SANITIZED:
            self.assertLess(peak, 120 << 20)

    def test_bulk_behind_plain_requests(self):
        """A read is sized by earlier entries, and brings hundreds of requests with 2 MB of vectors each: they take
        turns."""
        server = self.start_redis(aof=None)
        client = server.client()
        sender = self.producer(server)
        daemon = self.make_daemon(server, model=self.make_model("slow", hidden=384, heads=6, layers=6))
        sender.submit_many([f"plain text {number}" for number in range(50)])
        inputs = json.dumps([f"a{number}" for number in range(256)])
        bulk = [sender.submit_fields({"inputs": inputs, "ttl": 60}) for _ in range(30 if SANITIZED else 150)]
        daemon.start().wait_ready(client)
        self.wait_finished(sender, bulk)
        self.assertEqual(sender.reply(bulk[-1])["count"], 256)
        if not SANITIZED:
            self.assertLess(daemon.peak_bytes(), 160 << 20)

    def test_texts_of_8192_tokens(self):
        """One head's scores for such a text are 256 MB, which no thread holds at once; and short texts that arrive
        later do not wait for all long ones."""
        server = self.start_redis(aof=None)
        client = server.client()
        sender = self.producer(server)
        model = self.make_model("long", positions=8192, max_tokens=8192, hidden=128, heads=2, layers=2)
        daemon = self.start_daemon(server, model=model)
        self.wait_finished(sender, [sender.submit("warm " * 100)])
        before = daemon.peak_bytes()
        long = sender.submit_many(["the " * 9000] * 6)
        self.wait_until(lambda: self.pending(client) > 0, "the first long text to be read")
        short = sender.submit_many([f"short text {number}" for number in range(20)])

        def done_at(request):
            return sender.reply(request)["done_at"]

        self.wait_finished(sender, short + long)
        self.assertLess(max(map(done_at, short)), max(map(done_at, long)), "all long texts went before the short ones")
        self.assertEqual({sender.reply(request)["tokens"] for request in long}, {8192})
        if not SANITIZED:
            self.assertLess(daemon.peak_bytes() - before, 100 << 20)

    def test_weights_of_16_bits_stay_so(self):
        """A model with the width and vocabulary of multilingual-e5-small and three layers: 206 MB, of which word
        embeddings are 192; f32 would need as much again."""
        server = self.start_redis(aof=None)
        for dtype, precision in (("BF16", "bf16"), ("F16", "f32")):
            directory = self.make_model(dtype, hidden=384, heads=12, layers=3, intermediate=1536, positions=512)
            size = enlarge(directory, dtype)
            daemon = self.start_daemon(server, "--precision", precision, model=directory, queue=precision)
            sender = self.producer(server, queue=precision)
            self.wait_finished(sender, sender.submit_many([f"w{i} w7 and others" for i in range(64)]))
            if not SANITIZED:
                self.assertLess(daemon.peak_bytes() - size, 150 << 20)
            daemon.stop()

    def test_file_descriptors_after_reconnects(self):
        server = self.start_redis()
        daemon = self.start_daemon(server)
        count = lambda: len(os.listdir(f"/proc/{daemon.pid}/fd"))
        sender = self.producer(server)
        sender.submit("hello")
        self.wait_finished(sender)
        before = count()
        for _ in range(8):
            server.client().client_kill_filter(_type="normal", skipme=True)
            request = sender.submit("hello again")
            self.wait_finished(sender, [request])
        self.wait_until(lambda: count() <= before, lambda: f"{before} descriptors, there are {count()}")

"""A case for requests with every field of the protocol: plain XADDs to any class, and an engine that can be held up on
demand.

While the gate is shut, a batch that contains the word HOLD does not end, so that requests sent meanwhile certainly find
the engine busy."""

import json

from case import RedisCase
from vectors import decode_f32

HOLD = "kernel"  # the word that holds the engine up; no other text of these tests has it
FAIL = "music"   # the word that makes a pass fail, where a test asks for it
STREAM = {"high": "requests:high", "normal": "requests", "low": "requests:low"}


class FeatureCase(RedisCase):
    backoff = ("--backoff-ms", "20", "--backoff-cap-ms", "60")

    def serve(self, *flags, faults=(), threads=1):
        served = self.make_faulty(self.server, "--threads", threads, *self.backoff, *flags, faults=[f"held:{{{HOLD}}}", *faults])
        return served.start().wait_ready(self.client)

    def key(self, name):
        return f"sluice:{{{self.queue}}}:{name}"

    def add(self, klass="normal", **fields):
        """One XADD; returns the request's name."""
        entry = self.client.xadd(self.key(STREAM[klass]), fields).decode()
        return entry if klass == "normal" else f"{klass}:{entry}"

    def add_many(self, requests):
        """One XADD for each (class, fields), all at once, so that they arrive while the engine is held up even on a slow machine."""
        pipe = self.client.pipeline()
        for klass, fields in requests:
            pipe.xadd(self.key(STREAM[klass]), fields)
        entries = [entry.decode() for entry in pipe.execute()]
        return [entry if klass == "normal" else f"{klass}:{entry}" for (klass, _), entry in zip(requests, entries)]

    def reply(self, id):
        """Its fields as bytes, and the members of its `info` by name."""
        fields = {name.decode(): value for name, value in self.client.hgetall(self.key(f"reply:{id}")).items()}
        info = json.loads(fields.pop("info", b"{}"))
        return {**fields, **info}

    def wait_reply(self, id, timeout=60):
        """The terminal reply."""
        def terminal():
            reply = self.reply(id)
            return reply if reply.get("status") in (b"done", b"error", b"cancelled") else None
        return self.wait_until(terminal, lambda: f"a reply for {id}; now {self.reply(id)}", timeout=timeout)

    def vectors(self, reply):
        """The vectors in a reply as f32 bytes."""
        self.assertEqual(reply.get("status"), b"done", reply)
        data = reply["embedding"]
        if reply["encoding"] == "json" and "count" in reply:
            return [decode_f32("json", json.dumps(row)) for row in json.loads(data)]
        data = decode_f32(reply["encoding"], data)
        size = 4 * reply["dim"]
        return [data[at:at + size] for at in range(0, len(data), size)]

    def assert_vector(self, reply, text, reference=None):
        self.assertEqual(self.vectors(reply), [(reference or self.reference())(text)], text)

    def pause(self):
        self.client.set(self.key("paused"), "1")
        self.wait_paused(self.client)

    def hold(self):
        """Keeps the engine busy from now on, until open_gate()."""
        self.shut_gate()
        self.add("high", id="hold", text=f"{HOLD} it", encoding="f32")
        self.wait_until(lambda: self.fired("held") > 0, "the engine to be held up")
        return "hold"

    def wait_order(self, count):
        """The names of the first `count` requests in the results stream `order`: the order in which they ended."""
        self.wait_until(lambda: self.client.xlen(self.key("results:order")) >= count, f"{count} to end")
        return [fields[b"entry"].decode() for _, fields in self.client.xrange(self.key("results:order"), count=count)]

    def pending_names(self):
        """The ids that workers hold, in all classes."""
        found = set()
        for klass, stream in STREAM.items():
            for entry in self.client.xpending_range(self.key(stream), "sluice", "-", "+", 100000):
                id = entry["message_id"].decode()
                found.add(id if klass == "normal" else f"{klass}:{id}")
        return found

    def wait_held(self, name):
        return self.wait_until(lambda: name in self.pending_names(), f"{name} to be in a worker's hands")

    def wait_empty(self):
        """Waits until there is no unfinished work anywhere."""
        def empty():
            return not any(self.client.xlen(self.key(stream)) for stream in STREAM.values()) \
                and not self.client.exists(self.key("later"), self.key("later:data"), self.key("trouble"))
        self.wait_until(empty, lambda: f"an empty queue; keys {sorted(self.client.keys())[:20]}")
        self.assertEqual(self.pending_names(), set())

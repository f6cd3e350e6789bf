"""Queues that write texts."""

import json
import urllib.request

from case import RedisCase, SANITIZED
from language_model import LanguageModels

LONG = 60000  # tokens of a text that takes many seconds
SOME = 1000 if SANITIZED else 3000  # and of one that takes seconds


class GenerateCase(LanguageModels, RedisCase):
    def send(self, expected="done", **fields):
        return self.sender.submit_fields({"task": "generate", **fields}, expected=expected)

    def reply(self, request):
        """Its fields as text, and the members of its `info`."""
        self.wait_finished(self.sender, [request])
        return self.fields(request)

    def fields(self, request):
        hash = self.client.hgetall(f"sluice:{{{self.queue}}}:reply:{request.id}")
        fields = {name.decode(): value.decode() for name, value in hash.items()}
        info = json.loads(fields.pop("info", "{}"))
        return {**fields, **info}

    def assert_like(self, reply, line):
        wanted = {"status": "done", **{key: value for key, value in line.items() if key != "index"}}
        self.assertEqual({key: reply.get(key) for key in wanted}, wanted, reply)

    def wait_running(self, count=1):
        self.wait_until(lambda: self.pending(self.client) >= count, "the texts to be begun")

    def assert_nothing_left(self):
        for level in ("", ":high", ":low"):
            self.wait_until(lambda: self.client.xlen(f"sluice:{{{self.queue}}}:requests{level}") == 0, "the streams to be empty")
        self.assertEqual(self.pending(self.client), 0)

    def metrics(self, port):
        """The values of the queue that have no other label."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines()]
        mine = '{queue="test"}'
        return {name.removeprefix("sluice_").removesuffix(mine): float(value) for name, value in lines if name.endswith(mine)}

    # --- Streams of tokens ---

    def entries(self, stream, request=None, client=None):
        """The fields of a stream's entries, or of those of a request."""
        found = (client or self.client).xrange(f"sluice:{{{self.queue}}}:tokens:{stream}")
        fields = [{name.decode(): value.decode() for name, value in entry.items()} for _, entry in found]
        return [entry for entry in fields if request is None or entry["id"] == request.id]

    def wait_tokens(self, stream, request, count=1, client=None):
        """Waits until so many tokens of a request were sent."""
        self.wait_until(lambda: sum(int(entry.get("tokens", 0)) for entry in self.entries(stream, request, client)) >= count,
                        f"{count} tokens of {request.id}", timeout=60)

    def assert_streamed(self, stream, request, client=None):
        """Asserts that each index was sent once, and one end after them, which says what the reply says. Returns the text."""
        self.wait_until(lambda: any("status" in entry for entry in self.entries(stream, request, client)), f"the end of {request.id}")
        *tokens, end = self.entries(stream, request, client)
        reply = self.fields(request)
        expected = 0
        for entry in tokens:
            self.assertEqual(int(entry["index"]), expected, (request.id, tokens))
            self.assertGreater(int(entry["tokens"]), 0)
            expected += int(entry["tokens"])
        text = "".join(entry["text"] for entry in tokens)
        if reply["status"] == "done":
            self.assertEqual((text, expected), (reply.pop("text"), reply["completion_tokens"]))
        self.assertEqual(end.pop("entry"), reply["entry"])
        info = json.loads(end.pop("info"))
        self.assertEqual({**end, **info}, {"id": request.id, **reply})
        self.assertFalse((client or self.client).exists(f"sluice:{{{self.queue}}}:sent:{reply['entry']}"))
        return text

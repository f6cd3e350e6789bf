"""A producer that keeps a journal of its requests: apart from Redis, the checker's only source.

A producer whose XADD got no answer cannot know whether the entry exists. It says so in the journal and submits the same id
again, as the protocol recommends."""

import json
import threading
import time

import redis

from background import Background


def opened(reply):
    """A reply as Redis has it, {b"status": b"done", ...}, and beside its fields the members of `info`: {"entry": "1-1", ...}."""
    return {**reply, **json.loads(reply.get(b"info", b"{}"))}


def ids_used_up(error):
    """Returns whether an XADD was refused because somebody has used the last id of the stream, which workers mend."""
    return "last possible ID" in str(error)


class Request:
    """One journal line: a producer's request under one id, from its own view."""

    def __init__(self, id, text, fields):
        self.id = id            # names the reply; the request's name where the producer gave none
        self.text = text        # str; a list of them for `inputs`; None for a request that is wrong on purpose
        self.fields = fields    # as sent
        self.entries = []       # the names of the entries that Redis confirmed, with high: or low: before them
        self.uncertain = 0      # XADDs without an answer
        self.expected = "done"  # or the error code that is the right answer; a set if chance decides
        self.ahead = False      # an entry's id is in the future, because Redis made it after one that somebody had made up
        self.texts = {}         # name -> the text of that entry, if one id was submitted with different texts

    @property
    def outcomes(self):
        return self.expected if isinstance(self.expected, (set, frozenset)) else {self.expected}

    @property
    def encoding(self):
        value = self.fields.get("encoding", "json")
        return value.decode() if isinstance(value, bytes) else value


class Journal:
    def __init__(self):
        self.requests = {}  # id -> Request
        self.kills = []     # worker names that the test has killed with -9
        self.faults = {}    # kind -> how often it fired
        self._lock = threading.Lock()

    def add(self, request):
        with self._lock:
            assert request.id not in self.requests, f"the test used the id {request.id} twice"
            self.requests[request.id] = request
        return request

    def fault(self, kind, count=1):
        with self._lock:
            self.faults[kind] = self.faults.get(kind, 0) + count


class Producer:
    def __init__(self, server, queue, journal=None):
        self.server = server
        self.queue = queue
        self.journal = journal or Journal()
        self.client = server.client()
        self.stream = self.stream_of("")

    def stream_of(self, level):
        """The stream of a class: "high", "" or "low"."""
        return f"sluice:{{{self.queue}}}:requests" + (f":{level}" if level else "")

    def key(self, name):
        return f"sluice:{{{self.queue}}}:{name}"

    def submit(self, text, expected="done", **fields):
        """One XADD of a valid text."""
        return self.submit_fields({"text": text, **fields}, text, expected)

    def submit_fields(self, pairs, text=None, expected="done", named=True):
        """One XADD of (field, value) pairs as they are: doubled, wrong, too many. `named`: whether the reply can be found
        under an `id` among them."""
        pairs = list(pairs.items()) if isinstance(pairs, dict) else list(pairs)
        words = [word for pair in pairs for word in pair]
        entry = self.client.execute_command("XADD", self.stream, "*", *words).decode()
        fields = dict(pairs)
        request = Request(fields["id"] if named and "id" in fields else entry, text, fields)
        request.entries.append(entry)
        request.expected = expected
        return self.journal.add(request)

    def submit_many(self, texts, together=False, **fields):
        """One pipeline; ids are the entry ids. `together`: one transaction, so that nobody reads only some of them."""
        pipe = self.client.pipeline(transaction=together)
        for text in texts:
            pipe.xadd(self.stream, {"text": text, **fields})
        made = []
        for text, entry in zip(texts, pipe.execute()):
            request = Request(entry.decode(), text, {"text": text, **fields})
            request.entries.append(entry.decode())
            made.append(self.journal.add(request))
        return made

    def submit_stubbornly(self, id, text, **fields):
        """Submits under `id` again and again until Redis confirms it; for runs in which Redis is being killed."""
        return self.push(self.journal.add(Request(id, text, {"text": text, "id": id, **fields})))

    def push(self, request, level=""):
        """XADDs a request of the journal to a class until Redis confirms one, and puts the confirmed name into the journal."""
        entry = self._add(level, request.fields, request)
        request.entries.append(f"{level}:{entry}" if level else entry)
        request.ahead = request.ahead or int(entry.split("-")[0]) > (time.time() + 1) * 1000
        return request

    def cancel(self, request, level=""):
        """Cancels a request's last entry; goes on until Redis confirms it."""
        return self._add(level, {"cancel": request.entries[-1]})

    def _add(self, level, fields, request=None):
        """Repeats an XADD until Redis confirms it; `request` counts those without an answer."""
        while True:
            try:
                return self.client.xadd(self.stream_of(level), fields).decode()
            except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
                if request:
                    request.uncertain += 1
            except redis.ResponseError as error:
                if not ids_used_up(error):
                    raise
            threading.Event().wait(0.02)

    def reply(self, request):
        id = request.id if isinstance(request, Request) else request
        return opened(self.client.hgetall(self.key(f"reply:{id}")))

    def finished(self, requests):
        """True when every request has a terminal reply."""
        pipe = self.client.pipeline(transaction=False)
        for request in requests:
            pipe.hget(self.key(f"reply:{request.id}"), "status")
        return all(status in (b"done", b"error", b"cancelled") for status in pipe.execute())

    def come_due(self):
        """Makes all parked requests due now. One with a delay of its own is parked again."""
        names = self.client.zrange(self.key("later"), 0, -1)
        if names:
            self.client.zadd(self.key("later"), dict.fromkeys(names, 1), xx=True)

    def unfinished(self):
        """The number of entries on the three streams."""
        return sum(self.client.xlen(self.stream_of(level)) for level in ("high", "", "low"))


class Load(Background):
    """A background thread that keeps a bounded number of requests under way, until stopped: so that a fault finds entries in
    the workers' hands whenever it comes."""

    def __init__(self, server, queue, journal, texts, depth=48, prefix="load", encodings=("f32", "json")):
        super().__init__()
        self.producer = Producer(server, queue, journal)
        self.texts, self.depth, self.prefix, self.encodings = texts, depth, prefix, encodings
        self.count = 0

    def _turn(self):
        try:
            waiting = self.producer.unfinished()
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            self._stop.wait(0.02)
            return
        for _ in range(self.depth - waiting):
            if self._stop.is_set():
                return
            self._submit(f"{self.prefix}-{self.count}", self.texts[self.count % len(self.texts)])
            self.count += 1
        self._stop.wait(0.005)

    def _submit(self, id, text):
        self.producer.submit_stubbornly(id, text, encoding=self.encodings[self.count % len(self.encodings)])

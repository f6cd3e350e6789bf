"""A producer that means harm, and honest ones beside it.

The adversary has a producer's rights (config/acl/producer.acl) and tries at random what they permit, except for the
harm that no rights can prevent (docs/redis.md lists it): trimming a stream, deleting replies, cancelling or overtaking
somebody else's request. As it does none of these, every honest request must be answered."""

import random
import time

import redis

from background import Background
from producer import Request, ids_used_up

LEVELS = ("high", "", "low")
FORBIDDEN = (("FLUSHALL",), ("DEL", "{stream}"), ("XTRIM", "{stream}", "MAXLEN", "0"), ("XGROUP", "DESTROY", "{stream}", "sluice"),
             ("XACK", "{stream}", "sluice", "1-1"), ("XDEL", "{stream}", "1-1"), ("XSETID", "{stream}", "1-1"),
             ("XADD", "{key}dead", "*", "a", "b"), ("XADD", "{key}reply:x", "*", "a", "b"), ("SET", "{key}paused", "1"),
             ("HSET", "{key}meta", "cap_normal", "1"), ("HSET", "{key}trouble", "1-1", "1 3 1-1"), ("SCRIPT", "FLUSH"),
             ("EVAL", "return 1", "0"), ("CONFIG", "SET", "maxmemory", "1"), ("KEYS", "*"), ("CLIENT", "KILL", "TYPE", "normal"))


class Adversary(Background):
    """Takes one action after the other, drawn by the seed. `done` counts them by kind; `huge` is the size of its largest entries."""

    def __init__(self, server, queue, honest, seed=1, huge=24 << 20, pause=0.01):
        super().__init__()
        self.client = server.client(username="sluice-producer", password="pw")
        self.queue, self.honest, self.huge, self.pause = queue, honest, huge, pause
        self.random = random.Random(seed)
        self.done, self.refused, self.allowed = {}, 0, []
        weights = {"junk": 20, "ahead": 4, "far_ahead": 2, "last_id": 1, "huge": 1, "large": 6, "thousand_fields": 4, "forged_name": 10,
                   "forged_fields": 6, "tenant_flood": 3, "nobody_flood": 2, "junk_cancels": 2, "delayed": 4, "results_names": 3,
                   "bad_inputs": 6, "hasty": 4, "control_junk": 3, "control_last_id": 1, "no_trimming": 2, "forbidden": 6, "waits": 1}
        self.actions = [name for name, weight in weights.items() for _ in range(weight)]

    def _turn(self):
        action = self.random.choice(self.actions)
        try:
            getattr(self, "_" + action)()
        except redis.ResponseError as error:  # Redis refuses it: an id that is too small, say
            assert "NOPERM" not in str(error), f"{action}: {error}"
            self.refused += 1
        except (redis.ConnectionError, redis.TimeoutError):
            self._stop.wait(0.05)
        self.done[action] = self.done.get(action, 0) + 1
        self._stop.wait(self.pause)

    def _key(self, name=""):
        return f"sluice:{{{self.queue}}}:{name}"

    def _stream(self):
        level = self.random.choice(LEVELS)
        return self._key("requests") + (f":{level}" if level else "")

    def _add(self, *words, id="*", stream=None):
        return self.client.execute_command("XADD", stream or self._stream(), id, *words)

    def _flood(self, count, words, stream=None):
        stream = stream or self._stream()
        pipe = self.client.pipeline(transaction=False)
        for number in range(count):
            pipe.execute_command("XADD", stream, "*", *words(number))
        pipe.execute(raise_on_error=False)

    def _bytes(self, most):
        return self.random.randbytes(self.random.randint(0, most))

    def _now_ms(self):
        return int(time.time() * 1000)

    def _junk(self):
        names = ("text", "inputs", "id", "encoding", "ttl", "delay", "expires_in", "notify", "dims", "prompt", "tenant", "meta",
                 "cancel", "model", "task", "max_attempts", "_id", "_attempt", "_first_at", "_lost", "x-any", "query")
        words = []
        for _ in range(self.random.randint(1, 6)):
            words += [self.random.choice(names), self._bytes(64) if self.random.random() < 0.7 else str(self.random.randint(-9, 10**20))]
        self._add(*words)

    def _ahead(self):
        self._add("text", "ahead", "expires_in", "500", id=f"{self._now_ms() + self.random.randint(2500, 3600000)}-*")

    def _far_ahead(self):
        self._add("text", "far ahead", "delay", "100", id=f"9999999999999999-{self.random.randint(0, 10**9)}")

    def _last_id(self):
        self._add("text", "last", id="18446744073709551615-18446744073709551615")

    def _huge(self):
        self._add("text", b"a" * self.huge)

    def _large(self):
        self._add("text", b"a " * self.random.randint(1 << 15, 1 << 19))

    def _thousand_fields(self):
        self._add(*[word for number in range(self.random.randint(100, 4000)) for word in (f"x-{number}", "1")])

    def _forged_name(self):
        self._add("_id", self.random.choice(self.honest.names() or ["1-1"]), "_attempt", str(self.random.randint(0, 12)), "text", "forged")

    def _forged_fields(self):
        self._add("_id", f"{self._now_ms()}-0", "_lost", "1", "_first_at", str(self.random.choice((0, 1, 2**63, self._now_ms()))),
                  "text", "forged")

    def _tenant_flood(self):
        self._flood(400, lambda number: ("text", f"flood {number}", "tenant", self.honest.tenant))

    def _nobody_flood(self):
        self._flood(1500, lambda number: ("text", f"flood {number}", "encoding", "f32", "ttl", "5"))

    def _junk_cancels(self):
        self._flood(1000, lambda number: ("cancel", f"{self._now_ms()}-{10**6 + number}"))

    def _delayed(self):
        self._flood(50, lambda number: ("text", "later", "delay", str(30 * 86400 * 1000)))

    def _results_names(self):
        self._flood(30, lambda number: ("text", "told", "notify", f"stream:{self.random.randint(0, 10**9)}"))

    def _bad_inputs(self):
        self._add("inputs", self.random.choice(("[" * 20000, '["a",' * 3000, '["' + "a" * 300000 + '"]', '["\\ud800"]', "[1]", "[]", "nothing",
                                                "[" + ",".join(['"a"'] * 5000) + "]", b'["\xff"]')))

    def _hasty(self):
        self._flood(100, lambda number: ("text", "hasty", "expires_in", "1"))

    def _control_junk(self):
        self._flood(300, lambda number: self.random.choice((("cancel", f"{self._now_ms()}-{10**6 + number}"), ("cancel", "nobody"),
                                                            ("text", "not for this stream"), ("cancel", b"\xff" * 3000))),
                    self._key("control"))

    def _control_last_id(self):
        self._add("cancel", "1-1", id="18446744073709551615-18446744073709551615", stream=self._key("control"))

    def _no_trimming(self):
        """An XADD with the arguments of a trim, which trims nothing."""
        self.client.execute_command("XADD", self._stream(), "MAXLEN", "~", 10**9, "*", "text", "trimmed")

    def _forbidden(self):
        words = [word.format(stream=self._stream(), key=self._key()) for word in self.random.choice(FORBIDDEN)]
        try:
            self.client.execute_command(*words)
            self.allowed.append(words)
        except redis.ResponseError as error:
            if "NOPERM" not in str(error).upper() and "NO PERMISSIONS" not in str(error).upper():
                self.allowed.append([*words, str(error)])

    def _waits(self):
        self.client.execute_command("WAIT", 1, 100)


class Honest(Background):
    """A tenant that sends `rate` plain requests a second to all classes and looks for their replies. `latencies`: seconds from
    the XADD that Redis accepted to when the reply was seen; `refused`: the longest time for which a class has refused XADDs."""

    def __init__(self, producer, texts, tenant="honest", rate=60):
        super().__init__()
        self.producer, self.texts, self.tenant, self.rate = producer, texts, tenant, rate
        self.latencies, self.refused, self.count = [], 0.0, 0
        self.open, self.backlog, self.refused_since = {}, {level: [] for level in LEVELS}, {}
        self.next = time.monotonic()

    def names(self):
        """The names of some of its unanswered requests, for an adversary that forges them."""
        return [request.entries[0] for request, _ in list(self.open.values())[-8:] if request.entries]

    def _turn(self):
        now = time.monotonic()
        if now >= self.next:
            self.next = max(self.next + 1 / self.rate, now - 1)
            self._make()
        try:
            for level in LEVELS:
                self._send(level)
            self.look()
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):  # a request without an answer is sent again
            self._stop.wait(0.05)
        self._stop.wait(0.005)

    def _make(self):
        id, text = f"{self.tenant}-{self.count}", self.texts[self.count % len(self.texts)]
        fields = {"text": text, "id": id, "tenant": self.tenant, "encoding": "f32"}
        self.backlog[LEVELS[self.count % 3]].append(self.producer.journal.add(Request(id, text, fields)))
        self.count += 1

    def _send(self, level):
        """Sends the backlog; a request that Redis refuses, because the ids of the stream are used up, stays for the next time."""
        while self.backlog[level]:
            request = self.backlog[level][0]
            try:
                entry = self.producer.client.xadd(self.producer.stream_of(level), request.fields).decode()
            except redis.ResponseError as error:
                assert ids_used_up(error), error
                since = self.refused_since.setdefault(level, time.monotonic())
                self.refused = max(self.refused, time.monotonic() - since)
                return
            self.refused_since.pop(level, None)
            request.entries.append(f"{level}:{entry}" if level else entry)
            self.open[request.id] = request, time.monotonic()
            self.backlog[level].pop(0)

    def look(self):
        """Looks for the replies to open requests, the oldest first; returns the number still open."""
        some = list(self.open.items())[:500]
        pipe = self.producer.client.pipeline(transaction=False)
        for id, _ in some:
            pipe.hget(self.producer.key(f"reply:{id}"), "status")
        now = time.monotonic()
        for (id, (_, sent)), status in zip(some, pipe.execute()):
            if status in (b"done", b"error", b"cancelled"):
                self.latencies.append(now - sent)
                del self.open[id]
        return len(self.open) + sum(map(len, self.backlog.values()))

    def flush(self):
        """After stop(): sends the requests that Redis had refused, and returns the number not answered."""
        for level in LEVELS:
            self._send(level)
        return self.look()

    def percentile(self, share):
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

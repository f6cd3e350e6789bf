"""The independent checker: did every request end in exactly one right reply, and is nothing left over?

It reads Redis, the append-only history of Redis, and the producer's journal, never a log or a counter of the daemon. Each
violation is one line, and an empty list is the only good answer. It is itself tested against planted violations in
tests/integration/test_checker.py."""

import re

from history import History, name_of, place, removes
from producer import opened
from vectors import decode_f32, encode_like

TERMINAL = (b"done", b"error", b"cancelled")
# Fields are bytes, members of `info` are not.
DONE_FIELDS = (b"status", b"embedding", "entry", "model", "revision", "dim", "encoding", "tokens", "queued_ms", "compute_ms",
               "done_at")
ERROR_FIELDS = (b"status", b"code", b"message", "entry", "retryable", "attempts", "done_at")
CANCELLED_FIELDS = (b"status", "entry", "done_at")
CODES = set("""bad_request bad_utf8 bad_id too_long too_large too_many_inputs wrong_model unknown_task expired queue_full
out_of_memory device_lost timeout non_finite internal poison""".split())
STREAMS = ("requests", "requests:high", "requests:low")
# Keys that live as long as their queue; all others need a TTL.
PERMANENT = set(STREAMS) | {"later", "later:data", "trouble", "dead", "workers", "meta", "stats", "paused", "housekeeper"}
VOLATILE = re.compile(r"(reply|wake|results|alive):.+")
FRESH_NAME = re.compile(r"-1\d{15}$")  # the name that lua/lib/later gives a request whose id was given out twice
CHUNK = 500  # replies read at once


class Checker:
    def __init__(self, server, queue, journal, reference):
        """`reference`: text -> f32 bytes. A server without an append-only file is checked by its final state only."""
        self.server, self.queue, self.journal, self.reference = server, queue, journal, reference
        self.client = server.client()
        self.prefix = f"sluice:{{{queue}}}:"
        self.problems = []

    def violations(self, may_die=(), faults=(), ttl_seconds=7 * 86400, strangers=False):
        """Every broken invariant. `may_die`: ids that are allowed (and then required) to be dead letters.
        `faults`: kinds that must have fired at least once, by the journal's own count. `strangers`: others enqueue as well, so
        only the replies to the journal's requests are judged."""
        history = History(self.server.directory, self.queue) if self.server.aof else None
        requests = self.journal.requests.values()
        if not requests:
            self.problems.append("the journal is empty: nothing was checked")
        if hasattr(self.reference, "learn"):
            self.reference.learn([text for request in requests for text in _texts(request)])
        requests = list(requests)
        for start in range(0, len(requests), CHUNK):
            self._check_replies(requests[start:start + CHUNK], history, ttl_seconds)
        if not strangers:
            self._check_streams()
            self._check_keys()
            self._check_dead(set(may_die))
        if history is not None:
            self._check_history(history)
        for kind in faults:
            if self.journal.faults.get(kind, 0) < 1:
                self.problems.append(f"the fault {kind} never fired")
        return self.problems

    def assert_clean(self, **options):
        problems = self.violations(**options)
        if problems:
            shown = "\n  ".join(problems[:20])
            raise AssertionError(f"{len(problems)} violations in {len(self.journal.requests)} requests:\n  {shown}")

    def _bad(self, request, text):
        self.problems.append(f"{request.id}: {text}")

    # One reply each, complete and right.

    def _check_replies(self, requests, history, ttl_seconds):
        pipe = self.client.pipeline(transaction=False)
        for request in requests:
            pipe.hgetall(f"{self.prefix}reply:{request.id}").pttl(f"{self.prefix}reply:{request.id}")
        answers = pipe.execute()
        for request, reply, ttl in zip(requests, answers[::2], answers[1::2]):
            self._check_reply(request, reply, ttl, history, ttl_seconds)

    def _check_reply(self, request, fields, ttl, history, ttl_seconds):
        if not fields:
            return self._bad(request, "has no reply")
        try:
            reply = opened(fields)
        except ValueError as error:
            return self._bad(request, f"info {fields[b'info']!r} is not JSON: {error}")
        status = reply.get(b"status")
        if status not in TERMINAL:
            return self._bad(request, f"is not finished: status {status!r}")
        if not 0 < ttl <= ttl_seconds * 1000:
            self._bad(request, f"reply has a TTL of {ttl} ms")
        self._check_entry(request, reply)
        if reply.get("id", request.id) != request.id or ("id" in request.fields and request.id == request.fields["id"]) != ("id" in reply):
            self._bad(request, f"reply says id {reply.get('id')!r}")
        if status == b"done":
            self._check_done(request, reply)
        elif status == b"error":
            self._check_error(request, reply, history)
        else:
            self._check_cancelled(request, reply)

    def _check_entry(self, request, reply):
        """The reply is that of the newest entry with this id. A producer goes on until an entry is confirmed, so the newest
        is always one of those, also where earlier ones got no answer."""
        entry = reply.get("entry", "")
        newest = max(request.entries, key=lambda name: _age(name.encode()))
        if request.ahead and (entry in request.entries or FRESH_NAME.search(entry)):
            newest = entry  # the order is that in which they were first seen, and these were sent at once; or the id was in use already
        if entry != newest:
            self._bad(request, f"reply is that of {entry!r}, the newest of {request.entries} is {newest}")

    def _check_cancelled(self, request, reply):
        missing = _missing(reply, CANCELLED_FIELDS)
        if missing:
            self._bad(request, f"cancelled without {', '.join(missing)}")
        if b"embedding" in reply or b"code" in reply:
            self._bad(request, f"is cancelled and says {sorted(map(str, reply))}")
        if "cancelled" not in request.outcomes:
            self._bad(request, "was cancelled")

    def _check_done(self, request, reply):
        missing = _missing(reply, DONE_FIELDS)
        if missing:
            return self._bad(request, f"done without {', '.join(missing)}")
        if "done" not in request.outcomes:
            self._bad(request, f"is done, expected {request.expected}")
        if reply["encoding"] != request.encoding:
            self._bad(request, f"encoded as {reply['encoding']!r}, asked for {request.encoding}")
        for name, kinds, least in (("dim", int, 1), ("tokens", int, 1), ("done_at", int, 1), ("queued_ms", int, 0), ("compute_ms", (int, float), 0)):
            if not isinstance(reply[name], kinds) or reply[name] < least:
                self._bad(request, f"{name} is {reply[name]!r}")
        if request.text is not None:
            self._check_vector(request, reply)

    def _check_vector(self, request, reply):
        asked = request.texts.get(reply["entry"], request.text)
        texts = asked if isinstance(asked, list) else [asked]
        if reply.get("count") != (len(texts) if isinstance(asked, list) else None):
            self._bad(request, f"count is {reply.get('count')!r} for {len(texts)} texts")
        try:
            vector = decode_f32(request.encoding, reply[b"embedding"])
        except (AssertionError, ValueError) as error:
            return self._bad(request, f"embedding cannot be read: {error}")
        expected = b"".join(encode_like(request.encoding, self.reference(text)) for text in texts)
        width = 2 if request.encoding == "f16" else 4
        if len(vector) != width * reply["dim"] * len(texts):
            self._bad(request, f"embedding has {len(vector)} bytes for dim {reply['dim']!r}")
        if vector != expected:
            self._bad(request, "vector differs from the local one")

    def _check_error(self, request, reply, history):
        missing = _missing(reply, ERROR_FIELDS)
        if missing:
            return self._bad(request, f"error without {', '.join(missing)}")
        code = reply[b"code"].decode()
        if code not in CODES:
            self._bad(request, f"unknown code {code!r}")
        if code == "poison" and "done" in request.outcomes and self._lonely_kills(reply, history) >= 3:
            return  # three kills inside its lonely runs: the daemon could not know better
        if code not in request.outcomes:
            self._bad(request, f"error {code} ({reply[b'message'].decode('utf-8', 'replace')!r}), expected {request.expected}")

    def _lonely_kills(self, reply, history):
        """The number of our kills that can have hit the entry while it ran alone: distinct killed workers to which it was delivered."""
        if history is None:
            return 0
        name = reply["entry"]
        holders = [who for run in [place(name), *history.retries.get(name, [])] for who in history.deliveries.get(run, [])]
        return len(set(holders) & set(self.journal.kills))

    # Nothing left over.

    def _check_streams(self):
        for stream in STREAMS:
            key = self.prefix + stream
            if not self.client.exists(key):
                continue
            if self.client.xlen(key) != 0:
                self.problems.append(f"{stream}: XLEN is {self.client.xlen(key)}")
            for group in self.client.xinfo_groups(key):
                if group["pending"] != 0:
                    self.problems.append(f"{stream}: {group['pending']} pending in the group {group['name'].decode()}")

    def _check_keys(self):
        for raw in self.client.scan_iter(count=1000):
            key = raw.decode("utf-8", "replace")
            if not key.startswith(self.prefix):
                if not key.startswith("sluice:{"):
                    self.problems.append(f"stray key {key!r}")
                continue
            name = key[len(self.prefix):]
            if name in PERMANENT:
                continue
            if not VOLATILE.fullmatch(name):
                self.problems.append(f"undocumented key {name!r}")
            elif self.client.pttl(key) == -1:
                self.problems.append(f"key without TTL {name!r}")
        for name in ("later", "later:data", "trouble"):
            key = self.prefix + name
            kind = self.client.type(key)
            left = self.client.zrange(key, 0, 4) if kind == b"zset" else self.client.hkeys(key)[:5] if kind == b"hash" else []
            if left:
                self.problems.append(f"{name} still holds {left}")

    def _check_dead(self, may_die):
        letters = [fields for _, fields in self.client.xrange(self.prefix + "dead")]
        claimed = []
        for request in self.journal.requests.values():
            own = [letter for letter in letters if self._is_about(letter, request)]
            claimed += own
            if len(own) > 1:
                self._bad(request, f"has {len(own)} dead letters")
            if request.id in may_die:
                self._check_letter(request, own)
            elif own and self.client.hget(f"{self.prefix}reply:{request.id}", "code") != b"poison":
                self._bad(request, "is healthy and in the dead letters")
        strangers = [letter for letter in letters if letter not in claimed]
        if strangers:
            self.problems.append(f"dead letters nobody sent: {strangers[:3]}")

    def _is_about(self, letter, request):
        """In a letter `_entry` is the request's original name, and `id` the producer's own, if there was one."""
        entry, id = letter.get(b"_entry", b"").decode(), letter.get(b"id", b"").decode("utf-8", "replace")
        return entry in request.entries or bool(id) and id == request.id

    def _check_letter(self, request, own):
        if not own:
            return self._bad(request, "should be in the dead letters and is not")
        for name, value in request.fields.items():
            expected = value if isinstance(value, bytes) else str(value).encode()
            if own[0].get(name.encode()) != expected:
                self._bad(request, f"dead letter has lost the field {name}")

    # Violations that the final state cannot show.

    def _check_history(self, history):
        for request in self.journal.requests.values():
            self._check_written_once(request, history)
        for entry in history.added:
            if entry[0] in STREAMS:
                self._check_removal(entry, history)
        for stream, entry, owner, robber in history.robbed:
            self.problems.append(f"entry {name_of(stream, entry)}: taken from {owner}, whose lease had not ended, by {robber}")

    def _check_written_once(self, request, history):
        """Each submission has at most one terminal reply, all replies are the same, and none came before its request."""
        writes = history.replies.get(request.id, [])
        allowed = max(1, len(history.submissions.get(request.id, [])))
        if len(writes) > allowed:
            self._bad(request, f"{len(writes)} terminal replies were written for {allowed} submission(s)")
        entries = [fields.get("entry", "").encode() for _, fields in writes]
        if len(set(entries)) != len(entries):
            self._bad(request, f"one submission was answered more than once: {entries}")
        answers = {(fields[b"status"], fields.get(b"embedding"), fields.get(b"code")) for _, fields in writes}
        if len(answers) > 1 and len(request.outcomes) == 1 and not request.texts:
            self._bad(request, "two different replies were written")
        if [_age(entry) for entry in entries] != sorted(_age(entry) for entry in entries):
            self._bad(request, f"an older submission has overwritten a newer one: {entries}")
        for _, fields in writes:
            attempts, name = fields.get("attempts", 1), fields.get("entry", "")
            runs = [place(name), *history.retries.get(name, [])]
            deliveries = sum(len(history.deliveries.get(run, [])) for run in runs)
            if attempts > max(1, deliveries):
                self._bad(request, f"claims {attempts} attempts in {deliveries} deliveries")

    def _check_removal(self, entry, history):
        """The entry was acknowledged and removed once, in the same step as its reply or deferral, and after it."""
        name = f"entry {name_of(*entry)}"
        removals, acks = history.removed.get(entry, []), history.acked.get(entry, [])
        if len(removals) != 1:
            self.problems.append(f"{name}: removed {len(removals)} times")
            return
        if len(acks) > 1:
            self.problems.append(f"{name}: acknowledged {len(acks)} times")
        if acks and acks[0] != removals[0]:
            self.problems.append(f"{name}: acknowledged and removed in two steps")
        self._check_settled_together(name, entry, history)

    def _check_settled_together(self, name, entry, history):
        at = history.removed[entry][0]
        step = history.steps[at]
        removal = next(i for i, words in enumerate(step) if removes(words, entry[1]))
        before = step[:removal]
        fields = history.added[entry]
        if b"cancel" in fields:  # it has no reply of its own, unless it is wrong
            return
        names = {fields.get(b"_id", b"").decode("utf-8", "replace"), name_of(*entry)}
        written = {words[1].partition(b":reply:")[2].decode("utf-8", "replace") for words in before if words[0].upper() in (b"HSET", b"HMSET")}
        answered = any(when == at and reply.get("entry") in names for key in written for when, reply in history.replies.get(key, []))
        deferred = any(words[0].upper() == b"ZADD" and words[1].endswith(b":later") for words in before)
        # A newer request with the same id had its reply already: the older one leaves without one.
        id = fields.get(b"id", b"").decode("utf-8", "replace")
        own = _age(fields.get(b"_id") or name_of(*entry).encode())
        superseded = any(when <= at and _age(reply.get("entry", "").encode()) > own
                         for when, reply in history.replies.get(id, []))
        if not (answered or deferred or superseded):
            self.problems.append(f"{name}: removed without its reply in the same step")


def _missing(reply, names):
    return [name.decode() if isinstance(name, bytes) else name for name in names if name not in reply]


def _age(name):
    match = re.fullmatch(rb"(high:|low:)?(\d+)-(\d+)", name or b"")
    return (int(match[2]), int(match[3]), (b"high:", None, b"low:").index(match[1])) if match else (0, 0, 0)


def _texts(request):
    for asked in (request.text, *request.texts.values()):
        yield from asked if isinstance(asked, list) else [] if asked is None else [asked]

"""The checker itself: a correct state passes, and each planted violation is found. No daemon runs here; a few lines of
Python replace it and do what a correct daemon would do, or what a broken one would."""
# ctest-once

import json
import struct

from case import RedisCase
from checker import Checker

QUEUE = "test"
PREFIX = f"sluice:{{{QUEUE}}}:"


def vector_of(text):
    """Replaces the model: four floats that depend on the text."""
    return struct.pack("<4f", *(float((hash_of(text) >> shift) % 251) / 7 for shift in (0, 8, 16, 24)))


def hash_of(text):
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return value


class FakeWorker:
    """A worker that reads entries, and settles them in one transaction, as lua/settle does."""

    def __init__(self, client):
        self.client, self.stream = client, PREFIX + "requests"
        client.xgroup_create(self.stream, "sluice", id="0", mkstream=True)

    def read(self):
        answer = self.client.xreadgroup("sluice", "worker-1", {self.stream: ">"}, count=100)
        return answer[0][1] if answer else []

    def reply_fields(self, entry, fields):
        text = fields[b"text"].decode()
        named = {"id": fields[b"id"].decode()} if b"id" in fields else {}
        return {"status": "done", **named, "entry": entry.decode(), "model": "tiny", "revision": "0123",
                "dim": 4, "encoding": "f32", "embedding": vector_of(text), "tokens": 3, "queued_ms": 0, "compute_ms": 1,
                "done_at": 1795252518106}

    def settle(self, entry, fields, reply=None, ttl=3600, ack=True, remove=True, together=True, write=True):
        """`reply`: its fields, and the members of its `info`, which the others are. `remove`: by XDEL, or all before an id."""
        reply = reply or self.reply_fields(entry, fields)
        of_hash = {name: reply[name] for name in reply if name in ("status", "embedding", "code", "message")}
        of_hash["info"] = json.dumps({name: reply[name] for name in reply if name not in of_hash})
        key = PREFIX + "reply:" + fields.get(b"id", entry).decode()
        pipe = self.client.pipeline(transaction=together)
        if write:
            pipe.delete(key)
            pipe.hset(key, mapping=of_hash)
            if ttl:
                pipe.expire(key, ttl)
        if not together:
            pipe.execute()
        if remove is True:
            pipe.xdel(self.stream, entry)
        elif remove:
            pipe.xtrim(self.stream, minid=remove, approximate=False)
        if ack:
            pipe.xack(self.stream, "sluice", entry)
        pipe.execute()


class CheckerFinds(RedisCase):
    def setUp(self):
        super().setUp()
        self.worker = FakeWorker(self.client)
        self.requests = self.sender.submit_many([f"text {n}" for n in range(5)], encoding="f32")
        self.requests.append(self.sender.submit("named", id="name-1", encoding="f32"))
        self.entries = self.worker.read()

    def settle_all(self, but=()):
        for index, (entry, fields) in enumerate(self.entries):
            if index not in but:
                self.worker.settle(entry, fields)

    def found(self, **options):
        return Checker(self.server, QUEUE, self.journal, vector_of).violations(**options)

    def assert_found(self, words, **options):
        problems = self.found(**options)
        self.assertTrue(any(words in problem for problem in problems), f"{words!r} not in {problems}")

    def settle_with(self, **changes):
        """Settles all entries, the first one with these reply fields changed (None: left out)."""
        self.settle_all(but=(0,))
        entry, fields = self.entries[0]
        reply = {**self.worker.reply_fields(entry, fields), **changes}
        self.worker.settle(entry, fields, {key: value for key, value in reply.items() if value is not None})

    def test_right_state_passes(self):
        self.settle_all()
        self.assertEqual(self.found(), [])

    def test_empty_journal(self):
        self.journal.requests.clear()
        self.assert_found("journal is empty")

    def test_missing_reply(self):
        self.settle_all(but=(2,))
        self.worker.settle(*self.entries[2], write=False)
        self.assert_found("has no reply")
        self.assert_found("removed without its reply")

    def test_unfinished_reply(self):
        self.settle_with(status="queued")
        self.assert_found("is not finished")

    def test_missing_field(self):
        self.settle_with(revision=None)
        self.assert_found("done without revision")

    def test_wrong_vector(self):
        self.settle_with(embedding=vector_of("another text"))
        self.assert_found("vector differs")

    def test_one_bit_of_a_vector(self):
        vector = bytearray(vector_of(self.requests[0].text))
        vector[0] ^= 1
        self.settle_with(embedding=bytes(vector))
        self.assert_found("vector differs")

    def test_short_vector(self):
        self.settle_with(embedding=vector_of(self.requests[0].text)[:12])
        self.assert_found("12 bytes for dim")

    def test_wrong_encoding(self):
        self.settle_with(encoding="json")
        self.assert_found("encoded as")

    def test_wrong_entry(self):
        self.settle_with(entry="1-1")
        self.assert_found("reply is that of '1-1'")

    def test_reply_of_the_older_one(self):
        """The same id twice: the newest text's vector is the answer, in whatever order the replies were written."""
        named = self.requests[-1]
        again = self.client.xadd(self.sender.stream, {"text": "newer", "id": named.id, "encoding": "f32"}).decode()
        named.texts = {named.entries[0]: "named", again: "newer"}
        named.entries.append(again)
        self.settle_all(but=(len(self.entries) - 1,))
        newer = self.worker.read()[0]
        self.worker.settle(*newer)
        self.assert_found("removed 0 times")
        self.worker.settle(*self.entries[-1])
        self.assert_found(f"reply is that of '{named.entries[0]}'")
        self.assert_found("an older submission has overwritten a newer one")

    def test_vector_of_the_older_text(self):
        named = self.requests[-1]
        named.texts = {named.entries[0]: "another"}
        self.settle_all()
        self.assert_found("vector differs")

    def test_count_without_inputs(self):
        self.settle_with(count=1)
        self.assert_found("count is 1 for 1 texts")

    def test_inputs(self):
        """Several texts: the reply has all vectors in order, and their number."""
        first = self.requests[0]
        first.text = ["text 0", "text 1"]
        both = vector_of("text 0") + vector_of("text 1")
        self.settle_with(count=2, embedding=both)
        self.assertEqual(self.found(), [])
        self.client.hset(PREFIX + "reply:" + first.id, "embedding", both[16:] + both[:16])
        self.assert_found("vector differs")

    def test_cancelled_unasked(self):
        self.settle_with(status="cancelled", embedding=None)
        self.assert_found("was cancelled")

    def test_cancelled_with_a_vector(self):
        self.requests[0].expected = {"done", "cancelled"}
        self.settle_with(status="cancelled")
        self.assert_found("is cancelled and says")

    def test_error_instead_of_vector(self):
        self.settle_with(status="error", code="internal", message="m", retryable=False, attempts=1)
        self.assert_found("error internal")

    def test_error_without_message(self):
        self.settle_with(status="error", code="internal", retryable=False, attempts=1)
        self.assert_found("error without message")

    def test_error_without_id_or_with_another(self):
        error = {"status": "error", "code": "internal", "message": "m", "retryable": False, "attempts": 1}
        self.settle_all(but=(5,))
        for id in (None, "order-43"):
            reply = {**self.worker.reply_fields(*self.entries[5]), **error, "id": id}
            self.worker.settle(*self.entries[5], {name: value for name, value in reply.items() if value is not None})
            self.assert_found(f"reply says id {id!r}")

    def test_an_id_that_nobody_gave(self):
        self.settle_with(id="order-43")
        self.assert_found("reply says id 'order-43'")

    def test_info_that_is_no_json(self):
        self.settle_all()
        self.client.hset(f"{PREFIX}reply:{self.requests[0].id}", "info", '{"entry":"1')
        self.assert_found("is not JSON")

    def test_unearned_poison(self):
        self.settle_with(status="error", code="poison", message="m", retryable=False, attempts=1)
        self.assert_found("error poison")

    def test_earned_poison_passes(self):
        for worker in ("killed-1", "killed-2", "killed-3"):
            self.client.xclaim(PREFIX + "requests", "sluice", worker, 0, [self.entries[0][0]])
            self.journal.kills.append(worker)
        self.settle_with(status="error", code="poison", message="m", retryable=False, attempts=1)
        self.assertEqual(self.found(), [])

    def test_reply_without_ttl(self):
        self.settle_all(but=(0,))
        self.worker.settle(*self.entries[0], ttl=None)
        self.assert_found("TTL of -1")

    def lend(self, *workers):
        for worker in workers:
            self.client.set(PREFIX + "alive:" + worker, "token", px=60_000)

    def claim(self, worker):
        self.client.xclaim(PREFIX + "requests", "sluice", worker, 0, [self.entries[0][0]])

    def test_taken_from_a_living_worker(self):
        self.lend("worker-1", "worker-2")
        self.claim("worker-2")
        self.settle_all()
        self.assert_found(f"{self.requests[0].id}: taken from worker-1, whose lease had not ended, by worker-2")

    def test_taken_from_a_dead_worker_or_given_back(self):
        self.lend("worker-2", "worker-3")
        self.claim("worker-2")  # the first one never had a lease
        self.claim("released")
        self.claim("worker-3")
        self.client.pexpire(PREFIX + "alive:worker-3", 1)
        self.wait_until(lambda: not self.client.exists(PREFIX + "alive:worker-3"), "the lease to end")
        self.claim("worker-2")
        self.settle_all()
        self.assertEqual(self.found(), [])

    def test_entry_left_in_stream(self):
        self.settle_all(but=(0,))
        self.worker.settle(*self.entries[0], remove=False)
        self.assert_found("XLEN is 1")
        self.assert_found("removed 0 times")

    def test_entry_left_pending(self):
        self.settle_all(but=(0,))
        self.worker.settle(*self.entries[0], ack=False)
        self.assert_found("1 pending")

    def test_removed_before_the_reply(self):
        self.settle_all(but=(0,))
        entry, fields = self.entries[0]
        self.worker.settle(entry, fields, write=False)
        self.worker.settle(entry, fields, ack=False, remove=False)
        self.assert_found("removed without its reply in the same step")

    def test_reply_and_removal_apart(self):
        self.settle_all(but=(0,))
        self.worker.settle(*self.entries[0], together=False)
        self.assert_found("removed without its reply in the same step")

    def test_a_trim_removes_what_is_before_an_id(self):
        """It is held against each of the entries: the second one has no reply."""
        self.settle_all(but=(0, 1))
        self.worker.settle(*self.entries[1], write=False, remove=False)
        self.worker.settle(*self.entries[0], remove=self.entries[2][0])
        name = self.entries[1][0].decode()
        self.assertEqual([problem for problem in self.found() if "removed" in problem], [
            f"entry {name}: acknowledged and removed in two steps", f"entry {name}: removed without its reply in the same step"])

    def test_same_reply_twice(self):
        self.settle_all()
        self.worker.settle(*self.entries[0], ack=False, remove=False)
        self.assert_found("2 terminal replies")

    def test_two_different_replies(self):
        self.settle_all(but=(0,))
        entry, fields = self.entries[0]
        other = {**self.worker.reply_fields(entry, fields), "embedding": vector_of("wrong at first")}
        self.worker.settle(entry, fields, other, ack=False, remove=False)
        self.worker.settle(entry, fields)
        self.assert_found("two different replies")

    def test_two_different_replies_to_one_named_request(self):
        self.settle_all(but=(5,))
        entry, fields = self.entries[5]
        failed = {"status": "error", "id": "name-1", "entry": entry.decode(), "code": "internal", "message": "m", "retryable": True, "attempts": 1,
                  "done_at": 1}
        self.worker.settle(entry, fields, failed, ack=False, remove=False)
        self.worker.settle(entry, fields)
        self.assert_found("name-1: two different replies")

    def test_healthy_in_dead_letters(self):
        self.settle_all()
        self.client.xadd(PREFIX + "dead", {"_entry": self.entries[0][0], "_code": "internal", "text": "text 0"})
        self.assert_found("healthy and in the dead letters")

    def test_stranger_in_dead_letters(self):
        self.settle_all()
        self.client.xadd(PREFIX + "dead", {"_entry": "7-7", "text": "?"})
        self.assert_found("dead letters nobody sent")

    def test_required_dead_letter_missing(self):
        self.settle_all()
        self.assert_found("should be in the dead letters", may_die=[self.requests[0].id])

    def test_dead_letter_without_its_text(self):
        self.settle_all()
        self.client.xadd(PREFIX + "dead", {"_entry": self.entries[0][0], "_code": "internal"})
        self.assert_found("lost the field text", may_die=[self.requests[0].id])

    def test_two_dead_letters(self):
        self.settle_all()
        for _ in range(2):
            self.client.xadd(PREFIX + "dead", {"_entry": self.entries[0][0], **{k.decode(): v for k, v in self.entries[0][1].items()}})
        self.assert_found("has 2 dead letters", may_die=[self.requests[0].id])

    def test_too_many_attempts(self):
        self.settle_with(attempts=3)
        self.assert_found("claims 3 attempts in 1 deliveries")

    def test_key_without_ttl(self):
        self.settle_all()
        self.client.rpush(PREFIX + "wake:someone", "1-1")
        self.assert_found("key without TTL 'wake:someone'")

    def test_undocumented_key(self):
        self.settle_all()
        self.client.set(PREFIX + "scratch", 1, ex=100)
        self.assert_found("undocumented key 'scratch'")

    def test_stray_key(self):
        self.settle_all()
        self.client.set("elsewhere", 1)
        self.assert_found("stray key 'elsewhere'")

    def test_trouble_left(self):
        self.settle_all()
        self.client.hset(PREFIX + "trouble", "1-1", "1 0 1-1")
        self.assert_found("trouble still holds")

    def test_parked_request_left(self):
        self.settle_all()
        self.client.zadd(PREFIX + "later", {"1-1": 5})
        self.assert_found("later still holds")

    def test_fault_that_never_fired(self):
        self.settle_all()
        self.assert_found("the fault kill never fired", faults=["kill"])
        self.journal.fault("kill")
        self.assertEqual(self.found_again(faults=["kill"]), [])

    def found_again(self, **options):
        return Checker(self.server, QUEUE, self.journal, vector_of).violations(**options)

    def test_survives_a_restart_of_redis(self):
        """The history continues in the same files after kill -9."""
        self.settle_all(but=(0,))
        self.server.kill()
        self.server.start()
        self.worker.settle(*self.entries[0])
        self.assertEqual(self.found(), [])
        self.worker.settle(*self.entries[1], ack=False, remove=False)
        self.assert_found("2 terminal replies")

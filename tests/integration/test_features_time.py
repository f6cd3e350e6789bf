"""Time and order of requests: classes, delays, deadlines, and the newest of several requests with one id."""
# ctest-cost: 25

import os
import re
import statistics
import threading

import corpus
import redis
from daemon import SOURCE
from features import FAIL, HOLD, FeatureCase
from script_scenes import LAST_ID, TO_COME


class Classes(FeatureCase):
    def test_names_carry_the_class(self):
        self.serve()
        reference = self.reference()
        for klass in ("high", "normal", "low"):
            name = self.add(klass, text=f"of class {klass}", encoding="f32")
            reply = self.wait_reply(name)
            self.assertEqual(("id" in reply, reply["entry"]), (False, name))
            self.assert_vector(reply, f"of class {klass}", reference)
        self.wait_empty()

    def test_high_overtakes_a_backlog_of_low(self):
        """While the engine is blocked, spare capacity admits some requests of class low, too; no more run before `high`."""
        self.serve("--max-batch-rows", "1", faults=["slow:{driver}:40"])
        self.hold()
        names = self.add_many([(klass, {"text": f"{number} {'driver' if klass == 'low' else klass}", "notify": "stream:order"})
                               for number, klass in enumerate(["low"] * 150 + ["high"] * 30)])
        low, high = names[:150], names[150:]
        self.wait_until(lambda: self.waiting() >= 70, "the window to have both")
        self.open_gate()
        order = self.wait_order(180)
        self.assertLess(max(order.index(name) for name in high), 100)
        self.assertEqual(set(order), {*low, *high})
        self.wait_empty()

    def waiting(self):
        """The number of requests in the worker's window, by its last heartbeat."""
        return sum(int(re.search(rb" waiting (\d+) ", line)[1]) for line in self.client.hvals(self.key("workers")))

    def test_high_is_in_the_next_batch_behind_a_backlog(self):
        """Between its XADD and its reply only the few short batches in flight end. They would hold 4096 tokens each if
        there were none of class high, and the engine has some of them in stock."""
        stream = self.key("requests")
        texts = corpus.texts(20000)
        for first in range(0, len(texts), 5000):
            self.add_many([("normal", {"text": text, "encoding": "f32", "ttl": 5}) for text in texts[first:first + 5000]])
        model = os.path.join(SOURCE, "config/models/sluice-mini-en")
        self.start_daemon(self.server, "--max-batch-ms", 0, model=model)
        self.wait_until(lambda: self.client.xlen(stream) < len(texts), "the backlog to move")
        ended = []
        for number in range(21):
            before = self.client.xlen(stream)
            name = self.add("high", text=f"where is {number}", encoding="f32", notify=1)
            self.assertTrue(self.client.blpop(self.key(f"wake:{name}"), 60))
            ended.append(before - self.client.xlen(stream))
        self.assertGreater(self.client.xlen(stream), 0)  # the backlog lasted throughout
        self.assertLess(statistics.median(ended[1:]), 150, ended)  # the first one met long batches

    def test_low_is_not_starved_by_high(self):
        """With weights 6:3:1 a low request ends long before the high backlog does. A pass takes longer than a read."""
        self.serve("--max-batch-rows", "1", faults=["slow:{driver}:5"])
        self.hold()
        names = self.add_many([(klass, {"text": f"{number} driver", "notify": "stream:order"})
                               for number, klass in enumerate(["high"] * 300 + ["low"] * 5)])
        high, low = names[:300], names[300:]
        self.wait_until(lambda: self.pending_names() >= set(high), "all of class high to be read")
        self.open_gate()
        order = self.wait_order(305)
        self.assertLess(max(order.index(name) for name in low), 100)
        self.assertEqual(set(order), {*low, *high})
        self.wait_empty()


class Times(FeatureCase):
    def test_delay(self):
        self.serve()
        name = self.add(id="job", text="later", delay="700", encoding="f32")
        reply = self.wait_reply("job")
        self.assertGreaterEqual(int(reply["done_at"]), int(name.split("-")[0]) + 700)
        self.assertGreaterEqual(int(reply["queued_ms"]), 700)
        self.assertEqual(reply["entry"], name)
        self.assertNotIn("attempts", reply)  # waiting is not an attempt
        self.assert_vector(reply, "later")
        self.wait_empty()

    def test_expired_before_a_worker_was_there(self):
        name = self.add(id="old", text="too late", expires_in="1")
        later = self.add(text="in time", expires_in="600000")
        self.wait_until(lambda: self.now_ms() > int(name.split("-")[0]) + 1, "the deadline to pass")
        self.serve()
        reply = self.wait_reply("old")
        self.assertEqual((reply["status"], reply["code"]), (b"error", b"expired"))
        self.assertEqual(self.wait_reply(later)["status"], b"done")
        self.assertFalse(self.client.exists(self.key("dead")))
        self.wait_empty()

    def test_expired_while_waiting_for_the_engine(self):
        self.serve()
        self.hold()
        name = self.add(text="too late", expires_in="300")
        reply = self.wait_reply(name)
        self.assertEqual((reply["status"], reply["code"]), (b"error", b"expired"))
        self.assertEqual(self.reply("hold"), {})  # answered as soon as it expired, not when its turn came
        self.open_gate()
        self.wait_empty()

    def test_expired_while_parked(self):
        self.serve()
        name = self.add(text="never", delay="3600000", expires_in="400")
        reply = self.wait_reply(name)
        self.assertEqual((reply["status"], reply["code"]), (b"error", b"expired"))
        self.wait_empty()


    def test_no_retry_after_the_deadline(self):
        """The request is answered when it fails, with the cause, not with `expired` after a useless wait."""
        self.backoff = ("--backoff-ms", "600000", "--backoff-cap-ms", "600000")
        self.serve(faults=[f"error:{{{FAIL}}}"])
        name = self.add(text=f"fails with {FAIL}", expires_in="60000")
        patient = self.add(id="patient", text=f"fails with {FAIL}, too", expires_in="6000000")
        reply = self.wait_reply(name, timeout=30)
        self.assertEqual((reply["status"], reply["code"], reply["attempts"]), (b"error", b"internal", 1))
        self.wait_until(lambda: self.client.zcard(self.key("later")) == 1, "the other to be parked for its second attempt")
        self.assertEqual(self.reply("patient"), {})
        letter, = (fields for _, fields in self.client.xrange(self.key("dead")))
        self.assertEqual(letter[b"_entry"].decode(), name)


class Honest(threading.Thread):
    """Adds a request every few ms to a class, as producers do, and retries refused ones."""

    def __init__(self, client, stream, prefix):
        super().__init__(daemon=True)
        self.client, self.stream, self.prefix = client, stream, prefix
        self.names, self.ended, self.error = {}, threading.Event(), None

    def run(self):
        try:
            while not self.ended.wait(0.003):
                self.add(f"{self.prefix}-{len(self.names)}")
        except Exception as error:  # shown by end()
            self.error = error

    def add(self, id):
        fields = {"text": f"text {len(self.names) % 20}", "id": id, "encoding": "f32"}
        try:
            self.names[id] = self.client.xadd(self.stream, fields).decode()
        except redis.ResponseError as error:
            if "exhausted the last possible ID" not in str(error):
                raise

    def end(self):
        self.ended.set()
        self.join(60)
        if self.error:
            raise self.error
        return self.names


class IdsAhead(FeatureCase):
    """A producer makes up an entry id: one in the future, or the last possible one."""

    WITHIN_MS = 10000

    def forge(self, *entries):
        """Adds all entries at once, so that no worker reads in between; returns Redis' answer to each."""
        pipe = self.client.pipeline(transaction=True)
        for stream, entry_id, fields in entries:
            pipe.xadd(self.key(stream), fields, entry_id)
        return pipe.execute(raise_on_error=False)

    def wait_present(self, stream, since):
        """Waits until the last ids of the stream and of its group are in the present."""
        def is_present():
            group, = self.client.xinfo_groups(self.key(stream))
            ids = [self.client.xinfo_stream(self.key(stream))["last-generated-id"], group["last-delivered-id"]]
            return all(int(last.split(b"-")[0]) <= self.now_ms() + 2000 for last in ids)

        self.wait_until(is_present, f"{stream} to be back in the present", timeout=self.WITHIN_MS / 1000)
        self.assertLess(self.now_ms() - since, self.WITHIN_MS)

    def test_back_to_normal_under_load(self):
        """Each honest request gets its own vector; delays and deadlines are right, both during the repair and
        afterwards."""
        served = self.serve(threads=2)
        other = self.serve(threads=1)
        honest = {stream: Honest(self.server.client(), self.key(stream), stream.replace(":", "-"))
                  for stream in ("requests:high", "requests")}
        for thread in honest.values():
            thread.start()
        self.wait_until(lambda: all(len(thread.names) > 100 for thread in honest.values()), "the load to be there")
        for turn in range(3):
            since = self.now_ms()
            streams = {"requests:high": LAST_ID, "requests": f"{TO_COME + turn}-0"}
            *_, delayed, _, refused = self.forge(
                *((stream, forged, {"text": "forged", "id": f"order-{turn}"}) for stream, forged in streams.items()),
                ("requests", "*", {"id": f"delayed-{turn}", "text": "later", "delay": "700"}),
                ("requests", "*", {"id": f"late-{turn}", "text": "too late", "delay": "300", "expires_in": "1"}),
                ("requests:high", "*", {"text": "refused"}))
            self.assertRegex(str(refused), "exhausted the last possible ID")
            delayed = delayed.decode()
            for stream in streams:
                self.wait_present(stream, since)
            # Added after the forged ones were first seen, which is the time that counts for them.
            honest_name = self.add("low", id=f"order-{turn}", text="honest", encoding="f32")
            reply = self.wait_reply(f"delayed-{turn}", timeout=self.WITHIN_MS / 1000)
            self.assertGreater(int(delayed.split("-")[0]), since + 3600000)  # it had inherited the forged time
            self.assertEqual((reply["status"], reply["entry"]), (b"done", delayed))
            self.assertGreaterEqual(int(reply["done_at"]), since + 700)
            self.assertTrue(700 <= int(reply["queued_ms"]) <= int(reply["done_at"]) - since + 1)
            self.assertEqual(self.wait_reply(f"late-{turn}", timeout=self.WITHIN_MS / 1000)["code"], b"expired")
            self.wait_until(lambda: self.reply(f"order-{turn}").get("entry") == honest_name, "the newest's reply")  # pylint: disable=cell-var-from-loop
            self.assert_vector(self.wait_reply(f"order-{turn}"), "honest")
        begun = self.now_ms()
        for klass in ("high", "normal"):
            name = self.add(klass, id=f"after-{klass}", text="later", delay="500", expires_in="60000")
            self.assertLessEqual(begun, int(name.split(":")[-1].split("-")[0]))
            self.assertLess(int(self.wait_reply(f"after-{klass}")["queued_ms"]), 10000)
        self.check(honest)
        self.wait_empty()
        self.wait_until(lambda: "ids_ahead" in served.read_log() + other.read_log(), "a line in the log")

    def test_no_script_reads_a_large_one(self):
        """In Lua, reading 24 MiB takes 58 ms, in which Redis does nothing else. MONITOR shows what the scripts read."""
        forged = [f"{TO_COME}-0", f"{TO_COME}-2", LAST_ID]
        self.client.set(self.key("paused"), 1)  # so that only the repair touches them
        self.client.xadd(self.key("requests"), {"text": b"a" * (24 << 20)}, forged[0])
        small = self.add(text="small")
        for entry in forged[1:]:
            self.client.xadd(self.key("requests"), {"text": b"a" * (2 << 20)}, entry)
        with self.server.client().monitor() as monitor:
            since = self.now_ms()
            self.serve()
            for entry in forged:
                self.assertEqual(self.wait_reply(entry)["code"], b"too_large")
            self.wait_present("requests", since)
            self.client.echo("that was all")
            read = []
            for call in iter(monitor.next_command, None):
                if call["command"].startswith("ECHO"):
                    break
                if call["client_type"] == "lua" and call["command"].startswith(("XRANGE", "XREVRANGE")):
                    read.append(call["command"])
        requests = self.key("requests")
        self.assertEqual({command for command in read if f" {requests} " in command}, {f"XRANGE {requests} {small} {small}"})
        self.client.delete(self.key("paused"))
        self.assertEqual(self.wait_reply(small)["status"], b"done")
        self.wait_empty()

    def test_a_look_reads_little(self):
        """Redis buffers every byte that a look asks for. Small entries come first, so that looks may become longer."""
        self.client.set(self.key("paused"), 1)
        for number in range(90):
            self.client.xadd(self.key("requests"), {"x-small": number}, f"{TO_COME}-{number}")
        for number in range(30):
            self.client.xadd(self.key("requests"), {"x-large": b"a" * 500000}, f"{TO_COME}-{1000 + number}")
        before = self.client.info("stats")["total_net_output_bytes"]
        self.serve()
        self.wait_until(lambda: self.client.zcard(self.key("later")) == 120, "all of them to have moved", timeout=60)
        self.assertLess(self.client.info("stats")["total_net_output_bytes"] - before, 3 * 30 * 500000)

    def check(self, honest):
        reference = self.reference()
        vectors = [reference(f"text {number}") for number in range(20)]
        for stream, thread in honest.items():
            for number, (id, name) in enumerate(thread.end().items()):
                reply = self.wait_reply(id)
                prefix = stream.split(":")[1] + ":" if ":" in stream else ""
                self.assertEqual(reply["entry"], prefix + name)
                self.assertEqual(self.vectors(reply), [vectors[number % 20]])

    def test_an_older_reply_with_the_id_of_others_is_no_shadow(self):
        """A request sent after the forged one gets its reply; the forged one does not hide it."""
        self.serve()
        self.forge(("requests:low", f"{TO_COME}-7", {"text": "forged", "id": "job", "encoding": "f32"}))
        self.assertIn("first_at", self.wait_reply("job"))
        name = self.add(id="job", text="honest", encoding="f32")
        reply = self.wait_until(lambda: self.reply("job")["entry"] == name and self.reply("job"), "the honest reply")
        self.assert_vector(reply, "honest")
        self.assertNotIn("first_at", reply)
        self.wait_empty()


class SameId(FeatureCase):
    def assert_newest(self, older, newer, text):
        """Asserts that both have ended, and that the reply holds the newer one's vector."""
        self.wait_until(lambda: self.client.llen(self.key("wake:job")) == 2, "both waiters to be woken")
        self.wait_empty()
        self.assertEqual(set(self.client.lrange(self.key("wake:job"), 0, -1)), {older.encode(), newer.encode()})
        reply = self.reply("job")
        self.assertEqual(reply["entry"], newer)
        self.assert_vector(reply, text)

    def test_computed_in_order(self):
        self.serve()
        older = self.add(id="job", text="first", encoding="f32", notify="1")
        newer = self.add(id="job", text="second", encoding="f32", notify="1")
        self.assert_newest(older, newer, "second")

    def test_the_newer_one_first(self):
        """The older one fails at first, and is computed later."""
        self.backoff = ("--backoff-ms", "600000", "--backoff-cap-ms", "600000")
        self.serve(faults=[f"flaky:{{{FAIL}}}:1"])
        older = self.add(id="job", text=f"first {FAIL}", encoding="f32", notify="1")
        self.wait_until(lambda: self.client.zcard(self.key("later")), "the older one to be parked")
        newer = self.add(id="job", text="second", encoding="f32", notify="1")
        self.wait_reply("job")
        self.sender.come_due()
        self.assert_newest(older, newer, "second")

    def test_of_several_classes(self):
        self.serve()
        self.hold()
        older = self.add("low", id="job", text="first", encoding="f32", notify="1")
        then = self.client.time()
        self.wait_until(lambda: self.client.time()[1] // 1000 != then[1] // 1000, "the next millisecond: age is the id")
        newer = self.add("high", id="job", text="second", encoding="f32", notify="1")
        self.open_gate()
        self.assert_newest(older, newer, "second")

    def test_the_older_one_in_the_engine(self):
        self.serve(threads=2)
        self.shut_gate()
        older = self.add(id="job", text=f"{HOLD} first", encoding="f32", notify="1")
        self.wait_until(lambda: self.fired("held"), "the older one to be computed")
        newer = self.add(id="job", text="second", encoding="f32", notify="1")
        self.assertEqual(self.wait_reply("job")["entry"], newer)
        self.open_gate()
        self.assert_newest(older, newer, "second")

"""When and in which order: classes, delays, deadlines, and the newest of several requests with one id."""

import unittest

from features import FAIL, HOLD, FeatureCase


class Classes(FeatureCase):
    def test_names_carry_the_class(self):
        self.serve()
        reference = self.reference()
        for klass in ("high", "normal", "low"):
            name = self.add(klass, text=f"of class {klass}", encoding="f32")
            reply = self.wait_reply(name)
            self.assertEqual((reply["id"].decode(), reply["entry"].decode()), (name, name))
            self.assert_vector(reply, f"of class {klass}", reference)
        self.wait_empty()

    def test_high_overtakes_a_backlog_of_low(self):
        """While the engine is held up, spare time is good for some 40 of class low, which take 40 ms each; no more go before."""
        self.serve("--max-batch-rows", "1", faults=["slow:{driver}:40"])
        self.hold()
        names = self.add_many([(klass, {"text": f"{number} {'driver' if klass == 'low' else klass}", "notify": "stream:order"})
                               for number, klass in enumerate(["low"] * 150 + ["high"] * 30)])
        low, high = names[:150], names[150:]
        order = self.wait_order(180)
        self.assertLess(max(order.index(name) for name in high), 100)
        self.assertEqual(set(order), {*low, *high})
        self.wait_empty()

    def test_low_is_not_starved_by_high(self):
        """6:3:1, so that a low one ends long before the high backlog does."""
        self.serve("--max-batch-rows", "1")
        self.hold()
        names = self.add_many([(klass, {"text": f"{number} {klass}", "notify": "stream:order"})
                               for number, klass in enumerate(["high"] * 300 + ["low"] * 5)])
        high, low = names[:300], names[300:]
        order = self.wait_order(305)
        self.assertLess(max(order.index(name) for name in low), 100)
        self.assertEqual(set(order), {*low, *high})
        self.wait_empty()


class Times(FeatureCase):
    def redis_ms(self):
        seconds, micros = self.client.time()
        return seconds * 1000 + micros // 1000

    def test_delay(self):
        self.serve()
        name = self.add(id="job", text="later", delay="700", encoding="f32")
        reply = self.wait_reply("job")
        self.assertGreaterEqual(int(reply["done_at"]), int(name.split("-")[0]) + 700)
        self.assertGreaterEqual(int(reply["queued_ms"]), 700)
        self.assertEqual(reply["entry"].decode(), name)
        self.assertNotIn("attempts", reply)  # to wait is no attempt
        self.assert_vector(reply, "later")
        self.wait_empty()

    def test_not_before(self):
        self.serve()
        due = self.redis_ms() + 600
        name = self.add("high", text="later", not_before=str(due))
        self.assertGreaterEqual(int(self.wait_reply(name)["done_at"]), due)
        past = self.add(text="at once", not_before=str(due - 3600000))
        self.assertEqual(self.wait_reply(past)["status"], b"done")
        self.wait_empty()

    def test_expired_before_a_worker_was_there(self):
        name = self.add(id="old", text="too late", expires_in="1")
        later = self.add(text="in time", expires_in="600000")
        self.wait_until(lambda: self.redis_ms() > int(name.split("-")[0]) + 1, "the deadline to pass")
        self.serve()
        reply = self.wait_reply("old")
        self.assertEqual((reply["status"], reply["code"]), (b"error", b"expired"))
        self.assertEqual(self.wait_reply(later)["status"], b"done")
        self.assertFalse(self.client.exists(self.key("dead")))
        self.wait_empty()

    def test_expired_while_waiting_for_the_engine(self):
        self.serve()
        self.hold()
        name = self.add(text="too late", expires_at=str(self.redis_ms() + 300))
        reply = self.wait_reply(name)
        self.assertEqual((reply["status"], reply["code"]), (b"error", b"expired"))
        self.assertEqual(self.reply("hold-0"), {})  # said as soon as it was true, not when its turn came
        self.wait_empty()

    def test_expired_while_parked(self):
        self.serve()
        name = self.add(text="never", delay="3600000", expires_in="400")
        reply = self.wait_reply(name)
        self.assertEqual((reply["status"], reply["code"]), (b"error", b"expired"))
        self.wait_empty()


    def test_no_retry_after_the_deadline(self):
        """Answered when it has failed, with what it failed of, not `expired` after a wait in vain."""
        self.backoff = ("--backoff-ms", "600000", "--backoff-cap-ms", "600000")
        self.serve(faults=[f"error:{{{FAIL}}}"])
        name = self.add(text=f"fails with {FAIL}", expires_in="60000")
        patient = self.add(id="patient", text=f"fails with {FAIL}, too", expires_in="6000000")
        reply = self.wait_reply(name, timeout=30)
        self.assertEqual((reply["status"], reply["code"], reply["attempts"]), (b"error", b"internal", b"1"))
        self.wait_until(lambda: self.client.zcard(self.key("later")) == 1, "the other to be parked for its second attempt")
        self.assertEqual(self.reply("patient"), {})
        letter, = (fields for _, fields in self.client.xrange(self.key("dead")))
        self.assertEqual(letter[b"_entry"].decode(), name)


class SameId(FeatureCase):
    def assert_newest(self, older, newer, text):
        """Both have ended, and the newer one's vector stands."""
        self.wait_until(lambda: self.client.llen(self.key("wake:job")) == 2, "both waiters to be woken")
        self.wait_empty()
        self.assertEqual(set(self.client.lrange(self.key("wake:job"), 0, -1)), {older.encode(), newer.encode()})
        reply = self.reply("job")
        self.assertEqual(reply["entry"].decode(), newer)
        self.assert_vector(reply, text)

    def test_computed_in_order(self):
        self.serve()
        older = self.add(id="job", text="first", encoding="f32", notify="1")
        newer = self.add(id="job", text="second", encoding="f32", notify="1")
        self.assert_newest(older, newer, "second")

    def test_the_newer_one_first(self):
        """The older one is computed later, because it waits."""
        self.serve()
        older = self.add(id="job", text="first", encoding="f32", notify="1", delay="800")
        self.wait_until(lambda: self.client.zcard(self.key("later")), "the older one to be parked")
        newer = self.add(id="job", text="second", encoding="f32", notify="1")
        self.wait_reply("job")
        self.assert_newest(older, newer, "second")

    def test_of_several_classes(self):
        self.serve()
        self.hold()
        older = self.add("low", id="job", text="first", encoding="f32", notify="1")
        then = self.client.time()
        self.wait_until(lambda: self.client.time()[1] // 1000 != then[1] // 1000, "the next millisecond: age is the id")
        newer = self.add("high", id="job", text="second", encoding="f32", notify="1")
        self.assert_newest(older, newer, "second")

    def test_the_older_one_in_the_engine(self):
        self.serve(threads=2)
        older = self.add(id="job", text=f"{HOLD} first", encoding="f32", notify="1")
        self.wait_until(lambda: self.fired("slow"), "the older one to be computed")
        newer = self.add(id="job", text="second", encoding="f32", notify="1")
        self.assertEqual(self.wait_reply("job")["entry"].decode(), newer)
        self.assert_newest(older, newer, "second")


if __name__ == "__main__":
    unittest.main()

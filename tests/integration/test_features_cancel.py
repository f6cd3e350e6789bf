"""Cancel by name, in every state that a request can be in: one terminal reply, and nothing is left over."""
# ctest-cost: 15

import re

from features import FAIL, HOLD, FeatureCase


class Cancel(FeatureCase):
    def cancel(self, name, klass="high"):
        """Sends the cancel and waits until its entry is gone."""
        entry = self.add(klass, cancel=name)
        stream, id = self.key("requests:high" if klass == "high" else "requests"), entry.split(":")[-1]
        self.wait_until(lambda: not self.client.xrange(stream, id, id), "the cancel to be dealt with")
        return entry

    def assert_cancelled(self, id, name):
        reply = self.wait_reply(id)
        self.assertEqual((reply["status"], reply["entry"]), (b"cancelled", name))
        self.assertIn("done_at", reply)
        self.assertGreater(self.client.pttl(self.key(f"reply:{id}")), 0)

    def test_queued_and_unread(self):
        self.serve("--max-batch-tokens", "64")
        hold = self.hold()
        names = [self.add("low", text=f"{number} hello") for number in range(200)]  # few entries of `low` are read ahead
        self.cancel(names[-1])
        self.assertNotIn(names[-1], self.pending_names())
        self.open_gate()
        self.assert_cancelled(names[-1], names[-1])
        for name in names[:-1]:
            self.assertEqual(self.wait_reply(name)["status"], b"done")
        self.assertEqual(self.wait_reply(hold)["status"], b"done")
        self.wait_empty()

    def test_delivered(self):
        self.serve()
        self.hold()
        name = self.add("low", id="job", text="in the window", notify="1")
        self.wait_held(name)
        self.cancel(name)
        self.assert_cancelled("job", name)
        self.open_gate()
        self.assertEqual(self.client.lrange(self.key("wake:job"), 0, -1), [name.encode()])
        self.wait_empty()
        self.assertEqual(self.reply("job")["status"], b"cancelled")

    def test_computing(self):
        self.serve()
        self.shut_gate()
        name = self.add(id="job", text=f"{HOLD} itself", notify="stream:web")
        self.wait_until(lambda: self.fired("held"), "the compute to begin")
        self.cancel(name)
        self.assert_cancelled("job", name)
        self.open_gate()
        after = self.add(text="another")
        self.assertEqual(self.wait_reply(after)["status"], b"done")  # next on the only thread: the other's compute has ended
        self.wait_empty()
        self.assertEqual(self.reply("job")["status"], b"cancelled")
        results = [fields for _, fields in self.client.xrange(self.key("results:web"))]
        self.assertEqual(results, [{b"id": b"job", b"status": b"cancelled", b"entry": name.encode()}])

    def test_delayed(self):
        self.serve()
        name = self.add(id="job", text="much later", delay="3600000")
        self.wait_until(lambda: self.client.zcard(self.key("later")), "it to be parked")
        self.cancel(name)
        self.assert_cancelled("job", name)
        self.wait_empty()

    def test_retrying(self):
        self.backoff = ("--backoff-ms", "600000", "--backoff-cap-ms", "600000")
        self.serve(faults=["error:{music}"])
        name = self.add(id="job", text=f"fails with {FAIL}")
        self.wait_until(lambda: self.client.zcard(self.key("later")), "it to be parked for its second attempt")
        self.cancel(name)
        self.assert_cancelled("job", name)
        self.wait_empty()

    def test_back_from_a_retry(self):
        """The request is a new entry with another id, but is still cancelled by its name."""
        self.backoff = ("--backoff-ms", "600000", "--backoff-cap-ms", "600000")
        self.serve(faults=["flaky:{music}:1"])
        name = self.add("low", id="job", text=f"fails once with {FAIL}")
        self.wait_until(lambda: self.client.zcard(self.key("later")), "it to be parked for its second attempt")
        self.hold()
        self.sender.come_due()
        self.wait_until(lambda: self.client.xlen(self.key("requests:low")), "it to be back in its stream")
        self.cancel(name)
        self.assert_cancelled("job", name)
        self.open_gate()
        self.wait_empty()
        self.assertEqual(self.reply("job")["status"], b"cancelled")

    def test_finished_or_unknown(self):
        daemon = self.serve("--log-level", "debug")
        name = self.add(id="job", text="done long ago", encoding="f32")
        self.assertEqual(self.wait_reply("job")["status"], b"done")
        cancels = [self.cancel(name), self.cancel("7-7"), self.cancel("low:7-7", klass="normal")]
        self.assert_vector(self.reply("job"), "done long ago")
        self.wait_empty()
        for cancel in cancels:
            self.assertEqual(self.reply(cancel), {})  # a valid cancel has no reply of its own
        self.wait_until(lambda: daemon.read_log().count("nothing_to_cancel") == 3, "three lines in the log")

    def test_a_name_that_is_none_is_answered(self):
        self.serve()
        name = self.add(cancel="order-42")
        reply = self.wait_reply(name)
        self.assertEqual((reply["status"], reply["code"]), (b"error", b"bad_request"))
        self.assertIn(b"cancel", reply["message"])
        self.wait_empty()

    # The control stream

    def control(self, name):
        self.client.xadd(self.key("control"), {"cancel": name})

    def wait_no_control(self):
        self.wait_until(lambda: not self.client.exists(self.key("control")), "the control stream to be empty")

    def test_while_the_queue_is_paused(self):
        """No worker reads requests, yet a cancel is answered at once, for unread and parked requests of each class."""
        self.serve()
        parked = self.add(id="parked", text="much later", delay="3600000")
        self.wait_until(lambda: self.client.zcard(self.key("later")), "it to be parked")
        self.pause()
        names = [self.add(klass, text="never read") for klass in ("high", "normal", "low")]
        kept = self.add(text="kept")
        for name in (*names, parked):
            self.control(name)
        for name in names:
            self.assert_cancelled(name, name)
        self.assert_cancelled("parked", parked)
        self.wait_no_control()
        self.assertEqual(self.reply(kept), {})
        self.client.delete(self.key("paused"))
        self.assertEqual(self.wait_reply(kept)["status"], b"done")
        self.wait_empty()

    def test_it_overtakes_a_backlog(self):
        """The cancel is behind thousands of entries of its class, and the engine is blocked."""
        self.serve("--max-batch-tokens", "64")
        self.hold()
        pipe = self.client.pipeline(transaction=False)
        for number in range(5000):
            pipe.xadd(self.key("requests:low"), {"text": f"{number} hello"})
        last = "low:" + pipe.execute()[-1].decode()
        self.control(last)
        self.wait_until(lambda: self.reply(last).get("status") == b"cancelled", "it to be cancelled")
        self.assertEqual(self.reply("hold"), {}, "nothing else has gone on meanwhile")

    def test_what_is_no_cancel_goes(self):
        daemon = self.serve()
        kept = self.add("low", text="kept")
        for fields in ({"text": "x"}, {"cancel": "order-42"}, {"cancel": "99999999999999999999999-0"}, {"cancel": ""},
                       {f"field-{number}": "x" for number in range(2000)}, {"cancel": "7-7", "text": "x" * 3000000}):
            self.client.xadd(self.key("control"), fields)
        self.wait_no_control()
        self.assertEqual(self.wait_reply(kept)["status"], b"done")
        self.control("no name either")  # logged at the next look after a second
        self.wait_until(lambda: sum(map(int, re.findall(r"control_malformed queue=\w+ entries=(\d+)", daemon.read_log()))) == 6,
                        "six in the log")
        self.wait_empty()

    def test_what_cannot_be_done_now_holds_up_nobody(self):
        """More cancels than one look reads are for a class whose stream key has another type."""
        self.serve()
        self.client.rename(self.key("requests:low"), self.key("aside"))
        self.client.set(self.key("requests:low"), "junk")
        for _ in range(70):
            self.control("low:7-7")
        name = self.add(text="much later", delay="3600000")
        self.control(name)
        self.assert_cancelled(name, name)
        self.assertEqual(self.client.xlen(self.key("control")), 70)
        self.client.rename(self.key("aside"), self.key("requests:low"))
        self.wait_no_control()

    def test_a_key_of_another_type_there_stops_nobody(self):
        daemon = self.serve()
        self.client.set(self.key("control"), "junk")
        self.wait_until(lambda: "stream_unusable" in daemon.read_log(), "a line in the log")
        self.assertEqual(self.wait_reply(self.add(text="all the same"))["status"], b"done")
        self.client.delete(self.key("control"))
        name = self.add("low", text="much later", delay="3600000")
        self.control(name)
        self.assert_cancelled(name, name)
        self.wait_empty()

    def test_when_the_housekeeper_has_just_died(self):
        """Another worker steps in before it is elected: the dead one's lease is far from its end."""
        self.lease_ms = 60000
        first = self.serve()
        self.wait_until(lambda: self.client.exists(self.key("housekeeper")), "the first to be elected")
        self.serve()
        self.pause()
        first.kill()
        name = self.add(text="cancelled")
        self.control(name)
        self.assert_cancelled(name, name)
        self.wait_no_control()

    def test_while_the_queue_is_full_of_cancels(self):
        """Each request is cancelled at once: it ends exactly once, as done or as cancelled."""
        self.serve()
        names = []
        for number in range(300):
            names.append(self.add(id=f"job-{number}", text=f"{number} hello", encoding="f32", notify="1"))
            self.add("high", cancel=names[-1])
        ends = [self.wait_reply(f"job-{number}")["status"] for number in range(300)]
        self.assertEqual(set(ends) - {b"done", b"cancelled"}, set())
        self.wait_empty()
        for number, name in enumerate(names):
            self.assertEqual(self.client.lrange(self.key(f"wake:job-{number}"), 0, -1), [name.encode()])

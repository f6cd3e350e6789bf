"""lua/cancel.lua: a request ends by its name in every state, once, and its waiters are notified."""
# ctest: redis
# ctest-once

import ast
import json
import os
import re

from daemon import SOURCE
from scripts import PREFIX, End, Park, ScriptCase, Tokens, plain


class Cancel(ScriptCase):
    cancels = 0

    def ask(self, target, which="high", **meant):
        """A producer asks for the cancel and a worker reads it; returns the id of the cancel entry."""
        self.cancels += 1
        entry_id = self.desk.add(f"{900 + self.cancels}-1", which, cancel=target, **meant)
        if which == "control":
            self.assertIn(entry_id, self.desk.run(self.desk.control())[::2])
            return entry_id
        self.assertIn(entry_id, self.desk.read("me", which))
        return entry_id

    def cancel(self, target, which="high", entry_id=None):
        """Calls the script as the daemon does: first with guessed keys, then with those that it asks for."""
        entry_id = entry_id or self.ask(target, which)
        target_class = next((c for c in ("high", "low") if target.startswith(c)), "normal")
        options = {"which": which, "target_class": target_class}
        result = self.desk.run(self.desk.cancel(entry_id, target, **options))
        if result[0] == -5:
            before = self.desk.dump()
            self.assertEqual(self.desk.run(self.desk.cancel(entry_id, target, **options)), result, "asked in vain twice")
            self.assertEqual(self.desk.dump(), before)
            result = self.desk.run(self.desk.cancel(entry_id, target, *result[1:], **options))
        return result[0]

    def assert_cancelled(self, name, reply=None):
        self.assertEqual(self.desk.reply(reply or name)["status"], "cancelled")
        self.assertEqual(self.desk.reply(reply or name)["entry"], name)
        self.assertEqual((self.desk.entries("high"), self.desk.owners("high")), ({}, {}), "the cancel entry is gone")
        place = self.desk.places(name)
        self.assertEqual((place["stream"], place["parked"], place["waits"]), (0, 0, 0))
        self.assertIsNone(self.desk.trouble(name))

    def test_only_the_request_that_is_meant(self):
        self.desk.add("1-1", id="mine", tenant="shop")
        self.desk.add("2-1")
        for target, meant in (("1-1", {"id": "yours"}), ("1-1", {"id": "mine", "tenant": "bank"}), ("2-1", {"id": "2-1"}),
                              ("2-1", {"tenant": "shop"})):
            self.assertEqual(self.cancel(target, "control", self.ask(target, "control", **meant)), 0)
            self.assertEqual(self.desk.entries("control"), {})
        self.assertEqual(self.cancel("1-1", "control", self.ask("1-1", "control", id="mine", tenant="shop")), 1)
        self.assert_cancelled("1-1", "mine")
        self.assertEqual(self.desk.places("2-1")["stream"], 1)

    # --- In every state ---

    def test_unread(self):
        self.desk.add("1-1")
        self.assertEqual(self.cancel("1-1"), 1)
        self.assert_cancelled("1-1")
        self.assertEqual(self.desk.read("me"), [])

    def test_read_and_computing(self):
        """The computation goes on, and its result is refused."""
        self.desk.deliver("you", "1-1")
        self.assertEqual(self.cancel("1-1"), 1)
        self.assert_cancelled("1-1")
        self.assertEqual(self.desk.run(self.desk.settle(End("1-1"), consumer="you")), [0, 0, 0])
        self.assertEqual(self.desk.run(self.desk.defer(Park("1-1"), consumer="you")), [0])
        self.assertEqual(self.desk.run(self.desk.charge("1-1", consumer="you")), [0])
        self.assert_cancelled("1-1")

    def test_parked(self):
        self.desk.deliver("you", "1-1")
        self.desk.run(self.desk.defer(Park("1-1", delay_ms=60000), consumer="you"))
        self.assertEqual(self.cancel("1-1"), 1)
        self.assert_cancelled("1-1")
        self.assertEqual(self.desk.run(self.desk.promote()), [0, -1, 0])

    def test_after_a_retry(self):
        for held in (False, True):
            self.client.flushall()
            self.desk.groups().deliver("you", name := "1-1")
            self.desk.run(self.desk.defer(Park(name), consumer="you"))
            self.desk.run(self.desk.promote())
            if held:
                carrier, = self.desk.read("you")
                self.desk.run(self.desk.charge((carrier, name), consumer="you"))
            self.assertEqual(self.cancel(name), 1)
            self.assert_cancelled(name)

    def test_suspect(self):
        self.desk.deliver("dead", "1-1")
        self.desk.run(self.desk.charge("1-1", consumer="dead"))
        self.assertEqual(self.cancel("1-1"), 1)
        self.assert_cancelled("1-1")
        self.assertEqual(self.desk.run(self.desk.reclaim("dead")), [[], [], [], 0, []])

    def test_released(self):
        self.desk.deliver("released", "1-1")
        self.assertEqual(self.cancel("1-1"), 1)
        self.assert_cancelled("1-1")

    def test_finished_or_unknown(self):
        self.desk.deliver("you", "1-1")
        self.desk.run(self.desk.settle(End("1-1"), consumer="you"))
        for target in ("1-1", "8-8", "low:1-1", "high:1-1"):
            self.assertEqual(self.cancel(target), 0, target)
        self.assertEqual(self.desk.reply("1-1")["status"], "done")
        self.assertEqual(self.client.keys(self.desk.key("reply:*")), [self.desk.key("reply:1-1").encode()])
        self.assertEqual(self.desk.entries("high"), {})

    def test_each_class_from_each_class(self):
        for which in PREFIX:
            for target_class, prefix in PREFIX.items():
                self.desk.add("1-1", target_class)
                self.assertEqual(self.cancel(f"{prefix}1-1", which), 1)
                self.assertEqual(self.desk.reply(f"{prefix}1-1")["status"], "cancelled")
                self.client.flushall()
                self.desk.groups()

    # --- From the control stream ---

    def test_from_the_control_stream(self):
        """The target is read, unread or parked, and its own keys are used; the stream is deleted with its last
        entry."""
        self.desk.add("1-1", id="mine", text="x", notify="1")
        self.desk.add("2-1", "low")
        self.desk.deliver("you", "3-1", which="high")
        self.desk.run(self.desk.defer(Park("3-1", delay_ms=60000), which="high", consumer="you"))
        self.assertEqual(self.cancel("1-1", "control"), 1)
        self.assertEqual(self.client.lrange(self.desk.key("wake:mine"), 0, -1), [b"1-1"])
        kept = self.ask("low:9-9", "control")
        self.assertEqual(self.cancel("low:2-1", "control"), 1)
        self.assertEqual(self.cancel("high:3-1", "control"), 1)
        self.assertEqual([self.desk.reply(name)["status"] for name in ("mine", "low:2-1", "high:3-1")], ["cancelled"] * 3)
        self.assertEqual(list(self.desk.entries("control")), [kept])
        self.assertEqual(self.cancel("low:9-9", "control", entry_id=kept), 0)
        self.assertEqual(self.client.exists(self.desk.key("control")), 0)

    def test_from_the_control_stream_once(self):
        self.desk.add("1-1")
        entry_id = self.ask("1-1", "control")
        self.assertEqual(self.cancel("1-1", "control", entry_id=entry_id), 1)
        self.client.unlink(self.desk.key("reply:1-1"))
        self.assertEqual(self.cancel("1-1", "control", entry_id=entry_id), 2)
        self.assertEqual(self.desk.reply("1-1"), {})

    def test_an_entry_without_a_name_goes(self):
        for number, fields in enumerate([{"text": "x"}, {"cancel": "x" * 65}, {"cancel": ""}], start=1):
            self.desk.add(f"{number}-1", "control", **fields)
        self.assertEqual(self.desk.run(self.desk.control()), ["1-1", "", "2-1", "", "3-1", ""])
        for number in range(1, 4):
            self.assertEqual(self.desk.run(self.desk.cancel(f"{number}-1", "", which="control")), [0])
        self.assertEqual(self.client.exists(self.desk.key("control")), 0)

    def test_a_look_at_the_control_stream_is_bounded(self):
        """A look is limited in entries and bytes; an empty control stream starts afresh, whatever ids were made up."""
        for number in range(1, 101):
            self.desk.add(f"{number}-1", "control", cancel="7-7", x="y" * (300000 if number > 80 else 0))
        first = self.desk.run(self.desk.control())
        self.assertEqual(len(first), 128)
        self.assertEqual(self.desk.run(self.desk.control(most=2, after=first[-2])), ["65-1", "7-7", "66-1", "7-7"])
        self.assertEqual(self.desk.run(self.desk.control(after="100-1")), [])
        self.assertEqual(self.client.xlen(self.desk.key("control")), 100)
        self.client.xtrim(self.desk.key("control"), 20, approximate=False)
        self.assertEqual(len(self.desk.run(self.desk.control())), 8)
        self.desk.add(f"{2**64 - 1}-{2**64 - 1}", "control", cancel="7-7")
        self.client.xtrim(self.desk.key("control"), 0, approximate=False)
        self.assertEqual(self.desk.run(self.desk.control()), [])
        self.assertEqual(self.client.xadd(self.desk.key("control"), {"cancel": "7-7"}, "1-1"), b"1-1")

    # --- Notifications ---

    def test_the_targets_own_keys(self):
        self.desk.add("1-1", id="mine", text="x", notify="1", ttl="9000", meta="m\u00e4h")
        self.assertEqual(self.cancel("1-1"), 1)
        reply = self.desk.reply("mine")
        self.assertGreater(int(reply.pop("done_at")), 1700000000000)
        self.assertEqual(reply, {"status": "cancelled", "id": "mine", "entry": "1-1", "meta": "m\u00e4h"})
        self.assertEqual(self.client.lrange(self.desk.key("wake:mine"), 0, -1), [b"1-1"])
        for key in ("reply:mine", "wake:mine"):
            self.assertAlmostEqual(self.client.pttl(self.desk.key(key)), 9000000, delta=60000)

    def test_echoes_are_strings_of_json(self):
        """Whatever is in them; what is not UTF-8 is left out, as the daemon would refuse it."""
        meta = '"quoted" \\ a/b \n\t\x00\x7f \u00e4 \u20ac \U0001f600 \ud7ff\ue000\U0010ffff'
        self.desk.add("1-1", text="x", id='order "42"\\', meta=meta, tenant="t:1")
        self.assertEqual(self.cancel("1-1"), 1)
        reply = self.desk.reply('order "42"\\')
        self.assertEqual([reply[name] for name in ("id", "meta", "tenant")], ['order "42"\\', meta, "t:1"])
        self.assertNotIn("id", self.desk.reply("1-1"))
        for number, wrong in enumerate((b"\xff", b"a\xc3", b"\xc3a\xa4", b"\xc0\xaf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf",
                                        b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x82 \xac", b"\xf0\x9f\x98"), start=2):
            self.desk.add(f"{number}-1", text="x", meta=wrong)
            self.assertEqual(self.cancel(f"{number}-1"), 1)
            self.assertNotIn("meta", self.desk.reply(f"{number}-1"), wrong)

    def test_wake_tokens_that_nobody_fetches_do_not_grow(self):
        for number in range(1, 21):
            self.desk.add(f"{number}-1", id="mine", text="x", notify="1")
            self.assertEqual(self.cancel(f"{number}-1"), 1)
        self.assertEqual(plain(self.client.lrange(self.desk.key("wake:mine"), 0, -1)), [f"{n}-1" for n in range(5, 21)])

    def test_results_stream(self):
        self.desk.add("1-1", text="x", notify="stream:hits")
        self.assertEqual(self.cancel("1-1"), 1)
        (_, fields), = self.client.xrange(self.desk.key("results:hits"))
        self.assertEqual(plain(fields), {"id": "1-1", "status": "cancelled", "entry": "1-1"})
        self.assertGreater(self.client.pttl(self.desk.key("results:hits")), 80000000)

    def test_stream_of_tokens(self):
        self.desk.deliver("you", "1-1")
        self.desk.add("2-1", prompt="x", stream="story", id="b", ttl="60")
        self.desk.read("you")
        self.desk.run(self.desk.tokens(Tokens("2-1", "story", 0, (7, 8), "ab", reply="b"), consumer="you"))
        self.assertEqual([self.cancel("2-1"), self.cancel("1-1")], [1, 1])
        tokens, end = self.desk.texts("story")
        self.assertEqual(tokens, {"entry": "2-1", "id": "b", "index": "0", "tokens": "2", "text": "ab"})
        self.assertEqual({name: end[name] for name in ("entry", "id", "status")}, {"entry": "2-1", "id": "b", "status": "cancelled"})
        self.assertEqual({"status": "cancelled", **json.loads(end["info"])}, self.desk.reply("b"))
        self.assertFalse(self.client.exists(self.desk.key("sent:2-1")))
        self.assertEqual(self.desk.run(self.desk.tokens(Tokens("2-1", "story", 2, (9,), "c"), consumer="you")), [-1])
        self.assertEqual(len(self.desk.texts("story")), 2)

    def test_a_request_with_unusable_wishes_is_cancelled_under_its_name(self):
        """It would have been refused; a client that asked for its end gets that end."""
        for number, wishes in enumerate([{"id": ""}, {"id": "a" * 129}, {"id": "1795252518106-7"}, {"id": "high:1795252518106-7"}, {"id": "é"},
                                         {"id": "a\n"}, {"notify": "stream:"}, {"notify": "stream:A"}, {"notify": "2"},
                                         {"notify": "stream:" + "a" * 65}, {"stream": "A"}, {"stream": "a" * 65}, {"ttl": "0"}, {"ttl": "x"}, {"ttl": "999999999"},
                                         {"meta": "x" * 5000}], start=1):
            name = f"{number}-1"
            self.desk.add(name, text="x", **wishes)
            self.assertEqual(self.cancel(name), 1, wishes)
            self.assertEqual(self.desk.reply(name)["status"], "cancelled", wishes)
            self.assertGreater(self.client.pttl(self.desk.key(f"reply:{name}")), 3000000, wishes)
            self.assertNotIn("meta", self.desk.reply(name))

    def test_the_reply_of_a_newer_request_stands(self):
        self.desk.add("1-1", id="mine", text="old", notify="1")
        self.desk.put_reply("mine", "done", entry="2-1")
        self.assertEqual(self.cancel("1-1"), 1)
        self.assertEqual(self.desk.reply("mine"), {"status": "done", "entry": "2-1"})
        self.assertEqual(self.client.lrange(self.desk.key("wake:mine"), 0, -1), [b"1-1"])
        self.assertEqual(self.desk.entries(), {})

    def test_an_older_reply_is_replaced(self):
        self.desk.put_reply("mine", "done", entry="1-1")
        self.client.hset(self.desk.key("reply:mine"), "embedding", "v")
        self.desk.add("2-1", id="mine", text="new")
        self.assertEqual(self.cancel("2-1"), 1)
        self.assertNotIn("embedding", self.desk.reply("mine"))

    # --- Targets that are not cancelled ---

    def test_once_only(self):
        self.desk.add("1-1")
        first, second = self.ask("1-1"), self.ask("1-1")
        self.assertEqual(self.cancel("1-1", entry_id=first), 1)
        self.client.unlink(self.desk.key("reply:1-1"))
        self.assertEqual(self.cancel("1-1", entry_id=first), 2)
        self.assertEqual(self.cancel("1-1", entry_id=second), 0)
        self.assertEqual(self.desk.reply("1-1"), {})

    def test_a_retrys_entry_id_is_no_name(self):
        self.desk.deliver("you", "1-1")
        self.desk.run(self.desk.defer(Park("1-1"), consumer="you"))
        self.desk.run(self.desk.promote())
        carrier, = self.desk.entries()
        self.assertEqual(self.cancel(carrier), 0)
        self.assertEqual(self.desk.places("1-1")["stream"], 1)

    def test_a_forgery_is_cancelled_by_its_own_name_only(self):
        self.desk.add("1-1")
        self.desk.add("7-1", _id="1-1", text="forged")
        self.assertEqual(self.cancel("1-1"), 1)
        self.assertEqual(list(self.desk.entries()), ["7-1"])
        self.assertEqual(self.cancel("7-1"), 1)
        self.assertEqual(self.desk.reply("7-1")["status"], "cancelled")

    def test_a_stale_record_of_trouble_points_to_nobody_else(self):
        self.desk.add("7-1", text="another request")
        self.client.hset(self.desk.key("trouble"), "1-1", "1 0 7-1")
        self.assertEqual(self.cancel("1-1"), 0)
        self.assertEqual(list(self.desk.entries()), ["7-1"])

    def test_a_cancel_is_no_request(self):
        self.desk.add("1-1", cancel="0-1")
        self.assertEqual(self.cancel("1-1"), 0)
        self.assertEqual(list(self.desk.entries()), ["1-1"])
        self.assertEqual(self.desk.reply("1-1"), {})

    def test_a_parked_request_whose_fields_are_unreadable(self):
        self.client.hset(self.desk.key("later:data"), "1-1", b"\xc1")
        self.client.zadd(self.desk.key("later"), {"1-1": 1})
        self.assertEqual(self.cancel("1-1"), 1)
        self.assert_cancelled("1-1")

    def test_trace_context_is_kept_or_left_out(self):
        """This follows the daemon's rule, whose unit test has the same table."""
        with open(os.path.join(SOURCE, "tests", "support", "trace_contexts.inc"), encoding="ascii") as file:
            table = file.read()
        cases = re.findall(r'CONTEXT\((".*"), (".*"), (\w+), (\w+), \w+\)', table)
        self.assertGreater(len(cases), 20)
        self.assertEqual(len(cases), table.count("\nCONTEXT("))
        for parent, state, kept, kept_state in cases:
            parent, state = (ast.literal_eval("b" + literal) for literal in (parent, state))
            self.client.flushall()
            self.desk.groups().add("1-1", text="x", tracestate=state, traceparent=parent)
            self.assertEqual(self.cancel("1-1"), 1)
            reply = self.desk.reply("1-1")
            wanted = {name: value.decode() for name, value, whether in (("traceparent", parent, kept), ("tracestate", state, kept_state))
                      if whether == "true"}
            self.assertEqual({name: value for name, value in reply.items() if name.startswith("trace")}, wanted, (parent, state))

    def test_trace_context_is_bounded(self):
        parent, members = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", ["a=1"] * 32
        for more in (0, 1):
            for state in ("k=" + "v" * (510 + more), ",".join(members + [""] * more), "k" * (256 + more) + "=1"):
                self.client.flushall()
                self.desk.groups().add("1-1", text="x", traceparent=parent.ljust(256, "x"), tracestate=state)
                self.assertEqual(self.cancel("1-1"), 1)
                self.assertEqual("tracestate" in self.desk.reply("1-1"), not more, state)
            self.client.flushall()
            self.desk.groups().add("1-1", text="x", traceparent=parent.ljust(256 + more, "x"))
            self.assertEqual(self.cancel("1-1"), 1)
            self.assertEqual("traceparent" in self.desk.reply("1-1"), not more)

    def test_it_does_not_say_nothing_where_it_could_not_look(self):
        """While later:data or trouble has a wrong type, the cancel stays pending until it can look there."""
        for suffix in ("later:data", "trouble"):
            self.client.flushall()
            self.desk.groups().deliver("you", "1-1")
            self.desk.run(self.desk.defer(Park("1-1"), consumer="you"))
            if suffix == "trouble":
                self.desk.run(self.desk.promote())
            self.client.rename(self.desk.key(suffix), self.desk.key("aside"))
            self.client.set(self.desk.key(suffix), "junk")
            entry_id = self.ask("1-1")
            with self.assertRaisesRegex(Exception, "WRONGTYPE"):
                self.cancel("1-1", entry_id=entry_id)
            self.assertEqual(self.desk.owners("high"), {entry_id: "me"})
            self.client.rename(self.desk.key("aside"), self.desk.key(suffix))
            self.assertEqual(self.cancel("1-1", entry_id=entry_id), 1)
            self.assert_cancelled("1-1")

    def test_any_holder_may_finish_it(self):
        self.desk.add("1-1")
        entry_id = self.ask("1-1")
        self.assertEqual(self.desk.run(self.desk.cancel(entry_id, "1-1", consumer="another")), [1])

"""lua/tokens.lua and the ends of streams of tokens: each index once, and only from the owner."""
# ctest: redis
# ctest-once

import json
import struct

from scripts import End, ScriptCase, Tokens


class StreamOfTokens(ScriptCase):
    def send(self, *texts, **options):
        return self.desk.run(self.desk.tokens(*texts, **options))

    def sent(self, name):
        """The ids on the record; None: there is no record."""
        bytes = self.client.get(self.desk.key(f"sent:{name}"))
        return bytes and list(struct.unpack(f"<{len(bytes) // 4}i", bytes))

    def test_tokens_follow_each_other(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.assertEqual(self.send(Tokens("1-1", "s", 0, (5, 6), "ab", ttl_ms=60000), Tokens("2-1", "t", 0, (), "")), [2, 0])
        self.assertEqual(self.send(Tokens("1-1", "s", 2, (2**31 - 1, 0, 1), "\u00e4", reply="mine", ttl_ms=60000)), [5])
        self.assertEqual(self.desk.texts("s"), [{"entry": "1-1", "id": "1-1", "index": "0", "tokens": "2", "text": "ab"},
                                                {"entry": "1-1", "id": "mine", "index": "2", "tokens": "3", "text": "\u00e4"}])
        self.assertEqual((self.sent("1-1"), self.sent("2-1")), ([5, 6, 2**31 - 1, 0, 1], None))
        self.assertEqual(self.desk.texts("t"), [])
        self.assertTrue(50000 < self.client.pttl(self.desk.key("tokens:s")) <= 60000)
        self.assertGreater(self.client.pttl(self.desk.key("sent:1-1")), 29 * 86400000)

    def test_a_stream_lives_as_long_as_its_longest_entry(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.send(Tokens("1-1", "s", 0, (5,), "a", ttl_ms=500000), Tokens("2-1", "s", 0, (5,), "a", ttl_ms=1000))
        self.assertGreater(self.client.pttl(self.desk.key("tokens:s")), 400000)

    def test_another_index_changes_nothing(self):
        """Neither one that was there, nor one that leaves a gap; the answer says where to go on."""
        self.desk.deliver("me", "1-1")
        self.send(Tokens("1-1", "s", 0, (5, 6, 7), "abc"))
        before = self.desk.dump()
        for index in (0, 1, 2, 4):
            self.assertEqual(self.send(Tokens("1-1", "s", index, (8,), "d")), [3])
        self.assertEqual(self.desk.dump(), before)

    def test_only_the_owner(self):
        self.desk.deliver("you", "1-1")
        self.desk.deliver("me", "2-1")
        self.desk.add("3-1")
        before = self.desk.dump()
        self.assertEqual(self.send(*(Tokens(f"{number}-1", "s", 0, (5,), "a") for number in (1, 3, 4))), [-1, -1, -1])
        self.assertEqual(self.desk.dump(), before)
        self.assertEqual(self.send(Tokens("1-1", "s", 0, (5,), "a"), Tokens("2-1", "s", 0, (6,), "b")), [-1, 1])

    def test_only_under_its_own_name(self):
        self.desk.deliver("me", "1-1")
        self.desk.add("7-1", _id="1-1", text="forged")
        self.desk.read("me")
        self.assertEqual(self.send(Tokens("7-1", "s", 0, (5,), "a", name="1-1", claims=True)), [-3])
        self.client.hset(self.desk.key("trouble"), "1-1", "1 0 7-1")
        self.assertEqual(self.send(Tokens("7-1", "s", 0, (5,), "a", name="1-1", claims=True)), [1])

    def test_a_record_of_another_type_is_replaced(self):
        self.desk.deliver("me", "1-1")
        self.client.rpush(self.desk.key("sent:1-1"), "x")
        self.assertEqual(self.send(Tokens("1-1", "s", 0, (5,), "a")), [1])
        self.assertEqual(self.sent("1-1"), [5])

    def test_tokens_that_no_stream_takes_count_as_sent(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.client.set(self.desk.key("tokens:s"), "x")
        self.client.xadd(self.desk.key("tokens:t"), {"x": "y"}, f"{2**64 - 1}-{2**64 - 1}")
        self.assertEqual(self.send(Tokens("1-1", "s", 0, (5,), "a"), Tokens("2-1", "t", 0, (5,), "a")), [1, 1])

    # --- The last entry ---

    def settle(self, *ends, **options):
        return self.desk.run(self.desk.settle(*ends, **options))

    def assert_end(self, end, entry, reply, **wanted):
        self.assertEqual((end["entry"], end["id"]), (entry, reply))
        there = self.desk.reply(reply)
        there.pop("text", None)
        members = {name: value for name, value in end.items() if name not in ("id", "info") and (name, value) != ("entry", entry)}
        self.assertEqual({**members, **json.loads(end["info"])}, {"id": reply, **there} if "id" in there else there)
        self.assertEqual({name: end[name] for name in wanted}, wanted)

    def test_each_end(self):
        self.desk.deliver("me", "1-1", "2-1", "3-1", "4-1")
        self.send(Tokens("1-1", "s", 0, (5, 6), "ab"), Tokens("2-1", "s", 0, (5,), "a"))
        ends = [End("1-1", reply="mine", fields={"text": "ab"}, info={"finish_reason": "stop"}, stream="s", tokens=2),
                End("2-1", "fail", fields={"code": "expired", "message": "late"}, stream="s"), End("3-1", "dead", stream="s"),
                End("4-1", "error", fields={"code": "bad_request", "message": "no"}, stream="s", notify="1")]
        self.assertEqual(self.settle(*ends), [1, 1, 1, 1, 0, 0])
        ended = self.desk.texts("s")[2:]
        self.assertEqual([end["entry"] for end in ended], ["1-1", "2-1", "3-1", "4-1"])
        self.assert_end(ended[0], "1-1", "mine", status="done")
        self.assert_end(ended[1], "2-1", "2-1", status="error", code="expired", message="late")
        self.assertIn("dead", json.loads(ended[2]["info"]))
        self.assert_end(ended[3], "4-1", "4-1", status="error", code="bad_request")
        self.assertEqual(self.client.keys(self.desk.key("sent:*")), [])
        self.assertEqual(self.settle(*ends), [0, 0, 0, 0, 0, 0])
        self.assertEqual(len(self.desk.texts("s")), 6)

    def test_a_staged_text(self):
        self.desk.deliver("me", "1-1")
        self.send(Tokens("1-1", "s", 0, (5,), "a"))
        end = End("1-1", staged=self.desk.stage(1, text="a" * 2000), stream="s", tokens=1, notify="hits")
        self.assertEqual(self.settle(end), [1, 0, 0])
        self.assertEqual(self.desk.reply("1-1")["text"], "a" * 2000)
        self.assertNotIn("text", self.desk.texts("s")[1])

    def test_a_text_ends_when_all_of_it_was_sent(self):
        self.desk.deliver("me", "1-1")
        self.send(Tokens("1-1", "s", 0, (5, 6), "ab"))
        before = self.desk.dump()
        for tokens in (1, 3):
            self.assertEqual(self.settle(End("1-1", fields={"text": "abc"}, stream="s", tokens=tokens)), [-9, 0, 0])
        self.assertEqual(self.desk.dump(), before)
        self.client.delete(self.desk.key("sent:1-1"))
        self.assertEqual(self.settle(End("1-1", fields={"text": "ab"}, stream="s", tokens=2)), [-9, 0, 0])
        self.client.rpush(self.desk.key("sent:1-1"), "x")
        self.assertEqual(self.settle(End("1-1", fields={"text": "ab"}, stream="s", tokens=2)), [1, 1, 0])

    def test_only_the_owner_ends_a_text(self):
        self.desk.deliver("you", "1-1", "2-1")
        self.assertEqual(self.settle(End("1-1", fields={"text": ""}, stream="s", tokens=0), End("2-1", "error", stream="s")), [-1, 1, 0, 0])
        self.assertEqual([end["entry"] for end in self.desk.texts("s")], ["2-1"])

    def test_the_end_of_an_older_request_of_that_id(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.settle(End("2-1", reply="a", stream="s"))
        self.assertEqual(self.settle(End("1-1", reply="a", info={"finish_reason": "stop"}, stream="s")), [2, 0, 0])
        self.assertEqual(json.loads(self.desk.texts("s")[1]["info"]), {"entry": "1-1", "finish_reason": "stop"})

    def test_what_vanished_has_one_end(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.desk.do("XDEL", self.desk.stream(), "1-1", "2-1")
        self.desk.put_reply("2-1", "done", entry="2-1")
        self.assertEqual(self.settle(End("1-1", "gone", stream="s"), End("2-1", "gone", stream="s")), [1, 1, 0, 0])
        self.assertEqual([end["entry"] for end in self.desk.texts("s")], ["1-1"])

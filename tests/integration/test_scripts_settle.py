"""lua/settle.lua: replies, claimed names, results streams, lonely runs, dead letters, races."""
# ctest: redis
# ctest-once

import json
import random
import threading

from scripts import End, Park, ScriptCase, plain, refused

DAY_MS = 86400000


class Settle(ScriptCase):
    def settle(self, *ends, **options):
        return self.desk.run(self.desk.settle(*ends, **options))

    def retry(self, entry_id, name, carrier=None, workers="", which="normal"):
        """Adds an entry that claims `name`; in `trouble`, `carrier` has that name."""
        self.desk.add(entry_id, which, _id=name, _attempt="2", _first_at="1", text="again")
        self.desk.read("me", which)
        if carrier:
            self.client.hset(self.desk.key("trouble"), name, f"1 {len(workers.split())} {carrier}{workers and ' '}{workers}")

    # --- The reply ---

    def test_the_reply_and_nothing_else(self):
        self.desk.deliver("me", "1-1")
        self.assertEqual(self.settle(End("1-1", ttl_ms=60000)), [1, 0, 0])
        reply = self.desk.reply("1-1")
        now = self.now_ms()
        self.assertTrue(now - 60000 < int(reply.pop("done_at")) <= now)
        self.assertTrue(now - 60000 < int(reply.pop("queued_ms")) <= now)  # entry 1-1 dates from the clock's start
        self.assertEqual(reply, {"status": "done", "entry": "1-1", "model": "m", "revision": "r", "attempts": 1, "embedding": "v"})
        self.assertTrue(50000 < self.client.pttl(self.desk.key("reply:1-1")) <= 60000)
        self.assertEqual((self.desk.entries(), self.desk.owners()), ({}, {}))

    def test_what_nobody_has_read_is_not_ended(self):
        self.desk.add("1-1")
        self.assertEqual(self.settle(End("1-1")), [0, 0, 0])
        self.assertEqual((list(self.desk.entries()), self.desk.reply("1-1")), (["1-1"], {}))

    def test_a_vector_comes_from_any_holder(self):
        """It also clears the record of the owner's runs; a refusal may come from any worker, too."""
        self.desk.deliver("you", "1-1", "2-1")
        self.client.hset(self.desk.key("trouble"), mapping={"1-1": "x", "9-1": "y"})
        self.assertEqual(self.settle(End("1-1"), End("2-1", "error")), [1, 1, 0, 0])
        self.assertEqual(plain(self.client.hgetall(self.desk.key("trouble"))), {"9-1": "y"})
        self.assertEqual(self.desk.reply("2-1")["code"], "internal")

    def test_age_is_ms_then_sequence_then_class(self):
        for number, (there, name, result) in enumerate((
                ("5-1", "5-2", 1), ("5-2", "5-1", 2), ("5-10", "5-9", 2), (f"{2**64 - 1}-0", "5-1", 2),
                (f"5-{2**64 - 1}", f"5-{2**64 - 2}", 2), ("high:5-1", "5-1", 1), ("low:5-1", "5-1", 2), ("5-1", "5-1", 1),
                ("nonsense", "5-1", 1)), start=100):
            self.desk.deliver("me", f"{number}-1")
            self.desk.put_reply("a", "done", entry=there)
            self.assertEqual(self.settle(End(f"{number}-1", name=name, reply="a")), [result, 0, 0], (there, name))

    def test_replies_of_the_same_call_count(self):
        self.desk.deliver("me", "1-1", "2-1", "3-1")
        ends = (End("2-1", reply="a", info={"truncated": True}), End("3-1", reply="a"), End("1-1", reply="a"))
        self.assertEqual(self.settle(*ends), [1, 1, 2, 0, 0])
        self.assertEqual((self.desk.reply("a")["entry"], self.desk.reply("a").get("truncated")), ("3-1", None))

    def test_info_is_one_object(self):
        """Each member that the script adds is in its place, in every kind of reply, for names with a class too."""
        self.desk.deliver("me", "1-1", "2-1", "3-1", "4-1", which="low")
        self.client.set("doc:1", 'no hash')
        self.desk.stage(2)
        given = {"id": 'a "b"\\c', "meta": "\u00e4\n"}
        self.settle(End("1-1", first_ms=5, info=given, into=("doc:1", "v")), End("2-1", staged=2, info=given),
                    End("3-1", "error", first_ms=7, info=given), End("4-1", "dead", info=given), which="low")
        infos = [json.loads(self.client.hget(self.desk.key(f"reply:low:{number}-1"), "info")) for number in range(1, 5)]
        of_script = ["entry", "first_at", "done_at", "queued_ms", "id", "meta", "model", "revision", "into_error", "dead"]
        self.assertEqual([list(info) for info in infos], [[name for name in of_script if name not in left_out] for left_out in (
            ["dead"], ["first_at", "into_error", "dead"], ["queued_ms", "model", "revision", "into_error", "dead"],
            ["first_at", "queued_ms", "model", "revision", "into_error"])])
        self.assertEqual([info["entry"] for info in infos], [f"low:{number}-1" for number in range(1, 5)])
        self.assertEqual([info.get("first_at") for info in infos], [5, None, 7, None])
        self.assertEqual([{name: info[name] for name in given} for info in infos], [given] * 4)
        self.assertEqual({type(info[name]) for info in infos for name in ("done_at", "queued_ms") if name in info}, {int})
        (letter_id, letter), = self.client.xrange(self.desk.key("dead"))
        self.assertEqual((infos[3]["dead"], json.loads(letter[b"_info"])), (letter_id.decode(), given))

    def test_whatever_stood_at_the_key_is_replaced(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.client.set(self.desk.key("reply:1-1"), "junk")
        self.client.hset(self.desk.key("reply:2-1"), mapping={"old": "field", "status": "queued"})
        self.assertEqual(self.settle(End("1-1"), End("2-1")), [1, 1, 0, 0])
        self.assertEqual((self.desk.reply("1-1")["status"], self.desk.reply("2-1").get("old")), ("done", None))

    def test_a_staged_reply_becomes_the_reply(self):
        """It has its own TTL and replaces any value there. A late one does not, nor one for which there is a newer
        reply."""
        self.desk.deliver("me", *(f"{number}-1" for number in range(1, 5)))
        ends = [End(f"{number}-1", staged=self.desk.stage(number), ttl_ms=60000) for number in range(1, 5)]
        self.desk.do("XACK", self.desk.stream(), "sluice", "2-1")
        self.client.hset(self.desk.key("reply:3-1"), mapping={"status": "queued", "old": "field"})
        self.desk.put_reply("4-1", "done", entry="9-1")
        self.assertEqual(self.settle(*ends), [1, 0, 1, 2, 0, 0])
        self.assertEqual((self.desk.reply("1-1")["embedding"], self.desk.reply("3-1").get("old")), ("v", None))
        self.assertTrue(30000 < self.client.pttl(self.desk.key("reply:1-1")) <= 60000)
        self.assertEqual((self.desk.reply("2-1"), self.desk.reply("4-1"), self.desk.owners()), ({}, {"status": "done", "entry": "9-1"}, {}))

    def plain(self, *numbers, staged=True, **options):
        return [End(f"{number}-1", staged=self.desk.stage(number) if staged else None, plain=True, **options) for number in numbers]

    def test_plain_entries_get_the_same_reply(self):
        """With their result in the call or staged, also beside others, and whatever stood at their keys."""
        self.desk.deliver("me", *(f"{number}-1" for number in range(1, 7)))
        for number in (2, 4):
            self.desk.put_reply(f"{number}-1", "queued", old="field")
            self.client.set(self.desk.key(f"reply:{number - 1}-1"), "junk")
        plain = {"ttl_ms": 60000, "since_ms": 5}
        ends = [*self.plain(1, 2, **plain), *self.plain(3, 4, staged=False, **plain), *self.plain(5, **plain), End("6-1", notify="1")]
        self.assertEqual(self.settle(*ends), [1, 1, 1, 1, 1, 1, 0, 0])
        now = self.now_ms()
        for number in range(1, 6):
            reply = self.desk.reply(f"{number}-1")
            self.assertTrue(now - 60000 < int(reply.pop("done_at")) <= now)
            self.assertTrue(now - 60000 < int(reply.pop("queued_ms")) + 5 + number <= now)
            self.assertEqual(reply, {"status": "done", "entry": f"{number}-1", "model": "m", "revision": "r", "attempts": 1,
                                     "embedding": "v"})
            self.assertTrue(30000 < self.client.pttl(self.desk.key(f"reply:{number}-1")) <= 60000)
        self.assertEqual(self.client.lrange(self.desk.key("wake:6-1"), 0, -1), [b"6-1"])
        self.assertEqual((self.desk.entries(), self.desk.owners(), self.client.keys("*stage*")), ({}, {}, []))

    def test_plain_entries_are_ended_by_the_same_rules(self):
        """A vector comes from any holder. An entry that is no longer pending, or was not read, stays. A record of runs goes
        with its entry."""
        self.desk.deliver("me", "1-1", "2-1", "3-1", "5-1", "6-1")
        self.desk.do("XCLAIM", self.desk.stream(), "sluice", "you", 0, "3-1")
        self.desk.do("XACK", self.desk.stream(), "sluice", "2-1")
        self.desk.add("8-1")
        self.client.hset(self.desk.key("reply:2-1"), mapping={"status": "cancelled"})
        self.client.hset(self.desk.key("trouble"), mapping={"3-1": "1 0 3-1", "5-1": "1 0 7-7", "9-1": "y"})
        self.assertEqual(self.settle(*self.plain(1, 2, 3, 5, 8)), [1, 0, 1, 1, 0, 0, 0])
        self.assertEqual(self.desk.reply("2-1"), {"status": "cancelled"})
        self.assertEqual((list(self.desk.entries()), list(self.desk.owners())), (["2-1", "6-1", "8-1"], ["6-1"]))
        self.assertEqual((self.desk.reply("8-1"), sorted(self.client.keys("*stage*"))),
                         ({}, [b"sluice:{q}:stage:2-1", b"sluice:{q}:stage:8-1"]))
        self.assertEqual(plain(self.client.hgetall(self.desk.key("trouble"))), {"5-1": "1 0 7-7", "9-1": "y"})

    def test_a_plain_entry_costs_a_share_of_one_look_and_few_commands(self):
        self.desk.deliver("me", *(f"{number}-1" for number in range(1, 65)))
        self.assertEqual(self.calls(*self.plain(*range(1, 65)), runs=(64,)), {
            "time": 1, "xpending": 2, "rename": 64, "hset": 64, "pexpire": 64, "xrange": 1, "xtrim": 1, "xdel": 1, "xack": 1, "exists": 2})
        self.desk.deliver("me", *(f"{number}-1" for number in range(65, 129)))
        self.assertEqual(self.calls(*self.plain(*range(65, 129), staged=False)), {
            "time": 1, "xpending": 1, "hset": 64, "pexpire": 64, "xdel": 1, "xack": 1, "exists": 2})

    def calls(self, *ends, **options):
        """The commands of a settle, without EVAL itself."""
        self.client.config_resetstat()
        self.settle(*ends, **options)
        return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in self.client.info("commandstats").items()
                if name not in ("cmdstat_config|resetstat", "cmdstat_eval")}

    def trimmed(self, *ends, **options):
        return self.calls(*ends, **options).get("xtrim", 0)

    # --- Runs ---

    def test_runs_that_begin_the_stream_are_trimmed(self):
        """Entries after them stay: read or not, in the same ms or later."""
        self.desk.deliver("me", *(f"{number}-1" for number in range(1, 10)))
        self.desk.add("9-2")
        self.assertEqual(self.trimmed(*self.plain(1, 2, 3, staged=False), *self.plain(4, 5, 9), End("7-1"), runs=(3, 2)), 2)
        self.assertEqual((list(self.desk.entries()), list(self.desk.owners())), (["6-1", "8-1", "9-2"], ["6-1", "8-1"]))
        self.assertEqual(self.trimmed(*self.plain(6), End("8-1"), runs=(1,)), 1)
        self.assertEqual((list(self.desk.entries()), self.desk.read("me")), (["9-2"], ["9-2"]))

    def test_a_run_after_another_entry_is_not_trimmed(self):
        """Whether that one is unread, held or acknowledged by hand."""
        for last, entry in enumerate((lambda: None, lambda: self.desk.read("you"), lambda: self.desk.do(
                "XACK", self.desk.stream(), "sluice", *self.desk.read("you"))), start=1):
            self.client.flushall()
            self.desk.groups().add("1-1")
            entry()
            self.desk.do("XGROUP", "SETID", self.desk.stream(), "sluice", "1-1")
            self.desk.deliver("me", *(f"{number}-1" for number in range(2, 8)))
            self.assertEqual(self.trimmed(*self.plain(2, 3, 4, 6, 7), runs=(3, 2)), 0)
            self.assertEqual(list(self.desk.entries()), ["1-1", "5-1"], last)

    def test_what_is_pending_is_not_read(self):
        """The first entry of the stream may be large."""
        self.desk.deliver("you", "1-1")
        self.desk.deliver("me", "2-1", "3-1")
        self.assertNotIn("xrange", self.calls(*self.plain(2, 3), runs=(2,)))

    def test_a_second_run_waits_for_what_is_between(self):
        self.desk.deliver("me", *(f"{number}-1" for number in range(1, 8)))
        self.assertEqual(self.trimmed(*self.plain(1, 2, 3, 5, 6), runs=(3, 2)), 1)
        self.assertEqual((list(self.desk.entries()), list(self.desk.owners())), (["4-1", "7-1"], ["4-1", "7-1"]))

    def test_a_run_that_is_not_all_the_callers_is_not_trimmed(self):
        """An entry that nobody holds any more stays as it is; one that another worker took over ends here all the same."""
        for taken in (("XACK", self.desk.stream(), "sluice", "2-1"), ("XCLAIM", self.desk.stream(), "sluice", "you", 0, "2-1")):
            self.client.flushall()
            self.desk.groups().deliver("me", "1-1", "2-1", "3-1")
            self.desk.do(*taken)
            self.assertEqual(self.trimmed(*self.plain(1, 2, 3, staged=False), runs=(3,)), 0)
            self.assertEqual(list(self.desk.entries()), ["2-1"] if taken[0] == "XACK" else [])

    def test_a_run_ahead_of_the_clock_is_not_trimmed(self):
        """There an id may be another entry by now."""
        ahead = self.now_ms() + 60000
        self.desk.deliver("me", "1-1", f"{ahead}-1")
        self.assertEqual(self.trimmed(*self.plain(1, ahead), runs=(2,)), 0)
        self.assertEqual((self.desk.entries(), self.client.hget(self.desk.key("meta"), "ahead_normal")), ({}, str(ahead).encode()))

    def test_one_look_finds_what_is_pending(self):
        """It finds them in any order, also with other entries in between, held by the caller or by others; one that is
        gone is late."""
        ids = [f"{number}-1" for number in range(1, 31)]
        self.desk.deliver("me", *ids)
        self.desk.do("XCLAIM", self.desk.stream(), "sluice", "you", 0, "28-1", "29-1")
        self.desk.do("XACK", self.desk.stream(), "sluice", "2-1")
        ends = [End("30-1"), End("2-1"), End("28-1"), End("29-1", "fail"), End("1-1")]
        self.assertEqual(self.settle(*ends), [1, 0, 1, -1, 1, 0, 0])
        self.assertEqual(list(self.desk.owners()), [*ids[2:27], "29-1"])

    def test_entries_of_the_caller_cost_one_look(self):
        self.desk.deliver("me", "1-1", "2-1", "3-1")
        self.client.config_resetstat()
        self.settle(End("2-1"), End("1-1"), End("3-1"))
        self.assertEqual(self.client.info("commandstats")["cmdstat_xpending"]["calls"], 1)

    def test_a_vector_goes_into_another_hash_too(self):
        """The vector may be plain or staged, or of a reply that the same call's next one replaces, but not of a late
        reply."""
        self.desk.deliver("me", *(f"{number}-1" for number in range(1, 7)))
        vector = lambda text: {"embedding": text}
        ends = [End("1-1", fields=vector("one"), into=("doc:1", "v"), notify="1"), End("2-1", fields=vector("two")),
                End("3-1", staged=self.desk.stage(3, embedding="three"), into=("doc:3", "embedding")),
                End("4-1", fields=vector("four"), reply="a", into=("doc:4", "v")),
                End("5-1", fields=vector("five"), reply="a", into=("doc:5", "v")),
                End("6-1", fields=vector("six"), reply="b", into=("doc:1", "v"))]
        self.client.hset("doc:1", mapping={"v": "old", "title": "t"})
        self.desk.put_reply("b", "done", entry="9-1")
        self.assertEqual(self.settle(*ends), [1, 1, 1, 1, 1, 2, 0, 0])
        self.assertEqual(plain([self.client.hgetall(f"doc:{number}") for number in (1, 3, 4, 5)]),
                         [{"v": "one", "title": "t"}, {"embedding": "three"}, {"v": "four"}, {"v": "five"}])
        self.assertEqual((self.client.ttl("doc:3"), self.desk.reply("a")["embedding"]), (-1, "five"))
        self.assertEqual(self.settle(*ends), [0] * 8)
        self.assertEqual(self.client.lrange(self.desk.key("wake:1-1"), 0, -1), [b"1-1"])

    def test_another_hash_that_cannot_be_written_harms_nobody(self):
        """The hash has a wrong type, or the worker has no right to it."""
        self.desk.deliver("me", "1-1", "2-1", "3-1")
        self.client.set("doc:1", "text")
        self.client.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~sluice:*", "~doc:*", "+@all")
        client = self.server.client(username="worker", password="pw")
        ends = (End("1-1", into=("doc:1", "v")), End("2-1", into=("other:2", "v")), End("3-1", into=("doc:3", "v")))
        self.assertEqual(self.desk.run(self.desk.settle(*ends), client), [1, 1, 1, 0, 0])
        self.assertIn("WRONGTYPE", self.desk.reply("1-1")["into_error"])
        self.assertRegex(self.desk.reply("2-1")["into_error"], "access")
        self.assertEqual((self.client.get("doc:1"), self.client.exists("other:2"), self.client.hget("doc:3", "v")), (b"text", 0, b"v"))
        self.assertEqual((self.desk.entries(), self.desk.reply("3-1").get("into_error")), ({}, None))

    def test_gone_only_when_the_message_is_gone(self):
        self.desk.deliver("you", "1-1", "2-1")
        self.assertEqual(self.settle(End("1-1", "gone")), [-1, 0, 0])
        self.client.xdel(self.desk.stream(), "1-1", "2-1")
        self.desk.put_reply("2-1", "done", entry="2-1")
        self.assertEqual(self.settle(End("1-1", "gone"), End("2-1", "gone")), [1, 1, 0, 0])
        self.assertEqual((self.desk.reply("1-1")["code"], self.desk.reply("2-1")["status"]), ("internal", "done"))
        self.assertEqual(self.desk.owners(), {})

    # --- Whose name is it? ---

    def test_a_name_is_its_carriers(self):
        self.retry("7-1", "1-1", carrier="7-1")
        self.assertEqual(self.settle(End("7-1", name="1-1", claims=True)), [1, 0, 0])
        self.assertEqual(self.desk.reply("1-1")["entry"], "1-1")
        self.assertIsNone(self.desk.trouble("1-1"))

    def test_a_forged_name_changes_nothing(self):
        """A name unknown to trouble, carried by another entry, or of another class is forged."""
        for number, (name, carrier) in enumerate([("1-1", None), ("1-2", "6-6"), ("high:1-3", None)], start=20):
            self.retry(f"{number}-1", name, carrier)
        self.client.hset(self.desk.key("trouble"), "high:1-3", "1 0 22-1")
        before = self.desk.dump()
        ends = [End("20-1", name="1-1", claims=True), End("21-1", "dead", "1-2", claims=True, notify="hits"),
                End("22-1", "fail", "high:1-3", claims=True)]
        self.assertEqual(self.settle(*ends), [-3, -3, -3, 0, 0])
        self.assertEqual(self.desk.dump(), before)

    def test_after_a_forgery_it_ends_under_its_own_name(self):
        self.retry("7-1", "1-1")
        self.assertEqual(self.settle(End("7-1", name="1-1", claims=True)), [-3, 0, 0])
        self.assertEqual(self.settle(End("7-1")), [1, 0, 0])
        self.assertEqual(self.desk.reply("7-1")["status"], "done")
        self.assertEqual(self.desk.reply("1-1"), {})

    def test_a_forgery_does_not_end_a_request(self):
        """A parked request stays parked, whatever a producer writes under its name."""
        self.desk.deliver("me", "1-1")
        self.desk.run(self.desk.defer(Park("1-1", delay_ms=3600000)))
        self.retry("7-1", "1-1")
        self.assertEqual(self.settle(End("7-1", name="1-1", claims=True)), [-3, 0, 0])
        self.assertEqual(self.desk.places("1-1")["parked"], 1)
        self.assertEqual(self.desk.trouble("1-1"), "1 0 1-1")

    def test_a_trouble_key_of_a_wrong_type_believes(self):
        self.retry("7-1", "1-1")
        self.client.set(self.desk.key("trouble"), "junk")
        self.assertEqual(self.settle(End("7-1", name="1-1", claims=True)), [1, 2, 0])

    def test_a_name_is_only_asked_after_when_it_is_claimed(self):
        """For a plain request trouble is not read."""
        self.desk.deliver("me", "1-1")
        self.client.config_resetstat()
        self.settle(End("1-1"))
        self.assertNotIn("cmdstat_hget", self.client.info("commandstats"))
        self.assertNotIn("cmdstat_xrange", self.client.info("commandstats"))

    # --- Lonely runs ---

    def test_who_lost_an_entry_takes_its_lonely_run_back(self):
        self.desk.deliver("me", "1-1")
        self.desk.run(self.desk.charge("1-1"))
        self.client.hset(self.desk.key("trouble"), "1-1", "0 2 1-1 dead,me")
        self.desk.do("XCLAIM", self.desk.stream(), "sluice", "you", 0, "1-1")
        for kind in ("fail", "dead"):
            self.assertEqual(self.settle(End("1-1", kind)), [-1, 0, 0])
            self.assertEqual(self.desk.trouble("1-1"), "0 1 1-1 dead")
        self.assertEqual(self.desk.owners(), {"1-1": "you"})
        self.assertEqual(self.desk.reply("1-1"), {})

    def test_a_late_answer_takes_back_its_own_run_of_that_entry_only(self):
        """The group may have been created again meanwhile: the entry is not pending, but still in its stream."""
        for record, after in (("0 2 1-1 dead,me", "0 1 1-1 dead"), ("0 1 1-1 me", "0 0 1-1"), ("0 1 1-1 dead", "0 1 1-1 dead"),
                              ("1 1 7-1 me", "1 1 7-1 me")):
            self.client.hset(self.desk.key("trouble"), "1-1", record)
            self.assertEqual(self.settle(End("1-1", "fail")), [0, 0, 0])
            self.assertEqual(self.desk.trouble("1-1"), after)

    # --- Results streams ---

    def test_results_stream(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.assertEqual(self.settle(End("1-1", notify="hits", reply="a"), End("2-1", "error", notify="hits")), [1, 1, 0, 0])
        stream = self.desk.key("results:hits")
        self.assertEqual([plain(fields) for _, fields in self.client.xrange(stream)],
                         [{"id": "a", "status": "done", "entry": "1-1"}, {"id": "2-1", "status": "error", "entry": "2-1"}])
        self.assertAlmostEqual(self.client.pttl(stream), DAY_MS, delta=60000)

    def test_an_older_request_is_told_too(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.settle(End("2-1", reply="a"))
        self.assertEqual(self.settle(End("1-1", notify="hits", reply="a")), [2, 0, 0])
        self.assertEqual(plain(self.client.xrange(self.desk.key("results:hits"))[0][1])["entry"], "1-1")
        self.assertEqual(self.desk.reply("a")["entry"], "2-1")

    def test_a_results_stream_is_cut_to_its_length(self):
        pipe = self.client.pipeline(transaction=False)
        for i in range(100200):
            pipe.xadd(self.desk.key("results:hits"), {"id": "x"}, f"1-{i + 1}")
        pipe.execute()
        self.desk.deliver("me", "1-1")
        self.settle(End("1-1", notify="hits"))
        self.assertLess(self.client.xlen(self.desk.key("results:hits")), 100201)

    def test_side_keys_whose_ids_are_used_up_are_skipped(self):
        for suffix in ("dead", "results:hits"):
            self.client.xadd(self.desk.key(suffix), {"x": "y"}, f"{2**64 - 1}-{2**64 - 1}")
        self.desk.deliver("me", "1-1")
        self.assertEqual(self.settle(End("1-1", "dead", notify="hits")), [1, 2, 0])
        self.assertEqual(self.desk.reply("1-1")["status"], "error")
        self.assertNotIn("dead", self.desk.reply("1-1"))

    def test_a_missing_right_is_no_side_matter(self):
        """Without it the waiter would not be notified: the entry stays pending until the right is granted."""
        self.client.acl_setuser("worker", enabled=True, passwords=["+x"], commands=["+@all", "-rpush"], keys=["*"])
        self.desk.deliver("me", "1-1")
        call = self.desk.settle(End("1-1", notify="1"))
        self.assertIn("NOPERM the user may not RPUSH sluice:{q}:wake:1-1", refused(self.server.client(username="worker", password="x"), call))
        self.assertEqual(self.desk.owners(), {"1-1": "me"})
        self.assertEqual(self.desk.run(call), [1, 0, 0])
        self.assertEqual(self.client.lrange(self.desk.key("wake:1-1"), 0, -1), [b"1-1"])

    # --- Dead letters ---

    def test_poison_keeps_its_body(self):
        """Only the producer's fields are kept: those that a retry added are not part of the request."""
        self.retry("1-1", "1-1", carrier="1-1")
        self.settle(End("1-1", "dead", fields={"code": "poison", "message": "it crashed"}))
        (_, letter), = self.client.xrange(self.desk.key("dead"))
        self.assertEqual(plain(letter), {"_entry": "1-1", "_info": '{"attempts": 1}', "_code": "poison", "_message": "it crashed", "text": "again"})

    def letters(self):
        return [plain(fields) for _, fields in self.client.xrange(self.desk.key("dead"))]

    def bury(self, entry_id, **fields):
        self.desk.add(entry_id, **fields)
        self.desk.read("me")
        return self.settle(End(entry_id, "dead", fields={"code": "internal"}))

    def test_a_long_body_is_cut_and_marked(self):
        """Short fields stay whole, wherever they are, and long ones keep their beginning."""
        self.assertEqual(self.bury("1-1", text="a" * 60000, meta="b" * 10000, id="mine"), [1, 0, 0])
        letter, = self.letters()
        self.assertEqual((letter["id"], letter["_cut"], letter["_entry"]), ("mine", "70014", "1-1"))
        self.assertEqual(letter["text"], "a" * 60000)
        self.assertEqual(letter["meta"], "b" * (65536 - 60000 - len("textmetaidmine")))
        dead_id, = (entry_id for entry_id, _ in self.client.xrange(self.desk.key("dead")))
        before = self.desk.dump()
        self.assertEqual(self.desk.run(self.desk.requeue(dead_id)), [-2])
        self.assertEqual(self.desk.dump(), before)

    def test_a_body_that_fits_is_kept_whole(self):
        self.assertEqual(self.bury("1-1", text="a" * 65532), [1, 0, 0])
        self.assertEqual(self.letters()[0], {"_entry": "1-1", "_info": '{"attempts": 1}', "_code": "internal", "text": "a" * 65532})

    def test_letters_are_bounded_by_their_bytes(self):
        """The oldest letters are removed to make room for the newest; bytes of letters deleted in between do not
        count."""
        for number in range(3, 6):
            self.bury(f"{number}-1", text="x" * 1000)
        first, second, third = self.letters()
        size = len('_entry3-1_info{"attempts": 1}_codeinternaltext') + 1000
        self.assertEqual((first.get("_offset"), second["_offset"]), (None, str(size)))
        self.assertEqual(int(third["_offset"]), 2 * size + len("_offset") + len(str(size)))
        self.client.xadd(self.desk.key("dead"), {"_entry": "6-1", "_offset": 2**28 - 200})
        self.assertEqual(self.bury("7-1", text="x" * 1000), [1, 0, 1])
        self.assertEqual([letter["_entry"] for letter in self.letters()], ["4-1", "5-1", "6-1", "7-1"])

    def test_short_letters_make_room_for_a_long_one(self):
        for number in range(400):
            self.client.xadd(self.desk.key("dead"), {"_offset": 1000 + 170 * number, "x": "y" * 150})
        self.client.xadd(self.desk.key("dead"), {"_offset": 2**28})
        self.bury("7-1", text="x" * 66000)
        letters = self.letters()
        size = sum(len(key) + len(value) for key, value in letters[-1].items())
        self.assertLessEqual(int(letters[-1]["_offset"]) + size - int(letters[0]["_offset"]), 2**28)
        self.assertGreater(len(letters), 2)

    # --- Wake tokens ---

    def test_wake_tokens_that_nobody_fetches_do_not_grow(self):
        """With the same id again and again, the last 16 are kept."""
        ids = [f"{number}-1" for number in range(1, 41)]
        self.desk.deliver("me", *ids)
        for part in (ids[:30], ids[30:]):
            self.settle(*(End(i, notify="1", reply="mine") for i in part))
        self.assertEqual(plain(self.client.lrange(self.desk.key("wake:mine"), 0, -1)), ids[-16:])

    def test_old_letters_are_trimmed_and_counted(self):
        now = int(self.client.time()[0]) * 1000
        pipe = self.client.pipeline(transaction=False)
        for i in range(300):
            pipe.xadd(self.desk.key("dead"), {"x": "y"}, f"{now - 31 * DAY_MS}-{i}")
        pipe.execute()
        self.desk.deliver("me", "1-1")
        result = self.settle(End("1-1", "dead"))
        self.assertEqual(result[:2], [1, 0])
        self.assertGreaterEqual(result[2], 200)  # Redis trims whole nodes of the stream
        self.assertEqual(self.client.xlen(self.desk.key("dead")), 301 - result[2])

    # --- Races ---

    def test_two_workers_race_and_one_wins(self):
        """Two clients settle each entry at once, in different orders: one answer per entry is 1, the other late."""
        ids = [f"{i}-1" for i in range(1, 401)]
        self.desk.deliver("me", *ids)
        answers = {"me": {}, "you": {}}

        start = threading.Barrier(len(answers))

        def work(consumer, order):
            with self.server.client() as client:
                client.ping()
                start.wait()
                for at in range(0, len(order), 8):
                    part = order[at:at + 8]
                    call = self.desk.settle(*(End(i, info={"by": consumer}) for i in part), consumer=consumer)
                    answers[consumer].update(zip(part, call.run(client)))

        chance = random.Random(7)
        orders = [chance.sample(ids, len(ids)) for _ in answers]
        threads = [threading.Thread(target=work, args=pair) for pair in zip(answers, orders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in ids:
            pair = (answers["me"][i], answers["you"][i])
            self.assertEqual(sorted(pair), [0, 1], i)
            self.assertEqual(self.desk.reply(i)["by"], "me" if pair[0] else "you")
        self.assertEqual(self.client.xlen(self.desk.stream()), 0)
        self.assertTrue(0 < sum(answers["me"].values()) < len(ids), "there was no race")

"""Scripts that take entries for a worker, or give them back: reclaim, release, charge, shed, fair, sweep; join and renew."""
# ctest: redis
# ctest-once

from scripts import End, Park, ScriptCase, plain


class Take(ScriptCase):
    def run_call(self, script, *arguments, **options):
        return self.desk.run(getattr(self.desk, script)(*arguments, **options))

    def taken(self, answer):
        """Returns the ids of the entries in an answer."""
        return [entry[0] for entry in answer[0]]

    def consumers(self):
        return {plain(consumer["name"]) for consumer in self.client.xinfo_consumers(self.desk.stream(), "sluice")}

    def crowd(self, *tenants, which="normal", **fields):
        for i, tenant in enumerate(tenants, start=1):
            more = {"tenant": tenant} if tenant else {}
            self.desk.add(f"{i}-1", which, text="hello", **more, **fields)

    # --- join, renew ---

    def test_join_pins_protocol_and_model(self):
        self.assertEqual(self.run_call("join", model="a"), [1, ""])
        self.assertEqual(plain(self.client.hgetall(self.desk.key("meta"))), {"protocol": "1", "model_id": "a", "model": "name of a",
                                                                               "model_facts": "{}"})
        self.assertEqual(self.run_call("join", model="b", me="you"), [-2, "a (name of a)"])
        self.client.hdel(self.desk.key("meta"), "model")  # a queue of an earlier version does not have it
        self.assertEqual(self.run_call("join", model="b", me="you"), [-2, "a"])
        self.client.hset(self.desk.key("meta"), "protocol", 2)
        self.assertEqual(self.run_call("join", model="a", me="you"), [-1, "2"])
        self.assertFalse(self.client.exists(self.desk.key("alive:you")))

    def test_a_lease_is_of_who_has_taken_it(self):
        for token, joins in (("token", 1), ("token", 1), ("twin", 0)):
            self.assertEqual(self.run_call("join", token, lease_ms=60000), [joins, ""])
        self.assertEqual([self.run_call("renew", token, lease_ms=900000) for token in ("twin", "token")], [0, 1])
        self.assertGreater(self.client.pttl(self.desk.key("alive:me")), 800000)
        self.client.delete(self.desk.key("alive:me"))
        self.assertEqual(self.run_call("renew"), 0)
        self.assertFalse(self.client.exists(self.desk.key("alive:me")))

    # --- address ---

    def test_where_an_answer_goes(self):
        """The answer has only well-formed fields, no text, and no name of another request."""
        fields = {"text": "x" * 100000, "id": "mine", "notify": "1", "ttl": "60", "tenant": "a b", "_id": "9-9"}
        self.desk.add("1-1", **fields)
        self.desk.add("2-1", "low", id="x" * 129, inputs="[]")
        self.assertEqual(self.run_call("address", "1-1"), [[["1-1", 3, 0, ["id", "mine", "notify", "1", "ttl", "60"]]], [], [], 0])
        self.assertEqual(self.run_call("address", "2-1", which="low"), [[["2-1", 3, 0, []]], [], [], 0])
        self.assertEqual(self.run_call("address", "3-1"), [[], ["3-1"], [], 0])

    # --- reclaim ---

    def test_a_dead_consumer_is_deleted_when_it_holds_nothing(self):
        self.desk.deliver("dead", "1-1", "2-1")
        self.assertEqual((self.taken(answer := self.run_call("reclaim", "dead", most=1)), answer[3:]), (["1-1"], [1, ["dead"]]))
        self.assertEqual(self.consumers(), {"dead", "me"})
        self.assertEqual((self.taken(answer := self.run_call("reclaim", "dead", most=1)), answer[3:]), (["2-1"], [0, []]))
        self.assertEqual(self.consumers(), {"me"})

    def test_no_more_than_some_bytes(self):
        """An entry larger than a call may return is also taken, and only its id is returned."""
        for number in range(1, 5):
            self.desk.add(f"{number}-1", text="x" * 100 if number == 2 else "hello")
        self.desk.read("dead")
        entries, vanished, oversized, more, _ = self.run_call("reclaim", "dead", most_bytes=20)
        self.assertEqual(([entry[0] for entry in entries], vanished, oversized, more), (["1-1", "3-1"], [], ["2-1"], 1))
        self.assertEqual(self.desk.owners(), {"1-1": "me", "2-1": "me", "3-1": "me", "4-1": "dead"})

    def test_what_is_too_large_and_ahead_of_the_clock_can_be_ended(self):
        """Only its owner may end it, so reclaim makes the caller its owner."""
        self.desk.deliver("released", "9999999999999-1")
        self.assertEqual(self.run_call("reclaim", "released", most_bytes=5), [[], [], ["9999999999999-1"], 0, []])
        self.assertEqual(self.run_call("settle", End("9999999999999-1", "error"))[0], 1)

    def test_released_entries_can_be_suspect(self):
        """One worker gave it back while the open run of another, which crashed, is still recorded."""
        self.desk.deliver("released", "1-1", "2-1")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 2 1-1 a,b")
        self.assertEqual(self.run_call("reclaim", "released")[0],
                         [["1-1", 0, 2, ["text", "hello"]], ["2-1", 0, 0, ["text", "hello"]]])

    def test_a_key_named_released_alive_means_nothing(self):
        self.desk.deliver("released", "1-1")
        self.client.set(self.desk.key("alive:released"), "x")
        self.assertEqual(self.taken(self.run_call("reclaim", "released")), ["1-1"])

    def test_lonely_runs_of_another_entry_are_not_held_against_a_forgery(self):
        self.desk.add("7-1", _id="1-1", text="x")
        self.desk.read("dead")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 3 1-1 a,b,c")
        self.assertEqual(self.run_call("reclaim", "dead")[0][0][:3], ["7-1", 1, 0])

    def test_lonely_runs_follow_a_retry(self):
        self.desk.add("7-1", "low", _id="low:1-1", text="x")
        self.desk.read("dead", "low")
        self.client.hset(self.desk.key("trouble"), "low:1-1", "1 1 7-1 dead")
        self.assertEqual(self.run_call("reclaim", "dead", which="low")[0][0][:3], ["7-1", 1, 1])

    def test_the_first_of_two_names_counts(self):
        """The worker's parser goes by the first, too."""
        self.client.execute_command("XADD", self.desk.stream("normal"), "7-1", "_id", "1-1", "_id", "2-2", "text", "x")
        self.desk.read("dead")
        self.client.hset(self.desk.key("trouble"), "1-1", "1 1 7-1 dead")
        self.assertEqual(self.run_call("reclaim", "dead")[0][0][:3], ["7-1", 1, 1])

    def test_consumers_that_cannot_have_a_lease(self):
        """They come after consumers that can, and are never alive."""
        self.desk.deliver("lives", "1-1")
        self.desk.deliver("dead", "2-1")
        self.desk.deliver("x" * 500, "3-1")
        self.client.set(self.desk.key("alive:lives"), "token")
        self.assertEqual(self.taken(self.run_call("reclaim", "lives", "dead", leaseless=["x" * 500])), ["2-1", "3-1"])
        self.assertEqual(self.consumers(), {"lives", "me"})

    def test_reclaim_never_takes_its_own(self):
        self.desk.deliver("me", "1-1")
        self.assertEqual(self.run_call("reclaim", "me"), [[], [], [], 0, []])
        self.assertEqual(self.consumers(), {"me"})

    def test_delivery_counts_stay(self):
        """They rise with each read of the own list, so nothing may depend on them."""
        self.desk.deliver("dead", "1-1")
        self.run_call("reclaim", "dead")
        entry, = self.client.xpending_range(self.desk.stream(), "sluice", "-", "+", 10)
        self.assertEqual((plain(entry["consumer"]), entry["times_delivered"]), ("me", 1))

    # --- charge ---

    def test_charge_counts_each_worker_once(self):
        self.desk.deliver("me", "1-1")
        for expected in (1, 1):
            self.assertEqual(self.run_call("charge", "1-1"), [expected])
        self.desk.do("XCLAIM", self.desk.stream(), "sluice", "you", 0, "1-1")
        self.assertEqual(self.run_call("charge", "1-1", consumer="you"), [2])
        self.assertEqual(self.desk.trouble("1-1"), "0 2 1-1 me,you")
        self.desk.do("XCLAIM", self.desk.stream(), "sluice", "me", 0, "1-1")
        self.assertEqual(self.run_call("charge", "1-1"), [2])
        self.assertEqual(self.desk.trouble("1-1"), "0 2 1-1 you,me")

    def test_charge_of_what_is_not_ours(self):
        self.desk.deliver("you", "1-1")
        self.assertEqual(self.run_call("charge", "1-1", "9-9"), [0, 0])
        self.assertEqual(self.client.exists(self.desk.key("trouble")), 0)

    def test_charge_without_a_record_goes_by_the_owner(self):
        """A trouble key of a wrong type does not prevent a charge."""
        self.desk.deliver("me", "1-1")
        self.desk.deliver("you", "2-1")
        self.client.set(self.desk.key("trouble"), "junk")
        self.assertEqual(self.run_call("charge", "1-1", "2-1"), [1, 0])

    def test_charge_of_what_was_taken_away_takes_back_a_run_that_never_began(self):
        """The answer to the first call was lost, then the entry was taken by another."""
        self.desk.deliver("me", "1-1")
        self.run_call("charge", "1-1")
        self.desk.do("XCLAIM", self.desk.stream(), "sluice", "you", 0, "1-1")
        self.assertEqual(self.run_call("charge", "1-1"), [0])
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 1 7-1 me")
        self.assertEqual(self.run_call("charge", "1-1"), [0])
        self.assertEqual(self.desk.trouble("1-1"), "0 1 7-1 me", "the run of another entry")

    def test_charge_of_a_forged_name(self):
        self.desk.add("7-1", _id="1-1", text="x")
        self.desk.read("me")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 1 1-1 a")
        self.assertEqual(self.run_call("charge", ("7-1", "1-1")), [-3])
        self.assertEqual(self.run_call("charge", ("7-1", "9-1")), [-3])
        self.assertEqual(plain(self.client.hgetall(self.desk.key("trouble"))), {"1-1": "0 1 1-1 a"})
        self.assertEqual(self.run_call("charge", "7-1"), [1])

    def test_poison_is_three_workers_that_died(self):
        """Each worker charges a run, dies, and the next takes the entry; the fourth sees three runs."""
        self.desk.deliver("w1", "1-1")
        for run, (worker, heir) in enumerate(zip(("w1", "w2", "w3"), ("w2", "w3", "w4")), start=1):
            self.assertEqual(self.run_call("charge", "1-1", consumer=worker), [run])
            entries, *_ = self.run_call("reclaim", worker, me=heir)
            self.assertEqual(entries, [["1-1", 1, run, ["text", "hello"]]])

    def test_ten_deploys_charge_nobody(self):
        """A worker starts the entry's lonely run, is stopped and gives the entry back: no run stays open."""
        self.desk.deliver("released", "1-1")
        for deploy in range(10):
            me = f"w{deploy}"
            self.client.set(self.desk.key(f"alive:{me}"), "token")
            self.assertEqual(self.run_call("reclaim", "released", me=me)[0][0][:3], ["1-1", 0, 0])
            self.assertEqual(self.run_call("charge", "1-1", consumer=me), [1])
            self.assertEqual(self.run_call("release", "1-1", me=me, last=2), [1, 1, 0])
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1")

    def test_a_group_is_on_record_until_it_ends(self):
        self.desk.deliver("me", "1-1", "2-1", "3-1")
        self.assertEqual(self.run_call("charge", "1-1", "2-1", "9-9", how="group"), [1, 1, 0])
        self.assertEqual(self.run_call("charge", "1-1", "2-1", how="group"), [1, 1], "repeated, not run twice")
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1 +me")
        self.run_call("release", "1-1")
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1")
        self.run_call("settle", End("2-1"))
        self.assertIsNone(self.desk.trouble("2-1"))

    def test_who_crashed_in_a_group_runs_alone(self):
        self.desk.deliver("dead", "1-1", "2-1")
        self.run_call("charge", "1-1", consumer="dead", how="group")
        entries, *_ = self.run_call("reclaim", "dead")
        self.assertEqual([entry[:3] for entry in entries], [["1-1", 1, -1], ["2-1", 1, 0]])
        self.assertEqual(self.run_call("charge", "1-1", "2-1", how="group"), [-8, 1])
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1 +dead 1")
        self.assertEqual(self.run_call("charge", "1-1"), [1], "a run in a group is no lonely run")
        self.assertEqual(self.desk.trouble("1-1"), "0 1 1-1 +dead,me")
        self.assertEqual(self.run_call("reclaim", "me", me="heir")[0][0][:3], ["1-1", 1, 1])

    def test_records_of_before_there_were_groups(self):
        self.desk.deliver("me", "1-1")
        self.client.hset(self.desk.key("trouble"), "1-1", "1 2 1-1 a,b")
        self.assertEqual(self.run_call("charge", "1-1", how="group"), [-8])
        self.assertEqual(self.run_call("charge", "1-1", attempt=2), [3])
        self.assertEqual(self.desk.trouble("1-1"), "1 3 1-1 a,b,me")

    # --- takeovers ---

    def take_over(self, worker, heir):
        return self.run_call("reclaim", worker, me=heir)

    def test_the_tenth_takeover_is_answered_unread(self):
        """Ten workers die of it, each before it has charged a run."""
        self.desk.add("1-1", text="deadly", id="order 42/b", notify="1", ttl="60", tenant="a", meta="m")
        self.desk.read("w0")
        for number in range(1, 10):
            how = 1 if number <= 3 else 2
            self.assertEqual(self.take_over(f"w{number - 1}", f"w{number}")[0][0][:3], ["1-1", how, 0])
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1 - 9")
        self.assertEqual(self.take_over("w9", "me")[0],
                         [["1-1", 3, 0, ["id", "order 42/b", "notify", "1", "ttl", "60", "tenant", "a"]]])
        told = {"code": "poison", "message": "x"}
        self.assertEqual(self.run_call("settle", End("1-1", "dead", reply="order 42/b", notify="1", fields=told)), [1, 0, 0])
        letter = dict(self.client.xrange(self.desk.key("dead"))).popitem()[1]
        self.assertEqual(letter[b"text"], b"deadly", "the dead letter has the body")
        self.assertEqual(self.desk.reply("order 42/b")["code"], "poison")
        self.assertFalse(self.client.exists(self.desk.key("trouble")))

    def test_who_was_taken_over_often_comes_alone(self):
        self.desk.deliver("dead", "1-1", "2-1", "3-1", "4-1")
        for name in ("2-1", "3-1"):
            self.client.hset(self.desk.key("trouble"), name, f"0 0 {name} - 3")
        self.assertEqual((self.taken(answer := self.run_call("reclaim", "dead")), answer[3]), (["1-1"], 1))
        self.assertEqual((self.taken(answer := self.run_call("reclaim", "dead")), answer[3]), (["2-1"], 1))
        self.assertEqual((self.taken(answer := self.run_call("reclaim", "dead")), answer[3]), (["3-1"], 1))
        self.assertEqual((self.taken(answer := self.run_call("reclaim", "dead")), answer[3]), (["4-1"], 0))

    def test_a_charge_ends_the_count(self):
        """A bystander in many kills is charged in between, which proves that it has been read."""
        self.desk.deliver("w0", "1-1")
        for number in range(1, 30):
            how = self.take_over(f"w{number - 1}", f"w{number}")[0][0][1]
            self.assertEqual(how, 1)
            if number % 3 == 0:
                self.run_call("charge", "1-1", consumer=f"w{number}", how="group")
                self.run_call("release", "1-1", me=f"w{number}")
                self.desk.do("XCLAIM", self.desk.stream(), "sluice", f"w{number}", "0", "1-1")

    def test_takeovers_follow_a_retry_and_no_forgery(self):
        self.desk.add("7-1", "low", _id="low:1-1", text="x")
        self.desk.add("8-1", "low", _id="low:1-1", text="forged")
        self.desk.read("w0", "low")
        self.client.hset(self.desk.key("trouble"), "low:1-1", "1 0 7-1")
        self.run_call("reclaim", "w0", me="w1", which="low")
        self.assertEqual(plain(self.client.hgetall(self.desk.key("trouble"))),
                         {"low:1-1": "1 0 7-1 - 1", "low:8-1": "0 0 8-1 - 1"})

    def test_only_what_is_well_formed_is_told_of_what_is_not_read(self):
        self.desk.add("1-1", text="x", id="a\n", notify="x" * 72, ttl="1e9", tenant="\x00", traceparent="00-ff")
        self.desk.read("dead")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 0 1-1 - 9")
        self.assertEqual(self.run_call("reclaim", "dead")[0], [["1-1", 3, 0, ["traceparent", "00-ff"]]])

    def test_given_back_is_no_takeover(self):
        self.desk.deliver("released", "1-1")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 0 1-1 - 9")
        self.assertEqual(self.run_call("reclaim", "released")[0][0][:3], ["1-1", 0, 0])
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1 - 9")

    # --- release ---

    def test_release_of_one_stream_keeps_the_worker_signed_on(self):
        self.desk.deliver("me", "1-1")
        self.desk.deliver("me", "1-1", which="high")
        self.client.set(self.desk.key("alive:me"), "token")
        self.client.hset(self.desk.key("workers"), mapping={"me": "1 x 1", "command:me": "stop", "you": "1 x 1"})
        self.assertEqual(self.run_call("release", which="high", last=1), [1, 1, 0])
        self.assertEqual(self.client.exists(self.desk.key("alive:me")), 1)
        self.assertEqual(self.client.hlen(self.desk.key("workers")), 3)
        self.assertEqual(self.run_call("release", last=2), [1, 1, 0])
        self.assertEqual(self.client.exists(self.desk.key("alive:me")), 0)
        self.assertEqual(plain(self.client.hkeys(self.desk.key("workers"))), ["you"])
        self.assertEqual((self.desk.owners("high"), self.desk.owners()), ({"1-1": "released"}, {"1-1": "released"}))

    def test_release_of_what_is_anothers_or_gone(self):
        self.desk.deliver("me", "1-1")
        self.desk.deliver("you", "2-1")
        self.desk.deliver("me", "3-1")
        self.client.xdel(self.desk.stream(), "3-1")
        self.client.set(self.desk.key("alive:me"), "token")
        self.assertEqual(self.run_call("release", "2-1", last=2), [1, 0, 0])
        self.assertEqual(self.desk.owners(), {"1-1": "released", "2-1": "you", "3-1": "me"})
        self.assertFalse(self.client.exists(self.desk.key("alive:me")))

    def test_release_leaves_a_namesake_alone(self):
        self.desk.deliver("me", "1-1")
        self.client.set(self.desk.key("alive:me"), "twin")
        self.assertEqual(self.run_call("release", last=2), [0, 0, 0])
        self.assertEqual((self.client.get(self.desk.key("alive:me")), self.desk.owners()), (b"twin", {"1-1": "me"}))

    def test_release_takes_a_run_off_the_record_under_its_name(self):
        self.desk.add("2-1", _id="1-9", text="x")
        self.desk.read("me")
        self.client.set(self.desk.key("alive:me"), "token")
        self.client.hset(self.desk.key("trouble"), "1-9", "1 1 2-1 me")
        self.assertEqual(self.run_call("release", last=2), [1, 1, 0])
        self.assertEqual(self.desk.trouble("1-9"), "1 0 2-1")

    def test_release_without_last_is_about_its_ids_only(self):
        self.desk.deliver("me", "1-1", "2-1", "3-1")
        self.client.set(self.desk.key("alive:me"), "token")
        self.assertEqual(self.run_call("release", "2-1"), [1, 0, 0])
        self.assertEqual(self.desk.owners(), {"1-1": "me", "2-1": "released", "3-1": "me"})

    def test_release_of_many(self):
        self.desk.deliver("me", *(f"{i}-1" for i in range(1, 351)))
        self.client.set(self.desk.key("alive:me"), "token")
        self.assertEqual([self.run_call("release", last=2) for _ in range(6)], [[64, 0, 1]] * 5 + [[30, 1, 0]])
        self.assertEqual(set(self.desk.owners().values()), {"released"})

    def test_release_takes_back_only_its_own_lonely_run(self):
        self.desk.deliver("me", "1-1")
        self.client.hset(self.desk.key("trouble"), "1-1", "2 3 1-1 a,me,b")
        self.run_call("release", "1-1")
        self.assertEqual(self.desk.trouble("1-1"), "2 2 1-1 a,b")

    def test_release_of_a_forgery_leaves_the_record_alone(self):
        self.desk.add("7-1", _id="1-1", text="x")
        self.desk.read("me")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 1 1-1 me")
        self.assertEqual(self.run_call("release", "7-1"), [1, 0, 0])
        self.assertEqual(self.desk.trouble("1-1"), "0 1 1-1 me")

    # --- shed ---

    def test_shed_takes_the_newest_above_the_cap(self):
        self.crowd(*[""] * 10)
        answer = self.run_call("shed", 7)
        self.assertEqual((self.taken(answer), answer[3]), (["10-1", "9-1", "8-1"], 0))
        self.assertEqual(self.run_call("shed", 7)[:4], [[], [], [], 0])

    def test_shed_in_parts(self):
        self.crowd(*[""] * 10)
        answer = self.run_call("shed", 4, most=4)
        self.assertEqual((self.taken(answer), answer[3]), (["10-1", "9-1", "8-1", "7-1"], 1))
        answer = self.run_call("shed", 4, most=4, after=answer[4], before=answer[5])
        self.assertEqual((self.taken(answer), answer[3:]), (["6-1", "5-1"], [0, "10-1", "5-1"]))

    def test_shed_spares_what_was_read_and_retries(self):
        self.crowd(*[""] * 6)
        self.retry("8-1", "0-1")
        self.desk.read("you", count=3)
        self.assertEqual(self.taken(self.run_call("shed", 0)), ["6-1", "5-1", "4-1"])
        self.assertEqual(self.taken(self.run_call("shed", 0)), [])

    def retry(self, entry_id, name, carrier=None):
        self.desk.add(entry_id, _id=name, text="x")
        self.client.hset(self.desk.key("trouble"), name, f"1 0 {carrier or entry_id}")

    def test_shed_believes_no_forged_name(self):
        """An entry whose name is unknown to trouble, carried by another entry, or of another class is a request like
        any other."""
        for number, (name, carrier) in enumerate([("0-1", None), ("0-2", "5-5"), ("high:0-3", "3-1")], start=1):
            self.desk.add(f"{number}-1", _id=name, text="x")
            if carrier:
                self.client.hset(self.desk.key("trouble"), name, f"1 0 {carrier}")
        self.assertEqual(self.taken(self.run_call("shed", 1)), ["3-1", "2-1"])

    def test_shed_believes_names_while_trouble_has_a_wrong_type(self):
        self.retry("1-1", "0-1")
        self.client.set(self.desk.key("trouble"), "junk")
        self.assertEqual(self.taken(self.run_call("shed", 0)), [])

    def shed_all(self, cap, **options):
        """Calls shed as a worker does, until there is no more to take. Returns the cancels and the requests that it
        took."""
        after, before, more, calls, taken = "0-0", "0-0", 1, 0, []
        while more:
            answer = self.run_call("shed", cap, after=after, before=before, **options)
            taken += [(entry[0], "cancel" in entry[3][::2]) for entry in answer[0]]
            more, after, before = answer[3:]
            calls += 1
            self.assertLess(calls, 200)
        return [i for i, cancel in taken if cancel], [i for i, cancel in taken if not cancel]

    def test_cancels_count_as_nobodys_request(self):
        """There are many before and after the requests: requests within the cap stay, those above it are removed."""
        for i in range(1, 1201):
            self.desk.add(f"{i}-1", cancel="7-7")
        for i in range(2001, 2021):
            self.desk.add(f"{i}-1")
        for i in range(3001, 4201):
            self.desk.add(f"{i}-1", cancel="7-7")
        cancels, requests = self.shed_all(20)
        self.assertEqual((len(set(cancels)), requests), (2400, []))
        for i in range(5001, 5101):
            self.desk.add(f"{i}-1")
            self.desk.add(f"{i}-2", cancel="7-7")
        cancels, requests = self.shed_all(20)
        self.assertEqual((len(set(cancels)), requests), (100, [f"{i}-1" for i in range(5100, 5000, -1)]))

    def test_shed_looks_for_cancels_only_once(self):
        """It continues after the last id seen; if that is in the far future, from the beginning, because newer ids are
        smaller."""
        now = int(self.client.time()[0]) * 1000
        self.desk.add(f"{now}-1", cancel="7-7")
        self.desk.add(f"{now}-2")
        self.assertEqual(self.taken(self.run_call("shed", 2, after=f"{now}-1")), [])
        self.assertEqual(self.taken(self.run_call("shed", 2, after=f"{now + 3600000}-1")), [f"{now}-1"])

    def test_shed_keeps_within_its_bytes(self):
        for i in range(1, 6):
            self.desk.add(f"{i}-1", text="x" * (500 if i == 3 else 46))
        answer = self.run_call("shed", 0, most_bytes=120)
        self.assertEqual((self.taken(answer), answer[2:4]), (["5-1", "4-1"], [["3-1"], 1]), "one is too large to be read")
        answer = self.run_call("shed", 0, most_bytes=120, after=answer[4], before=answer[5])
        self.assertEqual((self.taken(answer), answer[2:4]), (["2-1", "1-1"], [[], 0]))

    def test_shed_looks_at_a_mebibyte_at_most(self):
        """The next call continues there."""
        for i in range(1, 9):
            self.desk.add(f"{i}-1", text="x" * 500000)
        answer = self.run_call("shed", 2, most_bytes=16000000)
        self.assertEqual((self.taken(answer), answer[3:]), ([], [1, "3-1", "0-0"]))
        self.assertEqual(self.shed_all(2, most_bytes=16000000), ([], [f"{i}-1" for i in range(8, 2, -1)]))

    def test_shed_gives_up_on_a_wall_of_retries(self):
        self.desk.add("1-1")
        for i in range(2, 402):
            self.retry(f"{i}-1", f"0-{i}")
        self.assertEqual(self.shed_all(0), ([], []))

    def test_shed_below_the_cap_and_on_nothing(self):
        self.crowd("", "")
        self.assertEqual(self.run_call("shed", 2), [[], [], [], 0, "2-1", "0-0"])
        self.client.delete(self.desk.stream("low"))
        self.assertEqual(self.run_call("shed", 0, which="low"), [[], [], [], 0, "0-0", "0-0"])

    def test_shed_entries_are_answered_once_even_if_read_meanwhile(self):
        self.crowd("", "")
        self.run_call("shed", 1)
        self.assertEqual(self.desk.read("you"), ["1-1", "2-1"])  # Redis hands the claimed one to the reader, too
        self.assertEqual(self.run_call("settle", End("2-1", "error")), [1, 0, 0])
        self.assertEqual(self.run_call("settle", End("2-1"), consumer="you"), [0, 0, 0])

    # --- A call reads 64 entries, and no more once it has seen 1 MiB ---

    LARGE, LARGE_BYTES = 40, 300 * 1024  # four of these are more than 1 MiB

    def large(self, count=LARGE, size=LARGE_BYTES, **fields):
        pipe = self.client.pipeline(transaction=False)
        for i in range(1, count + 1):
            pipe.xadd(self.desk.stream(), {"text": "x" * size, **fields}, f"{i}-1")
        pipe.execute()

    def read_by(self, call):
        """Returns how many messages a call reads, by Redis' own count of commands."""
        self.client.config_resetstat()
        answer = self.desk.run(call)
        stats = self.client.info("commandstats")
        return answer, sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("xrange", "xrevrange"))

    def test_each_look_at_large_entries_is_a_short_one(self):
        most_bytes = 16 << 20
        self.large(tenant="big")
        answer, read = self.read_by(self.desk.fair("big", most_bytes=most_bytes))
        self.assertEqual((answer, read), ([[], [], [], 1, "4-1"], 4))
        answer, read = self.read_by(self.desk.fair("other", most_bytes=most_bytes))
        self.assertEqual((len(answer[0]), answer[3:], read), (4, [1, "4-1"], 4))
        self.desk.read("dead", count=20)
        answer, read = self.read_by(self.desk.sweep(most_bytes=most_bytes))
        self.assertEqual((answer, read), ([[], [], [], 1, "4-1"], 4))
        answer, read = self.read_by(self.desk.reclaim("dead", most_bytes=most_bytes))
        self.assertEqual((len(answer[0]), answer[3:], read), (4, [1, ["dead"]], 4))

    def test_a_single_entry_above_the_bound_is_taken_alone(self):
        self.large(3, 2 << 20)
        self.desk.read("dead")
        answer, read = self.read_by(self.desk.reclaim("dead", most_bytes=16 << 20))
        self.assertEqual((self.taken(answer), answer[3:], read), (["1-1"], [1, ["dead"]], 1))
        self.assertEqual(self.taken(self.run_call("reclaim", "dead", most_bytes=16 << 20)), ["2-1"])

    def test_a_reclaim_of_none_says_who_is_left(self):
        self.desk.deliver("dead", "1-1")
        self.desk.deliver("released", "2-1")
        self.desk.deliver("slow", "3-1")
        self.client.set(self.desk.key("alive:slow"), "x")
        answer, read = self.read_by(self.desk.reclaim("released", "ahead", "dead", "slow", most=0))
        self.assertEqual((answer, read), ([[], [], [], 1, ["released", "dead"]], 0))
        self.assertEqual(self.desk.owners(), {"1-1": "dead", "2-1": "released", "3-1": "slow"})

    def test_reclaim_takes_64_at_most(self):
        self.desk.deliver("dead", *(f"{i}-1" for i in range(1, 101)))
        answer, read = self.read_by(self.desk.reclaim("dead"))
        self.assertEqual((len(answer[0]), answer[3:], read), (64, [1, ["dead"]], 64))

    def test_promote_brings_back_a_mebibyte_at_most(self):
        self.large(10)
        self.desk.read("me")
        self.run_call("defer", *(Park(f"{i}-1") for i in range(1, 11)))
        self.assertEqual([self.run_call("promote")[0] for _ in range(4)], [4, 4, 2, 0])

    def test_a_worker_signs_off_in_parts(self):
        self.run_call("join")
        self.large(10)
        self.desk.read("me")
        for i in range(100):
            self.desk.add(f"{1000 + i}-1")
        self.desk.read("me")
        self.client.hset(self.desk.key("trouble"), "9-1", "0 1 9-1 me")
        self.assertEqual([self.run_call("release", last=2) for _ in range(3)], [[4, 0, 1], [4, 0, 1], [64, 0, 1]])
        self.assertEqual((self.client.exists(self.desk.key("alive:me")), self.desk.trouble("9-1")), (1, "0 0 9-1"))
        self.assertEqual(self.run_call("release", last=2), [38, 1, 0])
        self.assertEqual((self.client.exists(self.desk.key("alive:me")), set(self.desk.owners().values())), (0, {"released"}))

    # --- fair ---

    def test_fair_finds_the_ten_behind_the_many(self):
        self.crowd(*["big"] * 500, *["small"] * 10)
        self.desk.read("other", count=64)
        after, found, calls = "0-0", [], 0
        while True:
            answer = self.run_call("fair", "big", after=after)
            found, after, calls = found + self.taken(answer), answer[4], calls + 1
            if not answer[3]:
                break
        self.assertEqual((found, after, calls), ([f"{i}-1" for i in range(501, 511)], "510-1", 7), "446 entries, 64 a call")
        self.assertEqual(self.desk.owners()["505-1"], "me")

    def test_fair_goes_on_where_it_stopped(self):
        self.crowd(*["big"] * 62, "small", *["big"] * 30, "small")
        answer = self.run_call("fair", "big")
        self.assertEqual((self.taken(answer), answer[3:]), (["63-1"], [1, "64-1"]))
        answer = self.run_call("fair", "big", after=answer[4])
        self.assertEqual((self.taken(answer), answer[3:]), (["94-1"], [0, "94-1"]))
        self.desk.add("95-1", text="hello", tenant="third")
        self.assertEqual(self.taken(self.run_call("fair", "big", after=answer[4])), ["95-1"])

    def test_fair_sets_aside_what_anybody_takes(self):
        self.crowd("big", *["small"] * 400)
        after = "0-0"
        for _ in range(5):
            answer = self.run_call("fair", "big", consumer="ahead", after=after)
            self.assertEqual(answer[0], [])
            after = answer[4]
        for _ in range(2):
            self.assertEqual(self.run_call("fair", "big", consumer="ahead", after=after)[3:], [1, "320-1"], "256 are enough")
        self.client.set(self.desk.key("alive:ahead"), "means nothing")
        answer = self.run_call("reclaim", "released", "ahead", most=3)
        self.assertEqual((answer[0][0], self.taken(answer)), (["2-1", 0, 0, ["text", "hello", "tenant", "small"]],
                                                             ["2-1", "3-1", "4-1"]))
        self.assertEqual(answer[3:], [1, ["ahead"]])
        self.assertEqual(self.desk.read("you", count=6), [f"{i}-1" for i in range(1, 7)], "the group's reading comes to all of them")
        self.assertEqual([self.desk.owners()[f"{i}-1"] for i in (2, 5, 100)], ["you", "you", "ahead"])

    def test_fair_starts_behind_what_was_read(self):
        self.crowd("a", "b", "a", "b")
        self.desk.read("you", count=2)
        self.assertEqual(self.taken(self.run_call("fair", "a", after="1-1")), ["4-1"])

    def test_fair_compares_ids_as_numbers(self):
        """It starts after the cursor or the last id read, whichever is later."""
        for entry_id in ("9-1", "10-9", "10-10", "10-18446744073709551615"):
            self.desk.add(entry_id)
        self.desk.read("you", count=2)
        self.assertEqual(self.taken(self.run_call("fair", "x", after="9-1")), ["10-10", "10-18446744073709551615"])

    def test_fair_leaves_entries_without_tenant_when_told(self):
        self.crowd("", "a", "", "b")
        self.assertEqual(self.taken(self.run_call("fair", "", "b")), ["2-1"])
        self.assertEqual(self.taken(self.run_call("fair")), ["1-1", "3-1", "4-1"])

    def test_fair_keeps_within_count_and_bytes(self):
        self.crowd(*["a"] * 6)
        answer = self.run_call("fair", "b", most=2)
        self.assertEqual((self.taken(answer), answer[3:]), (["1-1", "2-1"], [1, "2-1"]))
        answer = self.run_call("fair", "b", after=answer[4], most_bytes=40)
        self.assertEqual((self.taken(answer), answer[3:]), (["3-1", "4-1"], [1, "4-1"]))
        self.assertEqual(self.taken(self.run_call("fair", "b", most_bytes=10)), [], "larger than the limit: passed by")

    def test_fair_takes_nothing_twice(self):
        self.crowd("a", "a")
        self.assertEqual(self.taken(self.run_call("fair", "b", consumer="you")), ["1-1", "2-1"])
        self.assertEqual(self.taken(self.run_call("fair", "b")), [])
        self.assertEqual(set(self.desk.owners().values()), {"you"})

    def test_what_fair_took_is_delivered_again_and_answered_once(self):
        self.crowd("big", "small")
        self.run_call("fair", "big")
        self.assertEqual(self.desk.read("you"), ["1-1", "2-1"])
        self.assertEqual(self.run_call("settle", End("2-1")), [1, 0, 0])
        self.assertEqual(self.run_call("settle", End("2-1"), consumer="you"), [0, 0, 0])

    # --- sweep ---

    def orphan(self, *ids, which="normal", **fields):
        for entry_id in ids:
            self.desk.add(entry_id, which, **fields)
        self.desk.read("gone", which)
        self.desk.do("XGROUP", "DELCONSUMER", self.desk.stream(which), "sluice", "gone")

    def test_sweep_claims_what_nobody_holds(self):
        self.orphan("1-1", "2-1")
        self.desk.deliver("you", "3-1")
        self.desk.add("4-1")
        answer = self.run_call("sweep")
        self.assertEqual(answer, [[["1-1", 0, 0, ["text", "hello"]], ["2-1", 0, 0, ["text", "hello"]]], [], [], 0, "3-1"])
        self.assertEqual(self.desk.owners(), {"1-1": "me", "2-1": "me", "3-1": "you"})
        self.assertEqual(self.desk.read("you"), ["4-1"])

    def test_sweep_knows_lonely_runs_and_the_class(self):
        self.orphan("7-1", which="high", _id="high:1-1", text="x")
        self.client.hset(self.desk.key("trouble"), "high:1-1", "1 2 7-1 a,b")
        self.assertEqual(self.run_call("sweep", which="high")[0][0][:3], ["7-1", 0, 2])

    def test_sweep_in_parts(self):
        self.orphan(*(f"{i}-1" for i in range(1, 8)))
        first = self.run_call("sweep", most=3)
        self.assertEqual((self.taken(first), first[3:]), (["1-1", "2-1", "3-1"], [1, "3-1"]))
        second = self.run_call("sweep", most=3, after=first[4])
        self.assertEqual((self.taken(second), second[3:]), (["4-1", "5-1", "6-1"], [1, "6-1"]))
        self.assertEqual(self.taken(self.run_call("sweep", most=3, after=second[4])), ["7-1"])

    def test_sweep_looks_at_no_more_than_64_entries(self):
        self.desk.deliver("you", *(f"{i}-1" for i in range(1, 101)))
        self.orphan("2000-1")
        first = self.run_call("sweep")
        self.assertEqual(first, [[], [], [], 1, "64-1"])
        self.assertEqual(self.taken(self.run_call("sweep", after="64-1")), ["2000-1"])

    def test_sweep_hands_large_orphans_over_unread(self):
        self.orphan("1-1", text="x" * 500)
        self.orphan("2-1")
        self.assertEqual(self.run_call("sweep", most_bytes=100), [[["2-1", 0, 0, ["text", "hello"]]], [], ["1-1"], 0, "2-1"])
        self.assertEqual(self.run_call("settle", End("1-1", "error")), [1, 0, 0])

    def test_sweep_without_group_or_stream(self):
        self.desk.do("XGROUP", "DESTROY", self.desk.stream(), "sluice")
        self.desk.add("1-1")
        self.assertEqual(self.run_call("sweep"), [[], [], [], 0, "0-0"])
        self.client.delete(self.desk.stream())
        self.assertEqual(self.run_call("sweep", after="5-5"), [[], [], [], 0, "5-5"])

    def test_sweep_puts_back_parked_requests_that_nothing_waits_for(self):
        ids = [f"{i}-1" for i in range(1, 31)]
        self.desk.deliver("me", *ids)
        self.run_call("defer", *(Park(i, due_at_ms=4102444800000) for i in ids))
        self.client.zrem(self.desk.key("later"), *ids[:20])
        self.run_call("sweep", which="high")
        self.assertEqual(self.client.zcard(self.desk.key("later")), 10)
        self.run_call("sweep")
        self.assertEqual(self.client.zcard(self.desk.key("later")), 30)
        self.assertEqual(self.run_call("promote")[0], 20)
        self.client.delete(self.desk.key("later"))
        self.run_call("sweep")
        self.assertEqual(self.run_call("promote")[0], 10)
        self.assertEqual(len(self.desk.entries()), 30)

    def test_sweep_says_when_more_parked_requests_are_lost(self):
        pipe = self.client.pipeline(transaction=False)
        for i in range(2500):
            pipe.hset(self.desk.key("later:data"), f"{i}-1", "x")
        pipe.execute()
        rounds = 0
        while self.run_call("sweep")[3]:
            rounds += 1
        self.assertGreaterEqual(rounds, 1)
        while self.client.zcard(self.desk.key("later")) < 2500:  # which sweep finds the last few is random
            self.run_call("sweep")

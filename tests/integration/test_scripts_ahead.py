"""Entry ids made up by a producer, in the future: lua/mend.lua, and how the other scripts treat such names."""
# ctest: redis
# ctest-once

import redis
from script_scenes import LAST_ID, TO_COME
from scripts import CLASSES, PREFIX, End, Park, ScriptCase, plain, refused

HOUR_MS = 3600000


class Ahead(ScriptCase):
    def add(self, which="normal", entry_id="*", **fields):
        return plain(self.client.xadd(self.desk.stream(which), fields or {"text": "hello"}, entry_id))

    def mend(self, **limits):
        return self.desk.run(self.desk.mend(**limits))

    def promote(self):
        """Makes all parked requests due and promotes them."""
        for name in self.client.zrange(self.desk.key("later"), 0, -1):
            self.client.zadd(self.desk.key("later"), {name: 1})
        return self.desk.run(self.desk.promote())

    def last_ids(self, which="normal"):
        group, = self.client.xinfo_groups(self.desk.stream(which))
        return plain(self.client.xinfo_stream(self.desk.stream(which))["last-generated-id"]), plain(group["last-delivered-id"])

    def ms(self, entry_id):
        return int(entry_id.split("-")[0])

    def assert_present(self, which="normal"):
        """Asserts that a new entry's id is in the present and that a reader gets the entry."""
        before = self.now_ms()
        entry_id = self.add(which)
        self.assertTrue(before <= self.ms(entry_id) <= self.now_ms() + 2000, entry_id)
        self.assertIn(entry_id, self.desk.read("me", which))
        for last in self.last_ids(which):
            self.assertLessEqual(self.ms(last), self.now_ms() + 2000)

    # --- mend ---

    def test_nothing_to_mend(self):
        self.add()
        self.desk.read("me")
        self.add("low")
        before = self.desk.dump()
        self.assertEqual(self.mend(), [0, 0, 0, 0])
        self.client.delete(self.desk.stream("high"))
        self.client.xgroup_destroy(self.desk.stream("low"), "sluice")
        self.assertEqual(self.mend(), [0, 0, 0, 0])
        self.client.flushall()
        self.assertEqual(self.mend(), [0, 0, 0, 0])
        self.assertIn(self.desk.stream().encode(), before and {key.encode() for key in before})

    def test_both_ids_in_every_class(self):
        for which in CLASSES:
            for forged in (f"{TO_COME}-0", LAST_ID):
                with self.subTest(which=which, forged=forged):
                    old = self.add(which)
                    self.desk.read("me", which)
                    unread = self.add(which)
                    self.add(which, forged, text="forged")
                    moved = [forged]
                    if forged != LAST_ID:
                        moved += [self.add(which, text=f"honest {i}") for i in range(3)]
                        self.assertEqual(moved[1:], [f"{TO_COME}-{i}" for i in range(1, 4)])
                        self.desk.read("me", which, 3)  # the unread one, then two with future ids
                    self.assertEqual(self.mend(), [len(moved), 1, 0, 0])
                    self.assertEqual([entry for entry in self.desk.entries(which)], [old, unread])
                    self.assertEqual(self.desk.owners(which), dict.fromkeys([old, unread] if forged != LAST_ID else [old], "me"))
                    self.assert_present(which)
                    self.assertEqual(self.promote()[0], len(moved))
                    back = [fields for fields in self.desk.entries(which).values() if fields[0] == "_id"]
                    self.assertEqual([fields[1] for fields in back], [PREFIX[which] + name for name in moved])
                    for fields in back:
                        self.assertTrue(self.now_ms() - 60000 < int(fields[5]) <= self.now_ms())  # _first_at
                        self.assertIn(fields[7], ("forged", "honest 0", "honest 1", "honest 2"))
                    self.assertEqual(self.mend(), [0, 0, 0, 0])
                    self.assertEqual(len(self.desk.read("me", which)), len(moved))
                    self.client.flushall()
                    self.desk.groups()

    def test_in_bounded_steps(self):
        """Each step moves at most the given number; the last one sets the stream back."""
        self.add(entry_id=f"{TO_COME}-0")
        for _ in range(199):
            self.add()
        answers = [self.mend(most=64) for _ in range(4)]
        self.assertEqual(answers, [[64, 0, 1, 0], [64, 0, 1, 0], [64, 0, 1, 0], [8, 1, 0, 0]])
        self.assertEqual(self.promote()[0], 100)

    def test_a_large_one_is_taken_by_its_id(self):
        """It is neither moved nor read; the stream is set back once its owner, whoever that is, has answered it."""
        for owner in ("me", "you"):
            with self.subTest(owner=owner):
                self.add(entry_id=f"{TO_COME}-0", text="x" * 5000)
                self.assertEqual(owner == "you" and self.desk.read("you"), owner == "you" and [f"{TO_COME}-0"])
                small = self.add()
                self.assertEqual(self.mend(large=1000), [1, 0, 1, owner == "me"])
                self.assertEqual(self.desk.owners(), {f"{TO_COME}-0": owner})
                self.assertEqual(self.mend(large=1000), [0, 0, 1, 0])
                self.assertEqual(self.client.hkeys(self.desk.key("later:data")), [small.encode()])
                end = End(f"{TO_COME}-0", "error", first_ms=self.now_ms())
                self.assertEqual(self.desk.run(self.desk.settle(end, consumer=owner)), [1, 0, 0])
                self.assertEqual(self.mend(), [0, 1, 0, 0])
                self.assert_present()
                self.client.flushall()
                self.desk.groups()

    def test_while_one_stays_ids_go_on_from_it(self):
        """The stream cannot be set back yet, and neither its last id nor the group's has moved."""
        self.add()
        self.desk.read("me")
        self.add(entry_id=f"{TO_COME}-0", text="x" * 5000)
        self.add()
        before = self.last_ids()
        self.assertEqual(self.mend(large=1000), [1, 0, 1, 1])
        self.assertEqual(self.last_ids(), before)
        self.assertEqual(self.add(), f"{TO_COME}-2")

    def test_one_that_ended_above_a_backlog(self):
        """Its id is the highest deleted one, and from Redis 7.2 on a stream cannot be set below that."""
        for forged in (f"{TO_COME}-0", LAST_ID):
            with self.subTest(forged=forged):
                backlog = [self.add() for _ in range(3)]
                self.add(entry_id=forged)
                self.desk.read("me")
                self.desk.run(self.desk.settle(End(forged, first_ms=self.now_ms())))
                self.assertEqual(self.mend(), [0, 1, 0, 0])
                self.assertEqual(self.desk.owners(), dict.fromkeys(backlog, "me"))
                self.assert_present()
                self.client.flushall()
                self.desk.groups()

    def test_a_stream_without_a_group(self):
        """The group was destroyed: it is created again where a worker would create it."""
        backlog = [self.add() for _ in range(3)]
        self.add(entry_id=LAST_ID)
        self.client.xgroup_destroy(self.desk.stream(), "sluice")
        self.assertEqual(self.mend(), [1, 1, 0, 0])
        self.assertEqual(self.desk.read("me"), backlog)
        self.assert_present()

    def test_an_ended_one_leaves_the_ids_ahead(self):
        """The stream is empty, so only its last ids show that it is ahead."""
        self.add(entry_id=f"{TO_COME}-0")
        self.desk.read("me")
        self.desk.run(self.desk.settle(End(f"{TO_COME}-0", first_ms=self.now_ms())))
        self.assertEqual(self.mend(), [0, 1, 0, 0])
        self.assert_present()
        self.client.execute_command("XADD", self.desk.stream(), "MAXLEN", "0", LAST_ID, "text", "x")  # a producer may do this
        self.assertRegex(refused_add(self), "exhausted")
        self.assertEqual(self.mend(), [0, 1, 0, 0])
        self.assert_present()

    def test_two_seconds_are_believed(self):
        near = self.now_ms() + 1000
        self.add(entry_id=f"{near}-0")
        self.assertEqual(self.mend(), [0, 0, 0, 0])
        far = self.now_ms() + 60000
        self.add(entry_id=f"{far}-0")
        self.assertEqual(self.mend(), [1, 1, 0, 0])
        self.assertGreaterEqual(self.add(), f"{near}-1")  # not before the stream's entries
        self.assertIn(f"{near}-0", self.desk.entries())

    def test_the_group_alone_is_ahead(self):
        """XSETID, called by hand, leaves the group where it was: new entries are not read."""
        self.add(entry_id=f"{TO_COME}-0")
        self.desk.read("me")
        self.client.xdel(self.desk.stream(), f"{TO_COME}-0")
        self.desk.set_last_id(f"{self.now_ms()}-0")
        self.add()
        self.assertEqual(self.desk.read("me"), [])
        self.assertEqual(self.mend(), [0, 1, 0, 0])
        self.assert_present()

    def test_the_old_backlog_stays_unread_and_is_read(self):
        """The group has not read that far: entries added before the forged id are still delivered, once."""
        backlog = [self.add() for _ in range(5)]
        self.add(entry_id=LAST_ID)
        self.assertEqual(self.desk.read("me", count=2), backlog[:2])
        self.assertEqual(self.mend(), [1, 1, 0, 0])
        self.assertEqual(self.desk.read("me"), backlog[2:])

    def test_who_holds_one_finds_the_gate_closed(self):
        """A worker's result for a moved entry is late; the request is answered once, under its name."""
        self.add(entry_id=f"{TO_COME}-0", text="forged")
        name = self.add(text="honest")
        self.desk.read("me")
        self.desk.run(self.desk.charge(name))
        self.mend()
        self.assertEqual(self.desk.run(self.desk.settle(End(name, first_ms=self.now_ms()))), [0, 0, 0])
        self.assertEqual(self.desk.reply(name), {})
        self.assertEqual(self.desk.places(name), {"stream": 0, "parked": 1, "waits": 1, "reply": []})
        self.promote()
        entry = next(entry for entry, fields in self.desk.entries().items() if fields[1] == name)
        self.desk.read("me")
        self.assertEqual(self.desk.run(self.desk.settle(End(entry, "done", name, claims=True))), [1, 0, 0])
        self.assertEqual(self.desk.reply(name)["entry"], name)
        self.assertIsNone(self.desk.trouble(name))

    def test_a_charged_run_stays_on_record(self):
        """A worker died of it, which stays recorded although its entry moves."""
        self.add(entry_id=f"{TO_COME}-0")
        self.desk.read("dead")
        self.desk.run(self.desk.charge(f"{TO_COME}-0", consumer="dead"))
        self.mend()
        self.promote()
        entry, = self.desk.entries()
        self.assertRegex(self.desk.trouble(f"{TO_COME}-0"), rf"^0 1 {entry} dead")

    def test_who_was_parked_before_keeps_name_attempt_and_time(self):
        self.add(entry_id="5-5", text="retried")
        self.desk.read("me")
        self.desk.run(self.desk.defer(Park("5-5", attempt=3)))
        self.desk.come_back("5-5", f"{TO_COME}-0")
        self.add(entry_id=f"{TO_COME}-1", _id="5-5", text="claims in vain")
        self.mend()
        self.promote()
        back = {fields[1]: fields[2:] for fields in self.desk.entries().values()}
        self.assertEqual(back["5-5"], ["_attempt", "3", "_first_at", "5", "text", "retried"])
        self.assertEqual(back[f"{TO_COME}-1"][:2] + back[f"{TO_COME}-1"][4:], ["_attempt", "1", "text", "claims in vain"])

    def test_a_cancel_moves_and_leaves_nothing_behind(self):
        self.add("high", f"{TO_COME}-0")
        target = self.add()
        self.add("high", cancel=target)
        self.mend()
        self.promote()
        entry = next(entry for entry, fields in self.desk.entries("high").items() if "cancel" in fields)
        self.desk.read("me", "high")
        self.assertEqual(self.desk.run(self.desk.cancel(entry, target)), [1])
        self.assertIsNone(self.desk.trouble(f"high:{TO_COME}-1"))
        self.assertEqual(self.desk.reply(target)["status"], "cancelled")

    def test_too_many_fields_come_back_as_many_as_may(self):
        self.client.xadd(self.desk.stream(), {f"f{i}": "v" for i in range(3000)}, f"{TO_COME}-0")
        self.assertEqual(self.mend(), [1, 1, 0, 0])
        self.assertEqual(self.promote(), [1, -1, 0])
        (_, fields), = self.desk.entries().items()
        self.assertEqual((fields[6], len(fields)), ("f0", 6 + 256))

    def test_a_missing_right_moves_nothing(self):
        self.add(entry_id=f"{TO_COME}-0")
        for command in ("hset", "zadd", "xdel", "xack"):
            self.client.acl_setuser("worker", enabled=True, reset=True, passwords=["+x"], commands=["+@all", f"-{command}"], keys=["*"])
            self.assertIn("may not", refused(self.server.client(username="worker", password="x"), self.desk.mend()), command)
            self.assertEqual(list(self.desk.entries()), [f"{TO_COME}-0"])
            self.assertFalse(self.client.exists(self.desk.key("later:data")))

    def test_the_last_id_ends_no_script(self):
        """Redis refuses a range that begins after the last possible id."""
        for read in (False, True):
            with self.subTest(read=read):
                self.add(entry_id=LAST_ID)
                if read:
                    self.desk.read("me")
                for after in ("0-0", LAST_ID):
                    self.desk.run(self.desk.fair("x", after=after, consumer="you"))
                    self.desk.run(self.desk.sweep(after=after, consumer="you"))
                    self.desk.run(self.desk.shed(1, consumer="you"))
                    self.desk.run(self.desk.shed(0, consumer="you"))
                self.desk.run(self.desk.join(me="me"))
                self.desk.run(self.desk.release(last=2))
                self.mend()
                self.assert_present()
                self.client.flushall()
                self.desk.groups()

    def test_fair_begins_anew_when_the_ids_are_of_now_again(self):
        self.add(entry_id=f"{TO_COME}-0")
        last = self.desk.run(self.desk.fair("x"))[4]
        self.assertEqual(last, f"{TO_COME}-0")
        self.mend()
        name = self.add()
        self.assertEqual(self.desk.run(self.desk.fair("x", after=last))[4], name)

    # --- promote ---

    def park(self, count, which):
        ids = [self.add(which) for _ in range(count)]
        self.desk.read("me", which)
        self.desk.run(self.desk.defer(*(Park(i) for i in ids), which=which))
        return [PREFIX[which] + i for i in ids]

    def test_a_stream_that_takes_no_more_costs_its_class_only(self):
        """Requests of the class wait a moment, and are promoted once the stream is repaired."""
        for forged in (LAST_ID, f"{TO_COME}-0"):
            for gone in (False, True):
                with self.subTest(forged=forged, gone=gone):
                    names, others = self.park(3, "normal"), self.park(3, "high") + self.park(3, "low")
                    self.add(entry_id=forged)
                    if gone and forged == LAST_ID:
                        self.add(entry_id="*", which="high")  # the others are served while only XADD's error shows the fault
                        self.client.xdel(self.desk.stream(), forged)
                        self.client.xadd(self.desk.stream("low"), {"text": "x"})
                    self.assertEqual(self.promote()[0], 6 + (forged != LAST_ID))  # with TO_COME one comes, and its id shows the fault
                    self.assertEqual(self.desk.run(self.desk.promote())[0], 0)
                    for name in names[forged != LAST_ID:]:
                        self.assertGreater(self.client.zscore(self.desk.key("later"), name), self.now_ms() - 1000)
                    self.assertEqual(self.mend()[1], 1)
                    self.promote()
                    back = {fields[1] for which in CLASSES for fields in self.desk.entries(which).values()}
                    self.assertLessEqual(set(names + others), back)
                    self.client.flushall()
                    self.desk.groups()

    # --- names ---

    def test_an_id_that_is_given_out_again_takes_no_name_away(self):
        """While the first is parked, or promoted again, each of the two is answered under its own name."""
        for state in ("parked", "back"):
            for end in ("settle", "defer", "mend", "charge"):
                with self.subTest(state=state, end=end):
                    name = self.add(entry_id=f"{TO_COME}-0", text="first", id="first")
                    self.mend()
                    if state == "back":
                        self.promote()
                    self.add(entry_id=name, text="second", id="second")
                    self.client.xgroup_createconsumer(self.desk.stream(), "sluice", "me")
                    self.desk.read("me")
                    if end == "settle":
                        self.assertEqual(self.desk.run(self.desk.settle(End(name, reply="second", first_ms=self.now_ms())))[0], 1)
                    elif end == "defer":
                        self.assertEqual(self.desk.run(self.desk.defer(Park(name))), [1])
                    elif end == "charge":
                        self.assertEqual(self.desk.run(self.desk.charge(name)), [1])
                        self.desk.run(self.desk.settle(End(name, reply="second", first_ms=self.now_ms())))
                    self.mend()
                    self.promote()
                    self.finish()
                    self.assertEqual(self.desk.reply("first")["entry"], name)
                    self.assertEqual(self.desk.reply("second")["status"], "done")
                    if end in ("defer", "mend"):
                        self.assertNotEqual(self.desk.reply("second")["entry"], name)
                    self.assertFalse(self.client.exists(*map(self.desk.key, ("later", "later:data", "trouble"))))
                    self.client.flushall()
                    self.desk.groups()

    def finish(self):
        self.desk.read("me")
        for entry, fields in self.desk.entries().items():
            fields = dict(zip(fields[::2], fields[1::2]))
            answer = self.desk.run(self.desk.settle(End(entry, "done", fields.get("_id"), claims="_id" in fields, reply=fields["id"])))
            self.assertEqual(answer, [1, 0, 0])

    def test_a_cancel_means_the_one_that_was_there_first(self):
        name = self.add(entry_id=f"{TO_COME}-0", text="first", id="first")
        self.mend()
        self.add(entry_id=name, text="second", id="second")
        self.add("high", "9-1", cancel=name)
        self.desk.read("me", "high")
        self.assertEqual(self.desk.run(self.desk.cancel("9-1", name)), [-5, "first", "0", "", ""])
        self.assertEqual(self.desk.run(self.desk.cancel("9-1", name, "first")), [1])
        self.assertEqual((self.desk.reply("first")["status"], self.desk.reply("second")), ("cancelled", {}))
        self.assertEqual(list(self.desk.entries()), [name])

    def end(self, *names):
        self.desk.read("me")
        self.client.xdel(self.desk.stream(), *names)
        self.client.xack(self.desk.stream(), "sluice", *names)

    def given_until(self, end_ms):
        """Returns the ids that `*` generates until that time."""
        given = set()
        while self.now_ms() <= end_ms:
            given.update(self.add_many(500))
        return given

    def add_many(self, count):
        pipe = self.client.pipeline(transaction=False)
        for _ in range(count):
            pipe.xadd(self.desk.stream(), {"text": "x"})
        return plain(pipe.execute())

    def test_star_repeats_no_name(self):
        """Neither a moved entry's name nor that of an ended one is repeated: shortly before its ms, the stream's last
        id skips it."""
        soon = self.now_ms() + 4000
        self.add(entry_id=f"{soon}-0", delay="9")
        names = {f"{soon}-0", *self.add_many(200)}
        self.end(*[f"{soon}-{last}" for last in range(101, 201)])
        while self.mend()[2]:
            pass
        self.assertEqual(plain(self.client.hget(self.desk.key("meta"), "ahead_normal")), str(soon))
        self.wait_until(lambda: self.now_ms() > soon - 1900, "it to be near")
        self.mend()
        given = self.given_until(soon + 3)
        self.assertTrue(any(self.ms(entry_id) > soon for entry_id in given))
        self.assertEqual(given & names, set())

    def test_star_repeats_no_name_though_the_stream_is_set_back_again(self):
        """While the last id skips a time, another future id is mended."""
        soon = self.now_ms() + 4000
        names = {self.add(entry_id=f"{soon}-0"), *self.add_many(10)}
        self.mend()
        self.wait_until(lambda: self.now_ms() > soon - 1900, "it to be near")
        self.mend()
        ended = self.add_many(200)
        self.end(*ended)
        names.update(ended)
        names.add(self.add(entry_id=f"{self.now_ms() + 60000}-0"))
        self.mend()
        self.assertGreater(self.ms(self.add()), soon)
        given = self.given_until(soon + 3)
        self.assertEqual(given & names, set())

    def test_an_id_that_comes_again_is_its_owners_to_end(self):
        """A worker that still computes the first must not end the second, which it does not know."""
        for kind in ("done", "error"):
            name = self.add(entry_id=f"{TO_COME}-0", text="first", id="first")
            self.desk.read("slow")
            self.mend()
            self.promote()
            self.finish()
            self.add(entry_id=name, text="second", id="second")
            self.desk.read("other")
            settle = self.desk.settle(End(name, kind, reply="first"), consumer="slow")
            self.assertEqual(self.desk.run(settle), [0, 0, 0])
            self.assertEqual(self.desk.owners(), {name: "other"})
            self.assertEqual(self.desk.run(self.desk.settle(End(name, reply="second"), consumer="other"))[0], 1)
            self.mend()

    # --- newest wins ---

    def answered(self, entry_id, seen, reply="order-42", which="normal", kind="done"):
        self.desk.read("me", which)
        return self.desk.run(self.desk.settle(End(entry_id, kind, first_ms=seen, reply=reply), which=which))[0]

    def test_a_name_of_times_to_come_does_not_shadow(self):
        """It counts from when it was seen: requests sent after that are newer, earlier ones older."""
        now = self.now_ms()
        for forged in (f"{TO_COME}-0", LAST_ID, f"{now + 60000}-0"):
            with self.subTest(forged=forged):
                self.add(entry_id=f"{now - 1000}-0")
                self.add(entry_id=f"{now}-0")
                self.add(entry_id=f"{now + 1}-0")
                self.add("low", forged)
                self.assertEqual(self.answered(forged, now, which="low"), 1)
                self.assertEqual(self.desk.reply("order-42")["first_at"], now)
                self.assertEqual(self.answered(f"{now - 1000}-0", now - 1000), 2)
                self.assertEqual(self.answered(f"{now}-0", now), 1)  # got its id within that ms
                self.assertNotIn("first_at", self.desk.reply("order-42"))
                self.assertEqual(self.answered(f"{now + 1}-0", now + 1), 1)
                self.add("high", forged)
                self.assertEqual(self.answered(forged, now, which="high"), 2)
                self.assertEqual(self.desk.reply("order-42")["entry"], f"{now + 1}-0")
                self.client.flushall()
                self.desk.groups()

    def test_the_same_whatever_the_order_and_however_often(self):
        """One of many is the newest, and its reply is the final one."""
        now = self.now_ms()
        names = [(f"{now}-0", now), (f"{TO_COME}-0", now), (f"{TO_COME}-1", now), (f"{TO_COME}-2", now - 1), (LAST_ID, now - 5)]
        for start in range(len(names)):
            for step in (1, 2, 3, 4):
                order = [names[(start + step * i) % len(names)] for i in range(len(names))]
                for name, _ in sorted(names, key=lambda pair: int(pair[0].split("-")[0]) * 10 ** 20 + int(pair[0].split("-")[1])):
                    self.add(entry_id=name)
                self.desk.read("me")
                for name, seen in order:
                    self.desk.run(self.desk.settle(End(name, first_ms=seen, reply="x")))
                self.assertEqual(self.desk.reply("x")["entry"], f"{now}-0", order)
                self.client.flushall()
                self.desk.groups()

    def test_its_own_reply_is_written_again(self):
        """A repeated settle of the same request, seen at another time by another worker, is not taken for another
        request."""
        self.add(entry_id=f"{TO_COME}-0")
        self.assertEqual(self.answered(f"{TO_COME}-0", 1000), 1)
        self.client.xgroup_setid(self.desk.stream(), "sluice", "0")
        self.client.xtrim(self.desk.stream(), maxlen=0)
        self.desk.set_last_id("0-1")
        self.add(entry_id=f"{TO_COME}-0")
        self.assertEqual(self.answered(f"{TO_COME}-0", 500), 1)
        self.assertEqual(self.desk.reply("order-42")["first_at"], 500)

    def test_a_cancelled_one_hides_nobody(self):
        """It is not known when it was seen, so the other one's reply stays."""
        now = self.now_ms()
        self.add(entry_id=f"{now}-0", id="order-42")
        self.assertEqual(self.answered(f"{now}-0", now), 1)
        self.add(entry_id=f"{TO_COME}-0", id="order-42")
        self.add(entry_id=f"{TO_COME}-1", id="alone")
        for cancel, name, reply in (("9-1", f"{TO_COME}-0", "order-42"), ("9-2", f"{TO_COME}-1", "alone")):
            self.add("high", cancel, cancel=name)
            self.desk.read("me", "high")
            self.assertEqual(self.desk.run(self.desk.cancel(cancel, name, reply)), [1])
        self.assertEqual(self.desk.reply("order-42")["status"], "done")
        self.assertEqual(self.desk.reply("alone")["status"], "cancelled")
        self.assertEqual(self.answered(self.add(entry_id=f"{TO_COME}-5"), now - 1, "alone"), 1)

    def test_a_delay_counts_from_the_first_look(self):
        """The parked entry records that moment, not the forged time."""
        self.add(entry_id=f"{TO_COME}-0")
        self.desk.read("me")
        before = self.now_ms()
        self.desk.run(self.desk.defer(Park(f"{TO_COME}-0", delay_ms=HOUR_MS)))
        self.mend()
        self.promote()
        (_, fields), = self.desk.entries().items()
        self.assertTrue(before <= int(fields[fields.index("_first_at") + 1]) <= self.now_ms())


def refused_add(case):
    try:
        case.add()
    except redis.exceptions.ResponseError as error:
        return str(error)
    return ""

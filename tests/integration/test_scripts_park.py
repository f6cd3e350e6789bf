"""lua/defer.lua, lua/promote.lua and lua/requeue.lua: requests that leave their stream and come back."""
# ctest: redis
# ctest-once

import msgpack_lite
from scripts import CLASSES, End, Park, ScriptCase, plain, refused

FAR_MS = 4102444800000  # 2100


class Parked(ScriptCase):
    def defer(self, *parks, **options):
        return self.desk.run(self.desk.defer(*parks, **options))

    def promote(self, most=100):
        return self.desk.run(self.desk.promote(most))

    def due(self, name):
        return self.client.zscore(self.desk.key("later"), name)

    # --- defer ---

    def test_due_is_the_later_of_delay_and_time(self):
        self.desk.deliver("me", "1-1", "2-1", "3-1")
        before = self.now_ms()
        self.assertEqual(self.defer(Park("1-1", delay_ms=5000), Park("2-1", delay_ms=5000, due_at_ms=FAR_MS),
                                    Park("3-1", due_at_ms=1)), [1, 1, 1])
        after = self.now_ms()
        self.assertTrue(before + 5000 <= self.due("1-1") <= after + 5000)
        self.assertEqual(self.due("2-1"), FAR_MS)
        self.assertTrue(before <= self.due("3-1") <= after)

    def test_a_delay_that_has_not_run_yet_keeps_its_attempt(self):
        self.desk.deliver("me", "1-1")
        self.defer(Park("1-1", attempt=1))
        self.assertEqual(self.desk.trouble("1-1"), "0 0 1-1")
        self.promote()
        (_, fields), = self.desk.entries().items()
        self.assertEqual(fields[:4], ["_id", "1-1", "_attempt", "1"])

    def test_a_cap_on_what_waits_for_its_time(self):
        """Above it a delay is refused, but not a retry, a request that came back, or a repeated call that an error had
        cut short."""
        self.client.hset(self.desk.key("meta"), "cap_later", "2")
        self.desk.deliver("me", *(f"{i}-1" for i in range(1, 6)))
        first, second, third = (Park(f"{i}-1", attempt=1, delay_ms=9000000) for i in (1, 2, 3))
        self.assertEqual(self.defer(first, second, third), [1, 1, -7])
        self.assertEqual(self.desk.owners(), {f"{i}-1": "me" for i in (3, 4, 5)})
        self.assertEqual(self.desk.places("3-1"), {"stream": 1, "parked": 0, "waits": 0, "reply": []})
        self.assertEqual(self.defer(Park("4-1", attempt=2)), [1])
        self.desk.add("1-1", "high", text="x")
        self.assertEqual(self.desk.read("me", "high"), ["1-1"])
        self.assertEqual(self.defer(first, which="high"), [-7])
        self.client.hset(self.desk.key("later:data"), "3-1", "what a call had written that was cut short")
        self.assertEqual(self.defer(third), [1])
        self.client.zrem(self.desk.key("later"), "2-1", "3-1", "4-1")
        self.assertEqual(self.defer(Park("5-1", attempt=1)), [1])
        self.client.zadd(self.desk.key("later"), {"5-1": 1, "2-1": FAR_MS})
        self.assertEqual(self.promote()[0], 1)
        carrier, = self.desk.read("me")
        self.client.zadd(self.desk.key("later"), {"4-1": FAR_MS})
        self.assertEqual(self.defer(Park(carrier, "5-1", claims=True, attempt=1, delay_ms=9000000)), [1])

    def test_a_cap_that_is_none(self):
        for cap in ("0", "-5", "many", ""):
            self.client.hset(self.desk.key("meta"), "cap_later", cap)
            self.desk.deliver("me", name := f"{self.client.zcard(self.desk.key('later')) + 1}-1")
            self.assertEqual(self.defer(Park(name, attempt=1, delay_ms=9000000)), [1])

    def test_lonely_runs_begin_anew(self):
        """The run ended in an error, so it did not crash; earlier crashes are cleared, too."""
        self.desk.deliver("me", "1-1")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 2 1-1 dead,me")
        self.defer(Park("1-1"))
        self.promote()
        entry_id, = self.desk.entries()
        self.assertEqual(self.desk.trouble("1-1"), f"1 0 {entry_id}")

    def test_a_forged_name_is_not_parked(self):
        self.desk.deliver("me", "1-1")
        self.defer(Park("1-1", due_at_ms=FAR_MS))
        self.desk.add("7-1", _id="1-1", _first_at="3", text="forged")
        self.desk.read("me")
        before = self.desk.dump()
        self.assertEqual(self.defer(Park("7-1", "1-1", claims=True)), [-3])
        self.assertEqual(self.desk.dump(), before)
        self.assertEqual(self.defer(Park("7-1")), [1])
        self.promote()
        (_, fields), = self.desk.entries().items()
        self.assertEqual(fields, ["_id", "7-1", "_attempt", "2", "_first_at", "7", "text", "forged"])

    def test_without_trouble_a_forgery_harms_no_parked_request(self):
        self.desk.deliver("me", "1-1")
        self.defer(Park("1-1", due_at_ms=FAR_MS))
        self.client.delete(self.desk.key("trouble"))
        self.client.set(self.desk.key("trouble"), "junk")
        self.desk.add("7-1", _id="1-1", text="forged")
        self.desk.read("me")
        self.assertEqual(self.defer(Park("7-1", "1-1", claims=True)), [-3])
        self.assertEqual(self.defer(Park("7-1")), [1])
        self.assertEqual(self.client.hlen(self.desk.key("later:data")), 2)

    def test_not_the_owner_takes_its_lonely_run_back(self):
        self.desk.deliver("you", "1-1")
        self.client.hset(self.desk.key("trouble"), "1-1", "0 3 1-1 dead,me,you")
        self.assertEqual(self.defer(Park("1-1")), [-1])
        self.assertEqual(self.desk.trouble("1-1"), "0 2 1-1 dead,you")
        self.assertEqual(self.desk.owners(), {"1-1": "you"})

    def test_a_message_that_is_gone_is_not_parked(self):
        self.desk.deliver("me", "1-1")
        self.client.xdel(self.desk.stream(), "1-1")
        self.assertEqual(self.defer(Park("1-1")), [-2])
        self.assertFalse(self.client.exists(self.desk.key("later")))

    def test_more_fields_than_a_request_may_have(self):
        self.desk.add("1-1", **{f"f{i}": "v" for i in range(129)})
        self.desk.read("me")
        before = self.desk.dump()
        self.assertEqual(self.defer(Park("1-1")), [-6])
        self.assertEqual(self.desk.dump(), before)

    def test_any_bytes_come_back_as_they_were(self):
        wild = {b"text": bytes(range(256)), b"x-\x00\xff": b"", b"x-2": b"\r\n$5\r\n" * 100}
        self.client.xadd(self.desk.stream(), wild, "1-1")
        self.desk.read("me")
        self.defer(Park("1-1"))
        self.promote()
        (_, fields), = self.client.xrange(self.desk.stream())
        self.assertEqual({key: value for key, value in fields.items() if not key.startswith(b"_")}, wild)

    # --- promote ---

    def test_round_trips_keep_name_age_class_and_fields(self):
        for which, prefix in (("high", "high:"), ("normal", ""), ("low", "low:")):
            self.desk.add("5-1", which, id="mine", text="hello")
            self.desk.read("me", which)
            name = f"{prefix}5-1"
            for attempt in (2, 3, 4):
                entry_id, = self.desk.owners(which)
                self.assertEqual(self.defer(Park(entry_id, name, claims=attempt > 2, attempt=attempt), which=which), [1])
                self.assertEqual(self.promote()[0], 1)
                self.desk.read("me", which)
            (entry_id, fields), = self.desk.entries(which).items()
            self.assertEqual(fields, ["_id", name, "_attempt", "4", "_first_at", "5", "id", "mine", "text", "hello"])
            self.assertEqual(self.desk.trouble(name), f"3 0 {entry_id}")

    def test_in_the_order_of_their_time_and_no_more_than_asked_for(self):
        ids = [f"{i}-1" for i in range(1, 8)]
        self.desk.deliver("me", *ids)
        self.defer(*(Park(i, due_at_ms=0) for i in ids))
        for score, name in enumerate(reversed(ids)):
            self.client.zadd(self.desk.key("later"), {name: score + 1})
        self.assertEqual(self.promote(3), [3, 0, 0])
        self.assertEqual([fields[1] for fields in self.desk.entries().values()], ["7-1", "6-1", "5-1"])
        self.assertEqual(self.promote(100), [4, -1, 0])

    def test_says_when_the_next_one_is_due(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.defer(Park("1-1", delay_ms=60000), Park("2-1"))
        for due in (1, 0):
            brought, wait, broken = self.promote()
            self.assertEqual((brought, broken, len(self.desk.entries())), (due, 0, 1))
            self.assertTrue(0 < wait <= 60000)

    def test_no_more_than_some_bytes_a_call(self):
        for i in range(1, 7):
            self.desk.add(f"{i}-1", text="x" * 1000000)
        self.desk.read("me")
        self.defer(*(Park(f"{i}-1") for i in range(1, 7)))
        self.assertEqual([self.promote() for _ in range(3)], [[2, 0, 0], [2, 0, 0], [2, -1, 0]])

    def test_two_workers_bring_each_request_back_once(self):
        ids = [f"{i}-1" for i in range(1, 21)]
        self.desk.deliver("me", *ids)
        self.defer(*(Park(i) for i in ids))
        other = self.server.client()
        brought = 0
        while True:
            pair = [self.desk.run(self.desk.promote(3), client)[0] for client in (self.client, other)]
            brought += sum(pair)
            if pair == [0, 0]:
                break
        self.assertEqual(brought, 20)
        self.assertEqual(sorted(fields[1] for fields in self.desk.entries().values()), sorted(ids))

    def test_unreadable_fields_block_nobody_and_are_answered(self):
        """Each request comes back without them; invalid names are dropped. The request after them comes back whole."""
        self.desk.deliver("me", "9-1")
        self.defer(Park("9-1", due_at_ms=0))
        broken = {"1-1": b"", "2-1": b"\xc1junk", "3-1": b"\x01", "low:4-1": b"\x93\x01\x02\x03", "5-1": None, "junk": b"x",
                  "6-1": msgpack_lite.array(b"1", b"2", b"3", msgpack_lite.array(b"text")),
                  "7-1": msgpack_lite.array(b"1", b"x", b"3", msgpack_lite.array()),
                  "high:8-1": msgpack_lite.array(b"1", b"2", b"3", msgpack_lite.array(*[b"f"] * 300)),
                  "middle:8-1": b"x"}
        for name, packed in broken.items():
            self.client.zadd(self.desk.key("later"), {name: 1})
            if packed is not None:
                self.client.hset(self.desk.key("later:data"), name, packed)
        self.assertEqual(self.promote(), [len(broken) - 2 + 1, -1, len(broken)])
        back = {fields[1]: fields[2:] for which in CLASSES for fields in self.desk.entries(which).values()}
        self.assertEqual(back.pop("9-1"), ["_attempt", "2", "_first_at", "9", "text", "hello"])
        self.assertEqual(set(back), set(broken) - {"junk", "middle:8-1"})
        for name, fields in back.items():
            self.assertEqual(fields, ["_attempt", "1", "_first_at", name.rpartition(":")[2][0], "_lost", "1"], name)
        self.assertEqual(self.client.exists(self.desk.key("later"), self.desk.key("later:data")), 0)

    def test_a_stream_of_a_wrong_type_costs_its_class_only(self):
        """Requests of that class wait, however many precede the others, and come back when the key is gone."""
        for which, ids in (("high", range(1, 1202)), ("low", range(1202, 1205))):
            for i in ids:
                self.desk.add(f"{i}-1", which)
            self.desk.read("me", which)
            self.desk.run(self.desk.defer(*(Park(f"{i}-1") for i in ids), which=which))
        self.client.rename(self.desk.stream("high"), self.desk.key("aside"))
        self.client.set(self.desk.stream("high"), "junk")
        self.assertEqual(self.promote(), [0, 0, 0])
        brought, wait, _ = self.promote()
        self.assertEqual((brought, len(self.desk.entries("low"))), (3, 3))
        self.assertTrue(0 < wait <= 1000)
        self.assertEqual(self.promote()[0], 0)
        for name in self.client.zrange(self.desk.key("later"), 200, -1):
            self.client.zrem(self.desk.key("later"), name)
        for name in self.client.zrange(self.desk.key("later"), 0, -1):
            self.client.zadd(self.desk.key("later"), {name: 1})
        self.client.rename(self.desk.key("aside"), self.desk.stream("high"))
        self.assertEqual([self.promote()[:2] for _ in range(3)], [[100, 0], [100, -1], [0, -1]])

    def test_a_missing_right_brings_nothing_back(self):
        """Otherwise the same request would come back with every call."""
        self.desk.deliver("me", "1-1")
        self.defer(Park("1-1"))
        for command in ("hdel", "zrem", "hset", "hget"):
            self.client.acl_setuser("worker", enabled=True, reset=True, passwords=["+x"], commands=["+@all", f"-{command}"],
                                    keys=["*"])
            worker = self.server.client(username="worker", password="x")
            for _ in range(3):
                self.assertIn("may not", refused(worker, self.desk.promote()), command)
            self.assertEqual(self.desk.entries(), {})
        self.assertEqual(self.promote()[0], 1)

    # --- requeue ---

    def bury(self, **fields):
        return plain(self.client.xadd(self.desk.key("dead"), fields))

    def requeue(self, letter):
        return self.desk.run(self.desk.requeue(letter))

    def test_a_requeued_letter_is_a_new_request(self):
        for which, name in (("high", "high:1-1"), ("normal", "1-1"), ("low", "low:1-1")):
            letter = self.bury(_entry=name, _code="internal", _info='{"attempts":4}', id="mine", text="hello", delay="5",
                               expires_in="5", ttl="60")
            code, entry_id = self.requeue(letter)
            self.assertEqual(code, 1)
            self.assertEqual(self.desk.entries(which), {entry_id: ["id", "mine", "text", "hello", "ttl", "60"]})
        self.assertEqual(self.client.xlen(self.desk.key("dead")), 0)

    def test_what_settle_buries_can_be_requeued(self):
        self.desk.add("1-1", "low", id="mine", text="hello", notify="1")
        self.desk.read("me", "low")
        self.desk.run(self.desk.settle(End("1-1", "dead", reply="mine"), which="low"))
        _, entry_id = self.requeue(self.desk.reply("mine")["dead"])
        self.assertEqual(self.desk.entries("low"), {entry_id: ["id", "mine", "text", "hello", "notify", "1"]})

    def test_a_packed_body_can_be_requeued(self):
        """A body of thousands of fields is kept packed in one field: together they would not fit on Lua's stack."""
        self.desk.add("1-1", **{f"f{i}": "v" for i in range(1500)})
        self.desk.read("me")
        self.desk.run(self.desk.settle(End("1-1", "dead")))
        (_, letter), = self.client.xrange(self.desk.key("dead"))
        self.assertEqual(set(plain(letter)), {"_entry", "_info", "_code", "_message", "_body"})
        code, entry_id = self.requeue(self.desk.reply("1-1")["dead"])
        self.assertEqual((code, len(self.desk.entries()[entry_id])), (1, 3000))

    def test_a_letter_that_says_nothing(self):
        self.assertEqual(self.requeue("5-5"), [0])
        for fields in ({"_entry": "1-1", "_code": "poison"}, {"_entry": "1-1", "_body": "junk"},
                       {"_entry": "middle:1-1", "text": "x"}, {"_entry": "1-1", "delay": "5"}):
            letter = self.bury(**fields)
            self.assertEqual(self.requeue(letter), [-1], fields)
        self.assertEqual(self.client.xlen(self.desk.key("dead")), 4)

    def test_a_letter_without_a_name_is_of_the_normal_class(self):
        code, entry_id = self.requeue(self.bury(text="hello"))
        self.assertEqual((code, self.desk.entries()), (1, {entry_id: ["text", "hello"]}))

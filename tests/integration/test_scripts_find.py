"""lua/find.lua: unfinished requests by the id that their producers gave them."""
# ctest: redis
# ctest-once

from scripts import Park, ScriptCase, plain


class Find(ScriptCase):
    def find(self, id, cursor="", which="normal"):
        return self.desk.run(self.desk.find(id, cursor, which))

    def names(self, id, which="normal"):
        more, _, _, *names = self.find(id, which=which)
        self.assertEqual(more, 0)
        return names

    def park(self, *ids, id="mine", which="normal", **when):
        for entry in ids:
            self.desk.add(entry, which, text="hello", id=id)
        self.desk.read("me", which)
        self.desk.run(self.desk.defer(*(Park(entry, **when) for entry in ids), which=which))

    def test_in_a_stream_read_or_not(self):
        self.desk.add("1-1", "low", text="hello", id="mine")
        self.desk.add("2-1", "low", text="mine", meta="mine", mine="id")
        self.desk.read("me", "low")
        self.desk.add("3-1", "low", id="mine", text="again")
        self.desk.add("4-1", "low", id="minesweeper", text="x")
        self.assertEqual(self.find("mine", which="low"), [0, "4-1", 4, "low:1-1", "low:3-1"])
        self.assertEqual((self.names("hello", "low"), self.names("mine"), self.names("mine", "high")), ([], [], []))
        self.desk.do("XGROUP", "DESTROY", self.desk.stream("low"), "sluice")
        self.assertEqual(self.names("mine", "low"), ["low:1-1", "low:3-1"])

    def test_parked_ones(self):
        self.park("1-1", "2-1", due_at_ms=4102444800000)
        self.park("3-1", which="low", due_at_ms=4102444900000)
        self.park("4-1", id="other", which="high")
        self.assertEqual(self.names("mine", "later"), ["1-1", "2-1", "low:3-1"])
        self.assertEqual(self.names("other", "later"), ["high:4-1"])
        self.assertEqual(self.names("mine"), [])

    def test_the_first_id_counts_and_a_cancel_is_no_request(self):
        self.client.execute_command("XADD", self.desk.stream(), "1-1", "id", "mine", "id", "other", "text", "x")
        self.desk.add("2-1", id="mine", cancel="1-1")
        self.assertEqual((self.names("mine"), self.names("other")), (["1-1"], []))

    def test_one_that_came_back_has_its_name_and_a_false_claim_is_none(self):
        self.park("1-1")
        self.desk.run(self.desk.promote())
        back = next(iter(self.desk.entries()))
        self.assertEqual(self.names("mine"), ["1-1"])
        false = plain(self.client.xadd(self.desk.stream(), {"_id": "1-1", "id": "mine", "text": "x"}))
        self.assertEqual(self.names("mine"), ["1-1", false])
        self.desk.do("XDEL", self.desk.stream(), back)
        self.assertEqual(self.names("mine"), [false])

    def test_an_entry_whose_id_is_the_name_of_another(self):
        """A producer made up the same id twice: lua/cancel would end the one that was parked first."""
        self.park("1-1", id="first")
        self.desk.set_last_id("0-1")
        self.desk.add("1-1", text="x", id="second")
        self.assertEqual((self.names("first", "later"), self.names("second")), (["1-1"], []))
        self.desk.run(self.desk.promote())
        self.assertEqual((self.names("first"), self.names("second")), (["1-1"], []))

    def test_without_trouble_nothing_is_said(self):
        """A claimed name cannot be verified: an error is better than the name of another request."""
        self.desk.add("1-1", text="x", id="mine")
        self.client.set(self.desk.key("trouble"), "junk")
        self.assertEqual(self.names("other"), [])
        with self.assertRaisesRegex(Exception, "WRONGTYPE"):
            self.find("mine")

    def test_calls_are_bounded_and_go_on(self):
        """Calls are limited in number and bytes. After the end, the cursor leads to later arrivals."""
        for i in range(1, 131):
            self.desk.add(f"{i}-1", text="x", id=f"order-{i % 100}")
        self.assertEqual(self.find("order-30"), [1, "64-1", 64, "30-1"])
        self.assertEqual(self.find("order-30", "64-1"), [1, "128-1", 64])
        self.assertEqual(self.find("order-30", "128-1"), [0, "130-1", 2, "130-1"])
        self.desk.add("131-1", text="x", id="order-30")
        self.assertEqual(self.find("order-30", "130-1"), [0, "131-1", 1, "131-1"])
        self.assertEqual(self.find("order-30", "131-1"), [0, "131-1", 0])
        for i in range(1, 6):
            self.desk.add(f"{i}-1", "high", text="x" * 600000, id="large")
        self.assertEqual(self.find("large", which="high"), [1, "2-1", 2, "high:1-1", "high:2-1"])
        last = f"{2**64 - 1}-{2**64 - 1}"
        self.desk.add(last, text="x", id="last")
        self.assertEqual(self.find("last", "131-1"), [0, last, 1, last])
        self.assertEqual(self.find("last", last), [0, last, 0])

    def walk_later(self, id, meanwhile=lambda: None):
        found, cursor, more, calls = [], "", 1, 0
        while more:
            more, cursor, looked, *names = self.find(id, cursor, "later")
            self.assertLessEqual(looked, 64)
            found, calls = found + names, calls + 1
            meanwhile()
        return found, calls

    def test_later_is_walked_by_score(self):
        """Many have one score; requests that leave from the front meanwhile hide no others."""
        ids = [f"{i}-1" for i in range(1, 201)]
        self.park(*ids[:150], due_at_ms=4102444800000)
        self.park(*ids[150:], due_at_ms=4102444900000)
        self.assertEqual(self.walk_later("mine"), (sorted(ids[:150]) + sorted(ids[150:]), 4))
        due = [f"{i}-1" for i in range(300, 400)]
        self.park(*due, id="due")
        found, _ = self.walk_later("mine", lambda: self.desk.run(self.desk.promote(10)))
        self.assertEqual(sorted(found), sorted(ids))
        self.assertLess(self.client.zcard(self.desk.key("later")), 300)

    def test_large_ones_in_later(self):
        for i in range(1, 6):
            self.client.xadd(self.desk.stream(), {"text": "x" * 600000, "id": "large"}, f"{i}-1")
        self.desk.read("me")
        self.desk.run(self.desk.defer(*(Park(f"{i}-1", due_at_ms=4102444800000) for i in range(1, 6))))
        self.assertEqual(self.walk_later("large"), ([f"{i}-1" for i in range(1, 6)], 3))

    def test_rubbish_in_later_is_passed_over(self):
        self.park("1-1", due_at_ms=4102444800000)
        self.client.zadd(self.desk.key("later"), {"nothing": 1, "rubbish": 2, "number": 3})
        self.client.hset(self.desk.key("later:data"), mapping={"rubbish": b"\xc1", "number": b"\x07"})
        self.assertEqual(self.find("mine", which="later"), [0, "4102444800000 1", 4, "1-1"])

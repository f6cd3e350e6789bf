"""lua/list.lua: the requests of a class, as shown to people."""
# ctest: redis
# ctest-once

from scripts import Park, ScriptCase, plain


class List(ScriptCase):
    def list(self, what, after="", which="normal"):
        return self.desk.run(self.desk.list(what, after, which))

    def names(self, what, after="", which="normal"):
        behind, *found = self.list(what, after, which)
        return behind, [one[0] for one in found]

    def test_each_is_in_one_list(self):
        self.desk.deliver("me", "1-1", "2-1", which="low")
        self.desk.deliver("you", "3-1", which="low")
        self.desk.add("4-1", "low", text="hello", id="mine", tenant="acme", other="x")
        self.desk.add("5-1", "low", inputs='["a"]')
        self.client.xclaim(self.desk.stream("low"), "sluice", "ahead", 0, ["5-1"], force=True, justid=True)  # as lua/fair does
        self.assertEqual(self.names("pending", which="low"), ("", ["low:1-1", "low:2-1", "low:3-1", "low:5-1"]))
        self.assertEqual([one[1:2] + one[3:] for one in self.list("pending", which="low")[1:]],
                         [["me", 1, 9, "text", "hello"]] * 2 + [["you", 1, 9, "text", "hello"], ["ahead", 1, 11, "inputs", '["a"]']])
        self.assertEqual(self.list("unread", which="low"), ["", ["low:4-1", "", 0, 0, 31, "text", "hello", "id", "mine", "tenant", "acme"]])
        self.assertEqual([self.names(what) for what in ("pending", "unread")], [("", []), ("", [])])

    def test_without_a_group_or_a_message(self):
        self.desk.deliver("me", "1-1", "2-1")
        self.desk.do("XDEL", self.desk.stream(), "1-1")
        self.assertEqual([one[4:] for one in self.list("pending")[1:]], [[0], [9, "text", "hello"]])
        self.desk.do("XGROUP", "DESTROY", self.desk.stream(), "sluice")
        self.assertEqual([self.names(what) for what in ("pending", "unread")], [("", []), ("", ["2-1"])])
        self.desk.do("DEL", self.desk.stream())
        self.assertEqual([self.names(what) for what in ("pending", "unread")], [("", []), ("", [])])

    def test_a_request_that_came_back_has_its_name(self):
        """A claimed name that `trouble` does not know is ignored."""
        self.desk.deliver("me", "1-1")
        self.desk.run(self.desk.defer(Park("1-1")))
        self.desk.run(self.desk.promote())
        false = plain(self.client.xadd(self.desk.stream(), {"_id": "1-1", "text": "x"}))
        self.assertEqual(self.names("unread"), ("", ["1-1", false]))
        self.client.set(self.desk.key("trouble"), "junk")  # then claimed names are believed, except impossible ones
        for name in ("2-1 ", "low:2-1", "2" * 50 + "-1", "2-1"):
            self.client.xadd(self.desk.stream(), {"_id": name, "text": "x"})
        names = self.names("unread")[1]
        self.assertEqual((names[:2], names[-1]), (["1-1", "1-1"], "2-1"))
        self.assertEqual(names[2:-1], [plain(id) for id, _ in self.client.xrange(self.desk.stream())[2:-1]])

    def test_parked_ones(self):
        """The next one first, 64 or 1 MiB at a time; one whose fields cannot be read, too."""
        for i, text in enumerate(["c", "é" * 300000, "b", "é" * 300000], 1):
            self.desk.add(f"{i}-1", text=text, id=f"order-{i}")
            self.desk.read("me")
            self.desk.run(self.desk.defer(Park(f"{i}-1")))
            self.client.zadd(self.desk.key("later"), {f"{i}-1": 4000000000000 - i})
        self.assertEqual([self.names("later", after) for after in ("", "3")], [("3", ["4-1", "3-1", "2-1"]), ("", ["1-1"])])
        self.assertEqual(self.list("later")[2], ["3-1", "", "3999999999997", 0, 14, "text", "b", "id", "order-3"])
        self.client.zadd(self.desk.key("later"), {f"low:{i}-1": i for i in range(1, 70)})
        self.client.hset(self.desk.key("later:data"), "low:3-1", "junk")
        pages = [self.names("later", after) for after in ("", "64", "72")]
        self.assertEqual([(after, len(names)) for after, names in pages], [("64", 64), ("72", 8), ("", 1)])
        self.assertEqual(self.list("later")[3], ["low:3-1", "", "3", 0, 4])

    def test_nothing_is_behind_the_last_id(self):
        last = f"{2**64 - 1}-{2**64 - 1}"
        self.desk.deliver("me", "1-1", last)
        self.assertEqual([self.names("pending", after) for after in ("1-1", last)], [("", [last]), ("", [])])
        self.assertEqual(self.names("unread", last), ("", []))

    def test_a_call_is_bounded(self):
        """A call is limited in entries, in bytes, and in the bytes shown of one entry."""
        for i in range(1, 131):
            self.desk.add(f"{i}-1")
        pages, behind = [], None
        while behind != "":
            behind, found = self.names("unread", behind or "")
            pages.append(len(found))
        self.assertEqual(pages, [64, 64, 2])
        self.desk.read("me")
        self.assertEqual([self.names("pending", after)[0] for after in ("", "64-1", "128-1")], ["64-1", "128-1", ""])
        for i in range(1, 6):
            self.desk.add(f"{i}-1", "high", text="é" * 300000)
        self.assertEqual([self.names("unread", after, "high") for after in ("", "2-1", "4-1")],
                         [("2-1", ["high:1-1", "high:2-1"]), ("4-1", ["high:3-1", "high:4-1"]), ("", ["high:5-1"])])
        self.assertEqual(self.list("unread", which="high")[1][-1], "é" * 99)  # the hundredth ends the 200 bytes and may be cut, so it is dropped
        fields = [word for i in range(5000) for word in ("text", f"text {i}")]
        self.client.execute_command("XADD", self.desk.stream("low"), "1-1", *fields)
        self.assertEqual(self.list("unread", which="low")[1][5:], ["text", "text 0"])

"""lua/pulse.lua: the heartbeat, the remote command, and the values that producers read before they enqueue."""
# ctest: redis
# ctest-once

from scripts import ScriptCase, plain


class Pulse(ScriptCase):
    def pulse(self, *arguments, **heartbeat):
        return self.desk.run(self.desk.pulse(*arguments, **heartbeat))

    def meta(self):
        return plain(self.client.hgetall(self.desk.key("meta")))

    def fill(self, which, count):
        pipe = self.client.pipeline(transaction=False)
        for i in range(1, count + 1):
            pipe.xadd(self.desk.stream(which), {"text": "x"}, f"{i}-1")
        pipe.execute()

    def waits(self):
        meta = self.meta()
        return [int(meta[f"wait_ms_{which}"]) for which in ("high", "normal", "low")]

    def test_heartbeat(self):
        answer = self.pulse(state="running", held=3, rows_per_s="12.5")
        self.assertEqual(plain(self.client.hgetall(self.desk.key("workers"))),
                         {"me": f"{answer[0]} state running held 3 rows_per_s 12.5"})
        seconds, _ = self.client.time()
        self.assertAlmostEqual(answer[0] / 1000, seconds, delta=60)

    def test_how_many_workers_there_are(self):
        self.assertEqual([self.pulse("a")[12], self.pulse("b")[12], self.pulse("a")[12]], [1, 2, 2])

    def test_command_is_taken_once_and_by_its_worker(self):
        """It is repeated until the worker confirms it; another command given meanwhile arrives, too."""
        workers = self.desk.key("workers")
        for worker in ("you", "x"):
            self.pulse(worker)
        self.client.hset(workers, mapping={"command:me": "drain", "command:you": "quiet", "command:x": "y" * 40})
        self.assertEqual([self.pulse()[2], self.pulse()[2], self.pulse("you")[2]], ["drain", "drain", "quiet"])
        self.assertEqual([self.pulse(came="drain")[2], self.pulse(came="drain")[2]], ["", ""])
        self.client.hset(workers, "command:you", "resume")
        self.assertEqual([self.pulse("you", came="quiet")[2], self.pulse("you", came="resume")[2]], ["resume", ""])
        self.assertEqual([self.pulse("x")[2], self.pulse("x", came="y" * 31)[2]], ["y" * 31, ""])
        self.assertEqual([name for name in plain(self.client.hkeys(workers)) if name.startswith("command:")], [])

    def test_paused(self):
        self.assertEqual(self.pulse()[1], 0)
        self.client.set(self.desk.key("paused"), "by me")
        self.assertEqual(self.pulse()[1], 1)

    def test_depth_is_what_nobody_has_read(self):
        for which, count in (("high", 4), ("normal", 7), ("low", 2)):
            self.fill(which, count)
        self.desk.read("a", "normal", count=2)
        self.desk.read("b", "normal", count=1)
        self.desk.read("a", "low")
        self.assertEqual(self.pulse()[3:6], [4, 4, 0])
        meta = self.meta()
        self.assertEqual([meta[f"depth_{which}"] for which in ("high", "normal", "low")], ["4", "4", "0"])

    def test_depth_without_group_or_with_vanished_entries(self):
        self.fill("high", 3)
        self.desk.do("XGROUP", "DESTROY", self.desk.stream("high"), "sluice")
        self.fill("low", 2)
        self.desk.read("a", "low")
        self.client.xdel(self.desk.stream("low"), "1-1", "2-1")
        self.client.delete(self.desk.stream())
        self.assertEqual(self.pulse()[3:6], [3, 0, 0])

    def test_caps(self):
        for value, expected in (("100", 100), ("0", 0), ("-5", 0), ("junk", 0), ("1.5", 1), ("1e3", 1000)):
            self.client.hset(self.desk.key("meta"), "cap_normal", value)
            self.assertEqual(self.pulse()[6:9], [0, expected, 0], value)

    def test_published(self):
        self.client.zadd(self.desk.key("later"), {"1-1": 1, "2-1": 2})
        self.client.xadd(self.desk.key("dead"), {"x": "y"})
        answer, meta = self.pulse(rows_per_s=1), self.meta()
        self.assertEqual((meta["later"], meta["dead"], meta["published_at"]), ("2", "1", str(answer[0])))

    def test_limits_are_those_of_the_strictest_worker(self):
        """Only recent heartbeats count; a leaving worker sends 0, which means no limit. The last limits stay when no
        worker gives any."""
        now = int(self.client.time()[0]) * 1000
        self.client.hset(self.desk.key("workers"), mapping={
            "you": f"{now} state running max_inputs 64 max_text_bytes 2000000", "old": f"{now - 60000} state running max_inputs 2",
            "leaves": f"{now} state draining max_inputs 0 max_text_bytes 0"})
        self.pulse(max_inputs=256, max_text_bytes=1048576)
        self.assertEqual([self.meta()[limit] for limit in ("max_inputs", "max_text_bytes")], ["64", "1048576"])
        self.client.delete(self.desk.key("workers"))
        self.pulse(max_text_bytes=15728640)
        self.assertEqual([self.meta()[limit] for limit in ("max_inputs", "max_text_bytes")], ["64", "15728640"])

    def test_wait_of_one_class(self):
        self.fill("normal", 30)
        self.pulse(rows_per_s=10)
        self.assertEqual(self.waits(), [0, 3000, 0])

    def test_wait_shares_by_weight_until_a_class_is_empty(self):
        """60 + 60 + 60 rows at 10 per second: high takes 10 s at 6/s, normal then has 30 left and continues at 7.5/s,
        low gets the rest; all are done after 18 s."""
        for which in ("high", "normal", "low"):
            self.fill(which, 60)
        self.pulse(rows_per_s=10)
        self.assertEqual(self.waits(), [10000, 14000, 18000])

    def test_wait_adds_up_workers_that_spoke_lately(self):
        self.fill("normal", 30)
        now = int(self.client.time()[0]) * 1000
        self.client.hset(self.desk.key("workers"), mapping={
            "you": f"{now} state running rows_per_s 5", "old": f"{now - 60000} state running rows_per_s 1000",
            "odd": "junk", "silent": f"{now} state running", "command:x": "stop"})
        self.pulse(rows_per_s=10)
        self.assertEqual(self.waits(), [0, 2000, 0])

    def test_wait_is_unknown_when_nobody_works(self):
        self.fill("normal", 30)
        self.pulse(rows_per_s=0)
        self.assertEqual(self.waits(), [-1, -1, -1])

    def test_wait_of_a_huge_backlog(self):
        """The fluid model has to run empty within a few steps, whatever the numbers."""
        self.fill("low", 100000)
        self.fill("high", 1)
        self.pulse(rows_per_s="0.001")
        high, _, low = self.waits()
        self.assertTrue(0 < high < low)
        self.pulse(rows_per_s=99999999)
        self.assertEqual([wait > 0 for wait in self.waits()], [True, False, True])

    def house(self):
        return plain(self.client.get(self.desk.key("housekeeper")))

    def test_one_is_the_housekeeper_until_its_time_is_over(self):
        self.assertEqual([self.pulse(who, 2, 60000)[10] for who in ("a", "b", "a", "b")], [1, 0, 1, 0])
        self.assertEqual(self.house(), "2 a")
        self.pulse("a", 2, 1)
        self.wait_until(lambda: self.pulse("b", 2, 60000)[10] == 1, "another one to be elected")
        self.assertIn(self.client.pttl(self.desk.key("housekeeper")), range(50000, 60001))
        self.assertEqual([self.pulse(who)[10] for who in ("a", "b")], [0, 1])

    def test_who_can_do_more_is_the_housekeeper(self):
        elected = [(who, rank, self.pulse(who, rank)[10]) for who, rank in (
            ("quiet", 0), ("new", 1), ("quiet", 0), ("newer", 1), ("old", 2), ("older", 2), ("new", 2), ("old", 0), ("newer", 1))]
        self.assertEqual([who for who, _, was in elected if was], ["quiet", "new", "old", "old", "newer"])

    def test_who_leaves_gives_it_up(self):
        self.pulse("a")
        self.assertEqual([self.pulse("b", -1)[10], self.house()], [0, "2 a"])
        self.assertEqual([self.pulse("a", -1)[10], self.house()], [0, None])
        self.pulse("b")
        for who in ("a", "b"):
            self.desk.run(self.desk.join(f"token-{who}", me=who))
            self.desk.run(self.desk.release(me=who, token=f"token-{who}", last=2))
            self.assertEqual(self.house(), "2 b" if who == "a" else None)

    def test_what_the_housekeeper_has_found_goes_round(self):
        self.assertEqual(self.pulse("a", found="released dead-1")[10:12], [1, ""])
        self.assertEqual([self.house(), self.pulse("b", found="mine")[10:12]], ["2 a released dead-1", [0, "released dead-1"]])
        self.assertEqual([self.pulse("a")[10:12], self.pulse("b")[10:12]], [[1, ""], [0, ""]])

    def test_junk_in_the_housekeepers_key_keeps_nobody_from_it(self):
        self.client.set(self.desk.key("housekeeper"), "junk")
        self.assertEqual(self.pulse()[10], 1)
        self.client.delete(self.desk.key("housekeeper"))
        self.client.rpush(self.desk.key("housekeeper"), "junk")
        self.assertEqual([self.pulse()[10], self.house()], [1, "2 me"])

    def test_only_the_housekeeper_publishes(self):
        self.fill("normal", 3)
        self.client.hset(self.desk.key("meta"), "cap_normal", 2)
        self.assertEqual(self.pulse("a")[3:9], [0, 3, 0, 0, 2, 0])
        self.client.hset(self.desk.key("meta"), "published_at", 7)
        self.assertEqual(self.pulse("b")[3:9], [0] * 6)
        self.assertEqual(self.meta()["published_at"], "7")
        self.assertIn("b", plain(self.client.hgetall(self.desk.key("workers"))))

    def test_a_wrong_type_anywhere_does_not_hide_a_pause(self):
        self.client.set(self.desk.key("paused"), "1")
        for suffix in ("meta", "workers", "later", "dead", "requests", "requests:high", "requests:low"):
            self.client.delete(self.desk.key(suffix))
            self.client.set(self.desk.key(suffix), "junk")
            answer = self.pulse(rows_per_s=1)
            self.assertEqual(answer[1], 1, suffix)
            self.assertGreater(answer[9], 0, suffix)

    def test_dead_workers_are_forgotten_and_counted(self):
        """A worker that may judge leases forgets them two of their own leases after their last heartbeat."""
        now = int(self.client.time()[0]) * 1000
        self.client.hset(self.desk.key("workers"), mapping={
            "fresh": f"{now} state running lease 30000", "slow": f"{now - 61000} state running lease 40000",
            "dead": f"{now - 61000} state running lease 30000", "command:dead": "stop", "command:slow": "quiet",
            "older version": f"{now - 3700000} state running", "junk": "junk", "command:nobody": "stop"})
        self.pulse(rank=1)
        self.assertEqual((self.client.hlen(self.desk.key("workers")), self.client.exists(self.desk.key("stats"))), (9, 0))
        answer = self.pulse()
        self.assertEqual(set(plain(self.client.hkeys(self.desk.key("workers")))), {"fresh", "slow", "command:slow", "me"})
        self.assertEqual(plain(self.client.hgetall(self.desk.key("stats"))), {"died": "3", "since": str(answer[0])})
        self.assertEqual(self.pulse()[9], 0)
        self.client.hset(self.desk.key("workers"), "late", f"{now - 61000} state running lease 30000")
        self.client.delete(self.desk.key("stats"))
        self.client.set(self.desk.key("stats"), "junk")
        self.assertEqual(self.pulse()[9], 1)
        self.assertNotIn(b"late", self.client.hkeys(self.desk.key("workers")))

    def test_neighbours_are_named_to_who_asks(self):
        """Workers with the same pid_space are named, to housekeepers and others, with the time since their last
        heartbeat."""
        now = int(self.client.time()[0]) * 1000
        self.client.hset(self.desk.key("workers"), mapping={
            "host-1-0000000a": f"{now - 5000} state running pid_space here-1 lease 30000", "command:host-1-0000000a": "stop",
            "host-2-0000000b": f"{now + 60000} state running pid_space here-1", "host-3-0000000c": f"{now} pid_space here-12",
            "older": f"{now} state running", "two words": f"{now} pid_space here-1", "junk": "junk"})
        self.assertEqual(self.pulse("housekeeper", pid_space="here-1")[14], "")
        for asks in (self.pulse("housekeeper", asks="here-1", pid_space="here-1"), self.pulse("other", 1, asks="here-1")):
            words = plain(asks[14]).split()
            named = dict(zip(words[::2], map(int, words[1::2])))
            named.pop("housekeeper", None)
            self.assertEqual(set(named), {"host-1-0000000a", "host-2-0000000b"})
            self.assertTrue(5000 <= named["host-1-0000000a"] < 60000, named)
            self.assertEqual(named["host-2-0000000b"], 0)

    def test_precisions_of_those_that_spoke_lately(self):
        now = int(self.client.time()[0]) * 1000
        self.client.hset(self.desk.key("workers"), mapping={
            "a": f"{now} state running precision f32", "old": f"{now - 60000} state running precision int8 lease 100000"})
        self.assertEqual(self.pulse(precision="f32")[13], "")
        self.client.hset(self.desk.key("workers"), "b", f"{now} state running precision bf16")
        self.assertEqual(self.pulse(precision="f32")[13], "bf16 f32")
        self.assertEqual(self.pulse("you", precision="f32")[13], "")

    def test_what_has_ended_is_counted_once(self):
        def counted():
            return {field: int(count) for field, count in plain(self.client.hgetall(self.desk.key("stats"))).items() if field != "since" and not field.startswith("day:")}
        first = self.pulse(ended="1 normal:done 3 high:bad_request 1", counted=1)[0]
        self.assertEqual(counted(), {"normal:done": 3, "high:bad_request": 1})
        self.pulse(ended="1 normal:done 3 high:bad_request 1", counted=1)  # its answer was lost
        self.pulse(ended="", counted=1)
        self.pulse(ended="2 normal:done 4", counted=2)
        self.pulse("you", ended="2 low:cancelled 1", counted=2)
        self.assertEqual(counted(), {"normal:done": 7, "high:bad_request": 1, "low:cancelled": 1})
        self.assertEqual(self.client.hget(self.desk.key("stats"), "since"), str(first).encode())
        self.client.hset(self.desk.key("stats"), "normal:done", "junk")
        self.assertEqual((self.pulse(ended="3 normal:done 1 low:done 1", counted=3)[9], self.client.hget(self.desk.key("stats"), "low:done")),
                         (1, b"1"))

    def test_what_has_ended_is_counted_by_day(self):
        """Each end is counted once; a day reuses the place of the 91st day before."""
        def days():
            return {field: count for field, count in plain(self.client.hgetall(self.desk.key("stats"))).items() if field.startswith("day:")}
        self.wait_until(lambda: self.now_ms() % 86400000 < 86400000 - 30000, "a day that does not end meanwhile", timeout=60)
        today = self.now_ms() // 86400000
        place = f"day:{today % 91}"
        self.client.hset(self.desk.key("stats"), mapping={place: f"{today - 91} 5 5", f"day:{(today - 1) % 91}": f"{today - 1} 6 6"})
        for _ in range(2):
            self.pulse(ended="1 normal:done 3 high:done 2 high:bad_request 1 low:cancelled 9 ignored 5", counted=1)
        self.pulse(ended="2 low:internal 4", counted=2)
        self.pulse("you", ended="1 low:done 1", counted=1)
        self.assertEqual(days(), {place: f"{today} 6 5", f"day:{(today - 1) % 91}": f"{today - 1} 6 6"})
        self.client.hset(self.desk.key("stats"), place, "junk")
        self.pulse(ended="3 low:done 7", counted=3)
        self.assertEqual(days()[place], f"{today} 7 0")

"""lua/bucket.lua: how much an API key may ask."""
# ctest: redis
# ctest-once

from scripts import ScriptCase


class Bucket(ScriptCase):
    def take(self, *arguments, **more):
        return self.desk.run(self.desk.bucket(*arguments, **more))

    def back(self, ms, key="k"):
        """Makes the record of a bucket older."""
        name = self.desk.key("limit:" + key)
        self.client.hset(name, "at", int(self.client.hget(name, "at")) - ms)

    def level(self, what, key="k"):
        return float(self.client.hget(self.desk.key("limit:" + key), what))

    def test_a_minutes_requests_at_once_then_one_at_a_time(self):
        self.assertEqual([self.take(2), self.take(2)], [0, 0])
        wait = self.take(2)
        self.assertIn(wait, range(20000, 30001))
        self.back(30000)
        self.assertEqual(self.take(2), 0)
        self.assertGreater(self.take(2), 20000)

    def test_it_never_holds_more_than_a_minute(self):
        self.take(3)
        self.back(86400000)
        self.assertEqual([self.take(3) for _ in range(3)], [0, 0, 0])
        self.assertGreater(self.take(3), 0)

    def test_tokens_become_negative_and_come_back(self):
        self.assertEqual(self.take(0, 60), 0)
        self.assertEqual(self.take(0, 60, take=0, take_tokens=90), 0)
        self.assertIn(self.take(0, 60), range(29000, 31001))  # one a second: from -30 to 1
        self.assertEqual(self.take(0, 60, take=0, take_tokens=1), 0)
        self.back(33000)
        self.assertEqual(self.take(0, 60), 0)

    def test_both_limits_count(self):
        self.assertEqual(self.take(2, 10), 0)
        self.take(2, 10, take=0, take_tokens=100)
        self.assertGreater(self.take(2, 10), 60000)
        self.assertGreaterEqual(self.level("requests"), 1)  # a refused call takes none
        self.back(600000)
        self.assertEqual(self.take(2, 10), 0)

    def test_a_full_bucket_is_forgotten(self):
        self.take(60)
        name = self.desk.key("limit:k")
        self.assertIn(self.client.pttl(name), range(1, 1001))
        self.wait_until(lambda: not self.client.exists(name), "the bucket to be full")
        self.take()  # without limits nothing is written
        self.assertFalse(self.client.exists(name))

    def test_a_clock_that_was_set_back(self):
        self.take(1)
        self.back(-600000)
        self.assertIn(self.take(1), range(59000, 60001))

    def test_large_numbers(self):
        self.assertEqual(self.take(10**9, 10**9), 0)
        self.assertEqual(self.take(10**9, 10**9, take=0, take_tokens=10**12), 0)
        wait = self.take(10**9, 10**9)
        self.assertIn(wait, range(59000000, 60000001))

    def test_keys_have_their_own(self):
        self.assertEqual([self.take(1, key="a"), self.take(1, key="b")], [0, 0])
        self.assertGreater(self.take(1, key="a"), 0)

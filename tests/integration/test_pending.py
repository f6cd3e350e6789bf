"""Pending entries that no worker holds: under the name of a living worker that never received them, and under consumers
of any name that are not workers. Each is answered, once, while the workers go on."""
# ctest: redis
# ctest-cost: 40

import json

from case import RedisCase
from corpus import texts
from producer import Request


class Pending(RedisCase):
    def pause(self):
        self.client.set(self.sender.key("paused"), 1)
        self.wait_paused(self.client)

    def resume(self):
        self.client.delete(self.sender.key("paused"))

    def read_as(self, consumer, level="", count=1000):
        """Reads by hand as `consumer`; returns the ids."""
        stream = self.sender.stream_of(level)
        answer = self.client.execute_command("XREADGROUP", "GROUP", "sluice", consumer, "COUNT", count, "STREAMS", stream, ">")
        return [entry[0] for entry in answer[0][1]] if answer else []

    def claim_for(self, consumer, ids, level=""):
        self.client.execute_command("XCLAIM", self.sender.stream_of(level), "sluice", consumer, 0, *ids, "JUSTID", parse_justid=True)

    def finish_all(self, daemon, *others):
        self.finish(self.server, self.sender, ttl_seconds=86400)
        name = daemon.last_name()
        self.assertEqual(daemon.worker_name(self.client), name, "it is the same worker still")
        for one in (daemon, *others):
            self.assertEqual(one.stop(), 0)

    def log_lines(self, daemon, event):
        lines = [json.loads(line) for line in daemon.read_log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    # --- under a living worker's name ---

    def test_put_under_a_workers_name(self):
        """The entries are of two classes, and more than one list holds."""
        served = self.start_daemon(self.server, "--log", "json")
        self.pause()
        self.sender.submit_many(texts(100, seed=1))
        for number, text in enumerate(texts(40, seed=2)):
            request = Request(f"low-{number}", text, {"text": text, "id": f"low-{number}"})
            self.sender.push(self.sender.journal.add(request), level="low")
        for level in ("", "low"):
            self.claim_for(served.last_name(), self.read_as("tool", level), level)
        self.resume()
        self.finish_all(served)
        found = sum(line["entries"] for line in self.log_lines(served, "strays_found"))
        self.assertEqual(found, 140)
        self.assertEqual(self.log_lines(served, "drained")[-1]["strays"], 140)

    def test_one_whose_message_is_gone(self):
        """It cannot be computed, and must not stay for ever."""
        served = self.start_daemon(self.server)
        self.pause()
        name = self.client.xadd(self.sender.stream, {"text": "hello"}).decode()
        self.claim_for(served.last_name(), self.read_as("tool"))
        self.client.xdel(self.sender.stream, name)
        self.resume()
        self.wait_until(lambda: self.client.hget(self.sender.key("reply:" + name), "code") == b"internal", "the answer")
        self.wait_until(lambda: self.pending(self.client) == 0, "nothing to be pending")
        self.assertEqual(served.stop(), 0)

    def test_a_stream_that_is_restored(self):
        """Some entries are unread, some pending with the worker, some with another consumer."""
        served = self.start_daemon(self.server)
        self.pause()
        self.sender.submit_many(texts(20, seed=3))
        self.claim_for(served.last_name(), self.read_as("tool", count=15)[:10])
        dump = self.client.dump(self.sender.stream)
        self.client.delete(self.sender.stream)
        self.client.restore(self.sender.stream, 0, dump)
        self.resume()
        self.finish_all(served)

    def test_what_was_answered_comes_back(self):
        """As after a failover to a replica that has missed the replies: each request is answered once more."""
        served = self.start_daemon(self.server)
        self.pause()
        requests = self.sender.submit_many(texts(20, seed=3))
        self.claim_for(served.last_name(), self.read_as("tool"))
        dump = self.client.dump(self.sender.stream)
        self.resume()
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        for request in requests:
            self.client.delete(self.sender.key("reply:" + request.id))
        self.client.restore(self.sender.stream, 0, dump, replace=True)
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        self.assertEqual(self.pending(self.client), 0)
        self.assertEqual(served.stop(), 0)

    def test_a_stream_that_is_renamed(self):
        served = self.start_daemon(self.server)
        self.pause()
        requests = self.sender.submit_many(texts(20, seed=4))
        self.claim_for(served.last_name(), self.read_as("tool"))
        self.client.rename(self.sender.stream, "aside")
        last_ms = int(requests[-1].id.split("-")[0])
        self.wait_until(lambda: self.now_ms() > last_ms, "another ms: the new stream does not know the ids of the old one")
        self.resume()
        other = self.sender.submit("while it is away")
        self.wait_finished(self.sender, [other])
        self.pause()
        self.wait_empty(self.sender)
        self.client.rename("aside", self.sender.stream)
        self.resume()
        self.wait_finished(self.sender, requests)
        self.finish_all(served)

    def test_under_load(self):
        """There is always more to read than the worker has room for."""
        served = self.start_daemon(self.server)
        load = self.start_load(self.server)
        taken = 0
        while taken < 40:
            ids = self.read_as("tool", count=10)
            if ids:
                self.claim_for(served.last_name(), ids)
            taken += len(ids)
        load.stop()
        self.finish_all(served)

    def test_a_quiet_worker_leaves_them_to_others(self):
        quiet, other = self.start_daemon(self.server), self.start_daemon(self.server)
        quiet_name = quiet.worker_name(self.client)
        self.pause()
        self.run_sluice("workers", "quiet", quiet_name, "--redis", self.server.socket, "--queue", self.queue)
        workers = self.sender.key("workers")
        self.wait_until(lambda: b"state quiet" in self.client.hget(workers, quiet_name), "it to be quiet")
        self.sender.submit_many(texts(50, seed=5))
        self.claim_for(quiet_name, self.read_as("tool"))
        self.resume()
        self.finish_all(other, quiet)

    # --- under other names ---

    NAMES = ("bob", "bobs laptop", "josé", "x" * 200, "y" * 5000, "tab\tname", "tool:a=1", "", "released", "ahead", b"a\0b", b"\xff\xfe",
             "a,+b", "%41", "A", "*[x]?", "command:quiet", "line\nname")

    def test_consumers_of_any_name(self):
        """For each consumer that is not a worker the log has one line, which is valid JSON and names it in ASCII."""
        served, other = (self.start_daemon(self.server, "--log", "json") for _ in range(2))
        self.pause()
        for number, name in enumerate(self.NAMES):
            self.sender.submit_many(texts(5, seed=number))
            self.assertEqual(len(self.read_as(name)), 5)
        self.resume()
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        lines = self.log_lines(served, "foreign_consumer") + self.log_lines(other, "foreign_consumer")
        names = sorted(line["consumer"] for line in lines)
        shown = ["bob", "bobs%20laptop", "jos%C3%A9", "x" * 132, "y" * 132, "tab%09name", "tool%3Aa%3D1", "%", "a%00b", "%FF%FE", "a%2C%2Bb",
                 "%2541", "A", "%2A%5Bx%5D%3F", "command%3Aquiet", "line%0Aname"]
        self.assertLessEqual(set(shown), set(names))
        self.assertLessEqual(len(names), 2 * len(shown), "each housekeeper says it once")
        self.assertTrue(all(line["entries"] == 5 for line in lines))
        self.finish_all(served, other)
        self.assertEqual({c["name"].decode() for c in self.client.xinfo_consumers(self.sender.stream, "sluice")} & {"bob", ""}, set())

    def test_a_lease_of_any_name_is_respected(self):
        """A reader keeps its entries by holding an alive key."""
        served = self.start_daemon(self.server)
        self.pause()
        for name in (b"my own \xff reader", b"no lease"):
            self.client.set(self.sender.key("alive:").encode() + name, "mine")
            self.sender.submit("read by " + repr(name))
            self.read_as(name)
        self.client.delete(self.sender.key("alive:no lease"))
        self.resume()
        mine, nobodys = self.sender.journal.requests.values()
        self.wait_finished(self.sender, [nobodys])
        self.assertFalse(self.sender.finished([mine]))
        self.client.delete(self.sender.key("alive:").encode() + b"my own \xff reader")
        self.finish_all(served)

    def test_a_reader_that_answers_after_all_is_late(self):
        served = self.start_daemon(self.server)
        self.pause()
        self.sender.submit("hello")
        entry, = self.read_as("bobs laptop")
        self.resume()
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        self.assertEqual(self.client.xack(self.sender.stream, "sluice", entry), 0)
        self.finish_all(served)

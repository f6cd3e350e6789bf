"""`sluice get`, `get --story` and `cancel` by a request's own id, in each of its states."""
# ctest-cost: 8

import json

from case import RedisCase
from proxy import Proxy
from scripts import Desk, End, Park

UNAVAILABLE, USAGE = 69, 64

# Adds many small requests without returning their ids.
FILL = """
for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'text', 'x', 'id', 'filler-' .. i) end
"""


class OwnId(RedisCase):
    def get(self, id, status=None):
        """Returns the place of an unfinished request, or the status of a reply."""
        if status:
            place = json.loads(self.sluice("get", id))
            self.assertEqual(place["status"], status)
        else:
            place = json.loads(self.sluice("get", id, code=UNAVAILABLE))
        return place

    def story(self, id, code=0):
        return json.loads(self.sluice("get", id, "--story", "--json", code=code))

    def add(self, level="", **fields):
        """Adds a request and returns its name."""
        entry = self.client.xadd(self.sender.stream_of(level), {"text": "x", **fields}).decode()
        return f"{level}:{entry}" if level else entry

    def status(self, id):
        return (self.client.hget(self.sender.key("reply:" + id), "status") or b"").decode()

    def wait_status(self, id, status):
        self.wait_until(lambda: self.status(id) == status, lambda: f"{id} to be {status}; it is {self.status(id)}")

    def assert_untouched(self, *ids):
        """Asserts that other requests go on as if nothing had happened."""
        for id in ids:
            self.wait_status(id, "done")

    def pause(self):
        self.sluice("pause")

    def test_waiting(self):
        """A request waits in each class, without a worker and while the queue is paused."""
        self.pause()
        names = {level: self.add(level, id=f"order {level}") for level in ("high", "", "low")}
        other = self.add(id="order")
        for level, name in names.items():
            self.assertEqual(self.get(f"order {level}"), {"id": f"order {level}", "status": "queued", "entry": name})
            story = self.story(f"order {level}")
            self.assertEqual((story["name"], story["id"], story["status"]), (name, f"order {level}", "queued"))
        self.assertIn(f"submitted: as {names['low']} in class low", self.sluice("get", "order low", "--story"))
        for level, name in names.items():
            self.assertEqual(self.sluice("cancel", f"order {level}"), f"order {level}, which is {name}: asked to cancel\n")
        self.start_daemon(self.server)
        for level in names:
            self.wait_status(f"order {level}", "cancelled")
        self.sluice("resume")
        self.assert_untouched("order")
        self.assertEqual(self.sender.reply("order")["entry"], other)

    def test_in_flight(self):
        """A worker holds it: the line names the worker, and a cancel ends the request."""
        daemon = self.make_faulty(self.server, faults=["slow:{kernel}:600000"]).start().wait_ready(self.client)
        worker = daemon.worker_name(self.client)
        name = self.add(text="the kernel", id="order-42")
        self.wait_until(lambda: self.pending(self.client, worker=worker) == 1, "it to be read")
        self.assertEqual(self.get("order-42"), {"id": "order-42", "status": "running", "entry": name, "worker": worker})
        self.assertEqual(self.story("order-42")["worker"], worker)
        self.sluice("cancel", "order-42")
        self.wait_status("order-42", "cancelled")
        daemon.kill()

    def test_delayed_and_retried(self):
        """The request is in `later`, and then back in the stream as another entry."""
        daemon = self.make_faulty(self.server, "--backoff-ms", "3600000", "--backoff-cap-ms", "3600000", faults=["error:{kernel}"])
        daemon.start().wait_ready(self.client)
        delayed, retried = self.add("low", id="delayed", delay="86400000"), self.add(text="the kernel", id="retried")
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 2, "both to be parked")
        for id, name in (("delayed", delayed), ("retried", retried)):
            place = self.get(id)
            self.assertEqual((place["status"], place["entry"]), ("later", name))
            self.assertEqual(place["due_at"], int(self.client.zscore(self.sender.key("later"), name)))
            self.assertEqual(self.story(id)["due_at"], place["due_at"])
        self.pause()
        self.wait_paused(self.client)
        Desk(self.client, self.queue).come_back(retried, "*")
        story = self.story("retried")
        self.assertEqual((story["name"], story["status"], story["attempts"]), (retried, "queued", 1))
        self.assertEqual(self.sluice("cancel", "retried", "delayed"), f"retried, which is {retried}: asked to cancel\n"
                                                                      f"delayed, which is {delayed}: asked to cancel\n")
        for id in ("delayed", "retried"):
            self.wait_status(id, "cancelled")
        self.assertEqual(self.client.zcard(self.sender.key("later")), 0)

    def test_finished_and_dead(self):
        """A request that has ended cannot be cancelled, and its reply stays."""
        self.make_faulty(self.server, faults=["error:{kernel}"]).start().wait_ready(self.client)
        self.add(id="good")
        doomed = self.add(text="the kernel", id="bad", max_attempts="1")
        self.wait_status("good", "done")
        self.wait_status("bad", "error")
        before = {id: self.client.hgetall(self.sender.key("reply:" + id)) for id in ("good", "bad")}
        self.assertEqual(self.sluice("cancel", "good", "bad", code=UNAVAILABLE),
                         "good: no unfinished request has this id\nbad: no unfinished request has this id\n")
        self.assertIn("2 of 2 were not found in queue test", self.said)
        self.assertEqual(self.client.exists(self.sender.key("control")), 0)
        self.assertEqual({id: self.client.hgetall(self.sender.key("reply:" + id)) for id in before}, before)
        self.assertEqual(self.get("good", "done")["id"], "good")
        self.assertEqual(self.story("bad")["status"], "error")
        self.client.delete(self.sender.key("reply:bad"), self.sender.key("reply:good"))
        self.assertEqual((self.get("bad")["status"], self.story("bad")["name"]), ("dead", doomed))
        self.assertEqual(self.get("good")["status"], "unknown")
        self.assertIn("its reply has expired, or it was never enqueued", self.said)
        self.story("good", code=UNAVAILABLE)

    def test_several_with_one_id(self):
        """The newest is shown, and the others are named. A cancel ends all of them, and no other request. A reply left
        by an earlier one is shown as usual, and does not hide the others from a cancel."""
        daemon = self.start_daemon(self.server)
        first = self.add(id="order-42")
        self.wait_status("order-42", "done")
        self.pause()
        self.wait_paused(self.client)
        delayed = self.add("low", id="parked", delay="86400000")
        names = [self.add(level, id="order-42") for level in ("high", "", "low")]  # within one ms their class decides which is older
        others = [self.add(id=f"order-4{end}") for end in ("", "1", "22")]
        self.assertEqual(self.get("order-42", "done")["info"]["entry"], first)
        self.client.delete(self.sender.key("reply:order-42"))
        self.assertEqual(self.get("order-42")["entry"], names[-1])
        story = self.story("order-42")
        self.assertEqual((story["name"], story["others"]), (names[-1], names[1::-1]))
        self.assertIn(f"shared: 2 older unfinished requests with this id: {names[1]}, {names[0]}\n", self.sluice("get", "order-42", "--story"))
        self.assertEqual(self.sluice("cancel", "order-42"), "".join(f"order-42, which is {name}: asked to cancel\n" for name in names[::-1]))
        self.wait_until(lambda: sum(self.client.xlen(self.sender.stream_of(level)) for level in ("high", "", "low")) == len(others) + 1,
                        "three to be cancelled")
        self.assertEqual(self.sender.reply("order-42")["entry"], names[-1])
        self.sluice("resume")
        self.assert_untouched("order-4", "order-41", "order-422")
        self.wait_until(lambda: self.client.zscore(self.sender.key("later"), delayed), "it to be parked")
        self.assertTrue(daemon.running())

    def test_many_with_one_id(self):
        """At most 64 are found at a time."""
        self.pause()
        for _ in range(70):
            self.add(id="same")
        story = self.story("same")
        self.assertEqual((len(story["others"]), story["unsearched"]), (63, True))
        text = self.sluice("get", "same", "--story")
        self.assertRegex(text, r"shared: 63 older unfinished requests with this id: (\S+, ){8}\.\.\.\n")
        self.assertIn("(not all unfinished requests were searched: there are too many)\n", text)
        said = self.sluice("cancel", "same")
        self.assertEqual((said.count("asked to cancel"), said.count("not all unfinished requests were searched")), (64, 1))
        self.start_daemon(self.server)
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 6, "64 to end")
        self.assertEqual(self.sluice("cancel", "same").count("asked to cancel"), 6)
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 0, "all to end")

    def test_an_id_that_looks_like_an_entrys(self):
        """`12-34` may be an id, or the name of an entry with a made-up id: a request with that id takes precedence."""
        self.pause()
        self.client.xadd(self.sender.stream, {"text": "by name"}, "12-34")
        self.client.xadd(self.sender.stream_of("high"), {"text": "by name"}, "5-6")
        own, like_high = self.add(id="12-34"), self.add(id="high:5-6")
        self.assertEqual([self.get(id)["entry"] for id in ("12-34", "high:5-6")], [own, like_high])
        self.assertEqual(self.sluice("cancel", "12-34", "high:5-6"),
                         f"12-34, which is {own}: asked to cancel\nhigh:5-6, which is {like_high}: asked to cancel\n")
        self.start_daemon(self.server)
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 1, "those with the ids to be cancelled")
        self.assertEqual([id.decode() for id, _ in self.client.xrange(self.sender.stream)], ["12-34"])
        self.assertEqual([id.decode() for id, _ in self.client.xrange(self.sender.stream_of("high"))], ["5-6"])
        self.client.delete(self.sender.key("reply:12-34"))
        self.assertEqual(self.get("12-34"), {"id": "12-34", "status": "queued"})
        self.assertEqual(self.sluice("cancel", "12-34"), "12-34: asked to cancel\n")
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 0, "the one with the name to be cancelled")
        self.wait_status("12-34", "cancelled")
        # A real name cannot be an id, so there is no search. A text that is neither a name nor an id is refused.
        name = self.add(id="mine")
        fake = self.add(id=name)  # bad_id: answered under its own name
        self.assertEqual(self.sluice("cancel", name), f"{name}: asked to cancel\n")
        self.wait_until(lambda: [id.decode() for id, _ in self.client.xrange(self.sender.stream)] == [fake], "that one to be cancelled")
        for wrong in ("é", "", "x" * 129, "a\tb"):
            self.sluice("cancel", wrong, code=USAGE)

    def test_far_behind_in_a_backlog(self):
        """The request is the last of 100,000, and the search sends no text to the client."""
        self.client.eval(FILL, 1, self.sender.stream, 99_999)
        name = self.add(id="order-42")
        story = self.story("order-42")
        self.assertEqual((story["name"], "unsearched" in story), (name, False))
        sent = self.client.info("stats")["total_net_output_bytes"]
        self.sluice("cancel", "order-42")
        self.assertLess(self.client.info("stats")["total_net_output_bytes"] - sent, 200_000)
        self.assertEqual(self.client.xrange(self.sender.key("control"))[0][1], {b"cancel": name.encode()})

    def test_one_that_moves_meanwhile(self):
        """It moves from its stream to `later`, back from there, or away, just before the search would reach it."""
        desk = Desk(self.client, self.queue)
        desk.groups()

        def park(name):
            desk.read("me")
            desk.run(desk.defer(Park(name, due_at_ms=4102444800000)))

        def come_back(name):
            self.client.zadd(self.sender.key("later"), {name: 1})
            desk.run(desk.promote())

        def end(name):
            desk.read("me")
            desk.run(desk.settle(End(name, reply="moving", fields={"embedding": "[1]"}, info={"id": "moving", "tokens": 1})))

        for before, move, status in (("requests:high", park, "later"), ("later", come_back, "queued"), ("requests", end, "done")):
            name = self.add(id="moving")
            if move is come_back:
                park(name)
            moved = []

            def act(_, words):
                if words[0] == b"EVALSHA" and words[3] == self.sender.key(before).encode() and not moved:
                    moved.append(name)
                    move(name)

            proxy = Proxy(self.directory, self.server.socket, act)
            self.children.append(proxy)
            result = self.run_sluice("get", "moving", "--redis", proxy.path, "--queue", self.queue)
            place = json.loads(result.stdout)
            self.assertEqual((moved, place["status"], place.get("info", place)["entry"]), ([name], status, name))
            self.client.flushall()
            desk.groups()


if __name__ == "__main__":
    import unittest
    unittest.main()

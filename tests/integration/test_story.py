"""`sluice get ID --story`: the known events of a request in each of its states, in order of time, for people and as
JSON."""
# ctest-cost: 5

import json
import re
from unittest.mock import ANY

from case import RedisCase

USAGE, UNAVAILABLE, SOFTWARE = 64, 69, 70
WORKER = "host.example-7-0a1b2c3d"


class Story(RedisCase):
    def setUp(self):
        super().setUp()
        self.stream = self.sender.stream

    def get(self, id, *flags, code=0):
        result = self.run_sluice("get", id, "--story", *flags, "--redis", self.server.socket, "--queue", self.queue)
        self.assertEqual(result.returncode, code, result.stderr.decode())
        return result.stdout.decode()

    def story(self, id, code=0):
        """Returns the story from JSON without its events, and the events' names; asserts that events are in order of
        time."""
        story = json.loads(self.get(id, "--json", code=code))
        events = story.pop("events")
        self.assertEqual(sorted(event["at"] for event in events), [event["at"] for event in events])
        self.assertTrue(all(event["text"] for event in events))
        self.assertAlmostEqual(story.pop("at"), self.now_ms(), delta=30000)
        return story, [event["event"] for event in events]

    def add(self, stream=None, **fields):
        return self.client.xadd(stream or self.stream, {"text": "x", **fields}).decode()

    def facts(self, name, status, class_name="normal", id=None, **more):
        """Returns the facts in every story of a named request, and those in `more`."""
        return {"queue": "test", "id": id or name, "status": status, "name": name, "class": class_name,
                "submitted_at": int(re.search(r"\d+", name)[0]), **more}

    def test_done(self):
        self.start_daemon(self.server)
        name = "high:" + self.add(self.sender.key("requests:high"), id="order-42", tenant="acme", ttl="500")
        self.wait_until(lambda: self.client.exists(self.sender.key("reply:order-42")), "the reply")
        reply = self.sender.reply("order-42")
        story, events = self.story("order-42")
        self.assertEqual(story, self.facts(name, "done", "high", id="order-42", tenant="acme", done_at=reply["done_at"], expires_at=ANY))
        self.assertAlmostEqual(story["expires_at"], story["done_at"] + 500_000, delta=2000)
        self.assertEqual(set(events), {"submitted", "started", "computed", "answered", "expires"})
        lines = self.get("order-42").splitlines()
        self.assertEqual(lines[0], "order-42 in queue test: done")
        self.assertRegex(lines[1], rf"^2\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ  \d+m?s ago  submitted: as {name} in class high, tenant acme$")
        self.assertRegex(lines[-1], r"  in \d+[sm]  expires: the reply expires$")

    def test_error_and_dead(self):
        """Covers an error's letter, before and after it is deleted, and a letter whose reply has expired."""
        self.make_faulty(self.server, faults=["error:{kernel}"]).start().wait_ready(self.client)
        name = self.add(text="the kernel", max_attempts="1", tenant="acme")
        self.wait_until(lambda: self.client.exists(self.sender.key("reply:" + name)), "the reply")
        reply = self.sender.reply(name)
        letter, code = reply["dead"], reply[b"code"].decode()
        expected = {"tenant": "acme", "attempts": 1, "code": code, "message": ANY, "letter": letter}
        story, events = self.story(name)
        self.assertEqual(story, self.facts(name, "error", done_at=ANY, expires_at=ANY, **expected))
        self.assertEqual(set(events), {"submitted", "dead", "answered", "expires"})
        self.assertIn(f"dead letter {letter} after 1 attempt: ", self.get(name))
        self.client.xdel(self.sender.key("dead"), letter)
        self.assertTrue(self.story(name)[0]["letter_gone"])
        self.assertIn("the letter is gone", self.get(name))

        self.client.xadd(self.sender.key("dead"), {"_entry": "1-1", "_code": "poison"})
        letter = self.client.xadd(self.sender.key("dead"), {
            "_entry": name, "_code": code, "_message": "no", "_info": '{"attempts":4,"tenant":"acme"}', "id": "mine", "text": "x"}).decode()
        self.client.delete(self.sender.key("reply:" + name))
        expected.update(attempts=4, letter=letter, message="no")
        self.assertEqual(self.story(name), (self.facts(name, "dead", **expected), ["submitted", "dead"]))
        self.assertEqual(self.story("mine")[0], self.facts(name, "dead", id="mine", **expected))

    def test_cancelled(self):
        self.start_daemon(self.server)
        name = self.add(delay="60000")
        self.client.xadd(self.sender.key("control"), {"cancel": name})
        self.wait_until(lambda: self.client.exists(self.sender.key("reply:" + name)), "the reply")
        self.assertEqual(self.story(name), (self.facts(name, "cancelled", done_at=ANY, expires_at=ANY), ["submitted", "answered", "expires"]))

    def test_later_by_wish(self):
        self.start_daemon(self.server)
        name = self.add(delay="600000")
        self.wait_until(lambda: self.client.zscore(self.sender.key("later"), name), "it to be parked")
        due = int(self.client.zscore(self.sender.key("later"), name))
        self.assertEqual(self.story(name), (self.facts(name, "later", due_at=due), ["submitted", "due"]))
        self.assertIn("due: parked until then, for attempt 1\n", self.get(name))

    def test_later_after_a_failure(self):
        backoff = ("--backoff-ms", "600000", "--backoff-cap-ms", "600000")
        self.make_faulty(self.server, *backoff, faults=["error:{kernel}"]).start().wait_ready(self.client)
        name = self.add(text="the kernel", max_attempts="9")
        self.wait_until(lambda: "later" in self.get(name).splitlines()[0] and self.get(name).find("for attempt 2") > 0, "it to be parked")

    def test_waiting(self):
        """The request is unread, before and after the group exists; given back; lost; read and deleted."""
        name = self.add(tenant="acme")
        self.assertEqual(self.story(name), (self.facts(name, "queued", tenant="acme"), ["submitted", "waiting"]))
        self.assertIn("waiting: nobody has read it", self.get(name))
        self.client.xgroup_create(self.stream, "sluice", "0")
        self.assertIn("waiting: nobody has read it", self.get(name))
        self.client.xreadgroup("sluice", "released", {self.stream: ">"})
        self.assertIn("waiting: given back", self.get(name))
        self.client.xgroup_destroy(self.stream, "sluice")
        self.client.xgroup_create(self.stream, "sluice", name)
        self.assertIn("waiting: read, and nobody's since", self.get(name))
        self.client.xdel(self.stream, name)
        self.assertEqual(self.story(name, UNAVAILABLE), (self.facts(name, "unknown"), ["submitted"]))
        self.assertIn("if it ever was: only the name says so", self.get(name, code=UNAVAILABLE))

    def test_held_by_a_worker_and_suspect(self):
        low, workers = self.sender.key("requests:low"), self.sender.key("workers")
        entry = self.add(low, _id="low:1795252518106-0")
        self.client.hset(self.sender.key("trouble"), "low:1795252518106-0", f"1 2 {entry} {WORKER},+other,{WORKER} 3")
        self.client.xgroup_create(low, "sluice", "0")
        self.client.xreadgroup("sluice", WORKER, {low: ">"})
        story, events = self.story("low:1795252518106-0")
        self.assertEqual(story, self.facts("low:1795252518106-0", "running", "low", worker=WORKER, held_since=ANY, deliveries=1, attempts=1,
                                           runs_alone=2, open_runs=f"{WORKER},+other,{WORKER}", taken=3))
        self.assertAlmostEqual(story["held_since"], self.now_ms(), delta=30000)
        self.assertEqual(events, ["submitted", "returned", "held", "suspect"])
        text = self.get("low:1795252518106-0")
        self.assertIn(f"to worker {WORKER}, which has not spoken for long", text)
        self.assertIn(f"2 runs alone, open runs of {WORKER},+other,{WORKER}, taken over 3 times\n", text)
        self.client.hset(workers, WORKER, f"{self.now_ms()} state running")
        self.assertRegex(self.get("low:1795252518106-0"), rf"to worker {WORKER}, which spoke \d+\.\d s ago")

    def test_with_a_worker_that_does_not_hold_it(self):
        """This happens by a tool's XCLAIM, for instance: the story says so after a heartbeat of the worker that holds
        nothing."""
        workers = self.sender.key("workers")
        name = self.client.xadd(self.stream, {"text": "x"}, id=f"{self.now_ms() - 60000}-0").decode()
        self.client.xgroup_create(self.stream, "sluice", "0")
        self.client.xreadgroup("sluice", WORKER, {self.stream: ">"})
        for held, later_ms, status in ((0, 0, "running"), (1, 5000, "running"), (0, 5000, "queued")):
            self.client.execute_command("XCLAIM", self.stream, "sluice", WORKER, 0, name, "TIME", self.now_ms() - 5000)
            self.client.hset(workers, WORKER, f"{self.now_ms() - 5000 + later_ms} state running held {held} waiting 0")
            story, events = self.story(name)
            self.assertEqual((story["status"], story["worker"], story.get("worker_held_nothing", False)), (status, WORKER, status == "queued"))
            self.assertEqual(events, ["submitted", "waiting" if status == "queued" else "held"])
        self.assertRegex(self.get(name), rf"waiting: with worker {WORKER} since then, which spoke \d+\.\d s ago and held nothing: it looks for")

    def test_with_somebody_who_is_no_worker(self):
        """The consumer may have any name."""
        self.client.xgroup_create(self.stream, "sluice", "0", mkstream=True)
        for consumer, shown in (("bobs laptop", "bobs laptop"), ("josé", "josé"), ("tab\tname", "tab?name"), (b"\xff", "?"), ("", ""),
                                ("x" * 300, "x" * 255), (WORKER + " ", WORKER + " "), ("-7-0a1b2c3d4", "-7-0a1b2c3d4")):
            name = self.add()
            self.client.execute_command("XREADGROUP", "GROUP", "sluice", consumer, "STREAMS", self.stream, ">")
            story, events = self.story(name)
            more = {"consumer": shown} if shown else {}
            self.assertEqual(story, self.facts(name, "queued", held_since=ANY, deliveries=1, **more))
            self.assertEqual(events, ["submitted", "waiting"])
            self.assertIn(f'waiting: delivery 1, to "{shown}", which is no worker: a worker takes it over\n', self.get(name))

    def test_unknown(self):
        self.assertEqual(self.story("nobody", UNAVAILABLE), ({"queue": "test", "id": "nobody", "status": "unknown"}, []))
        self.assertEqual(self.story("1795252518106-7", UNAVAILABLE)[1], ["submitted"])
        for _ in range(40):
            self.client.xadd(self.sender.key("dead"), {"_entry": "1-1"})
        self.client.xadd(self.sender.key("dead"), {"_entry": "2-2", "id": "on page three"})
        self.assertEqual(self.story("on page three")[0]["name"], "2-2")

    def test_bytes_of_others_control_no_terminal(self):
        evil = b"\x1b[2J\xc2\x9b\xff\x00\n"
        info = {"done_at": 5, **{name: "1-1" + evil.decode("latin-1") for name in ("entry", "tenant", "dead", "ignored", "queued_ms")}}
        self.client.hset(self.sender.key("reply:mine"), mapping={"status": "error", "code": evil, "message": evil, "info": json.dumps(info)})
        for out in (self.get("mine"), self.get("mine", "--json")):
            self.assertFalse(set(out.rstrip("\n").replace("\n", "")) & set("\x1b\x9b\x00\x7f"), out)
        self.assertEqual(self.story("mine")[0]["code"], "?[2J?????")

    def test_odd_shapes(self):
        name = self.add()
        self.client.hset(self.sender.key("trouble"), name, "rubbish")
        self.get(name, code=SOFTWARE)
        self.client.delete(self.sender.key("trouble"), self.stream)
        self.client.set(self.stream, "x")
        self.get(name, code=SOFTWARE)
        result = self.run_sluice("get", name, "--json", "--redis", self.server.socket, "--queue", self.queue)
        self.assertEqual(result.returncode, USAGE)


if __name__ == "__main__":
    import unittest
    unittest.main()

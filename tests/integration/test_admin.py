"""The admin API: it shows and changes the same as the operator's commands, and nobody without permission changes
anything. Follows docs/admin-api.md, sentence by sentence."""
# ctest: threads
# ctest-cost: 60

import http.client
import json
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from unittest.mock import ANY

from acl import make_user
from case import SANITIZED, scaled
from daemon import SOURCE
from http_case import HttpCase
from ports import free_port

sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
import blocks  # noqa: E402

TOKEN = "correct horse battery staple"
PAGE = pathlib.Path(SOURCE, "docs/admin-api.md").read_text()


def example(heading, number=0):
    """Returns a JSON block of the page below the heading that begins with `heading`."""
    section = next(part for part in re.split(r"(?m)^### ", PAGE) if part.startswith(heading))
    return json.loads([code for language, code in blocks.code_blocks(section) if language == "json"][number])


class Admin(HttpCase):
    def setUp(self):
        super().setUp()
        self.token_file = self.write("token", TOKEN + "\nthe second line is not it\n")

    def served(self, *flags, **options):
        daemon = self.watched("--http-token-file", self.token_file, *flags, **options)
        self.wait_answer("/readyz", 200)
        return daemon

    def ask(self, method, path, body=None, token=TOKEN, address="127.0.0.1", **headers):
        """Returns the status, the answer's JSON, its headers."""
        connection = http.client.HTTPConnection(address, self.port, timeout=30)
        given = {"Authorization": "Bearer " + token} if token else {}
        if body is not None:
            given["Content-Type"] = "application/json"
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        try:
            connection.request(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body), given)
            answer = connection.getresponse()
            text = answer.read()
            self.assertTrue(text.endswith(b"}\n"))
            return answer.status, json.loads(text), answer.headers
        finally:
            connection.close()

    def read(self, path, status=200):
        said, answer, _ = self.ask("GET", path, token=None)
        self.assertEqual(said, status, (path, answer))
        return answer

    def change(self, path, status=200, **body):
        said, answer, _ = self.ask("POST", path, body)
        self.assertEqual(said, status, (path, body, answer))
        return answer

    def bury(self, text="some words", **fields):
        """Adds a dead letter as lua/settle writes it; returns its id."""
        letter = {"_entry": "1-0", "_code": "internal", "_message": "the engine said no", "_info": '{"attempts":4}', "text": text, **fields}
        return self.client.xadd(self.sender.key("dead"), {name: value for name, value in letter.items() if value is not None}).decode()

    def letters(self):
        return [id.decode() for id, _ in self.client.xrange(self.sender.key("dead"))]

    def assert_shape(self, answer, shown, where=""):
        """Asserts that an answer has the names of the page's example, where {} marks parts documented elsewhere."""
        if isinstance(shown, dict) and shown and not re.search(r"(ended|precisions)$", where):
            self.assertEqual(list(answer), list(shown), where)
            for name in shown:
                self.assert_shape(answer[name], shown[name], f"{where}.{name}")
        elif isinstance(shown, list) and shown and isinstance(shown[0], dict):
            self.assertTrue(answer, where)
            self.assert_shape(answer[0], shown[0], where + "[]")

    # reading

    def test_queues_and_workers(self):
        self.served()
        self.sluice("caps", "--later", "7")
        self.sender.submit_many(["one", "another", "a third"])
        self.sender.submit("", expected="bad_request")
        ended = lambda: [(day["at"] % 86400000, day["done"], day["errors"]) for day in self.read("/api/queues")["queues"][0]["days"]]
        self.wait_until(lambda: [sum(column) for column in zip(*ended())] == [0, 3, 1], lambda: f"them to be counted: {ended()}")
        shown = self.read("/api/queues")
        self.assert_shape(shown, example("`GET /api/queues"))
        queue = shown["queues"][0]
        self.assertEqual([queue[name] for name in ("served", "model", "tasks", "cap_later")], [True, "tiny", ["embed"], 7])

        def both():
            """Two looks may be on both sides of a heartbeat."""
            looks = self.read("/api/queues")["queues"][0], json.loads(self.sluice("stats", "--json"))
            return [{name: look[name] for name in look if name not in ("served", "model", "tasks", "at", "since")} for look in looks]
        self.wait_until(lambda: (lambda shown, now: shown == now)(*both()), lambda: f"both to show the same: {both()}")
        workers = self.read(f"/api/workers?queue={self.queue}")
        self.assert_shape(workers, example("`GET /api/workers"))
        listed = json.loads(self.sluice("workers", "list", "--json"))
        self.assertEqual([worker["worker"] for worker in workers["queues"][0]["workers"]], [worker["worker"] for worker in listed["workers"]])
        self.assertEqual(self.read("/api/queues?queue=" + self.queue)["queues"][0]["queue"], self.queue)
        self.assertIn("sluice-admin", [client["name"] for client in self.client.client_list()])

    def test_the_oldest_entry_has_an_age(self):
        self.served()
        self.sluice("pause")
        self.wait_paused(self.client)
        self.client.xadd(self.sender.stream, {"text": "waits"})
        self.wait_until(lambda: self.read("/api/queues")["queues"][0]["classes"]["normal"]["oldest_ms"] > 50, "an age")
        self.assertIsNone(self.read("/api/queues")["queues"][0]["classes"]["low"]["oldest_ms"])

    def test_several_queues(self):
        model = self.make_model()
        settings = {"queues": [{"queue": name, "model": model} for name in ("mail", "chat")]}
        self.served(make=lambda server, *flags: self.make_configured(server, settings, *flags))
        self.assertEqual([queue["queue"] for queue in self.read("/api/queues")["queues"]], ["mail", "chat"])
        self.assertEqual([queue["queue"] for queue in self.read("/api/workers?queue=chat")["queues"]], ["chat"])
        self.assertIn("several queues", self.read("/api/dead", 400)["error"])
        self.assertEqual(self.change("/api/pause", queue="chat")["changed"], True)
        self.assertEqual([queue["paused"] for queue in self.read("/api/queues")["queues"]], [False, True])
        self.read("/api/queues?queue=" + self.queue, 404)

    def test_queues_of_other_daemons(self):
        """Every queue with a request stream in this Redis is shown and changed like the daemon's own."""
        self.client.xadd("sluice:{mail}:requests:low", {"text": "waits for nobody"})
        self.client.xadd("sluice:{chat}:requests", {"text": "x"})
        self.client.set("sluice:{chat}:meta", "of a wrong type")
        for stranger in ("sluice:{mail}:results:{x}:requests", "sluice:{UPPER}:requests", "sluice:{<b>}:requests", "sluice:{}:requests",
                         "sluice:{a}:requests:highest", "sluice:{b}:requestsx", "sluice:{x\0y}:requests", "other:{mail}:requests"):
            self.client.xadd(stranger, {"text": "x"})
        self.client.hset("sluice:{hash}:requests", "a", "b")
        self.client.mset({f"of something else:{i}": "x" for i in range(25_000)})  # more keys than one API call scans
        self.served()
        answers = [self.read("/api/queues")]
        self.assertIn("goes on", answers[0]["left_out"])
        self.wait_until(lambda: answers.append(self.read("/api/queues")) or not answers[-1]["left_out"], "the walk to end")
        self.assertLessEqual(len(answers), 4, "ten thousand keys in a call")
        own, chat, mail = answers[-1]["queues"]
        self.assertEqual((own["queue"], chat["queue"], mail["queue"]), (self.queue, "chat", "mail"))
        self.assertEqual((own["served"], chat["served"], mail["served"], mail["tasks"]), (True, False, False, None))
        self.assertIn("WRONGTYPE", chat["error"])
        self.assertEqual((mail["classes"]["low"]["unread"], mail["workers"], mail["days"]), (1, 0, []))
        self.assertEqual(self.read("/api/queues?queue=mail")["queues"][0]["classes"], {**mail["classes"], "low": {**mail["classes"]["low"], "oldest_ms": ANY}})
        self.assertEqual(self.read("/api/requests?queue=mail&class=low&state=unread")["requests"][0]["text"], "waits for nobody")
        self.assertEqual(self.change("/api/pause", queue="mail")["changed"], True)
        self.assertTrue(self.client.exists("sluice:{mail}:paused"))
        self.assertFalse(self.client.exists(self.sender.key("paused")))
        self.assertIn("no queue nobody", self.change("/api/pause", 404, queue="nobody")["error"])
        self.change("/api/pause", 404, queue="no/name")
        self.read("/api/history?queue=mail", 404)
        self.assertFalse(self.client.exists("sluice:{nobody}:paused"))

    def test_more_queues_than_are_listed(self):
        for number in range(130):
            self.client.xadd(f"sluice:{{q{number:03}}}:requests", {"text": "x"})
        self.served()
        answer = self.read("/api/queues")
        self.assertIn("more queues", answer["left_out"])
        self.assertEqual([queue["queue"] for queue in answer["queues"]], [self.queue, *(f"q{number:03}" for number in range(100))])

    def test_an_hour_is_kept(self):
        """The hour includes times when nobody was looking and when Redis was away."""
        self.served()
        points = lambda **given: [dict(zip(given.get("names") or self.read("/api/history")["names"], point)) for point in self.read("/api/history?queue=test" + given.get("more", ""))["points"]]
        ended = lambda name: sum(point[name] * (point["at"] - before["at"]) / 1000 for before, point in zip(points(), points()[1:]) if point[name])
        self.wait_until(lambda: points() and points()[-1]["done_per_s"] == 0, "a point with a look before it")
        for number in range(40):
            self.sender.submit(f"text {number}")
        self.sender.submit("", expected="bad_request")
        self.wait_finished(self.sender)
        self.wait_until(lambda: ended("done_per_s") > 30 and ended("errors_per_s") > 0.5, lambda: f"them to be in the history: {points()}")
        self.assertLess(ended("done_per_s"), 50)
        self.assert_shape(self.read("/api/history"), example("`GET /api/history"))
        self.assertEqual(self.read("/api/history")["names"], example("`GET /api/history")["names"])
        last = points()[-1]
        self.assertEqual(points(more=f"&since={last['at'] - 1}")[0], last)
        self.assertLess(last["at"] - time.time() * 1000, 1000)
        self.server.kill()
        self.wait_until(lambda: points()[-1]["unread"] is None, "a point without Redis", timeout=30)
        self.assertGreater(len(points()), 1)
        self.server.start()
        for query in ("since=x", "since=-1", "since=" + "1" * 16, "since="):
            self.read("/api/history?" + query, 400 if query != "since=" else 200)

    def test_dead_letters_are_shown(self):
        self.served()
        letters = [self.bury(text=f"text {i}", id=f"mine-{i}") for i in range(230)]
        seen, cursor, calls = [], "", 0
        while cursor is not None:
            page = self.read(f"/api/dead?queue={self.queue}" + (f"&cursor={cursor}" if cursor else ""))
            seen += [letter["letter"] for letter in page["letters"]]
            cursor, calls = page["next"], calls + 1
        self.assertEqual((seen, calls), (letters[::-1], 3), "each once, the newest first")
        page["letters"] = page["letters"][:1]
        self.assert_shape(page, example("`GET /api/dead?queue=&cursor"))
        listed = json.loads(self.sluice("dead", "list", "--json", "--id", "mine-0"))
        self.assertEqual(set(page["letters"][0]), set(listed))
        found, cursor = [], ""
        while cursor is not None:  # an empty page is not the end
            page = self.read("/api/dead?search=text+17" + (f"&cursor={cursor}" if cursor else ""))
            found += [letter["id"] for letter in page["letters"]]
            cursor = page["next"]
        self.assertEqual(sorted(found), sorted(f"mine-{i}" for i in (17, *range(170, 180))))
        whole = self.read("/api/dead?letter=" + self.bury(text="x" * 20000 + "<b>", odd=b"\xff\x1b"))
        self.assert_shape(whole, example("`GET /api/dead?queue=&letter"))
        fields = {field["name"]: field for field in whole["fields"]}
        self.assertEqual((fields["text"]["value"], fields["text"]["bytes"]), ("x" * 16384, 20003))
        self.assertEqual(fields["odd"]["value"], "�\x1b")
        self.read("/api/dead?letter=77-7", 404)
        self.assertEqual(self.read("/api/request", 400)["error"], "id is missing")

    def test_later_is_shown(self):
        self.served()
        name, = self.sender.submit("in a minute", delay=60000, id="mine", tenant="acme").entries
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 1, "the delayed one")
        page = self.read("/api/later")
        self.assert_shape(page, example("`GET /api/later"))
        request = page["requests"][0]
        self.assertEqual(request, {**request, "request": name, "class": "normal", "id": "mine", "tenant": "acme", "text": "in a minute"})
        self.assertTrue(0 < page["requests"][0]["due_at"] - page["at"] <= 60000)
        self.client.zadd(self.sender.key("later"), {f"low:{i}-0": 4e12 + i for i in range(150)})
        pages, cursor = [], ""
        while cursor is not None:
            pages.append(self.read("/api/later" + (f"?cursor={cursor}" if cursor else "")))
            cursor = pages[-1]["next"]
        self.assertEqual([len(page["requests"]) for page in pages], [64, 64, 23])
        self.assertEqual(pages[-1]["requests"][-1], {"request": "low:149-0", "class": "low", "due_at": 4000000000149, "bytes": 0, "id": None, "tenant": None, "text": ""})

    def test_requests_are_listed(self):
        daemon = self.served(make=lambda *given, **options: self.make_faulty(*given, faults=["held:{kernel}"], **options))
        worker = daemon.wait_ready(self.client).worker_name(self.client)
        self.shut_gate()
        slow = self.sender.submit("kernel", id="mine", tenant="acme").entries[0]

        def running():
            page = self.read("/api/requests?class=normal&state=pending")
            return page["requests"] and page

        page = self.wait_until(running, "it to run")
        self.assert_shape(page, example("`GET /api/requests"))
        request = page["requests"][0]
        self.assertEqual(request, {**request, "request": slow, "worker": worker, "deliveries": 1, "id": "mine", "tenant": "acme", "text": "kernel"})
        self.assertTrue(0 <= page["at"] - request["since"] < 20000)
        self.open_gate()
        self.sluice("pause")
        self.wait_paused(self.client)
        self.wait_finished(self.sender)
        waits = [self.client.xadd(self.sender.stream_of("low"), {"inputs": f'["{i}"]', "tenant": b"\xff", "x": "y" * 100}).decode() for i in range(150)]
        seen, cursor, calls = [], "", 0
        while cursor is not None:
            page = self.read("/api/requests?class=low&state=unread" + (f"&cursor={cursor}" if cursor else ""))
            seen, cursor, calls = seen + page["requests"], page["next"], calls + 1
        self.assertEqual(([one["request"] for one in seen], calls), ([f"low:{one}" for one in waits], 3))
        self.assertEqual(seen[7], {"request": f"low:{waits[7]}", "worker": None, "since": int(waits[7].split("-")[0]), "deliveries": 0, "bytes": 119, "id": None, "tenant": "\ufffd", "text": '["7"]'})
        self.client.execute_command("XREADGROUP", "GROUP", "sluice", b"a\0\xffb c", "COUNT", 1, "STREAMS", self.sender.stream_of("low"), ">")
        self.assertEqual(self.read("/api/requests?class=low&state=pending")["requests"][0]["worker"], "a\0\ufffdb c")
        self.client.xadd(self.sender.stream, {"text": "x" * (2 << 20)})
        self.assertEqual(len(self.read("/api/requests?class=normal&state=unread")["requests"][0]["text"]), 200)

    def test_a_request_is_found(self):
        self.served()
        request = self.sender.submit("hello there")
        self.wait_finished(self.sender)
        name = request.entries[0]
        reply = self.read(f"/api/request?id={request.id}")
        self.assertEqual((reply["status"], reply["info"]["entry"]), ("done", name))
        self.assertEqual(reply, json.loads(self.sluice("get", request.id)))
        story, shown = self.read(f"/api/story?id={name}"), example("`GET /api/story")
        self.assertLessEqual(set(shown), set(story))
        self.assert_shape(story["events"][0], shown["events"][0])
        self.sluice("pause")
        self.wait_paused(self.client)
        waits = self.client.xadd(self.sender.stream_of("low"), {"text": "waits"}).decode()
        self.assertEqual(self.read(f"/api/request?id=low:{waits}"), {"id": f"low:{waits}", "status": "queued"})
        self.client.zadd(self.sender.key("later"), {"5-0": 4e12})
        self.assertEqual(self.read("/api/request?id=5-0"), {"id": "5-0", "status": "later", "due_at": 4000000000000})
        self.assertEqual(self.read("/api/request?id=%22n%C3%B6%22")["id"], '"nö"')
        self.client.hset(self.sender.key("reply:huge"), mapping={"status": "done", "message": "x" * (4 << 20)})
        self.assertIn("4 MiB", self.read("/api/request?id=huge", 413)["error"])

    # changing

    def test_pause_caps_and_orders(self):
        daemon = self.served()
        paused = self.change("/api/pause", queue=self.queue, why="a reason", **{"for": "30m"})
        self.assert_shape(paused, example("`POST /api/pause"))
        self.assertEqual((paused["paused"], paused["changed"], paused["paused_why"]), (True, True, "a reason"))
        self.assertAlmostEqual(paused["paused_until_ms"] - paused["paused_since_ms"], 1_800_000, delta=10_000)
        shown = self.read("/api/queues")["queues"][0]
        self.assertEqual({name: shown[name] for name in paused if name != "changed"}, {name: paused[name] for name in paused if name != "changed"})
        self.assertEqual(self.change("/api/pause")["paused_until_ms"], None)
        self.assertEqual(self.change("/api/pause")["changed"], False)
        for wrong in ({"for": "soon"}, {"for": "0s"}, {"for": 5}, {"why": "x" * 201}):
            self.change("/api/pause", 400, **wrong)
        self.wait_paused(self.client)
        self.assertEqual(self.change("/api/resume"), {"queue": self.queue, "paused": False, "paused_since_ms": None, "paused_until_ms": None,
                                                      "paused_by": None, "paused_why": None, "changed": True})
        self.assertEqual(self.client.exists(self.sender.key("paused")), 0)
        caps = self.change("/api/caps", normal=100, later=5)
        self.assertEqual(caps, {"queue": self.queue, "caps": {"high": None, "normal": 100, "low": None, "later": 5}})
        self.assert_shape(caps, example("`POST /api/caps"))
        self.assertEqual(self.change("/api/caps", normal=0)["caps"], {"high": None, "normal": None, "low": None, "later": 5})
        self.assertIn("later  5\n", self.sluice("caps"))
        worker = daemon.wait_ready(self.client).worker_name(self.client)
        self.change("/api/worker", 404, worker=worker + "x", order="stop")
        self.change("/api/worker", 400, worker=worker, order="sleep")
        state = lambda: self.read("/api/workers")["queues"][0]["workers"][0]["state"]
        self.assert_shape(self.change("/api/worker", worker=worker, order="quiet"), example("`POST /api/worker"))
        self.wait_until(lambda: state() == "quiet", "the order")
        self.change("/api/worker", worker=worker, order="resume")
        self.wait_until(lambda: state() == "running", "the order")
        self.change("/api/worker", worker=worker, order="drain")
        self.assertEqual(daemon.wait_exit(), 0)

    def test_a_request_is_cancelled(self):
        self.served()
        parked = self.sender.submit("in an hour", delay=3600000, expected="cancelled").entries[0]
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 1, "the delayed one")
        self.assertEqual(self.change("/api/cancel", id=parked), {"queue": self.queue, "id": parked, "requests": [parked], "more": False})
        self.assert_shape(self.change("/api/cancel", id="high:7-7"), example("`POST /api/cancel"))
        self.wait_until(lambda: self.read("/api/request?id=" + parked)["status"] == "cancelled", "its reply")
        self.assertEqual(self.client.zcard(self.sender.key("later")), 0)
        self.wait_finished(self.sender)

    def test_a_request_is_found_and_cancelled_by_its_own_id(self):
        """The search covers 100,000 requests. /api/request, which programs poll, does not search."""
        self.served()
        self.client.set(self.sender.key("paused"), 1)
        self.wait_paused(self.client)
        names = [self.client.xadd(self.sender.stream_of(level), {"text": "x", "id": "order 42"}).decode() for level in ("", "low")]
        names[1] = "low:" + names[1]
        story = self.read("/api/story?id=order%2042")
        self.assertEqual((story["name"], story["status"], story["others"]), (names[1], "queued", names[:1]))
        self.assertEqual(self.read("/api/request?id=order%2042")["status"], "unknown")
        answer = self.change("/api/cancel", id="order 42")
        self.assertEqual(answer, {"queue": self.queue, "id": "order 42", "requests": names[::-1], "more": False})
        self.assert_shape(answer, example("`POST /api/cancel"))
        self.wait_until(lambda: self.read("/api/request?id=order%2042")["status"] == "cancelled", "its reply")
        self.assertEqual(self.change("/api/cancel", 404, id="order 42")["error"], "no unfinished request has this id")
        self.client.eval("for i = 1, 100100 do redis.call('XADD', KEYS[1], '*', 'text', 'x') end", 1, self.sender.stream)
        far = self.client.xadd(self.sender.stream, {"text": "x", "id": "far"}).decode()
        story = self.read("/api/story?id=far")
        self.assertEqual((story["status"], story["unsearched"]), ("unknown", True))
        self.assertIn("too many", self.change("/api/cancel", 404, id="far")["error"])
        self.assertEqual(self.sluice("cancel", "far"), f"far, which is {far}: asked to cancel\n")
        self.wait_until(lambda: self.read("/api/request?id=far")["status"] == "cancelled", "its reply")

    def test_dead_letters_are_requeued_and_deleted(self):
        self.served()
        one, other, cut = self.bury(id="one"), self.bury(id="other"), self.bury(_cut="99999")
        self.assertEqual(self.change("/api/dead/requeue", letter=one), {"queue": self.queue, "requeued": 1, "kept": 0, "next": None})
        self.wait_until(lambda: self.read("/api/request?id=one")["status"] == "done", "its reply")
        self.assertEqual(self.change("/api/dead/requeue", all=True), {"queue": self.queue, "requeued": 1, "kept": 1, "next": None})
        self.assertEqual(self.letters(), [cut])
        self.change("/api/dead/delete", 404, letter=other)
        self.assertEqual(self.change("/api/dead/delete", letter=cut), {"queue": self.queue, "deleted": 1, "next": None})
        for i in range(230):
            self.bury(text=f"text {i % 2}")
        deleted, cursor, calls = 0, {}, 0
        while cursor is not None:
            answer = self.change("/api/dead/delete", all=True, search="text 1", **cursor)
            deleted, calls = deleted + answer["deleted"], calls + 1
            cursor = {"cursor": answer["next"]} if answer["next"] else None
        self.assertEqual((deleted, calls, len(self.letters())), (115, 3, 115))
        self.assert_shape(answer, example("`POST /api/dead", 1))
        cursor = {"cursor": self.change("/api/dead/delete", all=True)["next"]}
        late = self.bury()
        self.assertEqual(self.change("/api/dead/delete", all=True, **cursor)["deleted"], 15)
        self.assertEqual(self.letters(), [late], "who dies during the walk is left out")
        for body in ({}, {"all": False}, {"letter": one, "all": True}, {"letter": one, "search": "x"}, {"letter": "x"}, {"all": True, "cursor": "x"},
                     {"all": True, "cursor": "1-1/"}, {"all": True, "cursor": "1-1/x"}, {"all": True, "cursor": "1-1/1/1"}, {"all": True, "cursor": "/1"}):
            self.change("/api/dead/delete", 400, **body)
        self.assertEqual(self.letters(), [late])

    def test_a_text_is_tried(self):
        self.served()
        reply = self.change("/api/try", inputs=["one text", "another"])
        self.assertEqual((reply["status"], len(reply["embedding"])), ("done", 2))
        lines = self.sluice("submit", "--wait", "--encoding", "json", "one text", "another").splitlines()
        self.assertEqual(reply["embedding"], [json.loads(line)["embedding"] for line in lines])
        self.assertEqual(self.change("/api/try", inputs=["x"], task="rerank", query="y")["status"], "error")
        self.assertEqual(self.change("/api/try", inputs=[])["status"], "error")
        self.assertTrue(0 < self.client.ttl(self.sender.key("reply:" + reply["id"])) <= 60)
        self.change("/api/pause")
        self.wait_paused(self.client)
        queued = self.change("/api/try", 202, inputs=["waits"])
        self.assert_shape(queued, example("`POST /api/try"))
        self.change("/api/resume")
        self.wait_until(lambda: self.read("/api/request?id=" + queued["id"])["status"] == "done", "its reply")
        self.change("/api/try", 400, inputs="one text")

    # permissions

    def test_the_token(self):
        self.watched()
        self.wait_answer("/readyz", 200)
        self.assertIn("http_token_file", self.change("/api/pause", 403)["error"])
        self.assertEqual(self.ask("GET", "/api/queues")[0], 403, "one that is sent must be right, so it cannot be where there is none")
        daemon = self.served()
        for token in (None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "x"):
            said, answer, headers = self.ask("POST", "/api/pause", {}, token=token)
            self.assertEqual((said, headers["WWW-Authenticate"]), (401, "Bearer"), (token, answer))
        self.assertEqual(self.ask("POST", "/api/pause", {}, token=None, Authorization="Basic " + TOKEN)[0], 401)
        self.assertEqual(self.ask("GET", "/api/queues", token="wrong")[0], 401)
        self.assertEqual(self.ask("GET", "/api/queues")[0], 200)
        self.assertEqual(self.ask("GET", "/api/queues", token=None)[0], 200)
        self.assertEqual(self.client.exists(self.sender.key("paused")), 0)
        for text, message in (("short\n", b"fewer than 16 characters"), ("\n", b"its first line is empty")):
            result = self.run_sluice("serve", "--redis", self.server.socket, "--model", self.make_model(), "--http", f"127.0.0.1:{free_port()}",
                                     "--http-token-file", self.write("bad", text))
            self.assertEqual(result.returncode, 65)
            self.assertIn(message, result.stderr)
        self.assertNotEqual(self.run_sluice("serve", "--http-token-file", self.token_file).returncode, 0, "it is for http")
        self.logged(daemon, "warn wrong_token peer=127.0.0.1 path=/api/pause times=1\n")
        lines = lambda: [int(times) for times in re.findall(r" wrong_token peer=127.0.0.1 path=\S+ times=(\d+)\n", daemon.read_log())]
        begun, most, before = time.monotonic(), 0, len(lines())
        while sum(lines()[before + 1:]) < 50:  # refusals between two lines are counted in the second
            most += self.ask("GET", "/api/queues", token="guessed")[0] == 401
        self.assertLessEqual(sum(lines()[before + 1:]), most)
        self.assertLessEqual(len(lines()) - before, 2 + (time.monotonic() - begun))
        self.assertFalse(any(TOKEN in child.read_log() for child in self.children if hasattr(child, "read_log")))

    def test_elsewhere_than_on_loopback_reading_needs_it_too(self):
        for flags, expected in (((), 403), (("--http-token-file", self.token_file), 401)):
            daemon = self.watched(*flags, host="0.0.0.0")
            self.wait_answer("/readyz", 200)
            self.assertEqual(self.ask("GET", "/api/queues", token=None)[0], expected)
            self.assertEqual(self.ask("GET", "/api/queues")[0], 403 if expected == 403 else 200)
            self.assertEqual(self.ask("GET", "/api/queues", Host="10.1.2.3:9464")[0], 403 if expected == 403 else 200)
            self.assertIn("Host", self.ask("GET", "/api/queues", Host="sluice.example")[1]["error"])
            self.assertEqual(self.get("/")[0], 200, "the page asks for it")
            daemon.stop()

    def test_host_and_origin(self):
        self.served()
        good = (f"127.0.0.1:{self.port}", "localhost", "LocalHost:1", "127.8.9.1", "[::1]", "[::1]:9464")
        bad = ("example.com", "localhost.example.com", "127.0.0.1.example.com", "localhost.", "10.0.0.1", "[::2]", "[::1", "[::ffff:127.0.0.1]",
               "localhost:80:80", "localhost:x", "", "x" * 300, "127.1", "0x7f000001", "localhost@example.com", "[localhost]")
        for path in ("/api/queues", "/", "/dashboard.js", "/dashboard.css"):
            for host in good:
                self.assertEqual(self.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())[0], 200, (path, host))
            for host in bad:
                self.assertEqual(self.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())[0], 403, (path, host))
            for minor, status in ((0, 403), (1, 400)):  # HTTP/1.1 demands a Host
                self.assertEqual(self.raw(f"GET {path} HTTP/1.{minor}\r\n\r\n".encode())[0], status, path)
        own = f"127.0.0.1:{self.port}"
        for origin, status in ((f"http://{own}", 200), (f"https://{own}", 403), ("null", 403), ("http://example.com", 403), ("http://localhost", 403),
                               (f"http://{own}.example.com", 403), (f"http://{own}/", 403), ("", 403)):
            self.assertEqual(self.ask("POST", "/api/pause", {}, Origin=origin)[0], status, origin)

    def raw(self, data, shut=False):
        """Returns the status of the first answer (0: none), and all bytes received."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as peer:
            try:
                peer.sendall(data)
                if shut:
                    peer.shutdown(socket.SHUT_WR)
                said = b"".join(iter(lambda: peer.recv(65536), b""))
            except OSError:
                said = b""
        return (int(said.split(b" ")[1]) if said else 0), said

    def test_what_is_malformed_is_refused(self):
        self.served()
        post = lambda body, path="/api/pause", status=400: self.assertEqual(self.ask("POST", path, body)[0], status, (path, body))
        for body in ("", "[]", "{", "{}x", '"x"', '{"queue": 1}', '{"queue": null}', '{"queue": "a", "queue": "a"}', '{"quux": 1}', b'{"queue": "\xff"}',
                     '{"queue": "te\\u0000st"}', '{"queue": "\\ud800"}', '{"queue": "' + "a" * 200 + '"}', "[" * 1000, '{"a":' * 100):
            post(body)
        post("{}", "/api/pause?queue=test")
        post("{}", "/api/worker")
        post("{}", "/api/cancel")
        for name, status in (("", 400), ("é", 400), ("a\tb", 400), ("order-7", 404), ("7", 404), ("other:7-7", 404), ("7-7 ", 404), ("high:7-7-7", 404)):
            post(json.dumps({"id": name}), "/api/cancel", status)
        for caps in ({"normal": -1}, {"normal": 1.5}, {"normal": "1"}, {"normal": 10**13}, {"normal": True}, {"low": [1]}):
            post(json.dumps(caps), "/api/caps")
        post("{}", "/api/queues", 405)
        post("{}", "/metrics", 405)
        post("{}", "/api/nothing", 404)
        post("{}", "/api/", 404)
        self.assertEqual(self.ask("GET", "/api/pause")[0], 405)
        self.assertEqual(self.ask("PUT", "/api/pause", {})[0], 405)
        for query in ("queue", "queue=%", "queue=%4", "queue=%zz", "queue=%ff", "queue=%00", "=x", "quux=1", "queue=test&queue=test", "worker=x", "all=true"):
            self.read("/api/dead?" + query, 400)
        for path, status in (("/api/request", 400), ("/api/request?id=" + "x" * 200, 400), ("/api/later?cursor=-1", 400), ("/api/later?cursor=x", 400),
                             ("/api/requests?class=low", 400), ("/api/requests?class=control&state=unread", 400), ("/api/requests?class=low&state=dead", 400),
                             ("/api/requests?class=low&state=unread&cursor=%28", 400), ("/api/requests?class=low&state=pending&cursor=1", 400),
                             ("/api/dead?cursor=x", 400), ("/api/dead?letter=x", 400), ("/api/dead?queue=other", 404), ("/api/dead/", 404),
                             ("/api//dead", 404), ("/api/../api/dead", 404), ("/API/dead", 404), ("/api/de%61d", 404), ("/api", 404)):
            self.read(path, status)
        self.assertEqual(self.ask("POST", "/api/pause", "{}", Content_Type="text/plain")[0], 415)
        self.assertEqual(self.ask("POST", "/api/pause", "{}", Content_Type="application/json; charset=utf-8")[0], 200)
        self.assertEqual(self.ask("POST", "/api/try", {"inputs": ["x" * 65536]})[0], 413)
        head = f"POST /api/resume HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        for more, status in (("\r\n", 411), ("Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411),
                             ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400), ("Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
                             ("Content-Length: +2\r\n\r\n{}", 400), ("Content-Length: 0x2\r\n\r\n{}", 400), ("Content-Length:\r\n\r\n{}", 400),
                             ("Content-Length: 2, 2\r\n\r\n{}", 400), ("Content-Length: 99999999999999999999\r\n\r\n{}", 413),
                             ("Host: localhost\r\nContent-Length: 2\r\n\r\n{}", 400), ("Content-Length : 2\r\n\r\n{}", 400), (" x\r\nContent-Length: 2\r\n\r\n{}", 400),
                             ("X: a\nContent-Length: 2\r\n\r\n{}", 400), ("X: \x00\r\nContent-Length: 2\r\n\r\n{}", 400), ("X\r\nContent-Length: 2\r\n\r\n{}", 400),
                             ("Content-Length: 2\r\n\r\n{}POST /api/pause HTTP/1.1\r\n\r\n", 200), ("content-length:2\r\n\r\n{}", 200)):
            said, answer = self.raw((head + more).encode())
            self.assertEqual((said, answer.count(b"HTTP/1.1 ")), (status, 1), (more, answer))
        self.assertEqual(self.raw((head + "Content-Length: 3\r\n\r\n{}").encode(), shut=True), (0, b""), "a body that ends early")
        self.assertEqual(self.raw(b"GET /api/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")[0], 400)
        self.assertEqual(self.raw(b"GET /api/queues HTTP/1.1\r\nHost: localhost\r\n\r\n", shut=True)[0], 200, "who has said all gets all")

    def test_headers_and_page(self):
        self.served()
        for path, kind in (("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css"), ("/api/queues", "application/json")):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            self.assertEqual((answer.status, answer.headers["Content-Type"].split(";")[0]), (200, kind))
            policy = answer.headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'", policy)
            self.assertIn("script-src 'self'", policy)
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual([answer.headers[name] for name in ("Cache-Control", "X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Resource-Policy")],
                             ["no-store", "nosniff", "no-referrer", "same-origin"])
            self.assertIsNone(answer.headers["Access-Control-Allow-Origin"])
            if not path.startswith("/api"):
                file = pathlib.Path(SOURCE, "src/daemon/dashboard", path[1:] or "dashboard.html")
                self.assertEqual(body, file.read_bytes())

    def test_the_commands_of_the_page(self):
        self.served()
        script = blocks.only_block(PAGE, "curl").replace("/etc/sluice/http-token", self.token_file).replace(":9464", f":{self.port}")
        self.assertIn('"default"', script)
        script = script.replace("head -c 24 /dev/urandom | base64 >", f"printf '%s\\n' '{TOKEN}' >").replace('"default"', f'"{self.queue}"')
        result = subprocess.run(["bash", "-eu", "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual([list(json.loads(line)) for line in result.stdout.splitlines()],
                         [["queues", "left_out"], list(example("`POST /api/pause"))])

    # Redis is away, or refuses

    def test_redis_is_away(self):
        self.served()
        self.assertEqual(self.read("/api/queues")["queues"][0]["queue"], self.queue)
        self.client.client_kill_filter(_type="normal", skipme=True)
        self.wait_until(lambda: self.ask("GET", "/api/queues", token=None)[0] == 200, "its connection again")
        os.kill(self.server.process.pid, signal.SIGSTOP)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.ask("GET", "/api/queues", token=None)[0])) for _ in range(24)]
        for thread in threads:
            thread.start()
        took = []
        for _ in range(3):  # the API waits for two seconds, again and again; a busy machine may delay one of these
            begun = time.monotonic()
            self.assertEqual(self.get("/healthz")[0], 200)
            took.append(time.monotonic() - begun)
        self.assertLess(min(took), 1, "nobody waits for the API")
        for thread in threads:
            thread.join()
        os.kill(self.server.process.pid, signal.SIGCONT)
        self.assertEqual(len(answers), 24)
        self.assertLessEqual(set(answers), {503, 504})
        self.wait_until(lambda: self.ask("GET", "/api/queues", token=None)[0] == 200, "Redis again")
        self.sender.submit("after all that")
        self.finish(self.server, self.sender)

    def test_redis_denies(self):
        """The daemon uses its own Redis user; a worker's user may read, but may not pause."""
        make_user(self.client, "worker", self.queue)
        self.served(address=f"redis+unix://sluice-worker@{self.server.socket}", environment={"SLUICE_REDIS_PASSWORD": "pw"})
        self.read("/api/queues")
        self.read("/api/workers")
        letter = self.bury()
        self.read("/api/dead?letter=" + letter)
        self.read("/api/later")
        self.read("/api/requests?class=normal&state=unread")
        self.change("/api/cancel", id="7-7")
        self.change("/api/cancel", 404, id="order 42")
        self.assertEqual(self.change("/api/try", inputs=["a text"])["status"], "done")
        self.assertEqual(self.change("/api/caps", low=5)["caps"]["low"], 5)
        self.assertEqual(self.change("/api/dead/requeue", letter=letter)["requeued"], 1)
        refused = self.change("/api/pause", 403)["error"]
        self.assertRegex(refused, "SET: .*NOPERM .*sluice-worker, lacks the dashboard's rights: make-users.sh --dashboard gives them")
        self.assertIn("NOPERM", self.read("/api/request?id=7-7", 403)["error"])
        self.client.xadd("sluice:{mail}:requests", {"text": "x"})
        self.assertIn("NOPERM", self.read("/api/queues")["left_out"])
        self.assertRegex(self.read("/api/dead?queue=mail", 403)["error"], "sluice-worker, is not for queue mail: .* --queue mail and its operator's login$")
        command = shlex.split(re.search(r"at once: redis-cli (.*)$", refused)[1])
        self.client.execute_command(*command)
        self.wait_until(lambda: not self.read("/api/queues")["left_out"], "the next search for queues", timeout=30)
        self.assertRegex(self.read("/api/queues")["queues"][1].pop("error"), "NOPERM .*is not for queue mail")
        self.assertEqual(self.change("/api/pause")["paused_by"], "sluice-worker@" + re.sub("[^A-Za-z0-9.]", "-", socket.gethostname()))
        self.assertEqual(self.change("/api/resume")["changed"], True)
        self.assertEqual(self.read("/api/request?id=7-7")["status"], "unknown")

    # attackers

    def test_ten_thousand_hostile_requests(self):
        """Requests of every kind, on many connections at once, under load: all are refused, nothing is changed, no
        request is lost."""
        daemon = self.served()
        load = self.start_load(self.server, depth=8)
        letters = [self.bury(text=f"text {i}") for i in range(20)]
        parked = "low:" + self.client.xadd(self.sender.stream_of("low"), {"text": "parked", "delay": "86400000"}).decode()
        self.wait_until(lambda: self.client.zscore(self.sender.key("later"), parked), "it to be parked")
        self.sluice("caps", "--low", "1000000")
        state = lambda: (self.letters(), self.client.hgetall(self.sender.key("meta")).get(b"cap_low"), self.client.exists(self.sender.key("paused")),
                         self.client.zscore(self.sender.key("later"), parked), self.client.get("canary"),
                         [key for key in self.client.hkeys(self.sender.key("workers")) if key.startswith(b"command:")])
        self.client.set("canary", "sings")
        before, rss, worker = state(), daemon.rss_bytes(), daemon.wait_ready(self.client).worker_name(self.client)
        self.assertEqual(before[0], letters)

        good = {"Host": "localhost", "Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
        deeds = [("/api/pause", {}), ("/api/caps", {"low": 1}), ("/api/dead/delete", {"all": True}), ("/api/dead/requeue", {"all": True}),
                 ("/api/dead/delete", {"letter": letters[0]}), ("/api/cancel", {"id": parked}), ("/api/worker", {"worker": worker, "order": "stop"}), ("/api/try", {"inputs": ["x"]})]

        def request(path, body, headers, method="POST", length=None, version="HTTP/1.1"):
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
            size = "" if length == "" else f"Content-Length: {len(body) if length is None else length}\r\n"
            return f"{method} {path} {version}\r\n{lines}{size}\r\n".encode("latin-1") + body

        def hostile(dice):
            """Returns one request that would do harm if it were not refused."""
            path, body = dice.choice(deeds)
            body = json.dumps(body).encode()
            host = dice.choice(["example.com", "localhost.example.com", "127.0.0.1.nip.io", "10.1.2.3", "", "localhost\t.x", "[::1].x", "*"])
            token = dice.choice([None, "Bearer", "Bearer ", "Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x", "Basic " + TOKEN, TOKEN, "Bearer " + "a" * 4000])
            origin = dice.choice(["http://example.com", "null", "https://localhost", "http://localhost.example.com", "http://127.0.0.1", "file://"])
            trick = dice.choice(["/api/..%2f", "/api/./", "//", "/x/../", "/api//", "/%61pi/", "\\", "/api/pause/../", "/API/", "/;", "http://localhost/"])
            kinds = [
                lambda: request(path, body, {**good, "Host": host}),
                lambda: request(path, body, {**good, "Origin": origin}),
                lambda: request(path, body, {**good, "Authorization": token}),
                lambda: request(path, body, {**good, "Content-Type": dice.choice(["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])}),
                lambda: request(trick + path[5:], body, good),
                lambda: request(path + dice.choice(["/", "%00", "?queue=x", "#x", "%20", "\xff", ";x", "/."]), body, good),
                lambda: request(path, body[:-1] + dice.choice([b', "x": 1}', b"", b"}}", b',"queue":"test","queue":"test"}', b', "queue": "\xff"}', b"\x00}", b',"queue":"\\u0000"}']), good),
                lambda: request(path, b'{"all":' + b"[" * dice.randrange(100, 60000), good),
                lambda: request(path, b" " * 70000 + body, good),
                lambda: request(path, body, {**good, "X": "y" * dice.randrange(8192, 20000)}),
                lambda: request(path, body, good, length=dice.choice(["-1", "+2", "1e1", "0x10", "", "2, 2", "9" * 30, "70000"])),
                lambda: request(path, b"2\r\n{}\r\n0\r\n\r\n", {**good, "Transfer-Encoding": dice.choice(["chunked", "identity", "x"])}),
                lambda: request(path, body, {**good, "X:y\r\n Host": "localhost"}),
                lambda: request(path, body, good, method=dice.choice(["GET", "PUT", "DELETE", "OPTIONS", "TRACE", "post", "POST\t", "\x00POST", "CONNECT"])),
                lambda: request(path, body, good, version=dice.choice(["HTTP/2.0", "HTTP/0.9", "", "HTTP/1.1 x", "http/1.1"])),
                lambda: request("/healthz", b"", {}, method="GET", length="") + request(path, body, good),  # pipelined: the second must be ignored
                lambda: request("/api/queues", body, good, method="GET") + request(path, body, good),
                lambda: request(path, body, good)[:dice.randrange(1, 150)],  # cut off
                lambda: request(path, body, good)[:-1],
                lambda: dice.randbytes(dice.randrange(1, 2000)),
                lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(200),
                lambda: b"\r\n" * dice.randrange(1, 5000),
            ]
            return dice.choice(kinds)()

        refused, wrong = [], []

        def attack(seed, number):
            dice = random.Random(seed)
            for _ in range(number):
                data = hostile(dice)
                try:
                    with socket.create_connection(("127.0.0.1", self.port), timeout=20) as peer:
                        peer.sendall(data)
                        peer.shutdown(socket.SHUT_WR)
                        said = b"".join(iter(lambda: peer.recv(65536), b""))
                except OSError:
                    said = b""
                status = int(said.split(b" ")[1]) if said else 0
                refused.append(status)
                if status not in (0, 400, 401, 403, 404, 405, 411, 413, 415, 431) and not (status == 200 and data.startswith(b"GET /healthz")):
                    wrong.append((data[:200], said[:200]))

        stop = threading.Event()

        def slow():
            """Sends a byte now and then."""
            data = request("/api/pause", b"{}", good)
            while not stop.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", self.port), timeout=20) as peer:
                        for at in range(len(data)):
                            if stop.wait(0.5):
                                break
                            peer.sendall(data[at:at + 1])
                except OSError:
                    pass

        attackers = [threading.Thread(target=attack, args=(seed, scaled(10_000) // 8)) for seed in range(8)]
        lorises = [threading.Thread(target=slow) for _ in range(12)]
        for thread in attackers + lorises:
            thread.start()
        asked = 0
        while any(thread.is_alive() for thread in attackers):  # honest clients are served meanwhile
            asked += self.get("/healthz")[0] == 200
            attackers[0].join(0.2)
        stop.set()
        for thread in attackers + lorises:
            thread.join()
        self.assertEqual(wrong[:3], [])
        self.assertEqual(len(refused), scaled(10_000) // 8 * 8)
        self.assertGreater(sum(status > 0 for status in refused), len(refused) // 2)
        self.assertLessEqual({400, 401, 403, 404, 405, 411, 413, 415, 431}, set(refused))
        self.assertGreater(asked, 0)
        self.assertEqual(state(), before)
        self.assertEqual(self.read("/api/queues")["queues"][0]["dead"], len(letters))
        load.stop()
        if not SANITIZED:
            self.assertLess(daemon.rss_bytes() - rss, 64 << 20)
        self.client.delete(self.sender.key("dead"), "canary")
        self.sluice("cancel", parked)
        self.wait_until(lambda: self.client.hget(self.sender.key("reply:" + parked), "status") == b"cancelled", "it to end")
        self.client.delete(self.sender.key("reply:" + parked))
        self.finish(self.server, self.sender)

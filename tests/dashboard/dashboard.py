"""The dashboard in Debian's Chromium, with real daemons and a real Redis: every page, every action, every width. `make dashboard` runs
it, and leaves pictures of the pages in build/dashboard. (Chromium takes 300 MB, so it is not with `make test`.)"""

import itertools
import json
import os
import signal
import struct
import sys
import time
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PICTURES = os.path.join(SOURCE, "build", "dashboard")
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
os.environ["SLUICE_BINARY"] = os.path.abspath(os.environ.get("SLUICE_BINARY", os.path.join(SOURCE, "build", "release", "sluice")))

from acl import make_user  # noqa: E402
from browser import Browser, Keys  # noqa: E402
from http_case import HttpCase  # noqa: E402
from ports import free_port  # noqa: E402

TOKEN = "0123456789abcdef"
HOSTILE = "<img src=x onerror=\"console.error('run')\"><b>bold</b>"
SECTIONS = ("overview", "queues", "workers", "dead", "later", "request", "try")


class Dashboard(HttpCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()

    def setUp(self):
        super().setUp()
        self.allowed = ()  # lines that the console may show, about answers that a test provokes
        self.token_file = self.write("token", TOKEN + "\n")
        self.browser.view(1440)
        self.browser.said()

    def tearDown(self):
        said = [line for line in self.browser.said() if not any(words in line for words in self.allowed)]
        self.browser.open("about:blank")
        super().tearDown()
        self.assertEqual(said, [])

    def serve(self, *flags, **options):
        return self.watched("--http-token-file", self.token_file, *flags, **options).wait_ready(self.client)

    def open(self, section="overview", token=TOKEN):
        """The page, with the token given before if there is one."""
        self.browser.open(f"http://127.0.0.1:{self.port}/")
        self.browser.run("sessionStorage.clear(); if (arguments[0]) { sessionStorage.token = arguments[0]; }", token)
        self.browser.open(f"http://127.0.0.1:{self.port}/#{section}")
        self.browser.run("location.reload()")
        self.browser.one(f"#at-{section.split('/')[0]} h1")
        self.wait_until(lambda: self.browser.text("#state") not in ("", "connecting"), "a first look")

    def go(self, section):
        self.browser.click("nav a[href='#" + section + "']")
        self.browser.one(f"#at-{section} h1")

    def confirm(self, verb):
        self.assertEqual(self.browser.one("#ask-title").text, verb.split(" ")[0])
        self.browser.click("#ask button", verb)

    def told(self, words):
        self.browser.wait_text("#told", words)

    def bury(self, text, number=1, **fields):
        """Requests that die: the engine fails on a word of theirs."""
        made = [self.sender.submit(f"driver {text}", expected="internal", max_attempts=1, **{name: f"{value}-{i}" if name == "id" else value for name, value in fields.items()})
                for i in range(number)]
        self.wait_until(lambda: self.sender.finished(made), "them to die")
        return made

    def asked(self, path):
        """Returns how often the page has requested this path."""
        self.browser.run("performance.setResourceTimingBufferSize(100000)")
        return self.browser.run("return performance.getEntriesByType('resource').filter((one) => new URL(one.name).pathname === arguments[0]).length", path)

    def wait_looks(self, number):
        count = self.asked("/api/queues")
        self.wait_until(lambda: self.asked("/api/queues") >= count + number, "looks")

    def points(self):
        """Returns the number of points of each line of the charts."""
        return [path.count("L") + path.count("M") for path in self.browser.run("return [...document.querySelectorAll('.plot path')].map((path) => path.getAttribute('d') ?? '')")]

    def letters(self):
        return self.client.xlen(self.sender.key("dead"))

    # the pages

    def test_overview_under_load(self):
        self.serve()
        load = self.start_load(self.server)
        self.open()
        numbers = lambda: {" ".join(line.split(" ")[:2]): line for line in self.browser.run(
            "return [...document.querySelectorAll('.now span')].map((line) => line.closest('.chart').querySelector('h2').firstChild.data + ' ' + line.textContent)")}
        lively = ("Throughput done", "Latency p50", "Latency p99", "Busy of", "Batch texts", "Batch tokens", "Redis commands", "Days done")
        self.wait_until(lambda: all(any(digit in numbers().get(name, "") for digit in "123456789") for name in lively), lambda: f"numbers of all that is live: {numbers()}")
        self.assertEqual(len(numbers()), 13)
        self.wait_until(lambda: min(self.points()) >= 3, "lines in all charts")
        self.assertIn("done", self.browser.one(".plot svg").get_attribute("aria-label"))
        self.assertEqual(self.browser.texts("#daemon dt"), ["Program", "Model", "Engine", "Memory", "Redis"])
        self.assertNotIn("NaN", self.browser.text("main"))
        self.assertNotIn("undefined", self.browser.text("main"))
        self.assertEqual(self.browser.texts(".chart:first-child .scale small"), ["5 min ago", "now"])
        before = min(self.points())
        self.browser.run("location.reload()")
        self.browser.one(".chart")
        self.wait_until(lambda: len(self.points()) == 13 and min(self.points()) >= before, lambda: f"the charts after a reload: {self.points()}", timeout=4)
        load.stop()
        self.finish(self.server, self.sender)
        done = sum(int(self.client.hget(self.sender.key("stats"), f"{level}:done") or 0) for level in ("high", "normal", "low"))
        self.browser.wait_text("#totals", f"Done\n{done:,}")
        self.browser.wait_text("#totals", "Unread\n0")
        self.browser.wait_text(".chart:last-child .now", f"done {done:,}")

    def test_it_asks_only_while_it_is_in_sight(self):
        self.serve()
        self.open()
        asked = lambda: self.asked("/api/queues")
        self.wait_looks(3)
        self.browser.run("Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true}); window.away = true")
        before = self.browser.run("return performance.now()")
        self.wait_until(lambda: self.browser.run("return performance.now()") > before + 1500, "the last look to end")
        count = asked()
        self.wait_until(lambda: self.browser.run("return performance.now()") > before + 5000, "some seconds")
        self.assertEqual(asked(), count)
        self.browser.run("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
        self.wait_until(lambda: asked() > count, "a look")

    def test_the_token_is_asked_for_once(self):
        self.allowed = ("401 (Unauthorized)",)
        self.serve()
        self.open("queues", token=None)
        self.browser.click(".card button", "Pause")
        self.confirm("Pause")
        self.browser.one("#ask input")
        self.browser.press(Keys.ESCAPE)
        self.wait_until(lambda: not self.browser.all("#ask"), "the question to go")
        self.assertFalse(self.client.exists(self.sender.key("paused")))
        self.browser.click(".card button", "Pause")
        self.confirm("Pause")
        self.browser.type("#ask input", "a wrong token, long enough")
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#ask-text", "not the right one")
        self.browser.type("#ask input", TOKEN)
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#state", "paused")
        self.browser.click(".card button", "Resume")
        self.browser.wait_text("#state", "running")
        self.assertEqual(self.browser.run("return [sessionStorage.token, localStorage.length, document.cookie]"), [TOKEN, 0, ""])
        self.browser.click("#sign", "Forget token")
        self.browser.one("#sign", "Enter token")
        self.assertIsNone(self.browser.run("return sessionStorage.getItem('token')"))
        self.browser.click("#sign")
        self.browser.type("#ask input", "another wrong one")
        self.browser.press(Keys.ENTER)
        self.told("token")
        self.browser.one("#sign", "Enter token")

    def test_where_reading_needs_the_token(self):
        self.allowed = ("401 (Unauthorized)",)
        self.port = free_port()
        self.start_daemon(self.server, "--http", f"0.0.0.0:{self.port}", "--http-token-file", self.token_file)
        self.browser.open(f"http://127.0.0.1:{self.port}/")
        self.browser.run("sessionStorage.clear(); location.reload()")
        self.browser.type("#ask input", TOKEN)
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#state", "running")
        self.assertEqual(self.browser.text("#trouble"), "")

    def test_queues(self):
        self.serve()
        self.open("queues")
        self.browser.click(".card button", "Pause")
        self.browser.wait_text("#ask-text", "test: workers finish what they hold")
        self.browser.click("#ask button", "Back")
        self.wait_looks(1)
        self.assertFalse(self.client.exists(self.sender.key("paused")))
        self.allowed = ("400 (Bad Request)",)
        self.browser.click(".card button", "Pause")
        self.browser.type("#ask label:first-child input", "soon")
        self.confirm("Pause")
        self.browser.wait_text("#told.bad", "for must be ")
        self.assertFalse(self.client.exists(self.sender.key("paused")))
        self.browser.click(".card button", "Pause")
        self.browser.type("#ask label:first-child input", "30m")
        self.browser.type("#ask label:last-child input", "reindexing")
        self.confirm("Pause")
        self.told("test is paused")
        self.assertTrue(1700000 < self.client.pttl(self.sender.key("paused")) <= 1800000)
        self.browser.wait_text(".card header small", "reindexing")
        self.browser.click(".card button", "Resume")
        self.browser.wait_text("#state", "running")
        self.browser.click(".card button", "Pause")
        self.confirm("Pause")
        self.told("test is paused")
        self.assertEqual(self.client.pttl(self.sender.key("paused")), -1)
        self.wait_paused(self.client)
        self.sender.submit_many(["hello"] * 3)
        self.browser.wait_text(".card tbody", "normal\t3\t0")
        for name, value in (("high", 7), ("normal", 1), ("later", 9)):
            self.browser.type(f".card input[name={name}]", str(value))
        self.browser.click(".card button", "Set caps")
        self.told("The caps of test are set.")
        caps = lambda: [int(self.client.hget(self.sender.key("meta"), "cap_" + name) or 0) for name in ("high", "normal", "low", "later")]
        self.assertEqual(caps(), [7, 1, 0, 9])
        self.wait_until(lambda: self.browser.one(".card input[name=normal]").get_attribute("value") == "1", "the cap in its field")
        for name in ("normal", "high"):
            self.browser.one(f".card input[name={name}]").send_keys(Keys.BACK_SPACE)  # clear() would be no input
        self.browser.click(".card button", "Set caps")
        self.wait_until(lambda: caps() == [0, 0, 0, 9], caps)
        self.browser.click(".card button", "Resume")
        self.told("test goes on")
        self.browser.wait_text("#state", "running")
        self.sender.submit_fields({"text": b"\xff"}, expected="bad_utf8")
        self.browser.wait_text(".card", "1 bad_utf8")

    def test_two_queues(self):
        settings = {"redis": self.server.socket, "queues": [{"queue": "test", "model": self.make_model()}, {"queue": "mail", "model": self.make_model()}]}
        self.serve(make=lambda server, *flags, **options: self.make_configured(server, settings, *flags, **options))
        self.producer(self.server, "mail").submit_many(["hello"] * 5)
        for number in range(101):
            self.client.xadd(self.sender.key("dead"), {"_entry": f"{number + 1}-0", "text": "x"})
        self.open()
        self.browser.wait_text("#totals", "Done\n0")
        self.go("dead")
        self.browser.one("#at-dead .more")
        left = self.browser.run("""
            const queue = document.getElementById("queue");
            queue.value = "mail";
            queue.dispatchEvent(new Event("change"));
            return [...document.querySelectorAll("#at-dead :is(td, .more)")].filter((one) => one.checkVisibility()).length""")
        self.assertEqual(left, 0, "no button of the old queue waits for the new one's list")
        self.browser.wait_text("#at-dead .empty", "No dead letters.")
        self.go("overview")
        self.browser.wait_text("#totals", "Done\n5")
        self.go("queues")
        self.assertEqual(self.browser.texts(".card h2"), ["test", "mail"])
        self.browser.all(".card > header button")[1].click()
        self.confirm("Pause")
        self.told("mail is paused")
        self.browser.wait_text("#state", "paused")
        self.assertFalse(self.client.exists(self.sender.key("paused")))
        done = self.producer(self.server).submit("hello").entries[0]
        self.open("request/" + done)  # of the queue that the page shows first where none was chosen
        self.browser.wait_text("#request-found .badge", "done")

    def test_workers(self):
        self.serve()
        others = [self.start_daemon(self.server) for _ in range(2)]
        names = [other.worker_name(self.client) for other in others]
        self.open("workers")
        self.wait_until(lambda: len(self.browser.all("#worker-rows tr")) == 3, "three workers")
        row = lambda name: f"#worker-rows tr[data-key='{name}']"
        self.browser.click(row(names[0]) + " button", "Quiet")
        self.browser.wait_text(row(names[0]) + " .badge", "quiet")
        self.browser.click(row(names[0]) + " button", "Resume")
        self.browser.one(row(names[0]) + " button", "Quiet")
        self.browser.click("#at-workers .actions button", "Quiet all")
        self.told("All 3 workers: quiet")
        self.wait_until(lambda: self.browser.texts("#worker-rows .badge") == ["quiet"] * 3, "all to be quiet")
        self.browser.click("#at-workers .actions button", "Resume all")
        self.wait_until(lambda: self.browser.texts("#worker-rows .badge") == ["running"] * 3, "all to go on")
        self.browser.click(row(names[0]) + " button", "Drain")
        self.browser.click("#ask button", "Back")
        self.assertTrue(others[0].running())
        self.browser.click(row(names[0]) + " button", "Drain")
        self.confirm("Drain")
        self.assertEqual(others[0].wait_exit(), 0)
        self.browser.click(row(names[1]) + " button", "Stop")
        self.confirm("Stop")
        self.assertIn(others[1].wait_exit(), (0, 75))
        self.wait_until(lambda: len(self.browser.all("#worker-rows button")) == 3, "one to be left")

    def test_dead_letters(self):
        self.serve(make=lambda *given, **options: self.make_faulty(*given, faults=["error:{driver}"], **options))
        self.bury("one", 3, id="first", tenant="acme")
        self.bury("two", 2)
        self.open("dead")
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 5, "five letters")
        self.assertRegex(self.browser.text("#dead-bytes"), "^[1-9].* kB of Redis’ memory$")
        self.assertEqual(self.browser.texts("#dead-search button"), ["Search", "Requeue all (5)", "Delete all (5)"])
        self.browser.type("#dead-search input", "first-1")
        self.browser.press(Keys.ENTER)
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 1, "the one that is searched for")
        self.browser.click("#dead-rows button", "Show")
        self.browser.wait_text("#letter", "driver one")
        self.browser.press(Keys.ESCAPE)
        self.browser.type("#dead-search input", "nothing has this")
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#at-dead .empty", "No dead letters")
        self.assertEqual(self.browser.texts("#dead-search button"), ["Search"])
        self.browser.type("#dead-search input", "driver two")
        self.browser.press(Keys.ENTER)
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 2, "two")
        self.assertEqual(self.browser.texts("#dead-search button"), ["Search", "Requeue all (2)", "Delete all (2)"])
        self.browser.click("#delete-all")
        self.browser.wait_text("#ask-text", "“driver two”")
        self.confirm("Delete")
        self.told("2 deleted.")
        self.assertEqual(self.letters(), 3)
        self.browser.one("#dead-search input").clear()
        self.browser.click("#dead-search button", "Search")
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 3, "the rest")
        self.browser.click("#dead-rows tr button", "Delete")
        self.browser.click("#ask button", "Back")
        self.assertEqual(self.letters(), 3)
        self.browser.click("#dead-rows tr button", "Delete")
        self.confirm("Delete")
        self.told("1 deleted.")
        self.sluice("pause")
        self.wait_paused(self.client)
        self.browser.click("#dead-rows tr button", "Requeue")
        self.told("1 requeued.")
        self.browser.click("#requeue-all")
        self.confirm("Requeue")
        self.browser.wait_text("#at-dead .empty", "No dead letters")
        self.assertEqual((self.letters(), self.sender.unfinished()), (0, 2))
        self.sluice("resume")
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 2, "them to die again, and the list to see it")

    def test_more_than_one_page(self):
        self.serve()
        for number in range(230):
            self.client.xadd(self.sender.key("dead"), {"_entry": f"{number + 1}-0", "_code": "internal", "_info": '{"attempts":4}', "_message": "m", "text": "rare" if number == 3 else "common"})
        self.open("dead")
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 100, "a page")
        self.browser.click("#at-dead .more")
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 200, "two pages")
        self.browser.click("#at-dead .more")
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 230, "all")
        self.assertEqual(self.browser.all("#at-dead .more"), [])
        self.browser.type("#dead-search input", "common")
        self.browser.press(Keys.ENTER)
        self.browser.one("#delete-all", "Delete all (100+)")
        self.browser.type("#dead-search input", "rare")
        self.browser.press(Keys.ENTER)
        self.wait_until(lambda: len(self.browser.all("#dead-rows tr")) == 1, "the one on the last page")
        self.browser.click("#delete-all")
        self.confirm("Delete")
        self.told("1 deleted.")
        self.assertEqual(self.letters(), 229)

    def test_later(self):
        self.serve()
        for delay in (600000, 7200000):
            self.client.xadd(self.sender.stream, {"text": "hello", "delay": delay, "id": f"in-{delay}"})
        self.open("later")
        self.wait_until(lambda: len(self.browser.all("#later-rows tr")) == 2, "both")
        self.assertRegex(self.browser.text("#later-rows"), r"(?s)\d (s|min)\tnormal\t.*\tin-600000\t.*\t2 h\tnormal\t.*\tin-7200000")
        self.browser.click("#later-rows tr:last-child button", "Cancel")
        self.browser.click("#ask button", "Back")
        self.assertEqual(self.client.zcard(self.sender.key("later")), 2)
        self.browser.click("#later-rows tr:last-child button", "Cancel")
        self.confirm("Cancel it")
        self.told("asked to cancel")
        self.wait_until(lambda: len(self.browser.all("#later-rows tr")) == 1, "it to go")
        self.assertEqual(self.client.hget(self.sender.key("reply:in-7200000"), "status"), b"cancelled")
        self.sender.submit("hello", delay=5000)
        self.browser.wait_text("#count-later", "2")
        self.wait_until(lambda: len(self.browser.all("#later-rows tr")) == 2, "another one")
        self.wait_until(lambda: len(self.browser.all("#later-rows tr")) == 1, "it to go")
        self.browser.click("#later-rows a")
        self.browser.wait_text("#request-found .badge", "later")

    def test_lists_of_requests(self):
        self.serve(make=lambda *given, **options: self.make_faulty(*given, faults=["slow:{kernel}:12000"], **options))
        slow = self.sender.submit("kernel", tenant="acme").entries[0]
        self.wait_until(lambda: self.pending(self.client) == 1, "it to run")
        self.open("request")
        worker = self.client.xpending_range(self.sender.stream, "sluice", "-", "+", 1)[0]["consumer"].decode()
        self.wait_until(lambda: len(self.browser.all("#request-rows tr")) == 1, "the one that runs")
        self.assertRegex(self.browser.text("#request-rows"), rf"^{slow}\t20\S+ \S+\t\S+ m?s\t{worker}\t\tacme\t\d+ B\tkernel\t")
        self.sluice("pause")
        self.wait_paused(self.client)
        self.browser.wait_text("#at-request .empty", "None.")  # it ends while the list is looked at
        waits = [self.client.xadd(self.sender.stream_of("low"), {"text": HOSTILE}).decode() for _ in range(71)]
        for name, value in (("class", "low"), ("state", "unread")):
            self.browser.one(f"#request-list select[name={name}]").send_keys(value)
        self.wait_until(lambda: len(self.browser.all("#request-rows tr")) == 64, "a page")
        self.assertEqual(self.browser.texts("#request-rows a"), [f"low:{one}" for one in waits[:64]])
        self.browser.wait_text("#request-rows", HOSTILE)
        self.browser.run("document.querySelectorAll('#request-rows button')[1].focus()")
        self.sluice("cancel", f"low:{waits[0]}")
        self.wait_until(lambda: self.browser.texts("#request-rows a") == [f"low:{one}" for one in waits[1:65]], "the first one to go")
        self.assertEqual(self.browser.run("return document.activeElement.closest('tr')?.dataset.key"), f"low:{waits[1]}", "the focus stays where it is")

        def rests():
            asked = self.asked("/api/requests")
            self.wait_looks(3)
            return self.asked("/api/requests") == asked

        self.wait_until(rests, "a list that does not change not to be read again")
        self.assertEqual(self.browser.text("#request-at"), "")
        self.browser.click("#at-request .more")
        self.wait_until(lambda: len(self.browser.all("#request-rows tr")) == 70, "all")
        self.assertRegex(self.browser.text("#request-at"), r"^as of \d\d:\d\d:\d\d$")
        ages = self.browser.texts("#request-rows td.n")
        self.wait_looks(2)
        self.assertEqual(self.browser.texts("#request-rows td.n"), ages)
        self.browser.click("#request-rows tr:last-child button", "Cancel")
        self.confirm("Cancel it")
        self.told(f"low:{waits[-1]}: asked to cancel.")
        self.wait_until(lambda: self.client.hget(self.sender.key(f"reply:low:{waits[-1]}"), "status") == b"cancelled", "it to end")
        self.browser.click("#request-rows tr:nth-last-child(2) a")
        self.browser.wait_text("#request-found .badge", "queued")

    def test_one_request(self):
        self.serve(make=lambda *given, **options: self.make_faulty(*given, faults=["error:{driver}", "slow:{kernel}:3000"], **options))
        done = self.sender.submit("hello", id="order/42 & more", tenant="acme")
        dead = self.bury("one", tenant="acme")[0]
        self.wait_finished(self.sender)
        self.open("request")
        self.browser.type("#request-form input", "order/42 & more")
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#request-found .badge", "done")
        self.assertIn("submitted", self.browser.text(".story"))
        self.assertIn("done_at", self.browser.text("#request-found dt"))
        self.browser.view(320)
        self.assertLess(self.browser.run("return Math.max(...[...document.querySelectorAll('#request-found dd')].map((one) => one.offsetHeight))"), 200, "a vector scrolls")
        self.browser.type("#request-form input", dead.entries[0])
        self.browser.press(Keys.ENTER)
        self.browser.wait_text(".story", "injected")
        self.browser.click("#request-found button", "Show the dead letter")
        self.browser.wait_text("#letter", "driver one")
        self.browser.press(Keys.ESCAPE)
        slow = self.sender.submit("kernel")
        self.browser.type("#request-form input", slow.entries[0])
        self.wait_until(lambda: self.pending(self.client) == 1, "it to run")
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#request-found .badge", "running")
        self.browser.type("#request-form input", "1234567890123-0")
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#request-found", "it was never enqueued")
        self.open("request/%")  # a link that was cut
        self.told("malformed")

    def test_try_it(self):
        self.serve("--max-inputs", "4")
        self.open("try")
        text, lines = "hello red stream", ["the queue and the worker", "hello red stream", "a blue library"]
        self.browser.type("#try-form input", text)
        self.browser.type("#try-form textarea", "\n".join(lines))
        self.browser.click("#try-form button")
        self.browser.one(".vector")
        reference = self.reference()
        reference.learn([text, *lines])
        vectors = [struct.unpack(f"<{len(reference(one)) // 4}f", reference(one)) for one in (text, *lines)]
        shown = [float(number) for number in self.browser.text(".vector").split(", ")]
        self.assertEqual(len(shown), len(vectors[0]))
        self.assertLess(max(abs(a - b) for a, b in zip(shown, vectors[0])), 1e-6)
        cosines = sorted(((round(sum(a * b for a, b in zip(vectors[0], vector)), 3), line) for vector, line in zip(vectors[1:], lines)), reverse=True)
        self.assertEqual(self.browser.texts(".near li"), [f"{cosine:.3f} {line}" for cosine, line in cosines])
        self.browser.type("#try-form textarea", "")
        self.browser.type("#try-form input", HOSTILE)
        self.browser.click("#try-form button")
        self.wait_until(lambda: not self.browser.all(".near li"), "the vector alone")
        self.browser.type("#try-form input", "")
        self.browser.type("#try-form textarea", "\n".join([lines[1], "", lines[2]]))
        self.browser.click("#try-form button")
        self.wait_until(lambda: [line.split(" ", 1)[1] for line in self.browser.texts(".near li")] == [lines[2]], "the other line, compared with the first")
        self.browser.type("#try-form input", text)
        self.browser.type("#try-form textarea", "hello\n" * 5)
        self.browser.click("#try-form button")
        self.browser.wait_text("#told.bad", "too_many_inputs: ")

    def test_try_what_the_queue_does(self):
        """The page tries a queue of rerankers, which puts texts in order, and one of classifiers, which names labels, as the commands do;
        no other queue."""
        shipped = {name: os.path.join(SOURCE, "config", "models", "sluice-mini-en-" + name) for name in ("rerank", "section")}
        settings = {"redis": self.server.socket, "queues": [{"queue": name, "model": path} for name, path in shipped.items()]}
        self.queue = "rerank"
        self.serve(make=lambda server, *flags, **options: self.make_configured(server, settings, *flags, **options))
        self.client.xadd("sluice:{elsewhere}:requests", {"text": "x"})
        choose = lambda name: self.browser.run("const queue = document.getElementById('queue'); queue.value = arguments[0]; queue.dispatchEvent(new Event('change'))", name)
        shown = lambda: [line.split(" ", 1) for line in self.browser.texts(".near li")]
        self.open("try")
        self.browser.one("#try-form button", "Rerank")
        texts = ["It plays music and shows the lyrics.", "A converter that turns WAV and FLAC audio files into Ogg.", HOSTILE]
        self.browser.type("#try-form input", "converter for audio files")
        self.browser.type("#try-form textarea", "\n".join(texts))
        self.browser.click("#try-form button")
        self.wait_until(lambda: len(shown()) == 3, "three in order")
        wanted = self.run_sluice("rerank", "--model", shipped["rerank"], "--query", "converter for audio files", "--precision", "f32", input="\n".join(texts).encode())
        scores = [json.loads(line)["score"] for line in wanted.stdout.splitlines()]
        self.assertEqual(shown(), [[f"{score:.3f}", text] for score, text in sorted(zip(scores, texts), reverse=True)])
        choose("section")
        self.browser.one("#try-form button", "Classify")
        self.assertEqual(len(self.browser.all("#try-form textarea")), 0)
        self.browser.type("#try-form input", "play and organise your music files")
        self.browser.click("#try-form button")
        self.browser.wait_text("#try-found h2", "Labels")
        self.assertEqual(shown()[0][1], "sound")
        choose("elsewhere")
        self.browser.wait_text("#try-foreign", "does not serve")
        self.assertEqual(self.browser.all("#try-form"), [])

    def test_queues_of_other_daemons(self):
        """Queues are shown, and remembered over a reload; where the daemon's login may not look, the page says what to do."""
        self.client.xadd("sluice:{mail}:requests", {"text": "waits"})
        self.client.set("sluice:{odd}:meta", "of a wrong type")
        self.client.xadd("sluice:{odd}:requests", {"text": "x"})
        self.serve()
        self.open("queues")
        self.browser.wait_text("#queue-cards", "WRONGTYPE")
        self.assertEqual(self.browser.texts(".card h2"), ["test", "mail", "odd"])
        self.assertEqual(self.browser.texts(".card header .badge"), ["running", "no workers", "unknown"])
        self.assertIn("no worker: sluice serve --queue ", self.browser.texts(".card header small")[1])
        self.assertEqual(self.browser.texts(".card header button"), ["Pause", "Pause"])
        self.browser.run("const queue = document.getElementById('queue'); queue.value = 'mail'; queue.dispatchEvent(new Event('change'))")
        self.go("overview")
        self.browser.wait_text("#totals", "Unread\n1")
        self.browser.wait_text("#foreign", "does not serve")
        self.assertEqual(self.browser.texts(".chart h2"), ["Days\nUTC"])
        self.browser.run("location.reload()")
        self.browser.wait_text("#totals", "Unread\n1")
        self.assertEqual(self.browser.run("return document.getElementById('queue').value"), "mail")

    def test_a_login_without_the_rights(self):
        make_user(self.client, "worker", self.queue)
        self.client.xadd("sluice:{mail}:requests", {"text": "waits"})
        self.allowed = ("403 (Forbidden)",)
        self.serve(address=f"redis+unix://sluice-worker@{self.server.socket}", environment={"SLUICE_REDIS_PASSWORD": "pw"})
        self.open("queues")
        self.browser.wait_text("#left-out", "make-users.sh --dashboard")
        self.browser.click(".card button", "Pause")
        self.confirm("Pause")
        self.told("ACL SETUSER sluice-worker '(~sluice:{test}:paused +set +del)'")

    # how it is

    def test_a_stranger_runs_nothing(self):
        """Markup in all that a producer can write is shown as it is."""
        self.serve()
        self.client.xadd(self.sender.key("dead"), {"_info": json.dumps({"attempts": HOSTILE, "tenant": HOSTILE}), **{name: HOSTILE for name in ("_entry", "_code", "_message", "id", "text", HOSTILE)}})
        self.sender.submit("hello", id=HOSTILE, meta=HOSTILE)
        self.wait_finished(self.sender)
        self.open("dead")
        self.browser.wait_text("#dead-rows", HOSTILE)
        self.browser.click("#dead-rows button", "Show")
        self.browser.wait_text("#letter", HOSTILE)
        self.browser.press(Keys.ESCAPE)
        self.go("request")
        self.browser.type("#request-form input", HOSTILE)
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#request-found h2", HOSTILE)
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('img, b')].filter((one) => one.tagName === 'IMG' || one.textContent === 'bold').length"), 0)

    def test_what_is_wrong_is_said(self):
        self.allowed = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "503 (Service Unavailable)")
        daemon = self.serve()
        self.open()
        self.server.kill()
        self.browser.wait_text("#trouble", "Redis is away")
        for section in SECTIONS:  # one plain state, whatever is looked at
            self.go(section)
            self.wait_looks(1)
            self.assertRegex(self.browser.text("#trouble"), r"^Redis is away: .*\. The numbers are those of \d\d:\d\d:\d\d\. The page goes on by itself\.$")
            self.assertEqual((self.browser.text("#told"), self.browser.text("#state")), ("", "Redis away"))
            self.assertTrue(self.browser.run("return document.getElementById('main').inert"))
        self.browser.run("location.reload()")
        self.browser.wait_text("#trouble", "Redis is away")
        self.assertEqual(self.browser.all("main"), [], "nothing is known")
        self.server.start()
        self.browser.wait_text("#state", "running")
        self.assertEqual(self.browser.text("#trouble"), "")
        self.assertFalse(self.browser.run("return document.getElementById('main').inert"))
        daemon.signal(signal.SIGKILL)
        self.browser.wait_text("#trouble", "does not answer")
        daemon.process.wait()
        self.restart(daemon, self.server)
        self.browser.wait_text("#state", "running")

    def test_with_keys_alone(self):
        self.serve()
        self.open()
        wanted = ["Sluice", "test", "Forget token", "Overview", "Queues", "Workers 1", "Dead", "Later", "Requests", "Try it"]
        seen = []
        for _ in wanted:
            self.browser.press(Keys.TAB)
            seen.append(self.browser.focused())
        self.assertEqual(seen, wanted)
        self.browser.run("document.querySelector('nav a[href=\"#queues\"]').focus()")
        self.browser.press(Keys.ENTER)
        self.wait_until(lambda: self.browser.focused() == "Queues" and self.browser.run("return document.activeElement.tagName") == "H1", "the heading to have the focus")
        self.browser.press(Keys.TAB, Keys.ENTER)
        self.browser.one("#ask button", "Pause")
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#state", "paused")
        self.wait_until(lambda: self.browser.focused() == "Resume", "the focus to stay")
        count = self.browser.run("return performance.getEntriesByType('resource').length")
        self.wait_until(lambda: self.browser.run("return performance.getEntriesByType('resource').length") > count + 6, "two looks")
        self.assertEqual(self.browser.focused(), "Resume")
        self.browser.press(Keys.ENTER)
        self.browser.wait_text("#state", "running")

    def fits(self, width, name):
        self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width, name)
        self.assertGreaterEqual(self.browser.contrast(), (4.5, ""))
        self.assertEqual(self.browser.nameless(), [])
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.totals dd')].filter((one) => one.offsetHeight > 40).map((one) => one.textContent)"), [], "in two lines")
        self.browser.shoot(os.path.join(PICTURES, name + ".png"))

    def test_widths_and_colours(self):
        """Nothing is wider than the page, too faint, or without a name, however long a name is, and with Redis away; the pictures are for
        people."""
        self.allowed = ("503 (Service Unavailable)",)
        long = "_and_nowhere_to_break_a_rather_long_name_of_somebody_who_likes_those"
        self.queue = "queue" + long[:59]
        self.sender = self.producer(self.server)
        self.serve(make=lambda *given, **options: self.make_faulty(*given, faults=["error:{driver}"], **options), model=self.make_model("model" + long))
        worker = "host" + long.replace("_", "") + "-12345-1f2e3d4c"
        self.client.hset(self.sender.key("workers"), worker, f"{int(time.time() * 1000)} state tight held 12345 done 1234567 errors 3 reason memory:97% precision f32")
        self.client.set(self.sender.key("alive:" + worker), "x")
        self.client.xadd("sluice:{other" + long[:58] + "}:requests", {"text": "x"})
        for delay in range(60000, 600000, 90000):
            self.sender.submit("hello", delay=delay, id=f"in_{delay}{long}")
        today = int(self.client.time()[0]) // 86400
        self.client.hset(self.sender.key("stats"), mapping={f"day:{day % 91}": f"{day} {(day * 7919) % 9000 + 20000} {(day * 31) % 800}" for day in range(today - 60, today)})
        self.client.hset(self.sender.key("stats"), "normal:done", 12345678)
        load = self.start_load(self.server, depth=16)
        self.open()
        self.wait_until(lambda: min(self.points()[:5]) >= 4, "some history")
        load.stop()
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 6, "the retries to end")
        self.bury("and so on " * 20 + "x" * 100, 4, id="order" + long, tenant="acme" + long[:60])
        letter = self.client.xrevrange(self.sender.key("dead"))[0][1][b"_entry"].decode()
        pages = list(itertools.product(((320, "light"), (320, "dark"), (360, "light"), (360, "dark"), (768, "light"), (768, "dark"), (1024, "light"), (1440, "light"), (1440, "dark")), SECTIONS))
        for (width, scheme), section in pages:
            with self.subTest(section=section, width=width, scheme=scheme):
                self.browser.view(width, scheme=scheme)
                self.go(section)
                self.wait_looks(1)
                if section == "request":
                    self.browser.type("#request-form input", letter)
                    self.browser.press(Keys.ENTER)
                    self.browser.one(".story")
                if section == "try":
                    self.browser.type("#try-form input", "hello red stream")
                    self.browser.type("#try-form textarea", "a blue library\nthe red stream\nhello worker" + long)
                    self.browser.click("#try-form button")
                    self.browser.one(".vector")
                self.fits(width, f"{section}-{width}-{scheme}")
        self.go("queues")
        self.browser.click(".card button", "Pause")
        self.browser.one("#ask button", "Pause")
        for width, scheme in ((320, "light"), (1440, "dark")):
            self.browser.view(width, scheme=scheme)
            self.fits(width, f"pause-{width}-{scheme}")
        self.confirm("Pause")
        self.browser.wait_text("#state", "paused")
        self.go("dead")
        self.browser.click("#dead-rows button", "Show")
        self.browser.one("#letter")
        self.browser.view(320)
        self.fits(320, "letter-320-light")
        self.browser.press(Keys.ESCAPE)
        self.server.kill()
        self.browser.wait_text("#trouble", "Redis is away")
        for (width, scheme), section in pages:
            with self.subTest(section=section, width=width, scheme=scheme, redis="away"):
                self.browser.view(width, scheme=scheme)
                self.go(section)
                self.fits(width, f"away-{section}-{width}-{scheme}")
        self.server.start()
        self.browser.wait_text("#state", "paused")


if __name__ == "__main__":
    unittest.main(verbosity=2)

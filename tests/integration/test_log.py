"""The log: one line per event, as text or as JSON, and no content of a request or a name can forge a line. And a slow
reader of the log delays nobody."""

import fcntl
import json
import os
import re
import signal

from prometheus_client.parser import text_string_to_metric_families

from case import SluiceCase
from corpus import texts
from http_case import HttpCase
from ports import free_port

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


class Unread(HttpCase):
    """The log goes into a pipe with room for one page."""

    def setUp(self):
        super().setUp()
        self.reader, self.writer = os.pipe()
        self.addCleanup(os.close, self.reader)
        self.addCleanup(os.close, self.writer)
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)

    def unread(self):
        """Starts a slow daemon with a port that logs into the pipe, and waits until it has joined its queue."""
        self.port = free_port()
        daemon = self.make_faulty(self.server, "--http", f"127.0.0.1:{self.port}", "--threads", "1", "--max-batch-rows", "4",
                                  faults=["slow:2:5"], environment={"FAULTY_ENGINE_LOG": ""}).start(self.writer)
        self.wait_until(lambda: self.get("/readyz")[0] == 200 or not daemon.running(), "it to be ready")
        self.assertTrue(daemon.running())
        return daemon

    def alive(self, daemon):
        return [key for key in self.client.keys(self.sender.key("alive:*")) if f"-{daemon.pid}-".encode() in key]

    def metric(self, name):
        return next(sample.value for family in text_string_to_metric_families(self.get("/metrics")[1])
                    for sample in family.samples if sample.name == name)

    def dropped(self):
        return self.metric("sluice_log_lines_dropped_total")

    def drop_lines(self, daemon):
        """Fills the log's buffer with dumps of held requests until lines are dropped; the requests are answered all the
        same."""
        names = iter(range(10**6))
        while self.dropped() == 0:
            if self.sender.unfinished() < 400:
                for _ in range(400):
                    self.sender.submit("a text", id="i" * 100 + f"-{next(names)}")
            daemon.signal(signal.SIGUSR2)
        self.wait_finished(self.sender)

    def read_until(self, word):
        got = b""
        while word not in got.rpartition(b"\n")[0]:
            got += os.read(self.reader, 1 << 16)
        return got

    def test_a_reader_that_stops_stops_nobody(self):
        daemon = self.unread()
        name = self.alive(daemon)
        self.drop_lines(daemon)
        self.assertEqual(self.alive(daemon), name, "the lease was never lost")
        self.assertEqual(self.run_sluice("live", str(daemon.pid)).returncode, 0)
        self.assertEqual(self.get("/healthz"), (200, "ok\n"))
        self.assertEqual(daemon.stop(), 0)

    def test_dropped_lines_are_counted_and_reported(self):
        daemon = self.unread()
        self.drop_lines(daemon)
        lines = self.read_until(b" log_lines_dropped ").decode().splitlines()
        for line in lines[:-1]:  # the last one may be cut by the last read
            self.assertRegex(line, rf"^{STAMP} (info|warn) [a-z_]+( [a-z0-9_]+=(\"[^\"]*\"|\S*))*$")
        said = next(line for line in lines if " log_lines_dropped " in line)
        count, total = map(int, re.search(r"warn log_lines_dropped lines=(\d+) total=(\d+)$", said).groups())
        self.assertEqual((count, total), (self.dropped(), self.dropped()))
        daemon.signal(signal.SIGTERM)
        self.read_until(b" info drained ")
        self.assertEqual(daemon.wait_exit(), 0)

    def test_a_reader_that_is_gone_ends_nobody(self):
        daemon = self.unread()
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), self.reader)  # closes the reading end
        before = self.dropped()
        self.sender.submit_fields({"text": "", "id": "bad"}, expected="bad_request")
        self.wait_finished(self.sender)
        self.wait_until(lambda: self.dropped() > before, "the line to be dropped")
        self.assertEqual(daemon.stop(), 0)


class Closed(HttpCase):
    def test_descriptors_that_were_closed(self):
        """No other file takes the descriptors of standard input, output and error, so no socket and no file receives
        log lines."""
        daemon = self.make_daemon(self.server)
        daemon.argv = ["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *daemon.argv]
        daemon.start()
        self.wait_until(lambda: self.client.keys(self.sender.key("alive:*")), "it to be alive")
        self.sender.submit("hello")
        self.wait_finished(self.sender)
        self.assertEqual([os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in range(3)], ["/dev/null"] * 3)
        self.assertEqual(daemon.stop(), 0)


class Names(HttpCase):
    """A model's folder may have any name; wherever the name is shown it is valid text."""

    def test_a_folder_whose_name_is_no_text(self):
        given = os.fsdecode(b'lat\xe9n "x"\\\n={},')
        shown = 'lat\ufffdn "x"\\\n={},'
        daemon = self.watched("--log", "json", model=self.make_model(given)).wait_ready(self.client)
        entry = self.sender.submit("hello", model=shown).entries[0]
        self.wait_finished(self.sender)
        self.assertEqual(self.sender.reply(entry)["model"], shown)
        models = {sample.labels["model"] for family in text_string_to_metric_families(self.get("/metrics")[1])
                  for sample in family.samples if "model" in sample.labels}
        self.assertEqual(models, {shown})
        self.assertEqual(json.loads(self.get("/api/queues")[1])["queues"][0]["model"], shown)
        self.assertEqual(json.loads(self.run_sluice("model", self.path("models", given)).stdout)["model"], shown)
        self.sender.submit_fields({"text": "hello", "id": "bad", "model": "\u65e5" * 100}, expected="wrong_model")
        self.wait_finished(self.sender)
        self.assertEqual(daemon.stop(), 0)
        with open(daemon.log, "rb") as log:
            lines = [json.loads(line.decode()) for line in log]
        self.assertEqual(next(line["model"] for line in lines if line["event"] == "start"), shown)

    def test_a_message_is_not_cut_inside_a_character(self):
        """The message quotes the first 80 bytes of the model's name."""
        name = "m" + "\u65e5" * 60
        self.start_daemon(self.server, model=self.make_model(name))
        entry = self.sender.submit_fields({"text": "hello", "id": "bad", "model": "other"}, expected="wrong_model").entries[0]
        self.wait_finished(self.sender)
        self.assertIn("this queue serves m\u65e5", self.client.hget(self.sender.key("reply:bad"), "message").decode(), entry)


class Log(SluiceCase):
    def life(self, *flags):
        """Returns the log of a daemon that saw good and bad requests, lost its Redis and was stopped."""
        server = self.start_redis()
        daemon = self.make_daemon(server, *flags).start()
        sender = self.producer(server)
        sender.submit_many(texts(50))
        sender.submit_fields({"text": "", "id": "bad"}, expected="bad_request")
        sender.submit_fields({"text": "x", "id": "forged\n2026-01-01T00:00:00.000Z info forged"}, expected="bad_id", named=False)
        self.wait_finished(sender)
        server.stop()
        server.start()
        sender.submit("after the restart")
        self.wait_finished(sender)
        self.assertEqual(daemon.stop(), 0)
        return daemon.read_log().splitlines()

    def test_text_lines(self):
        lines = self.life()
        self.assertGreater(len(lines), 3)
        for line in lines:
            self.assertRegex(line, rf"^{STAMP} (debug|info|warn|error) [a-z0-9_]+( [a-z0-9_]+=(\"([^\"\\]|\\.)*\"|[^ \"]*))*$")
        self.assertFalse([line for line in lines if re.match(rf"{STAMP} info forged", line)])

    def test_json_lines(self):
        lines = self.life("--log", "json", "--log-level", "debug", "--stats-s", "1")
        self.assertGreater(len(lines), 3)
        for line in lines:
            event = json.loads(line)
            self.assertRegex(event["time"], f"^{STAMP}$")
            self.assertIn(event["level"], ("debug", "info", "warn", "error"))
            self.assertRegex(event["event"], "^[a-z0-9_]+$")

    def test_each_failure_has_one_line(self):
        """Covers a refused request, each run of one that fails until it is dead, one that expires, one whose message
        was deleted."""
        server = self.start_redis()
        client, sender = server.client(), self.producer(server)
        client.set(sender.key("paused"), "1")
        daemon = self.make_faulty(server, "--log", "json", "--backoff-ms", "20", faults=["error:{kernel}"]).start().wait_ready(client)
        worker = daemon.worker_name(client)
        context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        def lines():
            return [json.loads(line) for line in daemon.read_log().splitlines()]

        vanished = sender.submit("gone", expected="internal").entries[0]
        client.xreadgroup("sluice", "dead", {sender.stream: ">"})
        client.xdel(sender.stream, vanished)
        client.delete(sender.key("paused"))
        names = [sender.submit_fields(fields, expected=code).entries[0] for fields, code in (
            ({"text": "", "id": "bad", "tenant": "acme", "traceparent": context}, "bad_request"),
            ({"text": "the kernel", "max_attempts": "3"}, "internal"),
            ({"text": "late", "delay": "60", "expires_in": "50"}, "expired"))]
        self.wait_finished(sender)
        daemon.stop()
        failures = [line for line in lines() if "entry" in line]
        expected = {("request_refused", names[0], "bad_request", 1), ("request_retried", names[1], "internal", 1),
                    ("request_retried", names[1], "internal", 2), ("dead_letter", names[1], "internal", 3),
                    ("request_refused", names[2], "expired", 1), ("entry_vanished", vanished, "internal", 1)}
        self.assertEqual(sorted((line["event"], line["entry"], line["code"], line["attempts"]) for line in failures), sorted(expected))
        for line in failures:
            self.assertEqual((line["queue"], line["worker"]), (self.queue, worker))
            self.assertTrue(line["message"])
            self.assertEqual("retry_in_ms" in line, line["event"] == "request_retried")
        refused = next(line for line in failures if line["id"] == "bad")
        self.assertEqual((refused["tenant"], refused["traceparent"]), ("acme", context))
        for line in lines():
            if line["level"] in ("warn", "error"):
                self.assertEqual(line["queue"], self.queue, line)

    def test_level(self):
        for line in self.life("--log-level", "warn"):
            self.assertRegex(line, rf"^{STAMP} (warn|error) ")

    def test_quiet_under_load(self):
        """A line per event, not per request: a thousand good requests leave a handful of lines."""
        server = self.start_redis()
        daemon = self.start_daemon(server)
        sender = self.producer(server)
        sender.submit_many(texts(1000))
        self.wait_finished(sender)
        self.assertLess(len(daemon.read_log().splitlines()), 30)

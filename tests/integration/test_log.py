"""The log: one line per event, as text or as JSON, and nothing that a request says can forge one."""

import json
import re

from case import SluiceCase
from corpus import texts

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


class Log(SluiceCase):
    def life(self, *flags):
        """The log of a daemon that saw good and bad requests, lost its Redis and was stopped."""
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
        """A refused request, each run of one that fails and dies, one that expires, one whose message was deleted."""
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

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

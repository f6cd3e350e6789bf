"""Unknown fields, such as mistyped ones: the request is answered as without them, the reply names them, and stats count
such requests."""
# ctest-cost: 4

import json
import re

from case import RedisCase


class IgnoredFields(RedisCase):
    def ignored(self, request):
        return self.sender.reply(request).get("ignored", "")

    def test_every_reply_names_them(self):
        """Replies of all kinds: small, large (which bypasses its script), of several texts, refused, retried, dead."""
        daemon = self.make_faulty(self.server, "--backoff-ms", "20", "--max-batch-rows", "1",
                                  faults=["flaky:{kernel}:1", "error:{driver}"])
        daemon.start().wait_ready(self.client)
        sent = {
            self.sender.submit("hello", encoding="f32", priority="high"): "priority",
            self.sender.submit_fields({"inputs": json.dumps([f"text {i}" for i in range(40)]), "expire_in": "5", "normalise": "1"}): "expire_in,normalise",
            self.sender.submit("", expected="bad_request", tekst="hello"): "tekst",
            self.sender.submit("the kernel", Id="7"): "Id",
            self.sender.submit("the driver", max_attempts="1", expected="internal", ttl_s="7"): "ttl_s",
            self.sender.submit("later", delay="50", delai="5"): "delai",
            self.sender.submit("hello, world", **{"x-trace": "1", "x-": "2"}): "",
            self.sender.submit("hello again", meta="ignored"): "",
        }
        self.wait_until(lambda: all(self.sender.finished([request]) for request in sent), "all replies")
        self.assertEqual({request.id: self.ignored(request) for request in sent}, {request.id: names for request, names in sent.items()})
        large = next(request for request, names in sent.items() if names == "expire_in,normalise")
        self.assertGreater(len(self.sender.reply(large)[b"embedding"]), 2048, "it is large enough to bypass the script")
        again = next(request for request, names in sent.items() if names == "Id")
        self.assertEqual(self.sender.reply(again)["attempts"], 2)
        plain = next(request for request, names in sent.items() if names == "")
        self.assertNotIn("ignored", self.sender.reply(plain))
        letter, fields = self.client.xrange(self.sender.key("dead"))[0]
        self.assertEqual((json.loads(fields[b"_info"])["ignored"], fields[b"ttl_s"]), ("ttl_s", b"7"))

        self.wait_until(lambda: json.loads(self.sluice("stats", "--json"))["ignored"] == 6, "a pulse that counts them, each once")
        self.assertIn("\nignored  6 requests had unknown fields, which their replies name\n", self.sluice("stats"))
        self.assertEqual(json.loads(self.sluice("get", large.id))["info"]["ignored"], "expire_in,normalise")
        self.assertIn("answered: done; unknown fields, ignored: expire_in,normalise\n", self.sluice("get", large.id, "--story"))
        self.assertEqual(json.loads(self.sluice("get", large.id, "--story", "--json"))["ignored"], "expire_in,normalise")
        self.assertNotIn("unknown fields", self.sluice("get", plain.id, "--story"))
        self.sluice("dead", "requeue", letter.decode())
        self.wait_until(lambda: json.loads(self.sluice("stats", "--json"))["ignored"] == 7, "the requeued one")
        daemon.stop()
        self.assertIn("ignored_fields=7", next(line for line in daemon.read_log().splitlines() if " drained " in line))

    def test_the_log_has_one_of_many(self):
        daemon = self.start_daemon(self.server)
        first = self.sender.submit("hello", expire_in="5000", priority="1", tenant="acme")
        self.wait_finished(self.sender)
        for i in range(50):
            self.sender.submit(f"text {i}", expire_in="5000")
        self.wait_finished(self.sender)
        daemon.stop()
        lines = [line for line in daemon.read_log().splitlines() if " fields_ignored " in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], rf" info fields_ignored .*entry={re.escape(first.entries[0])} .*"
                                   r"fields=expire_in,priority nearest=expires_in tenant=acme$")

    def test_a_cancel_has_no_reply_to_name_them(self):
        """The reply of a cancelled request does not name them either: the daemon has not read the request."""
        self.start_daemon(self.server)
        parked = self.sender.submit("later", delay="600000", delai="5", expected="cancelled")
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 1, "it to be parked")
        self.client.xadd(self.sender.stream, {"cancel": parked.entries[0], "reason": "none"})
        self.wait_finished(self.sender)
        done = self.sender.submit("hello", encodin="f32")
        self.wait_finished(self.sender)
        self.assertEqual((self.ignored(parked), self.ignored(done)), ("", "encodin"))
        self.wait_until(lambda: json.loads(self.sluice("stats", "--json"))["ignored"] == 1, "a pulse")


if __name__ == "__main__":
    import unittest
    unittest.main()

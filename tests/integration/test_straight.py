"""The straight line: a plain XADD goes in, a reply HASH comes out, equal to `sluice embed`; and how the daemon ends."""
# ctest: threads
# ctest-cost: 5

import json
import os
import re
import signal

from case import SluiceCase
from daemon import SOURCE

EX_TEMPFAIL, EX_NOPERM = 75, 77


class StraightLine(SluiceCase):
    def test_where_the_answer_is(self):
        """Tries each row of the table of streams and reply keys in docs/protocol.md: also by name, by id, and
        cancelled."""
        with open(os.path.join(SOURCE, "docs", "protocol.md"), encoding="utf-8") as page:
            rows = re.findall(r"^\| `(sluice:\{q\}:requests\S*)` \| `(\S+)` \| `(\S+)` \| `(\S+)` \|$", page.read(), re.M)
        self.assertEqual([row[0].partition("}:")[2] for row in rows], ["requests:high", "requests", "requests:low"])
        server = self.start_redis()
        self.start_daemon(server)
        client = server.client()
        for row in rows:
            stream = row[0].replace("{q}", f"{{{self.queue}}}")
            for fields in ({}, {"id": f"mine-{len(stream)}"}, {"delay": "3600000"}):
                entry = client.xadd(stream, {"text": "hello", "notify": "1", **fields}).decode()
                name, reply, wake = (cell.replace("{q}", f"{{{self.queue}}}").replace("<entry>", entry) for cell in row[1:])
                if "id" in fields:
                    reply, wake = (key.replace(name, fields["id"]) for key in (reply, wake))
                if "delay" in fields:
                    client.xadd(f"sluice:{{{self.queue}}}:control", {"cancel": name})
                self.assertEqual(client.blpop([wake], 60), (wake.encode(), name.encode()))
                self.assertEqual(client.hget(reply, "status"), b"cancelled" if "delay" in fields else b"done")
                self.assertEqual(json.loads(client.hget(reply, "info"))["entry"], name)

    def test_into_a_hash_of_the_producers(self):
        """The hash gets the bytes of the reply, small or staged, and keeps its other fields; a failed request writes
        nothing."""
        server = self.start_redis()
        self.start_daemon(server, "--into-keys", "doc:* item:[0-9]", model=self.make_model(hidden=768, layers=1))
        sender, client = self.producer(server), server.client()
        client.hset("doc:1", "title", "kept")
        few = sender.submit("hello", encoding="f32", dims="8", into="doc:1")
        many = sender.submit("hello world", encoding="f16", into="item:7", into_field="vector", normalize="0")
        full = sender.submit("hello there", encoding="f32", into="doc:1", into_field="b")
        bad = [sender.submit_fields({"text": "x", "encoding": "f32", **fields}, expected="bad_request") for fields in (
            {"into": "other:1"}, {"into": "item:77"}, {"into": "sluice:{test}:meta"}, {"into": "doc:1", "dims": "0"})]
        self.wait_finished(sender)
        self.assertEqual(client.hgetall("doc:1"), {b"title": b"kept", b"embedding": sender.reply(few)[b"embedding"],
                                                   b"b": sender.reply(full)[b"embedding"]})
        self.assertEqual(client.hgetall("item:7"), {b"vector": sender.reply(many)[b"embedding"]})
        self.assertEqual([len(client.hget("doc:1", field)) for field in ("embedding", "b")], [32, 3072])
        self.assertEqual(client.keys("other:*") + client.keys("item:77"), [])
        self.assertIn(b"into", sender.reply(bad[0])[b"message"])

    def test_requests_that_waited_before_the_daemon(self):
        server = self.start_redis()
        producer = self.producer(server)
        texts = [f"the {i} queue of {'world ' * (i % 40)}" for i in range(300)]
        producer.submit_many(texts, encoding="f32")
        self.start_daemon(server)
        self.wait_finished(producer)
        self.assert_clean(server)

    def test_more_batches_than_threads(self):
        """The worker forms batches ahead: more are in flight than compute threads run."""
        server = self.start_redis()
        producer = self.producer(server)
        producer.submit_many([f"blue {i} stream" for i in range(400)], encoding="f32")
        self.start_daemon(server, "--max-batch-rows", "2", "--threads", "1")
        self.wait_finished(producer)
        self.assert_clean(server)

    def test_second_sigterm_leaves_the_rest_to_others(self):
        server = self.start_redis()
        producer = self.producer(server)
        daemon = self.start_daemon(server, "--max-batch-rows", "1", "--threads", "1")
        producer.submit_many([f"green {i} vector" for i in range(600)], encoding="f32")
        self.wait_until(lambda: producer.client.exists(*(producer.key("reply:" + id) for id in producer.journal.requests)),
                        "the first reply", timeout=30)
        daemon.signal(signal.SIGTERM)
        daemon.signal(signal.SIGTERM)
        code = daemon.wait_exit()
        self.assertIn(code, (0, EX_TEMPFAIL))
        self.start_daemon(server)
        self.wait_finished(producer)
        self.assert_clean(server)

    def test_sigterm_finishes_what_is_there(self):
        server = self.start_redis()
        producer = self.producer(server)
        daemon = self.start_daemon(server)
        producer.submit_many([f"red {i} green" for i in range(200)], encoding="f32")
        self.wait_until(lambda: producer.client.exists(*(producer.key("reply:" + id) for id in producer.journal.requests)),
                        "the first reply", timeout=30)
        self.assertEqual(daemon.stop(), 0)
        self.assertIn(" drained ", daemon.read_log())
        group = server.client().xinfo_consumers(f"sluice:{{{self.queue}}}:requests", "sluice")
        self.assertLessEqual({consumer["name"] for consumer in group if consumer["pending"]}, {b"released"})
        self.assertIsNone(daemon.alive_key(server.client()))
        self.start_daemon(server)
        self.wait_finished(producer)
        self.assert_clean(server)

    def test_interrupt_before_redis_is_there(self):
        daemon = self.make_daemon(None, "--redis", self.path("none"), address=None)
        daemon.start()
        self.wait_until(lambda: "redis_unavailable" in daemon.read_log(), "the first attempt", timeout=30)
        daemon.signal(signal.SIGINT)
        self.assertEqual(daemon.wait_exit(), 0)

    def test_redis_comes_and_goes(self):
        server = self.start_redis(aof="always")
        daemon = self.start_daemon(server)
        # The alive key is set a little before; a connection that ends before the daemon is ready is not "lost".
        self.wait_until(lambda: " ready " in daemon.read_log(), "the line that says ready", timeout=30)
        server.kill()
        self.wait_until(lambda: "redis_lost" in daemon.read_log(), "the loss to be seen", timeout=30)
        server.start()
        producer = self.producer(server)
        producer.submit_many(["hello world", "the red queue"])
        self.wait_finished(producer)
        self.assert_clean(server)
        self.assertEqual(daemon.read_log().count(" ready "), 1)

    def test_log_json(self):
        server = self.start_redis()
        daemon = self.start_daemon(server, "--log", "json", "--log-level", "debug")
        self.wait_until(lambda: '"ready"' in daemon.read_log(), "the line that says ready", timeout=30)
        self.assertEqual(daemon.stop(), 0)
        events = [json.loads(line)["event"] for line in daemon.read_log().splitlines()]
        for name in ("start", "ready", "draining", "drained"):
            self.assertIn(name, events)


class Passwords(SluiceCase):
    def secured_redis(self):
        server = self.start_redis(options=["--requirepass", "hunter2"])
        server.password = "hunter2"
        return server

    def test_refused_login_exits_77(self):
        server = self.secured_redis()
        daemon = self.make_daemon(server).start()
        self.assertEqual(daemon.wait_exit(), EX_NOPERM)
        daemon = self.make_daemon(server, environment={"SLUICE_REDIS_PASSWORD": "wrong"}).start()
        self.assertEqual(daemon.wait_exit(), EX_NOPERM)
        self.assertNotIn("wrong", daemon.read_log())

    def test_password_from_a_file(self):
        server = self.secured_redis()
        file = self.write("password", "hunter2\n")
        daemon = self.start_daemon(server, "--redis-password-file", file)
        result = self.run_sluice("submit", "--redis", server.socket, "--queue", self.queue, "--redis-password-file", file,
                                 "--wait", "hello")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("hunter2", daemon.read_log())

    def test_password_in_the_url_is_wiped_from_ps(self):
        server = self.secured_redis()
        daemon = self.make_daemon(server, "--redis", f"redis+unix://:hunter2@{server.socket}", address=None).start()
        daemon.wait_ready(server.client())
        with open(f"/proc/{daemon.pid}/cmdline", "rb") as file:
            self.assertNotIn(b"hunter2", file.read())
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("hunter2", daemon.read_log())

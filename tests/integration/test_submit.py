"""The commands of a producer: `sluice submit` and `sluice get`; and errors of `sluice serve`."""

import json
import struct

from case import RedisCase
from corpus import texts
from vectors import decode_f32

USAGE, DATAERR, NOINPUT, UNAVAILABLE, TEMPFAIL = 64, 65, 66, 69, 75


class Submit(RedisCase):
    def sluice(self, *arguments, code=0, **options):
        result = self.run_sluice(*arguments, "--redis", self.server.socket, "--queue", self.queue, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def fails(self, code, *arguments, says, **options):
        result = self.sluice(*arguments, code=code, **options)
        self.assertIn(says, result.stderr.decode())
        return result

    def test_submit_prints_ids_and_get_the_reply(self):
        """Texts come from operands, a file and standard input."""
        batch = texts(120, seed=4)
        lines = "".join(text + "\n" for text in batch).encode()
        named = [self.sluice("submit", *batch[:2]), self.sluice("submit", "--input", "-", input=lines),
                 self.sluice("submit", "--input", self.write("texts", lines))]
        ids = [result.stdout.decode().split() for result in named]
        self.assertEqual([len(some) for some in ids], [2, 120, 120])
        self.assertEqual(self.client.xlen(self.sender.stream), 242)
        self.fails(UNAVAILABLE, "get", ids[0][0], says=f"no reply for \"{ids[0][0]}\"")
        self.start_daemon(self.server)
        local = self.reference()
        local.learn(batch)
        for some in ids:
            for id, text in zip(some, batch):
                key = self.sender.key("reply:" + id)
                self.wait_until(lambda key=key: self.client.hget(key, "status") == b"done", "the reply")
                self.assertEqual(decode_f32("json", self.client.hget(key, "embedding")), local(text))
        reply = json.loads(self.sluice("get", ids[0][1]).stdout)
        self.assertEqual((reply["id"], reply["status"], reply["info"]["dim"]), (ids[0][1], "done", 64))
        self.assertEqual(struct.pack("<64f", *reply["embedding"]), local(batch[1]))

    def test_wait_prints_replies_in_order(self):
        """Error replies are printed, too, and change the exit code."""
        self.start_daemon(self.server)
        lines = self.sluice("submit", "--wait", "--encoding", "f32", input=b"hello\n\nthe red queue\n" * 200, code=DATAERR).stdout.splitlines()
        replies = [json.loads(line) for line in lines]
        self.assertEqual(len(replies), 600)
        self.assertEqual({(reply["status"], reply["code"]) for reply in replies[1::3]}, {("error", "bad_request")})
        for text, some in (("hello", replies[0::3]), ("the red queue", replies[2::3])):
            self.assertEqual({struct.pack("<64f", *reply["embedding"]) for reply in some}, {self.reference()(text)})
        self.assertEqual(self.client.keys(self.sender.key("wake:*")), [])

    def test_own_id_ttl_and_encoding(self):
        self.start_daemon(self.server)
        reply = json.loads(self.sluice("submit", "--wait", "--id", "order-42", "--ttl", "50", "--encoding", "f32", "hello world").stdout)
        self.assertEqual(reply["id"], "order-42")
        key = self.sender.key("reply:order-42")
        self.assertEqual(self.client.hget(key, "embedding"), self.reference()("hello world"))
        self.assertLessEqual(self.client.pttl(key), 50_000)

    def test_wait_is_not_told_of_an_earlier_request(self):
        """When an id is used again, the token and the reply of the first request still exist."""
        daemon = self.start_daemon(self.server)
        self.client.xadd(self.sender.stream, {"id": "mine", "text": "the first", "notify": "1"})
        self.wait_until(lambda: self.client.exists(self.sender.key("wake:mine")), "the first token")
        out = self.sluice("submit", "--wait", "--id", "mine", "the second").stdout
        self.assertEqual(struct.pack("<64f", *json.loads(out)["embedding"]), self.reference()("the second"))
        daemon.stop()
        self.fails(TEMPFAIL, "submit", "--wait", "--timeout-s", "1", "--id", "mine", "third", says="no reply for mine")

    def test_wait_gives_up(self):
        self.fails(TEMPFAIL, "submit", "--wait", "--timeout-s", "1", "hello", says="is a daemon running on queue test, neither quiet nor paused?")

    def test_usage(self):
        for arguments in (["submit", "--id", "a", "x", "y"], ["submit", "--input", "f", "x"], ["get"], ["get", "a", "b"]):
            self.sluice(*arguments, code=USAGE)
        self.fails(DATAERR, "submit", "--id", "a", says="--id names one request", input=b"x\ny\n")
        bad = self.fails(DATAERR, "submit", says="standard input line 2: not UTF-8", input=b"fine\n\xff\n")
        self.assertEqual(len(bad.stdout.splitlines()), 1)

    def test_redis_is_not_there(self):
        for command in (["submit", "hello"], ["get", "1-1"]):
            result = self.run_sluice(*command, "--redis", self.path("nobody"))
            self.assertEqual(result.returncode, UNAVAILABLE)
            self.assertIn("nobody", result.stderr.decode())

    def test_serve_errors(self):
        model = self.make_model()
        for code, says, *flags in ((NOINPUT, "absent", "--model", self.path("absent"), "--redis", self.server.socket),
                                   (DATAERR, "redis://", "--model", model, "--redis", "http://example"),
                                   (DATAERR, "tpu", "--model", model, "--redis", self.server.socket, "--backend", "tpu")):
            result = self.run_sluice("serve", *flags)
            self.assertEqual((result.returncode, result.stdout), (code, b""), result.stderr)
            self.assertIn(says, result.stderr.decode())

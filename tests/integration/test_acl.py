"""The least-privilege users of config/acl: what they may is enough for everything, and each right is needed."""

import os
import re

import redis

from case import SluiceCase
from daemon import SOURCE

CONFIG, NOPERM = 78, 77
ROLES = ("worker", "producer", "operator")


def rules(role, queue):
    """The words of a role's file behind the user's name, for a queue; selectors stay whole."""
    with open(os.path.join(SOURCE, "config", "acl", role + ".acl"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert len(lines) == 1, "an ACL file of Redis has one line for a user"
    words = re.findall(r"\([^)]*\)|\S+", lines[0].replace("{default}", "{" + queue + "}"))
    assert words[:2] == ["user", "sluice-" + role]
    return words[2:]


def without_each(words):
    """(right, the words without it) for each command and each key pattern, inside selectors too."""
    for at, word in enumerate(words):
        if word.startswith("("):
            for right, rest in without_each(word[1:-1].split()):
                yield right, words[:at] + ["(" + " ".join(rest) + ")"] + words[at + 1:]
        elif word.startswith("+") or "~" in word:
            yield word, words[:at] + words[at + 1:]


class Acl(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_redis()
        self.client = self.server.client()
        self.assertEqual(self.run_sluice("version").returncode, 0)

    def make_user(self, role, words=None):
        self.client.execute_command("ACL", "SETUSER", "sluice-" + role, "reset", *(words or rules(role, self.queue)), ">pw")

    def doctor(self, role, code):
        result = self.run_sluice("doctor", "--redis", self.server.socket, "--queue", self.queue, "--model", self.make_model(),
                                 "--user", "sluice-" + role, "--role", role)
        self.assertEqual(result.returncode, code, result.stdout.decode() + result.stderr.decode())
        return result.stdout.decode()

    def each_right_is_needed(self, role):
        self.make_user(role)
        self.assertIn(f"ok    rights      sluice-{role} has every right", self.doctor(role, 0))
        seen = 0
        for right, words in without_each(rules(role, self.queue)):
            self.make_user(role, words)
            with self.subTest(right=right, words=words):
                findings = [line for line in self.doctor(role, CONFIG).splitlines() if line.startswith("fail  rights")]
                if right.startswith("+"):
                    named = " may not " + right[1:].replace("|", " ").upper()
                else:
                    named = right.split("~")[1].replace("*", "")
                self.assertTrue(any(named in finding for finding in findings), f"{right}: {findings}")
            seen += 1
        self.assertGreater(seen, 10)

    def test_each_right_of_the_worker_is_needed(self):
        self.each_right_is_needed("worker")

    def test_each_right_of_the_producer_is_needed(self):
        self.each_right_is_needed("producer")

    def test_each_right_of_the_operator_is_needed(self):
        self.each_right_is_needed("operator")

    def test_the_files_load_as_they_are(self):
        """Redis takes the three lines as its aclfile; nobody can log in until a password is set."""
        with open(self.path("users.acl"), "w", encoding="utf-8") as out:
            for role in ROLES:
                with open(os.path.join(SOURCE, "config", "acl", role + ".acl"), encoding="utf-8") as file:
                    out.write(file.read())
        server = self.start_redis("second", options=("--aclfile", self.path("users.acl")))
        self.assertLessEqual({"sluice-" + role for role in ROLES}, set(server.client().acl_users()))
        for role in ROLES:
            with self.assertRaisesRegex(redis.exceptions.ResponseError, "WRONGPASS"):
                redis.Redis(unix_socket_path=server.socket, username="sluice-" + role, password="").ping()

    def test_a_worker_without_a_right_ends_and_names_it(self):
        for right in ("+xreadgroup", "+evalsha", "+script|load", "+info"):
            self.make_user("worker", [word for word in rules("worker", self.queue) if word != right])
            daemon = self.make_daemon(self.server, address=f"redis+unix://sluice-worker@{self.server.socket}",
                                      environment={"SLUICE_REDIS_PASSWORD": "pw"}).start()
            self.assertEqual(daemon.wait_exit(), NOPERM, right)
            self.assertIn(right[1:], daemon.read_log().lower())

    def test_producers_cannot_destroy_a_queue(self):
        self.make_user("producer")
        producer = redis.Redis(unix_socket_path=self.server.socket, username="sluice-producer", password="pw")
        stream = "sluice:{test}:requests"
        producer.xadd(stream, {"text": "x"})
        for command in (("SET", stream, "x"), ("DEL", stream), ("UNLINK", stream), ("XTRIM", stream, "MAXLEN", "0"),
                        ("XDEL", stream, "1-0"), ("XRANGE", stream, "-", "+"), ("HSET", "sluice:{test}:reply:1-0", "a", "b"),
                        ("FLUSHALL",), ("CONFIG", "GET", "*"), ("EVAL", "return 1", "0"), ("KEYS", "*"), ("XADD", "elsewhere", "*", "a", "b"),
                        ("HGETALL", "sluice:{test}:workers"), ("XADD", "sluice:{other}:requests", "*", "a", "b")):
            with self.assertRaises(redis.exceptions.NoPermissionError, msg=command):
                producer.execute_command(*command)

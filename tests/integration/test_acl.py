"""The least-privilege users of config/acl: their rights are enough for everything, and each right is needed."""
# ctest-cost: 15

import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess

import process
import redis

from acl import ROLES, make_user, rules
from case import SluiceCase
from corpus import texts
from daemon import BINARY, SOURCE

WORD = "~"  # the faulty engine fails at this word; no text of the corpus contains it

CONFIG, NOPERM, UNAVAILABLE, DATAERR = 78, 77, 69, 65
TOGETHER = 8  # daemons at a time
LOGIN = {"SLUICE_REDIS_PASSWORD": "pw"}  # the same for every user


def without_each(words):
    """Yields (right, the words without it) for each command and each key pattern, also inside selectors."""
    for at, word in enumerate(words):
        if word.startswith("("):
            for right, rest in without_each(word[1:-1].split()):
                yield right, words[:at] + ["(" + " ".join(rest) + ")"] + words[at + 1:]
        elif word.startswith("+") or "~" in word:
            yield word, words[:at] + words[at + 1:]


class Acl(SluiceCase):
    def setUp(self):
        super().setUp()
        users = self.write("admin.acl", "user default off ~* &* +@all\nuser admin on >pw ~* &* +@all\n")
        self.server = self.new_redis(options=("--aclfile", users))
        self.server.user, self.server.password = "admin", "pw"
        self.server.start()
        self.client = self.server.client()

    def make_user(self, role, words=None):
        make_user(self.client, role, self.queue, words)

    def doctor(self, role, code):
        result = self.run_sluice("doctor", "--redis", f"redis+unix://admin@{self.server.socket}", "--queue", self.queue, "--model",
                                 self.make_model(), "--user", "sluice-" + role, "--role", role, environment=LOGIN)
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
                server.client(username="sluice-" + role, password="").ping()

    def make_users(self, *queues, options=()):
        """Runs the script with tools that record the arguments they were called with."""
        tools = self.path("tools")
        os.makedirs(tools, exist_ok=True)
        for tool in ("sed", "sha256sum", "dirname", "cat", "head", "tr"):
            path = self.write(f"tools/{tool}", f'#!/bin/sh\necho "$0 $*" >> {self.path("called")}\nexec {shutil.which(tool)} "$@"\n')
            os.chmod(path, 0o755)
        return subprocess.run([os.path.join(SOURCE, "config", "make-users.sh"), *options, self.directory, *queues], capture_output=True,
                              check=False, timeout=60, env={**os.environ, "PATH": tools + ":" + os.environ["PATH"]})

    def test_users_with_passwords(self):
        """config/make-users.sh: each user logs in with its own password and with no other; a queue's users stay in
        their queue."""
        passwords = {name: f"{name} of 'odd' >letters #\"" for name in ("mail_worker", "mail_producer", "mail_operator", *ROLES, "admin")}
        for name, password in passwords.items():
            self.write(name + "_password", password + ("\r\nsecond line\n" if name == "worker" else "\n" if name != "producer" else ""))
        printed = self.make_users("default", "mail").stdout
        self.assertNotIn(b"odd", printed)
        with open(self.path("called"), encoding="utf-8") as called:
            arguments = called.read()
        self.assertIn("sha256sum", arguments)
        self.assertNotIn("odd", arguments)
        server = self.new_redis("second", options=("--aclfile", self.write("users.acl", printed)))
        server.user, server.password = "admin", passwords["admin"]
        admin = server.start().client()
        self.assertEqual(len(admin.acl_users()), 8)
        with self.assertRaisesRegex(redis.exceptions.AuthenticationError, "Authentication required"):
            server.client(username=None, password=None).ping()
        for name, password in passwords.items():
            user = "-".join(("sluice", *name.split("_")[::-1])) if name != "admin" else name
            for wrong in {*passwords.values(), ""} - {password}:
                with self.assertRaisesRegex(redis.exceptions.ResponseError, "WRONGPASS|invalid username-password"):
                    server.client(username=user, password=wrong).ping()
            client = server.client(username=user, password=password)
            client.execute_command("SELECT", "0")
            if "producer" in name:
                own, other = ("mail", "default") if "mail" in name else ("default", "mail")
                client.xadd(f"sluice:{{{own}}}:requests", {"text": "x"})
                with self.assertRaises(redis.exceptions.NoPermissionError):
                    client.xadd(f"sluice:{{{other}}}:requests", {"text": "x"})

    def test_users_of_other_programs(self):
        """The example of docs/redis.md, in SECRETS/own.acl: it gets at its own keys, not at a queue's, and cannot empty Redis."""
        for name in ROLES:
            self.write(name + "_password", "pw")
        with open(os.path.join(SOURCE, "docs", "redis.md"), encoding="utf-8") as page:
            example, = re.findall(r"^user shop .*\n", page.read(), re.MULTILINE)
        self.write("own.acl", example.replace("PASSWORD", "pw"))
        server = self.new_redis("second", options=("--aclfile", self.write("users.acl", self.make_users().stdout)))
        server.user, server.password = "sluice-producer", "pw"
        producer, shop = server.start().client(), server.client(username="shop", password="pw")
        producer.xadd("sluice:{default}:requests", {"text": "x"})
        shop.set("shop:cart", "x")
        shop.pipeline().hset("shop:user", "name", "x").expire("shop:user", 60).execute()
        for refused in (lambda: shop.xlen("sluice:{default}:requests"), shop.flushall, shop.flushdb, lambda: producer.get("shop:cart")):
            with self.assertRaises(redis.exceptions.NoPermissionError):
                refused()

    def test_rights_for_the_dashboard(self):
        """make-users.sh --dashboard: the worker's user keeps its rights and gets those that the admin API needs; in
        other queues it may count entries, but read and change nothing."""
        for name in (*ROLES, "admin"):
            self.write(name + "_password", "pw")
        users = {option: self.make_users(options=option) for option in ((), ("--dashboard",))}
        plain, more = (result.stdout.decode().splitlines() for result in users.values())
        changed = [(was, now) for was, now in zip(plain, more, strict=True) if was != now]
        self.assertEqual([(was.split()[1], now.startswith(was + " ")) for was, now in changed], [("sluice-worker", True)])
        server = self.new_redis("second", options=("--aclfile", self.write("users.acl", users[("--dashboard",)].stdout)))
        server.user, server.password = "admin", "pw"
        admin = server.start().client()
        for name, text in (("default", "mine"), ("mail", "somebody's")):
            admin.xadd(f"sluice:{{{name}}}:requests", {"text": text})
            admin.xgroup_create(f"sluice:{{{name}}}:requests", "sluice", "0")
        client = server.client(username="sluice-worker", password="pw")
        key = "sluice:{%s}:%s"
        self.assertTrue(client.set(key % ("default", "paused"), 1) and client.delete(key % ("default", "paused")))
        self.assertIsNone(client.zscore(key % ("default", "later"), "1-0"))
        self.assertEqual(set(client.scan_iter("sluice:*")), {b"sluice:{default}:requests", b"sluice:{mail}:requests"})
        self.assertEqual(client.xlen(key % ("mail", "requests")), 1)
        for words in (("XRANGE", "requests", "-", "+"), ("SET", "paused", "1"), ("DEL", "paused"), ("XADD", "requests", "*", "text", "x"),
                      ("HGETALL", "reply:1-0"), ("ZSCORE", "later", "x"), ("XRANGE", "dead", "-", "+"), ("HSET", "meta", "a", "b")):
            with self.assertRaises(redis.exceptions.NoPermissionError, msg=words):
                client.execute_command(words[0], key % ("mail", words[1]), *words[2:])

    def test_a_restart_keeps_what_was_done(self):
        """Redis replays its append-only file with the rights of the user `default`, even if that user is disabled: if
        they do not allow what scripts wrote, all of it is gone after a restart. The doctor reports this beforehand."""
        passwords = dict.fromkeys((*ROLES, "admin"), "pw")
        for name, password in passwords.items():
            self.write(name + "_password", password)
        users = self.make_users().stdout.replace(b"{default}", f"{{{self.queue}}}".encode())
        server = self.new_redis("second", aof="everysec", options=("--aclfile", self.write("users.acl", users)))
        server.user, server.password = "admin", "pw"
        client = server.start().client()
        address = f"redis+unix://sluice-worker@{server.socket}"
        daemon = self.make_daemon(server, address=address, environment=LOGIN).start().wait_ready(client)
        stream = f"sluice:{{{self.queue}}}:requests"
        names = [client.xadd(stream, {"text": text}).decode() for text in texts(30)]
        self.wait_until(lambda: client.xlen(stream) == 0, "all to be answered")
        daemon.stop()

        def replies():
            return {name: client.hgetall(f"sluice:{{{self.queue}}}:reply:{name}") for name in names}

        def doctor():
            result = self.run_sluice("doctor", "--redis", f"redis+unix://admin@{server.socket}", "--queue", self.queue, "--model",
                                     self.make_model(), "--user", "sluice-worker", environment=LOGIN)
            return result.stdout.decode()

        before = replies()
        self.assertIn("ok    replay ", doctor())
        server.stop()
        server.start()
        self.assertNotIn("NOPERM", server.read_log())
        self.assertEqual((replies(), client.xlen(stream)), (before, 0))
        client.execute_command("ACL", "SETUSER", "default", "-@all", "resetkeys")
        self.assertIn("fail  replay ", doctor())

    def test_one_login_for_two_queues(self):
        """make-users.sh with queues joined by a comma: a daemon for both logs in, and each role has all its rights in
        both."""
        for name in (*ROLES, "admin"):
            self.write(name + "_password", "pw")
        users = self.make_users("mail,default", "other")
        self.assertEqual((users.returncode, users.stdout), (CONFIG, b""))  # the passwords of `mail` are missing
        server = self.new_redis("second", options=("--aclfile", self.write("users.acl", self.make_users("default,mail").stdout)))
        server.user, server.password = "admin", "pw"
        server.start()

        def address(role):
            return f"redis+unix://{role}@{server.socket}"
        settings = self.write("two.json", json.dumps({"queues": [{"queue": "default"}, {"queue": "mail"}]}))
        daemon = self.make_daemon(server, address=address("sluice-worker"), environment={**LOGIN, "SLUICE_CONFIG": settings})
        at = daemon.argv.index("--queue")
        del daemon.argv[at:at + 2]
        daemon.start()
        producer = server.client(username="sluice-producer", password="pw")
        for queue in ("default", "mail"):
            entry = producer.xadd(f"sluice:{{{queue}}}:requests", {"text": "x", "notify": "1"}).decode()
            self.assertIsNotNone(producer.blpop([f"sluice:{{{queue}}}:wake:{entry}"], timeout=60), daemon.read_log())
            self.assertEqual(producer.hget(f"sluice:{{{queue}}}:reply:{entry}", "status"), b"done")
        with self.assertRaises(redis.exceptions.NoPermissionError):
            producer.xadd("sluice:{other}:requests", {"text": "x"})
        for role in ROLES:
            result = self.run_sluice("doctor", "--redis", address("admin"), "--config", settings, "--model", self.make_model(),
                                     "--user", "sluice-" + role, "--role", role, environment=LOGIN)
            text = result.stdout.decode()
            self.assertEqual((result.returncode, text.count(f"ok    rights      sluice-{role} has every right")), (0, 2), text)

    def test_the_users_of_the_last_time(self):
        """Without queues and options they are those of the last time, so that a file made anew lacks no user and no
        right."""
        for name in (*ROLES, "mail_worker", "mail_producer", "mail_operator"):
            self.write(name + "_password", "pw")
        default = self.make_users()
        self.assertFalse(os.path.exists(self.path("arguments")), "there is nothing to remember")
        for queues, options, words in ((("default", "mail"), (), "default mail"), (("default,mail",), ("--dashboard",), "--dashboard default,mail"),
                                       (("default",), (), "default")):
            made, again = self.make_users(*queues, options=options), self.make_users()
            self.assertEqual((made.returncode, made.stderr), (0, b""))
            self.assertEqual((again.stdout, again.stderr.decode()), (made.stdout, f"make-users: as the last time: {words}\n"))
        self.assertEqual(made.stdout, default.stdout)
        self.make_users("default", "mail")
        self.assertEqual(self.make_users("nobody").returncode, CONFIG)
        self.assertEqual(self.make_users().stdout.count(b"user sluice-"), 6, "a run that failed was remembered")

    def test_arguments_of_make_users(self):
        """Wrong arguments print the usage, or that a folder is missing, and no users."""
        for arguments, code, words in (((), 64, "usage: make-users.sh "), (("--dashbord", self.directory), 64, "usage"), (("--dashboard",), 64, "usage"),
                                       ((self.directory, "--dashboard"), 64, "usage"), ((self.path("nowhere"),), 66, "no folder"), (("--help",), 0, "")):
            done = subprocess.run([os.path.join(SOURCE, "config", "make-users.sh"), *arguments], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(done.returncode, code, arguments)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout.startswith("usage: make-users.sh"), code == 0, arguments)

    def test_no_users_without_passwords(self):
        for name in ROLES:
            self.write(name + "_password", "pw")
        self.assertEqual((self.make_users().returncode, self.make_users().stderr), (0, b""))
        for content in ("", "\n", "\r\n", "\nsecond line", None):
            os.unlink(self.path("worker_password")) if content is None else self.write("worker_password", content)
            result = self.make_users()
            self.assertEqual((result.returncode, result.stdout), (CONFIG, b""), content)
            self.assertIn(b"worker_password", result.stderr)

    def test_a_worker_without_a_right_ends_and_names_it(self):
        """For each right, it ends at its start, before it has touched anything. A right missing in the middle of a
        script would leave that script's work half done."""
        sender = self.producer(self.server)
        sender.submit("waits for a worker that may", encoding="f32")
        before, lacking = self.client.keys(), list(without_each(rules("worker", self.queue)))
        self.assertGreater(len(lacking), 60)
        for start in range(0, len(lacking), TOGETHER):
            runs = [(right, self.start_worker(f"without-{start + at}", words))
                    for at, (right, words) in enumerate(lacking[start:start + TOGETHER])]
            for right, daemon in runs:
                with self.subTest(right=right):
                    self.assertEqual(daemon.wait_exit(), NOPERM)
                    refusal = next(line for line in daemon.read_log().splitlines() if " error redis_refuses " in line)
                    if right.startswith("+"):
                        self.assertIn(right[1:].upper().replace("|", " "), refusal.upper().replace("|", " "))
                    else:
                        key = right.split("~")[1]
                        self.assertRegex(refusal, re.escape(key[:-1]) if key.endswith("*") else re.escape(key) + r"(?!\w|:\w)")
        self.assertEqual((self.client.keys(), self.client.xinfo_groups(sender.stream)), (before, []))
        self.start_worker("with-all", rules("worker", self.queue))
        self.finish(self.server, sender)

    def start_worker(self, user, words):
        self.client.execute_command("ACL", "SETUSER", user, "reset", *words, ">pw")
        return self.make_daemon(self.server, address=f"redis+unix://{user}@{self.server.socket}",
                                environment=LOGIN).start()

    def test_a_vector_goes_where_a_selector_allows(self):
        """The selector of docs/redis.md is enough, and a key outside it fails only its own request."""
        self.make_user("worker", [*rules("worker", self.queue), "(%W~doc:* +hset)"])
        self.start_daemon(self.server, "--into-keys", "*", address=f"redis+unix://sluice-worker@{self.server.socket}", environment=LOGIN)
        sender = self.producer(self.server)
        requests = [sender.submit(text, encoding="f32", into=key) for key, text in (("doc:1", "hello"), ("other", "world"))]
        self.wait_finished(sender, requests)
        good, bad = map(sender.reply, requests)
        self.assertEqual((self.client.hget("doc:1", "embedding"), self.client.exists("other")), (good[b"embedding"], 0))
        self.assertEqual(("into_error" in good, bad[b"status"], "access" in bad["into_error"]), (False, b"done", True))

    def test_producers_cannot_destroy_a_queue(self):
        self.make_user("producer")
        producer = self.server.client(username="sluice-producer", password="pw")
        stream = "sluice:{test}:requests"
        producer.xadd(stream, {"text": "x"})
        for command in (("SET", stream, "x"), ("DEL", stream), ("UNLINK", stream), ("XTRIM", stream, "MAXLEN", "0"),
                        ("XDEL", stream, "1-0"), ("XRANGE", stream, "-", "+"), ("HSET", "sluice:{test}:reply:1-0", "a", "b"),
                        ("FLUSHALL",), ("CONFIG", "GET", "*"), ("EVAL", "return 1", "0"), ("KEYS", "*"), ("XADD", "elsewhere", "*", "a", "b"),
                        ("HGETALL", "sluice:{test}:workers"), ("XADD", "sluice:{other}:requests", "*", "a", "b")):
            with self.assertRaises(redis.exceptions.NoPermissionError, msg=command):
                producer.execute_command(*command)

    def test_a_worker_with_another_login_names_the_one_it_needs(self):
        for role in ("operator", "producer"):
            self.make_user(role)
            daemon = self.make_daemon(self.server, address=f"redis+unix://sluice-{role}@{self.server.socket}", environment=LOGIN).start()
            self.assertEqual(daemon.wait_exit(), NOPERM)
            self.assertRegex(daemon.read_log(), r"redis_refuses .*NOPERM.* \(a worker needs the worker's login: acl/worker.acl\)")

    def test_commands_of_an_operator_name_the_login_they_need(self):
        for role, command, refused in (("producer", "stats", "XLEN"), ("worker", "pause", "SET")):
            self.make_user(role)
            result = self.run_sluice(command, "--redis", f"redis+unix://sluice-{role}@{self.server.socket}", "--queue", self.queue,
                                     environment=LOGIN)
            self.assertEqual(result.returncode, NOPERM)
            self.assertRegex(result.stderr.decode(), rf"{refused}: .*NOPERM.*needs the operator's login for queue test: acl/operator.acl; or is that name mistyped\?\)\n$")

    def test_what_rights_cannot_keep_a_producer_from(self):
        """A queue's producers must trust each other: config/acl/producer.acl allows these actions, docs/redis.md says so,
        and a producer of another queue can do none of them."""
        self.make_user("producer")
        self.client.execute_command("ACL", "SETUSER", "stranger", "reset", *rules("producer", "other"), ">pw")
        producer = self.server.client(username="sluice-producer", password="pw")
        stranger = self.server.client(username="stranger", password="pw")
        stream, reply, wake = ("sluice:{test}:" + name for name in ("requests", "reply:", "wake:"))
        honest = producer.xadd(stream, {"text": "somebody else's"}).decode()
        named = producer.xadd(stream, {"id": "order-1", "text": "the honest text"}).decode()
        evil = {"trim": lambda who: who.xadd(stream, {"text": "mine"}, maxlen=1, approximate=False),
                "cancel": lambda who: who.xadd(stream, {"cancel": honest}),
                "overtake": lambda who: who.xadd(stream, {"id": "order-1", "text": "another text", "encoding": "f32"}),
                "take a wake token": lambda who: who.blpop([wake + "waiter"], 1),
                "read": lambda who: who.hgetall(reply + "reader"),
                "delete": lambda who: who.unlink(reply + "reader")}
        for act in evil.values():
            with self.assertRaises(redis.exceptions.NoPermissionError):
                act(stranger)
        evil["cancel"](producer)
        newer = evil["overtake"](producer).decode()
        self.make_user("worker")
        daemon = self.start_daemon(self.server, address=f"redis+unix://sluice-worker@{self.server.socket}", environment=LOGIN)
        self.wait_until(lambda: self.client.xlen(stream) == 0, "everything to be answered")
        self.assertEqual(producer.hget(reply + honest, "status"), b"cancelled")
        self.assertEqual((json.loads(producer.hget(reply + "order-1", "info"))["entry"], producer.exists(reply + named)), (newer, 0))
        waiter = producer.xadd(stream, {"id": "waiter", "text": "x", "notify": "1"}).decode()
        self.assertEqual(evil["take a wake token"](producer)[1].decode(), waiter)
        producer.xadd(stream, {"id": "reader", "text": "a secret"})
        self.wait_until(lambda: producer.exists(reply + "reader"), "the reply")
        self.assertEqual(evil["read"](producer)[b"status"], b"done")
        self.assertEqual(evil["delete"](producer), 1)
        daemon.stop()
        lost = producer.xadd(stream, {"text": "accepted, and gone"}).decode()
        evil["trim"](producer)
        self.assertEqual(self.client.xrange(stream, lost, lost), [])

    def test_what_the_worker_may_is_in_its_code(self):
        """Each command that the file grants is one that a script, the Redis layer or the admin API sends."""
        code = ""
        files = ("lua/*.lua", "lua/lib/*.lua", "src/redis/*.c", "src/operator/*.c")
        for path in (path for pattern in files for path in glob.glob(os.path.join(SOURCE, pattern))):
            if path.endswith("rights.c"):
                continue  # lists the rights, and sends nothing
            with open(path, encoding="utf-8") as file:
                code += file.read()
        for word in rules("worker", self.queue):
            if word.startswith("+"):
                for part in word[1:].upper().split("|"):
                    self.assertRegex(code, rf"[\"']{part}[\"']", word)


# What an operator types: the README's lines, in which ID is NAME, then these. LETTER, NAME and WORKER stand for existing ones.
README = os.path.join(SOURCE, "README.md")
TYPED = ("resume", "submit hello", "submit --wait hello", "submit --task generate --stream hello", "get NAME", "get order-42", "get order-42 --story", "get ANSWERED", "get ANSWERED --story",
         "cancel order-42", "stats --json", "workers check", "workers quiet WORKER", "workers resume WORKER", "dead show LETTER",
         "dead requeue LETTER", "dead delete OTHER", "dead purge --all", "caps", "pin", "pin --precision any", "keys create x", "keys list", "keys revoke x", "pause")
# Commands with a worker's login, a producer's (gateway, embed --redis, batch) or their own Redis (bench), and those that only read settings.
OTHERS = {"serve", "gateway", "embed", "batch", "plan", "config", "bench e2e"}
# Commands that MONITOR does not show, and PING, which only people send.
UNSEEN = {"CONFIG GET", "ACL DRYRUN", "PING"}


def table_of(letter):
    """The commands of a role in src/redis/rights.c, as `name key`."""
    with open(os.path.join(SOURCE, "src", "redis", "rights.c"), encoding="utf-8") as file:
        rows = re.findall(r'^    \{([WPO |]+), "(.*?)"\},', file.read(), re.MULTILINE)
    return {spelled(row.replace("@", "sluice:{test}:").split()) for letters, row in rows if letter in letters}


def spelled(words):
    """`name key` of a command: its name, with that of a subcommand, and the queue's key, any reply being `reply:x`."""
    name = words[0].upper()
    if name in ("XINFO", "CONFIG", "ACL", "CLIENT", "SCRIPT", "MEMORY"):
        name += " " + words[1].upper()
    key = next((word.split("}:")[1] for word in words if word.startswith("sluice:{")), "")
    key = re.sub(r"^requests(\*|:high|:low|)$", "requests*", key)
    return (name + " " + re.sub(r"^(reply|wake|alive|tokens):.*", r"\1:x", key)).strip()


class Commands(Acl):
    """Compares the table of src/redis/rights.c, which the doctor, the workers and config/acl rely on, with what the
    commands send."""

    def typed(self):
        """The words of each command that queries Redis as an operator. All commands that take --redis are among them."""
        with open(README, encoding="utf-8") as file:
            block = re.search(r"(?ms)^(sluice top .*?)^```$", file.read())[1].replace(" ID ", " NAME ")
        listed = re.findall(r"^  ([a-z0-9 ]*[a-z0-9]) +[A-Z]", self.run_sluice("--help").stdout.decode(), re.MULTILINE)
        wanted = {name for name in listed if b"\n  --redis " in self.run_sluice(*name.split(), "--help").stdout} - OTHERS
        lines = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
        lines = [words for words in lines if words[0] in wanted] + [line.split() for line in TYPED]
        self.assertEqual({words[0] for words in lines}, wanted)
        return lines

    def test_an_operators_commands_send_what_the_table_says(self):
        """They send nothing else. They connect by TCP, so that MONITOR distinguishes them from the worker and the
        test."""
        typed = self.typed()
        self.server.stop()
        port = self.server.start_on_tcp()
        self.client = self.server.client()
        for role in ROLES:
            self.make_user(role)
        worker = self.start_daemon(self.server, address=f"redis+unix://sluice-worker@{self.server.socket}", environment=LOGIN)
        key = "sluice:{test}:"
        answered = self.client.xadd(key + "requests", {"text": "hello"}).decode()
        self.wait_until(lambda: self.client.exists(key + "reply:" + answered), "a reply")
        letters = [self.client.xadd(key + "dead", {"_entry": "5-0", "_code": "internal", "_message": "no", "_info": '{"attempts":4}', "text": "x"}).decode()
                   for _ in range(2)]
        words = {"WORKER": worker.worker_name(self.client), "LETTER": letters[0], "OTHER": letters[1], "ANSWERED": answered,
                 "NAME": self.client.xadd(key + "requests", {"text": "x", "delay": "60000"}).decode()}
        self.client.xadd(key + "requests", {"text": "x", "delay": "60000", "id": "order-42"})
        self.wait_until(lambda: self.client.zcard(key + "later") == 2, "both to be parked")
        with self.server.client().monitor() as monitor:
            for line in typed:
                self.operate(f"redis://sluice-operator@127.0.0.1:{port}", [words.get(word, word) for word in line])
            self.operate(f"redis://sluice-operator@127.0.0.1:{port},127.0.0.1:{port}", ["resume"])  # ROLE
            self.server.client(db=1).hset(key + "meta", "model_id", "some model")
            self.operate(f"redis://sluice-operator@127.0.0.1:{port}/1", ["resume"])  # SELECT
            self.client.echo("the end")
            sent = set()
            for line in iter(lambda: monitor.connection.read_response().decode(), None):
                sender, command = re.match(r"[\d.]+ \[\d+ (.*?)\] (.*)", line).groups()
                if '"the end"' in command:
                    break
                if sender.startswith("127.0.0.1:"):
                    sent.add(spelled(re.findall(r'"((?:[^"\\]|\\.)*)"', command)))
        sent.discard("AUTH")  # AUTH needs no right
        # Commands that the parsed lines lack: lua/requeue with its other keys, and those that lua/find sends.
        sent |= {"XRANGE dead", "EVALSHA requests*", "XRANGE requests*", "ZRANGE later", "HGET later:data"}
        self.assertEqual(sent, table_of("O") - UNSEEN)
        self.assertEqual(self.client.execute_command("ACL", "LOG"), [], "somebody was refused something")

    def operate(self, address, words):
        more = ("--model", self.make_model()) if words == ["doctor"] else ()
        if words == ["top"]:
            return self.look_once(address)
        result = self.run_sluice(*words, *more, "--redis", address, "--queue", self.queue, environment=LOGIN)
        found = {"get": UNAVAILABLE if "--story" not in words else 0, "doctor": CONFIG, "submit": DATAERR if "--stream" in words else 0}
        self.assertIn(result.returncode, {0, found.get(words[0], 0)}, f"{words}: {result.stdout.decode()}{result.stderr.decode()}")
        return None

    def look_once(self, address):
        child = process.start([BINARY, "top", "--redis", address, "--queue", self.queue], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=process.clean_environment(LOGIN))
        self.addCleanup(process.end, child)
        self.assertRegex(child.stdout.readline(), "^queue test: ")
        child.stdout.close()
        child.send_signal(signal.SIGINT)
        child.wait(timeout=20)
        self.assertEqual(child.stderr.read(), "")
        child.stderr.close()


class FullRun(Acl):
    """Everything that a queue can do, by a worker, a producer and an operator with only the shipped rights."""

    def setUp(self):
        super().setUp()
        for role in ROLES:
            self.make_user(role)
        self.producer_client = self.server.client(username="sluice-producer", password="pw")

    def key(self, name):
        return f"sluice:{{{self.queue}}}:{name}"

    def serve(self):
        """A worker whose engine fails at WORD, with its own login."""
        daemon = self.make_faulty(self.server, "--backoff-ms", "20", faults=[f"error:{{{WORD}}}"],
                                  address=f"redis+unix://sluice-worker@{self.server.socket}",
                                  environment=LOGIN)
        return daemon.start().wait_ready(self.client)

    def operate(self, *arguments, code=0):
        result = self.run_sluice(*arguments, "--redis", f"redis+unix://sluice-operator@{self.server.socket}", "--queue", self.queue,
                                 environment=LOGIN)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout.decode()}{result.stderr.decode()}")
        return result.stdout.decode()

    def add(self, stream="requests", **fields):
        return self.producer_client.xadd(self.key(stream), fields).decode()

    def wait_status(self, name, status):
        self.wait_until(lambda: self.producer_client.hget(self.key("reply:" + name), "status") == status.encode(), f"{name} to be {status}")

    def produce(self):
        """Uses each feature once, and checks the outcome."""
        plain = [self.add(text=text) for text in texts(30)]
        high, low = self.add("requests:high", text="high"), self.add("requests:low", text="low")
        woken = self.add(text="woken", notify="1")
        told = self.add(text="told", notify="stream:web")
        shared = self.add(text="of a tenant", tenant="acme")
        delayed = self.add(text="delayed", delay="300")
        bulk = self.add(inputs='["one","two"]')
        expired = self.add(text="too late", expires_in="1", delay="100")
        wrong = self.add(text="")
        doomed = self.add(text=f"the {WORD}", max_attempts="2")
        for name in (*plain, "high:" + high, "low:" + low, told, shared, delayed, bulk):
            self.wait_status(name, "done")
        self.assertEqual(self.producer_client.blpop([self.key("wake:" + woken)], 20)[1].decode(), woken)
        self.assertTrue(self.producer_client.xread({self.key("results:web"): "0"}))
        for name in (expired, wrong, doomed):
            self.wait_status(name, "error")
        self.assertEqual(self.producer_client.unlink(self.key("reply:" + plain[0])), 1)
        for name in self.producer_client.pipeline().xadd(self.key("requests"), {"text": "one"}).xadd(self.key("requests"), {"text": "two"}).execute():
            self.wait_status(name.decode(), "done")
        self.assertTrue(self.producer_client.hmget(self.key("meta"), "depth_normal", "wait_ms_normal")[0])

    def control(self, daemon):
        self.assertEqual(self.operate("dead", "list").count("\n"), 1)
        letter = self.operate("dead", "list").split()[0]
        self.operate("dead", "show", letter)
        story = self.operate("get", self.operate("dead", "list").split()[2], "--story")
        self.assertRegex(story, rf"dead: dead letter {letter} after 2 attempts.*\n.* expires: the reply expires\n$")
        self.operate("dead", "requeue", letter)
        self.wait_until(lambda: self.operate("dead", "list"), "it to be dead again")
        self.operate("dead", "purge", "--all")
        self.operate("caps", "--normal", "100000")
        self.operate("pin", "--precision", "f32")
        self.operate("pin", "--precision", "any")
        self.operate("pause")
        self.operate("stats")
        waiting = self.add(text="cancelled")
        self.operate("cancel", waiting)
        self.operate("resume")
        self.wait_until(lambda: self.producer_client.exists(self.key("reply:" + waiting)), "it to be cancelled, unless it was faster")
        parked = self.add(text="parked", delay="86400000")
        self.wait_until(lambda: '"status":"later"' in self.operate("get", parked, code=UNAVAILABLE), "it to be parked")
        self.operate("cancel", parked)
        self.add(text="by its own id", delay="86400000", id="order 42")
        self.wait_until(lambda: '"status":"later"' in self.operate("get", "order 42", code=UNAVAILABLE), "it to be parked")
        self.assertIn("in queue test: later\n", self.operate("get", "order 42", "--story"))
        self.operate("cancel", "order 42")
        self.wait_status("order 42", "cancelled")
        name = daemon.worker_name(self.client)
        self.operate("workers", "list")
        self.operate("workers", "check")
        self.operate("workers", "quiet", name)
        self.operate("workers", "resume", name)
        self.assertIn("\n0 failed, ", self.operate("doctor", "--user", "sluice-worker", "--model", self.make_model()))

    def test_only_an_operator_learns_where_a_request_is(self):
        waiting = self.add(text="nobody works", id="mine")
        for id in (waiting, "mine"):
            self.assertIn('"status":"queued"', self.operate("get", id, code=UNAVAILABLE))
            self.assertIn(f"in queue {self.queue}: queued\n", self.operate("get", id, "--story"))
            result = self.run_sluice("get", id, "--redis", f"redis+unix://sluice-producer@{self.server.socket}", "--queue", self.queue,
                                     environment=LOGIN)
            self.assertEqual((result.returncode, json.loads(result.stdout)["status"]), (UNAVAILABLE, "unknown"))
            self.assertIn(b"only an operator's login may ask where it is", result.stderr)

    def test_an_operator_changes_no_requests(self):
        """The operator may read them, to find one by its own id, but may change neither those in the streams nor those
        in `later`."""
        operator, stream = self.server.client(username="sluice-operator", password="pw"), self.key("requests")
        name = self.add(text="x")
        self.assertEqual(operator.xrange(stream)[0][1], {b"text": b"x"})
        for words in (("XDEL", stream, name), ("XTRIM", stream, "MAXLEN", "0"), ("HSET", self.key("reply:" + name), "a", "b"),
                      ("SET", self.key("alive:x"), "x"), ("DEL", stream), ("ZADD", self.key("later"), "1", "x"), ("ZREM", self.key("later"), "x"),
                      ("HSET", self.key("later:data"), "x", "x"), ("HDEL", self.key("trouble"), "x"), ("XADD", self.key("later"), "*", "a", "b")):
            with self.assertRaises(redis.exceptions.NoPermissionError, msg=words):
                operator.execute_command(*words)

    def test_only_an_operator_pauses(self):
        for role, code in (("worker", NOPERM), ("producer", NOPERM), ("operator", 0)):
            for verb in ("pause", "resume"):
                result = self.run_sluice(verb, "--redis", f"redis+unix://sluice-{role}@{self.server.socket}", "--queue", self.queue,
                                         environment=LOGIN)
                self.assertEqual(result.returncode, code, f"{role}: {result.stderr.decode()}")

    def test_a_producers_commands(self):
        """submit, get, and embed, which leaves no reply in Redis."""
        self.serve()

        def produce(*arguments):
            result = self.run_sluice(*arguments, "--redis", f"redis+unix://sluice-producer@{self.server.socket}", "--queue", self.queue,
                                     environment=LOGIN)
            self.assertEqual(result.returncode, 0, f"{arguments}: {result.stdout.decode()}{result.stderr.decode()}")
            return result.stdout.decode()
        self.assertIn('"status":"done"', produce("submit", "--wait", "hello"))
        name = produce("submit", "hello").strip()
        self.wait_status(name, "done")
        self.assertIn('"status":"done"', produce("get", name))
        produce("embed", self.write("lines.txt", "\n".join(texts(50)) + "\n"), "--output", self.path("vectors.npy"))
        self.assertGreater(os.path.getsize(self.path("vectors.npy")), 50 * 64 * 4)
        self.assertEqual(self.client.execute_command("ACL", "LOG"), [], "somebody was refused something")

    def test_three_users(self):
        first = self.serve()
        self.produce()
        self.control(first)
        load = self.start_load(self.server)
        name = self.catch(first, self.client)
        first.kill()
        self.journal.kills.append(name)
        heir = self.serve()
        self.wait_until(lambda: self.pending(self.client, worker=name) == 0, "the heir to take over")
        load.stop()
        self.wait_finished(self.producer(self.server))
        self.operate("workers", "drain", "--all")
        self.assertEqual(heir.wait_exit(), 0)
        self.assertEqual(self.client.execute_command("ACL", "LOG"), [], "somebody was refused something")
        for daemon in (first, heir):
            self.assertNotIn("NOPERM", daemon.read_log())

"""The commands of docs/oncall.md, run as the intended users: `sluice` as sluice-operator, with the rights of
config/acl, `redis-cli` as admin. Each of the tasks has a case, which runs the task's commands in order in a
shell and checks their effect. The commands in the alerts' entries run, too, and those of the five things that go wrong
in docs/operations.md."""
# ctest-cost: 15

import os
import re
import subprocess
import sys

import acl
import process
import redis
from case import SluiceCase
from daemon import BINARY, SOURCE
from ports import free_port
from redis_server import append_only, command, connect
from sentinel import TcpRedis

sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
import blocks  # noqa: E402

with open(os.path.join(SOURCE, "docs", "oncall.md"), encoding="utf-8") as file:
    PAGE = file.read()
SECTION = re.search(r"(?s)\n## Tasks\n(.*?)\n## ", PAGE)[1]
# The title of a task -> its commands.
TASKS = {title: code.replace("\\\n", "").splitlines()
         for title, code in re.findall(r"(?ms)^\*\*([^*\n]+)\*\*[^*]*?^```\n(.*?)^```$", SECTION)}
# For the alerts, without commands that use a host's own tools (systemctl, journalctl, dmesg, nvidia-smi, gdb).
def commands_of(page, *items):
    """Returns the commands in these items of a page's lists."""
    found = re.findall(rf"(?ms)^- (?:{'|'.join(items)}): (.*?)(?=^- |^## |^\*\*|\Z)", page)
    return re.findall(r"`((?:sluice|redis-cli|curl|kill) [^`]*)`", " ".join(found))


ADVICE = commands_of(PAGE, "Type", "Then")
with open(os.path.join(SOURCE, "docs", "operations.md"), encoding="utf-8") as file:
    FIVE_THINGS = commands_of(re.search(r"(?s)\n## Five things that go wrong\n.*?(?=\n## )", file.read())[0], "Type", "Remedy")
NO_ANSWER, REFUSED, CONFIG = 69, 77, 78


def case_of(task):
    return "test_" + re.sub(r"\W+", "_", task.lower()).strip("_")


class OnCall(SluiceCase):
    queue = "default"

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        os.symlink(BINARY, self.path("bin", "sluice"))
        self.login = {}

    def start(self, workers=1, **options):
        """Starts workers and the Redis that `redis-cli` and `sluice` then use."""
        self.server = self.start_guarded(**options)
        self.administrate()
        self.client = self.server.client()
        self.sender = self.producer(self.server)
        self.daemons = [self.start_daemon(self.server) for _ in range(workers)]

    def administrate(self):
        self.login |= {"SLUICE_REDIS": self.server.address("operator"), "SLUICE_REDIS_PASSWORD": acl.PASSWORD}
        self.make_redis_cli(f"-s {self.server.socket}")

    def make_redis_cli(self, options=""):
        self.login.setdefault("REDISCLI_AUTH", acl.PASSWORD)
        os.chmod(self.write("bin/redis-cli", f'#!/bin/sh\nexec /usr/bin/redis-cli --user admin {options} "$@"\n'), 0o755)

    def typed(self, *codes, **words):
        """Runs the commands of this case's task and yields the output of each. `codes`: their exit codes, 0 by
        default."""
        lines = next(commands for task, commands in TASKS.items() if case_of(task) == self._testMethodName)
        for line, code in zip(lines, codes or [0] * len(lines), strict=True):
            yield self.shell(line, code, **words)

    def shell(self, line, code=0, **words):
        """Returns the output of a command. `words`: replacements for its words in capitals."""
        for word, text in words.items():
            line = re.sub(rf"\b{word}\b", str(text), line)
        line = line.replace("/etc/", self.path("etc/")).replace("/var/lib/redis", self.path("redis")).replace("-o redis ", "")
        line = line.replace("/usr/local/share/sluice/", os.path.join(SOURCE, "config/"))
        environment = process.clean_environment(self.login)
        environment["PATH"] = self.path("bin") + ":" + environment["PATH"]
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, f"{line}\n{done.stdout}{done.stderr}")
        self.assertNotIn("NOPERM", done.stdout + done.stderr, line)
        return done.stdout + done.stderr

    def send(self, **fields):
        return self.client.xadd(self.sender.stream, {"text": "some words", **fields}).decode()

    def wait_reply(self, name, status=b"done", client=None):
        key = self.sender.key("reply:" + name)
        self.wait_until(lambda: (client or self.client).hget(key, "status") == status, f"{name} to be {status.decode()}")

    def bury(self, code="internal", age_ms=0):
        """Adds a dead letter as lua/settle writes it."""
        seconds, micros = self.client.time()
        letter = {"_entry": "5-0", "_code": code, "_message": "the engine said no", "_info": '{"attempts":4}', "text": "some words", "id": "mine"}
        return self.client.xadd(self.sender.key("dead"), letter, id=f"{seconds * 1000 + micros // 1000 - age_ms}-*").decode()

    def letters(self):
        return [letter.decode() for letter, _ in self.client.xrange(self.sender.key("dead"))]

    def test_each_task_has_a_case(self):
        self.assertGreater(len(TASKS), 20)
        others = {"test_each_task_has_a_case", "test_what_the_alerts_say", "test_the_five_things", "test_the_logins"}
        cases = {name for name in dir(self) if name.startswith("test_")} - others
        self.assertEqual({case_of(task) for task in TASKS}, cases)

    def each_runs(self, lines):
        """Runs each command, with a dead letter, a waiting request and a worker to refer to; test_operator.py tests
        `sluice top`."""
        self.start(workers=0)
        http = f"127.0.0.1:{free_port()}"
        for line in lines:
            if not self.daemons or self.daemons[0].process.poll() is not None:
                self.daemons = [self.start_daemon(self.server, "--http", http)]
            words = {"HOST:9464": http, "PID": self.daemons[0].pid, "WORKER": self.daemons[0].worker_name(self.client), "DIR": self.make_model(),
                     "LETTER": self.bury(), "ID": self.client.xadd(self.sender.stream, {"text": "x", "delay": "60000"}).decode()}
            with self.subTest(line=line):
                if line == "sluice live":
                    line += " PID"  # otherwise it checks all workers of this host
                if line != "sluice top":
                    self.shell(line.replace(" -u redis://HOST:6379", ""), CONFIG if line == "sluice doctor" else 0, **words)
            if " workers " in line and "WORKER" in line:
                self.daemons[0].wait_exit()
        self.assertEqual(self.client.execute_command("ACL", "LOG"), [], "somebody was refused something")

    def test_what_the_alerts_say(self):
        self.assertGreater(len(ADVICE), 50)
        self.each_runs(ADVICE)

    def test_the_five_things(self):
        self.assertGreater(len(FIVE_THINGS), 15)
        self.each_runs(FIVE_THINGS)

    def test_the_logins(self):
        """The lines with which the page begins, in a shell that knows aliases, as an interactive one does."""
        self.start(workers=0)
        for role in ("operator", "admin"):
            os.makedirs(self.path("etc/sluice/secrets"), exist_ok=True)
            self.write(f"etc/sluice/secrets/{role}_password", acl.PASSWORD + "\n")
        self.login = {}
        os.remove(self.path("bin/redis-cli"))
        lines = blocks.only_block(PAGE, "alias").replace("redis://sluice-operator@10.0.0.5:6379", self.server.address("operator"))
        lines = blocks.put_in(lines, "-h 10.0.0.5", f"-s {self.server.socket}")
        told = self.shell(f"shopt -s expand_aliases\n{lines}\nredis-cli acl whoami\nsluice pause --why tried\nsluice stats")
        self.assertIn("admin\n", told)
        self.assertIn("by sluice-operator@", told)

    def test_what_is_wrong(self):
        self.start(options=("--maxmemory-policy", "allkeys-lru"), workers=0)
        self.assertIn("fail  eviction    maxmemory-policy is allkeys-lru", *self.typed(CONFIG))

    def test_does_the_queue_answer(self):
        self.start()
        self.assertIn('"status":"done"', *self.typed())

    def test_what_waits_and_who_works(self):
        self.start(workers=2)
        stats, workers = self.typed()
        self.assertRegex(stats, r"(?m)^normal +0 ")
        self.assertEqual(workers.count(" state=running "), 2)

    def test_where_is_this_request_and_why_is_it_late(self):
        self.start(workers=0)
        self.assertIn("in queue default: queued\n", *self.typed(ID=self.send()))
        self.send(id="order-42")
        self.assertIn("order-42 in queue default: queued\n", *self.typed(ID="order-42"))

    def test_who_fills_the_queue(self):
        self.start(workers=0)
        for tenant, count in (("small", 2), ("large", 30), ("middle", 5)):
            for _ in range(count):
                self.send(tenant=tenant)
        self.send(text="tenant")
        told, = self.typed()
        self.assertEqual([line.split() for line in told.splitlines()][:3], [["30", "large"], ["5", "middle"], ["2", "small"]])

    def test_stop_all_work_keep_taking_requests(self):
        self.start()
        typing = self.typed()
        next(typing)
        self.wait_paused(self.client)
        name = self.send()
        self.assertEqual(self.client.xlen(self.sender.stream), 1)
        next(typing)
        self.wait_reply(name)

    def test_take_a_host_out_of_service(self):
        self.start(workers=2)
        list(self.typed(WORKER=self.daemons[0].worker_name(self.client)))
        self.assertEqual(self.daemons[0].wait_exit(), 0)
        self.wait_reply(self.send())

    def test_look_into_a_worker_without_ending_it(self):
        self.start()
        daemon, = self.daemons
        worker = daemon.worker_name(self.client)
        typing = self.typed(WORKER=worker, PID=daemon.pid)

        def is_in(state):
            self.wait_until(lambda: f" state {state} ".encode() in self.client.hget(self.sender.key("workers"), worker), f"it to be {state}")
        next(typing)
        is_in("quiet")
        next(typing)
        self.wait_until(lambda: " in_flight " in daemon.read_log(), "what it holds")
        next(typing)
        is_in("running")
        self.wait_reply(self.send())

    def test_a_worker_hangs(self):
        self.start(workers=2)
        load = self.start_load(self.server)
        self.catch(self.daemons[0], self.client)
        self.daemons[0].stand_still()
        list(self.typed(NO_ANSWER, 0, PID=self.daemons[0].pid))
        self.assertEqual(self.daemons[0].wait_exit(), -9)
        load.stop()
        self.wait_finished(load.producer)

    def test_there_is_more_work_than_machines(self):
        self.start()
        typing = self.typed()
        self.assertRegex(next(typing), r"normal +100000\b")
        self.assertRegex(next(typing), r"normal +none\b")

    def test_nobody_wants_this_request_any_more(self):
        self.start()
        self.client.set(self.sender.key("paused"), 1)
        self.wait_paused(self.client)
        for id in (self.send(), "order-42"):
            self.send(id="order-42")
            list(self.typed(ID=id))
            self.wait_reply(id, b"cancelled")

    def test_what_died_and_why(self):
        self.start()
        old, new = self.bury(age_ms=7_200_000), self.bury("poison")
        listed, shown = self.typed(LETTER=new)
        self.assertRegex(listed, rf"^{new} +poison .*the engine said no\n$")
        self.assertIn("text: some words", shown)
        self.assertEqual(self.letters(), [old, new])

    def test_the_reason_is_gone_try_again_what_it_had_killed(self):
        self.start()
        first, other = self.bury(), self.bury("poison")
        typing = self.typed()
        self.assertIn("1 would be requeued", next(typing))
        self.assertEqual(self.letters(), [first, other])
        next(typing)
        self.assertEqual(self.letters(), [other])
        self.wait_reply("mine")

    def test_throw_dead_letters_away(self):
        self.start(workers=0)
        self.bury(age_ms=8 * 86_400_000)
        one, other = self.bury(), self.bury()
        list(self.typed(LETTER=one))
        self.assertEqual(self.letters(), [other])

    def test_redis_is_full(self):
        self.start()
        workers = self.sender.key("workers")

        def all_are(state):
            return all(f" state {state} ".encode() in value for value in self.client.hvals(workers))
        self.client.config_set("maxmemory", self.client.info("memory")["used_memory"] * 100 // 92)
        self.wait_until(lambda: all_are("tight"), "a tight worker")
        told, _ = self.typed()
        self.assertIn("maxmemory_human:", told)
        self.assertEqual(self.client.config_get("maxmemory"), {"maxmemory": str(4 << 30)})
        self.wait_until(lambda: all_are("running"), "it to have room")

    def test_redis_disk_is_full(self):
        self.start(aof="always", workers=0)
        name = self.send()
        self.server.kill()
        leftovers = [self.write(f"redis/{file}", "half a rewrite") for file in ("temp-12.rdb", "temp-rewriteaof-bg-12.aof")]
        os.chmod(self.write("bin/systemctl", "#!/bin/sh\necho $*\n"), 0o755)
        self.assertEqual(list(self.typed())[1:], ["", "start redis-server\n"])
        self.assertEqual([path for path in leftovers if os.path.exists(path)], [])
        self.server.start()
        self.assertEqual([entry.decode() for entry, _ in self.server.client().xrange(self.sender.stream)], [name])

    def test_redis_is_slow(self):
        self.start(options=("--slowlog-log-slower-than", "0"), workers=0)
        slow, latency = self.typed()
        self.assertIn("\nPING\n", slow)
        self.assertRegex(latency, r"^\d+ \d+ [\d.]+ \d+\s*$")

    def test_redis_does_not_start_after_a_crash(self):
        self.start(aof="always", workers=0)
        name = self.send()
        self.server.kill()
        with open(append_only(self.server.directory), "ab") as file:
            file.write(command("MULTI") + command("DEL", self.sender.stream)[:-1])
        self.server.mend = lambda: None  # the test support repairs the file in other cases
        with self.assertRaises(AssertionError):
            self.server.start()
        list(self.typed())
        self.server.start()
        self.assertEqual([entry.decode() for entry, _ in self.server.client().xrange(self.sender.stream)], [name])

    def pair(self):
        """Starts a master, its replica, and a worker that knows both."""
        users = self.write("users.acl", acl.shipped_users(self.path("secrets"), self.queue))
        options = ("--aclfile", users, "--masteruser", "admin", "--masterauth", acl.PASSWORD)
        old, new = servers = [TcpRedis(self.directory, name, options=options) for name in ("old", "new")]
        self.children += servers
        for server in servers:
            server.user, server.password, server.guarded = "admin", acl.PASSWORD, True
        new.follow(old)
        self.sender = self.producer(old)
        self.make_redis_cli()
        self.start_daemon(old, address="redis://sluice-worker@" + ",".join(f"127.0.0.1:{server.port}" for server in servers))
        return old, new

    def check_served(self, server):
        """Asserts that the server is the master now, and that the worker has found it."""
        client = server.client()
        self.wait_until(lambda: server.role() == "master", "another master")
        self.wait_reply(client.xadd(self.sender.stream, {"text": "some words"}).decode(), client=client)

    def test_switch_to_the_replica(self):
        old, new = self.pair()
        list(self.typed(OLD=f"127.0.0.1 -p {old.port}"))
        self.check_served(new)
        self.assertEqual(old.role(), "slave")

    def test_the_master_is_dead_and_nobody_promotes(self):
        old, new = self.pair()
        old.kill()
        list(self.typed(NEW=f"127.0.0.1 -p {new.port}"))
        self.check_served(new)

    def test_a_password_has_leaked(self):
        """The worker with the old password ends, and works again with the new one; the old one admits nobody. Users of
        other queues, and those made by hand, stay, also after a restart of Redis."""
        os.makedirs(self.path("etc/sluice/secrets"))
        os.makedirs(self.path("etc/redis"))
        for role in ("producer", "worker", "operator", "admin"):
            self.write(f"etc/sluice/secrets/{role}_password", f"{role}-secret\n")
        for role in ("producer", "worker", "operator"):
            self.write(f"etc/sluice/secrets/mail_{role}_password", f"mail-{role}-secret\n")
        users = subprocess.run([os.path.join(SOURCE, "config", "make-users.sh"), self.path("etc/sluice/secrets"), "default", "mail"], capture_output=True, check=True)
        self.server = self.new_redis(options=("--aclfile", self.write("etc/redis/users.acl", users.stdout)))
        self.server.user, self.server.password = "admin", "admin-secret"
        self.client = self.server.start().client()
        self.client.execute_command("ACL", "SETUSER", "by-hand", "on", ">pw", "+ping")
        def others(client):
            return [sorted(re.findall(r"[^ ()]+", line)) for line in client.acl_list() if "sluice-worker " not in line]
        users = others(self.client)
        self.sender = self.producer(self.server)
        self.login["REDISCLI_AUTH"] = "admin-secret"
        self.make_redis_cli(f"-s {self.server.socket}")
        daemon = self.start_daemon(self.server, address=f"redis+unix://sluice-worker@{self.server.socket}",
                                   environment={"SLUICE_REDIS_PASSWORD_FILE": self.path("etc/sluice/secrets/worker_password")})
        list(self.typed())
        self.assertEqual(daemon.wait_exit(), REFUSED)
        name = self.send()
        self.restart(daemon, self.server)
        self.wait_reply(name)
        with self.assertRaises((redis.AuthenticationError, redis.ResponseError)):
            connect(self.server.socket, username="sluice-worker", password="worker-secret").ping()
        self.assertEqual(others(self.client), users)
        self.server.stop()
        client = self.server.start().client()
        self.assertEqual(others(client), users)
        self.wait_reply(client.xadd(self.sender.stream, {"text": "again"}).decode(), client=client)

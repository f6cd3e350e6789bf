"""The base of every case: a temporary directory of its own, servers and daemons that end with it, and their logs on failure."""

import json
import os
import re
import shutil
import signal
import tempfile
import unittest

import redis

import acl
import model
from checker import Checker
from corpus import texts
from daemon import FAULTY, Daemon, sluice
from mixed import Mixed
from producer import Journal, Load, Producer
from redis_server import RedisServer
from vectors import Reference
from waiting import wait_until

# The size of each fault run: 1 by default, 0.1 under the sanitizers, more at night.
SCALE = float(os.environ.get("SLUICE_FAULT_SCALE", "1"))
SOON = 500
SANITIZED = "asan" in os.environ.get("SLUICE_BINARY", "") or "tsan" in os.environ.get("SLUICE_BINARY", "")


def scaled(count):
    return max(1, round(count * SCALE))


class SluiceCase(unittest.TestCase):
    queue = "test"
    lease_ms = 3000  # long enough for a busy machine; SOON in cases that wait for ends of leases, where a lost one does no harm

    def setUp(self):
        # A short path in memory: unix socket paths end at 107 bytes, and fsync costs nothing there.
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.directory = tempfile.mkdtemp(prefix="sluice-", dir=base)
        self.children = []
        self.journal = Journal()
        self.wait_until = wait_until

    def run(self, result=None):
        result = result if result is not None else self.defaultTestResult()
        before = len(result.failures) + len(result.errors)
        self.children, self.loads = [], []
        self.directory = None
        try:
            super().run(result)
        finally:
            for load in self.loads:
                load.cancel()
            for child in reversed(self.children):
                child.cleanup()
            if len(result.failures) + len(result.errors) > before:
                self._show_logs()
            if self.directory is not None:
                shutil.rmtree(self.directory, ignore_errors=True)
        return result

    def tearDown(self):
        """No daemon may have crashed, whatever the test was about."""
        for child in self.children:
            if isinstance(child, Daemon):
                self.assertFalse(child.crashed(), "a daemon crashed")
                report = child.sanitizer_report()
                self.assertIsNone(report, report)

    def _show_logs(self):
        for child in self.children:
            lines = child.read_log().splitlines()
            print(f"--- {child.log}: last {min(60, len(lines))} of {len(lines)} lines")
            print("\n".join(line[:600] for line in lines[-60:]))

    def logged(self, daemon, pattern, count=1):
        """Waits for at least `count` matches in the log of a daemon that runs: a line is written after the thing that it reports."""
        self.wait_until(lambda: len(re.findall(pattern, daemon.read_log())) >= count,
                        lambda: f"{pattern} in the log:\n{daemon.read_log()[-3000:]}")

    def now_ms(self):
        """The time of the case's server."""
        seconds, micros = self.client.time()
        return seconds * 1000 + micros // 1000

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def new_redis(self, name="redis", aof="no", options=()):
        """A server that has not been started."""
        server = RedisServer(self.directory, name, aof, options)
        self.children.append(server)
        return server

    def start_redis(self, name="redis", aof="no", options=(), environment=None):
        server = self.new_redis(name, aof, options)
        server.environment = environment
        return server.start()

    def start_guarded(self, *queues, everybody=None, name="redis", **options):
        """A server with the users of config/make-users.sh: the test is `admin`, daemons are `sluice-worker`. `everybody`: as of
        acl.shipped_users."""
        users = self.write(name + ".acl", acl.shipped_users(self.path("secrets"), *(queues or [self.queue]), everybody=everybody))
        server = self.new_redis(name, **{**options, "options": (*options.get("options", ()), "--aclfile", users)})
        server.user, server.password, server.guarded = "admin", acl.PASSWORD, True
        return server.start()

    def make_model(self, name="tiny", **shape):
        directory = self.path("models", name)
        if not os.path.exists(directory):
            model.write_model(directory, **shape)
        return directory

    def make_classifier(self, name="head", **how):
        directory = self.path("models", name)
        os.makedirs(directory)
        return model.write_classifier(directory, **how)

    def make_daemon(self, server, *flags, model=None, queue=None, environment=None, address="socket"):
        """A daemon that has not been started. f32, so that its vectors are the local ones bit for bit."""
        guarded = isinstance(server, RedisServer) and server.guarded
        where = address if address != "socket" else server.address("worker") if guarded else server.socket
        if guarded:
            environment = {"SLUICE_REDIS_PASSWORD": acl.PASSWORD, **(environment or {})}
        number = sum(isinstance(child, Daemon) for child in self.children)
        daemon = Daemon(self.directory, number, where, model or self.make_model(), queue or self.queue,
                        ["--lease-ms", self.lease_ms, "--precision", "f32", *flags], environment)
        self.children.append(daemon)
        return daemon

    def make_faulty(self, server, *flags, faults=(), environment=None, **options):
        """A daemon, as from make_daemon, with an engine that fails on demand."""
        environment = {**self.faulty_engine(*faults), **(environment or {})}
        daemon = self.make_daemon(server, *flags, environment=environment, **options)
        daemon.argv[0] = FAULTY
        return daemon

    def make_configured(self, server, settings, *flags, faults=None, environment=None, **options):
        """A daemon whose queues are in a file, while no flag names one; `faults` as for make_faulty."""
        environment = {"SLUICE_CONFIG": self.write("sluice.json", json.dumps(settings)), **(environment or {})}
        if faults is None:
            daemon = self.make_daemon(server, *flags, environment=environment, **options)
        else:
            daemon = self.make_faulty(server, *flags, faults=faults, environment=environment, **options)
        for flag in ("--queue", "--model"):
            at = daemon.argv.index(flag)
            del daemon.argv[at:at + 2]
        return daemon

    def faulty_engine(self, *faults):
        """The environment with these faults, as tests/support/faulty_engine.c reads them; a word of the small model in braces
        is replaced by its token: "slow:{kernel}:900"."""
        tokens = {word: token for token, word in enumerate(model.vocabulary())}
        return {"FAULTY_ENGINE": " ".join(faults).format_map(tokens), "FAULTY_ENGINE_DIM": "64",
                "FAULTY_ENGINE_GATE": self.path("gate"), "FAULTY_ENGINE_LOG": self.path("faults")}

    def shut_gate(self):
        """From now on an engine with the fault `held` stays in a pass with its word until open_gate()."""
        self.write("gate", "")

    def open_gate(self):
        os.unlink(self.path("gate"))

    def fired(self, kind):
        """Returns how often a fault of these engines has fired, by their own log."""
        try:
            with open(self.path("faults"), encoding="ascii") as file:
                return file.read().split().count(kind)
        except FileNotFoundError:
            return 0

    def start_daemon(self, server, *flags, **options):
        """A daemon that has joined its queue."""
        return self.make_daemon(server, *flags, **options).start().wait_ready(server.client())

    def start_slow(self, server, **options):
        """A worker that sleeps 20 ms for each batch of four: it holds entries at any moment and computes next to nothing."""
        return self.make_faulty(server, "--max-batch-rows", "4", faults=["slow:2:20"],  # 2: [CLS]
                                environment={"FAULTY_ENGINE_LOG": ""}, **options).start().wait_ready(server.client())

    def restart(self, daemon, server):
        """The same command line again, as a new process that has joined its queue."""
        daemon.start().wait_ready(server.client())
        return daemon

    def producer(self, server, queue=None, journal=None):
        return Producer(server, queue or self.queue, journal or self.journal)

    def start_load(self, server, seed=1, longest=40, depth=64):
        """A background producer under this case's journal; the case ends it with stop()."""
        prefix = f"load-{len(self.loads)}"
        load = Load(server, self.queue, self.journal, texts(400, seed=seed, longest=longest), depth=depth, prefix=prefix)
        self.loads.append(load)
        return load.start()

    def start_mixed(self, server, seed=1, longest=40, depth=96):
        """The same with every feature of the protocol."""
        load = Mixed(server, self.queue, self.journal, texts(400, seed=seed, longest=longest), depth=depth,
                     prefix=f"mixed-{len(self.loads)}", seed=seed)
        self.loads.append(load)
        return load.start()

    def reference(self, model=None, **options):
        return Reference(model or self.make_model(), **options)

    def wait_finished(self, producer, requests=None, timeout=120):
        left = list(requests if requests is not None else producer.journal.requests.values())

        def finished():
            """Looks at fifty at a time, because a look at all of them takes time away from the work that it waits for."""
            assert not any(isinstance(child, Daemon) and child.crashed() for child in self.children), "a daemon crashed"
            while left and producer.finished(left[:50]):
                del left[:50]
            return not left

        def missing():
            return [r.id for r in left if not producer.finished([r])][:5]

        wait_until(finished, lambda: f"replies; without one: {missing()}", timeout=timeout)

    def wait_empty(self, producer):
        """Waits until all streams are empty: an answered entry is removed a moment later."""
        wait_until(lambda: producer.unfinished() == 0, lambda: f"empty streams; {producer.unfinished()} entries are left")

    def finish(self, server, producer, model=None, **options):
        """Waits until all is answered and the streams are empty, then runs the whole checker."""
        self.wait_finished(producer)
        self.wait_empty(producer)
        self.assert_clean(server, model=model, **options)

    def assert_clean(self, server, queue=None, model=None, journal=None, **options):
        """Runs the whole checker; stops no daemon, so wait for the work to end first."""
        Checker(server, queue or self.queue, journal or self.journal, self.reference(model)).assert_clean(**options)

    def pending(self, client, queue=None, worker=None):
        """The number of pending entries in all classes, of one worker or of all; 0 while there is no group."""
        return sum(self._pending_on(client, f"sluice:{{{queue or self.queue}}}:requests{level}", worker)
                   for level in ("", ":high", ":low"))

    def held_by(self, daemon, client):
        """The number of entries pending with a daemon, dead or alive, under its latest name: a daemon that a busy machine
        has kept from renewing its lease joins again under another."""
        name = daemon.last_name()
        return self.pending(client, worker=name) if name else 0

    def _pending_on(self, client, key, worker):
        try:
            if worker is None:
                return client.xpending(key, "sluice")["pending"]
            return next((c["pending"] for c in client.xinfo_consumers(key, "sluice") if c["name"].decode() == worker), 0)
        except redis.ResponseError as error:
            if "NOGROUP" in str(error) or "no such key" in str(error):
                return 0
            raise

    def wait_nobody_reads(self, client):
        """Waits until no worker is blocked in XREADGROUP."""
        wait_until(lambda: not [c for c in client.client_list() if c["cmd"] == "xreadgroup" and "b" in c["flags"]],
                   "the workers to stop reading")

    def wait_paused(self, client):
        """Waits until every worker knows of a pause: its next heartbeat's answer says so, and by the one after that it has read it."""
        def heartbeats():
            return {name: value.split()[0] for name, value in client.hgetall(f"sluice:{{{self.queue}}}:workers").items()}

        for _ in range(2):
            before = heartbeats()
            wait_until(lambda: all(now != before.get(name) for name, now in heartbeats().items()), "a heartbeat")
        self.wait_nobody_reads(client)

    def catch(self, daemon, client, moment=lambda: None):
        """Sends SIGSTOP while the worker holds entries; tries again until it does. `moment` runs before the signal, so that
        it need not be the first such moment. A fault that follows (kill -9, a pause) certainly hits it in the middle of a
        batch."""
        for _ in range(1000):
            wait_until(lambda: self.held_by(daemon, client) > 0, "the victim to hold something")
            moment()
            daemon.signal(signal.SIGSTOP)
            if self.held_by(daemon, client) > 0:
                return daemon.last_name()
            daemon.signal(signal.SIGCONT)
        raise AssertionError("the victim never holds anything")

    def run_sluice(self, *arguments, **options):
        return sluice(*arguments, **options)

    def sluice(self, *arguments, code=0):
        """Runs a command about the case's queue on its `server`. Returns its standard output; `said` has its standard error."""
        result = self.run_sluice(*arguments, "--redis", self.server.socket, "--queue", self.queue)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout.decode()}{result.stderr.decode()}")
        self.said = result.stderr.decode()
        return result.stdout.decode()


class RedisCase(SluiceCase):
    """A server from the start, with a client and a producer."""

    redis_options = {}  # of start_redis

    def setUp(self):
        super().setUp()
        self.server = self.start_redis(**self.redis_options)
        self.client = self.server.client()
        self.sender = self.producer(self.server)

"""sluice doctor: each finding, provoked by a server that has the fault."""

import os
import re
import time

from acl import make_user
from case import SluiceCase
from resp_server import Voices

CONFIG, DATAERR, UNAVAILABLE, NOPERM = 78, 65, 69, 77
LOGIN = {"SLUICE_REDIS_PASSWORD": "pw"}


class Another(Voices):
    """A server with a changed answer to INFO."""

    def __init__(self, directory, target, info):
        self.info = f"${len(info)}\r\n{info}\r\n".encode()
        super().__init__(directory, target)
        self.socket = self.address

    def connection(self):
        ask = super().connection()
        return lambda words: self.info if words[0] == b"INFO" else ask(words)


class Doctor(SluiceCase):
    def start_redis(self, name="redis", aof="no", options=(), **more):
        """Starts a Redis that requires a password."""
        server = self.new_redis(name, aof, ("--requirepass", "pw", *options))
        server.password = "pw"
        return server.start()

    def doctor(self, server, *arguments, code=0, environment=None):
        result = self.run_sluice("doctor", "--redis", server.socket, "--queue", self.queue, "--model", self.make_model(), *arguments,
                                 environment={**LOGIN, **(environment or {})})
        self.assertEqual(result.returncode, code, result.stdout.decode() + result.stderr.decode())
        return result.stdout.decode()

    def test_a_good_server(self):
        server = self.start_redis(aof="always", options=("--maxmemory", "200mb"))
        daemon, client = self.start_daemon(server, environment=LOGIN), server.client()
        client.hset("sluice:{test}:workers", daemon.worker_name(client), f"{client.time()[0]}000 state running")
        text = self.doctor(server)
        self.assertTrue(text.endswith("\n0 failed, 0 warnings\n"), text)
        for finding in ("redis       reached at", "version     ", "eviction    maxmemory-policy is noeviction", "memory      ",
                        "clock       ", "durability  tier T2", "recovery    aof-load-truncated no", "writes      Redis takes them",
                        "strays      no stream has a mistyped key", "expiry      none", "limits      the largest reply", "strangers   who has no login",
                        "rights      default has every right of a worker on queue test",
                        "precision   the queue takes any", "keys        none", "group       sluice reads sluice:{test}:requests", "workers     1 alive", "pause       none", "dead        none",
                        "model       tiny (", "libraries   libevent 2"):
            self.assertIn("ok    " + finding, text)

    def test_workers_of_different_versions(self):
        """Simulates an unfinished upgrade."""
        server = self.start_redis(aof="always", options=("--maxmemory", "200mb"))
        daemon, client = self.start_daemon(server, environment=LOGIN), server.client()
        self.wait_until(lambda: client.hexists("sluice:{test}:workers", daemon.last_name()), "its heartbeat")
        ours = self.run_sluice("version").stdout.decode().split()[1]

        def add(worker, words):
            client.set(f"sluice:{{test}}:alive:{worker}", "token")
            client.hset("sluice:{test}:workers", worker, f"{client.time()[0]}000 state running lease 60000{words}")
        add("elsewhere-1-0000000a", f" version {ours}")
        self.assertIn("ok    workers     2 alive\n", self.doctor(server))
        add("elsewhere-2-0000000b", " version 9.9.9")
        self.assertRegex(self.doctor(server), rf"warn  workers     3 alive, of different versions: .*(9\.9\.9 and {re.escape(ours)}|{re.escape(ours)} and 9\.9\.9) ")
        client.delete("sluice:{test}:alive:elsewhere-2-0000000b")
        add("elsewhere-3-0000000c", "")  # from a time when workers did not publish their version
        self.assertRegex(self.doctor(server), r"warn  workers     3 alive, of different versions: .*unknown")

    def test_backend(self):
        """The doctor says why the GPU is not used, down to the loader's message about the driver's library; also for a
        backend that is not available."""
        server, folder = self.start_redis(), self.path("")[:-1]
        self.write("libcuda.so.1", "no library")
        no_driver = rf"this machine has no NVIDIA driver \({folder}/libcuda\.so\.1: file too short\)"
        environment = {"LD_LIBRARY_PATH": folder}
        self.assertRegex(self.doctor(server, environment=environment),
                         rf"ok    backend     cpu(, not cuda: {no_driver}|; this build has no CUDA)\n")
        self.assertRegex(self.doctor(server, "--backend", "cuda", environment=environment, code=CONFIG),
                         rf'fail  backend     cuda: ({no_driver}|no backend "cuda"; .*)\n')

    def test_instruction_set(self):
        """The doctor names the kernels in use and those that SLUICE_ISA hides; an unknown name is refused with a list
        of valid ones."""
        server = self.start_redis()
        self.assertRegex(self.doctor(server), r"ok    kernels     \w+\n")
        self.assertRegex(self.doctor(server, environment={"SLUICE_ISA": "generic"}), r"ok    kernels     generic(; SLUICE_ISA hides \w+)?\n")
        self.assertRegex(self.doctor(server, "--backend", "cpu", environment={"SLUICE_ISA": "avx3"}, code=CONFIG),
                         r'fail  backend     cpu: SLUICE_ISA "avx3" is not one of .*, generic\n')

    def test_versions(self):
        """The version comes from INFO; Valkey also calls itself Redis 7.2.4."""
        server = self.start_redis()
        for fields, finding in (("redis_version:6.2.7", "fail  version     Redis 6.2.7: 7.0 or later is needed"),
                                ("redis_version:7.0.15", "ok    version     Redis 7.0.15; on Debian 12"),
                                ("redis_version:7.2.4", "warn  version     Redis 7.2.4 has known security holes; use 7.2.11"),
                                ("redis_version:8.2.2", "ok    version     Redis 8.2.2\n"),
                                ("redis_version:7.2.4\r\nvalkey_version:8.1.5", "warn  version     Valkey 8.1.5 has known security holes; use 8.1.6"),
                                ("redis_version:7.2.4\r\nvalkey_version:9.1.2", "ok    version     Valkey 9.1.2\n")):
            another = Another(self.directory, server.socket, f"# Server\r\n{fields}\r\n")
            self.children.append(another)
            self.assertIn(finding, self.doctor(another, code=CONFIG))

    def test_server_findings(self):
        server = self.start_redis(options=("--maxmemory-policy", "allkeys-lru"))
        text = self.doctor(server, code=CONFIG)
        self.assertIn("fail  eviction    maxmemory-policy is allkeys-lru", text)
        self.assertIn("warn  memory      maxmemory is not set", text)
        self.assertIn("warn  durability  tier T1: appendfsync no", text)
        self.assertIn("warn  workers     0 alive; no worker has ever joined queue test\n", text)
        self.assertIn("1 failed, ", text)
        client = server.client()
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendfsync", "everysec")
        self.assertIn("warn  durability  tier T1: appendfsync everysec", self.doctor(server))
        client.config_set("appendonly", "no")
        self.assertIn("warn  durability  tier T0", self.doctor(server))
        client.config_set("maxmemory", 1_000_000)
        client.config_set("appendonly", "yes")
        client.config_set("appendfsync", "always")
        text = self.doctor(server, code=CONFIG)
        self.assertRegex(text, r"warn  memory      \d{2,} % of maxmemory in use")
        self.assertRegex(text, r"fail  writes      Redis says: OOM .*; producers cannot enqueue until it has room")
        self.assertIn("1 failed, ", text)
        self.assertIn("ok    durability  tier T2", text)

    def test_writes_that_are_refused(self):
        """Each reason is given in Redis' words and with a remedy; the doctor writes nothing to find out."""
        server = self.start_redis(aof=None, options=("--save", "3600 1", "--enable-protected-configs", "yes"))
        client = server.client()
        gone = server.directory + "/gone"

        def snapshot_fails():
            os.mkdir(gone)
            client.config_set("dir", gone)
            os.rmdir(gone)
            client.bgsave()
            self.wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "a snapshot that failed")

        def snapshot_succeeds():
            client.config_set("dir", server.directory)
            client.bgsave()
            self.wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "ok", "a snapshot")

        reasons = (
            (snapshot_fails, snapshot_succeeds, "Redis says: MISCONF .*; its last snapshot failed"),
            (lambda: client.config_set("min-replicas-to-write", 1), lambda: client.config_set("min-replicas-to-write", 0),
             "Redis says: NOREPLICAS .*; fewer replicas than min-replicas-to-write"),
            (lambda: client.execute_command("REPLICAOF", "127.0.0.1", 1), lambda: client.execute_command("REPLICAOF", "NO", "ONE"),
             "this is a replica of 127.0.0.1:1: .*READONLY"),
            (lambda: client.execute_command("CLIENT", "PAUSE", 60000, "WRITE"), lambda: client.execute_command("CLIENT", "UNPAUSE"),
             "no answer in time; are writes paused"),
        )
        for begin, end, words in reasons:
            begin()
            text = self.doctor(server, code=CONFIG)
            self.assertRegex(text, "fail  writes      .*" + words)
            self.assertIn("1 failed, ", text)
            end()
            self.assertIn("ok    writes      Redis takes them", self.doctor(server))
        self.assertEqual(client.keys("*"), [])

    def test_keys_that_expire(self):
        server = self.start_redis()
        client = server.client()
        client.xadd("sluice:{test}:requests:low", {"text": "x"})
        client.hset("sluice:{test}:trouble", "1-1", "1 0 1-1")
        self.assertIn("ok    expiry      none of queue test has a TTL", self.doctor(server))
        client.expire("sluice:{test}:requests:low", 3600)
        client.expire("sluice:{test}:trouble", 60)
        text = self.doctor(server, code=CONFIG)
        self.assertRegex(text, r"fail  expiry      sluice:\{test\}:requests:low has a TTL: Redis deletes it with all that it holds in 3(599|600) s")
        self.assertRegex(text, r"fail  expiry      sluice:\{test\}:trouble has a TTL")
        self.assertIn("2 failed, ", text)

    def test_limits_of_the_server(self):
        """The doctor names the setting that stops the largest reply (256 texts of 64 floats, at 18 bytes each as json)
        or 1 MiB of text."""
        server = self.start_redis()
        client = server.client()
        self.assertRegex(self.doctor(server), r"ok    limits      the largest reply \(0\.3 MiB as json, 0\.1 MiB as f32\) and entry \(1\.0 MiB\) pass: "
                                              r"Redis takes 512 MiB \(proto-max-bulk-len\)")
        client.config_set("proto-max-bulk-len", 1 << 20)
        self.assertIn("ok    limits", self.doctor(server))
        self.assertIn("warn  limits      a reply to 2000 texts (max_inputs) may have 2.2 MiB as json, 0.5 MiB as f32, and Redis takes 1.0 MiB at once "
                      "(proto-max-bulk-len): ", self.doctor(server, environment={"SLUICE_MAX_INPUTS": "2000"}))
        client.config_set("proto-max-bulk-len", 512 << 20)
        client.config_set("client-query-buffer-limit", 1 << 20)
        self.assertIn("(client-query-buffer-limit): ", self.doctor(server, environment={"SLUICE_MAX_INPUTS": "2000"}))
        client.config_set("client-output-buffer-limit", "normal 524288 0 0")
        self.assertIn("warn  limits      a request may carry 1.0 MiB (max_text_bytes), and Redis sends a worker 0.5 MiB at once "
                      "(client-output-buffer-limit normal): ", self.doctor(server))
        client.config_set("client-output-buffer-limit", "normal 0 0 0")
        client.config_set("maxmemory", 100 << 20)
        client.config_set("maxmemory-clients", "1%")
        self.assertIn("1.0 MiB at once (maxmemory-clients)", self.doctor(server))
        self.assertIn("how long replies are cannot be told: ", self.doctor(server, "--model", self.path("none")))

    def test_a_start_that_cuts_off_too_little(self):
        """This is Redis' default; it does not matter without an append-only file, and users without the right cannot
        see it."""
        server = self.start_redis()
        client = server.client()
        client.config_set("aof-load-truncated", "yes")
        self.assertIn("warn  recovery    aof-load-truncated yes", self.doctor(server))
        client.config_set("appendonly", "no")
        self.assertNotIn("recovery", self.doctor(server))

    def test_a_replica_makes_tier_3(self):
        server = self.start_redis(aof="always")
        replica = self.start_redis("replica", options=("--replicaof", "127.0.0.1", "1", "--masterauth", "pw"))  # nothing listens at this port: not connected
        self.assertIn("tier T2", self.doctor(server))
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first = int(file.read().split()[0])
        for port in range(first - 1, first - 200, -1):
            if server.client().config_set("port", port) and server.client().config_get("port")["port"] == str(port):
                break
        replica.client().execute_command("REPLICAOF", "127.0.0.1", port)
        self.wait_until(lambda: server.client().info("replication")["connected_slaves"] == 1, "the replica")
        self.assertIn("ok    durability  tier T3", self.doctor(server))

    def test_queue_findings(self):
        server = self.start_redis()
        client = server.client()
        text = self.doctor(server)
        self.assertIn("ok    group       no stream yet", text)
        self.assertIn("ok    model       the queue has none yet", text)
        client.xadd("sluice:{test}:requests", {"text": "x"})
        client.set("sluice:{test}:trouble", "x")
        client.set("sluice:{test}:paused", "1")
        client.xadd("sluice:{test}:dead", {"_entry": "1-0"})
        client.hset("sluice:{test}:meta", "model_id", "another")
        text = self.doctor(server, code=CONFIG)
        self.assertIn("fail  keys        sluice:{test}:trouble is a string and must be a hash", text)
        self.assertIn("warn  group       sluice:{test}:requests has no group sluice", text)
        self.assertIn("warn  pause       the queue is paused, and nobody takes anything: 1 (sluice resume)", text)
        self.assertIn("warn  dead        1 dead letters", text)
        self.assertIn("fail  model       the queue belongs to the model another (its name is not known); tiny is", text)
        self.assertIn("2 failed, ", text)

    def test_streams_that_nobody_reads(self):
        """Keys and queues that a producer has mistyped. A queue that was served is none of them, nor is a results stream."""
        server = self.start_redis()
        client = server.client()
        for key in ("sluice:{test}:requests", "sluice:{test}:results:my-requests", "sluice:{test}:tokens:my-requests"):
            client.xadd(key, {"text": "x"})
        client.xgroup_create("sluice:{mail}:requests:low", "sluice", "0", mkstream=True)
        client.set("sluice:default:requests:of-another-type", "x")
        self.assertIn("ok    strays      no stream has a mistyped key\n", self.doctor(server))
        for key in ("sluice:default:requests", "sluice:{test}:requests:urgent", "sluice:{test}:request\n", "sluice:{tset}:requests:high"):
            client.xadd(key, {"text": "x"})
        text = self.doctor(server)
        for key in ("sluice:default:requests:", "sluice:{test}:requests:urgent:", "sluice:{test}:request\\x0a:"):
            self.assertIn("warn  strays      nobody reads " + key, text)
        self.assertIn("warn  strays      sluice:{tset}:requests:high: queue tset never had a worker", text)
        self.assertEqual(text.count("  strays  "), 4, text)
        for number in range(10):
            client.xadd(f"sluice:{number}:requests", {"text": "x"})
        text = self.doctor(server)
        self.assertEqual(text.count("  strays  "), 9, text)
        self.assertIn("warn  strays      and 6 more such streams", text)
        make_user(client, "operator", self.queue)
        self.assertIn("ok    strays      mistyped keys were not looked for", self.doctor(server, "--redis", f"redis+unix://sluice-operator@{server.socket}"))

    def test_ids_ahead_of_the_clock(self):
        """Ids of a stream, and of its group alone, as a repair by hand leaves them."""
        server = self.start_redis()
        client, low = server.client(), "sluice:{test}:requests:low"
        client.xgroup_create(low, "sluice", "0", mkstream=True)
        client.xadd("sluice:{test}:requests", {"text": "x"})
        self.assertIn("ok    ids         none is ahead", self.doctor(server))
        client.xadd(low, {"text": "x"}, f"{int(time.time() * 1000) + 3600000}-0")
        self.assertRegex(self.doctor(server), r"warn  ids         those of sluice:\{test\}:requests:low are 3(599|600) s ahead")
        client.xreadgroup("sluice", "me", {low: ">"})
        client.xtrim(low, maxlen=0)
        client.execute_command("XSETID", low, "5-5")
        text = self.doctor(server)
        self.assertRegex(text, r"warn  ids         group sluice of sluice:\{test\}:requests:low is 3(599|600) s ahead")
        self.assertEqual(text.count("  ids  "), 1, text)
        client.xadd(low, {"text": "x"}, "18446744073709551615-18446744073709551615")
        self.assertRegex(self.doctor(server), r"warn  ids         those of sluice:\{test\}:requests:low are \d{17} s ahead")

    def test_no_redis(self):
        server = self.start_redis()
        server.stop()
        self.assertIn("fail  redis       ", self.doctor(server, code=UNAVAILABLE))
        server.start()
        server.client().config_set("requirepass", "secret")
        self.assertIn("fail  redis       ", self.doctor(server, code=NOPERM))

    def test_rights_that_are_missing(self):
        server = self.start_redis()
        client = server.client()
        client.acl_setuser("half", enabled=True, keys=["sluice:{test}:*"], commands=["+@all", "-xack", "-client|unblock"])
        text = self.doctor(server, "--user", "half", code=CONFIG)
        self.assertIn("fail  rights      half may not XACK sluice:{test}:requests:low sluice 1-0: ", text)
        self.assertIn("fail  rights      half may not CLIENT UNBLOCK 1: ", text)
        self.assertEqual(text.count("fail  rights"), 4, text)  # XACK on three streams
        self.assertIn("ok    rights      half has every right of a producer", self.doctor(server, "--user", "half", "--role", "producer"))
        self.assertIn("User 'nobody' not found", self.doctor(server, "--user", "nobody", code=CONFIG))

    def test_roles(self):
        """Without --role the user's rights show which role it has; if they fit none, there is one line, not one for
        each right."""
        server = self.start_redis()
        client = server.client()
        for role in ("worker", "producer", "operator"):
            make_user(client, role, self.queue)
            self.assertIn(f"ok    rights      sluice-{role} has every right of a", self.doctor(server, "--user", "sluice-" + role))
        login = f"redis+unix://sluice-operator@{server.socket}"
        self.assertIn("ok    rights      sluice-operator has every right of an operator", self.doctor(server, "--redis", login))
        text = self.doctor(server, "--redis", login, "--role", "worker", code=CONFIG)
        self.assertRegex(text, r"fail  rights      sluice-operator may not send \d{2,} of the \d{3} commands of a worker on queue test: ")
        about = "warn  rights      that was about sluice-operator, which logged in here; the %s's user: --user sluice-%s\n"
        self.assertIn(about % ("worker", "worker"), text)
        self.assertIn("1 failed", text)
        self.assertIn(about % ("producer", "producer"), self.doctor(server, "--redis", login, "--role", "producer", code=CONFIG))
        text = self.doctor(server, "--redis", login, "--role", "producer", "--user", "sluice-worker", code=CONFIG)
        self.assertNotIn("that was about", text)
        text = self.doctor(server, "--user", "sluice-worker", "--queue", "mail", code=CONFIG)
        self.assertRegex(text, r"fail  rights      sluice-worker may not send \d{3} of the \d{3} commands of a worker on queue mail: ")

    def test_a_worker_that_another_queue_refuses(self):
        """The worker's login may not query its own rights, but whatever is refused to the doctor is refused to the
        worker, too."""
        server = self.start_redis()
        make_user(server.client(), "worker", self.queue)
        login = f"redis+unix://sluice-worker@{server.socket}"
        text = self.doctor(server, "--redis", login)
        self.assertIn("warn  rights      cannot tell", text)
        self.assertIn("warn  keys        cannot tell", text)
        text = self.doctor(server, "--redis", login, "--queue", "mail", code=CONFIG)
        for what in ("group", "ids", "workers", "pause", "dead", "model", "precision"):
            self.assertRegex(text, rf"fail  {what} +cannot tell: .*NOPERM")
        self.assertIn("9 failed, ", text)
        text = self.doctor(server, "--redis", login, "--queue", "mail", "--role", "producer", code=CONFIG)
        self.assertIn("2 failed, ", text)  # the two rights on meta

    def test_a_pinned_precision(self):
        """The doctor uses the same words as a worker that ends for this reason."""
        server = self.start_redis()
        client = server.client()
        self.assertIn("ok    precision   the queue takes any", self.doctor(server, "--precision", "bf16"))
        client.hset("sluice:{test}:meta", "precision", "f32")
        self.assertIn("ok    precision   f32, to which the queue is pinned", self.doctor(server, "--precision", "f32"))
        self.assertIn("warn  precision   the queue is pinned to f32; a worker with precision auto may choose", self.doctor(server))
        text = self.doctor(server, "--precision", "bf16", code=CONFIG)
        line = next(line for line in text.splitlines() if line.startswith("fail  precision"))
        daemon = self.make_daemon(server, "--precision", "bf16", environment=LOGIN).start()
        self.assertEqual(daemon.wait_exit(), DATAERR)
        self.assertIn(line.split(maxsplit=2)[2], daemon.read_log())

    def test_a_server_that_wants_no_login(self):
        """Redis is one by default, until it has a password, or its default user is `off` or has no rights."""
        server = self.start_redis()
        client = server.client()
        for rule, code in (("nopass", CONFIG), ("off", 0), ("on", CONFIG), ("-exists", 0), ("+exists", CONFIG), ("resetpass", 0)):
            client.execute_command("ACL", "SETUSER", "me", "on", ">pw", "~*", "+@all")
            client.execute_command("ACL", "SETUSER", "default", rule)
            text = self.doctor(server, "--redis", f"redis+unix://me@{server.socket}", code=code)
            self.assertIn("fail  strangers   Redis lets everybody in" if code else "ok    strangers   ", text)

    def test_a_login_that_may_not_ask(self):
        server = self.start_redis()
        server.client().execute_command("ACL", "SETUSER", "default", "-acl", "-config", "-type")
        text = self.doctor(server)
        self.assertIn("warn  rights      cannot tell", text)
        self.assertIn("warn  durability  tier T1 at least", text)
        self.assertNotIn("recovery", text)
        self.assertIn("warn  keys        cannot tell", text)

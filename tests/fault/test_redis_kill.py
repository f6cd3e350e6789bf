"""kill -9 of Redis under load, and its restart from the append-only file."""
# ctest-cost: 20

import os
import random
import shutil
import subprocess
import sys
import time

import redis

from case import SOON, SluiceCase, scaled
from corpus import texts
from daemon import SOURCE
from redis_server import append_only, command

sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
from blocks import only_block  # noqa: E402


class RedisKill(SluiceCase):
    lease_ms = SOON

    def run_kills(self, count, seed, load=None):
        """Kills Redis while requests are pending, judged by the entries still pending after the restart."""
        generator = random.Random(seed)
        load = load or self.start_load(self.server, seed)
        tries = 0
        while self.journal.faults.get("redis kill mid-batch", 0) < count:
            tries += 1
            self.assertLess(tries, 10 * count + 20, "the kills miss")
            client = self.server.client()
            self.wait_until(lambda: self.pending(client) > 0, "entries in a worker's hands", ignore=(redis.ResponseError,))
            time.sleep(generator.uniform(0, 0.02))  # the random moment is the fault itself, not a wait for something
            self.server.kill()
            self.server.start()
            if self.pending(self.server.client()) > 0:
                self.journal.fault("redis kill mid-batch")
        load.stop()
        self.wait_finished(load.producer)
        self.wait_empty(load.producer)
        print(f"{count} kills mid-batch of {tries}, {len(self.journal.requests)} requests")

    def test_kill_with_aof_always_20_times(self):
        self.server = self.start_redis(aof="always")
        model = self.make_model("wide", hidden=320, heads=4)  # wide enough that replies in JSON are staged
        daemon = self.start_daemon(self.server, model=model)
        self.run_kills(scaled(20), seed=1)
        self.assertTrue(daemon.running())
        self.assert_clean(self.server, model=model, faults=["redis kill mid-batch"])

    def test_kill_with_two_workers(self):
        """All leases may be gone after a restart, and the first worker to return must not take the other's entries."""
        self.server = self.start_redis(aof="always")
        daemons = [self.start_daemon(self.server) for _ in range(2)]
        self.run_kills(scaled(8), seed=2)
        self.assertTrue(all(daemon.running() for daemon in daemons))
        self.assert_clean(self.server, faults=["redis kill mid-batch"])

    def test_kill_with_every_feature_12_times(self):
        self.server = self.start_redis(aof="always")
        daemons = [self.start_daemon(self.server) for _ in range(2)]
        self.run_kills(scaled(12), seed=4, load=self.start_mixed(self.server, seed=4))
        self.assertTrue(all(daemon.running() for daemon in daemons))
        self.assert_clean(self.server, faults=["redis kill mid-batch"])

    def test_ten_restarts_poison_nothing(self):
        """Each restart interrupts suspects in their lonely runs, and none of these runs is charged, because the workers
        lived. The engine is slow, so that the same requests are hit again and again."""
        self.server = self.start_redis(aof="always")
        slow = self.make_faulty(self.server, faults=["slow:{kernel}:900"])
        victim = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000")
        sender = self.producer(self.server)
        for number in range(4):
            sender.submit(f"the kernel {number}", id=f"slow-{number}", encoding="f32")
        self.wait_until(lambda: self.pending(self.server.client()) == 4, "all entries to be held")
        victim.kill()
        self.journal.kills.append(victim.last_name())
        slow.start().wait_ready(self.server.client())
        for _ in range(10):
            self.wait_until(lambda: self.server.client().hlen(sender.key("trouble")) > 0 or sender.finished(self.journal.requests.values()),
                            "a lonely run or the end", ignore=(redis.ConnectionError,))
            self.journal.fault("restart in a lonely run", self.server.client().hlen(sender.key("trouble")) > 0)
            self.server.kill()
            self.server.start()
            self.wait_until(lambda: slow.alive_key(self.server.client()), "the worker to be back")
        self.assertTrue(slow.running())
        self.finish(self.server, sender, faults=["restart in a lonely run"])

    def test_killed_in_the_middle_of_a_transaction(self):
        """The file ends with half a transaction. Writes confirmed after the restart survive the next kill, and the half
        never takes effect, whether it is followed by no transaction, as at first, or by many. Redis alone ensures
        neither."""
        self.server = self.start_redis(aof="always")
        sender = self.producer(self.server)
        first, second = command("MULTI") + command("SET", "half", "1"), command("SET", "other", "1")
        for torn in (first[:9], first[:-1], first, first + second[:-1], first + second + command("EXEC")[:-1]):
            self.tear(torn)
            sender.submit_many(texts(5, seed=len(torn)), encoding="f32")
            self.kill_and_start()
            self.assertEqual(sender.unfinished(), len(self.journal.requests))
        daemon = self.start_daemon(self.server)
        self.wait_finished(sender)
        self.tear(first + second[:-1])
        self.wait_finished(sender, sender.submit_many(texts(20, seed=1), encoding="f32"))
        self.kill_and_start()
        self.assertEqual(self.server.client().exists("half", "other"), 0)
        self.finish(self.server, sender, faults=["torn transaction"])
        self.assertTrue(daemon.running())

    def test_a_backup_brings_back_what_waited(self):
        """The backup is restored with the commands of docs/redis.md."""
        self.server = self.start_redis(aof="always")
        sender = self.producer(self.server)
        sender.submit_many(texts(20, seed=1), encoding="f32")
        with open(os.path.join(SOURCE, "docs", "redis.md"), encoding="utf-8") as file:
            page = file.read()

        def run(mark):
            code = only_block(page, mark).replace("redis-cli", f"redis-cli -s {self.server.socket}").replace(
                "/usr/local/share/sluice/", os.path.join(SOURCE, "config/"))
            code = code.replace("/var/lib/redis", self.server.directory).replace("sluice-backup.tar", self.path("backup.tar"))
            done = subprocess.run(["sh", "-ec", code], cwd=SOURCE, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run("tar -C /var/lib/redis -cf")
        self.client = self.server.client()
        self.assertEqual(self.client.config_get("auto-aof-rewrite-percentage"), {"auto-aof-rewrite-percentage": "100"})
        self.client.xadd(sender.stream, {"text": "later than the copy", "id": "later"})
        self.server.kill()
        shutil.rmtree(os.path.join(self.server.directory, "appendonlydir"))
        run("tar -C /var/lib/redis -xf")
        self.server.start()
        self.assertEqual(sender.unfinished(), 20)
        self.start_daemon(self.server)
        self.wait_finished(sender)
        self.assertFalse(self.server.client().exists(sender.key("reply:later")))

    def kill_and_start(self):
        self.server.kill()
        self.server.start()

    def tear(self, torn):
        """Simulates a kill -9 at the moment when `torn`, a part of a transaction, has been written."""
        self.server.kill()
        with open(append_only(self.server.directory), "ab") as file:
            file.write(torn)
        self.server.start()
        self.journal.fault("torn transaction")

    def test_kill_of_both(self):
        """Redis and the worker die together, as when the machine crashes; both come back."""
        self.server = self.start_redis(aof="always")
        daemon = self.start_daemon(self.server)
        load = self.start_load(self.server, seed=3)
        while self.journal.faults.get("both dead", 0) < scaled(5):
            self.wait_until(lambda: self.pending(self.server.client()) > 0, "entries in the worker's hands")
            self.server.kill()
            daemon.kill()
            self.journal.kills.append(daemon.last_name())
            self.server.start()
            self.journal.fault("both dead", self.pending(self.server.client()) > 0)
            self.restart(daemon, self.server)
        load.stop()
        self.wait_finished(load.producer)
        self.finish(self.server, load.producer, faults=["both dead"])

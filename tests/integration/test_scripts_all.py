"""Properties of all scripts of lua/, tested on every scene of support/script_scenes.py with a real server: they either
stop without a trace or do all of their work; they may be repeated; they touch no undeclared key."""
# ctest: redis
# ctest-once
# ctest-cost: 20

import hashlib
import os
import re
import tempfile

import process
import redis
from case import SCALE, RedisCase, SluiceCase
from daemon import SOURCE
from ports import free_port
from proxy import split_command
from redis_server import RedisServer, append_only, connect
from script_scenes import SCENES
from scripts import Desk, plain, refused, scripts, source

MANIFEST = b"""file appendonly.aof.1.base.aof seq 1 type b
file appendonly.aof.1.incr.aof seq 1 type i
"""
AS_USER = {"username": "worker", "password": "x"}


def places(written, start):
    """Returns the places at which to cut an append-only file, from `start` on."""
    sizes = [start]
    while start < len(written):
        _, size = split_command(written[start:])
        sizes += [start + size // 2, start + size - 1, start + size]
        start += size
    return sizes


class AllScripts(RedisCase):
    redis_options = {"aof": None}

    def setUp(self):
        super().setUp()
        self.desk = Desk(self.client)

    def prepare(self, scene):
        """Prepares the scene on an empty server, and returns its call."""
        self.client.config_set("maxmemory", 0)
        self.client.flushall()
        scene.prepare(self.desk)
        return scene.call(self.desk)

    def places(self, scene):
        return {name: self.desk.places(name) for name in scene.names}

    def places_after(self, scene):
        call = self.prepare(scene)
        self.assertEqual(call.run(self.client), scene.result)
        return self.places(scene)

    def assert_accounted(self, scene, what):
        """Asserts that no request is lost and none exists twice."""
        for name, place in self.places(scene).items():
            copies = place["stream"] + place["parked"]
            self.assertTrue(copies or place["reply"], f"{what}: {name} is lost")
            self.assertLessEqual(copies, 1, f"{what}: {name} is there twice: {place}")

    def worker(self, *rights):
        self.client.acl_setuser("worker", enabled=True, reset=True, passwords=["+x"])
        self.client.execute_command("ACL", "SETUSER", "worker", *rights)
        return self.server.client(**AS_USER)

    def each(self, check):
        for scene in SCENES:
            with self.subTest(scene=scene.name):
                check(scene)

    def test_every_script_has_a_scene(self):
        covered = {scene.call(self.desk).script for scene in SCENES}
        self.assertEqual(covered, set(scripts()))

    def test_result_and_repetition(self):
        def check(scene):
            call = self.prepare(scene)
            self.assertEqual(call.run(self.client), scene.result)
            after = self.desk.dump()
            self.assertEqual(call.run(self.client), scene.again)
            self.assert_accounted(scene, "repeated")
            if scene.steady:
                self.assertEqual(self.desk.dump(), after)

        self.each(check)

    def test_undeclared_keys_are_not_touched(self):
        """The user has rights for the declared keys only: Redis checks each command of the script."""
        def check(scene):
            call = self.prepare(scene)
            worker = self.worker("+@all", "resetkeys", *(f"~{key}" for key in call.keys))
            self.assertEqual(call.run(worker), scene.result)

        self.each(check)

    def test_shipped_users(self):
        """The users of config/acl can run their scripts: the worker all except requeue, which is the operator's, and bucket,
        which a producer may call and cannot load."""
        for role in ("worker", "operator", "producer"):
            with open(os.path.join(SOURCE, "config", "acl", f"{role}.acl"), encoding="utf-8") as file:
                rules = file.read().replace("{default}", "{q}").split(maxsplit=2)[2].strip()
            words = re.findall(r"\([^)]*\)|\S+", rules)
            self.client.execute_command("ACL", "SETUSER", f"sluice-{role}", "reset", *words, ">x")

        def check(scene):
            call = self.prepare(scene)
            role = {"requeue": "operator", "bucket": "producer"}.get(call.script, "worker")
            user = self.server.client(username=f"sluice-{role}", password="x")
            digest = (self.client if role == "producer" else user).script_load(source(call.script))
            self.assertEqual(plain(user.evalsha(digest, len(call.keys), *call.keys, *call.arguments)), scene.result)

        self.each(check)

    def test_cluster(self):
        server = RedisServer(self.directory, "cluster", aof=None, options=["--cluster-enabled", "yes", "--cluster-port", str(free_port())])
        self.children.append(server)
        client = redis.Redis(port=server.start_on_tcp())
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        self.wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", "the cluster to be up")
        desk = Desk(client)

        def check(scene):
            client.flushall()
            scene.prepare(desk)
            self.assertEqual(scene.call(desk).run(client), scene.result)

        self.each(check)

    def test_each_right_removed(self):
        """The call fails at each step in turn: nothing is lost, and the same call with all rights does the rest."""
        removed = []

        def check(scene):
            expected = self.places_after(scene)
            for command in self.commands_of(scene):
                call = self.prepare(scene)
                error = refused(self.worker("~*", "+@all", f"-{command}"), call)
                self.assertRegex(error, "^NOPERM the user may not", f"without {command}")
                self.assert_accounted(scene, f"without {command}")
                (scene.repeat(self.desk) if scene.repeat else call).run(self.client)
                self.assertEqual(self.places(scene), expected, f"repeated after {command} was missing")
                removed.append(command)

        self.each(check)
        self.assertGreater(len(removed), 100)

    def commands_of(self, scene):
        """The commands that a scene's call runs, as ACL rules name them."""
        call = self.prepare(scene)
        self.client.config_resetstat()
        call.run(self.client)
        used = [name.removeprefix("cmdstat_") for name in self.client.info("commandstats")]
        return [name for name in used if name not in ("eval", "config|resetstat")]

    def test_wrong_type_under_each_key(self):
        """Side keys are skipped, or replaced if they are the reply's; any other key stops the call before it has
        changed anything, and once the key is restored the same call does its work."""
        def check(scene):
            expected = self.places_after(scene)
            for key in dict.fromkeys(self.prepare(scene).keys):
                if ":stage:" in key:
                    continue  # the worker has just written it, and nobody else knows it
                call = self.prepare(scene)
                there = self.client.exists(key)
                if there:
                    self.client.rename(key, self.desk.key("aside"))
                if scene.name in ("join", "renew", "release"):
                    self.client.rpush(key, "junk")
                else:
                    self.client.set(key, "junk")
                before = self.desk.dump()
                error = refused(self.client, call)
                if any(key == self.desk.key(suffix) for suffix in scene.side):
                    self.assertEqual(error, "", key)
                    self.assert_work_done(scene, expected, key)
                    continue
                if not error:  # this call did not need to read the key
                    if not any(key == self.desk.key(suffix) for suffix in scene.presence):
                        self.assert_work_done(scene, expected, key)
                    continue
                self.assertRegex(error, "^WRONGTYPE", key)
                self.assertEqual(self.desk.dump(), before, f"changed something before it found {key}")
                self.client.delete(key)
                if there:
                    self.client.rename(self.desk.key("aside"), key)
                self.assertEqual(call.run(self.client), scene.result, key)

        self.each(check)

    def assert_work_done(self, scene, expected, key):
        for name, place in self.places(scene).items():
            self.assertEqual((place["reply"], place["stream"]), (expected[name]["reply"], expected[name]["stream"]), key)

    def test_full_redis(self):
        """In a full Redis, scripts that end requests in flight run; those that add requests are refused and change
        nothing."""
        def check(scene):
            call = self.prepare(scene)
            before = self.desk.dump()
            self.client.config_set("maxmemory", 1)
            if not scene.when_full:
                self.assertRegex(refused(self.client, call), "^OOM")
                self.assertEqual(self.desk.dump(), before)
                self.client.config_set("maxmemory", 0)
            self.assertEqual(call.run(self.client), scene.result)

        self.each(check)


class Embedded(SluiceCase):
    def test_the_program_has_the_scripts_that_the_tests_call(self):
        server = self.start_redis()
        self.start_daemon(server)
        for name in scripts():
            digest = hashlib.sha1(source(name).encode()).hexdigest()
            self.assertEqual(server.client().script_exists(digest), [True], name)

    def test_an_include_keeps_the_lines_of_its_script(self):
        for name in scripts():
            with open(os.path.join(SOURCE, "lua", name + ".lua"), encoding="utf-8") as file:
                self.assertEqual(source(name).count("\n"), file.read().count("\n"), name)
            self.assertNotIn("-- include", source(name))


class CutFile(SluiceCase):
    """A server starts with an append-only file that is cut within a script's writes: it has all of the script's
    effects, or none. The cuts are between all commands, in the middle of each and before its last byte; at every byte
    with SLUICE_FAULT_SCALE=20."""

    def cut(self, *scenes):
        for scene in SCENES:
            if scene.name in scenes:
                with self.subTest(scene=scene.name):
                    self.assertGreater(self.cut_scene(scene), 3)

    def cut_scene(self, scene):
        server = RedisServer(self.directory, scene.name, aof="no")
        self.children.append(server)
        desk = Desk(server.start().client())
        scene.prepare(desk)
        file = append_only(server.directory)
        call, before, start = scene.call(desk), desk.dump(), os.path.getsize(file)
        self.assertEqual(call.run(desk.client), scene.result)
        after, end = desk.dump(), os.path.getsize(file)
        server.kill()
        self.assertNotEqual(before, after)
        with open(file, "rb") as whole:
            written = whole.read()
        self.assertEqual(len(written), end)
        sizes = places(written, start) if SCALE < 20 else range(start, end + 1)
        seen = [self.dump_of(written[:size]) for size in sizes]
        for size, dump in zip(sizes, seen):
            self.assertIn(dump, (before, after), f"a mixed state after {size - start} of {end - start} bytes")
        self.assertEqual((seen[0], seen[-1]), (before, after))
        return len(seen)

    def dump_of(self, written):
        """Returns the contents of a server that starts with this append-only file."""
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            os.mkdir(os.path.join(directory, "appendonlydir"))
            files = {"appendonly.aof.manifest": MANIFEST, "appendonly.aof.1.base.aof": b"",
                     "appendonly.aof.1.incr.aof": written}
            for name, content in files.items():
                with open(os.path.join(directory, "appendonlydir", name), "wb") as file:
                    file.write(content)
            server = process.start(["redis-server", "--port", "0", "--unixsocket", f"{directory}/s", "--dir", directory,
                                    "--save", "", "--appendonly", "yes", "--appendfsync", "no", "--logfile", "log",
                                    "--aof-load-truncated", "yes", "--aof-use-rdb-preamble", "no"])
            try:
                with connect(f"{directory}/s") as client:
                    self.wait_until(client.ping, "the server", ignore=(redis.ConnectionError, redis.BusyLoadingError))
                    return Desk(client).dump()
            finally:
                process.end(server)

    def test_cut_settle(self):
        self.cut("settle")

    def test_cut_settle_dead(self):
        self.cut("settle_dead", "settle_gone", "settle_staged", "settle_plain")

    def test_cut_defer(self):
        self.cut("defer", "charge")

    def test_cut_promote(self):
        self.cut("promote", "mend")

    def test_cut_reclaim(self):
        self.cut("reclaim", "release")

    def test_cut_cancel(self):
        self.cut("cancel_unread", "cancel_held")

    def test_cut_cancel_parked(self):
        self.cut("cancel_parked", "cancel_retried", "cancel_unknown")

    def test_cut_requeue(self):
        self.cut("requeue")

    def test_cut_pulse(self):
        self.cut("pulse", "join", "renew")

    def test_cut_shed(self):
        self.cut("shed", "fair", "sweep")

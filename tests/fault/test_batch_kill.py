"""kill -9 of `sluice batch`, of the workers of its queue and of Redis: the same command goes on, and both outputs have
the bytes of an undisturbed run, with a line for each request."""
# ctest-cost: 40

import itertools
import os
import random
import re
import shutil
import subprocess

import process
from batch_case import FAILED, BatchCase, request
from case import SANITIZED, scaled
from daemon import BINARY

SHIM = os.path.join(os.path.dirname(BINARY), "tests", "libcalls_shim.so")


class BatchKill(BatchCase):
    requests = 1200

    def setUp(self):
        super().setUp()
        self.model = self.make_heavy()
        source = self.write_requests(self.requests, seed=5)
        self.source = self.write("in.jsonl", self.content(source).replace(b'"model": "tiny"', b'"model": "heavy"'))
        self.generator = random.Random(20261127)

    def local(self):
        return "--model", self.model, "--precision", "f32"

    def command(self, output, *flags):
        return [BINARY, "batch", self.source, "--output", output, "--look-ahead", "500", "--progress", "none", *map(str, flags)]

    def finish(self, output, *flags):
        """Runs the batch to its end; returns what it said."""
        done = subprocess.run(self.command(output, *flags), env=process.clean_environment(), capture_output=True, check=False, timeout=300)
        self.assertEqual(done.returncode, FAILED, done.stderr)

    def outputs(self, output):
        return [self.content(output), self.content(output.replace(".jsonl", ".errors.jsonl"))]

    def straight(self):
        """The outputs of an undisturbed run, which have each request once and in its place."""
        output = self.path("straight.jsonl")
        self.finish(output, *self.local())
        good, failed = self.answers("straight.jsonl")
        lines = self.content(self.source).decode().splitlines()
        self.assertEqual(len(good) + len(failed), len(lines))
        named = [re.search('"custom_id": "(.*?)"', line) for line in lines]
        order = {match[1]: number for number, match in enumerate(named) if match}
        for part in (good, failed):
            places = [order.pop(line["custom_id"]) for line in part if line["custom_id"]]
            self.assertEqual(places, sorted(places))
        self.assertEqual(order, {})
        self.assertGreater(len(failed), 10)
        return self.outputs(output)

    def written(self, output):
        """Bytes that the batch has written so far, in all of its files."""
        total = 0
        for top, _, names in os.walk(self.directory):
            for path in (os.path.join(top, name) for name in names):
                if path.startswith(output.removesuffix(".jsonl") + "."):
                    try:
                        total += os.stat(path).st_blocks * 512
                    except FileNotFoundError:
                        pass
        return total

    def start_batch(self, output, *flags):
        child = process.start(self.command(output, *flags), stderr=subprocess.PIPE, env=process.clean_environment())
        self.addCleanup(lambda: (process.end(child), child.stderr.close()))
        return child

    def run_until(self, output, more, *flags):
        """Runs the batch until it has written `more` further bytes, then kills it. Returns whether the kill hit."""
        child = self.start_batch(output, *flags)
        before = self.written(output)
        self.wait_until(lambda: child.poll() is not None or self.written(output) >= before + more, "progress")
        process.end(child)
        self.assertIn(child.returncode, (-9, FAILED), child.stderr.read())
        return child.returncode == -9

    def test_kills_at_random_moments(self):
        wanted = self.straight()
        size = sum(map(len, wanted))
        kills = jobs = 0
        while kills < scaled(25):
            output = self.path(f"killed-{jobs}.jsonl")
            hit = True
            while hit and kills < scaled(25):
                hit = self.run_until(output, self.generator.randrange(size // 3), *self.local())
                kills += hit
            self.finish(output, *self.local())
            self.assertEqual(self.outputs(output), wanted)
            self.assertFalse(os.path.exists(output + ".job"))
            jobs += 1
        print(f"{kills} kills of {jobs} batches")

    def test_kills_of_batch_worker_and_redis(self):
        wanted = self.straight()
        server = self.start_redis(aof="always")
        daemons = [self.start_daemon(server, model=self.model) for _ in range(2)]
        flags = ("--redis", server.socket, "--queue", self.queue)
        results = f"sluice:{{{self.queue}}}:results:bulk"
        output = self.path("queue.jsonl")
        kills = 0
        child = self.start_batch(output, *flags)
        for victim in ("batch", "worker", "redis", "batch", "worker", "redis", "batch"):
            before, more = server.client().xlen(results), self.generator.randrange(1, 6)
            self.wait_until(lambda: child.poll() is not None or server.client().xlen(results) >= before + more, "answers")
            if child.poll() is not None:
                break
            kills += 1
            if victim == "batch":
                process.end(child)
                child = self.start_batch(output, *flags)
            elif victim == "worker":
                daemons[kills % 2].kill()
                self.restart(daemons[kills % 2], server)
            else:
                server.kill()
                server.start()
        said = child.communicate(timeout=120)[1]
        self.assertEqual(child.returncode, FAILED, said)
        self.assertGreaterEqual(kills, 3)
        self.assertEqual(self.outputs(output), wanted)
        print(f"{kills} kills")


class BatchEachCall(BatchCase):
    """A batch is killed before each call that changes or syncs a file (under a sanitizer before every fifth), as is the
    next run of a finished one whose input has grown."""

    def kill_each(self, before, after, *flags):
        output, finished = self.path("killed.jsonl"), self.path("finished")
        source = self.write("in.jsonl", "\n".join(after))
        self.batch(source, "straight.jsonl", *flags, "--overwrite", code=FAILED)
        wanted = [self.content(self.path(name)) for name in ("straight.jsonl", "straight.errors.jsonl")]
        os.mkdir(finished)
        if before:
            self.batch(self.write("in.jsonl", "\n".join(before)), "killed.jsonl", *flags, "--overwrite", code=FAILED)
            for name in os.listdir(self.directory):
                if name.startswith("killed."):
                    shutil.move(self.path(name), finished)
        self.write("in.jsonl", "\n".join(after))
        for kills, call in enumerate(itertools.count(1, 5 if SANITIZED else 1), start=1):
            for name in [name for name in os.listdir(self.directory) if name.startswith("killed.")]:
                shutil.rmtree(self.path(name)) if os.path.isdir(self.path(name)) else os.remove(self.path(name))
            shutil.copytree(finished, self.directory, dirs_exist_ok=True)
            environment = {"LD_PRELOAD": SHIM, "CALLS_SHIM_KILL": str(call), "ASAN_OPTIONS": "verify_asan_link_order=0"}
            killed = self.run_sluice("batch", "--model", self.make_model(), "--precision", "f32", "--progress", "none", source, "--output", output,
                                     *flags, environment=environment)
            if killed.returncode != -9:
                break
            self.batch(source, "killed.jsonl", *flags, code=FAILED)
            self.assertEqual([self.content(self.path(name)) for name in ("killed.jsonl", "killed.errors.jsonl")], wanted,
                             f"killed before call {call}")
        self.assertEqual(killed.returncode, FAILED, killed.stderr)
        self.assertGreater(call, 10)
        print(f"{kills - 1} kills")
        shutil.rmtree(finished)

    def test_every_call(self):
        lines = [request(f"n{i}", [f"text {i % 7}", f"text {i}"], dimensions=3) for i in range(40)]
        lines[9] = lines[30] = "{broken"
        self.kill_each(None, lines, "--look-ahead", "16")
        self.kill_each(lines[:25], lines, "--look-ahead", "16")
        self.kill_each(lines[:9] + lines[10:20] + ["{}"], lines[:9] + lines[10:20] + ["{}"] + lines[20:])

"""kill -9 of `sluice generate`: the same command goes on with the file, which has the bytes of an undisturbed run."""
# ctest-cost: 20

import itertools
import json
import os
import random
import subprocess

import process
from case import SANITIZED, SluiceCase, scaled
from daemon import BINARY
from language_model import make_llama

SHIM = os.path.join(os.path.dirname(BINARY), "tests", "libcalls_shim.so")


class GenerateKill(SluiceCase):
    def setUp(self):
        super().setUp()
        self.model = make_llama(self.path("model"))
        self.generator = random.Random(20261128)

    def write_prompts(self, name, count):
        """Prompts of all lengths, with equal beginnings, and some that fail."""
        lines = []
        for number in range(count):
            text = "Once upon a time there was " * self.generator.randrange(0, 6) + f"number {number}"
            lines.append(json.dumps({"prompt": "" if number % 29 == 7 else text}))
        return self.write(name, "\n".join(lines))

    def command(self, source, output):
        return [BINARY, "generate", "--model", self.model, "--precision", "f32", "--input", source, "--output", output,
                "--temperature", "1", "--n", "2", "--max-tokens", "40", "--progress", "none"]

    def finish(self, source, output):
        done = subprocess.run(self.command(source, output), env=process.clean_environment(), capture_output=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertFalse(os.path.exists(output + ".job"))
        found = []
        for path in (output, output + ".manifest.json"):
            with open(path, "rb") as file:
                found.append(file.read())
        return found[0], found[1].replace(os.path.basename(output).encode(), b"")

    def size(self, output):
        try:
            return os.stat(output).st_size
        except FileNotFoundError:
            return 0

    def test_kills_at_random_moments(self):
        source = self.write_prompts("in.jsonl", 400)
        wanted = self.finish(source, self.path("straight.jsonl"))
        self.assertEqual(wanted[0].count(b"\n"), 800 - len(range(7, 400, 29)))
        kills = jobs = 0
        while kills < scaled(30):
            output = self.path(f"killed-{jobs}.jsonl")
            hit = True
            while hit and kills < scaled(30):
                child = process.start(self.command(source, output), stderr=subprocess.PIPE, env=process.clean_environment())
                before, more = self.size(output), self.generator.randrange(len(wanted[0]) // 3)
                self.wait_until(lambda: child.poll() is not None or self.size(output) >= before + more, "progress")
                process.end(child)
                self.assertIn(child.returncode, (-9, 1), child.stderr.read())
                child.stderr.close()
                hit = child.returncode == -9
                kills += hit
            self.assertEqual(self.finish(source, output), wanted)
            jobs += 1
        print(f"{kills} kills of {jobs} jobs")

    def kill_each(self, prepare, source):
        """Kills the job before each call that changes or syncs a file, one kill for each run."""
        wanted = self.finish(source, self.path("straight.jsonl"))
        for call in itertools.count(1, 5 if SANITIZED else 1):
            output = self.path(f"killed-{call}.jsonl")
            prepare(output)
            environment = {"LD_PRELOAD": SHIM, "CALLS_SHIM_KILL": str(call), "ASAN_OPTIONS": "verify_asan_link_order=0"}
            killed = subprocess.run(self.command(source, output), env=process.clean_environment(environment), capture_output=True, check=False,
                                    timeout=120)
            if killed.returncode != -9:
                break
            self.assertEqual(self.finish(source, output), wanted, f"killed before call {call}")
        self.assertEqual(killed.returncode, 1, killed.stderr)
        self.assertGreater(call, 10)
        print(f"killed before {call - 1} calls")

    def test_a_kill_before_each_call(self):
        self.kill_each(lambda output: None, self.write_prompts("in.jsonl", 12))

    def test_a_kill_before_each_call_of_a_job_that_goes_on(self):
        source = self.write_prompts("in.jsonl", 16)
        with open(source, encoding="utf-8") as file:
            part = self.write("part.jsonl", "\n".join(file.read().split("\n")[:9]))
        self.kill_each(lambda output: self.finish(part, output), source)

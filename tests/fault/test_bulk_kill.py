"""kill -9 of bulk jobs at random bytes of their progress: the same command again goes on, and in the end every file has
the bytes of an uninterrupted run; no row that was on record is computed again."""
# ctest-cost: 15

import os
import random
import subprocess

import process
from bulk_case import FAILED, BulkCase
from case import scaled
from daemon import BINARY


class BulkKill(BulkCase):
    def setUp(self):
        super().setUp()
        self.source = self.write_rows(1500, seed=11, broken=(101, 7))
        self.model = self.make_heavy()
        self.generator = random.Random(20261121)

    def command(self, output, *flags):
        return [BINARY, "embed", "--model", self.model, "--precision", "f32", self.source, "--output", output, "--look-ahead", "300",
                "--progress", "none", *flags]

    def progress(self, output):
        """Bytes that the job has written so far, in all of its files."""
        total = 0
        for top, _, names in os.walk(self.directory):
            for name in names:
                path = os.path.join(top, name)
                if path.startswith(output):
                    try:
                        total += os.stat(path).st_blocks * 512
                    except FileNotFoundError:
                        pass
        return total

    def run_until(self, output, more, flags):
        """Runs the job until it has written so many bytes more, then kills it. Says whether the kill hit."""
        child = process.start(self.command(output, *flags), stderr=subprocess.PIPE, env=process.clean_environment())
        files = output.rstrip("/")
        before = self.progress(files)
        self.wait_until(lambda: child.poll() is not None or self.progress(files) >= before + more, "progress")
        process.end(child)
        self.assertIn(child.returncode, (-9, FAILED), child.stderr.read())
        child.stderr.close()
        return child.returncode == -9

    def run_kills(self, ending, count, *flags):
        straight = self.path("straight" + ending)
        done = subprocess.run(self.command(straight, *flags), env=process.clean_environment(), check=False)
        self.assertEqual(done.returncode, FAILED)
        wanted = self.files(straight.rstrip("/"))
        size = sum(map(len, wanted.values()))
        kills = jobs = 0
        while kills < count:
            output = self.path(f"killed-{jobs}" + ending)
            hit = True
            while hit and kills < count:
                hit = self.run_until(output, self.generator.randrange(size // 3), flags)
                kills += hit
            finished = subprocess.run(self.command(output, *flags), env=process.clean_environment(), check=False)
            self.assertEqual(finished.returncode, FAILED)
            self.assertEqual(self.files(output.rstrip("/")), wanted)
            jobs += 1
        print(f"{kills} kills of {jobs} jobs")

    def test_npy(self):
        self.run_kills(".npy", scaled(16))

    def test_json_lines(self):
        self.run_kills(".jsonl", scaled(12), "--keep", "n")

    def test_shards_of_chunks(self):
        self.run_kills("/", scaled(12), "--shard-rows", "350", "--chunk", "tokens:12,overlap:3")

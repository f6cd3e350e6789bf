"""kill -9 of bulk jobs after random numbers of bytes written: the same command resumes the job, in the end every file
has the bytes of an uninterrupted run, and no recorded row is computed again."""
# ctest-cost: 40

import itertools
import json
import os
import random
import re
import shutil
import struct
import subprocess

import process
from bulk_case import FAILED, BulkCase
from case import SANITIZED, scaled
from daemon import BINARY

SHIM = os.path.join(os.path.dirname(BINARY), "tests", "libcalls_shim.so")


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
        """Runs the job until it has written `more` further bytes, then kills it. Returns whether the kill hit."""
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

    def test_changed_rows(self):
        """Kills a job while it recomputes rows of a finished run; sometimes the change is undone meanwhile. When a run
        ends, the files are those of a new job with the same input, except for its counts of copies."""
        lines = self.content(self.source).decode().splitlines()
        changed = list(lines)
        for i in range(0, 1500, 3):
            if "broken" not in lines[i]:
                changed[i] = json.dumps({"text": f"another text {i}", "n": i})
        for ending, flags in ((".npy", ("--id-field", "n")), (".jsonl", ("--id-field", "n", "--keep", "n"))):
            wanted = {}
            for name, content in (("old", lines), ("new", changed)):
                self.write("in.jsonl", "\n".join(content))
                straight = self.path(name + ending)
                self.assertEqual(subprocess.run(self.command(straight, *flags), env=process.clean_environment(), check=False).returncode, FAILED)
                wanted[name] = {path: data for path, data in self.files(straight).items() if "manifest" not in path}
            output = self.path("killed" + ending)
            self.write("in.jsonl", "\n".join(lines))
            self.assertEqual(subprocess.run(self.command(output, *flags), env=process.clean_environment(), check=False).returncode, FAILED)
            kills = runs = 0
            while kills < scaled(8):
                runs += 1
                name = "new" if runs % 2 else "old"
                self.write("in.jsonl", "\n".join(changed if name == "new" else lines))
                for _ in range(2):
                    kills += self.run_until_write(output, flags)
                if self.generator.random() < 0.5:
                    continue  # the other input is next
                done = subprocess.run(self.command(output, *flags), env=process.clean_environment(), check=False)
                self.assertEqual(done.returncode, FAILED)
                self.assertEqual({path: data for path, data in self.files(output).items() if "manifest" not in path}, wanted[name])
            print(f"{kills} kills of {runs} changes, {ending}")

    def run_until_write(self, output, flags):
        """Runs the job, and kills it at some moment after it has begun to change files. Returns whether the kill
        hit."""
        def stamps():
            found = {}
            for name in os.listdir(self.directory):
                path = self.path(name)
                try:
                    if path.startswith(output) and os.path.isfile(path):
                        found[name] = os.stat(path).st_mtime_ns
                except FileNotFoundError:  # it was renamed just now
                    pass
            return found
        before, changes = stamps(), self.generator.randrange(1, 5)
        child = process.start(self.command(output, *flags), stderr=subprocess.PIPE, env=process.clean_environment())
        seen = [before]

        def changed_often():
            now = stamps()
            if now != seen[-1]:
                seen.append(now)
            return child.poll() is not None or len(seen) > changes
        self.wait_until(changed_often, "changes of the files")
        process.end(child)
        self.assertIn(child.returncode, (-9, FAILED), child.stderr.read())
        child.stderr.close()
        return child.returncode == -9


class EachCall(BulkCase):
    """A finished job is run again, with its input or a changed one, and killed before each call that changes or syncs a
    file (under a sanitizer before every fifth), one kill per run. The next run ends with the files of a new job; where
    ids identify the rows, also if the change has been undone."""

    def uncounted(self, output):
        """All files of the job. A rerun counts other rows as copies than a new job; this difference, recorded in the
        manifest and in the lowest bit of the hashes, is left out."""
        files = self.files(output)
        counts = json.loads(files[".manifest.json"].decode())
        self.assertEqual(counts["computed"] + counts["copied"] + counts["failed"], counts["rows"])
        files[".manifest.json"] = re.sub(rb'"(computed|copied)": \d+,', b"", files[".manifest.json"])
        files[".hashes"] = [(id, content & ~1) for id, content in struct.iter_unpack("<QQ", files[".hashes"])]
        return files

    def restore(self, output, folder):
        for name in os.listdir(self.directory):
            path = self.path(name)
            if path.startswith(output):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        shutil.copytree(folder, self.directory, dirs_exist_ok=True)

    def kill_each(self, ending, before, after, *flags):
        output, folder = self.path("killed" + ending), self.path("finished")
        wanted, inputs = [], [before, after]
        for lines in inputs:
            straight = self.path("straight" + ending)
            self.job(self.write("in.jsonl", "\n".join(lines)), "--output", straight, *flags, "--overwrite", code=FAILED)
            wanted.append(self.uncounted(straight))
        source = self.write("in.jsonl", "\n".join(before))
        self.job(source, "--output", output, *flags, "--overwrite", code=FAILED)
        os.mkdir(folder)
        for name in os.listdir(self.directory):
            if self.path(name).startswith(output):
                shutil.copy(self.path(name), folder)
        for kills, call in enumerate(itertools.count(1, 5 if SANITIZED else 1), start=1):
            self.restore(output, folder)
            self.write("in.jsonl", "\n".join(after))
            environment = {"LD_PRELOAD": SHIM, "CALLS_SHIM_KILL": str(call), "ASAN_OPTIONS": "verify_asan_link_order=0"}
            killed = self.run_sluice("embed", "--model", self.make_model(), "--precision", "f32", "--progress", "none", source, "--output",
                                     output, *flags, environment=environment)
            if killed.returncode != -9:
                break
            now, begins_again = (kills % 2, ()) if "--id-field" in flags else (1, ("--overwrite",) * (kills % 2))
            self.write("in.jsonl", "\n".join(inputs[now]))
            self.job(source, "--output", output, *flags, *begins_again, code=FAILED)
            self.assertEqual(self.uncounted(output), wanted[now], f"killed before call {call}, then {'the new' if now else 'the old'} input")
        self.assertEqual(killed.returncode, FAILED, killed.stderr)
        self.assertEqual(self.uncounted(output), wanted[1])
        self.assertGreater(call, 10)
        print(f"{kills - 1} kills, {ending} {' '.join(flags)}")
        shutil.rmtree(folder)

    def rows(self, changes):
        lines = [json.dumps({"id": f"n{i}", "text": f"text {i % 30}"}) for i in range(40)]
        for row, change in changes.items():
            lines[row] = change if isinstance(change, str) else json.dumps({"id": f"n{row}", "text": change[0]})
        return lines

    def test_failed_rows(self):
        before = self.rows({3: "{broken", 7: "{broken", 19: [""]})
        for ending in (".npy", ".jsonl"):
            self.kill_each(ending, before, before, "--look-ahead", "16")
            self.kill_each(ending, before, self.rows({3: ["mended"], 7: "{broken", 19: [""]}), "--look-ahead", "16")

    def test_changed_rows(self):
        before, after = self.rows({3: "{broken", 7: "{broken"}), self.rows({3: ["mended"], 5: ["other"], 7: "{broken", 11: "{broken", 20: ["other"]})
        for ending in (".npy", ".jsonl"):
            self.kill_each(ending, before, after, "--id-field", "id")
            self.kill_each(ending, after, before, "--id-field", "id", "--look-ahead", "16")

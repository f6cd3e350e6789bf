"""Bulk jobs over an engine that fails: rows that have a vector keep it, rows without one are reported, and a resumed
job ends in the same bytes."""
# ctest: threads
# ctest-cost: 3

import fcntl
import json
import math
import os
import struct
import subprocess

import process
from bulk_case import FAILED, OSERR, SOFTWARE, BulkCase
from corpus import texts
from daemon import BINARY, FAULTY
from vectors import read_npy

WORD = "kernel"  # the word that triggers a fault; no other text of these tests has it


class BulkEngine(BulkCase):
    def setUp(self):
        super().setUp()
        self.batch = [text.replace(WORD, "music") for text in texts(300, seed=14, longest=12)]

    def command(self, output, binary):
        return [binary, "embed", "--model", self.make_model(), "--precision", "f32", self.path("in.txt"), "--output", output,
                "--look-ahead", "100", "--max-batch-rows", "8"]

    def run_job(self, output, faults=(), flags=()):
        command = [*self.command(output, FAULTY if faults else BINARY), *flags]
        return subprocess.run(command, env=process.clean_environment(self.faulty_engine(*faults) if faults else None), capture_output=True,
                              timeout=300, check=False)

    def test_bulk_rows_that_are_not_finite(self):
        """Only they and rows with equal texts fail, wherever they are, also in a later look-ahead."""
        lines = list(self.batch)
        bad = (5, 120, 260)
        for number in bad:
            lines[number] = WORD + " here"
        self.write("in.txt", "".join(line + "\n" for line in lines))
        output = self.path("v.npy")
        done = self.run_job(output, faults=["nan:{kernel}"])
        self.assertEqual(done.returncode, FAILED, done.stderr)
        rows = read_npy(output)
        for number, row in enumerate(rows):
            missing = [math.isnan(value) for value in struct.unpack("<64f", row)]
            self.assertTrue(all(missing) if number in bad else not any(missing), number)
        with open(output + ".failures.jsonl", encoding="utf-8") as file:
            listed = [json.loads(line) for line in file]
        self.assertEqual([line["row"] for line in listed], list(bad))
        self.assertEqual({line["code"] for line in listed}, {"non_finite"})
        # With a repaired engine the rows are computed, and the result is as if it had never failed.
        self.assertEqual(self.run_job(output, flags=[]).returncode, 0)
        self.assertEqual(self.run_job(self.path("w.npy")).returncode, 0)
        self.assertEqual(self.content(output), self.content(self.path("w.npy")))

    def unread(self, output):
        """Starts a job of two seconds that shows its progress in a full pipe; returns the job and the pipe."""
        self.write("in.txt", f"{WORD}\n" * 2 + "".join(f"{WORD} {text}\n" for text in self.batch))
        reader, writer = os.pipe()
        size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"#" * size)
        child = process.start([*self.command(output, FAULTY), "--threads", "1", "--progress", "json"], stderr=writer,
                              env=process.clean_environment(self.faulty_engine("slow:{kernel}:60")))
        os.close(writer)
        return child, reader

    def test_bulk_progress_that_nobody_reads(self):
        """Unread progress does not delay the job, and the last line arrives once the pipe is read."""
        output = self.path("v.npy")
        child, reader = self.unread(output)
        self.wait_until(lambda: os.path.exists(output + ".manifest.json"), "the job to be finished")
        with open(reader, "rb") as file:
            said = file.read().lstrip(b"#").splitlines()
        phases = [json.loads(line)["phase"] for line in said]
        self.assertIn(phases, (["finished"], ["finishing", "finished"]), "the pipe may be read before the last report")
        self.assertEqual(child.wait(60), 0)

    def test_bulk_progress_whose_reader_is_gone(self):
        output = self.path("v.npy")
        child, reader = self.unread(output)
        os.close(reader)
        self.assertEqual(child.wait(60), 0)
        self.assertTrue(os.path.exists(output + ".manifest.json"))

    def test_bulk_chunks_that_are_not_finite(self):
        """Single chunks of long documents fail; when they are retried, no other chunk is computed or changed."""
        lines = [f"{' '.join(self.batch[i:i + 8])} . {WORD if i in (3, 40) else 'music'} . {' '.join(self.batch[i:i + 8])}"
                 for i in range(50)]
        self.write("in.txt", "".join(line + "\n" for line in lines))
        for ending in (".npy", ".jsonl"):
            output, straight = self.path("v" + ending), self.path("w" + ending)
            chunks = ["--chunk", "tokens:16"]
            done = self.run_job(output, faults=["nan:{kernel}"], flags=chunks)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            listed = self.failures(output)
            self.assertEqual({(line["document"], line["code"]) for line in listed}, {(3, "non_finite"), (40, "non_finite")})
            self.assertTrue(all(line["chunk"] > 0 for line in listed))
            said = self.run_job(output, flags=[*chunks, "--progress", "json"])
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(json.loads(said.stderr.splitlines()[-1])["computed"], len(listed))
            self.assertEqual(self.run_job(straight, flags=chunks).returncode, 0)
            self.assertEqual(self.files(output), self.files(straight))

    def test_bulk_batches_that_are_too_large(self):
        """A batch that does not fit into memory is computed in parts."""
        self.write("in.txt", "".join(line + "\n" for line in self.batch))
        self.assertEqual(self.run_job(self.path("w.npy")).returncode, 0)
        output = self.path("v.npy")
        done = self.run_job(output, faults=["crowd:0:3"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, rb"[0-9]+ batches were more than there was memory for")
        self.assertEqual(self.files(output), self.files(self.path("w.npy")))

    def test_bulk_text_that_is_too_large(self):
        self.goes_on("oom", (OSERR,))

    def goes_on(self, fault, codes):
        lines = list(self.batch)
        lines[150] = WORD
        self.write("in.txt", "".join(line + "\n" for line in lines))
        for ending in (".npy", ".jsonl"):
            output = self.path("v" + ending)
            broken = self.run_job(output, faults=[fault + ":{kernel}"])
            self.assertIn(broken.returncode, codes, broken.stderr)
            self.assertTrue(os.path.exists(output + ".job"))
            self.assertEqual(self.run_job(output).returncode, 0)
            self.assertEqual(self.run_job(self.path("w" + ending)).returncode, 0)
            self.assertEqual(self.content(output), self.content(self.path("w" + ending)))

    def test_bulk_rows_do_not_wait_for_ever_to_be_written(self):
        """One text delays its look-ahead: the other computed rows are written some seconds later, and survive a
        kill."""
        lines = list(self.batch)
        lines[5] = WORD
        self.write("in.txt", "".join(line + "\n" for line in lines))
        output, straight = self.path("v.npy"), self.path("w.npy")
        held = process.start(self.command(output, FAULTY), stderr=subprocess.PIPE,
                             env=process.clean_environment(self.faulty_engine("slow:{kernel}:600000")))
        self.addCleanup(lambda: (process.end(held), held.stderr.close()))
        journal = output + ".job/journal"
        self.wait_until(lambda: held.poll() is not None or os.path.exists(journal) and os.stat(journal).st_size > 24 * 90, "rows on record")
        self.assertIsNone(held.poll())
        process.end(held)
        said = self.run_job(output, flags=["--progress", "json"])
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertLess(json.loads(said.stderr.splitlines()[-1])["computed"], 260)  # of 300: most of a look-ahead
        self.assertEqual(self.run_job(straight).returncode, 0)
        self.assertEqual(self.files(output), self.files(straight))

    def test_bulk_process_dies_in_the_engine(self):
        self.goes_on("crash", (-9,))

    def test_bulk_device_is_lost(self):
        self.goes_on("lost", (SOFTWARE,))

    def test_bulk_engine_gives_up(self):
        self.goes_on("error", (SOFTWARE,))

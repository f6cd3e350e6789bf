"""Bulk jobs: every kind of input and output, what becomes of bad rows and broken files, and going on."""

import gzip
import hashlib
import json
import math
import os
import re
import signal
import struct
import subprocess
import unittest

import process
from case import SluiceCase
from corpus import texts
from daemon import BINARY
from vectors import read_npy

USAGE, DATAERR, NOINPUT, IOERR, UNAVAILABLE, TEMPFAIL, NOPERM = 64, 65, 66, 74, 69, 75, 77
FAILED = 1


def floats(row):
    return struct.unpack(f"<{len(row) // 4}f", row)


class BulkCase(SluiceCase):
    def job(self, *arguments, code=0, **options):
        result = self.run_sluice("embed", "--model", self.make_model(), "--precision", "f32", *arguments, **options)
        self.assertEqual(result.returncode, code, result.stderr.decode("utf-8", "replace"))
        return result.stderr.decode("utf-8", "replace")

    def failures(self, output):
        with open(output + ".failures.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def manifest(self, output):
        with open(output + ".manifest.json", encoding="utf-8") as file:
            return json.load(file)

    def expect(self, output, wanted):
        """The rows of an .npy are the vectors of these texts; None stands for a row that failed."""
        reference = self.reference()
        reference.learn([text for text in wanted if text is not None])
        rows = read_npy(output)
        self.assertEqual(len(rows), len(wanted))
        for number, (row, text) in enumerate(zip(rows, wanted)):
            if text is None:
                self.assertTrue(all(math.isnan(value) for value in floats(row)), f"row {number}")
            else:
                self.assertEqual(row, reference(text), f"row {number}")

    def content(self, path):
        with open(path, "rb") as file:
            return file.read()


class Inputs(BulkCase):
    def test_lines_packed_and_plain(self):
        batch = texts(300, seed=5)
        plain = "".join(text + "\n" for text in batch).encode()
        self.write("a.txt", plain)
        with gzip.open(self.path("b.gz"), "wb") as file:
            file.write(plain)
        subprocess.run(["zstd", "-q", self.path("a.txt"), "-o", self.path("c.bin")], check=True) \
            if any(os.access(os.path.join(d, "zstd"), os.X_OK) for d in os.environ["PATH"].split(":")) \
            else self.write("c.bin", plain)
        output = self.path("v.npy")
        said = self.job(self.path("a.txt"), self.path("b.gz"), self.path("c.bin"), "-", "--output", output, input=b"last")
        self.assertIn("901 rows", said)
        self.expect(output, batch * 3 + ["last"])

    def test_json_lines(self):
        lines = [{"meta": {"title": "hello"}, "body": "world", "key": "a", "n": 1.50}, {"meta": {"title": "the"}, "body": 7, "key": 2},
                 {"meta": {"title": "x", "deep": [1]}, "body": "\u00e4\n\"q\"", "key": "c", "n": None}]
        source = self.write("in.jsonl", "\n\n".join(json.dumps(line) for line in lines))
        output = self.path("v.jsonl")
        self.job(source, "--output", output, "--template", "{meta.title}: {body}", "--id-field", "key", "--keep", "n,meta")
        wanted = self.reference()
        with open(output, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual([row["id"] for row in rows], ["a", 2, "c"])
        self.assertEqual([row["n"] for row in rows], [1.5, None, None])
        self.assertEqual(rows[2]["meta"], {"title": "x", "deep": [1]})
        for row, text in zip(rows[:2], ("hello: world", "the: 7")):
            self.assertEqual(struct.pack(f"<{len(row['vector'])}f", *row["vector"]), wanted(text))

    def test_csv_and_tsv(self):
        self.write("a.csv", '\ufeffid,text,note\r\n1,"hello, ""world""\r\nline two",x\r\n2,the,"y"\n\n3,of,z\n')
        output = self.path("v.npy")
        self.job(self.path("a.csv"), "--output", output, "--template", "{text}", "--id-field", "id")
        rows = read_npy(output)
        self.assertEqual(len(rows), 3)
        self.assertEqual(rows[1], self.reference()("the"))
        self.assertEqual(self.content(output + ".ids.jsonl"), b'"1"\n"2"\n"3"\n')
        self.write("b.tsv", "hello\tworld\nthe\tof\n")
        self.job(self.path("b.tsv"), "--output", self.path("w.npy"), "--no-header", "--field", "2")
        self.expect(self.path("w.npy"), ["world", "of"])
        self.assertIn('no column "text"', self.job(self.path("b.tsv"), "--output", self.path("x.npy"), code=DATAERR))

    def test_folder(self):
        for name, text in (("b.md", "hello"), ("a/z.txt", "the"), ("a/y.txt", "of"), ("c.log", "no"), (".hidden/x.txt", "no"), ("d.txt", "")):
            os.makedirs(os.path.dirname(self.path("docs", name)), exist_ok=True)
            self.write(os.path.join("docs", name), text)
        os.symlink("nowhere", self.path("docs", "e.txt"))
        output = self.path("v.npy")
        said = self.job(self.path("docs"), "--output", output, code=FAILED)
        self.assertIn("2 rows failed", said)
        self.expect(output, ["of", "the", "hello", None, None])
        ids = [json.loads(line) for line in self.content(output + ".ids.jsonl").splitlines()]
        self.assertEqual([os.path.relpath(name, self.path("docs")) for name in ids], ["a/y.txt", "a/z.txt", "b.md", "d.txt", "e.txt"])
        self.assertEqual([line["code"] for line in self.failures(output)], ["empty_text", "unreadable"])
        self.job(self.path("docs"), "--output", self.path("w.npy"), "--glob", "*.log")
        self.expect(self.path("w.npy"), ["no"])


class BadRows(BulkCase):
    def test_each_kind_is_listed(self):
        good = '{"text": "hello"}'
        lines = [good, "[1]", "{broken", '{"text": ""}', '{"no": 1}', '{"text": null}', '{"text": {}}', good,
                 '{"text": "' + "x" * 2000 + '"}', '{"text": "\\ud800"}', "y" * 90000, good]
        source = self.write("in.jsonl", "\n".join(lines).encode() + b'\n{"text": "\xff"}\n')
        output = self.path("v.npy")
        said = self.job(source, "--output", output, "--max-text-bytes", "1000", code=FAILED)
        self.assertIn("10 rows failed and have no vector", said)
        self.expect(output, ["hello"] + [None] * 6 + ["hello"] + [None] * 3 + ["hello", None])
        listed = self.failures(output)
        self.assertEqual([line["code"] for line in listed],
                         ["not_object", "bad_json", "empty_text", "missing_field", "missing_field", "not_text", "too_large", "bad_json",
                          "too_large", "bad_utf8"])
        self.assertEqual([line["line"] for line in listed], [2, 3, 4, 5, 6, 7, 9, 10, 11, 13])
        self.assertEqual([line["row"] for line in listed], [line["line"] - 1 for line in listed])
        self.assertTrue(all(line["file"] == source and line["message"] for line in listed))
        self.assertEqual(self.manifest(output)["failed"], 10)
        self.job(source, "--output", output, "--max-text-bytes", "1000", code=FAILED)  # finished, and still not well
        self.job(source, "--output", self.path("w.jsonl"), "--max-text-bytes", "1000", code=FAILED)
        rows = [json.loads(line) for line in self.content(self.path("w.jsonl")).splitlines()]
        self.assertEqual((rows[1]["vector"], rows[1]["error"]), (None, "not_object"))
        self.assertEqual(len(rows[0]["vector"]), 64)

    def test_a_line_of_100_mb(self):
        """It fails, and is never held in memory."""
        peaks = []
        for size in (100, 100_000_000):
            with open(self.path("in.jsonl"), "wb") as file:
                file.truncate(size)
                file.seek(size)
                file.write(b'\n{"text": "hello"}\n')
            output = self.path(f"v{size}.npy")
            job = process.start([BINARY, "embed", "--model", self.make_model(), "--precision", "f32", self.path("in.jsonl"), "--output",
                                 output, "--progress", "none"], env=process.clean_environment())
            _, status, usage = os.wait4(job.pid, 0)
            job.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(job.returncode, FAILED)
            self.expect(output, [None, "hello"])
            peaks.append(usage.ru_maxrss // 1024)
        self.assertLess(peaks[1] - peaks[0], 60, "MB")

    def test_csv_rows(self):
        source = self.write("in.csv", b'text,b\nhello,1\n"open" x,2\none\nthe,4\n\xff,5\nof,"never closed')
        output = self.path("v.npy")
        self.job(source, "--output", output, code=FAILED)
        self.expect(output, ["hello", None, None, "the", None, None])
        listed = self.failures(output)
        self.assertEqual([line["code"] for line in listed], ["bad_csv", "bad_csv", "bad_utf8", "bad_csv"])
        self.assertIn("column 7", listed[0]["message"])
        self.assertIn("1 fields", listed[1]["message"])

    def test_strict_ends_at_the_first(self):
        source = self.write("in.txt", b"hello\nthe\n\xff\nof\n")
        said = self.job(source, "--output", self.path("v.npy"), "--strict", code=DATAERR)
        self.assertIn(f"{source} line 3: not UTF-8 at byte 1", said)
        self.assertIn("goes on from there", said)

    def test_broken_gzip(self):
        """What is before the broken place is kept; once the file is whole the job goes on."""
        batch = texts(5000, seed=8)
        whole = gzip.compress("".join(text + "\n" for text in batch).encode())
        source, output = self.write("in.gz", whole[:len(whole) * 2 // 3]), self.path("v.npy")
        said = self.job(source, "--output", output, code=DATAERR)
        self.assertRegex(said, re.escape(f"line ") + r"\d+: " + re.escape(source) + r" byte \d+: broken gzip: it ends early")
        self.write("in.gz", whole)
        self.job(source, "--output", output)
        self.expect(output, batch)

    def test_an_input_that_vanishes(self):
        first, second = self.write("a.txt", "hello\n"), self.path("b.txt")
        self.assertIn("b.txt", self.job(first, second, "--output", self.path("v.npy"), code=NOINPUT))
        self.write("b.txt", "the\n")
        self.job(first, second, "--output", self.path("v.npy"))
        self.expect(self.path("v.npy"), ["hello", "the"])

    def test_output_that_cannot_be_written(self):
        source = self.write("in.txt", "hello\n")
        self.assertIn("v.npy", self.job(source, "--output", self.path("no", "v.npy"), code=NOINPUT))
        self.assertIn("must end in .npy or .jsonl", self.job(source, "--output", self.path("v.csv"), code=DATAERR))

    def test_disk_full(self):
        """A file may grow to 100 kB: an error that says so, and afterwards the job goes on to the same bytes."""
        source = self.write("in.txt", "".join(text + "\n" for text in texts(2000, seed=3)))
        self.job(source, "--output", self.path("w.npy"))
        output = self.path("v.npy")
        command = [BINARY, "embed", "--model", self.make_model(), "--precision", "f32", source, "--output", output]
        limited = subprocess.run(["/bin/sh", "-c", 'trap "" XFSZ; ulimit -f 200; exec "$@"', "sh", *command],
                                 env=process.clean_environment(), capture_output=True, check=False)
        self.assertEqual(limited.returncode, IOERR, limited.stderr)
        self.assertIn(b"cannot write " + output.encode(), limited.stderr)
        self.assertIn(b"goes on from there", limited.stderr)
        self.job(source, "--output", output)
        self.assertEqual(self.content(output), self.content(self.path("w.npy")))


class Outputs(BulkCase):
    def test_shards_and_manifest(self):
        batch = texts(250, seed=4)
        source = self.write("in.txt", "".join(text + "\n" for text in batch))
        folder = self.path("out")
        self.job(source, "--output", folder + "/", "--shard-rows", "100", "--look-ahead", "64")
        self.job(source, "--output", self.path("v.npy"))
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(sorted(os.listdir(folder)), ["manifest.json"] + [f"vectors-{i:05}.npy" for i in range(3)])
        rows = []
        for entry in manifest["files"]:
            path = os.path.join(folder, entry["name"])
            self.assertEqual(hashlib.sha256(self.content(path)).hexdigest(), entry["sha256"])
            self.assertEqual(os.path.getsize(path), entry["bytes"])
            self.assertEqual(len(read_npy(path)), entry["rows"])
            rows += read_npy(path)
        self.assertEqual(rows, read_npy(self.path("v.npy")))
        self.assertEqual((manifest["rows"], manifest["dim"], manifest["dtype"]), (250, 64, "f32"))
        self.assertEqual(manifest["computed"] + manifest["copied"], 250)
        self.assertTrue(manifest["model"]["id"])
        self.job(source, "--output", folder, "--shard-rows", "100")  # now it is a folder that exists

    def test_raw_and_f16(self):
        source = self.write("in.txt", "hello\nthe of\n")
        self.job(source, "--output", self.path("v.f32"))
        self.job(source, "--output", self.path("v.npy"))
        self.assertEqual(self.content(self.path("v.f32")), self.content(self.path("v.npy"))[128:])
        self.job(source, "--output", self.path("h.npy"), "--dtype", "f16")
        wide = floats(self.content(self.path("v.f32")))
        self.assertEqual(self.content(self.path("h.npy"))[128:], struct.pack(f"<{len(wide)}e", *wide))
        self.assertIn("--dtype", self.job(source, "--output", self.path("h.jsonl"), "--dtype", "f16", code=DATAERR))

    def test_equal_texts_are_computed_once(self):
        batch = texts(100, seed=6)
        source = self.write("in.txt", "".join(text + "\n" for text in batch * 20))
        output = self.path("v.npy")
        said = self.job(source, "--output", output, "--look-ahead", "300")
        different = len(set(batch))
        self.assertIn(f"2000 rows, {different} computed, {2000 - different} copied", said)
        self.expect(output, batch * 20)

    def test_chunks(self):
        sentences = [text.replace("\n", " ") + "." for text in texts(60, seed=9, longest=8)]
        source = self.write("in.jsonl", "".join(json.dumps({"text": " ".join(sentences[i * 20:i * 20 + 20])}) + "\n" for i in range(3)) +
                            json.dumps({"text": "short"}) + "\n{}\n")
        output = self.path("v.npy")
        self.job(source, "--output", output, "--chunk", "tokens:32,overlap:8", code=FAILED)
        rows = read_npy(output)
        index = self.content(output + ".documents.npy")
        documents = struct.unpack(f"<{len(rows)}Q", index[128:])
        self.assertIn(f"'<u8', 'fortran_order': False, 'shape': ({len(rows)},)".encode(), index)
        self.assertEqual(sorted(documents), list(documents))
        self.assertEqual(set(documents), {0, 1, 2, 3, 4})
        self.assertGreater(documents.count(0), 2)
        self.assertEqual((documents.count(3), documents.count(4)), (1, 1))
        self.assertEqual(rows[documents.index(3)], self.reference()("short"))
        self.job(source, "--output", self.path("w.jsonl"), "--chunk", "tokens:32,overlap:8", code=FAILED)
        lines = [json.loads(line) for line in self.content(self.path("w.jsonl")).splitlines()]
        self.assertEqual([line["id"] for line in lines], list(documents))
        self.assertEqual([line["chunk"] for line in lines][:3], [0, 1, 2])
        self.job(source, "--output", self.path("m.npy"), "--chunk", "tokens:32,mean,overlap:8", code=FAILED)
        means = read_npy(self.path("m.npy"))
        self.assertEqual(len(means), 5)
        parts = [floats(row) for row, document in zip(rows, documents) if document == 1]
        mean = [sum(values) / len(parts) for values in zip(*parts)]
        length = math.sqrt(sum(value * value for value in mean))
        for got, wanted in zip(floats(means[1]), mean):
            self.assertAlmostEqual(got, wanted / length, places=5)
        self.assertEqual(means[3], self.reference()("short"))


class GoingOn(BulkCase):
    def setUp(self):
        super().setUp()
        self.batch = texts(400, seed=2)
        self.source = self.write("in.txt", "".join(text + "\n" for text in self.batch))
        self.output = self.path("v.npy")

    def test_finished_stays_as_it_is(self):
        self.job(self.source, "--output", self.output)
        before = os.stat(self.output)
        self.assertIn("finished already", self.job(self.source, "--output", self.output))
        after = os.stat(self.output)
        self.assertEqual((before.st_mtime_ns, before.st_ino), (after.st_mtime_ns, after.st_ino))
        os.utime(self.source)  # another date is no other content
        self.job(self.source, "--output", self.output)

    def test_changes_are_refused(self):
        self.job(self.source, "--output", self.output)
        other = self.make_model("other", seed=5)
        said = self.run_sluice("embed", "--model", other, "--precision", "f32", self.source, "--output", self.output)
        self.assertEqual(said.returncode, DATAERR)
        self.assertIn(b"another model", said.stderr)
        self.assertIn("another chunk", self.job(self.source, "--output", self.output, "--chunk", "tokens:9", code=DATAERR))
        for change in (self.batch[:-1], self.batch + ["more"], ["hello"] + self.batch[1:]):
            self.write("in.txt", "".join(text + "\n" for text in change))
            said = self.job(self.source, "--output", self.output, code=DATAERR)
            self.assertRegex(said, "the input has (changed|grown)")
        self.job(self.source, "--output", self.output, "--overwrite")
        self.expect(self.output, ["hello"] + self.batch[1:])

    def test_what_belongs_to_others_is_not_overwritten(self):
        self.write("v.npy", "mine")
        self.assertIn("--overwrite", self.job(self.source, "--output", self.output, code=DATAERR))
        self.assertEqual(self.content(self.output), b"mine")
        self.job(self.source, "--output", self.output, "--overwrite")
        self.expect(self.output, self.batch)

    def test_a_checkpoint_may_end_with_failed_rows(self):
        source = self.write("in.jsonl", '{"text": "hello"}\n{broken\n[]\n' * 200)
        for ending in (".npy", ".jsonl"):
            output, straight = self.path("x" + ending), self.path("y" + ending)
            self.job(source, "--output", straight, code=FAILED)
            end = self.write("end.gz", gzip.compress(b"the\n" * 1000)[:-20])
            self.job(source, end, "--output", output, "--look-ahead", "3", code=DATAERR)
            said = self.job(source, end, "--output", output, "--look-ahead", "3", code=DATAERR)
            self.assertIn("ends early", said)
        with open(self.path("x.jsonl"), "rb") as begun:
            self.assertEqual(begun.read()[:os.path.getsize(straight)], self.content(straight))

    def test_vectors_that_are_gone_are_no_zeros(self):
        """An unfinished job whose output was deleted or cut does not go on as if nothing had happened."""
        self.write("in.txt", "".join(text + "\n" for text in self.batch) + "\n")
        for ending, vectors in ((".npy", ".npy"), (".jsonl", ".jsonl.job/vectors"), ("/", "/vectors-00001.npy")):
            output = self.path("x" + ending)
            flags = ("--output", output, "--strict", "--shard-rows", "150")
            self.job(self.source, *flags, code=DATAERR)
            with open(self.path("x" + vectors), "r+b") as file:
                file.truncate(1000)
            self.assertIn("not as this job left it", self.job(self.source, *flags, code=DATAERR))
            os.unlink(self.path("x" + vectors))
            self.assertIn("not as this job left it", self.job(self.source, *flags, code=DATAERR))

    def test_ctrl_c_says_how_to_go_on(self):
        source = self.write("many.txt", "".join(f"{text} {i}\n" for i in range(60) for text in self.batch))
        child = process.start([BINARY, "embed", "--model", self.make_model(), "--precision", "f32", source, "--output", self.output,
                               "--progress", "json", "--look-ahead", "2000"], stderr=subprocess.PIPE, env=process.clean_environment())
        self.wait_until(lambda: child.poll() is not None or (os.path.exists(self.output) and os.path.getsize(self.output) > 10000),
                        "some rows")
        child.send_signal(signal.SIGINT)
        said = child.communicate()[1].decode()
        self.assertEqual(child.returncode, TEMPFAIL, said)
        self.assertIn("the same command goes on", said)
        stopped = json.loads(said.splitlines()[-2])
        self.assertEqual(stopped["phase"], "stopped")
        end = json.loads(self.job(source, "--output", self.output, "--progress", "json", "--look-ahead", "2000").splitlines()[-1])
        self.assertEqual((end["phase"], end["rows"]), ("finished", 24000))
        self.assertLess(end["computed"], 24000 * 2)
        self.job(source, "--output", self.path("w.npy"))
        self.assertEqual(self.content(self.output), self.content(self.path("w.npy")))

    def test_one_process_at_a_time(self):
        reader, writer = os.pipe()
        child = process.start([BINARY, "embed", "--model", self.make_model(), "--precision", "f32", "-", "--output", self.output],
                              stdin=reader, stderr=subprocess.PIPE, env=process.clean_environment())
        os.close(reader)
        self.wait_until(lambda: os.path.exists(self.output), "the output")
        self.assertIn("another process works on this job", self.job(self.source, "--output", self.output, code=UNAVAILABLE))
        os.write(writer, b"hello\n")
        os.close(writer)
        self.assertEqual(child.wait(60), 0)
        child.stderr.close()
        self.expect(self.output, ["hello"])


class Retrying(BulkCase):
    """--retry-failed: rows whose documents were mended get their vectors, and nothing else changes."""

    def setUp(self):
        super().setUp()
        self.lines = [json.dumps({"text": text, "id": f"n{i}"}) for i, text in enumerate(texts(200, seed=12))]
        self.broken = {7: "{oops", 50: json.dumps({"id": "n50"}), 51: json.dumps({"text": "", "id": "n51"}), 199: "[]"}
        self.mended = {7: json.dumps({"text": "hello", "id": "n7"}), 51: json.dumps({"text": "the", "id": "late"})}

    def put(self, *changes):
        lines = list(self.lines)
        for change in changes:
            for number, line in change.items():
                lines[number] = line
        return self.write("in.jsonl", "\n".join(lines) + "\n")

    def files(self, output):
        return {name[len(output):]: self.content(name) for name in
                (os.path.join(self.directory, name) for name in os.listdir(self.directory)) if name.startswith(output)}

    def check(self, ending):
        output, straight = self.path("v" + ending), self.path("straight" + ending)
        flags = ("--id-field", "id", "--look-ahead", "64")
        source = self.put(self.broken)
        self.job(source, "--output", output, *flags, code=FAILED)
        before = self.files(output)
        self.job(source, "--output", output, *flags, "--retry-failed", code=FAILED)
        after = self.files(output)
        self.assertEqual({name: content for name, content in after.items() if "manifest" not in name},
                         {name: content for name, content in before.items() if "manifest" not in name})
        source = self.put(self.broken, self.mended)
        said = self.job(source, "--output", output, *flags, "--retry-failed", code=FAILED)
        self.assertIn("2 failed", said)
        self.job(source, "--output", straight, *flags, code=FAILED)
        self.assertEqual(self.files(output).keys(), self.files(straight).keys())
        for name, content in self.files(straight).items():
            self.assertEqual(self.files(output)[name].replace(b"v" + ending.encode(), b"straight" + ending.encode()), content, name)
        source = self.put(self.mended)
        self.job(source, "--output", output, *flags, "--retry-failed")
        self.assertFalse(os.path.exists(output + ".failures.jsonl"))
        self.job(source, "--output", output, *flags, "--retry-failed")  # nothing is left to do
        changed = self.put({3: json.dumps({"text": "another", "id": "n3"})})
        self.assertIn("changed", self.job(changed, "--output", output, *flags, "--retry-failed", code=DATAERR))

    def test_retry_matrix(self):
        self.check(".npy")

    def test_retry_json_lines(self):
        self.check(".jsonl")

    def test_retry_refuses_other_changes(self):
        output = self.path("v.npy")
        self.job(self.put(self.broken), "--output", output, code=FAILED)
        before = self.files(output)
        source = self.put(self.broken, self.mended, {3: json.dumps({"text": "another"})})
        self.assertIn("changed in other places", self.job(source, "--output", output, "--retry-failed", code=DATAERR))
        self.assertEqual(self.files(output)[".manifest.json"], before[".manifest.json"])
        self.job(self.put(self.broken), "--output", output, code=FAILED)  # it is still finished

    def test_retry_refuses_chunks(self):
        output = self.path("v.npy")
        self.job(self.put(self.broken), "--output", output, "--chunk", "tokens:16", code=FAILED)
        self.assertIn("--overwrite", self.job(self.put(), "--output", output, "--chunk", "tokens:16", "--retry-failed", code=DATAERR))


if __name__ == "__main__":
    unittest.main()

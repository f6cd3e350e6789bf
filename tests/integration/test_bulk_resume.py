"""Bulk jobs: resuming after an interruption, and retrying failed rows."""
# ctest-cost: 10

import gzip
import json
import os
import re
import signal
import struct
import subprocess

import process
from bulk_case import DATAERR, FAILED, TEMPFAIL, UNAVAILABLE, BulkCase
from corpus import texts
from daemon import BINARY, FAULTY
from vectors import read_npy

WORD = "kernel"  # the word that holds the engine up


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
        os.utime(self.source)  # a new date does not mean new content
        self.job(self.source, "--output", self.output)

    def test_an_output_that_was_cut_is_refused(self):
        """Whether or not there is a row to try again; nothing is written, and nothing is said to be kept."""
        lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(self.batch[:40])]
        for broken in ((), ("{oops",)):
            source = self.write("in.jsonl", "\n".join([*lines, *broken]))
            code = FAILED if broken else 0
            for name, flags, files in (("a.npy", (), ("", ".ids.jsonl")), ("a.jsonl", (), ("",)), ("a.f32", (), ("",)),
                                       ("a/", ("--shard-rows", "16"), ("vectors-00001.npy", "ids.jsonl")),
                                       ("c.npy", ("--chunk", "tokens:16"), ("", ".ids.jsonl", ".documents.npy", ".chunks.npy"))):
                how = (source, "--id-field", "id", "--output", self.path(name), *flags)
                self.job(*how, "--overwrite", code=code)
                for file in files:
                    with self.subTest(name=name, file=file, broken=broken):
                        content = self.content(self.path(name) + file)
                        with open(self.path(name) + file, "r+b") as cut:
                            cut.truncate(len(content) - 20)
                        before = self.files(self.path(name))
                        said = self.job(*how, code=DATAERR)
                        self.assertIn(f"{self.path(name)}{file} was cut or changed since its job was finished", said)
                        self.assertNotIn("kept", said)
                        os.unlink(self.path(name) + file)
                        self.assertRegex(self.job(*how, code=None), "is gone, though")
                        with open(self.path(name) + file, "wb") as whole:
                            whole.write(content)
                        self.assertEqual(self.job(*how, code=code).count("cut or changed"), 0)
                        self.assertEqual(set(self.files(self.path(name))), set(before))

    def test_changes_are_refused(self):
        self.job(self.source, "--output", self.output)
        other = self.make_model("other", seed=5)
        said = self.run_sluice("embed", "--model", other, "--precision", "f32", self.source, "--output", self.output)
        self.assertEqual(said.returncode, DATAERR)
        self.assertRegex(said.stderr, rb'began with another model: "[0-9a-f]{32}" \("tiny"\), and not "[0-9a-f]{32}" \("other"\); --over')
        os.rename(self.make_model(), self.path("models", "renamed"))  # the name is only for people and is not compared
        said = self.run_sluice("embed", "--model", self.path("models", "renamed"), "--precision", "f32", self.source, "--output", self.output)
        self.assertEqual(said.returncode, 0, said.stderr)
        os.rename(self.path("models", "renamed"), self.path("models", "tiny"))
        self.assertIn('began with no --chunk, and not --chunk "tokens:9"',
                      self.job(self.source, "--output", self.output, "--chunk", "tokens:9", code=DATAERR))
        for change in (["hello"] + self.batch, self.batch[:-1], ["hello"] + self.batch[1:]):
            self.write("in.txt", "".join(text + "\n" for text in change))
            said = self.job(self.source, "--output", self.output, code=DATAERR)
            self.assertIn("the input has changed", said)
        os.unlink(self.output + ".hashes")
        said = self.job(self.source, "--output", self.output, code=DATAERR)
        self.assertIn(f"somewhere in its first 400 documents: without the hashes in {self.output}.hashes)", said)
        self.job(self.source, "--output", self.output, "--overwrite")
        self.expect(self.output, ["hello"] + self.batch[1:])

    def test_a_mistaken_first_command_does_not_block_the_right_one(self):
        """While no row is done, new options replace the old ones."""
        source = self.write("in.csv", "id,body\n1,hello\n2,the\n")
        said = self.job(source, "--field", "bdoy", "--output", self.output, code=DATAERR)
        self.assertIn('no column "bdoy"', said)
        self.assertIn('there are: "id", "body"', said)
        self.job(source, "--field", "body", "--output", self.output)
        self.expect(self.output, ["hello", "the"])
        self.assertIn("another field", self.job(source, "--field", "id", "--output", self.output, code=DATAERR))
        source, output = self.write("in.jsonl", '{"body": "hello", "note": ""}\n{"body": "the", "note": ""}\n{oops\n'), self.path("x.jsonl")
        self.job(source, "--field", "note", "--output", output, code=FAILED)  # `note` is empty in every row
        self.job(source, "--field", "body", "--output", output, code=FAILED)
        self.assertIn("another field", self.job(source, "--field", "note", "--output", output, code=DATAERR))

    def test_a_field_in_the_place_of_a_template(self):
        source, one, two = self.write("in.jsonl", '{"text": "hello"}\n'), self.path("a.npy"), self.path("b.npy")
        self.job(source, "--template", "{text}.", "--output", one)
        self.job(source, "--output", two)
        self.assertIn('began with --template "{text}.", and not --field "text";', self.job(source, "--output", one, code=DATAERR))
        said = self.job(source, "--template", "{text}.", "--id-field", "text", "--output", two, code=DATAERR)
        self.assertIn('began with --field "text", and not --template "{text}.";', said)
        said = self.job(source, "--id-field", "text", "--output", two, code=DATAERR)
        self.assertIn('began with no --id-field, and not --id-field "text";', said)

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
        """An unfinished job whose output was deleted or cut does not resume as if nothing had happened."""
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

    def records(self, output):
        """The records of a journal, (kind, content) each: see src/bulk/journal.c."""
        data, records = self.content(output + ".job/journal"), []
        while data:
            kind, size, _ = struct.unpack_from("<IIQ", data)
            records.append((kind, data[16:16 + size]))
            data = data[16 + size:]
        return records

    def test_hashes_have_a_seed_of_their_own(self):
        """Equal texts are found by their hashes: the author of the texts does not know the seed, and so cannot make two
        different texts count as equal. It is recorded, so that equal texts are found across interruptions."""
        unique = len(set(self.batch))
        lines = "".join(text + "\n" for text in self.batch)
        hashes = {}
        for name in ("a.npy", "b.npy"):
            output = self.path(name)
            self.write("in.txt", lines + "\n")
            self.job(self.source, "--output", output, "--strict", code=DATAERR)
            records = self.records(output)
            self.assertEqual([len(content) for kind, content in records if kind == 4], [8])
            hashes[name] = {content[at:at + 8]: content[at + 8:at + 24] for kind, content in records if kind == 2
                            for at in range(0, len(content), 24)}
            self.assertEqual(len(hashes[name]), unique)
            self.write("in.txt", lines * 2 + "one more\n")
            end = json.loads(self.job(self.source, "--output", output, "--progress", "json").splitlines()[-1])
            self.assertEqual(end["rows"], 2 * len(self.batch) + 1)
            self.assertEqual(end["computed"], unique + 1)
        self.assertFalse(set(hashes["a.npy"].values()) & set(hashes["b.npy"].values()))
        self.assertEqual(self.content(self.path("a.npy")), self.content(self.path("b.npy")))

    def test_ctrl_c_says_how_to_go_on(self):
        lines = [f"{text.replace(WORD, 'music')} {i}\n" for i in range(60) for text in self.batch]
        lines[12345] = WORD + "\n"
        source = self.write("many.txt", "".join(lines))
        self.shut_gate()
        child = process.start([FAULTY, "embed", "--model", self.make_model(), "--precision", "f32", source, "--output", self.output,
                               "--progress", "json", "--look-ahead", "2000"], stderr=subprocess.PIPE,
                              env=process.clean_environment(self.faulty_engine(f"held:{{{WORD}}}")))
        self.wait_until(lambda: child.poll() is not None or self.fired("held"), "the word's turn to come")
        child.send_signal(signal.SIGINT)
        self.open_gate()
        said = child.communicate()[1].decode()
        self.assertEqual(child.returncode, TEMPFAIL, said)
        self.assertIn("rerunning the command resumes", said)
        stopped = json.loads(said.splitlines()[-2])
        self.assertEqual(stopped["phase"], "stopped")
        end = json.loads(self.job(source, "--output", self.output, "--progress", "json", "--look-ahead", "2000").splitlines()[-1])
        self.assertEqual((end["phase"], end["rows"]), ("finished", 24000))
        # `computed` continues from the last checkpoint, at a look-ahead's end; no row after it was computed twice.
        checkpoint = end["computed"] + stopped["computed"] - 24000
        self.assertEqual((checkpoint % 2000, 0 <= checkpoint <= stopped["computed"]), (0, True), (stopped, end))
        self.job(source, "--output", self.path("w.npy"))
        self.assertEqual(self.content(self.output), self.content(self.path("w.npy")))

    def start_on_pipe(self, *flags, binary=BINARY, environment=None):
        """A job whose input stays open: whole windows, which hold more than the bytes that show its kind, and half of one."""
        child = process.start([binary, "embed", "--model", self.make_model(), "--precision", "f32", "-", "--output", self.output,
                               "--look-ahead", "50", *flags], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=process.clean_environment(environment))
        child.stdin.write("".join(text + "\n" for text in self.batch[:201]).encode())
        child.stdin.flush()
        return child

    def end_on_pipe(self, child):
        """Its exit code and messages; the input is closed only then."""
        code = child.wait(60)
        with child.stdin, child.stderr:
            return code, child.stderr.read().decode()

    def test_ctrl_c_while_the_input_waits(self):
        child = self.start_on_pipe()
        self.wait_until(lambda: os.path.exists(self.output) and os.stat(self.output).st_size >= 200 * 64 * 4, "200 vectors")
        child.send_signal(signal.SIGINT)
        code, said = self.end_on_pipe(child)
        self.assertEqual(code, TEMPFAIL, said)
        self.assertIn("rerunning the command resumes", said)
        self.job("-", "--output", self.output, "--look-ahead", "50", input="".join(text + "\n" for text in self.batch).encode())
        self.expect(self.output, self.batch)

    def test_ctrl_c_while_a_named_pipe_has_no_writer(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        child = process.start([BINARY, "embed", "--model", self.make_model(), "--precision", "f32", pipe, "--output", self.output],
                              stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        files = f"/proc/{child.pid}/fd"
        self.wait_until(lambda: any(os.path.realpath(f"{files}/{fd}") == os.path.realpath(pipe) for fd in os.listdir(files)), "the pipe to be open")
        child.send_signal(signal.SIGINT)
        code, said = self.end_on_pipe(child)
        self.assertEqual(code, TEMPFAIL, said)

    def test_an_error_while_the_input_waits(self):
        self.batch[2] = WORD
        child = self.start_on_pipe("--strict", binary=FAULTY, environment=self.faulty_engine(f"nan:{{{WORD}}}"))
        code, said = self.end_on_pipe(child)
        self.assertEqual(code, DATAERR, said)
        self.assertRegex(said, r"standard input line \d+: its vector is not finite")

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


class Growing(BulkCase):
    """Rows are appended to the input of a finished job: only they are computed, and the files are those of one run over
    everything."""

    def setUp(self):
        super().setUp()
        self.lines = [json.dumps({"text": f"{text} {i}", "id": f"n{i}"}) for i, text in enumerate(texts(300, seed=4))]

    def put(self, name, lines):
        return self.write(name, "".join(line + "\n" for line in lines))

    def grow(self, ending, *flags, code=0):
        """Grows the input three times: more lines, more lines with a kill in between, another file."""
        output, straight = self.path("v" + ending), self.path("w" + ending)
        flags = ("--id-field", "id", "--look-ahead", "32", *flags)
        first = self.put("a.jsonl", self.lines[:101])
        self.job(first, "--output", output, *flags, code=code)
        self.put("a.jsonl", self.lines[:150])
        self.job(first, "--output", output, *flags, code=code)
        self.put("a.jsonl", self.lines[:220])
        self.kill(first, "--output", output, *flags)
        self.job(first, "--output", output, *flags, code=code)
        second = self.put("b.jsonl", self.lines[220:])
        self.job(first, second, "--output", output, *flags, code=code)
        self.assertIn("finished already" if code == 0 else "rows failed", self.job(first, second, "--output", output, *flags, code=code))
        self.job(first, second, "--output", straight, *flags, code=code)
        self.assertEqual(self.files(output), self.files(straight))

    def test_says_what_this_run_computed(self):
        output = self.path("v.npy")
        source = self.put("a.jsonl", [*self.lines[:50], *self.lines[:10], "{oops"])
        self.assertIn("61 rows, 50 computed, 10 copied", self.job(source, "--output", output, code=FAILED))
        source = self.put("a.jsonl", [*self.lines[:50], *self.lines[:10], self.lines[50]])
        self.assertIn("61 rows, 1 computed now and 50 before, 10 copied", self.job(source, "--output", output))
        source = self.put("a.jsonl", [*self.lines[:50], *self.lines[:10], *self.lines[50:53]])
        self.assertIn("63 rows, 2 computed now and 51 before, 10 copied", self.job(source, "--output", output))

    def kill(self, *arguments):
        """Sends kill -9 once the job has removed the manifest."""
        output = arguments[arguments.index("--output") + 1]
        child = process.start([BINARY, "embed", "--model", self.make_model(), "--precision", "f32", *arguments],
                              stderr=subprocess.DEVNULL, env=process.clean_environment())
        manifest = output + ("" if output.endswith("/") else ".") + "manifest.json"
        self.wait_until(lambda: child.poll() is not None or not os.path.exists(manifest), "it to begin")
        child.kill()
        child.wait()

    def test_grown_matrix(self):
        self.grow(".npy")

    def test_grown_json_lines(self):
        self.grow(".jsonl")

    def test_grown_shards(self):
        self.grow("/", "--shard-rows", "64")

    def test_grown_chunks(self):
        self.grow(".npy", "--chunk", "tokens:8,overlap:1")

    def test_grown_with_failed_rows(self):
        """The job makes one pass for the rows that had failed, and one for the new ones."""
        self.lines[7] = self.lines[170] = self.lines[250] = "{oops"
        self.grow(".npy", code=FAILED)
        self.grow(".jsonl", code=FAILED)

    def test_grown_standard_input(self):
        """It cannot be read twice, so failed rows and new ones need a run each."""
        output, straight = self.path("v.npy"), self.path("w.npy")
        flags = ("-", "--format", "jsonl", "--output", output)
        mended = ['{"text": "the"}', *self.lines[1:]]
        self.job(*flags, input="\n".join(["{oops", *self.lines[1:100]]).encode(), code=FAILED)
        whole = "\n".join(mended).encode()
        self.assertIn("rerunning the command resumes", self.job(*flags, input=whole, code=TEMPFAIL))
        self.job(*flags, input=whole)
        self.job("-", "--format", "jsonl", "--output", straight, input=whole)
        self.assertEqual(self.content(output), self.content(straight))


class Retrying(BulkCase):
    """A further run: rows whose documents were repaired get their vectors, and nothing else changes."""

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

    def check(self, ending):
        output, straight = self.path("v" + ending), self.path("straight" + ending)
        flags = ("--id-field", "id", "--look-ahead", "64")
        source = self.put(self.broken)
        self.job(source, "--output", output, *flags, code=FAILED)
        before = self.files(output)
        self.job(source, "--output", output, *flags, code=FAILED)
        after = self.files(output)
        self.assertEqual({name: content for name, content in after.items() if "manifest" not in name},
                         {name: content for name, content in before.items() if "manifest" not in name})
        source = self.put(self.broken, self.mended)
        said = self.job(source, "--output", output, *flags, code=FAILED)
        self.assertIn("2 failed", said)
        self.job(source, "--output", straight, *flags, code=FAILED)
        self.assertEqual(self.files(output), self.files(straight))
        source = self.put(self.mended)
        self.job(source, "--output", output, *flags)
        self.assertFalse(os.path.exists(output + ".failures.jsonl"))
        self.job(source, "--output", output, *flags)  # nothing is left to do
        changed = self.put({3: json.dumps({"text": "another", "id": "n3"})})
        self.assertIn("changed", self.job(changed, "--output", output, *flags, code=DATAERR))

    def test_retry_matrix(self):
        self.check(".npy")

    def test_retry_json_lines(self):
        self.check(".jsonl")

    def test_what_a_kill_at_the_very_end_left_is_removed(self):
        """For a moment the manifest is written and the journal still exists; also when rows are retried."""
        source = self.put({3: "{broken"})
        for ending in (".npy", ".jsonl"):
            output = self.path("v" + ending)
            self.job(source, "--output", output, code=FAILED)
            wanted = self.files(output)
            os.mkdir(output + ".job")
            for name in ("journal", "vectors")[:1 if ending == ".npy" else 2]:
                self.write(f"{os.path.basename(output)}.job/{name}", "of the run before")
            self.job(source, "--output", output, code=FAILED)
            self.assertEqual(self.files(output), wanted)
            self.assertFalse(os.path.exists(output + ".job"))

    def test_mended_rows_with_equal_texts(self):
        """The later rows copy the vector of the first one, which is not in the file yet."""
        rows = {2: "first", 5: "mended", 9: "mended", 14: "mended"}
        for ending in (".npy", ".jsonl"):
            output, straight = self.path("v" + ending), self.path("straight" + ending)
            self.job(self.put({row: "{broken" for row in rows}), "--output", output, code=FAILED)
            source = self.put({row: json.dumps({"text": text}) for row, text in rows.items()})
            self.job(source, "--output", output)
            self.job(source, "--output", straight)
            self.assertEqual(self.content(output), self.content(straight))

    def test_retry_refuses_other_changes(self):
        output = self.path("v.npy")
        self.job(self.put(self.broken), "--output", output, code=FAILED)
        before = self.files(output)
        source = self.put(self.broken, self.mended, {3: json.dumps({"text": "another"})})
        said = self.job(source, "--output", output, code=DATAERR)
        self.assertIn(f"{source} line 4: the input has changed since this job began: document 3 has changed; with --id-field only", said)
        self.assertEqual(self.files(output), before)
        other = self.content(source)
        piped = ("-", "--format", "jsonl", "--output", self.path("p" + os.path.splitext(output)[1]))
        self.job(*piped, input=self.content(self.put(self.broken)), code=FAILED)
        names = set(os.listdir(self.directory))
        said = self.job(*piped, input=other, code=DATAERR)  # read only once: the retry itself finds the change
        self.assertIn("standard input line 4: the input has changed since this job began: document 3 has changed", said)
        self.assertEqual(set(os.listdir(self.directory)), names)
        self.job(self.put(self.broken), "--output", output, code=FAILED)  # it is still finished

    def check_chunks(self, ending):
        """With chunks as rows, a document that had no chunks has one row, and must still have one when it is
        repaired."""
        sentences = [text + "." for text in texts(300, seed=5, longest=8)]
        lines = [json.dumps({"text": " ".join(sentences[i:i + 9]), "id": f"n{i}"}) for i in range(60)]
        mended = {0: json.dumps({"text": "hello", "id": "n0"}), 30: json.dumps({"text": "the", "id": "n30"})}
        broken = {0: "{oops", 30: json.dumps({"text": "", "id": "n30"}), 59: "[]"}
        flags = ("--id-field", "id", "--look-ahead", "16", "--chunk", "tokens:16,overlap:2")
        output, straight = self.path("v" + ending), self.path("straight" + ending)
        self.lines = lines
        self.job(self.put(broken), "--output", output, *flags, code=FAILED)
        long = {30: json.dumps({"text": " ".join(sentences[:9]), "id": "n30"})}
        said = self.job(self.put(broken, long), "--output", output, *flags, code=DATAERR)
        self.assertIn(f"{self.path('in.jsonl')} line 31: the document had one row, and now it has several chunks", said)
        said = self.job(self.put(broken, mended), "--output", output, *flags, code=FAILED)
        self.assertIn("1 failed", said)
        self.job(self.put(broken, mended), "--output", straight, *flags, code=FAILED)
        self.assertEqual(self.files(output), self.files(straight))

    def test_retry_chunks_in_a_matrix(self):
        self.check_chunks(".npy")

    def test_retry_chunks_in_json_lines(self):
        self.check_chunks(".jsonl")


class Changing(BulkCase):
    """Rows of a finished job whose documents have changed; ids identify them."""

    def setUp(self):
        super().setUp()
        self.batch = texts(300, seed=9)

    def put(self, changes=(), lines=None):
        rows = [json.dumps({"id": f"n{i}", "text": text, "note": i}) for i, text in enumerate(self.batch)]
        for i, line in dict(changes).items():
            rows[i] = line if isinstance(line, str) else json.dumps({"id": f"n{i}", "note": i, **line})
        return self.write("in.jsonl", "\n".join(rows if lines is None else lines(rows)) + "\n")

    def check(self, ending, *flags):
        """Changes one text, a passed-through field, a row that fails now, two that failed before, equal texts: only
        those are computed again. The files are then those of a new job, except for its counts of copies."""
        output, straight = self.path("changed" + ending), self.path("straight" + ending)
        flags = ("--id-field", "id", *flags)
        failed = {20: "{oops", 50: {"text": ""}}
        self.job(self.put(failed), "--output", output, *flags, code=FAILED)
        changed = {3: {"text": "quite another"}, 40: {"text": self.batch[40], "note": "new"}, 41: {"text": "quite another"},
                   70: "{broken", 71: {"text": ""}, 20: {"text": "mended"}, 50: "{oops"}
        said = self.job(self.put(changed), "--output", output, *flags, code=FAILED)
        self.assertIn("300 rows, ", said)
        now = int(re.search(r"(\d+) computed now", said)[1])
        self.assertEqual(now, 3 if "--keep" in flags else 2, said)  # 3 (41 copies it), 20, and 40 where its note is kept
        self.job(self.put(changed), "--output", straight, *flags, code=FAILED)
        got, wanted = self.files(output.rstrip("/")), self.files(straight.rstrip("/"))
        manifest = [name for name in got if name.endswith("manifest.json")][0]
        counted = [re.sub(rb'"(computed|copied)": \d+,?\s*', b"", files.pop(manifest)) for files in (got, wanted)]
        self.assertEqual(counted[0], counted[1])
        self.assertEqual(got, wanted)
        said = self.job(self.put(changed), "--output", output, *flags, code=FAILED)
        self.assertIn(" 0 computed now", said)  # failed rows fail again
        self.job(self.put(), "--output", output, *flags)  # undone, without the rows that failed
        self.job(self.put(), "--output", straight, *flags, "--overwrite")
        got, wanted = self.files(output.rstrip("/")), self.files(straight.rstrip("/"))
        for files in (got, wanted):
            del files[manifest]
        self.assertEqual(got, wanted)
        self.assertIn("nothing was computed", self.job(self.put(), "--output", output, *flags))

    def test_matrix(self):
        self.check(".npy", "--look-ahead", "64")

    def test_json_lines(self):
        self.check(".jsonl", "--keep", "note")

    def test_shards_of_means(self):
        self.check("/", "--shard-rows", "64", "--chunk", "tokens:16,mean")

    def test_changed_and_grown(self):
        output, flags = self.path("v.npy"), ("--id-field", "id")
        self.job(self.put(), "--output", output, *flags)
        source = self.put({5: {"text": "other"}}, lambda rows: rows + ['{"id": "new", "text": "the last"}'])
        self.job(source, "--output", output, *flags)
        self.expect(output, self.batch[:5] + ["other"] + self.batch[6:] + ["the last"])

    def test_what_is_refused_leaves_nothing(self):
        """Moved rows, other inputs, chunks, missing ids: the message names the first problem, and all files stay
        unchanged."""
        for number, (flags, put, says) in enumerate((
                (("--id-field", "id"), lambda rows: ['{"id": "x", "text": "the"}'] + rows, "line 1: the input has changed since this job began: "
                 "document 0 has another id; only rows whose ids are in their old places are computed again"),
                (("--id-field", "id"), lambda rows: rows[:9] + rows[10:], "line 10: the input has changed since this job began: document 9 has another id"),
                (("--id-field", "id"), lambda rows: rows[:-1], "it has 299 documents, and the job has done 300"),
                (("--id-field", "id", "--chunk", "tokens:16"), lambda rows: [rows[0].replace("text", "text", 1)[:-1] + ', "text": "x"}'] + rows[1:],
                 "line 1: the input has changed since this job began: document 0 has changed; with --chunk"),
                ((), lambda rows: rows[:7] + ['{"text": "x"}'] + rows[8:], "document 7 has changed; with --id-field only"))):
            for failed in ({}, {20: "{oops"}):
                with self.subTest(flags=flags, number=number, failed=failed):
                    output = self.path(f"v{number}{len(failed)}.npy")
                    self.job(self.put(failed), "--output", output, *flags, code=FAILED if failed else 0)
                    before = self.files(output)
                    said = self.job(self.put(failed, put), "--output", output, *flags, code=DATAERR)
                    self.assertIn(says, said)
                    self.assertNotIn("is kept", said)
                    self.assertEqual(self.files(output), before)

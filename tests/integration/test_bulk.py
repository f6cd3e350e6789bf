"""Bulk jobs: every kind of input and output."""

import gzip
import hashlib
import json
import math
import os
import pty
import select
import shutil
import struct
import subprocess

import process
from bulk_case import DATAERR, FAILED, BulkCase, floats
from corpus import texts
from daemon import BINARY
from vectors import read_npy


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

    def test_json_arrays(self):
        """Arrays of objects, strings or both, over any number of lines, are recognised by the first byte, not by the
        name."""
        records = [{"text": text, "n": number, "in": {"deep": ["]", "\\\"}"]}} for number, text in enumerate(texts(400, seed=7))]
        for number, content in enumerate((json.dumps(records), json.dumps(records, indent=2), " \n[\n" + ",\n".join(map(json.dumps, records)) + "]\n")):
            for name in ("a.json", "a.jsonl.gz", "-"):
                output = self.path(f"{number}{name}.jsonl")
                if name == "-":
                    self.job("-", "--format", "jsonl", "--id-field", "n", "--output", output, input=content.encode())
                else:
                    source = self.write(name, gzip.compress(content.encode()) if name.endswith(".gz") else content)
                    self.job(source, "--id-field", "n", "--output", output)
                rows = [json.loads(line) for line in self.content(output).splitlines()]
                self.assertEqual([row["id"] for row in rows], list(range(400)))
                self.assertEqual(rows, [json.loads(line) for line in self.content(self.path("0a.json.jsonl")).splitlines()])
        wanted = self.reference()
        wanted.learn([record["text"] for record in records])
        for row, record in zip(rows, records):
            self.assertEqual(struct.pack(f"<{len(row['vector'])}f", *row["vector"]), wanted(record["text"]))
        for content in ('["hello", "a \\u00e4\\u0020b", {"text": "the"}]', '"hello"\n"a \\u00e4\\u0020b"\n{"text": "the"}'):
            self.job(self.write("s.json", content), "--output", self.path("s.npy"), "--overwrite")
            self.expect(self.path("s.npy"), ["hello", "a \u00e4 b", "the"])
        self.job(self.write("s.json", '{"text": "hello"}\n{"text": "the"}\n'), "--output", self.path("s.npy"), "--overwrite")
        self.expect(self.path("s.npy"), ["hello", "the"])
        self.job(self.write("e.json", " [ ]\n"), "--output", self.path("e.npy"))
        self.assertEqual(self.manifest(self.path("e.npy"))["rows"], 0)

    def test_ids_keep_their_type(self):
        """In every file a number is kept as written and a string stays a string; ids from CSV are strings."""
        ids = ["7", 7, 12345678901234567890, 1.50, True, "a \u00e4\n\"", -0.0, ""]
        written = [json.dumps(value) for value in ids]
        written[3] = "1.50"
        source = self.write("in.jsonl", "".join(f'{{"text": "text {i}", "id": {value}}}\n' for i, value in enumerate(written)) + '{"id": 9}\n')
        self.job(source, "--id-field", "id", "--output", self.path("v.npy"), code=FAILED)
        self.assertEqual(self.content(self.path("v.npy.ids.jsonl")).decode().splitlines(), written + ["9"])
        self.job(source, "--id-field", "id", "--output", self.path("v.jsonl"), code=FAILED)
        for line, value in zip(self.content(self.path("v.jsonl")).decode().splitlines(), written + ["9"]):
            self.assertTrue(line.startswith(f'{{"id":{value},'), line[:40])
        self.assertEqual(self.failures(self.path("v.npy"))[0]["id"], 9)
        self.job(self.write("in.csv", "id,text\n7,hello\n"), "--id-field", "id", "--output", self.path("c.npy"))
        self.assertEqual(self.content(self.path("c.npy.ids.jsonl")), b'"7"\n')

    def test_a_broken_row_takes_nobodys_id(self):
        """A row that has no text still has its id; one that does not parse has none."""
        source = self.write("in.jsonl", '{"id": 1, "text": "hello"}\n{oops\n{"id": 7}\n{"text": "the"}\n')
        for name in ("v.npy", "v.jsonl"):
            self.job(source, "--id-field", "id", "--output", self.path(name), code=FAILED)
        self.assertEqual(self.content(self.path("v.npy.ids.jsonl")), b"1\nnull\n7\nnull\n")
        self.assertEqual([json.loads(line)["id"] for line in self.content(self.path("v.jsonl")).splitlines()], [1, None, 7, None])
        self.assertEqual([line["id"] for line in self.failures(self.path("v.npy"))], [None, 7, None])
        self.job(source, "--output", self.path("w.npy"), code=FAILED)
        self.assertEqual([line["id"] for line in self.failures(self.path("w.npy"))], [1, 2])

    def test_scalars_are_texts(self):
        source = self.write("in.jsonl", '{"text": 12}\n{"text": true}\n{"text": -1.50}\n')
        self.job(source, "--output", self.path("v.npy"))
        self.expect(self.path("v.npy"), ["12", "true", "-1.50"])

    def test_an_input_without_texts_is_said(self):
        os.makedirs(self.path("docs"))
        self.write("docs/a.rst", "hello")
        said = self.job(self.path("docs"), "--output", self.path("v.npy"))
        self.assertIn("the input has no text: a folder is searched for *.txt and *.md, unless --glob names other files", said)
        said = self.job(self.write("in.txt", ""), "--output", self.path("w.npy"))
        self.assertTrue(said.endswith("the input has no text\n"), said)

    def test_ids_that_come_twice_are_said(self):
        """The job reports how many there are, and the first; 7 and "7" differ. It does not fail: duplicates may be
        intended."""
        records = [{"id": value, "text": f"text {i}"} for i, value in enumerate([1, "1", "b", 3, "b", 1, "b"])]
        source, output = self.write("in.jsonl", "".join(json.dumps(record) + "\n" for record in records)), self.path("v.npy")
        for flags in ((), ("--look-ahead", "2", "--overwrite"), ()):  # in the last run the job is already finished
            said = self.job(source, "--id-field", "id", "--output", output, *flags)
            self.assertIn(f'3 rows have an id that an earlier row has; the first: "b" in {source} line 5', said)
        end = json.loads(self.job(source, "--id-field", "id", "--output", output, "--progress", "json", "--overwrite").splitlines()[-1])
        self.assertEqual(end["duplicate_ids"], 3)
        self.assertNotIn("earlier row", self.job(source, "--id-field", "text", "--output", output, "--overwrite"))
        self.write("in.jsonl", "".join(json.dumps(record) + "\n" for record in records[:5]))
        self.assertIn("1 row has an id", self.job(source, "--id-field", "id", "--output", output, "--overwrite"))

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


class Looking(BulkCase):
    """--dry-run and --limit."""

    def dry(self, *arguments, code=0, **options):
        """Returns the output of a dry run, which leaves no file."""
        before = set(os.listdir(self.directory)) | {"models"}
        said = self.run_sluice("embed", "--model", self.make_model(), "--precision", "f32", "--progress", "json", "--dry-run", *arguments,
                               timeout=300, **options)
        self.assertEqual(said.returncode, code, said.stderr)
        self.assertEqual(set(os.listdir(self.directory)), before)
        return said.stdout.decode(), json.loads(said.stderr.splitlines()[-1]) if code != DATAERR else said.stderr.decode()

    def test_a_dry_run_says_what_the_job_does(self):
        """It reports the kind, fields, rows, tokens, failures and equal texts that the job then finds, in any number of
        look-aheads."""
        batch = texts(300, seed=4) * 2
        lines = [json.dumps({"id": i, "meta": {"body": text}}) for i, text in enumerate(batch)]
        lines[7], lines[450] = "{oops", '{"id": 7}'
        sources = [self.write("in.jsonl", "\n".join(lines)), self.write("in.json", "[" + ",".join(lines[:7]) + "]"),
                   self.write("in.csv", "meta.body,id\nhello,1\n")]
        for flags in ((), ("--chunk", "tokens:16,overlap:2"), ("--chunk", "tokens:16,overlap:2,mean"), ("--look-ahead", "64")):
            for output in ("v.npy", "v.jsonl", "out/"):
                how = (*sources, "--field", "meta.body", "--output", self.path(output), *flags)
                said, dry = self.dry(*how, code=FAILED)
                real = json.loads(self.job(*how, "--progress", "json", "--overwrite", code=FAILED).splitlines()[-1])
                for key in ("rows", "documents", "computed", "copied", "failed", "tokens"):
                    self.assertEqual(dry[key], real[key], (flags, output, key))
                said = said.replace(self.directory + "/", "")
                self.assertIn('in.jsonl: JSON Lines with the fields "id", "meta.body"\n', said)
                self.assertIn('in.json: a JSON array with the fields "id", "meta.body"\n', said)
                self.assertIn('in.csv: CSV with the columns "meta.body", "id"\n', said)
                self.assertIn('in.jsonl line 8: not JSON at byte 2 of the line\n', said)
                self.assertIn('in.jsonl line 451: field "meta.body" is missing\n', said)
                self.assertRegex(said, rf"\n{real['rows']} rows, 2 of which would fail; \d+ different texts to compute, {real['tokens']} "
                                       r"tokens, about [\d.]+ s on this machine when nothing else runs\n$")
                for name in os.listdir(self.directory):
                    if name.startswith(("v.", "out")):
                        path = self.path(name)
                        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

    def test_a_dry_run_refuses_what_a_job_refuses(self):
        source = self.write("in.jsonl", '{"body": "hello"}\n')
        self.assertIn('there are: "body"', self.dry(source, "--output", self.path("v.npy"), code=DATAERR)[1])
        self.assertIn("is read as lines", self.dry(self.write("a.txt", "x"), "--field", "a", "--output", self.path("v.npy"), code=DATAERR)[1])

    def test_a_dry_run_leaves_a_job_as_it_is(self):
        source, output = self.write("in.txt", "hello\nthe\n"), self.path("v.npy")
        self.job(source, "--output", output)
        before = self.files(output)
        self.write("in.txt", "another\n")
        self.assertIn("1 rows; 1 different texts", self.dry(source, "--output", output, "--overwrite")[0])
        self.assertEqual(self.files(output), before)

    def test_a_dry_run_asks_no_queue(self):
        source = self.write("in.txt", "hello\nthe\nhello\n")
        done = self.run_sluice("embed", "--redis", "redis://127.0.0.1:1", "--dry-run", source, "--output", self.path("v.npy"), "--progress", "none")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"in.txt: lines\n3 rows; 2 different texts to compute\n", done.stdout)

    def test_texts_that_lose_their_end_are_counted(self):
        """Equal ones too; in a dry run, at the end of a job and of a single pass, and of each run that computes."""
        long = " ".join(["hello"] * 100)
        source = self.write("in.txt", f"{long}\nthe\n{long}\n")
        says = "2 texts are longer than 64 tokens and lost the rest; --chunk keeps everything\n"
        self.assertTrue(self.dry(source, "--output", self.path("v.npy"))[0].endswith(says))
        self.assertIn(says, self.job(source, "--output", self.path("v.npy")))
        self.assertNotIn("lost", self.job(source, "--output", self.path("v.npy")))  # nothing is computed
        self.assertIn("1 text is longer than 64", self.job(self.write("in.txt", f"{long}\nthe\n{long}\n{long}"), "--output", self.path("v.npy")))
        self.assertIn(says, self.job("--input", self.write("two.txt", f"{long}\n{long}\n"), "--output", self.path("p.npy")))
        self.assertEqual("", self.job(source, "--output", self.path("w.npy"), "--progress", "none"))
        end = json.loads(self.job(source, "--output", self.path("x.npy"), "--progress", "json").splitlines()[-1])
        self.assertEqual(end["truncated"], 3)
        self.assertNotIn("lost", self.job(source, "--output", self.path("c.npy"), "--chunk", "tokens:16"))

    def test_limit(self):
        """Only the first texts are computed; a higher limit continues from there."""
        batch = texts(60, seed=2)
        source, output = self.write("in.txt", "".join(text + "\n" for text in batch)), self.path("v.npy")
        self.job(source, "--limit", "10", "--output", output)
        self.expect(output, batch[:10])
        self.assertIn("20 computed now and 10 before", self.job(source, "--limit", "30", "--output", output))
        self.expect(output, batch[:30])
        said = self.job(source, "--limit", "20", "--output", output, code=DATAERR)
        self.assertIn("--limit 20 is less than the 30 documents that the job has done", said)
        self.job(source, "--output", output)
        self.expect(output, batch)
        self.job(source, "--limit", "60", "--output", output)
        self.job(source, "--limit", "1000", "--output", output)


class Outputs(BulkCase):
    def test_a_file_of_many_look_aheads_has_its_sum(self):
        source = self.write("in.txt", "".join(text + "\n" for text in texts(900, seed=8)))
        for name, flags in (("v.npy", []), ("h.npy", ["--dtype", "f16"]), ("v.f32", [])):
            output = self.path(name)
            self.job(source, "--output", output, "--look-ahead", "64", *flags)
            (entry,) = self.manifest(output)["files"]
            self.assertEqual(hashlib.sha256(self.content(output)).hexdigest(), entry["sha256"])
            self.assertEqual((os.path.getsize(output), 900), (entry["bytes"], entry["rows"]))

    def test_shards_and_manifest(self):
        batch = texts(250, seed=4)
        source = self.write("in.txt", "".join(text + "\n" for text in batch))
        folder = self.path("out")
        self.job(source, "--output", folder + "/", "--shard-rows", "100", "--look-ahead", "64")
        self.job(source, "--output", self.path("v.npy"))
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(sorted(os.listdir(folder)), ["hashes", "manifest.json"] + [f"vectors-{i:05}.npy" for i in range(3)])
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
        self.job(source, "--output", folder, "--shard-rows", "100")  # now the folder exists

    def test_raw_and_f16(self):
        source = self.write("in.txt", "hello\nthe of\n")
        self.job(source, "--output", self.path("v.f32"))
        self.job(source, "--output", self.path("v.npy"))
        self.assertEqual(self.content(self.path("v.f32")), self.content(self.path("v.npy"))[128:])
        self.job(source, "--output", self.path("h.npy"), "--dtype", "f16")
        wide = floats(self.content(self.path("v.f32")))
        self.assertEqual(self.content(self.path("h.npy"))[128:], struct.pack(f"<{len(wide)}e", *wide))
        self.assertIn("--dtype", self.job(source, "--output", self.path("h.jsonl"), "--dtype", "f16", code=DATAERR))

    def test_progress(self):
        """Progress is a bar on a terminal, lines elsewhere, JSON, or nothing."""
        source = self.write("in.txt", "".join(text + "\n" for text in texts(200, seed=3)))
        command = [BINARY, "embed", "--model", self.make_model(), "--precision", "f32", source, "--output", self.path("v.npy"), "--overwrite"]
        master, terminal = pty.openpty()
        shown = process.start(command, stderr=terminal, env=process.clean_environment())
        os.close(terminal)
        bar = b""
        while shown.poll() is None or select.select([master], [], [], 0)[0]:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    bar += os.read(master, 4096)
                except OSError:  # the other end is closed
                    break
        os.close(master)
        self.assertEqual(shown.wait(), 0)
        self.assertIn(b"[##############################] 100 %  200 texts", bar)
        end = json.loads(self.job(source, "--output", self.path("v.npy"), "--overwrite", "--progress", "json").splitlines()[-1])
        self.assertEqual((end["phase"], end["rows"], end["documents"], end["computed"] + end["copied"], end["failed"], end["share"]),
                         ("finished", 200, 200, 200, 0, 1))
        self.assertTrue(end["rows_per_s"] > 0 and end["tokens_per_s"] > 0 and end["tokens"] >= 200)
        self.assertNotIn("[#", self.job(source, "--output", self.path("v.npy"), "--overwrite"))
        self.assertEqual(self.job(source, "--output", self.path("v.npy"), "--overwrite", "--progress", "none"), "")

    def test_equal_texts_are_computed_once(self):
        batch = texts(100, seed=6)
        source = self.write("in.txt", "".join(text + "\n" for text in batch * 20))
        output = self.path("v.npy")
        said = self.job(source, "--output", output, "--look-ahead", "300")
        different = len(set(batch))
        self.assertIn(f"2000 rows, {different} computed, {2000 - different} copied", said)
        self.expect(output, batch * 20)

    def test_chunks_have_their_place_and_text(self):
        """Places are in bytes of the document's text, in any script: a chunk's vector is that of these bytes alone."""
        bodies = [" ".join(text.replace("\n", " ") + "\u00e4." for text in texts(20, seed=seed, longest=8)) for seed in range(5)]
        bodies[3] = "short"
        how = ("--chunk", "tokens:32,overlap:8")
        os.makedirs(self.path("docs"))
        for number, body in enumerate(bodies):
            self.write(f"docs/{number}.txt", body)
        table = self.write("in.jsonl", "".join(json.dumps({"title": "A", "body": body, "text": 7}) + "\n" for body in bodies))
        inputs = {"table": ([table, "--field", "body"], bodies), "folder": ([self.path("docs")], bodies),
                  "template": ([table, "--template", "{title}: {body}"], ["A: " + body for body in bodies]),
                  "array": ([self.write("in.json", json.dumps(bodies))], bodies)}
        for name, (arguments, wanted) in inputs.items():
            output, matrix = self.path(name + ".jsonl"), self.path(name + ".npy")
            self.job(*arguments, *how, "--keep", "text", "--output", output)
            self.job(*arguments, *how, "--output", matrix)
            rows = [json.loads(line) for line in self.content(output).splitlines()]
            places = self.content(matrix + ".chunks.npy")
            self.assertIn(f"'<u8', 'fortran_order': False, 'shape': ({len(rows)}, 2)".encode(), places)
            documents = [number for number, in struct.iter_unpack("<Q", self.content(matrix + ".documents.npy")[128:])]
            self.assertGreater(len(rows), 12)
            reference = self.reference()
            reference.learn(sorted({row["text"] for row in rows}))
            for row, document, place, vector in zip(rows, documents, struct.iter_unpack("<QQ", places[128:]), read_npy(matrix)):
                self.assertEqual(wanted[document].encode()[row["start"]:row["end"]].decode(), row["text"])
                self.assertEqual((row["start"], row["end"]), place)
                self.assertEqual(vector, reference(row["text"]))
            for document, text in enumerate(wanted):
                ends = [(row["start"], row["end"]) for row, of in zip(rows, documents) if of == document]
                self.assertEqual((ends[0][0], ends[-1][1]), (0, len(text.encode())))
                self.assertTrue(all(a[0] < b[0] <= a[1] + 1 and a[1] < b[1] for a, b in zip(ends, ends[1:])))
        source = self.write("bad.jsonl", '{"text": "hello", "start": 1}\n{oops\n')
        self.job(source, *how, "--keep", "text", "--output", self.path("bad.jsonl.jsonl"), code=FAILED)
        rows = [json.loads(line) for line in self.content(self.path("bad.jsonl.jsonl")).splitlines()]
        self.assertEqual([(row["start"], row["end"], row["text"]) for row in rows], [(0, 5, "hello"), (0, 0, None)])
        self.assertIn("--keep start", self.job(source, *how, "--keep", "start", "--output", self.path("x.jsonl"), code=DATAERR))
        self.job(source, "--keep", "start", "--output", self.path("x.jsonl"), code=FAILED)
        self.assertEqual(json.loads(self.content(self.path("x.jsonl")).splitlines()[0])["start"], 1)

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
        self.assertEqual([(line["start"], line["end"]) for line in lines], list(struct.iter_unpack("<QQ", self.content(output + ".chunks.npy")[128:])))
        self.job(source, "--output", self.path("m.npy"), "--chunk", "tokens:32,mean,overlap:8", code=FAILED)
        self.assertFalse(os.path.exists(self.path("m.npy.chunks.npy")))
        means = read_npy(self.path("m.npy"))
        self.assertEqual(len(means), 5)
        parts = [floats(row) for row, document in zip(rows, documents) if document == 1]
        mean = [sum(values) / len(parts) for values in zip(*parts)]
        length = math.sqrt(sum(value * value for value in mean))
        for got, wanted in zip(floats(means[1]), mean):
            self.assertAlmostEqual(got, wanted / length, places=5)
        self.assertEqual(means[3], self.reference()("short"))

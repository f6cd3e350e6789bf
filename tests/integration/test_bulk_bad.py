"""Bulk jobs with bad rows, broken files and files that cannot be written. Each message names the file and line."""

import bz2
import gzip
import json
import lzma
import os
import re
import shutil
import signal
import subprocess

import process
from bulk_case import DATAERR, FAILED, IOERR, NOINPUT, NOPERM, BulkCase
from corpus import texts
from daemon import BINARY


class WrongKinds(BulkCase):
    def refuse(self, says, *arguments, **options):
        """Asserts that the job ends with this message, and leaves no file."""
        before = set(os.listdir(self.directory)) | {"models"}
        said = self.job(*arguments, "--output", self.path("v.jsonl"), code=DATAERR, **options)
        self.assertIn(says, said)
        self.assertEqual(set(os.listdir(self.directory)), before)

    def test_a_kind_that_is_not_read_is_named_with_the_way_out(self):
        """This holds for any file name, and also within gzip or through a pipe."""
        text = b"text\nhello\n" * 50
        onnx = b"\x08\x07\x12\x07pytorch\x1a\x052.1.0" + bytes(range(256))
        for name, content, says in (
                ("a.parquet", b"PAR1\x15\x04\x15\x00" + bytes(range(256)), "is Parquet, which is not read; duckdb -c \"COPY (FROM '"),
                ("a.csv.xz", lzma.compress(text), "is xz, which is not read; xzcat"),
                ("a.csv.bz2", bz2.compress(text), "is bzip2, which is not read; bzcat"),
                ("a.bz2", bz2.compress(b""), "is bzip2"),
                ("a.lz4", b"\x04\x22\x4d\x18" + bytes(100), "is lz4"),
                ("a.xlsx", b"PK\x03\x04" + bytes(100), "is a zip archive"),
                ("a.tar", bytes(257) + b"ustar\x0000" + bytes(300), "is a tar archive"),
                ("a.arrow", b"ARROW1\x00\x00" + bytes(100), "is Arrow"),
                ("a.orc", b"ORC\n\xff\xfe\xfd\x00" + bytes(100), "is ORC"),
                ("a.avro", b"Obj\x01\x04\x14" + bytes(100), "is Avro"),
                ("a.db", b"SQLite format 3\x00\x10\x00" + bytes(100), "is an SQLite database"),
                ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\n" + bytes(100), "is PDF"),
                ("a.gguf", b"GGUF\x03\x00\x00\x00" + bytes(100), "is a GGUF model"),
                ("a.onnx", onnx, "is an ONNX model"),
                ("a.safetensors", (11).to_bytes(8, "little") + b'{"a":{}}   ', "is a safetensors model"),
                ("a.npy", b"\x93NUMPY\x01\x00" + bytes(100), "is a NumPy array"),
                ("a.dat", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer, which is not read; git lfs pull"),
                ("a.pickle", b"\x80\x04\x95\x0c\x00" + bytes(100), "is a binary file"),
                ("a.jsonl", text.decode().encode("utf-16"), "is UTF-16 text"),
                ("b.csv", text.decode().encode("utf-16-be"), "is UTF-16 text without")):
            source = self.write(name, content)
            self.refuse(f"{source} {says}", source)
            self.refuse(f"{source} {says}", source, "--format", "lines")
            self.refuse(f"{source} {says}", source, "--field", "text", "--id-field", "id")
            self.refuse("standard input " + says.split(";")[0], "-", input=content)
            self.refuse(says.split(";")[0], self.write(name + ".gz", gzip.compress(content)))
        self.refuse("| sluice embed - --format csv", self.path("a.csv.xz"))
        said = self.job(input=onnx, code=DATAERR)  # found in the single pass over the lines
        self.assertIn("standard input is an ONNX model", said)
        os.makedirs(self.path("docs"))
        self.write("docs/a.md", "hello")
        self.write("docs/b.md", b"%PDF-1.7\n%\xe2\xe3\n" + bytes(100))
        self.job(self.path("docs"), "--output", self.path("d.npy"), code=FAILED)
        self.expect(self.path("d.npy"), ["hello", None])
        self.assertIn("b.md is PDF, which is not read", self.failures(self.path("d.npy"))[0]["message"])

    def test_texts_that_begin_like_another_kind(self):
        lines = ["PAR1 is the mark of Parquet", "[1] a note", "GGUF too", "ORC", "{ a brace", "LZIP"]
        for line in lines:
            source = self.write("in.txt", line + "\nhello\n")
            output = self.path("v.npy")
            self.job(source, "--output", output, "--overwrite")
            self.expect(output, [line, "hello"])

    def test_lines_that_look_like_json(self):
        """They are not silently taken for texts, unless the name or --format says so."""
        content = b'{"text": "hello"}\n'
        for content in (b'{"text": "hello"}\n', b' [ {"text": "hello"}]', b'["hello"]', b'{\n  "text": "hello"\n}\n'):
            self.refuse("standard input looks like JSON: --format jsonl reads its fields, --format lines takes", "-", input=content)
            self.refuse("looks like JSON", self.write("a.log", content))
        for input, name, says in ((b' {"text": "hello"}\n', "-", "standard input looks like JSON: sluice embed - --format jsonl reads"),
                                  (b"", self.write("b.jsonl", b'{"text": "hello"}\n'), "looks like jsonl: sluice embed "),
                                  (b"", self.write("b.csv", b"id,text\n"), "looks like csv: sluice embed "),
                                  (b"", self.write("b.dat", b'{"text": "hello"}\n'), "looks like JSON: sluice embed ")):
            if name == "-":
                self.assertIn(says, self.job(input=input, code=DATAERR))
            else:
                self.refuse(says, "--input", name)  # the single pass over lines
            self.job("--input", name, "--format", "lines", "--output", self.path("p.npy"), input=input)
            self.refuse("sluice embed " + name, "--input", name, "--format", "jsonl", input=input)
            os.unlink(self.path("p.npy"))
        os.mkfifo(self.path("pipe"))
        with process.start([BINARY, "embed", "--model", self.make_model(), "--input", self.path("pipe"), "--output", self.path("p.jsonl")],
                           env=process.clean_environment()) as job:
            self.write("pipe", "hello\nthe\n")
            self.assertEqual(job.wait(60), 0)
        self.assertEqual(self.content(self.path("p.jsonl")).count(b"\n"), 2)
        os.unlink(self.path("p.jsonl"))
        output = self.path("v.npy")
        self.job("-", "--format", "lines", "--output", output, input=b'{"text": "hello"}\n')
        self.expect(output, ['{"text": "hello"}'])
        self.job(self.write("a.txt", b'{"text": "hello"}\n'), "--output", output, "--overwrite")
        self.expect(output, ['{"text": "hello"}'])

    def test_options_that_cannot_act(self):
        source, table, folder = self.write("in.txt", "hello\n"), self.write("in.jsonl", '{"text": "hello"}\n'), self.path("docs")
        os.makedirs(folder)
        self.write("docs/a.md", "hello")
        for option in (("--field", "text"), ("--id-field", "id"), ("--template", "{text}"), ("--keep", "title"), ("--keep", "text,title")):
            self.refuse(f"{option[0]}: {source} is read as lines", source, *option)
            self.refuse(f"{option[0]}: {source} is read as lines", table, source, *option)  # before a row is computed
            self.refuse(f"{option[0]}: standard input is read as lines", "-", *option, input=b"hello\n")
            self.refuse(f"{option[0]}: {folder}/a.md is read as one text", folder, *option)
            self.assertIn(f"{option[0]}", self.job(*option, input=b"hello\n", code=DATAERR))
        self.refuse("--no-header: " + table, table, "--no-header")
        self.refuse("--no-header: " + source, source, "--no-header")
        self.refuse("--field and --template", table, "--field", "a", "--template", "{b}")
        for output in ("v.npy", "v.f32", "out/"):
            self.assertIn("--keep", self.job(table, "--keep", "text", "--output", self.path(output), code=DATAERR))
            self.assertFalse(os.path.exists(self.path(output)))
        self.job(source, folder, "--keep", "text", "--output", self.path("v.jsonl"))
        self.assertEqual([json.loads(line)["text"] for line in self.content(self.path("v.jsonl")).splitlines()], ["hello", "hello"])

    def test_broken_arrays(self):
        """Rows before the broken place are kept, and the job continues once the file is repaired."""
        for number, (content, says) in enumerate((('[{"text": "hello"},\n{"text": "the"', "line 2: from here on the array is not closed"),
                                                  ('[{"text": "hello"},\n{"text": "the}]', "line 2: from here on the array is not closed"),
                                                  ('[{"text": "hello"}\n\n', "line 3: the array is not closed"),
                                                  ('[{"text": "hello"},\n,{"text": "the"}]', "line 2: the array lacks an element here"),
                                                  ('[{"text": "hello"},\n]', "line 2: the array lacks an element here"),
                                                  ('[{"text": "hello"}\n {"text": "the"}]', "line 2: neither a comma nor the end"),
                                                  ('[{"text": "hello"}]\n[{"text": "the"}]', "line 2: more text after the end"))):
            source, output = self.write(f"{number}.json", content), self.path(f"{number}.npy")
            said = self.job(source, "--output", output, code=DATAERR)
            self.assertIn(f"{source} {says}", said)
            self.assertIn("rerunning the command resumes", said)
            self.write(f"{number}.json", '[{"text": "hello"}, {"text": "the"}]')
            self.job(source, "--output", output)
            self.expect(output, ["hello", "the"])
        source, output = self.write("a.json", '[{"text": "hello"}, {1}, 7, {"text": "' + "x" * 80000 + '"},\n {"text": "the"}]'), self.path("a.npy")
        self.job(source, "--output", output, "--max-text-bytes", "1000", code=FAILED)
        self.expect(output, ["hello", None, None, None, "the"])
        listed = self.failures(output)
        self.assertEqual([line["code"] for line in listed], ["bad_json", "not_object", "too_large"])
        self.assertEqual(listed[0]["message"], "not JSON at byte 2 of the array's element")
        self.refuse("is a JSON object over several lines", self.write("b.json", '{\n  "rows": []\n}\n'))
        said = self.job(self.write("c.json", '[\n{"body": "hello"}]'), "--output", self.path("c.npy"), code=DATAERR)
        self.assertIn('c.json line 2: field "text" is missing, as in all rows that parse (1); there are: "body"', said)


class OwnInputs(BulkCase):
    """A job never deletes or writes to its own input, whatever name that has."""

    def keep(self, source, *arguments, redirect=""):
        """Asserts that the job is refused, and that the input is as before."""
        before = self.content(source)
        command = [BINARY, "embed", "--model", self.make_model(), "--precision", "f32", *arguments]
        job = subprocess.run(["sh", "-c", f'exec "$@" {redirect}', "sh", *command], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                             env=process.clean_environment(), timeout=60, check=False)
        self.assertEqual(job.returncode, DATAERR, job.stderr)
        self.assertIn(b"is an input, and a file that this job would write or delete; name another --output", job.stderr)
        self.assertEqual(self.content(source), before)

    def test_the_input_is_a_file_of_the_output(self):
        line = '{"text": "hello"}\n'
        for name, output in (("same.jsonl", "same.jsonl"), ("kd/ids.jsonl", "kd/"), ("kd/vectors-00000.npy", "kd/"),
                             ("t.npy.ids.jsonl", "t.npy"), ("t.npy.failures.jsonl", "t.npy"), ("u.npy.failures.jsonl.new", "u.npy"),
                             ("w.npy.job/journal", "w.npy")):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            source = self.write(name, line)
            for flags in ((), ("--overwrite",), ("--dry-run",)):
                with self.subTest(name=name, flags=flags):
                    self.keep(source, source, "--format", "jsonl", "--output", self.path(output), *flags)
        other = self.write("other.jsonl", line)
        same = self.path("same.jsonl")
        os.symlink(other, self.path("link.jsonl"))
        os.link(other, self.path("hard.jsonl"))
        for source, output in ((self.path("./same.jsonl"), same), (self.path("link.jsonl"), self.path("link.jsonl")),
                               (self.path("link.jsonl"), other), (other, self.path("hard.jsonl"))):
            self.keep(source, other, source, "--output", output, "--overwrite")
        self.keep(other, other, same, "--output", same, "--overwrite")  # among others
        self.keep(same, "-", "--format", "jsonl", "--output", same, "--overwrite", redirect=f"< {same}")
        self.job(other, "--output", self.path("good.npy"), "--overwrite")
        self.job(other, "--output", self.path("good.npy"), "--overwrite")
        self.expect(self.path("good.npy"), ["hello"])

    def test_the_output_is_in_the_folder_that_is_read(self):
        """Also where the job makes the file that the pattern then finds."""
        os.makedirs(self.path("docs"))
        source = self.write("docs/a.jsonl", '{"text": "hello"}\n')
        for output in ("docs/v.jsonl", "docs/v.npy", "docs/"):
            with self.subTest(output=output):
                self.keep(source, self.path("docs"), "--glob", "*.jsonl", "--id-field", "text", "--output", self.path(output))
                self.assertEqual(os.listdir(self.path("docs")), ["a.jsonl"])
        self.job(self.path("docs"), "--glob", "a.*", "--output", self.path("docs/v.npy"))
        self.expect(self.path("docs/v.npy"), ["hello"])

    def test_one_pass(self):
        source = self.write("in.jsonl", "hello\n")
        self.keep(source, "--input", source, "--output", source)
        self.keep(source, "--output", source, redirect=f"< {source}")
        self.keep(source, "--input", source, redirect=f">> {source}")


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
        self.job(source, "--output", output, "--max-text-bytes", "1000", code=FAILED)  # finished, but still with failed rows
        self.job(source, "--output", self.path("w.jsonl"), "--max-text-bytes", "1000", code=FAILED)
        rows = [json.loads(line) for line in self.content(self.path("w.jsonl")).splitlines()]
        self.assertEqual((rows[1]["vector"], rows[1]["error"]), (None, "not_object"))
        self.assertEqual(len(rows[0]["vector"]), 64)

    def test_a_text_without_tokens(self):
        """Blank texts, with a tokenizer that adds no tokens: alone, among others, in chunks, and as a line of standard
        input."""
        for name, field, value in (("tokenizer.json", "post_processor", None),
                                   ("tokenizer_config.json", "tokenizer_class", "PreTrainedTokenizerFast")):
            path = os.path.join(self.make_model(), name)
            content = {**json.loads(self.content(path)), field: value}
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
        source = self.write("in.jsonl", '{"text": "hello"}\n{"text": "  "}\n{"text": "the"}\n')
        for flags in ((), ("--chunk", "tokens:9"), ("--max-batch-rows", "1")):
            with self.subTest(flags=flags):
                output = self.path(f"v{flags}.npy")
                self.job(source, *flags, "--output", output, code=FAILED)
                self.expect(output, ["hello", None, "the"])
                self.assertEqual([(line["code"], line["line"]) for line in self.failures(output)], [("no_tokens", 2)])
        said = self.job(input=b"hello\n\nthe\n", code=DATAERR)
        self.assertIn("standard input line 2: the tokenizer makes no token of it", said)

    def test_a_mistyped_field_ends_at_once(self):
        """The message names the existing fields, and no file is left. A row that lacks the field while others have it
        is a failed row."""
        record = '{"id": 1, "title": "hello", "meta": {"lang": "en", "by": {"name": "x"}}, "tags": ["a"]}\n'
        source = self.write("in.jsonl", record * 300)
        fields = '"id", "title", "meta.lang", "meta.by.name"'
        for flags, what in ((("--field", "titel"), '"titel" is missing'), (("--field", "meta.long"), '"meta.long" is missing'),
                            (("--field", "meta"), '"meta" is an object or an array, not a text'),
                            (("--template", "{title} {body}"), '"body" is missing'),
                            (("--field", "title", "--id-field", "key"), '"key" is missing')):
            for name in ("v.npy", "v.jsonl", "-", "v.f32"):
                with self.subTest(flags=flags, name=name):
                    said = self.job(source, *flags, "--output", name if name == "-" else self.path(name), code=DATAERR)
                    self.assertIn(f"{source} line 1: field {what}, as in all rows that parse (300); there are: {fields}: name others", said)
                    self.assertEqual(set(os.listdir(self.directory)), {"in.jsonl", "models"})
        said = self.job(source, "--field", "titel", "--look-ahead", "100", "--output", self.path("v.npy"), code=DATAERR)
        self.assertIn("all rows that parse (100)", said)
        self.assertIn("there is no field:", self.job(self.write("in.jsonl", "{}\n"), "--output", self.path("v.npy"), code=DATAERR))
        self.write("in.jsonl", json.dumps({f"field {number:03}": number for number in range(100)}))
        said = self.job(source, "--output", self.path("v.npy"), code=DATAERR)
        self.assertRegex(said, r'there are: "field 000", .*"field 01\d", \.\.\.: name others')
        self.write("in.jsonl", record * 99 + '{"titel": "the"}\n' + record * 200)
        self.job(source, "--field", "titel", "--look-ahead", "100", "--output", self.path("v.npy"), code=FAILED)
        self.expect(self.path("v.npy"), [None] * 99 + ["the"] + [None] * 200)
        self.write("in.jsonl", record * 99 + '{"titel": "the"}\n' + record * 201)  # further rows that lack it are failed rows
        self.job(source, "--field", "titel", "--output", self.path("v.npy"), code=FAILED)
        self.expect(self.path("v.npy"), [None] * 99 + ["the"] + [None] * 201)

    def test_a_broken_row_does_not_hide_a_mistyped_field(self):
        """The name is judged by the rows that parse, wherever the broken ones are; one row with the field makes it
        valid."""
        record = '{"id": 1, "body": "hello"}\n'
        for broken in ("{broken\n", "[1]\n", '{"bodi": "\xff"}\n', '{"body": "' + "x" * 80000 + '"}\n'):
            for lines in (broken + record * 300, record * 300 + broken, record * 150 + broken + record * 150):
                source = self.write("in.jsonl", lines.encode("latin-1"))
                said = self.job(source, "--field", "bodi", "--max-text-bytes", "1000", "--output", self.path("v.npy"), code=DATAERR)
                self.assertIn('field "bodi" is missing, as in all rows that parse (300); there are: "id", "body"', said)
                self.assertEqual(set(os.listdir(self.directory)), {"in.jsonl", "models"})
        source = self.write("in.jsonl", "{broken\n" + record * 3 + '{"bodi": ""}\n')
        self.job(source, "--field", "bodi", "--output", self.path("v.npy"), code=FAILED)
        self.assertEqual([line["code"] for line in self.failures(self.path("v.npy"))],
                         ["bad_json"] + ["missing_field"] * 3 + ["empty_text"])

    def test_an_error_before_the_first_row_leaves_nothing(self):
        wrong = self.write("a.csv", "id,body\n1,hello\n")
        for name, flags in (("v.npy", ()), ("v.jsonl", ()), ("v.npy", ("--id-field", "id")), ("v.npy", ("--chunk", "tokens:9"))):
            with self.subTest(name=name, flags=flags):
                self.job(wrong, *flags, "--output", self.path(name), code=DATAERR)
                self.assertEqual(set(os.listdir(self.directory)), {"a.csv", "models"})
        self.job(wrong, "--output", self.path("out/"), code=DATAERR)
        self.assertEqual(os.listdir(self.path("out")), [])
        first = self.write("a.txt", "hello\n")
        output = self.path("v.npy")
        self.job(first, wrong, "--output", output, code=DATAERR)  # the computed row is kept
        self.assertTrue(os.path.exists(output + ".job/journal"))
        self.write("a.txt", "the\n")
        self.assertIn("has changed", self.job(first, wrong, "--output", output, code=DATAERR))
        self.assertTrue(os.path.exists(output + ".job/journal"))

    def test_a_record_of_100_mb(self):
        """A line or an array element of this size fails, and is never held in memory."""
        for name, before, after in (("in.jsonl", b"", b'\n{"text": "hello"}\n'), ("in.json", b'["', b'",\n{"text": "hello"}]')):
            peaks = []
            for size in (100, 100_000_000):
                with open(self.path(name), "wb") as file:
                    file.write(before)
                    file.truncate(size)
                    file.seek(size)
                    file.write(after)
                output = self.path(f"v{size}.npy")
                job = process.start([BINARY, "embed", "--model", self.make_model(), "--precision", "f32", self.path(name), "--output", output,
                                     "--overwrite", "--progress", "none"], env=process.clean_environment())
                _, status, usage = os.wait4(job.pid, 0)
                job.returncode = os.waitstatus_to_exitcode(status)
                self.assertEqual(job.returncode, FAILED)
                self.expect(output, [None, "hello"])
                peaks.append(usage.ru_maxrss // 1024)
            self.assertLess(peaks[1] - peaks[0], 60, "MB")

    def test_separators_that_are_not_read(self):
        for name, content, says in (("a.csv", "id;body\n1;hello\n", "line 1: ';' separates its columns"),
                                    ("b.csv", "id|body\n1|hello\n", "line 1: '|' separates its columns"),
                                    ("c.csv", "id\tbody\n1\thello\n", "line 1: tabs separate its columns: --format tsv"),
                                    ("d.csv", "id body\n1 hello\n", 'there are: "id body"')):
            self.assertIn(says, self.job(self.write(name, content), "--field", "body", "--output", self.path("v.npy"), code=DATAERR))
        said = self.job(self.path("a.csv"), "--field", "body", "--output", self.path("v.npy"), code=DATAERR)
        convert = said.split("is read: ")[1].split(" < FILE")[0]
        done = subprocess.run(["sh", "-c", f"{convert} < {self.path('a.csv')}"], capture_output=True, check=True)
        self.job("-", "--format", "csv", "--field", "body", "--output", self.path("v.npy"), input=done.stdout)
        self.expect(self.path("v.npy"), ["hello"])

    def test_a_folder_that_does_not_exist(self):
        source = self.write("in.txt", "hello\n")
        for output in ("no/v.npy", "no/such/"):
            said = self.job(source, "--output", self.path(output), code=NOINPUT)
            self.assertIn(f"the folder {os.path.dirname(self.path(output.rstrip('/')))}/ does not exist", said)

    def test_csv_rows(self):
        source = self.write("in.csv", b'text,b\nhello,1\n"open" x,2\none\nthe,4\n\xff,5\n')
        output = self.path("v.npy")
        self.job(source, "--output", output, code=FAILED)
        self.expect(output, ["hello", None, None, "the", None])
        listed = self.failures(output)
        self.assertEqual([line["code"] for line in listed], ["bad_csv", "bad_csv", "bad_utf8"])
        self.assertIn("column 7", listed[0]["message"])
        self.assertIn("1 fields", listed[1]["message"])

    def test_a_quote_that_is_never_closed(self):
        """In a file of any size the text after it cannot be parsed, so the file is broken there. Rows before it are
        kept, and the job continues once the quote is closed. Here a record may have 74 kB."""
        flags = ("--max-text-bytes", "1000")
        for count in (0, 3, 2_000, 100_000):
            source, output = self.path(f"{count}.csv"), self.path(f"{count}.npy")
            rows = b"".join(b"row %d of many rows,x\n" % number for number in range(count))
            self.write(source, b'text,b\nhello,1\n"the\nof",2\nof,"never closed\n' + rows)
            said = self.job(source, "--output", output, *flags, code=DATAERR)
            self.assertIn(f"{source} line 5: the quote at column 4 is never closed", said)
            self.assertIn("rerunning the command resumes", said)
            self.write(source, b'text,b\nhello,1\n"the\nof",2\n"closed",of\nhello,1\n')
            self.job(source, "--output", output, *flags)
            self.expect(output, ["hello", "the of", "closed", "hello"])
        source, output = self.path("long.csv"), self.path("long.npy")
        lines = b"a line of a long text\n" * 5000
        self.write(source, b'text,b\nhello,1\n"' + lines + b'",2\nthe,3\n"' + lines + b'" x,4\nof,5\n')
        said = self.job(source, "--output", output, *flags, code=DATAERR)
        self.assertIn(f"{source} line 5005: the quote at column 1 is closed too far away", said)
        self.write(source, b'text,b\nhello,1\n"' + lines + b'",2\nthe,3\n"' + lines + b'",4\nof,5\n')
        self.job(source, "--output", output, *flags, code=FAILED)
        self.expect(output, ["hello", None, "the", None, "of"])  # none of the quoted lines is taken for a row
        self.assertEqual([(line["line"], line["code"]) for line in self.failures(output)], [(3, "too_large"), (5005, "too_large")])

    def test_strict_ends_at_the_first(self):
        source = self.write("in.txt", b"hello\nthe\n\xff\nof\n")
        said = self.job(source, "--output", self.path("v.npy"), "--strict", code=DATAERR)
        self.assertIn(f"{source} line 3: not UTF-8 at byte 1", said)
        self.assertIn("rerunning the command resumes", said)

    def test_strict_names_file_and_line_of_every_kind(self):
        for number, (line, says) in enumerate(((b'{"text": "\xff"}', "not UTF-8"), (b"[1]", "not an object"), (b"{broken", "not JSON"),
                                               (b'{"no": 1}', "missing"), (b'{"text": ""}', "empty"), (b'{"text": {}}', "not a text"),
                                               (b'{"text": "' + b"x" * 2000 + b'"}', "longer than"))):
            source = self.write(f"{number}.jsonl", b'{"text": "hello"}\n\n' + line + b'\n{"text": "the"}\n')
            said = self.job(source, "--output", self.path(f"{number}.npy"), "--strict", "--max-text-bytes", "1000", code=DATAERR)
            self.assertRegex(said, re.escape(f"{source} line 3: ") + f".*{says}")

    def test_broken_gzip(self):
        """Rows before the broken place are kept; once the file is whole the job continues."""
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

    def test_an_input_that_vanishes_meanwhile(self):
        """A file exists when the job begins, but not when its turn comes: rows read before it are kept."""
        output = self.path("v.npy")
        second = self.write("b.txt", "the\n")
        os.makedirs(self.path("docs"))
        gone = self.write(os.path.join("docs", "c.txt"), "of")
        for operand, vanished, code in ((second, second, NOINPUT), (self.path("docs"), gone, 0)):
            child = process.start([BINARY, "embed", "--model", self.make_model(), "--precision", "f32", "-", operand, "--output", output,
                                   "--overwrite"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=process.clean_environment())
            self.wait_until(lambda: os.path.exists(output + ".job/journal"), "the job to begin")
            os.unlink(vanished)
            said = child.communicate(b"hello\nworld\n")[1].decode()
            self.assertEqual(child.returncode, code, said)
            if code == 0:
                self.expect(output, ["hello", "world"])  # a folder is listed when its turn comes
                continue
            self.assertIn(f"cannot open {second}", said)
            self.assertIn("rerunning the command resumes", said)
            self.write("b.txt", "the\n")
            self.job("-", operand, "--output", output, input=b"hello\nworld\n")
            self.expect(output, ["hello", "world", "the"])

    def test_output_that_cannot_be_written(self):
        source = self.write("in.txt", "hello\n")
        self.assertIn("v.npy", self.job(source, "--output", self.path("no", "v.npy"), code=NOINPUT))
        self.assertIn("must end in .npy or .jsonl", self.job(source, "--output", self.path("v.csv"), code=DATAERR))
        self.assertIn(f"{source}/v.npy", self.job(source, "--output", source + "/v.npy", code=NOINPUT))
        os.makedirs(self.path("taken.npy.job", "journal"))
        self.assertIn("taken.npy.job", self.job(source, "--output", self.path("taken.npy"), code=IOERR))
        self.assertEqual(self.content(source), b"hello\n")

    def test_nothing_is_written_through_a_symbolic_link(self):
        """Write access to the output's folder lets others create names there, but not choose which of our files a job
        empties."""
        source, output = self.write("in.jsonl", '{"text": "hello", "n": 1}\n{broken\n'), self.path("v.npy")
        kinds = {"v.npy": ("", ".failures.jsonl", ".ids.jsonl", ".manifest.json.new", ".hashes", ".job", ".job/journal"),
                 "v.jsonl": ("", ".failures.jsonl", ".job/vectors"), "chunks.npy": (".documents.npy", ".chunks.npy"), "out/": ("vectors-00000.npy",)}
        for name, endings in kinds.items():
            for ending in endings:
                for target in ("precious", "precious folder", "nowhere") if ending else ("precious", "nowhere"):
                    precious = self.write("precious", "precious")
                    os.makedirs(self.path("precious folder"), exist_ok=True)
                    output = self.path(name)
                    link = output + ending
                    os.makedirs(os.path.dirname(link), exist_ok=True)
                    os.symlink(self.path(target), link)
                    flags = ("--chunk", "tokens:32,overlap:8") if "chunks" in name else ("--id-field", "n")
                    with self.subTest(link=link, target=target):
                        said = self.job(source, "--output", output, *flags, code=DATAERR)
                        self.assertIn(link, said)
                        self.assertEqual(self.content(precious), b"precious")
                        self.assertEqual(os.listdir(self.path("precious folder")), [])
                        self.assertFalse(os.path.exists(self.path("nowhere")))
                        if ending == "":
                            self.assertEqual(self.job(source, "--output", output, *flags, "--overwrite", code=FAILED).count("symbolic"), 0)
                            self.assertFalse(os.path.islink(link))
                            self.assertEqual(self.content(precious), b"precious")
                    for left in os.listdir(self.directory):
                        if left.startswith(name.rstrip("/")):
                            path = self.path(left)
                            os.unlink(path) if os.path.islink(path) or os.path.isfile(path) else shutil.rmtree(path)

    def test_files_have_what_the_umask_leaves(self):
        """Files get mode 0666 less the umask, as from any other program: with umask 077 a job's texts and vectors stay
        private."""
        source = self.write("in.jsonl", '{"text": "hello", "n": 1}\n{broken\n')
        for umask, rights in ((0o022, 0o644), (0o077, 0o600), (0o027, 0o640)):
            for name in ("v.npy", "v.jsonl", "out/"):
                output = self.path(f"{umask:o}", name)
                os.makedirs(self.path(f"{umask:o}"), exist_ok=True)
                done = subprocess.run(["/bin/sh", "-c", f'umask {umask:o}; exec "$@"', "sh", BINARY, "embed", "--model", self.make_model(),
                                       "--precision", "f32", source, "--output", output, "--id-field", "n"],
                                      env=process.clean_environment(), capture_output=True, check=False, timeout=300)
                self.assertEqual(done.returncode, FAILED, done.stderr)
            for top, folders, files in os.walk(self.path(f"{umask:o}")):
                self.assertTrue(files)
                for path in files:
                    self.assertEqual(os.stat(os.path.join(top, path)).st_mode & 0o777, rights, path)
                for path in folders:
                    self.assertEqual(os.stat(os.path.join(top, path)).st_mode & 0o777, 0o777 & ~umask, path)

    def test_disk_full(self):
        """With files limited to 100 kB the job ends with an error that says so; without the limit it continues to the
        same bytes."""
        source = self.write("in.txt", "".join(text + "\n" for text in texts(2000, seed=3)))
        self.job(source, "--output", self.path("w.npy"))
        for name, look_ahead, says, resumes in (("v.npy", "65536", b"what this run computed was not written; rerunning", False),
                                                ("u.npy", "100", b"what was computed so far is kept; rerunning", True)):
            with self.subTest(look_ahead=look_ahead):
                output = self.path(name)
                command = [BINARY, "embed", "--model", self.make_model(), "--precision", "f32", source, "--output", output,
                           "--look-ahead", look_ahead]
                limited = subprocess.run(["/bin/sh", "-c", 'trap "" XFSZ; ulimit -f 200; exec "$@"', "sh", *command],
                                         env=process.clean_environment(), capture_output=True, check=False)
                self.assertEqual(limited.returncode, IOERR, limited.stderr)
                self.assertIn(b"cannot write " + output.encode(), limited.stderr)
                self.assertIn(says, limited.stderr)
                self.assertEqual(" before" in self.job(source, "--output", output), resumes)
                self.assertEqual(self.content(output), self.content(self.path("w.npy")))

"""Searching the output of a bulk job: `sluice similar` against the same sums in Python, and its errors."""

import json
import math
import os
import struct

from case import SluiceCase
from corpus import texts
from vectors import read_npy

DATAERR, NOINPUT = 65, 66


def floats(row):
    return struct.unpack(f"<{len(row) // 4}f", row)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


class Similar(SluiceCase):
    def setUp(self):
        super().setUp()
        self.model = self.make_model()

    def embed(self, *arguments, code=0):
        result = self.run_sluice("embed", "--model", self.model, "--precision", "f32", *arguments)
        self.assertEqual(result.returncode, code, result.stderr)

    def similar(self, *arguments, code=0, model=None, says=None):
        result = self.run_sluice("similar", "--model", model or self.model, "--precision", "f32", *arguments)
        said = result.stderr.decode()
        self.assertEqual(result.returncode, code, said)
        if says is not None:
            self.assertIn(says, said)
        return result.stdout.decode()

    def rows(self, *arguments, **options):
        return [json.loads(line) for line in self.similar(*arguments, "--json", **options).splitlines()]

    def expect(self, found, query, wanted):
        """Asserts that the rows found are the best of `wanted` (vectors by row, None where there is none), in order."""
        asked = floats(self.reference()(query))
        scores = [None if row is None else cosine(floats(row), asked) for row in wanted]
        best = sorted((score for score in scores if score is not None), reverse=True)[:len(found)]
        for line, score in zip(found, best):
            self.assertAlmostEqual(line["cosine"], score, delta=2e-6)
            self.assertAlmostEqual(scores[line["row"]], score, delta=2e-6)
        self.assertEqual(len({line["row"] for line in found}), len(found))

    def test_lines(self):
        batch = texts(400, seed=11)
        source = self.write("in.txt", "\n".join(batch[:200] + [""] + batch[200:]))
        output = self.path("v.npy")
        self.embed(source, "--output", output, code=1)
        query = batch[123]
        found = self.rows("--vectors", output, "--texts", source, "--query", query, "--top", "20",
                          says="1 of 401 rows have no vector")
        self.assertEqual(len(found), 20)
        self.assertEqual((found[0]["text"], found[0]["document"]), (query, found[0]["row"]))
        self.assertAlmostEqual(found[0]["cosine"], 1, delta=1e-6)
        all_texts = batch[:200] + [""] + batch[200:]
        for line in found:
            self.assertEqual(line["text"], all_texts[line["row"]])
        reference = self.reference()
        reference.learn(batch)
        self.expect(found, query, [reference(text) if text else None for text in all_texts])
        self.assertEqual(len(self.rows("--vectors", output, "--query", query, "--top", "10000")), 400)

    def test_every_output(self):
        batch = texts(90, seed=12)
        source = self.write("in.jsonl", "".join(json.dumps({"key": f"k{i}", "a": {"t": text}}) + "\n" for i, text in enumerate(batch)))
        how = ("--field", "a.t", "--id-field", "key")
        self.embed(source, "--output", self.path("v.npy"), *how)
        want = self.rows("--vectors", self.path("v.npy"), "--texts", source, "--query", "hello world", *how)
        self.expect(want, "hello world", read_npy(self.path("v.npy")))
        self.assertEqual([line["id"] for line in want], [f"k{line['row']}" for line in want])
        self.assertEqual([line["text"] for line in want], [batch[line["row"]] for line in want])
        for output, flags in (("v.f32", ()), ("shards/", ("--shard-rows", "13")), ("half.npy", ("--dtype", "f16"))):
            self.embed(source, "--output", self.path(output), *how, *flags)
            found = self.rows("--vectors", self.path(output), "--texts", source, "--query", "hello world", *how)
            for mine, theirs in zip(found, want):
                self.assertAlmostEqual(mine["cosine"], theirs["cosine"], delta=2e-3 if "half" in output else 1e-9)
        os.remove(self.path("v.npy.manifest.json"))  # vectors not made by a bulk job
        self.assertEqual(self.rows("--vectors", self.path("v.npy"), "--texts", source, "--query", "hello world", *how), want)

    def test_chunks_are_shown(self):
        batch = [" ".join(texts(6, seed=seed)) for seed in range(12)]
        source = self.write("in.txt", "\n".join(batch))
        output = self.path("v.npy")
        self.embed(source, "--output", output, "--chunk", "tokens:16,overlap:2")
        found = self.rows("--vectors", output, "--texts", source, "--query", "the red queue")
        self.assertGreater(len(read_npy(output)), 12)
        self.assertEqual([line["text"] for line in found],
                         [batch[line["document"]].encode()[line["start"]:line["end"]].decode() for line in found])
        reference = self.reference()
        for line in found:
            self.assertEqual(read_npy(output)[line["row"]], reference(line["text"]))
        self.expect(found, "the red queue", read_npy(output))
        people = self.similar("--vectors", output, "--texts", source, "--query", "the red queue").splitlines()
        self.assertIn(" ".join(found[0]["text"][:20].split(" ")), people[0])
        self.write("in.txt", "\n".join(text[:3] for text in batch))
        self.similar("--vectors", output, "--texts", source, "--query", "the red queue", code=DATAERR, says="is the input the same?")
        os.remove(output + ".chunks.npy")  # as from an earlier version
        self.write("in.txt", "\n".join(batch))
        found = self.rows("--vectors", output, "--texts", source, "--query", "the red queue")
        self.assertEqual([line["text"] for line in found], [batch[line["document"]] for line in found])

    def test_lines_for_people(self):
        source = self.write("in.txt", "hello\tthere\x1b[31m\n" + "the " * 100 + "\n")
        output = self.path("v.npy")
        self.embed(source, "--output", output)
        lines = self.similar("--vectors", output, "--texts", source, "--query", "hello there").splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"^ [01]\.\d{4}  0  hello there\\x1b\[31m$")
        self.assertRegex(lines[1], r"^ ?-?[01]\.\d{4}  1  (the )+ ?\.\.\.$")

    def test_refusals(self):
        source = self.write("in.txt", "hello\nthe\n")
        output = self.path("v.npy")
        self.embed(source, "--output", output)
        ask = ("--vectors", output, "--query", "x")
        self.similar("--query", "x", code=DATAERR, says="--vectors and --query must be given")
        self.similar("--vectors", output, "--query", "", code=DATAERR, says="and not be empty")
        self.similar(*ask, "--texts", self.path("none"), code=NOINPUT, says="none")
        self.similar("--vectors", self.path("none.npy"), "--query", "x", code=NOINPUT, says="none.npy")
        self.similar(*ask, "--texts", self.write("more.txt", "a\nb\nc"), code=DATAERR, says="those of 2 texts, but the input has 3")
        self.similar(*ask, "--texts", source, source, code=DATAERR, says="but the input has 4")
        lines = self.write("lines.jsonl", '{"body": "a"}\n{"body": "b"}\n')
        self.similar(*ask, "--texts", lines, code=DATAERR, says='there are: "body": name others with --field')
        other = self.make_model("other", seed=77)
        self.similar(*ask, model=other, code=DATAERR, says='another model: "')
        self.similar(*ask, model=other, code=DATAERR, says='("other")')
        os.remove(output + ".manifest.json")
        wide = self.make_model("wide", hidden=32)
        self.similar(*ask, model=wide, code=DATAERR, says="with 64 columns; the model's vectors are <f4 or <f2 in rows, with 32 columns")
        self.similar("--vectors", self.write("w.npy", "not one"), "--query", "x", code=DATAERR, says="is not an .npy file")
        self.similar("--vectors", self.write("w.f32", b"12345"), "--query", "x", code=DATAERR, says="5 bytes are not those of 0 rows")
        os.mkdir(self.path("v.npy.job"))
        self.similar(*ask, code=DATAERR, says="has not finished")

"""Shared by the cases of bulk jobs: inputs with some broken rows, running a job, and the files of a job."""

import hashlib
import itertools
import json
import math
import os
import random
import struct

from case import SANITIZED, SluiceCase
from corpus import texts
from vectors import read_npy

FAILED, USAGE, DATAERR, NOINPUT, UNAVAILABLE, SOFTWARE, OSERR, IOERR, TEMPFAIL, NOPERM = 1, 64, 65, 66, 69, 70, 71, 74, 75, 77


def floats(row):
    return struct.unpack(f"<{len(row) // 4}f", row)


class BulkCase(SluiceCase):
    def job(self, *arguments, code=0, **options):
        """Runs a local job to its end; returns its output."""
        options.setdefault("timeout", 300)  # under a sanitizer, on a busy machine
        result = self.run_sluice("embed", "--model", self.make_model(), "--precision", "f32", *arguments, **options)
        if code is not None:
            self.assertEqual(result.returncode, code, result.stderr.decode("utf-8", "replace"))
        return result.stderr.decode("utf-8", "replace")

    def make_heavy(self):
        """A model that keeps a job busy for a while, so that kills find rows in every stage; a smaller one under a sanitizer."""
        return self.make_model("heavy", hidden=192, heads=4, layers=1 if SANITIZED else 3, intermediate=512)

    def write_rows(self, count, seed, broken, ending=""):
        """in.jsonl with equal texts and others; every `every`-th line from `first` on, `broken` = (every, first), is no JSON."""
        generator = random.Random(seed)
        words = texts(400, seed=seed, longest=20)
        lines = []
        for i in range(count):
            text = generator.choice(words) + (f" {i}{ending}" if i % 3 else "")
            lines.append("{broken" if i % broken[0] == broken[1] else json.dumps({"text": text, "n": i}))
        return self.write("in.jsonl", "\n".join(lines))

    def content(self, path):
        with open(path, "rb") as file:
            return file.read()

    def files(self, output, without=None):
        """All files of a job by the ends of their names, without its name and this case's folder (and so without the hash of the
        list of failures in the manifest); lines with some bytes are left out."""
        found, hashes = {}, []
        for top, _, names in os.walk(self.directory):
            for path in (os.path.join(top, name) for name in names):
                if path.startswith(output):
                    content = self.content(path)
                    if path.endswith("failures.jsonl"):
                        hashes.append(hashlib.sha256(content).hexdigest().encode())
                    content = content.replace(os.path.basename(output).encode(), b"OUTPUT").replace(self.directory.encode(), b"")
                    lines = content.splitlines(True) if without else [content]
                    found[path[len(output):]] = b"".join(line for line in lines if not without or without not in line)
        for name, digest in itertools.product(found, hashes):
            if name.endswith("manifest.json"):
                found[name] = found[name].replace(digest, b"HASH OF FAILURES")
        return found

    def failures(self, output):
        with open(output + ".failures.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def manifest(self, output):
        with open(output + ".manifest.json", encoding="utf-8") as file:
            return json.load(file)

    def expect(self, output, wanted):
        """Asserts that the rows of an .npy are the vectors of these texts; None is a row that failed."""
        reference = self.reference()
        reference.learn([text for text in wanted if text is not None])
        rows = read_npy(output)
        self.assertEqual(len(rows), len(wanted))
        for number, (row, text) in enumerate(zip(rows, wanted)):
            if text is None:
                self.assertTrue(all(math.isnan(value) for value in floats(row)), f"row {number}")
            else:
                self.assertEqual(row, reference(text), f"row {number}")

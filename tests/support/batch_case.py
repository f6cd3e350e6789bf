"""Shared by the cases of `sluice batch`: files of requests, running a batch, and its two outputs."""

import json
import random

from bulk_case import FAILED, BulkCase
from corpus import texts


def request(custom_id, input, **body):
    """A line as OpenAI's clients write it."""
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": {"model": "tiny", "input": input, **body}})


class BatchCase(BulkCase):
    def batch(self, source, output="out.jsonl", *flags, code=0, **options):
        """Runs a batch to its end; returns what it said."""
        options.setdefault("timeout", 300)
        result = self.run_sluice("batch", "--model", self.make_model(), "--precision", "f32", source, "--output", self.path(output), *flags, **options)
        said = result.stderr.decode("utf-8", "replace")
        self.assertEqual(result.returncode, code, said)
        return said

    def answers(self, output="out.jsonl"):
        """The lines of both outputs, each by its custom_id; every line has the members of a batch's output."""
        found = []
        for name in (output, output.replace(".jsonl", ".errors.jsonl")):
            try:
                lines = [json.loads(line) for line in self.content(self.path(name)).splitlines()]
            except FileNotFoundError:
                lines = []
            for line in lines:
                self.assertEqual(list(line), ["id", "custom_id", "response", "error"])
                self.assertRegex(line["id"], "^batch_req_[0-9a-f]{32}$")
                self.assertNotEqual(line["response"] is None, line["error"] is None)
                if line["response"]:
                    self.assertEqual(list(line["response"]), ["status_code", "request_id", "body"])
            found.append(lines)
        good, failed = found
        ids = [line["id"] for line in good + failed]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertTrue(all(line["response"]["status_code"] == 200 for line in good))
        self.assertTrue(all(line["error"] or line["response"]["status_code"] >= 400 for line in failed))
        return good, failed

    def write_requests(self, count, seed):
        """in.jsonl with requests of all shapes: one text or several, equal ones, dimensions, base64, and lines that fail."""
        generator = random.Random(seed)
        words = texts(200, seed=seed, longest=20)
        lines = []
        for i in range(count):
            text = generator.choice(words) + (f" {i}" if i % 3 else "")
            several = [generator.choice(words) + f" {i % 50} {k}" for k in range(generator.randrange(1, 9))]
            lines.append("{broken" if i % 101 == 7 else
                         request(f"n{i}", several) if i % 4 == 1 else
                         request(f"n{i}", several, dimensions=8, encoding_format="base64") if i % 4 == 2 else
                         request(f"n{i}", "" if i % 97 == 5 else text, encoding_format="base64" if i % 8 else "float"))
        return self.write("in.jsonl", "\n".join(lines) + "\n")


__all__ = ["FAILED", "BatchCase", "request"]

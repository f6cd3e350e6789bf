"""`sluice classify` and `sluice rerank`: their arguments, output and errors. golden/heads_golden.py tests the
numbers."""

import json
import os
import re
import shlex
import subprocess

from case import SluiceCase
from daemon import BINARY, SOURCE


class Classify(SluiceCase):
    def run_task(self, task, directory, *arguments, code=0, says=None, texts=()):
        source = self.write("in.txt", "".join(text + "\n" for text in texts))
        result = self.run_sluice(task, "--model", directory, "--precision", "f32", "--input", source, *arguments)
        said = result.stderr.decode()
        self.assertEqual(result.returncode, code, said)
        if says is not None:
            self.assertIn(says, said)
        return [json.loads(line) for line in result.stdout.decode().splitlines()]

    def refused(self, task, directory, says, *arguments):
        result = self.run_sluice(task, "--model", directory, *arguments)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertIn(says, result.stderr.decode())

    def edit(self, directory, file="config.json", **fields):
        path = os.path.join(directory, file)
        with open(path, encoding="utf-8") as old:
            content = {**json.load(old), **fields}
        with open(path, "w", encoding="utf-8") as new:
            json.dump({key: value for key, value in content.items() if value is not None}, new)

    def test_more_than_a_chunk(self):
        """Lines come in the order of the input, however they were batched; equal texts have equal scores."""
        directory = self.make_classifier(labels=["a", "b", "c"])
        texts = [" ".join(["hello", "red", "blue"][:1 + i % 3]) + " x" * (i % 40) for i in range(2500)]
        lines = self.run_task("classify", directory, texts=texts)
        self.assertEqual(len(lines), len(texts))
        scores = {}
        for text, line in zip(texts, lines):
            self.assertEqual(scores.setdefault(text, line), line)
            self.assertAlmostEqual(sum(entry["score"] for entry in line), 1, delta=1e-6)
        self.assertGreater(len({json.dumps(line) for line in lines}), 50)

        reranker = self.make_classifier("one")
        lines = self.run_task("rerank", reranker, "--query", "red", texts=texts)
        self.assertEqual([line["index"] for line in lines], list(range(len(texts))))
        self.assertEqual(self.run_task("rerank", reranker, "--query", "red", texts=texts[7:8])[0]["score"], lines[7]["score"])
        self.assertEqual(self.run_task("rerank", reranker, "--query", "red"), [])

    def test_refusals(self):
        several, embeds = self.make_classifier(labels=["a", "b"]), self.make_model()
        self.refused("rerank", several, "2 labels", "--query", "x")
        self.refused("rerank", self.make_classifier("one"), "--query must be given")
        self.refused("rerank", self.path("models", "one"), "no room for the special tokens of a pair", "--query", "x",
                     "--max-tokens", "2")
        for task in ("classify", "rerank"):
            self.refused(task, embeds, "embeds: it has no classification head")
        self.refused("classify", several, "a prompt before the texts of a classifier", "--prefix", "q: ")
        # A model with a head is not accepted as an embedding model; `serve` accepts both kinds.
        self.refused("tokenize", several, "the pooling is not known")
        self.refused("embed", several, "the pooling is not known", self.write("t.txt", "x\n"), "--output", self.path("v.npy"))
        self.refused("serve", several, "a prompt before the texts of a classifier", "--prefix", "q: ", "--redis", self.path("none"))

    def test_what_is_not_a_text_a_line(self):
        """Lines before a bad one are answered; JSON is said, and other kinds are named; a file needs --input."""
        directory = self.make_classifier(labels=["a", "b"])
        for count in (0, 3, 1500):
            source = self.write("bad.txt", b"hello\n" * count + b"caf\xe9\nhello\n")
            done = self.run_sluice("classify", "--model", directory, "--precision", "f32", "--input", source)
            self.assertEqual((done.returncode, done.stdout.count(b"\n")), (65, count))
            self.assertIn(f"bad.txt line {count + 1}: not UTF-8".encode(), done.stderr)
        for content, lines, says in ((b'{"text": "hello"}\n', 1, b"looks like JSON, and each line is one text"),
                                     (b"PAR1\x15\x04\x15\x00\n", 0, b"is Parquet, not lines of text"), (b'"a" said\n', 1, b"")):
            done = self.run_sluice("classify", "--model", directory, "--precision", "f32", input=content)
            self.assertEqual((done.returncode, done.stdout.count(b"\n")), (0 if lines else 65, lines))
            self.assertIn(says, done.stderr)
            self.assertEqual(bool(says), bool(done.stderr))
        done = self.run_sluice("classify", "--model", directory, "--input", self.write("t.csv", "name,text\na,hello\n"))
        self.assertEqual((done.returncode, done.stdout.count(b"\n")), (0, 2))
        self.assertIn(b"t.csv is named as a table, but each line is one text", done.stderr)
        done = self.run_sluice("classify", "--model", directory, input=b"hello " * 3000 + b"\nhello\n")
        self.assertIn(b"sluice classify: 1 of 2 texts are longer than the model takes and lost the rest", done.stderr)
        for command in ("classify", "rerank", "tokenize"):
            self.assertIn(f'{command} takes no arguments: --input "in.txt" names a file', self.run_sluice(command, "in.txt").stderr.decode())

    def readme(self, task):
        """Runs the README's line for a task with the shipped model: returns its output, and the output that the README
        shows."""
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            command, shown = re.search(rf"(?m)^\$ ((?:.*\\\n)*.*build/release/sluice {task} .*)\n((?:[\[{{].*\n)+)", file.read()).groups()
        command = command.replace("build/release/sluice", shlex.quote(BINARY))
        return subprocess.run(command, shell=True, cwd=SOURCE, capture_output=True, check=True).stdout.decode(), shown

    def test_readme(self):
        printed, shown = self.readme("classify")
        line, shown = json.loads(printed), json.loads(shown.rstrip("\n.,") + "]")
        self.assertEqual([entry["label"] for entry in shown], [entry["label"] for entry in line[:len(shown)]])
        for mine, other in zip(shown, line):
            self.assertAlmostEqual(mine["score"], other["score"], delta=0.02)  # bf16 where that is faster

    def test_readme_ranks(self):
        printed, shown = ([json.loads(line) for line in text.splitlines()] for text in self.readme("rerank"))
        self.assertEqual([line["index"] for line in printed], [line["index"] for line in shown])
        for mine, other in zip(shown, printed):
            self.assertAlmostEqual(mine["score"], other["score"], delta=0.02)

    def test_shipped_reranker(self):
        directory = os.path.join(SOURCE, "config/models/sluice-mini-en-rerank")
        texts = ["simple calculator for the desktop", "library that reads and writes PNG images", "free chess game with network play",
                 "tool to recover deleted files", "monitor that shows the temperature of the processor"]
        for right, query in enumerate(["desktop calculator", "read png images", "play chess over the network", "recover deleted files",
                                       "show the cpu temperature"]):
            lines = self.run_task("rerank", directory, "--query", query, texts=texts)
            self.assertEqual(max(lines, key=lambda line: line["score"])["index"], right, query)

    def test_config(self):
        for number, (says, fields) in enumerate([
                ("problem_type \"ranking\" is not supported", {"problem_type": "ranking"}),
                ("the keys must be 0 to 1, each once", {"id2label": {"0": "a", "2": "b"}}),
                ("the keys must be 0 to 1, each once", {"id2label": {"0": "a", "00": "b"}}),
                ("id2label: 1 must be a string", {"id2label": {"0": "a", "1": 7}}),
                ("id2label has 2 labels and num_labels is 3", {"num_labels": 3}),
                ("classifier.weight must have the shape [4, 32]", {"id2label": None, "num_labels": 4}),
                ("activation_fn", {"id2label": {"0": "a"}, "sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}),
                ("\"my.Sigmoid\" is not supported", {"id2label": {"0": "a"},
                                                     "sbert_ce_default_activation_function": "my.Sigmoid"}),
                ("the pooling is not known", {"architectures": ["BertForMaskedLM"]})]):
            directory = self.make_classifier(f"bad{number}", labels=["a", "b"])
            self.edit(directory, **fields)
            self.refused("classify", directory, says)
        for field, value in (("classifier_pooling", "max"), ("classifier_activation", "relu"), ("classifier_bias", 1)):
            directory = self.make_classifier(field, family="modernbert", config={field: value})
            self.refused("classify", directory, field)
        unnamed = self.make_classifier("unnamed", labels=["a", "b"])
        self.edit(unnamed, id2label=None, label2id=None)
        [line] = self.run_task("classify", unnamed, texts=["hello"])
        self.assertEqual({entry["label"] for entry in line}, {"LABEL_0", "LABEL_1"})

"""`sluice model`: its output for a directory, its errors, and its comparison with vectors made elsewhere."""

import json
import math
import os
import struct

from case import SluiceCase
from corpus import texts
from daemon import SOURCE

USAGE, DATAERR, NOINPUT = 64, 65, 66


class Model(SluiceCase):
    def look(self, *arguments):
        result = self.run_sluice("model", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refused(self, code, says, *arguments):
        result = self.run_sluice("model", *arguments)
        self.assertEqual((result.returncode, result.stdout), (code, b""), result.stderr)
        self.assertIn(says, result.stderr.decode())

    def test_embeds(self):
        directory = self.make_model(prompts={"query": 'find "it": '}, normalize=False)
        told = self.look(directory, "--precision", "f32", "--prompt", "query")
        expected = {"model": "tiny", "family": "bert", "tasks": ["embed"], "layers": 2, "hidden": 64, "dims": 64, "max_tokens": 64,
                    "tokenizer": "WordPiece", "pooling": "mean", "modules": [], "normalize": False,
                    "prompts": {"query": 'find "it": '}, "prompt": 'find "it": ', "words_dtype": "f32", "layers_dtype": "f32",
                    "precision": "f32"}
        self.assertEqual({name: told[name] for name in expected}, expected)
        self.assertGreaterEqual(os.path.getsize(os.path.join(directory, "model.safetensors")), told["file_bytes"])
        self.assertGreater(told["weight_bytes"], self.look("--model", directory, "--precision", "int8")["weight_bytes"])

    def test_says_what_runs_in_int8(self):
        """Product by product, and how the others are computed, which depends on the instruction set."""
        directory = self.make_model("deep", layers=12)
        for isa, others in (("avx2", "16-bit integers"), ("generic", "f32")):
            told = self.run_sluice("model", directory, "--precision", "int8", environment={"SLUICE_ISA": isa})
            found = json.loads(told.stdout)
            self.assertEqual((found["int8_of"], found["int8_others"]), (60, others))
            self.assertEqual(sum(len(layers) for layers in found["int8_products"].values()), found["int8_count"])
            self.assertRegex(found["device"], rf", {isa}, {found['int8_count']} of 60 products in int8, ")
            self.assertTrue(found["int8_mean_error"] <= found["int8_worst_error"] <= 0.005)
        everything = self.look(self.make_model(), "--precision", "int8_all")
        self.assertEqual((everything["precision"], everything["int8_count"], everything["int8_of"]), ("int8_all", 10, 10))
        self.assertNotIn("int8_mean_error", everything)

    def test_counts_the_products_in_int8(self):
        told = self.look(self.make_model(), "--precision", "int8")
        self.assertEqual(told["int8_of"], 10)
        self.assertEqual(told["int8_count"], sum(map(len, told["int8_products"].values())))
        self.assertGreater(told["int8_count"], 0)
        self.assertNotIn("int8_count", self.look(self.make_model(), "--precision", "f32"))

    def test_warns_of_a_model_without_int8(self):
        """Its vectors are not numbers, so no product can be exact enough."""
        directory = self.make_model("broken")
        with open(os.path.join(directory, "model.safetensors"), "r+b") as file:
            file.seek(-4, os.SEEK_END)  # the last bias
            file.write(struct.pack("<f", math.nan))
        said = self.run_sluice("model", directory, "--precision", "int8")
        told = json.loads(said.stdout)
        self.assertEqual((told["int8_count"], told["int8_of"]), (0, 10))
        self.assertRegex(said.stderr.decode(), r" warn int8_unused model=broken computes_in=\S+")
        self.assertNotIn(b"int8_unused", self.run_sluice("model", self.make_model(), "--precision", "int8").stderr)

    def test_classifies(self):
        several = self.look(self.make_classifier(labels=["joy", 'a "b"']))
        self.assertEqual((several["tasks"], several["labels"], several["dims"]), (["classify"], ["joy", 'a "b"'], 2))
        self.assertEqual((several["words_dtype"], several["modules_dtype"]), ("f32", "f32"))
        one = self.make_classifier("one")
        self.assertEqual(self.look(one)["tasks"], ["classify", "rerank"])
        shipped = self.look(os.path.join(SOURCE, "config/models/sluice-mini-en-rerank"))
        self.assertEqual((shipped["tasks"], shipped["labels"], shipped["layers"]), (["classify", "rerank"], ["relevant"], 2))
        source = self.write("t.txt", "x\n")
        self.refused(DATAERR, "this one classifies", one, "--reference", source, "--texts", source)

    def test_does_not_open(self):
        directory = self.make_model()
        self.refused(USAGE, "one directory", directory, directory)
        self.refused(NOINPUT, "no model at", self.path("none"))
        self.refused(NOINPUT, "hf download a-name/of-a-model --local-dir DIR", "a-name/of-a-model")
        path = os.path.join(directory, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, "model_type": "strange"}, file)
        words = self.run_sluice("tokenize", "--model", directory)
        self.refused(words.returncode, words.stderr.decode().removeprefix("sluice tokenize: "), directory)

    def test_says_that_a_head_is_ignored(self):
        """A SPLADE model is a masked language model without modules.json: its vectors are not those that its users
        expect."""
        directory = self.make_model()
        config = self.path("models", "tiny", "config.json")
        with open(config, encoding="utf-8") as file:
            text = file.read()
        self.write(config, text.replace('"BertModel"', '"BertForMaskedLM"'))
        said = self.run_sluice("embed", "--model", directory, input=b"hello\n")
        self.assertNotIn(b"head_ignored", said.stderr)  # modules.json declares the model's kind
        for name in ("modules.json", "sentence_bert_config.json"):  # the second alone would be refused
            os.remove(self.path("models", "tiny", name))
        said = self.run_sluice("embed", "--model", directory, "--pooling", "mean", input=b"hello\n")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(b"warn head_ignored model=tiny head=BertForMaskedLM", said.stderr)
        self.write(config, text)
        said = self.run_sluice("embed", "--model", directory, "--pooling", "mean", input=b"hello\n")
        self.assertNotIn(b"head_ignored", said.stderr)

    def test_reference(self):
        directory, batch, vectors = self.make_model(), texts(30, seed=3), self.path("v.npy")
        source = self.write("in.txt", "\n".join(batch))
        made = self.run_sluice("embed", "--model", directory, "--precision", "f32", source, "--output", vectors)
        self.assertEqual(made.returncode, 0, made.stderr)

        def told(precision, prefix=()):
            found = self.look(directory, "--reference", vectors, "--texts", source, "--precision", precision, *prefix)
            return found["least_cosine"], found["mean_cosine"]

        self.assertEqual([round(cosine, 6) for cosine in told("f32")], [1, 1])
        least, mean = told("int8")
        self.assertTrue(0.99 < least < mean < 1, (least, mean))
        self.assertLess(told("f32", ("--prefix", "other words: "))[0], 0.999)

        few, many = self.write("few.txt", "\n".join(batch[:29])), self.write("many.txt", "\n".join(batch + ["x"]))
        self.refused(DATAERR, "go together", directory, "--texts", source)
        self.refused(DATAERR, "more rows than the 29 texts", directory, "--reference", vectors, "--texts", few)
        self.refused(DATAERR, "line 31: ", directory, "--reference", vectors, "--texts", many)
        self.refused(DATAERR, "is not an .npy file", directory, "--reference", source, "--texts", source)
        self.refused(DATAERR, "rows of 32 columns", self.make_model("narrow", hidden=32), "--reference", vectors, "--texts", source)
        self.refused(NOINPUT, "cannot open", directory, "--reference", self.path("none"), "--texts", source)

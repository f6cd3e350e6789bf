#!/usr/bin/env python3
"""Compares ids of random tokenizers with those of the `tokenizers` package: every kind of model and step, and above all
added tokens of blanks and of each other's beginnings, with every flag. The bar: not one text differs.

usage: random_golden.py TOKENIZE_LINES WORK [TOKENIZERS [SEED]]
Each tokenizer reads some 60 texts. Where the package panics, as it does where a token's white space has been taken by
the token before it, there is nothing to compare: the ids must be in range, and that is all. A tokenizer that is refused
must be so for one of the reasons below.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
from tokenizers import AddedToken, Tokenizer, models

import charsmap

TOKENIZERS, TEXTS, NO_LIMIT = 150, 60, 1_000_000
MARK = "\u2581"
BLANKS = [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \t", "\t ", "\u00a0", "\u3000", "\u2003", "\u0085", "\u2028", " \u3000"]
WORDS = ["a", "b", "ab", "aB", "x", "é", "É", "e\u0301", "7", "Foo", "<q>", "<q", "q>", "<", "漢", "ﬁ", "\u0e33", "\u0301", "İ", "\u200b", MARK,
         "_", "!", "\u1100\u1161", "한", "\u0344", "<unk>"]
REFUSED = ["stands twice", "an empty token"]  # two tokens with one normal form, or none, which the package refuses as well
ODD_MAP = {b"\xe0\xa4": "@", b"a": "", b"E\xcc\x81": "E", "é".encode(): "e\u0301", b"\r\n": "\n\n", b" ": "  ", b"7": "seven",
           "ﬁ".encode(): "fi", "\u200b".encode(): "", "\u3000".encode(): " ", "\u0301".encode(): "", "漢".encode(): "ab",
           "\u0e33".encode(): "\u0e4d\u0e32", b"<": " <", "\u00a0".encode(): ""}
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def alphabet():
    """The characters that GPT-2's files write the 256 bytes with, in the bytes' order."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


def sequence(rng, key, parts):
    if not parts:
        return None
    return parts[0] if len(parts) == 1 and rng.random() < 0.7 else {"type": "Sequence", key: parts}


def random_map(rng):
    keys = rng.sample(sorted(ODD_MAP), rng.randint(1, len(ODD_MAP)))
    return {"type": "Precompiled", "precompiled_charsmap": charsmap.build({key: ODD_MAP[key] for key in keys})}


def random_normalizer(rng):
    def replace():
        if rng.random() < 0.2:
            return {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": rng.choice([" ", MARK, ""])}
        return {"type": "Replace", "pattern": {"String": rng.choice([" ", "a", "ab", "\t", "e\u0301", "é", "<q", "  "])},
                "content": rng.choice(["", " ", MARK, "a b", "é", "b"])}

    makers = [replace, replace, lambda: {"type": rng.choice(["NFC", "NFD", "NFKC", "NFKD"])}, lambda: {"type": "Nmt"},
              lambda: {"type": "StripAccents"}, lambda: {"type": "Lowercase"}, lambda: random_map(rng),
              lambda: {"type": "Strip", "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5},
              lambda: {"type": "Prepend", "prepend": rng.choice([MARK, "ab", " "])}]
    return sequence(rng, "normalizers", [rng.choice(makers)() for _ in range(rng.choice([0, 0, 1, 1, 2, 3, 4]))])


def metaspace(rng, schemes=("always", "first", "first", "never")):
    return {"type": "Metaspace", "replacement": rng.choice([MARK, MARK, "_"]), "prepend_scheme": rng.choice(schemes), "split": rng.random() < 0.7}


def digits(rng):
    return {"type": "Digits", "individual_digits": rng.random() < 0.5}


def word_piece(rng):
    tokens = ["[UNK]", "[CLS]", "[SEP]", *"abxe7éF漢!<>q_", "ab", "##a", "##b", "##o", "##e", "fi", "##i", "##\u0301", MARK]
    return {"normalizer": {"type": "BertNormalizer", "clean_text": rng.random() < 0.7, "handle_chinese_chars": rng.random() < 0.7,
                           "strip_accents": rng.choice([None, True, False]), "lowercase": rng.random() < 0.6},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": rng.choice([4, 100]),
                      "vocab": {token: id for id, token in enumerate(tokens)}}}


def unigram(rng):
    bytes = rng.random() < 0.5
    tokens = ["<unk>", *"abxeF漢!<>q_7", "é", "\u0301", "ab", MARK, MARK * 2, f"{MARK}a", f"{MARK}ab", " ", "  ", "\t", "fi", f"a{MARK}", "\u0e32"]
    vocabulary = [[token, -float(rng.randint(1, 9))] for token in tokens] + [[f"<0x{byte:02X}>", -9.0] for byte in range(256) if bytes]
    splits = rng.choice([None, {"type": "WhitespaceSplit"}, metaspace(rng), metaspace(rng), metaspace(rng),
                         {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace(rng, ["always", "never"])]}])
    return {"normalizer": random_normalizer(rng), "pre_tokenizer": splits,
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": bytes, "vocab": vocabulary}}


def byte_pairs(rng):
    if rng.random() < 0.5:
        letters = alphabet()
        pairs = [("a", "b"), ("Ġ", "a"), ("Ġ", "Ġ"), ("Ġa", "b"), ("Ã", "©"), ("Ċ", "Ċ"), ("ĉ", "ĉ"), ("<", "q")]
        steps = [{"type": "ByteLevel", "add_prefix_space": rng.random() < 0.5, "trim_offsets": True, "use_regex": True}]
        if rng.random() < 0.5:
            steps[0]["use_regex"] = False
            steps.insert(0, {"type": "Split", "pattern": {"Regex": GPT2}, "behavior": "Isolated", "invert": False})
        if rng.random() < 0.4:
            steps.insert(rng.randrange(len(steps)), digits(rng))
        splits, fallback = sequence(rng, "pretokenizers", steps), False
    else:
        letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abxeFé漢 \t\n", MARK]
        pairs = [("a", "b"), (MARK, "a"), (MARK, MARK), (f"{MARK}a", "b"), (" ", " "), ("\t", "\t"), ("\n", "\n")]
        splits = rng.choice([None, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}, metaspace(rng),
                             digits(rng), {"type": "Sequence", "pretokenizers": [digits(rng), metaspace(rng, ["always", "never"])]}])
        fallback = True
    vocabulary = {token: id for id, token in enumerate([*letters, *("".join(pair) for pair in pairs)])}
    return {"normalizer": random_normalizer(rng), "pre_tokenizer": splits,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>" if fallback else None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": fallback, "byte_fallback": fallback, "ignore_merges": rng.random() < 0.5,
                      "vocab": vocabulary, "merges": [list(pair) for pair in pairs]}}


def random_tokens(rng):
    contents = set()
    for _ in range(rng.choice([1, 2, 3, 4, 6, 9])):
        kind = rng.random()
        blank, word = rng.choice(BLANKS), rng.choice(WORDS)
        contents.add(blank if kind < 0.4 else word if kind < 0.7 else blank + word if kind < 0.8 else word + blank if kind < 0.9 else
                     word + rng.choice(WORDS))
    often = rng.random()  # how often a flag is set, so that there are tokenizers with many and with few
    return [AddedToken(content, special=rng.random() < 0.5, single_word=rng.random() < often / 2, lstrip=rng.random() < often,
                       rstrip=rng.random() < often, normalized=rng.random() < often) for content in sorted(contents)]


def random_file(rng):
    """Returns a tokenizer.json, as the package writes it, or NULL where the package refuses the tokens."""
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "decoder": None,
               **rng.choice([word_piece, unigram, unigram, byte_pairs])(rng)}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokens = random_tokens(rng)
    try:
        tokenizer.add_tokens(tokens)
        return {**content, "added_tokens": json.loads(tokenizer.to_str())["added_tokens"]}, tokens
    except Exception as error:  # two patterns that are one, or an empty one
        assert "pattern" in str(error), error
        return None, tokens


def random_text(rng, tokens):
    contents = [token.content for token in tokens]
    pool = [*contents * 3, *(content.strip() for content in contents), *(content.upper() for content in contents), *BLANKS, *BLANKS, *WORDS]
    pool = [each for each in pool if each]
    text = "".join(rng.choices(pool, k=rng.choice([1, 2, 3, 4, 6, 10])))
    if rng.random() < 0.08:  # beyond what is read at once
        text = rng.choice(["ab 7 ", "a", "é a", " ", "x\t", text]) * rng.randint(1, 1200) + text
        text = "".join(rng.choices(pool, k=2)) + text + " a b" * rng.randint(0, 300) + rng.choice(pool)
    return text


class Panics:
    """Counts the package's panics, and keeps their messages off the terminal."""

    def __enter__(self):
        self.count, self.saved, self.null = 0, os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(self.null, 2)
        return self

    def __exit__(self, *exception):
        os.dup2(self.saved, 2)
        os.close(self.saved)
        os.close(self.null)

    def encode(self, tokenizer, text):
        try:
            return tokenizer.encode(text).ids
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            self.count += 1
            return None


def ours(driver, folder, limit, texts):
    run = subprocess.run([driver, folder, str(limit)], input="".join(f"{text}\0" for text in texts).encode(), capture_output=True)
    if run.returncode != 0:
        message = run.stderr.decode(errors="replace").strip()
        if run.returncode == 1 and any(reason in message for reason in REFUSED):
            return None
        raise SystemExit(f"{folder}: exit code {run.returncode}: {message[-2000:]}")
    flat, rows, at = np.frombuffer(run.stdout, dtype=np.int32), [], 0
    while at < len(flat):
        rows.append(flat[at + 1:at + 1 + flat[at]].tolist())
        at += 1 + flat[at]
    assert len(rows) == len(texts)
    return rows


def main():
    driver, work = sys.argv[1], pathlib.Path(sys.argv[2]) / "random"
    count, seed = int(sys.argv[3]) if len(sys.argv) > 3 else TOKENIZERS, int(sys.argv[4]) if len(sys.argv) > 4 else 1
    work.mkdir(parents=True, exist_ok=True)
    started, compared, wrong, refused = time.monotonic(), 0, 0, 0
    with Panics() as panics:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            content, tokens = random_file(rng)
            if content is None:
                refused += 1
                continue
            (work / "tokenizer.json").write_text(json.dumps(content))
            tokenizer = Tokenizer.from_str(json.dumps(content))
            texts = [random_text(rng, tokens) for _ in range(TEXTS)]
            for limit in (NO_LIMIT, rng.randint(1, 12)):
                if limit != NO_LIMIT:
                    tokenizer.enable_truncation(limit)
                rows = ours(driver, work, limit, texts)
                if rows is None:
                    refused += 1
                    break
                top = max(tokenizer.get_vocab().values())
                for text, mine in zip(texts, rows):
                    expected = panics.encode(tokenizer, text)
                    if not all(0 <= id <= top for id in mine) or (expected is not None and mine != expected):
                        wrong += 1
                        if wrong <= 20:
                            print(f"seed {seed}, number {number}, at most {limit}: {ascii(text)[:300]}\n  ours   {mine[:40]}\n  theirs {expected[:40]}", flush=True)
                            (work / f"wrong-{seed}-{number}.json").write_text(json.dumps(content))
                    compared += expected is not None
    print(f"{count} tokenizers, {refused} refused, {compared} texts compared, {panics.count} panics of the package, "
          f"in {time.monotonic() - started:.0f} s: {wrong} texts differ")
    if compared < count * TEXTS:  # of twice as many
        raise SystemExit("fewer comparisons than there should be")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares texts that are decoded from ids with those of the `tokenizers` package: random tokenizers of every kind, each
with one of the decoders that files have or with a random one. The bar: not one text differs.

usage: decode_golden.py TOKENIZE_LINES WORK [TOKENIZERS [SEED]]
Each tokenizer decodes the ids of some 60 texts, each id alone, and random ids, some of which no token has. Pieces of ids
that come one after the other are compared with the whole by TOKENIZE_LINES itself. Rows at which the package panics are
skipped: its Strip does so when it has nothing left to strip.
"""
import json
import pathlib
import random
import subprocess
import sys
import time

from tokenizers import Tokenizer

from directories_golden import decoded
from random_golden import GPT2, MARK, Panics, TEXTS, random_file, random_text

TOKENIZERS, SEQUENCES = 150, 40
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BLANKS = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def sequence(*steps):
    return {"type": "Sequence", "decoders": list(steps)}


def metaspace(**fields):
    return {"type": "Metaspace", "replacement": MARK, **fields}


# As the files of GPT-2, Llama 2, Gemma, XLM-R, old and new, and BERT have them.
USUAL = [None, BYTE_LEVEL, sequence(BLANKS, FALLBACK, FUSE, STRIP), sequence(BLANKS, FALLBACK, FUSE), metaspace(prepend_scheme="always", split=True),
         metaspace(add_prefix_space=True), metaspace(str_rep=MARK, add_prefix_space=False, prepend_scheme="never"), metaspace(prepend_scheme="first"),
         {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "WordPiece", "prefix": "##", "cleanup": False}]


def random_decoder(rng):
    if rng.random() < 0.5:
        return rng.choice(USUAL)

    def replace():
        return {"type": "Replace", "pattern": {"String": rng.choice([MARK, "a", "##", "<q", "é", "Ġ"])}, "content": rng.choice(["", " ", "x", MARK])}

    def strip():
        return {"type": "Strip", "content": rng.choice([" ", "a", "é", "\ufffd"]), "start": rng.randint(0, 3), "stop": rng.randint(0, 3)}

    apart = [replace, strip, lambda: FALLBACK, lambda: metaspace(prepend_scheme=rng.choice(["always", "first", "never"])),
             lambda: {"type": "WordPiece", "prefix": rng.choice(["##", "a", ""]), "cleanup": rng.random() < 0.5}]
    steps = [rng.choice(apart)() for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    if rng.random() < 0.6:
        steps += [rng.choice([BYTE_LEVEL, FUSE])] + [rng.choice([strip(), FUSE]) for _ in range(rng.choice([0, 1, 2]))]
    return sequence(*steps)


def decode(tokenizer, row):
    """Returns the package's two texts; None: it panics."""
    try:
        return tuple(tokenizer.decode(row, skip_special_tokens=skip) for skip in (False, True))
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def compare(driver, name, folder, tokenizer, rows):
    """Returns the number of rows whose texts differ."""
    wrong = 0
    for row, mine in zip(rows, decoded(driver, folder, rows)):
        theirs = decode(tokenizer, row)
        if theirs is not None and mine != theirs:
            wrong += 1
            if wrong <= 5:
                print(f"{name}: {row[:40]}\n  ours   {ascii(mine)[:300]}\n  theirs {ascii(theirs)[:300]}", flush=True)
    return wrong


def main():
    driver, work = sys.argv[1], pathlib.Path(sys.argv[2]) / "decode"
    count, seed = int(sys.argv[3]) if len(sys.argv) > 3 else TOKENIZERS, int(sys.argv[4]) if len(sys.argv) > 4 else 1
    work.mkdir(parents=True, exist_ok=True)
    started, compared, texts, wrong, opened = time.monotonic(), 0, 0, 0, 0
    with Panics() as panics:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            content, tokens = random_file(rng)
            if content is None:
                continue
            content["decoder"] = random_decoder(rng)
            (work / "tokenizer.json").write_text(json.dumps(content))
            if subprocess.run([driver, work, "1"], input=b"", capture_output=True).returncode != 0:
                continue  # random_golden.py compares what is refused
            tokenizer = Tokenizer.from_str(json.dumps(content))
            top = max(tokenizer.get_vocab().values())
            rows = [ids for ids in (panics.encode(tokenizer, random_text(rng, tokens)) for _ in range(TEXTS)) if ids is not None]
            texts += len(rows)
            rows += [[id] for id in range(top + 2)]
            rows += [[rng.randint(0, top + 2) for _ in range(rng.choice([0, 2, 5, 20]))] for _ in range(SEQUENCES)]
            different = compare(driver, f"seed {seed}, number {number}, {json.dumps(content['decoder'])}", work, tokenizer, rows)
            if different:
                (work / f"wrong-{seed}-{number}.json").write_text(json.dumps(content))
            opened, compared, wrong = opened + 1, compared + len(rows), wrong + different
    print(f"{opened} tokenizers, {compared} rows of ids compared, {texts} of them encoded texts, in {time.monotonic() - started:.0f} s: {wrong} differ")
    if texts < 2000 or opened < count / 2:
        raise SystemExit("fewer comparisons than there should be")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())

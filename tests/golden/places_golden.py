#!/usr/bin/env python3
"""Compares the places of tokens with the offsets of the `tokenizers` package: random tokenizers of every kind, each with a
random post-processor, which may take blanks off the offsets. The bar: not one token differs.

usage: places_golden.py TOKENIZE_LINES WORK [TOKENIZERS [SEED]]
The package counts characters, Sluice bytes. TOKENIZE_LINES itself compares the ids with those of tokenizer_encode.
"""
import itertools
import json
import pathlib
import random
import subprocess
import sys
import time

import numpy as np
from tokenizers import Tokenizer

from random_golden import Panics, REFUSED, TEXTS, random_file, random_text

TOKENIZERS = 200


def random_processor(rng, vocabulary):
    flags = {"trim_offsets": rng.random() < 0.8, "add_prefix_space": rng.random() < 0.5}
    byte_level = {"type": "ByteLevel", "use_regex": True, **flags}
    name = rng.choice(sorted(vocabulary))
    special = {"SpecialToken": {"id": name, "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [special, {"Sequence": {"id": "A", "type_id": 0}}, special],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]}}}
    ends = {"sep": [name, vocabulary[name]], "cls": [name, vocabulary[name]]}
    return rng.choice([None, byte_level, byte_level, template, {"type": "BertProcessing", **ends}, {"type": "RobertaProcessing", **ends, **flags},
                       {"type": "Sequence", "processors": [byte_level, template]}, {"type": "Sequence", "processors": [template, byte_level]}])


def encode(tokenizer, text):
    """Returns the package's ids and offsets, the latter in bytes; None: it panics."""
    try:
        encoding = tokenizer.encode(text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None
    ends = [0, *itertools.accumulate(len(character.encode()) for character in text)]
    return [(id, ends[start], ends[stop]) for id, (start, stop) in zip(encoding.ids, encoding.offsets)]


def ours(driver, folder, texts):
    """Returns the same of each text; None: the tokenizer is refused."""
    run = subprocess.run([driver, folder, "places"], input="".join(f"{text}\0" for text in texts).encode(), capture_output=True)
    if run.returncode != 0:
        message = run.stderr.decode(errors="replace").strip()
        if any(reason in message for reason in REFUSED):
            return None
        raise SystemExit(f"{folder}: exit code {run.returncode}: {message[-2000:]}")
    flat, rows, at = np.frombuffer(run.stdout, dtype=np.int32), [], 0
    while at < len(flat):
        rows.append([tuple(row) for row in flat[at + 1:at + 1 + 3 * flat[at]].reshape(-1, 3).tolist()])
        at += 1 + 3 * flat[at]
    assert len(rows) == len(texts)
    return rows


def main():
    driver, work = sys.argv[1], pathlib.Path(sys.argv[2]) / "places"
    count, seed = int(sys.argv[3]) if len(sys.argv) > 3 else TOKENIZERS, int(sys.argv[4]) if len(sys.argv) > 4 else 1
    work.mkdir(parents=True, exist_ok=True)
    started, compared, tokens, wrong, opened = time.monotonic(), 0, 0, 0, 0
    with Panics():
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            content, added = random_file(rng)
            if content is None:
                continue
            content["post_processor"] = random_processor(rng, Tokenizer.from_str(json.dumps(content)).get_vocab())
            (work / "tokenizer.json").write_text(json.dumps(content))
            tokenizer = Tokenizer.from_str(json.dumps(content))
            texts = ["", *(random_text(rng, added) for _ in range(TEXTS))]
            rows = ours(driver, work, texts)
            opened += rows is not None
            for text, mine in zip(texts, rows or []):
                expected = encode(tokenizer, text)
                if expected is None:
                    continue
                compared, tokens = compared + 1, tokens + len(expected)
                if mine != expected:
                    wrong += 1
                    if wrong <= 10:
                        first = next((i for i, pair in enumerate(zip(mine, expected)) if pair[0] != pair[1]), 0)
                        print(f"seed {seed}, number {number}, {content['post_processor']}, {ascii(text)[:200]}, from token {first}\n"
                              f"  ours   {mine[first:first + 8]}\n  theirs {expected[first:first + 8]}", flush=True)
                        (work / f"wrong-{seed}-{number}.json").write_text(json.dumps(content))
    print(f"{opened} tokenizers, {compared} texts with {tokens} tokens compared, in {time.monotonic() - started:.0f} s: {wrong} texts differ")
    if compared < count * TEXTS / 2:
        raise SystemExit("fewer comparisons than there should be")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())

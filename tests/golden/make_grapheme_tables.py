#!/usr/bin/env python3
"""Writes src/tokenizer/grapheme_tables.c by asking the pinned `tokenizers` package about every code point.

Its normalizer Precompiled shows how it cuts text into graphemes: a grapheme of less than six bytes is replaced as a
whole, a longer one character by character. So with a map from everything to X, the number of X gives the cuts.

usage: make_grapheme_tables.py [--check] [OUTPUT]     (--check: compare with the file instead of writing it)
"""
import argparse
import json
import pathlib
import sys

import tokenizers
from tokenizers import Tokenizer, models, normalizers

import charsmap

ROOT = pathlib.Path(__file__).resolve().parents[2]
LF, CR = 0xA, 0xD
CODE_POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF and c not in (LF, CR)]
NAMES = ["OTHER", "CONTROL", "EXTEND", "LINKER", "SPACING", "PREPEND", "PICTURE", "CONSONANT", "L", "V", "T", "LV", "LVT"]
COMBINING = 16
SYLLABLES = range(0xAC00, 0xD7A4)


def precompiled(replacements):
    tokenizer = json.loads(Tokenizer(models.Unigram()).to_str())
    tokenizer["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap.build(replacements)}
    return Tokenizer.from_str(json.dumps(tokenizer)).normalizer


def probe():
    """Returns class[code point], an index into NAMES, with COMBINING for what StripAccents removes."""
    count = precompiled({bytes([b]): "X" for b in [*range(1, 0x80), *range(0xC2, 0xF5)] if b != LF}).normalize_str

    def which(pattern, expected):
        """The code points that, in place of the question mark, give the expected number of X."""
        found = set()
        for at in range(0, len(CODE_POINTS), 4096):
            part = CODE_POINTS[at:at + 4096]
            lines = count("\n".join(pattern.replace("?", chr(c)) for c in part)).split("\n")
            assert len(lines) == len(part)
            found.update(c for c, line in zip(part, lines) if len(line) == expected)
        return found

    joined, prepend, control = which("a?", 1), which("?a", 1), which("?\u0300\u0301", 2)
    picture = which("?\u200d\u2122\u0300", 4)
    consonant = which("?\u094d\u0958\u0300", 4) - joined - prepend
    extend = which("\u2764?\u200d\u2122\u0300", 5) & joined
    linker = which("\u0915?\u0958\u0300", 4) & joined - {0x200D}
    # The C code relies on this: beside ZWJ and ZWNJ, emoji and Indic clusters are extended by the same characters.
    assert (which("\u0915?\u094d\u0958\u0300", 5) & joined) ^ extend == {0x200C, 0x200D} and linker <= extend
    before_l, before_v, before_t = (which(f"?{letter}\u0300", 3) - prepend for letter in "\u1100\u1161\u11a8")
    found = [set(), control, extend - linker, linker, joined - extend, prepend, picture - joined, consonant, before_l,
             (before_v & before_t) - {c for c in SYLLABLES}, before_t - before_v - {c for c in SYLLABLES}]
    classes = dict.fromkeys(CODE_POINTS, 0)
    for number, members in enumerate(found):
        for c in members:
            assert classes[c] == 0, (hex(c), NAMES[number], NAMES[classes[c]])
            classes[c] = number
    for c in SYLLABLES:
        assert (c in before_v, c in before_t) == ((c - 0xAC00) % 28 == 0, True)
    classes.update({0: 1, LF: 1, CR: 1})
    strip = normalizers.StripAccents().normalize_str
    for c in CODE_POINTS:
        classes[c] |= COMBINING if strip(chr(c)) == "" else 0
    return classes


def render():
    classes, ranges = probe(), []
    for c in range(0x110000):
        if not ranges or classes.get(c, 1) != ranges[-1][1]:
            ranges.append((c, classes.get(c, 1)))
    rows = [", ".join(f"{{0x{c:X}, {k}}}" for c, k in ranges[i:i + 9]) for i in range(0, len(ranges), 9)]
    return (f"/* Written by tests/golden/make_grapheme_tables.py from tokenizers {tokenizers.__version__}; do not edit. */\n"
            '#include "tokenizer/charsmap.h"\n\n/* clang-format off */\n'
            f"const struct grapheme_range grapheme_ranges[{len(ranges)}] = {{\n"
            + "".join(f"    {row},\n" for row in rows) + f"}};\nconst uint32_t grapheme_range_count = {len(ranges)};\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("output", nargs="?", type=pathlib.Path, default=ROOT / "src/tokenizer/grapheme_tables.c")
    args = parser.parse_args()
    text = render()
    if not args.check:
        args.output.write_text(text)
    elif args.output.read_text() != text:
        sys.exit(f"{args.output} is not what tokenizers {tokenizers.__version__} does; write it again")
    else:
        print(f"{args.output} agrees with tokenizers {tokenizers.__version__} on {len(CODE_POINTS)} code points")


if __name__ == "__main__":
    main()

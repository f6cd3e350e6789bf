#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.c by asking the pinned `tokenizers` package about every code point.

The package's ideas of control, punctuation, accent and decomposition come from several Unicode versions at once, so no
other library's tables give the same ids. Its effect on one character can be seen from outside, so the script asks it.

usage: make_unicode_tables.py [--check] [OUTPUT]     (--check: compare with the file instead of writing it)
"""
import argparse
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CONTROL, SPACE, PUNCTUATION, MARK, CJK, WORD, LETTER, NUMBER = (1 << i for i in range(8))
HANGUL = range(0xAC00, 0xD7A4)
CHUNK = 128


def bert(**on):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
                                         "lowercase": False, **on})


def ask(code_points, same, found):
    """Calls found(code point) for each, except in chunks for which same(characters) is true, as their characters are all
    ordinary: a million code points are, and the package is slow to call."""
    for at in range(0, len(code_points), CHUNK):
        chunk = code_points[at:at + CHUNK]
        if not same([chr(c) for c in chunk]):
            for c in chunk:
                found(c)


def probe_flags():
    """Returns flags[code point]: what the normaliser and the pre-tokenizer take each character for."""
    clean, chinese, strip, split = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True), \
        pre_tokenizers.BertPreTokenizer()
    flags = dict.fromkeys(CODE_POINTS, 0)

    def nothing(characters):
        text = "".join(f"a{c}b" for c in characters)
        return (all(each.normalize_str(text) == text for each in (clean, chinese, strip)) and
                len(split.pre_tokenize_str(text)) == 1)

    def found(c):
        text, f = f"a{chr(c)}b", 0
        cleaned, pieces = clean.normalize_str(text), [p for p, _ in split.pre_tokenize_str(text)]
        f |= CONTROL if cleaned == "ab" else 0
        f |= SPACE if pieces == ["a", "b"] else 0
        f |= PUNCTUATION if pieces == ["a", chr(c), "b"] else 0
        f |= CJK if chinese.normalize_str(text) == f"a {chr(c)} b" else 0
        f |= MARK if strip.normalize_str(text) == "ab" else 0
        # Cleaning makes a blank of exactly the spaces that it does not remove; the C code relies on it.
        assert (cleaned == "a b") == bool(f & SPACE and not f & CONTROL) and (f or cleaned == text), hex(c)
        flags[c] = f

    ask(CODE_POINTS, nothing, found)
    return flags


def probe_words(flags):
    """Adds WORD: the characters beside which an added token with single_word does not match."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.add_tokens([AddedToken("<w>", single_word=True, normalized=False),
                          AddedToken("<r>", rstrip=True, normalized=False)])

    def count(texts):
        return tokenizer.encode(" ".join(texts)).ids.count(1)

    def alike(characters):
        """Returns whether the characters are alike: a token matches on both sides of each, or of none (then all are words)."""
        if any(flags[ord(c)] & SPACE for c in characters):
            return False
        before, behind = count(f"{c}<w>" for c in characters), count(f"<w>{c}" for c in characters)
        spaces = tokenizer.encode("".join(f"<r>{c}a" for c in characters))
        if before != behind or before not in (0, len(characters)) or any(b - a == 4 for a, b in spaces.offsets):
            return False
        for c in characters:
            flags[ord(c)] |= WORD if before == 0 else 0
        return True

    def found(c):
        before, behind = (1 in tokenizer.encode(text).ids for text in (f"{chr(c)}<w>", f"<w>{chr(c)}"))
        assert before == behind, hex(c)
        flags[c] |= WORD if not before else 0
        assert (tokenizer.encode(f"<r>{chr(c)}a").offsets[0][1] == 4) == bool(flags[c] & SPACE), hex(c)

    ask(CODE_POINTS, alike, found)


def probe_patterns(flags):
    """Adds LETTER and NUMBER: what regexes take for \\p{L} and \\p{N}. Their \\s is the same as SPACE."""
    for flag, pattern in ((LETTER, r"\p{L}"), (NUMBER, r"\p{N}"), (SPACE, r"\s")):
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for at in range(0, len(CODE_POINTS), CHUNK):
            text = "".join(f"~{chr(c)}~" for c in CODE_POINTS[at:at + CHUNK])
            matched = {ord(piece) for piece, _ in split.pre_tokenize_str(text) if len(piece) == 1 and piece != "~"}
            for c in CODE_POINTS[at:at + CHUNK]:
                assert flag != SPACE or bool(flags[c] & SPACE) == (c in matched), hex(c)
                flags[c] |= flag if c in matched else 0


def probe_classes(decomposition):
    """Returns class[code point] for those whose canonical combining class is not zero, seen from how NFD sorts them."""
    nfd = normalizers.NFD().normalize_str

    def swaps(first, second):
        return first != second and nfd(f"a{chr(first)}{chr(second)}") == f"a{chr(second)}{chr(first)}"

    low, high = 0x0334, 0x0345  # overlay (1, the lowest class) and iota subscript (240, the highest)
    marks = [low, high]

    def stay(characters):
        pairs = "".join(f"a{c}{chr(low)}a{chr(high)}{c}" for c in characters if ord(c) not in (low, high))
        return nfd(pairs) == pairs

    def found_mark(c):
        if c not in (low, high) and (swaps(c, low) or swaps(high, c)):
            marks.append(c)

    ask([c for c in CODE_POINTS if c not in decomposition and c not in HANGUL], stay, found_mark)
    samples = {}
    for c in marks:
        samples.setdefault(unicodedata.combining(chr(c)), c)
    ranked = sorted(samples)
    classes = {}
    for c in marks:
        lower, higher = (sum(swaps(c, s) for s in samples.values()), sum(swaps(s, c) for s in samples.values()))
        classes[c] = ranked[lower]
        assert lower + higher == len(ranked) - 1, hex(c)
    return classes


def probe_decomposition(nfd):
    """Returns {code point: full decomposition}, Hangul (which follows the standard's formula) left out."""
    table = {}

    def found(c):
        to = [ord(x) for x in nfd(chr(c))]
        if c in HANGUL:
            s = c - 0xAC00
            expected = [0x1100 + s // 588, 0x1161 + s % 588 // 28] + ([0x11A7 + s % 28] if s % 28 else [])
            assert to == expected, hex(c)
        elif to != [c]:
            table[c] = to

    ask(CODE_POINTS, lambda characters: nfd("a".join(characters)) == "a".join(characters), found)
    return table


def probe_composition(decomposition):
    """Returns {(first, second): composite} of what NFC puts together, Hangul left out."""
    nfc = normalizers.NFC().normalize_str
    table = {}
    for c, parts in decomposition.items():
        if nfc(chr(c)) == chr(c):
            first, second = nfc("".join(map(chr, parts[:-1]))), chr(parts[-1])
            assert len(first) == 1 and nfc(first + second) == chr(c), hex(c)
            table[ord(first), ord(second)] = c
    return table


def probe_lowercase():
    lower = bert(lowercase=True)
    table = {}

    def found(c):
        to = [ord(x) for x in lower.normalize_str(chr(c))]
        if to != [c]:
            table[c] = to

    ask(CODE_POINTS, lambda characters: lower.normalize_str("".join(characters)) == "".join(characters), found)
    # No context: a capital sigma at the end of a word becomes the same small sigma as elsewhere.
    assert lower.normalize_str("ΑΣ") == "ας"[:1] + "σ"
    return table


def check_promises(flags, classes, decomposition, compatible, lowercase):
    """Checks what src/tokenizer relies on."""
    for c, k in classes.items():
        assert not flags[c] & (SPACE | PUNCTUATION | CJK), f"{c:x} sorts and separates"
        assert flags[c] & MARK or c not in lowercase, f"{c:x} sorts and has a lower case"
    for c in CODE_POINTS:
        size = len(chr(c).encode())
        parts = decomposition.get(c, [c])
        survivors = [x for d in parts if not flags[d] & MARK for x in lowercase.get(d, [d])]
        assert max(len(survivors), len(lowercase.get(c, [c]))) <= size, f"{c:x} grows"
        for x in (*survivors, *lowercase.get(c, [c])):
            assert x in decomposition or len(lowercase.get(x, [x])) == 1
    assert max(map(len, decomposition.values())) <= 4 and max(map(len, lowercase.values())) <= 2
    for c, parts in (*decomposition.items(), *compatible.items()):
        size = len(chr(c).encode())
        assert len(parts) <= 6 * size and len("".join(map(chr, parts)).encode()) <= (11 if c in compatible else 3) * size
    assert max(map(len, compatible.values())) <= 18 and all(len(parts) <= 2 * len(chr(c).encode()) for c, parts in decomposition.items())


def rows(values, per_line, form):
    lines = [", ".join(form(v) for v in values[i:i + per_line]) for i in range(0, len(values), per_line)]
    return "".join(f"    {line},\n" for line in lines)


def mappings(name, table):
    """One flat array of code points, and the runs of neighbours that become equally many code points."""
    runs, flat, last = [], [], None
    for c in sorted(table):
        if last != (c - 1, len(table[c])):
            runs.append([c, len(flat), len(table[c]), 0])
        runs[-1][3] += 1
        last = (c, len(table[c]))
        flat += table[c]
    entries = [f"{{0x{c:X}, {at}, {count}, {run}}}" for c, at, count, run in runs]
    return (f"const struct unicode_mapping unicode_{name}s[{len(entries)}] = {{\n{rows(entries, 6, str)}}};\n"
            f"const uint32_t unicode_{name}_count = {len(entries)};\n"
            f"const uint32_t unicode_{name}_targets[{len(flat)}] = {{\n{rows(flat, 15, lambda v: f'0x{v:X}')}}};\n")


def render():
    flags = probe_flags()
    probe_words(flags)
    probe_patterns(flags)
    decomposition, lowercase = probe_decomposition(normalizers.NFD().normalize_str), probe_lowercase()
    compatible = {c: parts for c, parts in probe_decomposition(normalizers.NFKD().normalize_str).items()
                  if parts != decomposition.get(c)}
    composition = probe_composition(decomposition)
    classes = probe_classes(decomposition)
    check_promises(flags, classes, decomposition, compatible, lowercase)
    ranges, last = [], None
    for c in range(0x110000):
        record = (flags.get(c, 0), classes.get(c, 0))
        if record != last:
            ranges.append(f"{{0x{c:X}, {record[0]}, {record[1]}}}")
            last = record
    return (f"/* Written by tests/golden/make_unicode_tables.py from tokenizers {tokenizers.__version__}; do not edit. */\n"
            '#include "tokenizer/unicode.h"\n\n/* clang-format off */\n'
            f"const struct unicode_range unicode_ranges[{len(ranges)}] = {{\n{rows(ranges, 8, str)}}};\n"
            f"const uint32_t unicode_range_count = {len(ranges)};\n\n"
            + mappings("decomposition", decomposition) + "\n" + mappings("compatible", compatible) + "\n"
            + mappings("lowercase", lowercase)
            + f"\nconst struct unicode_composition unicode_compositions[{len(composition)}] = {{\n"
            + rows([f"{{0x{a:X}, 0x{b:X}, 0x{composition[a, b]:X}}}" for a, b in sorted(composition)], 6, str)
            + f"}};\nconst uint32_t unicode_composition_count = {len(composition)};\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("output", nargs="?", type=pathlib.Path, default=ROOT / "src/tokenizer/unicode_tables.c")
    args = parser.parse_args()
    text = render()
    if args.check:
        if args.output.read_text() != text:
            sys.exit(f"{args.output} is not what tokenizers {tokenizers.__version__} does; write it again")
        print(f"{args.output} agrees with tokenizers {tokenizers.__version__} on {len(CODE_POINTS)} code points")
    else:
        args.output.write_text(text)


if __name__ == "__main__":
    main()

"""The texts that the tokenizer is compared on: real ones from the corpus folder, and ones made to find mistakes."""
import gzip
import json
import os
import pathlib
import random
import subprocess
import unicodedata
import zlib

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _lines(data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return []
    return [line for line in text.split("\n") if line.strip() and "\0" not in line]


def _evenly(lines, count):
    step = max(1, len(lines) // count)
    return lines[::step][:count]


def real_texts(corpus, per_source):
    """Lines of fortunes, man pages (one source per language) and package descriptions (one source per language). They are
    kept beside the corpus, which does not change, as this version of this file chose them."""
    kept = corpus / f"lines-{per_source}-{zlib.crc32(pathlib.Path(__file__).read_bytes()):08x}.json"
    if not kept.exists():
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(_choose(corpus, per_source)))
        new.rename(kept)
    return json.loads(kept.read_text())


def _choose(corpus, per_source):
    sources = {}
    for path in sorted(corpus.glob("files/usr/share/games/fortunes/**/*")):
        if path.is_file() and not path.is_symlink() and path.suffix not in (".dat", ".u8"):
            sources.setdefault("fortunes", []).extend(_lines(path.read_bytes()))
    for path in sorted(corpus.glob("files/usr/share/man/*/man*/*.gz")):
        if not path.is_symlink():
            sources.setdefault(f"man {path.parts[-3]}", []).extend(_lines(gzip.decompress(path.read_bytes())))
    for path in sorted(corpus.glob("lists/*Translation-*")):
        data = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", path], check=True, capture_output=True).stdout
        fields = (b"Package:", b"Description-md5:")
        kept = b"\n".join(line for line in data.split(b"\n") if not line.startswith(fields))
        sources.setdefault(f"descriptions {path.name.rpartition('-')[2].partition('.')[0]}", []).extend(_lines(kept))
    return {name: _evenly(lines, per_source * (8 if name == "fortunes" else 1)) for name, lines in sources.items()}


def every_code_point():
    """Each code point inside a word, after one, and alone; 16 to a line."""
    points = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]
    return ["".join(f"a{x}b {x} É{x}" for x in points[i:i + 16]) for i in range(0, len(points), 16)]


def combining(rng, count):
    """Letters with marks of every class in any order, from none to many, with characters between them that end a run or do not."""
    marks = [chr(c) for c in range(0x300, 0x110000) if not 0xD800 <= c <= 0xDFFF and unicodedata.combining(chr(c))]
    spacing = [chr(c) for c in range(0x300, 0x110000) if not 0xD800 <= c <= 0xDFFF and unicodedata.category(chr(c)) == "Mc"]
    hard = "\u302e\u302f\U0001d165\U0001d166\U0001d16d\u0f71\u0f72\u0f73\u0344\u034f\u200d\u00ad\ufffd\u0345"
    texts = []
    for _ in range(count):
        pool = list("aeoAÉöЙё한글각ᄀ\uac00漢\u0958İß!") + rng.sample(marks, 12) + rng.sample(spacing, 3) + rng.sample(hard, 6) * 2
        texts.append("".join(rng.choices(pool + [" "], k=rng.choice([2, 5, 10, 30, 120]))))
    return texts


def special_tokens(rng, count, more):
    """Special tokens in the text, whole, broken, beside letters, accents, blanks and each other."""
    pool = SPECIALS + more + ["[SE", "P]", "[", "]", "[sep]", "[ SEP ]", "##a", "a", "Foo", "é", "\u0301", "漢", "_", "7", "\u200d",
                              "\u0085", "\u00ad", " ", "  ", "\u3000", "\t", "\r\n", "\u2028", "\ufb01", "."]
    return ["".join(rng.choices(pool, k=rng.randint(1, 14))) for _ in range(count)]


def emoji_sequences():
    return ["👩‍👩‍👧‍👦 family", "👍🏽👍🏿 skin", "🇩🇪🇯🇵🇧 flags", "1️⃣2️⃣#️⃣", "❤️‍🔥 ok", "☺︎☺️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a👩‍💻b c🤷🏽‍♀️d"] * 3


def edges():
    """Words around the length limit, very long ones, and texts without any word."""
    texts = ["", " ", "\t \u3000", "\u200b\u00ad", "a" * 10000, "a" * 10000 + " b", "é" * 10000, "漢" * 5000, "ab " * 5000,
             "\u0301" * 10000, "a" + "\u0301" * 10000 + "b", "\u302e\U0001d16d\U0001d165" * 3000, "!" * 3000, " " * 100000 + "x",
             "[SEP]" * 2000, "[" * 5000, "한글" * 4000, "\U00020000" * 2000]
    for letter in ("a", "É", "e\u0301", "한", "İ", "\u0958", "\U0001d15e"):
        texts += [letter * n for n in (32, 33, 34, 49, 50, 51, 99, 100, 101, 102)]
        texts += ["x" + letter * n for n in (49, 50, 99, 100)]
    controls = [chr(c) for c in [*range(1, 32), *range(127, 160), 0xFFFE, 0xFFFF, 0xFDD0, 0x1FFFF, 0x10FFFF, 0xE000, 0xFEFF, 0xFFFD]]
    return texts + [f"a{c}b{c} {c}{c}c" for c in controls] + ["".join(controls)]


def adversarial_texts(more_specials):
    rng = random.Random(20231121)
    return (every_code_point() + combining(rng, 12000) + special_tokens(rng, 12000, more_specials) + emoji_sequences()
            + edges())

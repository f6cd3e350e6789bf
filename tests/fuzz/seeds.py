#!/usr/bin/env python3
"""The seeds of the fuzz targets: tests/fuzz/seeds/TARGET.txt holds those of a target, one after the other, as text.

    seeds.py add TARGET FILE...       puts files in, each under its own name (a seed of that name is replaced)
    seeds.py unpack TARGET FOLDER     writes each seed into a file, for libFuzzer

A seed begins with the line `== NAME`. Line breaks in the file mean nothing; \\n, \\r, \\t and \\\\ are what they are in C,
\\xHH is a byte, and \\{N}HH is N of them. tests/fuzz/replay.c reads the same."""

import pathlib
import re
import sys

SEEDS = pathlib.Path(__file__).resolve().parent / "seeds"
WIDTH = 118
SHORT = {0x5C: "\\\\", 0x0D: "\\r", 0x09: "\\t", 0x0A: "\\n"}
TOKEN = re.compile(rb"\\(?:x|\{([0-9]+)\})([0-9a-f]{2})|\\([nrt\\])|([^\\])|(\\)", re.DOTALL)


def words(content):
    """Yields the written form of the content, in parts within which no line is broken."""
    for run in re.finditer(rb"(.)\1*", content, re.DOTALL):
        byte, count = run[0][0], len(run[0])
        plain = 0x20 <= byte < 0x7F and byte != 0x5C
        if count >= (16 if plain else 4):
            yield f"\\{{{count}}}{byte:02x}"
        else:
            yield from [SHORT.get(byte, chr(byte) if plain else f"\\x{byte:02x}")] * count


def pack(content):
    lines, line = [], ""
    for word in words(content):
        if not line and word == "=":
            word = "\\x3d"  # no line of a seed begins as its head does
        line += word
        if word.startswith("\\n") or len(line) >= WIDTH:
            lines.append(line)
            line = ""
    lines += [line] if line else []
    return "".join((line[:-1] + "\\x20" if line.endswith(" ") else line) + "\n" for line in lines)


def unpack(text):
    def byte(token):
        if token[5]:
            raise ValueError(f"a backslash before {text[token.end():token.end() + 4]!r}")
        if token[2]:
            return bytes([int(token[2], 16)]) * int(token[1] or 1)
        return {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}[token[3]] if token[3] else token[4]

    return b"".join(map(byte, TOKEN.finditer(text.replace(b"\n", b""))))


def read(target):
    path = SEEDS / f"{target}.txt"
    parts = re.split(rb"^== (\S+)\n", path.read_bytes() if path.exists() else b"", flags=re.MULTILINE)
    return {name.decode(): unpack(text) for name, text in zip(parts[1::2], parts[2::2])}


def write(target, seeds):
    SEEDS.mkdir(exist_ok=True)
    text = "".join(f"== {name}\n{pack(seeds[name])}" for name in sorted(seeds))
    (SEEDS / f"{target}.txt").write_text(text, encoding="ascii")


def main(verb, target, *paths):
    if verb == "add":
        write(target, {**read(target), **{pathlib.Path(path).name: pathlib.Path(path).read_bytes() for path in paths}})
    elif verb == "unpack":
        folder = pathlib.Path(paths[0])
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in read(target).items():
            (folder / name).write_bytes(content)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 3 else sys.exit(__doc__)

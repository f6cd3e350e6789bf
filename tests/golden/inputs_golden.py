"""Compares the scanner of `inputs` with Python's json: the same arrays are taken, with the same texts, and the same element
is the first bad one.

usage: inputs_golden.py READ_INPUTS [SEED [COUNT]]"""

import io
import json
import random
import struct
import subprocess
import sys

MOST_TEXTS, MOST_BYTES = 20, 4000
OK, NOT_JSON, NOT_ARRAY, NO_TEXTS, NOT_TEXT, BAD_STRING, BAD_UTF8, EMPTY_TEXT, TOO_MANY, TOO_LARGE = range(10)

ALPHABET = ["a", "Z", " ", "0", "/", '"', "\\", "\x00", "\x1f", "\x7f", "\x80", "é", "\u07ff", "\u0800", "€", "\ud7ff", "\ue000",
            "\uffff", "\U00010000", "😀", "\U0010ffff", "\n", "\t", "\u2028", "\ufeff"]
SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
BY_HAND = [
    b"", b" ", b"[", b"]", b"[]", b"[ ]", b"[[]]", b"{}", b"null", b'"a"', b'["a"', b'["a",]', b'[,"a"]', b'["a""b"]', b'["a" "b"]',
    b'["a"]x', b'["a"]\x00', b'\xef\xbb\xbf["a"]', b'["a"]\xc2\xa0', b'\x0b["a"]', b"['a']", b'[\'a\']', b'["a"; "b"]', b"[1]",
    b"[true]", b"[null]", b"[NaN]", b"[-Infinity]", b'["a", 1.5e3]', b'["a", {"b": "c"}]', b'["a", ["b"]]', b'[""]', b'["a", ""]',
    b'["\\u0000"]', b'["\\ud800"]', b'["\\udc00"]', b'["\\ud800\\udc00"]', b'["\\ud800\\u0041"]', b'["\\ud800x"]',
    b'["\\udc00\\ud800"]', b'["\\ud800\\ud800\\udc00"]', b'["\\uD83D\\uDE00"]', b'["\\u00zz"]', b'["\\u+123"]', b'["\\u 123"]',
    b'["\\u0x1"]', b'["\\u1_23"]', b'["\\x41"]', b'["\\a"]', b'["\\0"]', b'["\\\'"]', b'["\\', b'["\\u', b'["\\u12', b'["\\ud800\\u',
    b'["\x01"]', b'["\n"]', b'["\t"]', b'["\x7f"]', b'["\xff"]', b'["\xc0\x80"]', b'["\xed\xa0\x80"]', b'["\xf4\x90\x80\x80"]',
    b'["\xe2\x82"]', b'["\xf0\x9f\x98"]', b"[" * 5000, b"[" * 5000 + b"]" * 5000, b'["' + b"\\" * 999 + b'"]', b'["' + b"\\" * 1000 + b'"]',
    b'[/* no */"a"]', b'["a"]//', b'[\f"a"]', b'["a"\r\n,\t"b"]', b'[0x1]', b'["a",,"b"]', b'[+"a"]', b'"[\\"a\\"]"',
]


def write_string(text, rng):
    """A JSON string, each character in one of the ways in which it may be written."""
    out = []
    for character in text:
        code = ord(character)
        must = character in '"\\' or code < 0x20
        ways = ["short"] * (character in SHORT) + ["hex"] + ["plain"] * (not must) * 3
        way = rng.choice(ways)
        if way == "short":
            out.append(SHORT[character])
        elif way == "plain":
            out.append(character)
        else:
            units = struct.unpack(f">{len(character.encode('utf-16-be')) // 2}H", character.encode("utf-16-be"))
            out += ["\\u" + "".join(rng.choice((c, c.upper())) for c in f"{unit:04x}") for unit in units]
    return '"' + "".join(out) + '"'


def good_array(rng):
    def space():
        return "".join(rng.choice(" \t\r\n") for _ in range(rng.choice((0, 0, 0, 1, 3))))
    texts = ["".join(rng.choice(ALPHABET) for _ in range(rng.choice((1, 1, 2, 5, 30)))) for _ in range(rng.randint(1, 6))]
    inside = ",".join(space() + write_string(text, rng) + space() for text in texts)
    return (space() + "[" + inside + "]" + space()).encode()


def damaged(array, rng):
    """One to three bytes changed, put in, taken out, or pieces moved."""
    data = bytearray(array)
    special = b'"\\[],{}:ud8cDE0\x00\x1f\x80\xc0\xed\xa0\xff\n '
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data)) if data else 0
        way = rng.randrange(6)
        if way == 0 and data:
            data[at] = rng.choice(special)
        elif way == 1 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            data.insert(at, rng.choice(special))
        elif way == 3 and data:
            del data[at]
        elif way == 4:
            del data[at:]
        else:
            data[at:at] = data[at:at + rng.randint(1, 12)]
    return bytes(data)


def odd_elements(rng):
    """A right array, of things of which some are no texts."""
    kinds = ['"a"', '"b\\n"', '"c"', "1", "null", '[ "x" ]', '{"y": "z"}', '""', '"\\ud800"', '"\\udc00x"', "true"]
    return ("[" + ", ".join(rng.choice(kinds) for _ in range(rng.randint(1, 8))) + "]").encode()


def lengthy(rng):
    """Around the limits."""
    if rng.random() < 0.5:
        return json.dumps(["t"] * rng.randint(MOST_TEXTS - 2, MOST_TEXTS + 2)).encode()
    rest = MOST_BYTES - 10 + rng.randint(-3, 3)
    return json.dumps(["é" * 5, "x" * rest], ensure_ascii=rng.random() < 0.5).encode()


def no_json(constant):
    raise ValueError(f"{constant} is Python's, and no JSON")


def expected(data):
    """(problem, count, texts) as Python sees it; problem None: any but OK."""
    try:
        array = json.loads(data.decode(), parse_constant=no_json)
    except (ValueError, RecursionError):
        return None, None, None
    if not isinstance(array, list):
        return NOT_ARRAY, 0, None
    if not array:
        return NO_TEXTS, 0, None
    texts, size = [], 0
    for number, text in enumerate(array):
        if number == MOST_TEXTS:
            return TOO_MANY, number, None
        if not isinstance(text, str):
            return NOT_TEXT, number, None
        if text == "":
            return EMPTY_TEXT, number, None
        try:
            texts.append(text.encode())
        except UnicodeEncodeError:
            return BAD_UTF8, number, None
        size += len(texts[-1])
        if size > MOST_BYTES:
            return TOO_LARGE, number, None
    return OK, len(texts), texts


def read(stream):
    def number():
        return struct.unpack("=I", stream.read(4))[0]
    problem, count = number(), number()
    return problem, count, [stream.read(number()) for _ in range(count)] if problem == OK else None


def all_arrays(rng, count):
    arrays = list(BY_HAND)
    while len(arrays) < count:
        good = good_array(rng)
        arrays += [good, damaged(good, rng), damaged(good, rng), damaged(good, rng), odd_elements(rng)]
        if rng.random() < 0.02:
            arrays.append(lengthy(rng))
    return arrays


def main():
    program = sys.argv[1]
    seed, count = (int(word) for word in (sys.argv[2:] + ["1", "60000"][len(sys.argv) - 2:]))
    arrays = all_arrays(random.Random(seed), count)
    feed = b"".join(struct.pack("=I", len(array)) + array for array in arrays)
    result = subprocess.run([program, str(MOST_TEXTS), str(MOST_BYTES)], input=feed, stdout=subprocess.PIPE, check=True)
    stream, seen = io.BytesIO(result.stdout), dict.fromkeys(range(TOO_LARGE + 1), 0)
    for array in arrays:
        ours, theirs = read(stream), expected(array)
        seen[ours[0]] += 1
        if (ours[0] == OK) if theirs[0] is None else (ours != theirs):
            sys.exit(f"{array!r}:\n  ours   {ours}\n  python {theirs}")
    assert stream.read() == b"", "more answers than arrays"
    assert all(seen.values()), f"some problem was never met: {seen}"
    print(f"{len(arrays)} arrays, by problem: {seen}")


main()

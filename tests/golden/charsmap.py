"""Builds what the normalizer `Precompiled` reads: a trie of replaced strings, as darts-clone lays it out, and their
replacements. Source: the layout is that of Yata's darts-clone 0.32, as sentencepiece writes it."""
import base64
import struct
import unicodedata


def build(replacements):
    """Turns {bytes: str} into the text of precompiled_charsmap in a tokenizer.json."""
    blob, places = bytearray(), {}
    for text in replacements.values():
        if text not in places:
            places[text] = len(blob)
            blob += text.encode() + b"\0"
    units = _units({key: places[text] for key, text in replacements.items()})
    return base64.b64encode(struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + bytes(blob)).decode()


def _units(values):
    """A unit is label, whether a value hangs below (bit 8), and, from bit 10 on, its position xor that of its children."""
    tree = {}
    for key, value in values.items():
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = value
    units, taken, starts = {0: 0}, set(), [1, 1]  # where to look for a place, for one child and for several
    queue = [(0, tree)]
    for position, node in queue:
        labels = [label or 0 for label in node]
        start = slot = starts[len(labels) > 1]
        while (slot ^ labels[0]) in taken or any((slot ^ labels[0] ^ label) in units for label in labels):
            slot += 1
        if len(labels) == 1 or slot - start > 200:  # holes cost less than looking at them for every node
            starts[len(labels) > 1] = slot
        base = slot ^ labels[0]
        taken.add(base)
        assert position ^ base < 1 << 21
        units[position] |= (position ^ base) << 10 | (None in node) << 8
        for label, child in node.items():
            at = base ^ (label or 0)
            units[at] = (1 << 31) | child if label is None else label
            if label is not None:
                queue.append((at, child))
    return [units.get(at, 0) for at in range(max(units) + 256)]


def nmt_nfkc():
    """Replacements much like those of sentencepiece's rules of this name: NFKC with pairs composed, controls and spaces."""
    replacements = {}
    for c in [c for c in range(1, 0x30000) if not 0xD800 <= c <= 0xDFFF]:
        whole = unicodedata.normalize("NFKC", chr(c))
        if whole != chr(c):
            replacements[chr(c).encode()] = whole
        apart = unicodedata.normalize("NFD", chr(c))
        if len(apart) > 1 and whole == chr(c):
            replacements[apart.encode()] = whole
    for c in [*range(0x1, 0x9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F]:
        replacements[chr(c).encode()] = ""
    for c in [0x9, 0xA, 0xC, 0xD, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]:
        replacements[chr(c).encode()] = " "
    return replacements

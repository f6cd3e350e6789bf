"""Checks in nvcc's PTX that kernels bound by memory access it 16 bytes at a time: a copy element by element, for example through a
constructor, would be four accesses.

usage: memory_access.py FILE.ptx...; without files, where nothing is built with nvcc, it exits 77: skipped
"""

import pathlib
import re
import sys

SKIPPED = 77
ARCHITECTURES = ("sm_80", "sm_90")
# For each entry: its file, the numbers that it may read beside its matrices (counts, ids, places, lengths), and those that it
# may write (pool: each thread writes one number of a vector, neighbours side by side, and whether it is finite).
KERNELS = {"norm_rows": ("norm", 1, 0), "embed_norm_rows": ("norm", 3, 0), "activate_chunks": ("activate", 1, 0),
           "gate_chunks": ("activate", 1, 0), "rotate_chunks": ("rotate", 2, 0),
           "gather_first": ("pool", 2, 0), "pool_rows": ("pool", 4, 2)}
ACCESS = re.compile(r"\b(ld|st)(?:\.relaxed|\.weak|\.volatile|\.gpu)*\.(global|local)((?:\.[A-Za-z0-9:_]+)*)")


def width(words):
    """Bytes of one access: 16 for ".nc.v4.f32"."""
    count, bits = re.search(r"\.v(\d)", words), re.search(r"\.[bufs](\d+)$", words)
    return (int(count[1]) if count else 1) * int(bits[1]) // 8


def entries(path):
    """The name of the source, the architecture, and [(name, text)] of the entries of a file."""
    ptx = path.read_text()
    found = [(part.split("(", 1)[0].strip(), part) for part in ptx.split(".entry ")[1:]]
    return path.stem, re.search(r"^\.target (\w+)", ptx, re.M)[1], found


def complaints(kernel, architecture, found):
    _, loads, stores = KERNELS[kernel]
    found = [(name, text) for name, text in found if re.search(rf"\d{kernel}", name)]
    if not found:
        yield f"{kernel} {architecture}: no entry"
    for name, text in found:
        narrow, wide = {"ld": 0, "st": 0}, {"ld": 0, "st": 0}
        for what, where, words in ACCESS.findall(text):
            if where == "local":
                yield f"{name} {architecture}: registers are spilt: {what}.local{words}"
            elif width(words) == 16:
                wide[what] += 1
            else:
                narrow[what] += 1
        if wide["ld"] == 0 or (kernel != "pool_rows" and wide["st"] == 0):
            yield f"{name} {architecture}: nothing goes 16 bytes at a time"
        if narrow["ld"] > loads or narrow["st"] > stores:
            yield f"{name} {architecture}: {narrow['ld']} narrow loads, {narrow['st']} narrow stores; {loads} and {stores} are meant"


def main(*paths):
    if not paths:
        print("SKIPPED: there is no nvcc here, so nobody has looked at how the kernels touch memory")
        return SKIPPED
    found = {(file, architecture): of for file, architecture, of in map(entries, map(pathlib.Path, paths))}
    wrong = [line for kernel, (file, _, _) in KERNELS.items() for architecture in ARCHITECTURES
             for line in complaints(kernel, architecture, found.get((file, architecture), []))]
    print("\n".join(wrong) or f"{sum(map(len, found.values()))} entries are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Are the vectors right? Every length, alone and in batches of many sizes, packed and padded, with graphs and without,
beside a reference; and the same text in different batches.

usage: see check.py
"""
import hashlib

import numpy as np

import references
import shapes
from driver import PACKED, PADDED, Failed, NotHere, rows_of

COSINE = {"f16": 0.9999, "bf16": 0.999, "f32": 0.999999}
# The most that two vectors of one text may be apart in a number, whatever they were batched with. A product of another
# size may be added up in another order, which shows in the last place of the type; bf16's is 8 times as coarse as f16's.
APART = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-5}
SETTINGS = [("f16", "graphs"), ("f16", "no graphs"), ("bf16", "graphs"), ("bf16", "no graphs"), ("f32", "graphs")]
# The first batch of a size runs directly and the second is captured, so only a third run uses a graph. In f32, which is
# slow and matters least, only small batches are run three times.
RUNS = {("f16", "graphs"): 3, ("bf16", "graphs"): 3}
OPTIONS = {"graphs": [], "no graphs": ["--no-graphs"]}
PASS_TOKENS = {"f16": 65536, "bf16": 65536, "f32": 16384}  # larger batches go in several passes
FIRST_WORD = 8  # lower ids are the special tokens and OVERFLOWING


def make_texts(lengths, seed):
    generator = np.random.default_rng(seed)
    return [np.concatenate([[2], generator.integers(FIRST_WORD, shapes.VOCABULARY, length)])[:length] for length in lengths]


def make_loads(texts, sizes, seed):
    """Yields (title, load): every text alone; then batches of each size, the same rows packed and padded; equal lengths."""
    generator = np.random.default_rng(seed)
    loads = [("alone", [(PACKED, [i]) for i in range(len(texts))])]
    for size in sizes:
        rows = generator.permutation(len(texts))[:size]
        loads.append((f"{size} packed", [(PACKED, rows)]))
        loads.append((f"{size} padded", [(PADDED, rows)]))
    longest = max(len(t) for t in texts)
    equal = [i for i, t in enumerate(texts) if len(t) == longest]
    loads.append(("longest", [(PACKED, equal * (sizes[-1] // (8 * len(equal)) + 1))]))
    return loads


def cosines(ours, wanted):
    ours, wanted = ours.astype(np.float64), wanted.astype(np.float64)
    return (ours * wanted).sum(1) / (np.linalg.norm(ours, axis=1) * np.linalg.norm(wanted, axis=1))


def spread(vectors, which, count):
    """The most that two vectors of one text are apart in any number."""
    low = np.full((count, vectors.shape[1]), np.inf, np.float32)
    high = np.full((count, vectors.shape[1]), -np.inf, np.float32)
    np.minimum.at(low, which, vectors)
    np.maximum.at(high, which, vectors)
    seen = np.unique(which)
    return float((high[seen] - low[seen]).max())


def reference(options, folder, name, texts):
    """Reads the reference from the checkpoint's folder, or computes it and keeps it there."""
    digest = hashlib.sha256(b"".join(t.astype("<i4").tobytes() + b"|" for t in texts)).hexdigest()[:16]
    path = folder / f"reference-{options.reference}-{digest}.npy"
    if not path.exists():
        np.save(path, references.vectors(options.reference, folder, name, texts, options.torch_device))
    return np.load(path)


def judge(report, title, precision, got, wanted, which, texts, labels):
    """One line of the table; says which rows are wrong, the worst few."""
    cosine = cosines(got, wanted[which])
    bad = np.flatnonzero(~(cosine >= COSINE[precision]))
    worst = float(np.where(np.isfinite(cosine), cosine, -1).min())
    apart = spread(got, which, len(texts))
    good = bad.size == 0 and apart <= APART[precision]
    report.number(title, rows=len(which), worst=1 - worst, bar=1 - COSINE[precision], apart=apart,
                  apart_bar=APART[precision], off=float(np.abs(got - wanted[which]).max()), good=good)
    for row in bad[np.argsort(cosine[bad])][:5]:
        report.note(f"  {labels[row]}: {len(texts[which[row]])} tokens: cosine 1 - {1 - cosine[row]:.3g}")
    return good


def check_shape(options, driver, report, name):
    folder, dim = shapes.write(options.work, name), shapes.SHAPES[name]["hidden"]
    if options.quick:
        lengths, sizes = [1, 2, 16, 17, 33, 65, *([140] if "family" in shapes.SHAPES[name] else [])], [1, 2, 5]
    elif name.startswith("tiny"):
        lengths, sizes = [*range(1, 41), 63, 64, 65, 127, 128, 129], [1, 2, 3, 8, 17, 40]
    elif "family" in shapes.SHAPES[name]:  # lengths around a window's edges, and beyond two of them
        lengths = [*range(1, 36), 63, 64, 65, 66, 77, 127, 128, 129, 130, 140, 191, 193, 255, 257, 300, 513, 1000, 1500]
        sizes = [1, 2, 3, 8, 17, 40]
    else:
        lengths, sizes = [*range(1, 513)] * 2, [1, 2, 3, 5, 8, 13, 16, 31, 32, 64, 100, 128, 256, 512, 1024]
    texts = make_texts(lengths, shapes.SHAPES[name]["seed"] + 1000)
    named = make_loads(texts, sizes, 5)
    loads = [load for _, load in named]
    labels = [label for label, load in named for _, rows in load for _ in rows]
    which, wanted = rows_of(loads), reference(options, folder, name, texts)
    found, on_gpu = {}, driver.backend == "cuda"
    for precision, graphs in SETTINGS:
        title = f"{name} {precision}" + (f" {graphs}" if driver.backend == "cuda" else "")
        if graphs == "graphs" and on_gpu and not driver.graphs or graphs != "graphs" and not on_gpu:
            continue
        try:
            got, engine = driver.vectors(folder, texts, loads, dim, "--precision", precision,
                                         "--runs", RUNS.get((precision, graphs), 1), "--batch-tokens",
                                         512 if options.quick else PASS_TOKENS[precision], *OPTIONS[graphs])
        except NotHere as reason:
            report.absent(title, str(reason), driver.backend == "cuda")
            continue
        except Failed as error:  # the next setting may do
            report.fail(title, str(error))
            continue
        judge(report, title, precision, got, wanted, which, texts, labels)
        if engine["rows_bf16"] or engine["rows_f32"] or engine["rows_lost"]:
            report.fail(title, f"rows of an ordinary model were not finite: {engine}")
        replayed = engine["graph_launches"] > 0
        if engine["graph_fallbacks"]:
            report.fail(title, f"graphs were given up: {engine}")
        elif driver.backend == "cuda" and replayed != (graphs != "no graphs"):
            report.fail(title, f"{engine['graph_launches']} of {engine['passes']} passes were replayed graphs")
        if engine["halvings"]:
            report.fail(title, f"memory ran out: {engine}")
        found.setdefault(precision, []).append(got)
    for precision, pair in found.items():
        if len(pair) == 2:
            apart = float(np.abs(pair[0] - pair[1]).max())
            report.number(f"{name} {precision} graphs beside none", rows=len(which), apart=apart,
                          apart_bar=APART[precision], good=apart <= APART[precision])


def check_overflow(options, driver, report, name):
    """Rows that f16 cannot hold must come out as bf16 has them, and be counted; their neighbours as f16 has them."""
    folder, dim = shapes.write(options.work, name), shapes.SHAPES[name]["hidden"]
    texts = make_texts([3 + i % 37 for i in range(12 if options.quick else 96)], 31)
    heavy = np.arange(len(texts)) % 4 == 3
    for text, is_heavy in zip(texts, heavy):
        if is_heavy:
            text[len(text) // 2] = shapes.OVERFLOWING
    loads = [[(PACKED, range(len(texts)))], [(PADDED, range(len(texts)))], [(PACKED, [i]) for i in range(len(texts))]]
    which, wanted = rows_of(loads), reference(options, folder, name, texts)
    precision = "f16" if driver.backend == "cuda" else "f32"
    got, engine = driver.vectors(folder, texts, loads, dim, "--precision", precision)
    # The made-up neuron multiplies the last digit of a GELU near 0 by 1000, so f32 is not judged as f32 here.
    for title, rows, judged_as in (("rows beyond f16", heavy[which], "bf16" if precision == "f16" else "f16"),
                                   ("rows beside them", ~heavy[which], "f16")):
        judge(report, f"{name} {precision} {title}", judged_as, got[rows], wanted, which[rows], texts,
              [title] * int(rows.sum()))
    again, due = engine["rows_bf16"] + engine["rows_f32"], int(heavy[which].sum()) if precision == "f16" else 0
    if again != due or engine["rows_lost"]:
        report.fail(f"{name} {precision}", f"{due} rows should have run again, not {engine}")

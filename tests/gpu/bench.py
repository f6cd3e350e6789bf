"""Measures speed: tokens/s at fixed and mixed lengths, batching off and on, latency; beside the peak of bare products
and the figures of others on the same device in the same run. All figures are medians of rounds, after runs that do not
count."""
import random
import statistics

import numpy as np

import check_numbers
import peers
import shapes
from driver import PACKED, PADDED

LENGTHS = [16, 64, 128, 256, 512]
BUDGETS = [8192, 16384, 32768, 65536]  # tokens in a batch
FIFO_ROWS = [32, 128]                  # rows in a batch of a server that batches by count
LITERATURE = 3.75                      # batching on over off, as published for text services
PEAK = (8192, 8192, 8192)


class Plan:
    """The sizes of a run: real ones, or those of --quick, which only shows that everything runs."""

    def __init__(self, quick):
        self.lengths = [16, 64] if quick else LENGTHS
        self.budgets = [128] if quick else BUDGETS
        self.fifo_rows = [4] if quick else FIFO_ROWS
        self.mixed = 6 if quick else 4096
        self.alone = 3 if quick else 512
        self.batches = 1 if quick else 16  # of a load at one length: one after the other, so that waiting for the last counts little
        self.rounds = 1 if quick else 5
        self.options = ["--batch-tokens", max(self.budgets)]  # else the engine would cut a large batch into passes of its own size
        self.timing = ["--rounds", self.rounds, "--round-ms", 1 if quick else 100, "--warm-ups", 1 if quick else 2]
        self.latencies = 3 if quick else 1000
        self.peak = (64, 64, 64) if quick else PEAK
        self.quick = quick


def mixed_lengths(count):
    """Lengths in order of arrival: package summaries joined to 1 … 12 of them, as the tokenizer of the shipped model
    counts them, at most 512."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(shapes.SOURCE / "config/models/sluice-mini-en/tokenizer.json"))
    tokenizer.no_truncation()
    lines = (shapes.SOURCE / "tools/demo/packages.tsv").read_text().replace("\t", ": ").splitlines()
    rng = random.Random(1)
    texts = [". ".join(rng.sample(lines, min(12, 1 + int(rng.expovariate(0.6))))) for _ in range(count)]
    return [min(512, len(encoding.ids)) for encoding in tokenizer.encode_batch(texts)]


def packed_batches(lengths, budget):
    """Batches in order of arrival, each with as many rows as fit."""
    batches, rows, used = [], [], 0
    for index, length in enumerate(lengths):
        if rows and used + length > budget:
            batches.append((PACKED, rows))
            rows, used = [], 0
        rows.append(index)
        used += length
    return batches + [(PACKED, rows)]


def padded_batches(lengths, order, budget=None, rows_most=None):
    """Batches in the given order, cut by padded tokens or by count."""
    batches, rows, longest = [], [], 0
    for index in order:
        wider = max(longest, lengths[index])
        full = len(rows) == rows_most if rows_most else (len(rows) + 1) * wider > budget
        if rows and full:
            batches.append((PADDED, rows))
            rows, wider = [], lengths[index]
        rows.append(index)
        longest = wider
    return batches + [(PADDED, rows)]


def median_rate(line, what):
    return line[what] / statistics.median(line["seconds"])


def sweep(driver, folder, plan, precision, names):
    """length -> (tokens/s, tokens in a batch) at the batch that is best for it, of (length, tokens in a batch)."""
    texts, loads = [], []
    for length, budget in names:
        rows = max(1, budget // length)
        first = len(texts)
        texts += check_numbers.make_texts([length] * rows, length)
        loads.append([(PACKED, range(first, first + rows))] * plan.batches)
    lines, engine = driver.rates(folder, texts, loads, "--precision", precision, *plan.options, *plan.timing)
    best = {}
    for (length, budget), line in zip(names, lines):
        best[length] = max(best.get(length, (0, 0)), (median_rate(line, "tokens"), budget))
    return best, engine


def mixed(driver, folder, plan, precision, lengths, report, name):
    """Batching off and on: texts/s of each way, on the same texts."""
    texts, order = check_numbers.make_texts(lengths, 3), range(len(lengths))
    by_length = sorted(order, key=lambda i: lengths[i])
    ways = [("one by one", [(PACKED, [i]) for i in order[:plan.alone]])]
    ways += [(f"padded, {n} rows in order", padded_batches(lengths, order, rows_most=n)) for n in plan.fifo_rows]
    for budget in plan.budgets:
        ways.append((f"padded, sorted, {budget} tokens", padded_batches(lengths, by_length, budget=budget)))
        ways.append((f"packed, {budget} tokens", packed_batches(lengths, budget)))
    lines, _ = driver.rates(folder, texts, [load for _, load in ways], "--precision", precision, *plan.options, *plan.timing)
    rates = {way: (median_rate(line, "rows"), median_rate(line, "tokens")) for (way, _), line in zip(ways, lines)}
    best = {}
    for kind in ("one by one", "padded, sorted", "packed", "padded,"):
        best[kind] = max((rate, way) for way, rate in rates.items()
                         if way.startswith(kind) and (kind != "padded," or "in order" in way))
    texts_s = best["packed"][0][0]
    ratio = {kind: texts_s / rate for kind, ((rate, _), _) in best.items()}
    for kind in ("one by one", "padded,", "padded, sorted", "packed"):
        (rate, tokens), way = best[kind]
        report.speed(f"{name} mixed: {way}", f"{rate:12,.0f} texts/s {tokens:14,.0f} tokens/s   packed is {ratio[kind]:.2f} of it",
                     texts_s=rate, tokens_s=tokens, packed_over_it=ratio[kind])
    report.speed(f"{name} mixed: batching off to on", f"{ratio['one by one']:.2f} times (literature: {LITERATURE}); packed over "
                 f"padded-sorted {ratio['padded, sorted']:.2f} (goal 1.3)", off_to_on=ratio["one by one"],
                 packed_over_sorted=ratio["padded, sorted"], all={way: rate[0] for way, rate in rates.items()})
    return texts_s


def latency(driver, folder, plan, precision, report, name):
    lengths = [12, 64] if plan.quick else [12, 128, 512]
    texts = check_numbers.make_texts(lengths, 4)
    loads = [[(PACKED, [i])] for i in range(len(texts))]
    for graphs in ((), ("--no-graphs",)) if driver.backend == "cuda" and driver.graphs else ((),):
        lines, _ = driver.latencies(folder, texts, loads, "--precision", precision, "--latencies", plan.latencies,
                                    "--warm-ups", 3, *graphs)
        for length, line in zip(lengths, lines):
            kind = "" if driver.backend != "cuda" else ", no graphs" if graphs or not driver.graphs else ", graphs"
            report.speed(f"{name} one text of {length} tokens{kind}", f"p50 {line['p50_ms']:.3f} ms, p99 {line['p99_ms']:.3f} ms",
                         p50_ms=line["p50_ms"], p99_ms=line["p99_ms"], samples=line["samples"])


def peak_of_products(options, plan, report, name, tokens):
    """TFLOP/s of a large square product by torch, and of the model's own four at that number of tokens; None without torch
    or without a GPU."""
    try:
        import torch
        if not torch.cuda.is_available():
            raise ImportError("torch sees no GPU")
    except ImportError as reason:
        report.absent(f"{name} peak of products", str(reason), options.backend == "cuda" and options.reference == "transformers")
        return None, None
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def rate(rows, outputs, inputs):
        a, b = (torch.rand(n, inputs, device=options.torch_device, dtype=torch.float16) - 0.5 for n in (rows, outputs))
        to = torch.empty(rows, outputs, device=options.torch_device, dtype=torch.float16)
        many = 20  # so that a launch costs little
        return 2e-12 * rows * outputs * inputs * many / peers.seconds(
            options, plan, lambda: [torch.mm(a, b.t(), out=to) for _ in range(many)])

    own_shapes = shapes.products(name, tokens)
    peak, operations = rate(*plan.peak), [a * b * c for a, b, c in own_shapes]
    own = sum(operations) / sum(count / rate(*shape) for count, shape in zip(operations, own_shapes))
    square = "x".join(map(str, plan.peak))
    report.speed(f"{name} products alone", f"{peak:.0f} TFLOP/s at {square}, {own:.0f} in its own four shapes at {tokens} tokens",
                 peak_tflops=peak, own_tflops=own)
    return peak, own


def share(rate, name, length, peak):
    return None if peak is None else rate * shapes.operations_per_token(name, length) / (peak * 1e12)


def percent(part):
    return "-" if part is None else f"{100 * part:.1f} %"


def show_fixed(report, name, ours, others, peak, own):
    """One shape at each length: our rate, its share of the peak, and the others."""
    for length, (rate, budget) in ours.items():
        goal = shapes.GOALS.get(name) if length == 128 else None
        report.speed(f"{name} {length} tokens", f"{rate:13,.0f} tokens/s in batches of {budget}", shape=name, length=length,
                     tokens_s=rate, batch_tokens=budget, goal=goal and goal[0], share_of_peak=share(rate, name, length, peak),
                     share_of_products=share(rate, name, length, own),
                     peers={peer: rates[length] for peer, rates in others.items() if length in rates})


def show_all(report):
    """The one table of a run."""
    rows = []
    for line in report.content["speed"]:
        if "tokens_s" in line and "length" in line:
            row = [line["shape"], str(line["length"]), f"{line['tokens_s']:,.0f}", percent(line["share_of_peak"]),
                   percent(line["share_of_products"])]
            for peer in (peers.NAME, peers.COMPILED):
                theirs = line["peers"].get(peer)
                row += [f"{theirs:,.0f}", f"{line['tokens_s'] / theirs:.2f}"] if theirs else ["-", "-"]
            goal = line["goal"]
            rows.append(row + [f"{goal:,.0f} {'met' if line['tokens_s'] >= goal else 'missed'}" if goal else ""])
    report.table(["shape", "tokens", "tokens/s", "of peak", "of its products", peers.NAME, "ours/it", peers.COMPILED,
                  "ours/it", "goal"], rows)


def bench_shape(options, driver, report, name):
    plan = Plan(options.quick)
    precision = "f16" if driver.backend == "cuda" else "f32"
    folder = shapes.write(options.work, name)
    lengths = mixed_lengths(plan.mixed)
    report.note(f"{name}: {precision}; mixed lengths {min(lengths)} to {max(lengths)}, mean {np.mean(lengths):.0f}")
    ours, engine = sweep(driver, folder, plan, precision, [(n, budget) for n in plan.lengths for budget in plan.budgets])
    middle = 128 if 128 in ours else plan.lengths[0]
    peak, own = peak_of_products(options, plan, report, name, ours[middle][1])
    others = {}
    if options.peers:
        others = peers.fixed(options, report, folder, name, plan, driver)
    show_fixed(report, name, ours, others, peak, own)
    texts_s = mixed(driver, folder, plan, precision, lengths, report, name)
    if options.peers:
        peers.mixed(options, report, folder, name, plan, lengths, texts_s)
    latency(driver, folder, plan, precision, report, name)
    report.content.setdefault("engines", {})[name] = engine

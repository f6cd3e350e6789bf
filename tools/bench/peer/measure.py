"""Rounds in which all engines take turns, column by column."""
import array
import math
import statistics
import time

from catalogue import OURS, THREADS
from warm import Refused

# Column -> what it measures, with the load; the unit; whether more is better.
COLUMNS = {
    "fixed": ("128 tokens, batches of 32", "tokens/s", True),
    "job": ("mixed texts as one job", "tokens/s", True),
    "windows": ("mixed texts in windows of 96", "tokens/s", True),
    "text": ("mixed texts, tokenised too", "tokens/s", True),
    "docs": ("32 documents of 200 tokens", "tokens/s", True),
    "long": ("one text of 4,096 tokens", "tokens/s", True),
    "one": ("one text of 16 tokens, p50", "ms", False),
    "one_p99": ("one text of 16 tokens, p99", "ms", False),
    "share": ("128 tokens, share of oneDNN's bare products", "", True),
    "peak": ("those products", "GF/s", True),
    "ready": ("from exec to its first vector", "s", False),
    "memory": ("resident memory", "MB", False),
    "tokenizer": ("tokenizer, one core", "tokens/s", True),
    "document": ("1 MB document, 256 tokens kept", "ms", False),
    "cosine": ("lowest cosine to float64", "", True),
    "same_bits": ("same bits in any batch", "", True),
    "mean_lost": ("mean 1-cosine to f32", "", False),
    "worst_lost": ("worst 1-cosine", "", False),
    "overlap": ("the 10 best of 2,000 as in f32", "", True),
    "rank": ("MRR", "", True),
    "rank_reference": ("MRR in f32", "", True),
}
ACCURACIES = ("cosine", "same_bits", "mean_lost", "worst_lost", "overlap", "rank", "rank_reference")
RACES = ("fixed", "job", "windows", "docs", "long")  # columns in which only the fastest peer counts
LOADS = {"fixed": ("fixed", 0), "job": ("mixed", 0), "windows": ("windows", 96), "text": ("mixed", 0),
         "docs": ("docs", 0), "long": ("long", 1)}


def percentile(samples, share):
    """The smallest sample that at least `share` of the samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def tokens_per_second(process, command, column, plan):
    load, window = LOADS[column]
    before = process.cpu_s() if plan.cpu else 0
    answer = process.ask(command, load, window, plan.step_ms)
    return plan.tokens[load] * answer["runs"] / ((process.cpu_s() - before) / THREADS if plan.cpu else answer["seconds"])


def one_step(process, column, plan):
    """Gives one engine one turn; returns {column: figure}."""
    if column in RACES:
        return {column: tokens_per_second(process, "run", column, plan)}
    if column == "text":
        return {column: tokens_per_second(process, "text", column, plan)}
    if column == "one":
        took = process.ask("each", "one", plan.singles)["ms"]
        return {"one": percentile(took, 0.5), "one_p99": percentile(took, 0.99)}
    if column == "tokenizer":
        answer = process.ask("tokens", "mixed", plan.step_ms)
        return {column: answer["tokens"] / answer["seconds"]}
    if column == "document":
        return {column: statistics.median(process.ask("document", "document", 5)["ms"])}
    raise ValueError(column)


def warm_up(process, column, plan):
    """Does what must not be measured: the first runs of a shape, and the choice of the best batch on a part of the
    load."""
    if column in ("job", "windows", "docs"):
        process.ask("tune", *LOADS[column])
    elif column == "text":
        process.ask("text", "windows", 0, 1)
    else:
        one_step(process, column, plan.but(step_ms=1, singles=5))


def accuracy(process, reference, path):
    """Embeds every probe alone and all together; returns {column: figure}."""
    answers = []
    for window in (1, 0):
        answer = process.ask("vectors", "probe", window, path)
        answers.append(read_vectors(path, answer["rows"], answer["dim"]))
    cosines = [cosine(ours, theirs) for rows in answers for ours, theirs in zip(rows, reference, strict=True)]
    return {"cosine": min(cosines), "same_bits": float(answers[0] == answers[1])}


def read_vectors(path, rows, dim, kind="f"):
    numbers = array.array(kind)
    with open(path, "rb") as file:
        numbers.frombytes(file.read())
    if len(numbers) != rows * dim:
        raise Refused(f"wrote {len(numbers)} numbers for {rows} rows of {dim}")
    return [numbers[at:at + dim] for at in range(0, len(numbers), dim)]


def cosine(a, b):
    product = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))


class Figures:
    """The results of a run: for each engine and column the figure of every round, in order."""

    def __init__(self):
        self.rounds, self.refused = {}, {}

    def behind(self, column, share):
        """The peers whose best round in a column is below `share` of the best of any peer of their precision."""
        best = {engine: max(found) for (engine, of), found in self.rounds.items() if of == column and engine.peer != OURS}
        return {engine for engine, rate in best.items()
                if rate < share * max(other for rival, other in best.items() if rival.precision == engine.precision)}

    def add(self, engine, found):
        for column, figure in found.items():
            self.rounds.setdefault((engine, column), []).append(figure)

    def refuse(self, engine, what, reason):
        self.refused[f"{engine.key}: {what}" if what else engine.key] = str(reason)


def take_turns(processes, columns, plan, figures):
    """`processes`: engine -> Process. Every round measures each engine in each column once, alternating forwards and
    backwards. An engine that cannot do a column is left out of it from then on, with the reason noted; so is a peer
    that can no longer be the fastest in a race, with the rounds that it has."""
    doing = []
    for column in columns:
        for engine, process in processes.items():
            if column not in engine.columns:
                continue
            try:
                warm_up(process, column, plan)
                doing.append((column, engine))
            except Refused as reason:
                figures.refuse(engine, column, reason)
    for number in range(plan.rounds):
        for column in columns:
            slow = figures.behind(column, plan.chance) if column in RACES and number > 0 else ()
            turns = [step for step in doing if step[0] == column and step[1] not in slow]
            for step in turns if number % 2 == 0 else reversed(turns):
                try:
                    figures.add(step[1], one_step(processes[step[1]], column, plan))
                except Refused as reason:
                    figures.refuse(step[1], column, reason)
                    doing.remove(step)
        if time.monotonic() > plan.end:
            break

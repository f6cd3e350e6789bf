"""Figures of several runs in one file, and the tables made from them.

A ratio compares engines of one run only: every record holds an engine's rounds and ours of the same rounds. So runs of
a shape, a precision or a peer at a time can be merged, and no ratio is between runs."""
import itertools
import statistics

from catalogue import FAMILIES, OURS, PRECISIONS, TRAINED
from measure import ACCURACIES, COLUMNS, RACES

# The goal for ours relative to the best peer, by column and shape (None: any other shape).
GOALS = {
    ("fixed", "minilm"): {"f32": 1.3, "bf16": 1.3, "int8": 1.2},
    ("fixed", None): {"f32": 1.3, "int8": 1.2},
    ("job", "minilm"): {"f32": 1.35, "bf16": 1.35, "int8": 1.2},
    ("job", None): {"int8": 1.2},
    ("windows", "minilm"): {"f32": 1.6, "bf16": 2.0, "int8": 2.0},
    ("one", "minilm"): {"f32": 0.7, "bf16": 0.7, "int8": 0.8},
    ("share", "minilm"): {"f32": 0.92, "bf16": 0.88, "int8": 0.62},
    ("memory", "minilm"): {"f32": 150, "bf16": 150, "int8": 150},
} | {(column, family): {"f32": 1.2} for family, columns in FAMILIES.items() for column in columns}
OF_OURS = ("share", "memory")  # columns whose goals are for our own figure
NAMES = TRAINED | {"xlmr-base": "XLM-R base, bge-reranker-base", "modernbert-base": "ModernBERT base",
                   "qwen3-0.6b": "Qwen3 0.6B, half of its layers"}
USUAL_GOALS = {"f32": 2.4, "bf16": 5, "int8": 7}


def records(figures, shape, when):
    """Returns {key: record}, one for each engine and column of a run."""
    ours = {}
    for (engine, column), rounds in figures.rounds.items():
        if engine.peer == OURS:
            ours.setdefault(column, {})[engine.precision] = rounds
    return {f"{shape}|{column}|{engine.key}": {
        "shape": shape, "column": column, "peer": engine.peer, "engine": engine.key, "precision": engine.precision,
        "rounds": rounds, "ours": ours.get(column, {}), "when": when} for (engine, column), rounds in figures.rounds.items()}


def merge(results, found, refused, shape):
    """Newer records and refusals replace older ones of the same engine and column; a new figure removes an earlier
    refusal."""
    merged = {**results, "figures": {**results.get("figures", {}), **found}, "refused": dict(results.get("refused", {}))}
    for record in found.values():
        for what in (record["engine"], f"{record['engine']}: {record['column']}"):
            merged["refused"].pop(f"{shape}|{what}", None)
    merged["refused"].update({f"{shape}|{what}": reason for what, reason in refused.items()})
    return merged


def ratio(record, precision=None):
    """The median over the rounds of ours divided by theirs; None if ours is not in the run."""
    ours = record["ours"].get(record["precision"] if precision is None else precision)
    pairs = [a / b for a, b in zip(ours or [], record["rounds"]) if b]
    return statistics.median(pairs) if pairs else None


def best_peer(records_of_column, column, precision, among=lambda engine: True):
    """The record of the peer that is farthest ahead of ours, or else nearest behind; or None."""
    peers = [r for r in records_of_column if r["peer"] != OURS and r["precision"] == precision and among(r["engine"])
             and ratio(r) is not None]
    if not peers:
        return None
    return (min if COLUMNS[column][2] else max)(peers, key=ratio)


def show(column, figure):
    if column == "same_bits":
        return "yes" if figure == 1 else "no"
    if column == "cosine":
        return f"{figure:.7f}"
    if column in ACCURACIES:
        return f"{figure:.4g}"
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def figure(number):
    return f"{number:.2f}" if number >= 0.01 else f"{number:.1g}"


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def figures_table(found, shape):
    """Every engine's median in every column."""
    columns = [c for c in COLUMNS if any(r["shape"] == shape and r["column"] == c for r in found)]
    engines = list(dict.fromkeys((r["precision"], r["engine"]) for r in found if r["shape"] == shape))
    order = {precision: number for number, precision in enumerate((*PRECISIONS, ""))}
    engines.sort(key=lambda e: (order[e[0]], not e[1].startswith(OURS)))
    cells = {(r["engine"], r["column"]): show(r["column"], statistics.median(r["rounds"])) for r in found if r["shape"] == shape}
    head = ["engine"] + [f"{COLUMNS[c][0]}{', ' + COLUMNS[c][1] if COLUMNS[c][1] else ''}" for c in columns]
    return markdown(head, [[name] + [cells.get((name, c), "") for c in columns] for _, name in engines])


def goal(column, shape, precision):
    return GOALS.get((column, shape), GOALS.get((column, None), {})).get(precision)


def cell(here, column, shape, precision):
    """Our median, and its ratio to the best peer's; bold if a goal is missed."""
    own = next((r["rounds"] for r in here if r["peer"] == OURS and r["precision"] == precision), None)
    if not own:
        return ""
    best, wanted, median = best_peer(here, column, precision), goal(column, shape, precision), statistics.median(own)
    reached = median if column in OF_OURS else ratio(best) if best else None
    text = show(column, median) + (f", {figure(ratio(best))} {best['engine'].removesuffix(' ' + precision)}" if best else "")
    missed = wanted and reached and (reached < wanted if COLUMNS[column][2] else reached > wanted)
    return f"**{text}**" if missed else text


def machine_table(found):
    """Sluice in every shape, column and precision, with its ratio to the best peer."""
    rows = []
    for shape, column in itertools.product(dict.fromkeys(r["shape"] for r in found), COLUMNS):
        what, unit, more = COLUMNS[column]
        here = [r for r in found if (r["shape"], r["column"]) == (shape, column)]
        cells = [cell(here, column, shape, precision) for precision in PRECISIONS]
        if any(cells) and column not in ACCURACIES:
            goals = ", ".join(str(wanted) for p in PRECISIONS if (wanted := goal(column, shape, p)) is not None)
            about = ", ".join(filter(None, (what, unit, "" if more else "less is better")))
            rows.append([f"{NAMES.get(shape, shape)}: {about}", *cells, goals])
    return markdown(["two threads: ours, times the best peer", *PRECISIONS, "goals"], rows) if rows else ""


def usual_row(found, shape):
    """Ours in each precision compared with what most people run; "" if that was not measured."""
    usual = [r for r in found if (r["shape"], r["column"], r["engine"]) == (shape, "text", "sentence-transformers f32")]
    if not usual or not usual[0]["ours"]:
        return ""
    cells = [f"{figure(ratio(usual[0], p))}, goal {USUAL_GOALS[p]}" if usual[0]["ours"].get(p) else "" for p in PRECISIONS]
    return markdown(["sluice over sentence-transformers f32, from texts", *PRECISIONS],
                    [[f"{COLUMNS['text'][0]}, {len(usual[0]['rounds'])} rounds", *cells]])


def int8_row(found, shape):
    """Ours in int8 compared with ours in bf16, by column; "" if one of them was not measured."""
    ours = [r for r in found if (r["shape"], r["engine"]) == (shape, f"{OURS} bf16") and r["column"] in RACES and r["ours"].get("int8")]
    if not ours:
        return ""
    return markdown(["sluice int8 over sluice bf16, goal 1.5", *(COLUMNS[r["column"]][0] for r in ours)],
                    [["tokens/s", *(figure(ratio(r, "int8")) for r in ours)]])


def refused_list(refused, shape):
    here = {what.partition("|")[2]: reason for what, reason in refused.items() if what.startswith(shape + "|")}
    return "\n".join(f"- {what}: {reason}" for what, reason in sorted(here.items()))


def report(results):
    found = list(results["figures"].values())
    title = f"## {results.get('machine', 'Machine unknown')}"
    whens = f"{min(r['when'] for r in found)} to {max(r['when'] for r in found)}" if found else ""
    parts = [title, whens, machine_table(found)]
    for shape in dict.fromkeys([r["shape"] for r in found] + [w.partition("|")[0] for w in results["refused"]]):
        refused = refused_list(results["refused"], shape)
        parts += [f"### {shape}", usual_row(found, shape), int8_row(found, shape), figures_table(found, shape),
                  refused and f"Not measured:\n\n{refused}"]
    return "\n\n".join(filter(None, parts))

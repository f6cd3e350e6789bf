"""Figures of several runs in one file, and the tables that come of them.

A ratio compares engines of one run only: every record holds, beside an engine's rounds, what ours did in the same rounds.
So runs of a shape, a precision or a peer at a time can be merged, and none of the ratios is between runs."""
import statistics

from catalogue import OURS, PRECISIONS
from measure import COLUMNS


def records(figures, shape, when):
    """key -> record, one for each engine and column of a run."""
    ours = {}
    for (engine, column), rounds in figures.rounds.items():
        if engine.peer == OURS:
            ours.setdefault(column, {})[engine.precision] = rounds
    return {f"{shape}|{column}|{engine.key}": {
        "shape": shape, "column": column, "peer": engine.peer, "engine": engine.key, "precision": engine.precision,
        "rounds": rounds, "ours": ours.get(column, {}), "when": when} for (engine, column), rounds in figures.rounds.items()}


def merge(results, found, refused, shape):
    """Newer records take the place of older ones of the same engine and column, and so do refusals; who was refused before
    and has a figure now is refused no longer."""
    merged = {"figures": {**results.get("figures", {}), **found}, "refused": dict(results.get("refused", {}))}
    for record in found.values():
        for what in (record["engine"], f"{record['engine']}: {record['column']}"):
            merged["refused"].pop(f"{shape}|{what}", None)
    merged["refused"].update({f"{shape}|{what}": reason for what, reason in refused.items()})
    return merged


def ratio(record, precision=None):
    """Ours over theirs, the median of the pairs; None where ours is not in the run."""
    ours = record["ours"].get(record["precision"] if precision is None else precision)
    pairs = [a / b for a, b in zip(ours or [], record["rounds"]) if b]
    return statistics.median(pairs) if pairs else None


def ratio_of_bests(record):
    """Ours at its best over theirs at its best: where a machine is never quiet, the best of many short rounds of each come
    nearest to what a quiet one would show."""
    best = max if COLUMNS[record["column"]][2] else min
    return best(record["ours"][record["precision"]]) / best(record["rounds"])


def best_peer(records_of_column, column, precision):
    """The record of the peer that is nearest to ours or farthest ahead, or None."""
    peers = [r for r in records_of_column if r["peer"] != OURS and r["precision"] == precision and ratio(r) is not None]
    if not peers:
        return None
    return (min if COLUMNS[column][2] else max)(peers, key=ratio)


def show(column, figure):
    if column == "same_bits":
        return "yes" if figure == 1 else "no"
    if column == "cosine":
        return f"{figure:.7f}"
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


def ratio_table(found, shape):
    """Sluice over the best peer of each column and precision, and who that is."""
    rows = []
    for column, (what, _, more) in COLUMNS.items():
        if column in ("cosine", "same_bits"):
            continue
        here = [r for r in found if r["shape"] == shape and r["column"] == column]
        cells = []
        for precision in (*PRECISIONS, ""):
            best = best_peer(here, column, precision)
            ahead = best and (ratio(best) >= 1) == more
            name = best and best["engine"].removesuffix(" " + precision)
            cells.append(f"{figure(ratio(best))} ({figure(ratio_of_bests(best))}){'' if ahead else ' behind'} {name}, "
                         f"{len(best['rounds'])} rounds" if best else "")
        if any(cells):
            rows.append([what + (" (more is better)" if more else " (less is better)"), *cells[:3], cells[3]])
    return markdown(["sluice over the best peer: median of pairs (best over best)", *PRECISIONS, "any"], rows)


def refused_list(refused, shape):
    here = {what.partition("|")[2]: reason for what, reason in refused.items() if what.startswith(shape + "|")}
    return "\n".join(f"- {what}: {reason}" for what, reason in sorted(here.items()))


def report(results):
    found = list(results["figures"].values())
    parts = []
    for shape in dict.fromkeys([r["shape"] for r in found] + [w.partition("|")[0] for w in results["refused"]]):
        parts += [f"## {shape}", ratio_table(found, shape), figures_table(found, shape)]
        refused = refused_list(results["refused"], shape)
        if refused:
            parts += ["Not measured:", refused]
    return "\n\n".join(parts)

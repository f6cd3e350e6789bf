#!/usr/bin/env python3
"""Prints the launches, microseconds and share of each kernel in a pass of 16,384 tokens, as ncu sees them."""
import argparse
import collections
import csv
import pathlib
import re
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import check_numbers  # noqa: E402
import shapes  # noqa: E402
from driver import PACKED, Driver, Failed, NotHere  # noqa: E402

TOKENS, LENGTH = 16384, 128


def times(lines):
    """kernel -> microseconds of each launch. Ours take one struct, ..._args; the others are products."""
    found, units = collections.defaultdict(list), {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        if row["Metric Name"] == "gpu__time_duration.sum":
            ours = re.match(r"(?:void )?(\w+)<?.*_args", row["Kernel Name"])
            found[ours[1] if ours else "products"].append(float(row["Metric Value"].replace(",", "")) * units[row["Metric Unit"]])
    return found


def show(options, name):
    rows, log = TOKENS // LENGTH if options.backend == "cuda" else 1, options.work / f"ncu-{name}.csv"
    texts, load = check_numbers.make_texts([LENGTH] * rows, 7), [[(PACKED, range(rows))]]
    ncu = ["ncu", "--csv", "--log-file", str(log), "--metrics", "gpu__time_duration.sum", "--clock-control", "none",
           "--cache-control", "none"] if options.backend == "cuda" else []
    driver = Driver([*ncu, *options.driver], options.backend, options.work)
    driver.vectors(shapes.write(options.work, name), texts, load, shapes.SHAPES[name]["hidden"], "--untimed", "--no-graphs")
    found = times(log.read_text().splitlines()) if ncu else {}
    whole = sum(map(sum, found.values()))
    operations = rows * LENGTH * shapes.SHAPES[name]["layers"] * sum(2 * n * k for _, n, k in shapes.products(name, 1))
    for kernel, spent in sorted(found.items(), key=lambda item: -sum(item[1])):
        rate = f"{operations / sum(spent) * 1e-6:.0f} TFLOP/s" if kernel == "products" else ""
        print(f"{name:10} {kernel:20} {len(spent):4} launches {sum(spent):9.0f} us {sum(spent) / whole:6.1%} {rate}")
    print(f"{name:10} {rows * LENGTH} tokens: {whole:.0f} us of kernels")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True, type=shlex.split)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--shapes", default="bert-base,minilm")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    options = parser.parse_args()
    try:
        for name in options.shapes.split(","):
            show(options, name)
    except (Failed, NotHere) as error:
        sys.exit(f"FAILED: {error}")


if __name__ == "__main__":
    main()

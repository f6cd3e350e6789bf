#!/usr/bin/env python3
"""A forward pass of six tiny models (head dimensions 32 and 64, mean and first-token pooling, norms before and after each
part, rotary positions, windows, gates, fewer heads of keys), small enough to run under compute-sanitizer; its vectors are
checked as well, because a sanitizer can hide what it is looking for. No product is timed."""
import argparse
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import check_numbers  # noqa: E402
import references  # noqa: E402
import shapes  # noqa: E402
from driver import PACKED, PADDED, Driver, Failed, NotHere, rows_of  # noqa: E402

LENGTHS = [1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 130]


def run(driver, work, name):
    """Returns whether all vectors are right, with graphs and without."""
    folder = shapes.write(work, name)
    texts = check_numbers.make_texts(LENGTHS, 41)
    loads = [[(PACKED, range(len(texts)))], [(PADDED, range(8))], [(PACKED, [6])]]
    wanted = references.numpy_vectors(folder, name, texts)[rows_of(loads)]
    precision, good = "f16" if driver.backend == "cuda" else "f32", True
    for graphs in ((), ("--no-graphs",)) if driver.backend == "cuda" else ((),):
        got, _ = driver.vectors(folder, texts, loads, shapes.SHAPES[name]["hidden"], "--precision", precision, "--runs", 3,
                                "--untimed", *graphs, timeout=500)
        cosine = float(check_numbers.cosines(got, wanted).min())
        fine = cosine >= check_numbers.COSINE[precision]
        verdict = "" if fine else " WRONG"
        print(f"forward_once: {name} {' '.join(graphs) or 'with graphs'}: worst cosine 1 - {1 - cosine:.1e}{verdict}")
        good &= fine
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True, type=shlex.split)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--models", default="tiny,tiny-cls,tiny-modernbert,tiny-gte,tiny-qwen3,tiny-gemma3", help="by comma")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    driver, good = Driver(options.driver, options.backend, options.work, options.device), True
    for name in options.models.split(","):
        try:
            good &= run(driver, options.work, name)
        except (Failed, NotHere) as error:
            print(f"forward_once: {name}: FAILED: {error}")
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

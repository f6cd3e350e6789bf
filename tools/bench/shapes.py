#!/usr/bin/python3
"""Writes a model of a real shape with random weights from a seed: speed does not depend on the weights' values.

usage: shapes.py minilm|bge-small|bert-base DIRECTORY
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/support"))

from model import vocabulary, write_model  # noqa: E402

WORDS = 30522  # of these models; those that the small vocabulary lacks are word0, word1, ...
SHAPES = {
    "minilm": {"hidden": 384, "heads": 12, "layers": 6, "intermediate": 1536},
    "bge-small": {"hidden": 384, "heads": 12, "layers": 12, "intermediate": 1536},
    "bert-base": {"hidden": 768, "heads": 12, "layers": 12, "intermediate": 3072},
}


def words():
    known = vocabulary()
    return known + [f"word{i}" for i in range(WORDS - len(known))]


if __name__ == "__main__":
    write_model(sys.argv[2], words=words(), positions=512, max_tokens=512, **SHAPES[sys.argv[1]])

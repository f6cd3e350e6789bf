"""The models of the GPU check: random weights from a seed in the shapes that people run, and tiny ones for the host."""
import json
import math
import pathlib
import struct
import sys

import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "tests/golden"), str(SOURCE / "tests/support")]

import encoder_golden as golden  # noqa: E402

VOCABULARY, POSITIONS = golden.VOCABULARY, golden.POSITIONS

SHAPES = {
    "tiny": dict(hidden=64, layers=2, heads=2, inner=128, pooling="mean", dtype="F32", seed=21),
    "tiny-cls": dict(hidden=128, layers=2, heads=2, inner=256, pooling="cls", dtype="F16", seed=22),
    "tiny-modernbert": dict(family="modernbert", hidden=64, layers=2, heads=2, inner=96, pooling="mean", dtype="F32",
                            local=[1], seed=29),
    "tiny-nomic": dict(family="nomic", hidden=128, layers=2, heads=2, inner=128, pooling="mean", dtype="F16", seed=30),
    "tiny-gte": dict(family="gte", hidden=64, layers=2, heads=2, inner=128, pooling="cls", dtype="F32", seed=31),
    "tiny-qwen3": dict(family="qwen3", hidden=64, layers=2, heads=4, key_heads=2, width=32, inner=96, pooling="lasttoken",
                       dtype="F32", seed=35),
    "tiny-gemma3": dict(family="gemma3", hidden=64, layers=3, heads=2, key_heads=1, width=64, scalar=64, inner=96,
                        pooling="mean", dtype="F32", local=[0, 1], seed=37),
    "minilm": dict(hidden=384, layers=6, heads=12, inner=1536, pooling="mean", dtype="F32", seed=23),
    "bge-small": dict(hidden=384, layers=12, heads=12, inner=1536, pooling="cls", dtype="F16", seed=24),
    "bert-base": dict(hidden=768, layers=12, heads=12, inner=3072, pooling="mean", dtype="F32", seed=25, spread=0.8),
    # With weights as wide as those of the others, rounding would grow over 24 layers more than in any trained model.
    "bert-large": dict(hidden=1024, layers=24, heads=16, inner=4096, pooling="mean", dtype="F16", seed=26, spread=0.6),
    # A few layers of the real ones, because NumPy computes the reference.
    "modernbert": dict(family="modernbert", hidden=768, layers=4, heads=12, inner=1152, pooling="cls", dtype="F32",
                       local=[1, 2], positions=2048, seed=32, spread=0.8),
    "nomic": dict(family="nomic", hidden=768, layers=3, heads=12, inner=3072, pooling="mean", dtype="F32", positions=2048,
                  seed=33, spread=0.8),
    "gte": dict(family="gte", hidden=768, layers=3, heads=12, inner=3072, pooling="cls", dtype="F16", positions=2048,
                seed=34, spread=0.8),
    "qwen3": dict(family="qwen3", hidden=1024, layers=3, heads=16, key_heads=8, width=128, inner=3072, pooling="lasttoken",
                  dtype="BF16", positions=2048, seed=36, spread=0.8),
    "gemma3": dict(family="gemma3", hidden=768, layers=3, heads=3, key_heads=1, width=256, scalar=256, inner=1152,
                   pooling="mean", dtype="F32", local=[0, 1], positions=2048, seed=38, spread=0.8),
}
# Overflows f16 in every row with the token OVERFLOWING: see make_overflowing.
OVERFLOW = {"overflow": dict(hidden=384, layers=3, heads=12, inner=1536, pooling="mean", dtype="F32", seed=27, push=1000),
            "tiny-overflow": dict(hidden=64, layers=2, heads=2, inner=128, pooling="mean", dtype="F32", seed=28, push=1000)}
SHAPES.update(OVERFLOW)
OVERFLOWING = 7
REAL = ["minilm", "bge-small", "bert-base", "bert-large"]

# The goals of the project for one H100 or H200 at 128 tokens, in tokens/s, and their share of the peak of products.
GOALS = {"minilm": (12.0e6, None), "bert-base": (2.35e6, 0.51), "bert-large": (0.77e6, 0.59)}


def write(work, name):
    """The checkpoint's folder; written when it is missing, or holds another checkpoint."""
    folder, made_from = pathlib.Path(work) / name, json.dumps(SHAPES[name], sort_keys=True)
    complete = folder / "complete"
    if not complete.exists() or complete.read_text() != made_from:
        golden.write_checkpoint(folder, SHAPES[name])
        if name in OVERFLOW:
            make_overflowing(folder, SHAPES[name]["push"])
        complete.write_text(made_from)
    return folder


def tensors(folder, mode="r"):
    """name -> the numbers as the file has them (bf16: their bits)."""
    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    types = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    return {name: np.memmap(path, types[entry["dtype"]], mode, 8 + size + entry["data_offsets"][0], tuple(entry["shape"]))
            for name, entry in header.items()}


def make_overflowing(folder, push):
    """Gives OVERFLOWING an embedding that is one large number, to which one inner neuron of the first layer responds;
    the number that it then adds is far beyond f16, but not beyond bf16. It does not respond to other tokens."""
    named, layer = tensors(folder, "r+"), "encoder.layer.0."
    hidden = named["embeddings.LayerNorm.weight"].shape[0]
    named["embeddings.word_embeddings.weight"][OVERFLOWING] = 0
    named["embeddings.word_embeddings.weight"][OVERFLOWING, 3] = 40
    named["embeddings.LayerNorm.weight"][3] = named[layer + "attention.output.LayerNorm.weight"][3] = 1
    named[layer + "intermediate.dense.weight"][0] = 0
    named[layer + "intermediate.dense.weight"][0, 3] = 100
    named[layer + "intermediate.dense.bias"][0] = -65 * math.sqrt(hidden)
    named[layer + "output.dense.weight"][5, 0] = push
    for tensor in named.values():
        tensor.flush()


def operations_per_token(name, length):
    """Operations of products and attention, as papers count them; a model that pools its first token does not need all
    of its last layer, but is credited with all of it, as its peers are."""
    m, window = SHAPES[name], 2 * golden.family_of(SHAPES[name]).get("window", 0) + 1
    seen = sum(min(length, window) if layer in m.get("local", ()) else length for layer in range(m["layers"]))
    return m["layers"] * sum(2 * outputs * inputs for _, outputs, inputs in products(name, 1)) + 4 * seen * products(name, 1)[1][2]


def products(name, tokens):
    """The four products of a layer at that number of tokens: (rows, outputs, inputs)."""
    m = SHAPES[name]
    hidden, inner, gated = m["hidden"], m["inner"], "rotary" in golden.family_of(m)
    width = m.get("width", hidden // m["heads"])
    query, keys = m["heads"] * width, 2 * m.get("key_heads", m["heads"]) * width
    return [(tokens, query + keys, hidden), (tokens, hidden, query), (tokens, (1 + gated) * inner, hidden),
            (tokens, hidden, inner)]

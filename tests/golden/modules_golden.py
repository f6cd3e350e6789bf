#!/usr/bin/env python3
"""Compares vectors of models with every pooling and module with those of sentence-transformers, on tiny seeded checkpoints.

usage: modules_golden.py SLUICE WORK             compares with modules.json
       modules_golden.py --make SLUICE WORK      writes modules.json, and opens what sentence-transformers saves; needs that package
The bars: numbers within 1e-6 of a vector's length in f32, a cosine of 0.9999 in bf16; a text alone has the bits that it has among others.
"""
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from model import WORDS, add_modules, write_model  # noqa: E402

REFERENCE = pathlib.Path(__file__).with_name("modules.json")
TEXTS = ["", "hello world", " ".join(WORDS[:9]), " ".join(WORDS[20:100])]
NORMALIZE = ("Normalize",)
MODELS = {
    "labse": dict(chain=[("Dense", 24, "Tanh", True), NORMALIZE], pooling="cls"),
    "gemma": dict(chain=[("Dense", 100, "Identity", False), ("Dense", 32, "Identity", False), NORMALIZE], pooling="mean", current=True),
    "norms": dict(chain=[("LayerNorm",), ("Dense", 40, "GELU", True), ("LayerNorm",)], pooling="weightedmean", current=True),
    "middle": dict(chain=[NORMALIZE, ("Dense", 20, "ReLU", False)], pooling="max"),
    "last": dict(chain=[("LayerNorm",), NORMALIZE, NORMALIZE], pooling="lasttoken"),
    "pooled": dict(chain=[], pooling="mean_sqrt_len_tokens", current=True),
}


def write(work, name):
    folder = pathlib.Path(work) / "modules" / name
    shutil.rmtree(folder, ignore_errors=True)
    seed = list(MODELS).index(name) + 1
    return add_modules(write_model(str(folder), seed=seed, hidden=32, intermediate=64), seed=seed, **MODELS[name])


def make(sluice, work):
    from sentence_transformers import SentenceTransformer
    reference = {}
    for name, m in MODELS.items():
        folder = write(work, name)
        model = SentenceTransformer(folder, device="cpu").double()
        reference[name] = [[round(float(x), 8) for x in row] for row in model.encode(TEXTS)]
        again = folder + "-saved"
        SentenceTransformer(folder, device="cpu").save(again)
        check(sluice, again, name, reference[name])
        for file in pathlib.Path(folder).glob("[1-9]_*/config.json") if m.get("current") else []:
            saved = json.loads((pathlib.Path(again) / file.relative_to(folder)).read_text())
            assert saved == json.loads(file.read_text()), f"{file}: sentence-transformers writes {saved}"
    REFERENCE.write_text(json.dumps(reference).replace("]], ", "]],\n").replace("], ", "],\n") + "\n")


def run(sluice, folder, precision, texts):
    done = subprocess.run([sluice, "embed", "--model", folder, "--precision", precision, "--threads", "2"],
                          input="".join(text + "\n" for text in texts), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    return done.stdout.splitlines()


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def check(sluice, folder, name, reference):
    lines = run(sluice, folder, "f32", TEXTS)
    assert run(sluice, folder, "f32", TEXTS[2:3]) == lines[2:3], f"{name}: others matter"
    ours = [json.loads(line) for line in lines]
    assert [len(row) for row in ours] == [len(row) for row in reference], f"{name}: {len(ours[0])} numbers"
    off = max(abs(a - b) / math.hypot(*other) for row, other in zip(ours, reference) for a, b in zip(row, other))
    near = min(cosine(json.loads(line), row) for line, row in zip(run(sluice, folder, "bf16", TEXTS), reference))
    print(f"{name}: f32 off by at most {off:.2g}, bf16 cosine 1 - {1 - near:.2g}")
    assert off <= 1e-6 and near >= 0.9999, f"{name}: not near enough"


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(*sys.argv[2:])
    else:
        references = json.loads(REFERENCE.read_text())
        assert references.keys() == MODELS.keys(), "modules.json is of other models: --make"
        for model_name, rows in references.items():
            check(sys.argv[1], write(sys.argv[2], model_name), model_name, rows)

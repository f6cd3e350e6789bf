#!/usr/bin/env python3
"""How much accuracy e4m3 products would cost a BERT or MPNet model, imitated on a CPU: activations rounded to e4m3 with a
scale per row and weights with one per output, everything else in f32. Needs torch and transformers.

usage: e4m3.py MODEL [TEXTS [QUERIES]]    TEXTS of tools/demo/packages.tsv (1000), the first QUERIES (200) search them

Prints mean 1 - cosine to f32, the worst cosine, and the share of the ten nearest neighbours that stay."""
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

SITES = {"queries, keys, values": ("self.query", "self.key", "self.value", "attn.q", "attn.k", "attn.v"),
         "attention's output": ("attention.output.dense", "attn.o"), "intermediate": ("intermediate.dense",),
         "output": ("output.dense",)}
BATCH = 64


def rounded(x):
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
    return (x / scale).to(torch.float8_e4m3fn).float() * scale


def site_of(name):
    return next((site for site, ends in SITES.items() if name.endswith(ends)), None)


def vectors(model, tokenizer, texts):
    order, out = sorted(range(len(texts)), key=lambda i: len(texts[i])), [None] * len(texts)
    for at in range(0, len(texts), BATCH):
        which = order[at:at + BATCH]
        batch = tokenizer([texts[i] for i in which], padding=True, truncation=True, max_length=256, return_tensors="pt")
        mask = batch["attention_mask"][..., None].float()
        pooled = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
        for i, vector in zip(which, torch.nn.functional.normalize(pooled, dim=1).numpy()):
            out[i] = vector
    return np.stack(out)


def neighbours(found, queries):
    scores = found[:queries] @ found.T
    np.fill_diagonal(scores, -9)
    return [set(row) for row in np.argsort(-scores, axis=1)[:, :10]]


def main(folder, count="1000", queries="200"):
    lines = (pathlib.Path(__file__).parents[1] / "demo/packages.tsv").read_text().splitlines()[:int(count)]
    texts, tokenizer = [line.split("\t")[1] for line in lines], AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").float().eval()
    linear = [(site_of(name), m, m.weight.data) for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and site_of(name)]
    exact = vectors(model, tokenizer, texts)
    nearest = neighbours(exact, int(queries))
    for title, sites, weights, inputs in [("all", SITES, True, True), *((site, [site], True, True) for site in SITES),
                                          ("all, exact weights", SITES, False, True), ("all, exact activations", SITES, True, False)]:
        hooks = []
        for site, module, weight in linear:
            module.weight.data = rounded(weight) if weights and site in sites else weight
            if inputs and site in sites:
                hooks.append(module.register_forward_pre_hook(lambda _, given: (rounded(given[0]),)))
        found = vectors(model, tokenizer, texts)
        cosine = (found * exact).sum(1)
        kept = np.mean([len(a & b) / 10 for a, b in zip(neighbours(found, int(queries)), nearest)])
        print(f"{title:24} {1 - cosine.mean():.2e}  {cosine.min():.5f}  {kept:.4f}", flush=True)
        for hook in hooks:
            hook.remove()


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    with torch.no_grad():
        main(*sys.argv[1:])

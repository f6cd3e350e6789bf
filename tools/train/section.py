#!/usr/bin/env python3
"""Train the classifier in config/models/sluice-mini-en-section: the section of a Debian package
from its summary.

    python section.py all --data DATA

Data and environment are those of train.py; training takes two minutes of one core. The encoder is the
shipped one, to which the folder has a link. head.safetensors replaces some of its last layer and
has the head, and model.safetensors.index.json says which tensor comes from which file.

BERT's head reads the first token alone, but the shipped encoder was trained on the mean of all. So
the last layer's queries are zero here: attention then weighs all tokens alike, and gives the first
token their mean. The layers before that are not trained, so each text passes them only once.
"""
import argparse
import os
import re

import torch
import torch.nn.functional as F
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification

import model as net
from train import HERE, encoder, load_packages, split

BASE = os.path.join(HERE, "../../config/models/sluice-mini-en")
FOLDER = BASE + "-section"
TRAINED = re.compile(r"layer\.2\.(attention\..*(value|output)|.*LayerNorm|.*bias)|pooler|classifier")


def batches(tok, texts):
    """The chunks of the texts, each with its mask and a model's inputs."""
    tok.no_padding()
    tok.enable_truncation(net.MAX_TOKENS)
    for which, ids, lengths in net.chunks([row.ids for row in tok.encode_batch(texts)]):
        inside = torch.arange(ids.shape[1])[None] < lengths[:, None]
        yield (which, ids, lengths), inside, {"input_ids": ids, "attention_mask": inside.long()}


@torch.no_grad()
def before_last(model, tok, texts):
    """The input of the last layer: the first token and the mean of all, [2, texts, hidden]."""
    parts, out = [], []
    for part, inside, inputs in batches(tok, texts):
        with torch.autocast("cpu", torch.bfloat16):
            x = model(**inputs, output_hidden_states=True).hidden_states[-2].float()
        parts.append(part)
        out.append(torch.stack([x[:, 0], (x * inside[..., None]).sum(1) / part[2][:, None]], 1))
    return net.in_order(parts, out).transpose(0, 1)


def behind(model, first, mean):
    """The logits: the last layer, with the mean as its attention, and the head."""
    layer = model.bert.encoder.layer[-1]
    x = layer.attention.output(layer.attention.self.value(mean), first)
    x = layer.output(layer.intermediate(x), x)
    return model.classifier(model.dropout(torch.tanh(model.bert.pooler.dense(x))))


def train(args, packages, tok):
    labels = sorted({p.section for p in packages})
    model = AutoModelForSequenceClassification.from_pretrained(
        BASE, id2label=dict(enumerate(labels)), label2id={v: k for k, v in enumerate(labels)}, dtype=torch.float32)
    first, mean = before_last(model.eval(), tok, [p.summary for p in packages])
    right = torch.tensor([labels.index(p.section) for p in packages])
    learning = [p for name, p in model.named_parameters() if TRAINED.search(name)]
    optimizer = torch.optim.AdamW(learning, lr=args.rate)
    model.train()
    for epoch in range(args.epochs):
        optimizer.param_groups[0]["lr"] = args.rate * (1 - epoch / args.epochs)
        total = 0.0
        for rows in torch.randperm(len(packages)).split(256):
            loss = F.cross_entropy(behind(model, first[rows], mean[rows]), right[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1} of {args.epochs}: loss {total / len(packages):.3f}", flush=True)
    query = model.bert.encoder.layer[-1].attention.self.query
    torch.nn.init.zeros_(query.weight)
    torch.nn.init.zeros_(query.bias)
    return model


def export(model):
    """Write the tensors that differ from the shipped model."""
    state = {k.removeprefix("bert."): v.detach() for k, v in model.named_parameters()}
    with safe_open(os.path.join(BASE, "model.safetensors"), "pt") as file:
        names = list(file.keys())
        own = {k: v for k, v in state.items() if k not in names or not torch.equal(v.to(torch.float16), file.get_tensor(k))}
    net.export_beside(BASE, FOLDER, names, own, {"id2label": {str(k): v for k, v in model.config.id2label.items()}})


@torch.no_grad()
def measure(rest, test, tok):
    """Measure the exported files on held-out packages, compared with the most frequent section and
    with that of the summary nearest by the shipped model's cosine."""
    model = AutoModelForSequenceClassification.from_pretrained(FOLDER, dtype=torch.float32).eval()
    parts, out = [], []
    for part, _, inputs in batches(tok, [p.summary for p in test]):
        parts.append(part)
        out.append(model(**inputs).logits)
    best = [[model.config.id2label[i] for i in row] for row in net.in_order(parts, out).topk(3).indices.tolist()]
    base = net.load_exported(BASE)
    encode = encoder(lambda ids, lengths: net.forward(base, ids, lengths), tok)
    near = encode([p.summary for p in test]) @ encode([p.summary for p in rest]).T
    sections, right = [p.section for p in rest], [p.section for p in test]
    frequent = max(sorted(set(sections)), key=sections.count)
    for name, hits in (("first", [b[0] == r for b, r in zip(best, right)]),
                       ("within three", [r in b for b, r in zip(best, right)]),
                       ("nearest", [sections[j] == r for j, r in zip(near.argmax(1).tolist(), right)]),
                       ("most frequent", [r == frequent for r in right])):
        print(f"{name}: {sum(hits) / len(right):.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["evaluate", "all"])
    parser.add_argument("--data", required=True, help="folder that fetch.sh filled")
    parser.add_argument("--seed", type=int, default=20, help="as it was for train.py: it says what is held out")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(2)
    tok = Tokenizer.from_file(os.path.join(BASE, "tokenizer.json"))
    rest, test, _ = split(load_packages(args), args.seed)
    if args.what == "all":
        export(train(args, rest, tok))
    measure(rest, test, tok)


if __name__ == "__main__":
    main()

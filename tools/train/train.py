#!/usr/bin/env python3
"""Train the small English embedding model that ships in config/models/sluice-mini-en.

    sh fetch.sh DATA                             # apt lists and WordNet, into a separate folder
    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    OMP_WAIT_POLICY=PASSIVE VENV/bin/python train.py all --data DATA --work WORK --out FOLDER

Steps, each of which can be run alone: prepare (hold out, make pairs, train the WordPiece, count
tokens), train (contrastive, resumes from WORK/checkpoint.pt when killed), export, evaluate.
Everything is drawn from --seed: two runs on the same data take the same batches (sums of gradients
may differ in their last bits, as two workers add them). 2,400 steps take about 40 minutes on two
idle cores with AMX; --minutes N fits the schedule into N minutes where others share the machine.
"""
import argparse
import json
import math
import os
import pickle
import random
import re
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import evaluate
import model as net
import pairs
from corpus import read_packages, read_wordnet

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = ("desc", "query", "word")


def plain(text):
    return re.sub(r"[^a-z ]+", " ", text.lower())[:200]


def split(packages, seed, test=1000, dev=500):
    """Hold out whole source packages, one binary package of each for measuring, and drop from
    training all texts that have the same words as a held-out text."""
    sources = {}
    for p in packages:
        if len(p.summary.split()) > 2 and len(p.description.split()) > 10:
            sources.setdefault(p.source, []).append(p)
    rng = random.Random(seed)
    chosen, texts = [], set()
    for source in rng.sample(sorted(sources), len(sources)):
        p = rng.choice(sources[source])
        if len(chosen) < test + dev and plain(p.description) not in texts:
            chosen.append(p)
            texts.add(plain(p.description))
    held = {p.source for p in chosen}
    texts |= {plain(p.summary) for p in chosen}
    rest = [p for p in packages if p.source not in held
            and plain(p.description) not in texts and plain(p.summary) not in texts]
    return rest, chosen[:test], chosen[test:]


def load_packages(args):
    return read_packages(os.path.join(args.data, "lists"))


def tokenise(tok, texts):
    """All texts as one flat array of ids (with [CLS] and [SEP]) and the offsets into it."""
    tok.no_padding()
    tok.enable_truncation(net.MAX_TOKENS)
    flat, ends = [], [0]
    for at in range(0, len(texts), 20000):
        for row in tok.encode_batch_fast(texts[at: at + 20000]):
            flat.append(np.array(row.ids, np.uint16))
            ends.append(ends[-1] + len(row.ids))
    return np.concatenate(flat), np.array(ends)


def prepare(args):
    """Hold out, make the pairs, train the tokenizer, write WORK/data.pkl."""
    packages = load_packages(args)
    wordnet = read_wordnet(os.path.join(args.data, "wordnet/usr/share/wordnet"))
    rest, test, dev = split(packages, args.seed)
    print(f"{len(packages)} packages: {len(rest)} to train on, {len(test)} test, {len(dev)} dev")
    corpus = sorted({p.description for p in rest} | {p.title for p in rest}
                    | {s.gloss for s in wordnet.synsets.values()})
    tok = net.train_tokenizer(corpus, args.vocab, os.path.join(args.work, "tokenizer.json"))
    number, columns = {}, {f: [] for f in FAMILIES}
    keys = {}
    for family, left, right, key, section, weight in pairs.all_pairs(rest, wordnet, args.seed):
        if left and right and left != right:
            columns[family].append((number.setdefault(left, len(number)),
                                    number.setdefault(right, len(number)),
                                    keys.setdefault(key, len(keys)), section, weight))
    flat, ends = tokenise(tok, list(number))
    families = {}
    for family, rows in columns.items():
        left, right, key, section, weight = zip(*rows)
        families[family] = dict(left=np.array(left), right=np.array(right), key=np.array(key),
                                section=np.array(section), weight=np.array(weight))
        print(f"{family}: {len(rows)} pairs")
    words, _ = tokenise(tok, corpus)
    words[(words == 2) | (words == 3)] = 0
    data = dict(flat=flat, ends=ends, families=families, words=words)
    with open(os.path.join(args.work, "data.pkl"), "wb") as out:
        pickle.dump(data, out, protocol=4)


class Batches:
    """Draws batch number n: a family by its share, then half of the pairs from everywhere and
    half from one section, so that the negatives of a batch are near ones too."""

    def __init__(self, data, args):
        self.data, self.args, self.draws = data, args, {}
        for name, rows in data["families"].items():
            everywhere = np.arange(len(rows["left"]))
            groups = [np.flatnonzero(rows["section"] == s) for s in np.unique(rows["section"])]
            groups = [g for g in groups if len(g) > 2000]
            weights = [rows["weight"][g].sum() ** 0.5 for g in groups]
            self.draws[name] = everywhere, groups, np.array(weights) / np.sum(weights)

    def pick(self, rng, rows, among, count):
        odds = rows["weight"][among].cumsum()
        return among[np.searchsorted(odds, rng.random(count) * odds[-1])]

    def tokens(self, number, cap):
        flat, ends = self.data["flat"], self.data["ends"]
        row = flat[ends[number]: ends[number + 1]]
        if len(row) > cap:
            row = row[:cap].copy()
            row[-1] = 3
        return row

    def __getitem__(self, step):
        rng = np.random.default_rng([self.args.seed, step])
        name = FAMILIES[rng.choice(3, p=self.args.shares)]
        rows, (everywhere, groups, odds) = self.data["families"][name], self.draws[name]
        size = self.args.batch * (1 if name == "desc" else 2)
        near = groups[rng.choice(len(groups), p=odds)]
        take = np.concatenate([self.pick(rng, rows, everywhere, size // 2),
                               self.pick(rng, rows, near, size - size // 2)])
        cap = net.MAX_TOKENS if step % self.args.long_every == 0 else self.args.cap
        left, right, key = rows["left"][take], rows["right"][take], rows["key"][take]
        clash = ((left[:, None] == left) | (right[:, None] == right) | (key[:, None] == key)
                 | (left[:, None] == right))
        np.fill_diagonal(clash, False)
        return (name, [self.tokens(n, cap) for n in left], [self.tokens(n, cap) for n in right],
                torch.from_numpy(clash))


def contrast(left, right, clash, temperature):
    """InfoNCE both ways; pairs of one package, synset or text are not negatives of each other."""
    scores = (left @ right.T / temperature).masked_fill(clash, -1e4)
    target = torch.arange(len(left))
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2


def make_optimizer(model, args):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                              {"params": others, "weight_decay": 0.0}],
                             lr=args.lr, betas=(0.9, 0.98), foreach=True)


def done(step, seconds, args):
    """The finished share of the run: of its steps, or of its minutes if those run out first."""
    return max(step / args.steps, seconds / 60 / args.minutes if args.minutes else 0.0)


def rate(step, share, args):
    """Learning rate: a short warm-up, then a cosine down to almost nothing at the end."""
    warm = min(1.0, (step + 1) / args.warmup)
    return args.lr * warm * (0.01 + 0.99 * (1 + math.cos(math.pi * min(share, 1.0))) / 2)


def save(path, **what):
    torch.save(what, path + ".new")
    os.replace(path + ".new", path)


def encoder(run, tok):
    def encode(texts):
        tok.no_padding()
        tok.enable_truncation(net.MAX_TOKENS)
        rows = [row.ids for row in tok.encode_batch(texts)]
        with torch.no_grad():
            return net.encode_ids(run, rows).float()
    return encode


def begin(args, data):
    """The model and its optimizer: from the checkpoint if there is one, otherwise from the counts."""
    torch.manual_seed(args.seed)
    model = net.new_model(args).train()
    path = os.path.join(args.work, "checkpoint.pt")
    if os.path.exists(path):
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        optimizer = make_optimizer(model, args)
        optimizer.load_state_dict(kept["optimizer"])
        return model, optimizer, kept["step"], kept["seconds"]
    net.start_from_counts(model, data["words"])
    return model, make_optimizer(model, args), 0, 0.0


def train(args):
    with open(os.path.join(args.work, "data.pkl"), "rb") as file:
        data = pickle.load(file)
    tok = Tokenizer.from_file(os.path.join(args.work, "tokenizer.json"))
    _, _, dev = split(load_packages(args), args.seed)
    batches, path = Batches(data, args), os.path.join(args.work, "checkpoint.pt")
    model, optimizer, step, before = begin(args, data)
    workers = net.Workers(args.threads)
    start, first, losses = time.time(), step, {f: [] for f in FAMILIES}
    share = done(step, before, args)
    while share < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = rate(step, share, args)
        name, left, right, clash = batches[step]
        half = len(left)
        loss = workers.step(model, left + right, lambda both: contrast(
            both[:half], both[half:], clash, args.temperature))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses[name].append(loss)
        step += 1
        seconds = before + time.time() - start
        share = done(step, seconds, args)
        if step % 50 == 0:
            pace = (time.time() - start) / (step - first)
            means = {f: round(float(np.mean(v[-20:])), 3) for f, v in losses.items() if v}
            print(f"step {step} {means} {pace:.2f} s/step, {share:.1%} done", flush=True)
        if step % 100 == 0 or share >= 1.0:
            save(path, model=model.state_dict(), optimizer=optimizer.state_dict(), step=step,
                 seconds=seconds)
        if step % 200 == 0 or share >= 1.0:
            found = evaluate.held_out(encoder(lambda i, n: net.forward(model, i, n), tok), dev)
            print("dev", json.dumps(found["model"]), flush=True)
    print(f"trained {step} steps in {seconds / 60:.1f} minutes")


def export(args):
    model = net.new_model(args)
    model.load_state_dict(torch.load(os.path.join(args.work, "checkpoint.pt"))["model"])
    net.export(model, os.path.join(args.work, "tokenizer.json"), args.out)


def measure(args):
    """Measure the exported files, loaded the plain way in f32."""
    tok = Tokenizer.from_file(os.path.join(args.out, "tokenizer.json"))
    encode = encoder(net.reference(net.load_exported(args.out)), tok)
    packages = load_packages(args)
    _, test, dev = split(packages, args.seed)
    queries = evaluate.read_queries(os.path.join(HERE, "queries.tsv"))
    found = {"test": evaluate.held_out(encode, test), "dev": evaluate.held_out(encode, dev),
             "queries": evaluate.free_queries(encode, packages, queries, args.seed)}
    with open(os.path.join(args.work, "evaluation.json"), "w", encoding="utf-8") as out:
        json.dump(found, out, indent=1)
    for row in found["queries"]["title"]["each"]:
        print(*row)
    for view in found["queries"].values():
        del view["each"]
    print(json.dumps(found, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "train", "export", "evaluate", "all"])
    parser.add_argument("--data", required=True, help="folder that fetch.sh filled")
    parser.add_argument("--work", required=True, help="folder for data, checkpoint, results")
    parser.add_argument("--out", default=os.path.join(HERE, "../../config/models/sluice-mini-en"))
    for name, value in (("seed", 20), ("vocab", 8192), ("hidden", 192), ("layers", 3),
                        ("steps", 2400), ("batch", 512), ("cap", 64), ("long-every", 12),
                        ("warmup", 100), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--minutes", type=float, default=0,
                        help="end after so many minutes of training; 0: after --steps only")
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--shares", type=float, nargs=3, default=[0.75, 0.2, 0.05],
                        help="of the batches: descriptions, queries, words")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    steps = {"prepare": prepare, "train": train, "export": export, "evaluate": measure}
    for name, step in steps.items():
        if args.what in (name, "all"):
            torch.set_num_threads(1 if name == "train" else args.threads)
            step(args)


if __name__ == "__main__":
    main()

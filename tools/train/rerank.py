#!/usr/bin/env python3
"""Train the reranker in config/models/sluice-mini-en-rerank: how well a text answers a query.

    python rerank.py all --data DATA --work WORK

Data and environment are those of train.py. Training resumes from WORK/checkpoint.pt; --pause N ends it after N minutes,
and the same command resumes it.

The word and position vectors are the shipped model's, to which the folder has a link; two narrow layers are its own, in
head.safetensors. From the labels of pairs alone such a small model did not learn to look for a query's words in the
other text. So the first layer's heads start with weights that look for the same word in the other text (see start), and
during training that layer must also predict for each token whether the other text has it.
"""
import argparse
import math
import os
import pickle
import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

import evaluate
import model as net
import pairs
from corpus import read_wordnet
from train import HERE, encoder, load_packages, save, split

BASE = os.path.join(HERE, "../../config/models/sluice-mini-en")
FOLDER = BASE + "-rerank"
OWN = {"num_hidden_layers": 2, "intermediate_size": 192, "id2label": {"0": "relevant"}}
SHARED = ("embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight")
SEP = 3
FAMILIES = ("desc", "query", "query with description")
CANDIDATES = 20


def kinds_of(ids):
    """Token types: 0 up to the first [SEP], 1 after it."""
    ends = (ids == SEP).long()
    return (ends.cumsum(1) - ends).clamp(max=1)


def shared_words(ids, inside, kinds):
    """Which tokens are words, and which of them the other text of the pair has, too."""
    words = (ids > SEP + 1) & inside
    other = (ids[:, :, None] == ids[:, None]) & (kinds[:, :, None] != kinds[:, None]) & words[:, None]
    return words, other.any(2)


def new_model(base):
    return BertForSequenceClassification(BertConfig(**{**base.config.to_dict(), **OWN}))


@torch.no_grad()
def start(model, base, looking=4):
    """Makes the first layer's first heads compare tokens by a random projection of their vectors, preferably with the
    other text: query and key agree if the word is the same, and in one more number, the sign of their kind, if their
    texts differ."""
    embed, size = model.bert.embeddings, model.config.hidden_size // model.config.num_attention_heads
    embed.load_state_dict(base.embeddings.state_dict())
    kind = torch.randn(model.config.hidden_size)
    kind *= embed.word_embeddings.weight[5:].norm(dim=1).mean() / kind.norm() / 2
    embed.token_type_embeddings.weight.copy_(torch.stack([kind, -kind]))
    for layer in model.bert.encoder.layer:
        for part in (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value,
                     layer.attention.output.dense, layer.intermediate.dense, layer.output.dense):
            torch.nn.init.xavier_uniform_(part.weight)
    left, right = (embed.LayerNorm(embed.word_embeddings.weight[5:] + sign * kind) for sign in (1, -1))
    middle, apart = (left + right).mean(0) / 2, (left - right).mean(0)
    own = model.bert.encoder.layer[0].attention.self
    for head in range(looking):
        rows = torch.nn.init.orthogonal_(torch.empty(size, model.config.hidden_size))
        same = ((left - middle) @ rows.T).square().sum(1).mean()
        rows *= (8 * size ** 0.5 / same) ** 0.5
        rows[-1] = apart / apart.norm() * (4 * size ** 0.5) ** 0.5 / (apart.norm() / 2)
        for part, sign in ((own.query, -1), (own.key, 1)):
            at = slice(head * size, (head + 1) * size)
            part.weight[at] = rows
            part.weight[at][-1] *= sign
            part.bias[at] = -part.weight[at] @ middle


def logits(model, ids, inside, kinds):
    """The scores and the output of the first layer."""
    _, first, last = net.layers(model.bert, ids, inside, kinds)
    return model.classifier(torch.tanh(model.bert.pooler.dense(last[:, 0].float())))[:, 0], first


def prepare(args):
    """Write the training pairs by family as (query, text, key, weight) to WORK/pairs.pkl: those of train.py, and the
    made-up queries again with the package's title and description as the text."""
    rest, _, _ = split(load_packages(args), args.seed)
    wordnet = read_wordnet(os.path.join(args.data, "wordnet/usr/share/wordnet"))
    whole = {p.title: p.title + ". " + p.description for p in rest}
    rows = {f: [] for f in FAMILIES}
    for family, left, right, key, _, weight in pairs.all_pairs(rest, wordnet, args.seed):
        if family == "word" or not left or not right or left == right:
            continue
        rows[family].append((left, right, key, weight))
        if family == "query" and right in whole:
            rows["query with description"].append((left, whole[right], key, weight))
    with open(os.path.join(args.work, "pairs.pkl"), "wb") as out:
        pickle.dump((rows, [p.description for p in rest]), out)


class Blocks:
    """Draws block number n: pairs of one family, and for each query texts of other pairs, most of them near by the
    shipped model. A block is a list of batches, a batch a list of groups, a group the pairs of one query as token ids,
    the right one first."""

    def __init__(self, rows, base, tok, pool, args):
        self.rows, self.base, self.tok, self.pool, self.args = rows, base, tok, pool, args
        self.odds = {f: np.cumsum([row[3] for row in rows[f]]) for f in FAMILIES}

    def ids(self, texts, cap):
        self.tok.no_padding()
        self.tok.enable_truncation(cap)
        return [row.ids for row in self.tok.encode_batch_fast(texts)]

    @torch.no_grad()
    def vectors(self, rows):
        parts = list(net.chunks(rows))
        return net.in_order(parts, list(self.pool.map(lambda part: net.forward(self.base, *part[1:]), parts))).float()

    def __getitem__(self, number):
        rng, family = np.random.default_rng([self.args.seed, number]), FAMILIES[number % 3]
        odds = self.odds[family]
        take = [self.rows[family][i] for i in np.searchsorted(odds, rng.random(self.args.block) * odds[-1])]
        place = {}
        left, right, key = (torch.tensor([place.setdefault(row[i], len(place)) for row in take]) for i in range(3))
        lefts = self.ids([row[0] for row in take], 32)
        rights = self.ids([row[1] for row in take], 160 if number % 9 == 0 else 72)
        vectors = self.vectors(lefts + rights)
        near = vectors[:len(take)] @ vectors[len(take):].T
        clash = [key[:, None] == key, right[:, None] == right, left[:, None] == right, left[:, None] == left]
        near[torch.stack(clash).any(0)] = -2
        top, groups = near.topk(CANDIDATES, 1).indices.numpy(), []
        for i in range(len(take)):
            far = next(j for j in rng.integers(0, len(take), 100) if near[i, j] > -2)
            chosen = [i, *rng.choice(top[i], self.args.group - 2, replace=False), far]
            groups.append([lefts[i] + rights[j][1:] for j in chosen])
        order = sorted(range(len(groups)), key=lambda i: max(map(len, groups[i])))
        batches = [[groups[i] for i in order[at: at + self.args.batch]] for at in range(0, len(order), self.args.batch)]
        return [batches[i] for i in rng.permutation(len(batches))]


def losses(model, probe, rarity, groups):
    """For a part of a batch, summed over its groups: the loss of the right pairs' ranks, the loss of the tokens, and
    how many right pairs are first."""
    ids, inside, kinds = padded([row for group in groups for row in group])
    scores, first = logits(model, ids, inside, kinds)
    scores = scores.view(len(groups), -1)
    loss = F.cross_entropy(scores, torch.zeros(len(groups), dtype=torch.long), reduction="sum")
    words, shared = shared_words(ids, inside, kinds)
    weight = rarity[ids] * words
    told = F.binary_cross_entropy_with_logits(probe(first.float())[..., 0], shared.float(), weight, reduction="sum")
    return loss, told / weight.sum() * len(groups), (scores.argmax(1) == 0).sum()


def padded(rows):
    width = -(-max(map(len, rows)) // 16) * 16  # few different widths, because oneDNN keeps memory for each
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, ids > 0, kinds_of(ids)


def rarities(rows, size):
    """How rare each token is: the logarithm of the texts per text that has it."""
    counts = np.ones(size)
    for row in rows:
        counts[sorted(set(row))] += 1
    return torch.tensor(np.log(len(rows) / counts), dtype=torch.float32).clamp(min=0.1)


def train(args):
    """False when it paused before the last block."""
    with open(os.path.join(args.work, "pairs.pkl"), "rb") as file:
        rows, descriptions = pickle.load(file)
    tok, base = Tokenizer.from_file(os.path.join(BASE, "tokenizer.json")), net.load_exported(BASE)
    # Two workers of one thread are faster than two threads per operation, and sums of two do not depend on the order.
    pool = ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,))
    blocks, path = Blocks(rows, base, tok, pool, args), os.path.join(args.work, "checkpoint.pt")
    torch.manual_seed(args.seed)
    model = new_model(base)
    start(model, base)
    probe = torch.nn.Linear(model.config.hidden_size, 1)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.endswith(SHARED))
    learning = [p for p in model.parameters() if p.requires_grad] + list(probe.parameters())
    optimizer = torch.optim.AdamW(learning, lr=args.rate, betas=(0.9, 0.98), weight_decay=0.01)
    block, step, total = 0, 0, args.blocks * args.block // args.batch
    if os.path.exists(path):
        kept = torch.load(path)
        for part, state in zip((model, probe, optimizer), kept["states"]):
            part.load_state_dict(state)
        block, step = kept["block"], kept["step"]
    rarity, began = rarities(blocks.ids(descriptions[::10], net.MAX_TOKENS), model.config.vocab_size), time.time()
    while block < args.blocks and not (args.pause and time.time() - began > args.pause * 60):
        since, sums, batches = time.time(), np.zeros(3), blocks[block]
        mined = time.time() - since
        for groups in batches:
            share = step / total
            optimizer.param_groups[0]["lr"] = args.rate * min(1, (step + 1) / 50) * (0.505 + 0.495 * math.cos(math.pi * share))
            aside = max(0.1, 1 - 3 * share)

            def part(groups):
                loss, told, firsts = losses(model, probe, rarity, groups)
                ((loss + aside * told) / args.batch).backward()
                return loss.item(), told.item(), firsts.item()
            sums += np.sum(list(pool.map(part, (groups[::2], groups[1::2]))), 0)
            torch.nn.utils.clip_grad_norm_(learning, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
        block += 1
        print(f"block {block} of {args.blocks} ({FAMILIES[(block - 1) % 3]}): loss, tokens' loss, right first:",
              (sums / args.block).round(3), f"{time.time() - since:.0f} s, {mined:.0f} of them for the candidates", flush=True)
        save(path, states=[part.state_dict() for part in (model, probe, optimizer)], block=block, step=step)
    return block == args.blocks


def questions(args, rest, packages):
    """By kind: one query per package, the texts of all packages, and which text is right."""
    wordnet = read_wordnet(os.path.join(args.data, "wordnet/usr/share/wordnet"))
    rng, rarity = random.Random(args.seed), pairs.rarities(rest)
    asked = []
    for p in packages:
        found = [(query, weight) for query, right, weight in pairs.query_pairs(p, wordnet, rarity, rng) if right == p.title]
        asked.append(rng.choices([f[0] for f in found], [f[1] for f in found])[0] if found else p.name)
    wanted = [[i] for i in range(len(packages))]
    return {"summary, description": ([p.summary for p in packages], [p.description for p in packages], wanted),
            "made-up query, name and summary": (asked, [p.title for p in packages], wanted)}


@torch.no_grad()
def rerank(model, tok, queries, texts, found):
    """The logits of each query's pairs with the texts found for it, [queries, CANDIDATES]."""
    tok.no_padding()
    tok.enable_truncation(net.MAX_TOKENS)
    encoded = tok.encode_batch([(query, texts[j]) for query, row in zip(queries, found.tolist()) for j in row])
    parts, out = [], []
    for part in net.chunks([row.ids for row in encoded]):
        ids = part[1]
        parts.append(part)
        out.append(model(input_ids=ids, attention_mask=(ids > 0).long(), token_type_ids=kinds_of(ids)).logits[:, 0])
    return net.in_order(parts, out).view(found.shape)


def quality(scores, found, wanted):
    """Mean reciprocal rank and nDCG of the first ten with the found texts ordered by these scores."""
    order = found.gather(1, scores.argsort(dim=1, descending=True, stable=True))[:, :10].tolist()
    gains = 1 / np.log2(np.arange(2, 12))
    mrr, ndcg = [], []
    for row, right in zip(order, wanted):
        hits = np.array([j in right for j in row])
        mrr.append(1 / (1 + hits.argmax()) if hits.any() else 0)
        ndcg.append((hits * gains).sum() / gains[:len(right)].sum())
    return float(np.mean(mrr)), float(np.mean(ndcg))


def compare(name, model, tok, base, queries, texts, wanted):
    """Print how well the shipped model, TF-IDF and the reranker order the shipped model's best texts. Returns the
    logits and which texts are right, [queries, CANDIDATES]."""
    encode = encoder(net.reference(base), tok)
    cosines, found = (encode(queries) @ encode(texts).T).topk(CANDIDATES, 1)
    scores = rerank(model, tok, queries, texts, found)
    words = evaluate.tfidf(queries, texts).gather(1, found)
    inside = np.mean([bool(set(row) & set(right)) for row, right in zip(found.tolist(), wanted)])
    print(f"{name}: {len(queries)} queries, {len(texts)} texts, right one within {CANDIDATES}: {inside:.1%}")
    for how, by in (("first stage", cosines), ("TF-IDF", words), ("reranker", scores), ("both", scores + 20 * cosines),
                    ("chance", torch.rand(scores.shape))):
        print("  {:12} MRR@10 {:.3f} nDCG@10 {:.3f}".format(how, *quality(by, found, wanted)), flush=True)
    return scores, torch.tensor([[j in right for j in row] for row, right in zip(found.tolist(), wanted)])


def calibrate(model, scores, right):
    """Scale and shift the head so that the sigmoid is the share of right texts among such candidates."""
    scale, shift = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([scale, shift], max_iter=100)

    def miss():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(scores * scale + shift, right.float())
        loss.backward()
        return loss
    optimizer.step(miss)
    with torch.no_grad():
        model.classifier.weight *= scale
        model.classifier.bias.mul_(scale).add_(shift)
    print(f"scale {scale.item():.3f}, shift {shift.item():.3f}")


def export(args):
    """Calibrate on Dev packages and write the folder."""
    tok, base = Tokenizer.from_file(os.path.join(BASE, "tokenizer.json")), net.load_exported(BASE)
    model = new_model(base).eval()
    model.load_state_dict(torch.load(os.path.join(args.work, "checkpoint.pt"))["states"][0])
    rest, _, dev = split(load_packages(args), args.seed)
    told = [compare(name, model, tok, base, queries[:150], texts, wanted[:150])
            for name, (queries, texts, wanted) in questions(args, rest, dev).items()]
    calibrate(model, *map(torch.cat, zip(*told)))
    state = {k.removeprefix("bert."): v.detach() for k, v in model.named_parameters()}
    net.export_beside(BASE, FOLDER, SHARED, {k: state[k] for k in sorted(state) if k not in SHARED}, OWN)


def measure(args):
    """Measure the exported files, in f32, on held-out packages and on the hand-written queries of evaluate.py."""
    torch.manual_seed(args.seed)
    tok, base = Tokenizer.from_file(os.path.join(BASE, "tokenizer.json")), net.load_exported(BASE)
    model = AutoModelForSequenceClassification.from_pretrained(FOLDER, dtype=torch.float32).eval()
    packages = load_packages(args)
    rest, test, _ = split(packages, args.seed)
    asked = questions(args, rest, test)
    for view, free in evaluate.free_pool(packages, evaluate.read_queries(os.path.join(HERE, "queries.tsv")), args.seed).items():
        asked["hand-written query, " + view] = free
    for name, one in asked.items():
        compare(name, model, tok, base, *one)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "train", "export", "evaluate", "all"])
    parser.add_argument("--data", required=True, help="folder that fetch.sh filled")
    parser.add_argument("--work", required=True, help="folder for the checkpoint")
    parser.add_argument("--seed", type=int, default=20, help="as it was for train.py: it says what is held out")
    parser.add_argument("--blocks", type=int, default=18)
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--pause", type=float, default=0)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    for name, step in (("prepare", prepare), ("train", train), ("export", export), ("evaluate", measure)):
        if args.what in (name, "all"):
            torch.set_num_threads(1 if name == "train" else 2)
            if step(args) is False:
                break


if __name__ == "__main__":
    main()

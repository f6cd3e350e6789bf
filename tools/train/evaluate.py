"""Measure the model, and TF-IDF for comparison, on held-out pairs and on hand-written queries."""
import math
import random

import torch

from pairs import words_of


def tfidf(left, right):
    """Cosine of TF-IDF vectors (1 + log tf, idf of the right-hand texts), left x right."""
    counts, index = {}, {}
    for text in right:
        for word in set(words_of(text)):
            counts[word] = counts.get(word, 0) + 1
            index.setdefault(word, len(index))
    idf = {w: math.log((1 + len(right)) / (1 + n)) + 1 for w, n in counts.items()}

    def matrix(texts):
        out = torch.zeros(len(texts), len(index))
        for i, text in enumerate(texts):
            words = words_of(text)
            for word in set(words) & idf.keys():
                out[i, index[word]] = (1 + math.log(words.count(word))) * idf[word]
        return torch.nn.functional.normalize(out, dim=1)
    return matrix(left) @ matrix(right).T


def ranks(scores, wanted):
    """Rank (from 1) of the best wanted column of each row; ties count half."""
    out = []
    for row, columns in zip(scores, wanted):
        best = row[columns].max()
        above, level = (row > best).sum().item(), (row == best).sum().item() - 1
        out.append(1 + above + max(0, level - len(columns) + 1) / 2)
    return torch.tensor(out)


def summarise(found):
    return {"first": (found < 1.5).float().mean().item(), "ten": (found < 10.5).float().mean().item(),
            "mrr": (1 / found).mean().item()}


def held_out(encode, packages):
    """Does the summary find its own description among all of them?"""
    left, right = [p.summary for p in packages], [p.description for p in packages]
    wanted = [[i] for i in range(len(packages))]
    out = {"model": summarise(ranks(encode(left) @ encode(right).T, wanted))}
    out["tfidf"] = summarise(ranks(tfidf(left, right), wanted))
    return out


def read_queries(path):
    with open(path, encoding="utf-8") as lines:
        rows = [x.rstrip("\n").split("\t") for x in lines if x.strip() and x[0] != "#"]
    return [(query, names.split(",")) for query, names in rows]


def free_pool(packages, queries, seed, size=5000):
    """Hand-written queries and a pool of packages: all right ones, the rest drawn at random. Returns two views: {name:
    (queries, texts, indices of the right ones)}."""
    by_name = {p.name: p for p in packages}
    right = sorted({n for _, names in queries for n in names if n in by_name})
    others = [p.name for p in packages if p.name not in set(right)]
    pool = right + random.Random(seed).sample(others, size - len(right))
    place = {name: i for i, name in enumerate(pool)}
    wanted = [[place[n] for n in names if n in place] for _, names in queries]
    texts = [q for q, _ in queries]
    views = {"title": [by_name[n].title for n in pool],
             "title and description": [by_name[n].title + ". " + by_name[n].description for n in pool]}
    return {view: (texts, docs, wanted) for view, docs in views.items()}


def free_queries(encode, packages, queries, seed):
    """The ranks of the right packages for each hand-written query."""
    out = {}
    for view, (texts, docs, wanted) in free_pool(packages, queries, seed).items():
        scores = encode(texts) @ encode(docs).T
        found = ranks(scores, wanted)
        out[view] = {"model": summarise(found), "tfidf": summarise(ranks(tfidf(texts, docs), wanted))}
        out[view]["each"] = [(q, r.item(), docs[s.argmax()].partition(":")[0]) for q, r, s in zip(texts, found, scores)]
    return out

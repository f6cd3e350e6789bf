"""How well vectors find texts: 2,000 questions and their answers, which are the docstrings of Python's library. A question
is a docstring's first paragraph, its answer the beginning of the rest.

    retrieval.py VECTORS REFERENCE DIM      compares two files of f32, and prints JSON"""

import ast
import functools
import json
import pathlib
import sys
import sysconfig

import numpy as np

TEXTS, ANSWER_BYTES, BEST = 2000, 300, 10
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "lib2to3", "distutils", "ensurepip", "turtledemo", "site-packages", "dist-packages",
            "pydoc_data"}  # most of them are packages of their own on Debian


@functools.cache
def pairs():
    """Returns TEXTS pairs of a question and its answer."""
    root, found, answers = pathlib.Path(sysconfig.get_path("stdlib")), {}, set()
    for path in sorted(root.rglob("*.py")):
        if LEFT_OUT & set(path.relative_to(root).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
            question, _, answer = (text or "").partition("\n\n")
            question, answer = " ".join(question.split()), " ".join(answer.split())[:ANSWER_BYTES]
            if 10 <= len(question) <= 200 and len(answer) >= 20 and question not in found and answer not in answers:
                found[question] = answer
                answers.add(answer)
    if len(found) < TEXTS:
        raise SystemExit(f"retrieval.py: only {len(found)} docstrings below {root}")
    return list(found.items())[:TEXTS]


def texts():
    """The questions, and after them the answers."""
    return [question for question, _ in pairs()] + [answer for _, answer in pairs()]


def best(vectors):
    """Returns the answers with the highest scores for each question, in their order [TEXTS, BEST]."""
    return np.argsort(-(vectors[:TEXTS] @ vectors[TEXTS:].T), axis=1, kind="stable")[:, :BEST]


def reciprocal_rank(ranked):
    """The mean of 1/rank of the right answers, 0 for those that are not among the best."""
    return float(((ranked == np.arange(TEXTS)[:, None]) / np.arange(1, BEST + 1)).sum(1).mean())


def compare(vectors, reference):
    """Returns what the vectors of `texts` lose beside a reference: 1-cosine, best answers that are the same, and MRR."""
    vectors, reference = (rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True) for rows in (vectors, reference))
    lost, ours, theirs = 1 - (vectors * reference).sum(1), best(vectors), best(reference)
    same = [len(set(a) & set(b)) / BEST for a, b in zip(ours, theirs)]
    return {"mean_lost": float(lost.mean()), "worst_lost": float(lost.max()), "overlap": float(np.mean(same)),
            "rank": reciprocal_rank(ours), "rank_reference": reciprocal_rank(theirs)}


if __name__ == "__main__":
    print(json.dumps(compare(*(np.fromfile(path, np.float32).reshape(-1, int(sys.argv[3])) for path in sys.argv[1:3]))))

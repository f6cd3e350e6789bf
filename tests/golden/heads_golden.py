#!/usr/bin/env python3
"""Compares `sluice classify` and `sluice rerank` with transformers and sentence-transformers, on tiny seeded checkpoints.

usage: heads_golden.py SLUICE WORK             compares with heads.json
       heads_golden.py --make WORK             writes heads.json; with transformers, sentence-transformers and torch
The bars: labels in the same order with scores and logits within 1e-5 in f32 and 0.06 in bf16, as the logits reach 6; scores the same bits alone and
among others. The scores are those of transformers' pipeline, and of CrossEncoder.predict, which also cuts the pairs.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from model import WORDS, write_classifier  # noqa: E402

REFERENCE = pathlib.Path(__file__).with_name("heads.json")
BOUNDS = {"f32": 1e-5, "bf16": 0.06}
TEXTS = ["", "hello world", "the green music library", " ".join(WORDS[:9]), " ".join(WORDS[20:90]), "some text, with signs!",
         "blue [PAD] some [PAD]"]
# Pairs of each class of length: short, long and cut on either side or both, by even and odd numbers.
QUERIES = ["red", " ".join(WORDS[40:52]), " ".join(WORDS[:40])]
DOCUMENTS = ["", "blue", "a stream of work in the queue", " ".join(WORDS[10:29]), " ".join(WORDS[60:75]), " ".join(WORDS[:40]),
             " ".join(WORDS[50:120]), "[SEP] hello",
             "[PAD] hello [PAD]"]
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"

MODELS = {
    "bert-classes": dict(labels=["no", "maybe \"so\"", "ja, größer"], task="classify"),
    "bert-several": dict(labels=["a", "b", "c", "d"], task="classify", config={"problem_type": "multi_label_classification"}),
    "bert-one": dict(labels=["LABEL_0"], task="classify"),
    "bert-regression": dict(labels=["LABEL_0"], task="classify", config={"problem_type": "regression"}),
    "bert-reranker": dict(labels=["LABEL_0"], task="rerank"),
    "bert-identity": dict(labels=["LABEL_0"], task="rerank", config={"sentence_transformers": {"activation_fn": IDENTITY,
                                                                                             "version": "4.1.0"}}),
    # Its class gives no token types.
    "bert-untyped": dict(labels=["LABEL_0"], task="rerank", tokenizer_class="PreTrainedTokenizerFast"),
    "bert-old": dict(labels=["LABEL_0"], task="rerank", config={"sbert_ce_default_activation_function": IDENTITY}),
    # As sentence-transformers 6 saves it; its own file counts first.
    "bert-modules": dict(labels=["LABEL_0"], task="rerank", modules=SIGMOID,
                         config={"sentence_transformers": {"activation_fn": IDENTITY}}),
    "distilbert-classes": dict(family="distilbert", labels=["x", "y", "z"], task="classify"),
    # Two token types in its file, of which its pairs use one; the positions begin at 1.
    "roberta-classes": dict(family="roberta", labels=["x", "y", "z"], task="classify"),
    "roberta-reranker": dict(family="roberta", labels=["LABEL_0"], task="rerank"),
    "distilbert-reranker": dict(family="distilbert", labels=["LABEL_0"], task="rerank"),
    # No token types, and a bias on its scores by distance; the positions begin at 2.
    "mpnet-classes": dict(family="mpnet", labels=["x", "y", "z"], task="classify"),
    "mpnet-reranker": dict(family="mpnet", labels=["LABEL_0"], task="rerank"),
    # A norm in the head, with the model's eps and not torch's.
    "modernbert-classes": dict(family="modernbert", labels=["x", "y", "z"], task="classify", config={"classifier_bias": True}),
    "modernbert-reranker": dict(family="modernbert", labels=["LABEL_0"], task="rerank", config={"classifier_pooling": "mean"}),
    # One product without a bias, on the last token.
    "qwen3-classes": dict(family="qwen3", labels=["x", "y", "z"], task="classify"),
    "qwen3-reranker": dict(family="qwen3", labels=["LABEL_0"], task="rerank", config={"sentence_transformers": {"activation_fn": IDENTITY}}),
    # [SEP], with which texts end, is padding, which the head passes over.
    "qwen3-padding": dict(family="qwen3", labels=["x", "y", "z"], task="classify", config={"pad_token_id": 3}),
    # Rotary positions, and two token types in a pair; transformers 5's spelling.
    "gte-classes": dict(family="gte", labels=["x", "y", "z"], task="classify"),
    "gte-reranker": dict(family="gte", labels=["LABEL_0"], task="rerank"),
}


def write(work, name):
    m = MODELS[name]
    folder = pathlib.Path(work) / "heads" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return write_classifier(str(folder), seed=list(MODELS).index(name) + 1, family=m.get("family", "bert"), labels=m["labels"],
                            config=m.get("config"), modules=m.get("modules"), tokenizer_class=m.get("tokenizer_class"))


# --- the references ------------------------------------------------------------------------------------------------

def classify_reference(folder):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    run = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None, device="cpu")
    rows = []
    for text in TEXTS:
        with torch.no_grad():
            logits = model(**tokenizer(text, truncation=True, return_tensors="pt")).logits[0]
        rows.append({"scores": {row["label"]: round(row["score"], 7) for row in run([text], truncation=True)[0]},
                     "logits": [round(float(x), 6) for x in logits]})
    return rows


def rerank_reference(folder):
    import torch
    from sentence_transformers import CrossEncoder
    model, rows = CrossEncoder(folder, device="cpu"), []
    for query in QUERIES:
        pairs = [(query, document) for document in DOCUMENTS]
        rows.append({"scores": [round(float(x), 7) for x in model.predict(pairs)],
                     "logits": [round(float(x), 6) for x in model.predict(pairs, activation_fn=torch.nn.Identity())]})
    return rows


def make(work):
    reference = {}
    for name, m in MODELS.items():
        reference[name] = (classify_reference if m["task"] == "classify" else rerank_reference)(write(work, name))
    REFERENCE.write_text(json.dumps(reference, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


# --- ours ----------------------------------------------------------------------------------------------------------

def run(sluice, task, folder, precision, texts, *more):
    done = subprocess.run([sluice, task, "--model", folder, "--precision", precision, "--threads", "2", *more],
                          input="".join(text + "\n" for text in texts), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(texts), f"{folder}: {len(lines)} lines for {len(texts)} texts"
    return lines


def near(where, ours, theirs, bound):
    assert len(ours) == len(theirs), f"{where}: {ours} {theirs}"
    off = max(abs(a - b) for a, b in zip(ours, theirs))
    assert off <= bound, f"{where}: {ours} is off by {off}: {theirs}"
    return off


def compare_classes(sluice, name, folder, precision, reference):
    labels, bound, worst = MODELS[name]["labels"], BOUNDS[precision], 0
    for field, more in (("scores", []), ("logits", ["--raw"])):
        lines = run(sluice, "classify", folder, precision, TEXTS, *more)
        for i, (line, row) in enumerate(zip(lines, reference)):
            theirs = row["scores"] if field == "scores" else dict(zip(labels, row["logits"]))
            ours = {entry["label"]: entry["score"] for entry in line}
            assert [entry["score"] for entry in line] == sorted(ours.values(), reverse=True), f"{name}: not best first: {line}"
            assert ours.keys() == theirs.keys(), f"{name}: {line}"
            worst = max(worst, near(f"{name} {precision} {field} {i}", [ours[x] for x in labels],
                                    [theirs[x] for x in labels], bound))
        assert run(sluice, "classify", folder, precision, TEXTS[3:4], *more) == lines[3:4], f"{name}: others matter"
    return worst


def compare_pairs(sluice, name, folder, precision, reference):
    bound, worst = BOUNDS[precision], 0
    for query, row in zip(QUERIES, reference):
        for field, more in (("scores", []), ("logits", ["--raw"])):
            lines = run(sluice, "rerank", folder, precision, DOCUMENTS, "--query", query, *more)
            assert [line["index"] for line in lines] == list(range(len(DOCUMENTS))), f"{name}: {lines}"
            ours = [line["score"] for line in lines]
            worst = max(worst, near(f"{name} {precision} {field} of {query[:20]!r}", ours, row[field], bound))
        alone = run(sluice, "rerank", folder, precision, DOCUMENTS[5:6], "--query", query, *more)
        assert alone[0]["score"] == ours[5], f"{name}: {alone} among others {ours[5]}"
    return worst


def as_alibaba_writes(folder):
    """A gte of transformers 5 as its authors' files have it (gte-multilingual-reranker-base): `new`, with a map of code."""
    config, weights = pathlib.Path(folder, "config.json"), pathlib.Path(folder, "model.safetensors")
    fields = json.loads(config.read_text())
    fields["rope_theta"] = fields.pop("rope_parameters")["rope_theta"]
    fields.update(model_type="new", architectures=["NewForSequenceClassification"], classifier_dropout=0.0, rope_scaling=None,
                  layer_norm_type="layer_norm", position_embedding_type="rope", pack_qkv=True, unpad_inputs=False,
                  logn_attention_clip1=False, logn_attention_scale=False, use_memory_efficient_attention=False,
                  auto_map={"AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
                            "AutoModelForSequenceClassification": "Alibaba-NLP/new-impl--modeling.NewForSequenceClassification"})
    config.write_text(json.dumps(fields))
    weights.write_bytes(weights.read_bytes().replace(b'"gte.', b'"new.'))


def compare(sluice, work):
    reference = json.loads(REFERENCE.read_text(encoding="utf-8"))
    assert reference.keys() == MODELS.keys(), "heads.json is of other models: --make"
    for name, m in MODELS.items():
        folder = write(work, name)
        for precision in BOUNDS:
            worst = (compare_classes if m["task"] == "classify" else compare_pairs)(sluice, name, folder, precision,
                                                                                    reference[name])
            print(f"{name} {precision}: off by at most {worst:.2g}")
    folder = write(work, "gte-reranker")
    as_alibaba_writes(folder)
    compare_pairs(sluice, "new-reranker", folder, "f32", reference["gte-reranker"])


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(sys.argv[2])
    else:
        compare(sys.argv[1], sys.argv[2])

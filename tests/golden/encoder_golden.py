#!/usr/bin/env python3
"""Compares Sluice's vectors with an independent forward pass in f64, on seeded random checkpoints of real shapes.

usage: encoder_golden.py all|few WORK ISA,... ENCODE_IDS...
ENCODE_IDS is the command of the driver of tests/golden, WORK a folder for checkpoints. Short texts run on each ISA that the
machine has, with `all` all texts on the best one, and the reference beside what transformers says; `few`, for an emulator, takes
the shortest texts of models of at most four layers. The bars: f32 cosine >= 0.9999999 and no number off by more than 1e-6 on normalised
vectors, or what a model says; bf16 cosine >= 0.9999; int8 cosine >= 0.998; the same bits alone and packed with all others.
"""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from model import SPECIALS, tokenizer_json  # noqa: E402

# Lengths around the sizes of vectors, tiles, row buckets and passes.
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 23, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 97, 127, 128, 129, 191, 255,
           256, 257, 383, 512]
SOME = [1, 3, 6, 10, 16, 18, 32, 50, 64, 66, 130, 193, 300]
FEW = [1, 2, 17, 33, 129, 511]

MODELS = {
    "minilm": dict(hidden=384, layers=6, heads=12, inner=1536, pooling="mean", dtype="F32", lengths=LENGTHS, seed=11),
    "bge-small": dict(hidden=384, layers=12, heads=12, inner=1536, pooling="cls", dtype="F16", lengths=SOME, seed=12),
    "bf16-file": dict(hidden=384, layers=3, heads=6, inner=1536, pooling="mean", dtype="BF16", lengths=FEW, seed=13,
                      unigram=True),  # such a tokenizer beside BERT, as multilingual-e5-small has it
    # A few hidden units are outliers, as after training: hard for whole numbers with one scale for a row. Its attention
    # is so sharp that it enlarges any rounding: plain f32 products are off by 1.3e-5.
    "outliers": dict(hidden=384, layers=6, heads=12, inner=1536, pooling="mean", dtype="F32", lengths=SOME, seed=14,
                     outliers=[7, 130, 301], precisions=["f32"], off=1e-4),
    # known: the first numbers of the longest text's vector, by the family's class of transformers 5.23, in f64, on this checkpoint.
    "distilbert": dict(family="distilbert", hidden=768, layers=2, heads=12, inner=3072, pooling="mean", dtype="F32",
                       lengths=FEW, seed=15, known=[-0.00587329, -0.03811048, 0.02199865, -0.04144063]),
    "xlm-roberta": dict(family="xlm-roberta", hidden=256, layers=3, heads=4, inner=768, pooling="cls", dtype="F16",
                        lengths=SOME + [512], seed=16, known=[-0.05414225, -0.12957502, -0.02426493, 0.05111333]),
    "mpnet": dict(family="mpnet", hidden=384, layers=4, heads=12, inner=1024, pooling="mean", dtype="F32",
                  lengths=SOME + [512], seed=17, known=[0.02495513, 0.06635434, -0.02840087, -0.09631764]),
    # Windows, passes of one long text, and both spellings of the configuration.
    "modernbert": dict(family="modernbert", hidden=384, layers=5, heads=6, inner=576, pooling="mean", dtype="F32",
                       lengths=SOME + [64, 65, 66, 77, 140, 700, 1000], positions=1024, seed=18, local=[1, 2, 4],
                       known=[0.04649665, 0.08671228, 0.06626265, 0.06002242]),
    "modernbert-5": dict(family="modernbert", spelling5=True, hidden=192, layers=4, heads=4, inner=272, pooling="cls",
                         dtype="BF16", lengths=SOME, seed=19, local=[0, 2],
                         known=[0.12322385, -0.04724282, 0.0507363, 0.00928511]),
    # As transformers 5 writes them, and as their authors did.
    "nomic": dict(family="nomic", spelling5=True, hidden=256, layers=3, heads=4, inner=768, pooling="mean", dtype="F32",
                  lengths=SOME + [512], seed=20, known=[0.11853071, 0.07426856, -0.06324487, -0.0501898]),
    "nomic-gpt2": dict(family="nomic", hidden=128, layers=2, heads=4, inner=256, pooling="mean", dtype="F16", lengths=FEW,
                       seed=21),
    "gte": dict(family="gte", spelling5=True, hidden=256, layers=3, heads=4, inner=768, pooling="cls", dtype="F32",
                lengths=SOME + [512], seed=22, known=[-0.01795053, -0.00941072, -0.02131366, -0.120215]),
    "new": dict(family="gte", hidden=128, layers=2, heads=4, inner=256, pooling="cls", dtype="F16", lengths=FEW, seed=23,
                prefix="new.", stretched=8),
    "new-split": dict(family="gte", hidden=128, layers=1, heads=4, inner=256, pooling="cls", dtype="F32", lengths=FEW,
                      seed=24, types=0, split=True),
    # Heads that together are wider than the model, one of keys for two of queries; then narrower, one for all, as
    # transformers 5 saves a ForCausalLM.
    "qwen3": dict(family="qwen3", hidden=128, layers=2, heads=4, key_heads=2, width=64, inner=384, pooling="lasttoken",
                  dtype="F32", lengths=SOME + [512], seed=25, prefix="", precisions=["f32", "bf16"],
                  known=[-0.07592797, -0.20243518, 0.08278607, -0.01977704]),
    "qwen3-5": dict(family="qwen3", spelling5=True, hidden=192, layers=2, heads=4, key_heads=1, width=32, inner=272,
                    pooling="lasttoken", dtype="BF16", lengths=SOME, seed=26, precisions=["f32", "bf16"],
                    known=[0.1143934, 0.0538318, 0.0427294, -0.09205441]),
    # Windows of 24 on either side, scores divided by the root of another number than the width of heads; as transformers 4
    # saves a ForCausalLM, and as 5 does the model.
    "gemma3": dict(family="gemma3", hidden=128, layers=4, heads=4, key_heads=2, width=48, scalar=40, inner=272, pooling="mean",
                   dtype="F32", lengths=SOME + [24, 25, 26, 49, 512], seed=27, local=[0, 1, 3], precisions=["f32", "bf16"],
                   known=[-0.12464922, -0.13604077, -0.08671882, 0.01164806]),
    "gemma3-5": dict(family="gemma3", spelling5=True, hidden=96, layers=3, heads=3, key_heads=1, width=64, scalar=64, inner=128,
                     pooling="mean", dtype="BF16", lengths=SOME, seed=28, local=[1], prefix="", precisions=["f32", "bf16"],
                     known=[0.13080182, 0.16538931, -0.15113452, -0.05264469]),
}
SHORT = {"all": 65, "few": 5}  # tokens of a text that every instruction set gets
EMULATED, EMULATED_SHORT = "amx_emulated", 140  # bf16 alone
SLOW, SLOW_LAYERS = ("generic", EMULATED), 5  # these sets are slow: models of at most 5 layers, which have every part
LEAST = {"bf16": 0.9999, "int8": 0.998}  # cosine
VOCABULARY, POSITIONS = 30522, 512  # tokens of BERT's size, unless a model says; positions of a text
for model in MODELS.values():
    model["vocabulary"] = 2000  # larger ones take most of the time to write and to open, and add nothing

# The differences of a family's files from BERT's: `spelling` of BERT's names, `prefix`, `types` of tokens, positions that
# no token has (`offset`), fields of config.json, and tensors of heads that nothing reads.
FAMILIES = {
    "bert": dict(spelling={}, prefix="", types=2, offset=0, eps=1e-12, heads=[], config={"architectures": ["BertModel"]}),
    "distilbert": dict(
        spelling={"encoder.": "transformer.", "attention.self.query": "attention.q_lin",
                  "attention.self.key": "attention.k_lin", "attention.self.value": "attention.v_lin",
                  "attention.output.dense": "attention.out_lin", "attention.output.LayerNorm": "sa_layer_norm",
                  "intermediate.dense": "ffn.lin1", "output.dense": "ffn.lin2", "output.LayerNorm": "output_layer_norm"},
        prefix="distilbert.", types=0, offset=0, eps=1e-12, heads=[], config={"architectures": ["DistilBertModel"]}),
    "xlm-roberta": dict(
        spelling={}, prefix="roberta.", types=1, offset=2, eps=1e-5,
        heads=["lm_head.bias", "roberta.pooler.dense.bias", "roberta.embeddings.position_ids", "classifier.dense.bias"],
        config={"architectures": ["XLMRobertaForMaskedLM"], "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
                "output_past": True, "position_embedding_type": "absolute", "torch_dtype": "float16", "use_cache": True}),
    "mpnet": dict(
        spelling={"attention.self.query": "attention.attn.q", "attention.self.key": "attention.attn.k",
                  "attention.self.value": "attention.attn.v", "attention.output.dense": "attention.attn.o",
                  "attention.output.LayerNorm": "attention.LayerNorm"},
        prefix="mpnet.", types=0, offset=2, eps=1e-5, heads=["lm_head.bias", "mpnet.pooler.dense.bias"],
        config={"architectures": ["MPNetModel"], "pad_token_id": 1, "relative_attention_num_buckets": 32,
                "dtype": "float32"}),
    "modernbert": dict(
        spelling={"embeddings.word_embeddings": "embeddings.tok_embeddings", "embeddings.LayerNorm": "embeddings.norm",
                  "encoder.layer.": "layers.", "attention.self.qkv": "attn.Wqkv", "attention.output.dense": "attn.Wo",
                  "attention.output.LayerNorm": "mlp_norm", "intermediate.up": "mlp.Wi", "output.dense": "mlp.Wo"},
        prefix="model.", types=0, offset=0, eps=1e-5, heads=["head.dense.weight", "head.norm.weight", "decoder.bias"],
        pre_norm="attn_norm", final="final_norm.", rotary=[(160000, 1), (10000, 1)], window=64,
        bare=("LayerNorm", "attention", "intermediate", "output"),
        packed={"attention.self.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
                "intermediate.up": ("intermediate.dense", "up.dense")},
        config={"architectures": ["ModernBertForMaskedLM"], "norm_eps": 1e-5, "layer_norm_eps": 1e-5, "norm_bias": False,
                "attention_bias": False, "mlp_bias": False, "classifier_pooling": "cls", "decoder_bias": True,
                "hidden_activation": "gelu", "local_attention": 128, "position_embedding_type": "absolute"}),
    "nomic": dict(
        spelling={"embeddings.LayerNorm": "emb_ln", "encoder.layer.": "encoder.layers.",
                  "attention.output.LayerNorm": "norm1", "attention.self.qkv": "attn.Wqkv",
                  "attention.output.dense": "attn.out_proj", "intermediate.dense": "mlp.fc12", "up.dense": "mlp.fc11",
                  "output.dense": "mlp.fc2", "output.LayerNorm": "norm2"},
        prefix="", types=2, offset=0, eps=1e-12, heads=["cls.predictions.decoder.bias"], rotary=[(1000, 1)], silu=True,
        bare=("attention", "intermediate", "output"),
        packed={"attention.self.qkv": ("attention.self.query", "attention.self.key", "attention.self.value")},
        config={"architectures": ["NomicBertModel"]}),
    "gte": dict(
        spelling={"attention.self.qkv": "attention.qkv_proj", "attention.self.query": "attention.q_proj",
                  "attention.self.key": "attention.k_proj", "attention.self.value": "attention.v_proj",
                  "attention.output.LayerNorm": "attn_ln", "attention.output.dense": "attention.o_proj",
                  "intermediate.up": "mlp.up_gate_proj", "output.dense": "mlp.down_proj", "output.LayerNorm": "mlp_ln"},
        prefix="", types=1, offset=0, eps=1e-12, heads=["lm_head.decoder.bias", "classifier.bias"], rotary=[(160000, 1)],
        bare=("intermediate",),
        packed={"attention.self.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
                "intermediate.up": ("up.dense", "intermediate.dense")},
        config={}),
    "qwen3": dict(
        spelling={"embeddings.word_embeddings": "embed_tokens", "encoder.layer.": "layers.",
                  "attention.self.query": "self_attn.q_proj", "attention.self.key": "self_attn.k_proj",
                  "attention.self.value": "self_attn.v_proj", "attention.query.LayerNorm": "self_attn.q_norm",
                  "attention.key.LayerNorm": "self_attn.k_norm", "attention.output.dense": "self_attn.o_proj",
                  "attention.output.LayerNorm": "post_attention_layernorm", "intermediate.dense": "mlp.gate_proj",
                  "up.dense": "mlp.up_proj", "output.dense": "mlp.down_proj"},
        prefix="model.", types=0, offset=0, eps=1e-6, heads=["lm_head.weight"], rotary=[(1000000, 1)], silu=True, rms=True,
        pre_norm="input_layernorm", final="norm.", first_norm=True,
        bare=("LayerNorm", "attention", "intermediate", "output"), config={}),
}
FAMILIES["gemma3"] = dict(
    FAMILIES["qwen3"], silu=False, tanh=True, less_one=True, window=24, rotary=[(1000000, 1), (10000, 1)],
    spelling={"attention.added.LayerNorm": "post_attention_layernorm", "added.LayerNorm": "post_feedforward_layernorm",
              **FAMILIES["qwen3"]["spelling"], "attention.output.LayerNorm": "pre_feedforward_layernorm"})


def family_of(m):
    return FAMILIES[m.get("family", "bert")]


def positions_of(m):
    return m.get("positions", POSITIONS)


def vocabulary_of(m):
    return m.get("vocabulary", VOCABULARY)


def types_of(m):
    return m.get("types", family_of(m)["types"])


# --- checkpoints ---------------------------------------------------------------------------------------------------

def store(values, dtype):
    """A tensor's numbers as the file holds them."""
    if dtype == "F32":
        return values.astype("<f4", copy=False)
    if dtype == "F16":
        return values.astype("<f2")
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def meaning(stored, dtype):
    """The f64 values of a file's numbers."""
    return ((stored.astype("<u4") << 16).view("<f4") if dtype == "BF16" else stored).astype(np.float64)


def tensor_shapes(m):
    """(name, shape, standard deviation, centre) of every weight, spread about as training leaves them, or that times
    m["spread"] for the matrices."""
    hidden, inner, spread, family = m["hidden"], m["inner"], m.get("spread", 1), family_of(m)
    yield "embeddings.word_embeddings.weight", (vocabulary_of(m), hidden), 0.05, 0
    if "rotary" not in family:
        yield "embeddings.position_embeddings.weight", (POSITIONS + family["offset"], hidden), 0.02, 0
    if types_of(m) > 0:
        yield "embeddings.token_type_embeddings.weight", (types_of(m), hidden), 0.02, 0
    if m.get("family") == "mpnet":
        yield "encoder.relative_attention_bias.weight", (32, m["heads"]), 1, 0
    queries = m["heads"] * m["width"] if "width" in m else hidden
    keys = m["key_heads"] * m["width"] if "width" in m else hidden
    norms = [("embeddings.LayerNorm", hidden)]
    for layer in range(m["layers"]):
        prefix = f"encoder.layer.{layer}."
        for part, rows in (("attention.self.query", queries), ("attention.self.key", keys)):
            yield prefix + part + ".weight", (rows, hidden), 0.06 * spread, 0
            yield prefix + part + ".bias", (rows,), 0.1, 0
        for part, rows, columns in (("attention.self.value", keys, hidden), ("attention.output.dense", hidden, queries),
                                    ("intermediate.dense", inner, hidden), ("up.dense", inner, hidden),
                                    ("output.dense", hidden, inner)):
            if part == "up.dense" and "rotary" not in family:
                continue
            yield prefix + part + ".weight", (rows, columns), 0.04 * spread, 0
            yield prefix + part + ".bias", (rows,), 0.05, 0
        norms += [(prefix + "attention.output.LayerNorm", hidden), (prefix + "output.LayerNorm", hidden)]
        if "width" in m:
            norms += [(prefix + "attention.query.LayerNorm", m["width"]), (prefix + "attention.key.LayerNorm", m["width"])]
        if "less_one" in family:
            norms += [(prefix + "attention.added.LayerNorm", hidden), (prefix + "added.LayerNorm", hidden)]
    for norm, width in norms:
        yield norm + ".weight", (width,), 0.15, 0 if "less_one" in family else 1
        yield norm + ".bias", (width,), 0.1, 0


def is_bare(name, family):
    """Returns whether this tensor is a bias that the family does not have."""
    parts = family.get("bare", ())
    in_norm, part = "LayerNorm" in name, name.split(".")[3] if name.startswith("encoder.layer") else ""
    return name.endswith(".bias") and ("LayerNorm" in parts if in_norm else part.replace("up", "intermediate") in parts)


def name_in_file(name, m):
    """The tensor's name in the file. A norm before a part has that part's number."""
    prefix = m.get("prefix", family_of(m)["prefix"])
    family, end = family_of(m), name.split(".")[-1]
    if family.get("first_norm") and name.startswith("embeddings.LayerNorm"):
        return f"{prefix}layers.0.{family['pre_norm']}.{end}"
    if family.get("pre_norm") and ".output.LayerNorm" in name and "attention" not in name:
        layer = int(name.split(".")[2]) + 1
        return prefix + (f"layers.{layer}.{family['pre_norm']}." if layer < m["layers"] else family["final"]) + end
    for ours, theirs in family["spelling"].items():
        name = name.replace(ours, theirs)
    return prefix + name


def place_in_file(name, m):
    """The name, as BERT would have it, of the file's tensor that contains this one, and the index of this part, rows below rows."""
    for whole, parts in family_of(m).get("packed", {}).items():
        for i, part in enumerate(parts):
            if part in name and not ("split" in m and "self" in whole):
                return name.replace(part, whole), i
    return name, 0


def packed(tensors, m):
    """The tensors as the file has them."""
    gathered = {}
    for name, values in tensors:
        whole, place = place_in_file(name, m)
        gathered.setdefault(whole, {})[place] = values
    return {name: np.concatenate([some[i] for i in sorted(some)]) for name, some in gathered.items()}


def unpacked(found, m):
    """The tensors of a file {name: values} under the names that `encode` knows, with gains that are whole."""
    weights = {}
    for name, shape, _, _ in tensor_shapes(m):
        if not is_bare(name, family_of(m)):
            whole, place = place_in_file(name, m)
            less = "LayerNorm" in name and "less_one" in family_of(m)
            weights[name] = found[name_in_file(whole, m)][place * shape[0]:(place + 1) * shape[0]] + less
    return weights


def rotary_of(m):
    """(base, divisor) of all layers, or of those that attend to all tokens and of local ones."""
    rotary = family_of(m).get("rotary")
    if "stretched" in m:
        return [(rotary[0][0] * m["stretched"], m["stretched"] ** (2 * m["heads"] / m["hidden"]))]
    return rotary


def nomic_config(m):
    if "spelling5" in m:
        return {"hidden_size": m["hidden"], "intermediate_size": m["inner"], "num_attention_heads": m["heads"],
                "num_hidden_layers": m["layers"], "hidden_act": "silu", "layer_norm_eps": 1e-12, "type_vocab_size": 2,
                "head_dim": m["hidden"] // m["heads"], "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}
    return {"n_embd": m["hidden"], "n_inner": m["inner"], "n_head": m["heads"], "n_layer": m["layers"],
            "n_positions": positions_of(m), "max_position_embeddings": None, "activation_function": "swiglu",
            "layer_norm_epsilon": 1e-12, "type_vocab_size": 2, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
            "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
            "causal": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False, "prenorm": False,
            "parallel_block": False, "scale_attn_weights": True, "summary_type": "cls_index", "use_rms_norm": False,
            "max_trained_positions": 2048, "pad_vocab_size_multiple": 64, "fused_bias_fc": True, "use_flash_attn": True}


def gte_config(m):
    fields = {"hidden_act": "gelu", "hidden_size": m["hidden"], "intermediate_size": m["inner"], "layer_norm_eps": 1e-12,
              "num_attention_heads": m["heads"], "num_hidden_layers": m["layers"], "type_vocab_size": types_of(m)}
    if "spelling5" in m:
        return {**fields, "architectures": ["GteModel"], "rope_parameters": {"rope_theta": 160000.0, "rope_type": "default"}}
    scaling = {"factor": float(m["stretched"]), "type": "ntk"} if "stretched" in m else None
    return {**fields, "model_type": "new", "architectures": ["NewModel"], "rope_theta": 160000, "rope_scaling": scaling,
            "auto_map": {"AutoModel": "modeling.NewModel"}, "layer_norm_type": "layer_norm", "pack_qkv": "split" not in m,
            "logn_attention_clip1": False, "logn_attention_scale": False, "position_embedding_type": "rope",
            "unpad_inputs": False, "use_memory_efficient_attention": False, "torch_dtype": "float32"}


def qwen3_config(m):
    fields = {"num_key_value_heads": m["key_heads"], "head_dim": m["width"], "hidden_act": "silu", "rms_norm_eps": 1e-6,
              "attention_bias": False, "attention_dropout": 0.0, "max_window_layers": 28, "use_sliding_window": False,
              "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True, "use_cache": True}
    if "spelling5" in m:
        return {**fields, "architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16", "sliding_window": None,
                "layer_types": ["full_attention"] * m["layers"],
                "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}}
    return {**fields, "architectures": ["Qwen3Model"], "torch_dtype": "float32", "sliding_window": 4096,
            "rope_scaling": None, "rope_theta": 1000000}


def gemma3_config(m):
    fields = {"num_key_value_heads": m["key_heads"], "head_dim": m["width"], "hidden_activation": "gelu_pytorch_tanh",
              "rms_norm_eps": 1e-6, "query_pre_attn_scalar": m["scalar"], "sliding_window": 48, "attention_bias": False,
              "attention_dropout": 0.0, "attn_logit_softcapping": None, "final_logit_softcapping": None,
              "use_bidirectional_attention": True, "model_type": "gemma3_text"}
    if "spelling5" in m:
        kinds = ["sliding_attention" if layer in m["local"] else "full_attention" for layer in range(m["layers"])]
        return {**fields, "_sliding_window_pattern": 6, "architectures": ["Gemma3TextModel"], "dtype": "bfloat16",
                "layer_types": kinds,
                "rope_parameters": {"full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
                                    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}}
    return {**fields, "architectures": ["Gemma3ForCausalLM"], "torch_dtype": "float32", "sliding_window_pattern": 3,
            "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": None}


def layers_config(m):
    """Which layers of a ModernBERT are local, as transformers 4 and 5 spell it."""
    if "spelling5" not in m:
        return {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    kinds = ["sliding_attention" if layer in m["local"] else "full_attention" for layer in range(m["layers"])]
    return {"layer_types": kinds, "dtype": "bfloat16",
            "rope_parameters": {"full_attention": {"rope_theta": 160000.0, "rope_type": "default"},
                                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}}


def config(m):
    family = family_of(m)
    fields = {"model_type": m.get("family", "bert"), "max_position_embeddings": positions_of(m) + family["offset"],
              "pad_token_id": 0, "vocab_size": vocabulary_of(m), **family["config"]}
    if m.get("family") == "nomic":
        return {**fields, "model_type": "nomic_bert", **nomic_config(m)}
    if m.get("family") == "gte":
        return {**fields, **gte_config(m)}
    if m.get("family") in ("modernbert", "qwen3", "gemma3"):
        own = {"modernbert": layers_config, "qwen3": qwen3_config, "gemma3": gemma3_config}[m["family"]]
        return {**fields, **own(m), "hidden_size": m["hidden"],
                "intermediate_size": m["inner"], "num_attention_heads": m["heads"], "num_hidden_layers": m["layers"]}
    if m.get("family") == "distilbert":
        return {**fields, "activation": "gelu", "dim": m["hidden"], "hidden_dim": m["inner"], "n_heads": m["heads"],
                "n_layers": m["layers"], "sinusoidal_pos_embds": False}
    if family["types"] > 0:
        fields["type_vocab_size"] = family["types"]
    return {**fields, "hidden_act": "gelu", "hidden_size": m["hidden"], "intermediate_size": m["inner"],
            "layer_norm_eps": family["eps"], "num_attention_heads": m["heads"], "num_hidden_layers": m["layers"]}


def write_checkpoint(folder, m):
    """Writes a sentence-transformers directory and returns the weights in f64."""
    generator = np.random.default_rng(m["seed"])
    header, weights, offset, tensors = {}, {}, 0, []
    for name, shape, spread, centre in tensor_shapes(m):
        values = generator.standard_normal(shape, dtype=np.float32) * np.float32(spread) + np.float32(centre)
        if name.endswith(("LayerNorm.weight", "output.dense.weight")) and "outliers" in m:
            values[m["outliers"]] *= 8
        if not is_bare(name, family_of(m)):
            tensors.append((name, store(values, m["dtype"])))
            weights[name] = meaning(tensors[-1][1], m["dtype"])
            if "LayerNorm" in name and "less_one" in family_of(m):
                weights[name] += 1
    in_file = packed(tensors, m)
    for name, numbers in in_file.items():
        header[name_in_file(name, m)] = {"dtype": m["dtype"], "shape": numbers.shape,
                                         "data_offsets": [offset, offset + numbers.nbytes]}
        offset += numbers.nbytes
    for name in family_of(m)["heads"]:
        header[name] = {"dtype": m["dtype"], "shape": (0,), "data_offsets": [offset, offset]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    shutil.rmtree(folder, ignore_errors=True)
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "2_Normalize").mkdir()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for numbers in in_file.values():
            file.write(numbers.data)
    words = SPECIALS + [f"w{i}" for i in range(vocabulary_of(m) - len(SPECIALS))]
    files = {
        "config.json": config(m),
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}],
        "1_Pooling/config.json": {
            "word_embedding_dimension": m["hidden"], "pooling_mode_cls_token": m["pooling"] == "cls",
            "pooling_mode_mean_tokens": m["pooling"] == "mean", "pooling_mode_max_tokens": False,
            "pooling_mode_lasttoken": m["pooling"] == "lasttoken",
            "pooling_mode_mean_sqrt_len_tokens": False},
        "sentence_bert_config.json": {"max_seq_length": positions_of(m), "do_lower_case": False},
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
        "tokenizer.json": tokenizer_json(words),
    }
    if "unigram" in m:
        files["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}
        files["tokenizer.json"] = {
            "normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            "post_processor": {"type": "RobertaProcessing", "cls": [words[0], 0], "sep": [words[2], 2]},
            "model": {"type": "Unigram", "unk_id": 3, "vocab": [[word, -i / 8] for i, word in enumerate(words)]}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return weights


# --- the reference: the formulas of the papers in f64 --------------------------------------------------------------

class Erf:
    """erf in f64 for arrays: the Taylor series of fourth order around the nearest of 256 points per unit, within 1e-14."""

    def __init__(self, points=256, end=6):
        self.points = points
        self.at = np.arange(-end * points, end * points + 1) / points
        self.value = np.array([math.erf(a) for a in self.at])
        self.slope = 2 / math.sqrt(math.pi) * np.exp(-self.at * self.at)

    def __call__(self, x):
        index = np.clip(np.rint(x * self.points).astype(np.int64) + len(self.at) // 2, 0, len(self.at) - 1)
        a, slope = self.at[index], self.slope[index]
        d = np.where(np.abs(x) < 6, x - a, 0)
        return self.value[index] + slope * d * (1 + d * (-a + d * ((2 * a * a - 1) / 3 + d * a * (3 - 2 * a * a) / 6)))


ERF = Erf()


def norm(x, w, name, eps, rms=False):
    x = x - (0 if rms else x.mean(-1, keepdims=True))
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"] + w.get(name + ".bias", 0)


def linear(x, w, name):
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)


def turned(x, base, divisor):
    """RoFormer's positions [heads, length, width]: numbers i and i + half turn by position * base^(-i / half)."""
    half = x.shape[2] // 2
    angle = np.arange(x.shape[1])[:, None] * (base ** (-np.arange(half) / half) / divisor)
    a, b = x[:, :, :half], x[:, :, half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], 2)


def relative_bias(length, w):
    """MPNet's bias, [heads, length, length]: 8 buckets for the distances below 8, 8 that grow by their logarithm up to
    128, and as many again for keys after the query."""
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    far = np.abs(distance)
    bucket = np.minimum(8 + np.floor(2 * np.log2(np.maximum(far, 8) / 8)).astype(int), 15)
    bucket = np.where(far < 8, far, bucket) + 16 * (distance > 0)
    return w["encoder.relative_attention_bias.weight"][bucket].transpose(2, 0, 1)


def attention(x, w, prefix, m, rotary=None, window=None):
    length, hidden = x.shape
    heads, key_heads, width = m["heads"], m.get("key_heads", m["heads"]), m.get("width", hidden // m["heads"])
    split = lambda name, count: linear(x, w, prefix + name).reshape(length, count, width).transpose(1, 0, 2)
    q, k, v = split("self.query", heads), split("self.key", key_heads), split("self.value", key_heads)
    if "width" in m:
        q, k = norm(q, w, prefix + "query.LayerNorm", 1e-6, True), norm(k, w, prefix + "key.LayerNorm", 1e-6, True)
    if rotary:
        q, k = turned(q, *rotary), turned(k, *rotary)
    k, v = np.repeat(k, heads // key_heads, 0), np.repeat(v, heads // key_heads, 0)
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(m.get("scalar", width))
    if m.get("family") == "qwen3":
        scores[:, np.arange(length)[:, None] < np.arange(length)] = -np.inf
    if window:
        scores[:, np.abs(np.arange(length)[:, None] - np.arange(length)) > window] = -np.inf
    if "encoder.relative_attention_bias.weight" in w:
        scores += relative_bias(length, w)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    context = (weights @ v).transpose(1, 0, 2).reshape(length, heads * width)
    return added(linear(context, w, prefix + "output.dense"), w, prefix)


def added(x, w, prefix):
    """Applies the family's norm of an added part, if it has one."""
    name = prefix + "added.LayerNorm"
    return norm(x, w, name, 1e-6, True) if name + ".weight" in w else x


def feed_forward(x, w, prefix, family):
    inner = linear(x, w, prefix + "intermediate.dense")
    if family.get("silu"):
        inner = inner / (1 + np.exp(-inner))
    elif family.get("tanh"):
        inner = inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner ** 3))) / 2
    else:
        inner = inner * (1 + ERF(inner / math.sqrt(2))) / 2
    if prefix + "up.dense.weight" in w:
        inner = inner * linear(x, w, prefix + "up.dense")
    return added(linear(inner, w, prefix + "output.dense"), w, prefix)


def encode(ids, w, m):
    family = family_of(m)
    eps, offset, pre_norm, rms = family["eps"], family["offset"], family.get("pre_norm"), family.get("rms", False)
    x = w["embeddings.word_embeddings.weight"][ids] + w.get("embeddings.token_type_embeddings.weight", [0])[0]
    if "rotary" not in family:  # where positions have an offset, padding has the one before it and is not counted
        counted = ids != offset - 1
        x = x + w["embeddings.position_embeddings.weight"][np.where(counted, offset - 1 + np.cumsum(counted), offset - 1)]
    if "less_one" in family:
        x = x * math.sqrt(m["hidden"])
    total, x = x, norm(x, w, "embeddings.LayerNorm", eps, rms)
    if not family.get("first_norm"):
        total = x
    for layer in range(m["layers"]):
        prefix, local = f"encoder.layer.{layer}.", layer in m.get("local", ())
        rotary = rotary_of(m)[local] if "rotary" in family else None
        total = total + attention(x, w, prefix + "attention.", m, rotary, family["window"] if local else None)
        x = norm(total, w, prefix + "attention.output.LayerNorm", eps, rms)
        total = (total if pre_norm else x) + feed_forward(x, w, prefix, family)
        x = norm(total, w, prefix + "output.LayerNorm", eps, rms)
        total = total if pre_norm else x
    vector = {"cls": x[0], "mean": x.mean(0), "lasttoken": x[-1]}[m["pooling"]]
    return vector / np.linalg.norm(vector)


# --- the comparison ------------------------------------------------------------------------------------------------

def run(driver, isa, folder, precision, texts, dim):
    """Returns our vectors [in one batch or alone, texts, dim], or None where the machine lacks that instruction set."""
    data = b"".join(np.concatenate([[len(t)], t]).astype(np.int32).tobytes() for t in texts)
    environment = os.environ | ({"SLUICE_ISA": isa} if isa else {})
    done = subprocess.run([*driver, folder, precision], input=data, stdout=subprocess.PIPE, check=False, env=environment)
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        sys.exit(f"encode_ids ended with {done.returncode}")
    return np.frombuffer(done.stdout, np.float32).reshape(2, len(texts), dim)


def compare(name, precision, ours, wanted, texts, least, most):
    """Returns whether all vectors are near enough; prints how near the worst is."""
    cosine = (ours.astype(np.float64) * wanted).sum(1) / np.linalg.norm(ours.astype(np.float64), axis=1)
    off = np.abs(ours - wanted).max(1)
    good = (cosine >= 0.9999999) & (off <= most) if precision == "f32" else cosine >= least
    good &= np.isfinite(off)
    for i in np.flatnonzero(~good):
        print(f"{name} {precision}: {len(texts[i])} tokens: cosine 1 - {1 - cosine[i]:.3g}, off by {off[i]:.3g}")
    print(f"{name} {precision}: {len(texts)} texts, worst cosine 1 - {1 - cosine.min():.2e}, worst number {off.max():.2e}")
    return good.all()


def check_isa(driver, isa, folder, name, m, texts, wanted):
    good, what = True, f"{name} {isa or 'best'}"
    for precision in ("bf16",) if isa == EMULATED else m.get("precisions", ("f32", "bf16", "int8")):
        ours = run(driver, isa, folder, precision, texts, m["hidden"])
        if ours is None:
            print(f"{what} {precision}: this processor lacks it; not compared")
            continue
        together, alone = ours
        good &= compare(what, precision, together, wanted, texts, LEAST.get(precision), m.get("off", 1e-6))
        if alone.tobytes() != together.tobytes():
            print(f"{what} {precision}: a text alone has other bits than in a batch")
            good = False
    return good


def check_model(driver, isas, work, name, m, which):
    generator = np.random.default_rng(m["seed"] + 1000)
    folder = work / name
    weights = write_checkpoint(folder, m)
    texts = [np.concatenate([[2], generator.integers(5, vocabulary_of(m), length)])[:length] for length in m["lengths"][::-1]]
    if family_of(m)["offset"]:
        for text in texts:
            text[3::7] = family_of(m)["offset"] - 1  # padding
    if which == "few":
        texts = [text for text in texts if len(text) <= SHORT[which]]
    begin = time.monotonic()
    wanted = np.array([encode(ids, weights, m) for ids in texts])
    print(f"{name}: reference took {time.monotonic() - begin:.1f} s")
    good = which == "few" or np.allclose(wanted[0][:4], m.get("known", wanted[0][:4]), rtol=0, atol=2e-7) # sines in f32
    if not good:
        print(f"{name}: the reference is {wanted[0][:4]}, not what transformers says")
    if which == "all":
        good &= check_isa(driver, None, folder, name, m, texts, wanted)
    for isa in isas:
        if isa in SLOW and m["layers"] > SLOW_LAYERS:
            continue
        most = EMULATED_SHORT if isa == EMULATED else SHORT[which]
        short = [i for i, text in enumerate(texts) if len(text) <= most]
        good &= check_isa(driver, isa, folder, name, m, [texts[i] for i in short], wanted[short])
    shutil.rmtree(folder)
    return good


def main():
    which, work, isas, driver = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:]
    models = {name: m for name, m in MODELS.items() if which == "all" or m["layers"] <= 4}
    results = [check_model(driver, isas, work, name, m, which) for name, m in models.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares Sluice's logits and greedy tokens with an independent forward pass in f64, on seeded random language models.

usage: decoder_golden.py WORK ISA,... DECODE_IDS...
       decoder_golden.py WORK transformers

DECODE_IDS is the command of the driver of tests/golden, which also compares each prompt alone with all together, bit for bit.
The bars: in f32 no logit off by more than 1e-4 of the largest, and the same tokens; in bf16 1e-1 and with all products in int8
2.5e-1, where the reference continues the text with our tokens. The second form, where transformers and torch are installed, prints what they say about the same
checkpoints: `known` below is from there.
"""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from encoder_golden import meaning, store  # noqa: E402
from model import SPECIALS, tokenizer_json  # noqa: E402

PROMPTS, NEW, POSITIONS = [1, 5, 16, 33, 70], 64, 256
VOCABULARY = 333  # whole in no unit of a product

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
V5_FULL_LOCAL = {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 4.0},
                 "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}

# `width` of heads; `window`: tokens that a local layer attends to, its own included; `config`: the fields that a family's files
# spell in several ways. known: the first logits after the longest prompt and the last tokens of its continuation, by
# transformers. An inner size of 128 and heads of 32 are sizes that products on tiles take.
MODELS = {
    "llama": dict(family="llama", heads=4, key_heads=2, width=16, dtype="F32", seed=31, shards=2, llama3=True,
                  config={"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}, "tie_word_embeddings": False,
                          "pretraining_tp": 1, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32"},
                  known=([-1.71204, -0.61858, -0.34903, -1.62945], [11, 59, 253, 214])),
    "llama-5": dict(family="llama", heads=4, key_heads=1, width=16, dtype="BF16", seed=32, tied=True, base=1e4,
                    config={"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}, "tie_word_embeddings": True,
                            "head_dim": None, "dtype": "bfloat16"},
                    known=([1.52544, -1.6161, -0.93283, -0.519], [249, 194, 273, 177])),
    "llama-linear": dict(family="llama", heads=4, key_heads=4, width=16, dtype="F16", seed=33, tied=True, base=1e4, divisor=4,
                         config={"rope_scaling": {"type": "linear", "factor": 4.0}, "tie_word_embeddings": True,
                                 "torch_dtype": "float16", "rope_interleaved": False, "is_llama_config": True},
                         known=([-0.77044, -0.01073, -0.72721, -0.14624], [252, 84, 174, 95])),
    "mistral": dict(family="mistral", heads=4, key_heads=2, width=24, dtype="F32", seed=34, window=24, base=1e4,
                    config={"head_dim": 24, "rope_theta": 1e4, "sliding_window": 24, "tie_word_embeddings": False},
                    known=([0.96381, 1.07565, 0.72827, 0.82412], [287, 7, 78, 154])),
    "mistral-5": dict(family="mistral", heads=2, key_heads=1, width=32, dtype="BF16", seed=35, inner=128, base=1e6,
                      config={"head_dim": None, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
                              "sliding_window": None},
                      known=([1.17299, -0.38582, -0.79058, -0.59788], [76, 289, 80, 97])),
    "qwen2": dict(family="qwen2", heads=4, key_heads=2, width=16, dtype="F32", seed=36, biased=True, tied=True, base=1e6,
                  config={"rope_theta": 1e6, "sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 2,
                          "tie_word_embeddings": True},
                  known=([-0.40348, 1.12631, -1.44073, 1.18081], [314, 220, 146, 57])),
    "qwen2-5": dict(family="qwen2", heads=4, key_heads=4, width=16, dtype="F32", seed=37, biased=True, base=1e6,
                    config={"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "sliding_window": None,
                            "use_sliding_window": False, "layer_types": ["full_attention"] * 3},
                    known=([0.91239, 0.13875, -0.4014, 0.47257], [28, 283, 278, 307])),
    "qwen3": dict(family="qwen3", heads=4, key_heads=2, width=32, dtype="BF16", seed=38, inner=128,
                  head_norms=True, tied=True, base=1e6,
                  config={"head_dim": 32, "rope_theta": 1e6, "rope_scaling": None, "tie_word_embeddings": True,
                          "attention_bias": False, "use_sliding_window": False, "sliding_window": None},
                  known=([-0.28566, 0.05327, 0.55498, 0.47902], [215, 81, 222, 126])),
    "qwen3-5": dict(family="qwen3", heads=4, key_heads=1, width=10, dtype="F32", seed=39, head_norms=True, base=1e6,
                    config={"head_dim": 10, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
                            "tie_word_embeddings": False, "layer_types": ["full_attention"] * 3},
                    known=([2.52493, -2.03077, -2.35758, 0.80433], [288, 32, 260, 256])),
    "gemma3": dict(family="gemma3_text", heads=4, key_heads=1, width=24, dtype="F32", seed=40, head_norms=True, tied=True,
                   base=1e6, window=24, local=[0, 2], scalar=20,
                   config={"head_dim": 24, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 24,
                           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                           "query_pre_attn_scalar": 20, "final_logit_softcapping": None, "attn_logit_softcapping": None},
                   known=([-0.06791, -0.34099, -0.04811, 0.27997], [251, 251, 31, 31])),
    "gemma3-5": dict(family="gemma3_text", hidden=96, heads=3, key_heads=1, width=32, dtype="BF16", seed=41, inner=128,
                     head_norms=True, tied=True,
                     base=1e6, divisor=4, window=17, local=[0], scalar=32,
                     config={"head_dim": 32, "rope_parameters": V5_FULL_LOCAL, "sliding_window": 17,
                             "layer_types": ["sliding_attention", "full_attention", "full_attention"],
                             "query_pre_attn_scalar": 32, "use_bidirectional_attention": False},
                     known=([-0.53633, -0.34501, -0.42883, 0.05504], [226, 226, 226, 4])),
}
LAYERS = 3
CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
           "qwen3": "Qwen3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM"}


def is_gemma(m):
    return m["family"] == "gemma3_text"


# --- checkpoints ---------------------------------------------------------------------------------------------------

def hidden_of(m):
    return m.get("hidden", 64)


def tensors(m):
    """(name, shape, standard deviation, centre) of every tensor."""
    hidden, heads, keys = hidden_of(m), m["heads"] * m["width"], m["key_heads"] * m["width"]
    centre, inner = 0 if is_gemma(m) else 1, m.get("inner", 112)
    yield "model.embed_tokens.weight", (VOCABULARY, hidden), 0.03 if is_gemma(m) else 0.12, 0
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for part, rows, columns in (("self_attn.q_proj", heads, hidden), ("self_attn.k_proj", keys, hidden),
                                    ("self_attn.v_proj", keys, hidden), ("self_attn.o_proj", hidden, heads),
                                    ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden),
                                    ("mlp.down_proj", hidden, inner)):
            yield f"{prefix}{part}.weight", (rows, columns), 1.5 * columns ** -0.5, 0
            if m.get("biased") and part[10:] in ("q_proj", "k_proj", "v_proj"):
                yield f"{prefix}{part}.bias", (rows,), 0.3, 0
        norms = ["input_layernorm", "post_attention_layernorm"]
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if is_gemma(m) else []
        for name in norms:
            yield f"{prefix}{name}.weight", (hidden,), 0.2, centre
        if m.get("head_norms"):
            for name in ("q_norm", "k_norm"):
                yield f"{prefix}self_attn.{name}.weight", (m["width"],), 0.2, centre
    yield "model.norm.weight", (hidden,), 0.2, centre
    if not m.get("tied"):
        yield "lm_head.weight", (VOCABULARY, hidden), 0.12, 0


def write_file(path, m, some):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, numbers in some.items():
        header[name] = {"dtype": m["dtype"], "shape": numbers.shape, "data_offsets": [offset, offset + numbers.nbytes]}
        offset += numbers.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(numbers.tobytes() for numbers in some.values()))


def write_checkpoint(folder, m):
    """Writes a directory as transformers does and returns the weights in f64."""
    generator = np.random.default_rng(m["seed"])
    stored = {}
    for name, shape, spread, centre in tensors(m):
        values = generator.standard_normal(shape, dtype=np.float32) * np.float32(spread) + np.float32(centre)
        stored[name] = store(values, m["dtype"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names, shards = list(stored), m.get("shards", 1)
    files = ["model.safetensors"] if shards == 1 else [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    for i, file in enumerate(files):
        write_file(folder / file, m, {name: stored[name] for name in names[i::shards]})
    if shards > 1:
        places = {name: files[i % shards] for i, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    config = {"model_type": m["family"], "architectures": [CLASSES[m["family"]]], "hidden_size": hidden_of(m),
              "intermediate_size": m.get("inner", 112), "num_hidden_layers": LAYERS, "num_attention_heads": m["heads"],
              "num_key_value_heads": m["key_heads"], "rms_norm_eps": 1e-6, "vocab_size": VOCABULARY,
              "max_position_embeddings": POSITIONS, "bos_token_id": 1, "eos_token_id": [2, 3], "use_cache": True,
              "initializer_range": 0.02, "attention_dropout": 0.0,
              "hidden_activation" if is_gemma(m) else "hidden_act": "gelu_pytorch_tanh" if is_gemma(m) else "silu", **m["config"]}
    words = SPECIALS + [f"w{i}" for i in range(VOCABULARY - len(SPECIALS))]
    tokenizer, its_class = tokenizer_json(words), {"tokenizer_class": "BertTokenizer"}
    if m["family"] == "qwen2":  # its class reads byte-level BPE only
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        tokenizer, its_class = {**tokenizer, "normalizer": None, "pre_tokenizer": level, "decoder": level, "post_processor": None,
                                "model": {"type": "BPE", "vocab": tokenizer["model"]["vocab"], "merges": []}}, {}
    for name, content in {"config.json": config, "tokenizer_config.json": its_class, "generation_config.json": {"eos_token_id": 2},
                          "tokenizer.json": tokenizer}.items():
        (folder / name).write_text(json.dumps(content))
    return {name: meaning(values, m["dtype"]) for name, values in stored.items()}


# --- the reference: the formulas of the papers in f64 --------------------------------------------------------------

def norm(x, gain, m):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * (gain + is_gemma(m))


def frequencies(m, local):
    half = m["width"] // 2
    if local and is_gemma(m):
        return 1e4 ** (-np.arange(half) / half)
    turn = m.get("base", 5e5) ** (-np.arange(half) / half)
    if "llama3" not in m:
        return turn / m.get("divisor", 1)
    length = 2 * math.pi / turn
    low, high = (LLAMA3["original_max_position_embeddings"] / LLAMA3[f"{end}_freq_factor"] for end in ("low", "high"))
    smooth = (LLAMA3["original_max_position_embeddings"] / length - 1) / (4 - 1)
    between = (1 - smooth) * turn / LLAMA3["factor"] + smooth * turn
    return np.where(length > low, turn / LLAMA3["factor"], np.where(length < high, turn, between))


def turned(x, turn):
    half = x.shape[2] // 2
    angle = np.arange(x.shape[1])[:, None] * turn
    a, b = x[:, :, :half], x[:, :, half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], 2)


def attention(x, w, prefix, m, local):
    length = len(x)
    split = lambda part, count: (x @ w[f"{prefix}{part}_proj.weight"].T + w.get(f"{prefix}{part}_proj.bias", 0)).reshape(
        length, count, m["width"]).transpose(1, 0, 2)
    q, k, v = split("q", m["heads"]), split("k", m["key_heads"]), split("v", m["key_heads"])
    if m.get("head_norms"):
        q, k = norm(q, w[prefix + "q_norm.weight"], m), norm(k, w[prefix + "k_norm.weight"], m)
    turn = frequencies(m, local)
    q, k = turned(q, turn), turned(k, turn)
    k, v = (np.repeat(part, m["heads"] // m["key_heads"], 0) for part in (k, v))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(m.get("scalar", m["width"]))
    distance = np.arange(length)[:, None] - np.arange(length)
    scores[:, (distance < 0) | (local & (distance >= m.get("window", length)))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).transpose(1, 0, 2).reshape(length, -1) @ w[prefix + "o_proj.weight"].T


def feed_forward(x, w, prefix, m):
    gate, up = x @ w[prefix + "gate_proj.weight"].T, x @ w[prefix + "up_proj.weight"].T
    if is_gemma(m):
        gate = gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3))) / 2
    else:
        gate = gate / (1 + np.exp(-gate))
    return (gate * up) @ w[prefix + "down_proj.weight"].T


def all_logits(ids, w, m):
    """The logits after each of the ids."""
    x = w["model.embed_tokens.weight"][ids] * (math.sqrt(hidden_of(m)) if is_gemma(m) else 1)
    for layer in range(LAYERS):
        prefix, local = f"model.layers.{layer}.", layer in m.get("local", range(LAYERS) if "window" in m else ())
        part = attention(norm(x, w[prefix + "input_layernorm.weight"], m), w, prefix + "self_attn.", m, local)
        if is_gemma(m):
            x = x + norm(part, w[prefix + "post_attention_layernorm.weight"], m)
            part = feed_forward(norm(x, w[prefix + "pre_feedforward_layernorm.weight"], m), w, prefix + "mlp.", m)
            x = x + norm(part, w[prefix + "post_feedforward_layernorm.weight"], m)
        else:
            x = x + part
            x = x + feed_forward(norm(x, w[prefix + "post_attention_layernorm.weight"], m), w, prefix + "mlp.", m)
    return norm(x, w["model.norm.weight"], m) @ w["model.embed_tokens.weight" if m.get("tied") else "lm_head.weight"].T


# --- the comparison ------------------------------------------------------------------------------------------------

def prompts_of(m):
    generator = np.random.default_rng(m["seed"] + 1000)
    return [generator.integers(5, VOCABULARY, length) for length in PROMPTS]


def run(driver, isa, folder, precision, prompts):
    """Returns our tokens [prompts, NEW] and logits [prompts, NEW, VOCABULARY], or None where the machine lacks the set."""
    data = b"".join(np.concatenate([[len(p)], p]).astype(np.int32).tobytes() for p in prompts)
    environment = os.environ | ({"SLUICE_ISA": isa} if isa else {})
    command = [*driver, folder, precision, str(NEW)]
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=False, env=environment)
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        sys.exit(f"decode_ids {folder.name} {isa} {precision} ended with {done.returncode}")
    words = np.frombuffer(done.stdout, np.int32).reshape(len(prompts), NEW * (1 + VOCABULARY))
    return words[:, :NEW], words[:, NEW:].view(np.float32).reshape(len(prompts), NEW, VOCABULARY)


def check(driver, isa, folder, m, weights, precision):
    prompts = prompts_of(m)
    ours = run(driver, isa, folder, precision, prompts)
    what = f"{folder.name} {isa or 'best'} {precision}"
    if ours is None:
        print(f"{what}: this processor lacks it; not compared")
        return True
    off = same = 0
    for prompt, tokens, logits in zip(prompts, *ours):
        wanted = all_logits(np.concatenate([prompt, tokens[:-1]]), weights, m)[len(prompt) - 1:]
        off = max(off, np.abs(logits - wanted).max() / np.abs(wanted).max())
        same += (wanted.argmax(1) == tokens).sum()
    print(f"{what}: worst logit off by {off:.1e} of the largest, {same} of {len(prompts) * NEW} tokens the same")
    bar = {"f32": 1e-4, "bf16": 0.1, "int8_all": 0.25}[precision]
    return np.isfinite(off) and off <= bar and (precision != "f32" or same == len(prompts) * NEW)


def known_of(m, weights):
    """The first logits after the longest prompt, and the last tokens of its continuation."""
    ids, first = prompts_of(m)[-1], None
    for _ in range(NEW):
        last = all_logits(ids, weights, m)[-1]
        first = last[:4] if first is None else first
        ids = np.concatenate([ids, [last.argmax()]])
    return [round(x, 5) for x in first.tolist()], ids[-4:].tolist()


def ask_transformers(folder, m):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    ids, first = torch.tensor(prompts_of(m)[-1][None]), None
    with torch.no_grad():
        for _ in range(NEW):
            last = model(ids).logits[0, -1]
            first = last[:4] if first is None else first
            ids = torch.cat([ids, last.argmax()[None, None]], 1)
    print(f'{folder.name}: known=({[round(x, 5) for x in first.tolist()]}, {ids[0, -4:].tolist()})')


def check_model(name, m, work, isas, driver):
    folder = work / name
    weights = write_checkpoint(folder, m)
    logits, tokens = known_of(m, weights)
    good = np.allclose(logits, m["known"][0], rtol=0, atol=2e-5) and tokens == m["known"][1]
    if not good:
        print(f"{name}: the reference says {logits}, {tokens}, not what transformers does")
    for isa in [None, *isas]:
        for precision in ("f32", "bf16") if isa else ("f32", "bf16", "int8_all"):
            good &= check(driver, isa, folder, m, weights, precision)
    shutil.rmtree(folder)
    return good


def main():
    work, isas, driver = pathlib.Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    if isas == ["transformers"]:
        for name, m in MODELS.items():
            write_checkpoint(work / name, m)
            ask_transformers(work / name, m)
        return 0
    results = [check_model(name, m, work, isas, driver) for name, m in MODELS.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

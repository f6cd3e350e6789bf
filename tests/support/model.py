"""A small random BERT model in a sentence-transformers directory, written with the standard library alone.

The tests of the queue need vectors that are reproducible and differ from text to text, not vectors that mean something; a
seeded model of 2 layers opens in a millisecond and is independent of the model that the project ships."""

import array
import json
import os
import random
import struct
import sys

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the of and a to in is was it for on with as his by at from that not are this have be or had you which one were her
all there would their we him been has when who will more no if out so said what up its about into than them can only other new
some could time these two may then do first any my now such like our over man me even most made after also did many before must
through back years where much your way well down should because each just those people how too little state good very make
world still own see men work long get here between both life being under never day same another know while last might us great
old year off come since against go came right used take three hello red blue green stream queue worker batch vector model text
package library editor photo music game server network disk file system kernel driver font tool image video audio mail web""".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
FOREIGN = "äößéèñçøłшждαβγ世界你好日本語"


def vocabulary():
    words = list(SPECIALS)
    for word in [*LETTERS, *SIGNS, *FOREIGN, *("##" + c for c in LETTERS + FOREIGN), *WORDS, *("##" + w for w in ("ing", "ed", "s", "er"))]:
        if word not in words:
            words.append(word)
    return words


def tensors(shape, seed):
    """Yields (name, shape, values) of every weight, with BERT's own names."""
    generator = random.Random(seed)
    # A byte chooses one of these: gauss() for each of a model's numbers would take longer than most tests.
    normals = [generator.gauss(0.0, 1.0) for _ in range(256)]
    hidden, inner = shape["hidden"], shape["intermediate"]

    def draw(count, mean, spread):
        values = [mean + spread * value for value in normals]
        return array.array("f", map(values.__getitem__, generator.randbytes(count)))

    def normal(*dims, spread):
        count = 1
        for dim in dims:
            count *= dim
        return dims, draw(count, 0.0, spread)

    def norm(prefix):
        yield prefix + ".weight", (hidden,), draw(hidden, 1.0, 0.1)
        yield prefix + ".bias", *normal(hidden, spread=0.05)

    def linear(prefix, rows, columns):
        yield prefix + ".weight", *normal(rows, columns, spread=columns ** -0.5)
        yield prefix + ".bias", *normal(rows, spread=0.05)

    yield "embeddings.word_embeddings.weight", *normal(shape["vocabulary"], hidden, spread=1.0)
    yield "embeddings.position_embeddings.weight", *normal(shape["positions"], hidden, spread=0.2)
    yield "embeddings.token_type_embeddings.weight", *normal(2, hidden, spread=0.2)
    yield from norm("embeddings.LayerNorm")
    for layer in range(shape["layers"]):
        prefix = f"encoder.layer.{layer}."
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            yield from linear(prefix + part, hidden, hidden)
        yield from norm(prefix + "attention.output.LayerNorm")
        yield from linear(prefix + "intermediate.dense", inner, hidden)
        yield from linear(prefix + "output.dense", hidden, inner)
        yield from norm(prefix + "output.LayerNorm")


def enlarge(named, word):
    """The same weights, with the embedding of this word, if any, a million times as large."""
    for name, dims, values in named:
        if word is not None and name == "embeddings.word_embeddings.weight":
            for i in range(word * dims[1], (word + 1) * dims[1]):
                values[i] *= 1e6
        yield name, dims, values


def write_safetensors(path, named):
    header, blobs, offset = {}, [], 0
    for name, dims, values in named:
        blob = values.tobytes() if sys.byteorder == "little" else array.array("f", values).byteswap()
        header[name] = {"dtype": "F32", "shape": list(dims), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def tokenizer_json(words):
    ids = {word: index for index, word in enumerate(words)}
    special = lambda word: {"id": ids[word], "content": word, "single_word": False, "lstrip": False, "rstrip": False,
                            "normalized": False, "special": True}
    piece = lambda word: {"SpecialToken": {"id": word, "type_id": 0}}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [special(word) for word in SPECIALS],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [piece("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, piece("[SEP]")],
            "pair": [piece("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, piece("[SEP]"),
                     {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
            "special_tokens": {word: {"id": word, "ids": [ids[word]], "tokens": [word]} for word in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": ids},
    }


def write_model(directory, seed=1, hidden=64, heads=2, layers=2, intermediate=128, positions=128, max_tokens=64,
                words=None, normalize=True, prompts=None, large=None):
    """Writes the model and returns its directory. `words`: another vocabulary than the small one; `prompts`: name -> text;
    `large`: a word whose embedding is beyond what f16 can hold."""
    words = words or vocabulary()
    shape = {"hidden": hidden, "intermediate": intermediate, "layers": layers, "positions": positions,
             "vocabulary": len(words)}
    os.makedirs(os.path.join(directory, "1_Pooling"))
    os.makedirs(os.path.join(directory, "2_Normalize"))

    def put(name, content):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)

    put("config.json", {
        "architectures": ["BertModel"], "model_type": "bert", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": intermediate,
        "layer_norm_eps": 1e-12, "max_position_embeddings": positions, "num_attention_heads": heads,
        "num_hidden_layers": layers, "pad_token_id": 0, "position_embedding_type": "absolute", "torch_dtype": "float32",
        "type_vocab_size": 2, "use_cache": True, "vocab_size": len(words)})
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
    put("modules.json", modules if normalize else modules[:2])
    if prompts is not None:
        put("config_sentence_transformers.json", {"prompts": prompts})
    put("1_Pooling/config.json", {
        "word_embedding_dimension": hidden, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False})
    put("sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    put("tokenizer_config.json", {
        "tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True,
        "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
        "model_max_length": positions})
    put("tokenizer.json", tokenizer_json(words))
    with open(os.path.join(directory, "vocab.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(words) + "\n")
    write_safetensors(os.path.join(directory, "model.safetensors"), enlarge(tensors(shape, seed), large and words.index(large)))
    return directory


def add_modules(directory, chain, pooling="mean", current=False, seed=1):
    """Replaces the modules after the encoder: that pooling, then `chain` of ("Dense", outputs, activation, biased),
    ("LayerNorm",) and ("Normalize",), as sentence-transformers 6 writes them (`current`) or 3 did. Returns the directory."""
    generator = random.Random(seed)
    in_package = {"Transformer": "base.modules.transformer", "Dense": "base.modules.dense", "Normalize": "base.modules.normalize",
                  "Pooling": "sentence_transformer.modules.pooling", "LayerNorm": "sentence_transformer.modules.layer_norm"}
    flags = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
             "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}
    modules = []

    def put(name, content):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            json.dump(content, file)

    def add(kind, config=None, named=()):
        folder = f"{len(modules)}_{kind}" if modules else ""
        where = f"{in_package[kind]}.{kind}" if current else "models." + kind
        modules.append({"idx": len(modules), "name": str(len(modules)), "path": folder, "type": "sentence_transformers." + where})
        if config is not None:
            os.makedirs(os.path.join(directory, folder), exist_ok=True)
            put(os.path.join(folder, "config.json"), config)
        if named:
            write_safetensors(os.path.join(directory, folder, "model.safetensors"), named)

    def draw(mean, spread, *dims):
        count = 1
        for dim in dims:
            count *= dim
        return dims, array.array("f", [generator.gauss(mean, spread) for _ in range(count)])

    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        width = json.load(file)["hidden_size"]
    names = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"} if current else {}
    add("Transformer")
    if current:
        add("Pooling", {"embedding_dimension": width, "pooling_mode": pooling, "include_prompt": True})
    else:
        add("Pooling", {"word_embedding_dimension": width, "include_prompt": True,
                        **{"pooling_mode_" + flag: mode == pooling for mode, flag in flags.items()}})
    for kind, *more in chain:
        if kind == "Dense":
            outputs, activation, biased = more
            group = "linear" if activation == "Identity" else "activation"
            named = [("linear.weight", *draw(0, 1.5 * width ** -0.5, outputs, width)), ("linear.bias", *draw(0, 0.2, outputs))]
            add(kind, {"in_features": width, "out_features": outputs, "bias": biased,
                       "activation_function": f"torch.nn.modules.{group}.{activation}", **names}, named[:1 + biased])
            width = outputs
        elif kind == "LayerNorm":
            add(kind, {"dimension": width}, [("norm.weight", *draw(1, 0.2, width)), ("norm.bias", *draw(0, 0.1, width))])
        else:
            add(kind, names if current else None)
    put("modules.json", modules)
    return directory


# The names of BERT's tensors in the files of other families; None: they have no such tensor.
SPELLINGS = {
    "distilbert": [("embeddings.token_type_embeddings", None), ("encoder.", "transformer."),
                   ("attention.self.query", "attention.q_lin"), ("attention.self.key", "attention.k_lin"),
                   ("attention.self.value", "attention.v_lin"), ("attention.output.dense", "attention.out_lin"),
                   ("attention.output.LayerNorm", "sa_layer_norm"), ("intermediate.dense", "ffn.lin1"),
                   ("output.dense", "ffn.lin2"), ("output.LayerNorm", "output_layer_norm")],
    "mpnet": [("embeddings.token_type_embeddings", None), ("attention.self.query", "attention.attn.q"),
              ("attention.self.key", "attention.attn.k"), ("attention.self.value", "attention.attn.v"),
              ("attention.output.dense", "attention.attn.o"), ("attention.output.LayerNorm", "attention.LayerNorm")],
}
CLASSES = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "mpnet": "MPNet", "modernbert": "ModernBert",
           "qwen3": "Qwen3", "gte": "Gte"}
HEADS = {"bert": {"dense": "bert.pooler.dense", "out": "classifier"},
         "distilbert": {"dense": "pre_classifier", "out": "classifier"},
         "roberta": {"dense": "classifier.dense", "out": "classifier.out_proj"},
         "mpnet": {"dense": "classifier.dense", "out": "classifier.out_proj"},
         "modernbert": {"dense": "head.dense", "out": "classifier"},
         "qwen3": {"out": "score"},
         "gte": {"dense": "gte.pooler.dense", "out": "classifier"}}


def name_in(family, name):
    """The name there, or None."""
    for ours, theirs in SPELLINGS.get(family, []):
        if ours in name and theirs is None:
            return None
        name = name.replace(ours, theirs or ours)
    return f"{family}.{name}"


def modern_tensors(shape, seed):
    """The weights of a ModernBERT, and the norm of its head; it has no biases, and no norm before layer 0."""
    generator = random.Random(seed)
    hidden, inner = shape["hidden"], shape["intermediate"]
    parts = [("attn_norm", hidden), ("attn.Wqkv", 3 * hidden, hidden), ("attn.Wo", hidden, hidden), ("mlp_norm", hidden),
             ("mlp.Wi", 2 * inner, hidden), ("mlp.Wo", hidden, inner)]
    named = [("model.embeddings.tok_embeddings", shape["vocabulary"], hidden), ("model.embeddings.norm", hidden)]
    named += [(f"model.layers.{i}.{part}", *dims) for i in range(shape["layers"]) for part, *dims in parts][1:]
    yield from bare_tensors([*named, ("model.final_norm", hidden), ("head.norm", hidden)], generator)


def qwen_tensors(shape, seed):
    """The weights of a Qwen3 with four heads of queries and two of keys, 12 numbers each."""
    hidden, inner = shape["hidden"], shape["intermediate"]
    parts = [("input_layernorm", hidden), ("self_attn.q_proj", 48, hidden), ("self_attn.k_proj", 24, hidden),
             ("self_attn.v_proj", 24, hidden), ("self_attn.q_norm", 12), ("self_attn.k_norm", 12), ("self_attn.o_proj", hidden, 48),
             ("post_attention_layernorm", hidden), ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden),
             ("mlp.down_proj", hidden, inner)]
    named = [(f"model.layers.{i}.{part}", *dims) for i in range(shape["layers"]) for part, *dims in parts]
    yield from bare_tensors([("model.embed_tokens", shape["vocabulary"], hidden), *named, ("model.norm", hidden)],
                            random.Random(seed))


def gte_tensors(shape, seed):
    """The weights of a GTE with two token types; queries, keys and values as one, no bias before the gate."""
    generator, hidden, inner = random.Random(seed), shape["hidden"], shape["intermediate"]
    parts = [("attention.qkv_proj", 3 * hidden, hidden), ("attention.o_proj", hidden, hidden), ("attn_ln", hidden),
             ("mlp.up_gate_proj", 2 * inner, hidden), ("mlp.down_proj", hidden, inner), ("mlp_ln", hidden)]
    named = [("embeddings.word_embeddings", shape["vocabulary"], hidden), ("embeddings.token_type_embeddings", 2, hidden),
             ("embeddings.LayerNorm", hidden)]
    named += [(f"encoder.layer.{i}.{part}", *dims) for i in range(shape["layers"]) for part, *dims in parts]
    yield from bare_tensors([("gte." + name, *dims) for name, *dims in named], generator)
    for name, rows, *columns in named:
        if not name.endswith("_embeddings") and not name.endswith("up_gate_proj"):
            yield f"gte.{name}.bias", (rows,), array.array("f", [generator.gauss(0, 0.1) for _ in range(rows)])


def bare_tensors(named, generator):
    """The weights of norms and matrices (name, *dims), without biases."""
    for name, *dims in named:
        mean, spread, count = (1, 0.1, dims[0]) if len(dims) == 1 else (0, dims[1] ** -0.5, dims[0] * dims[1])
        yield name + ".weight", tuple(dims), array.array("f", [generator.gauss(mean, spread) for _ in range(count)])


def head_tensors(hidden, labels, seed):
    generator = random.Random(seed)
    for name, rows in (("dense", hidden), ("out", labels)):
        yield name + ".weight", (rows, hidden), array.array("f", [generator.gauss(0, hidden ** -0.5 * 2) for _ in range(rows * hidden)])
        yield name + ".bias", (rows,), array.array("f", [generator.gauss(0, 0.3) for _ in range(rows)])


def write_classifier(directory, seed=1, family="bert", labels=("LABEL_0",), hidden=32, positions=48, config=None, modules=None,
                     tokenizer_class=None):
    """Writes a ...ForSequenceClassification as transformers saves it, and returns its directory. `config`: more fields of
    config.json; `modules`: the activation of a CrossEncoder, which is then written as sentence-transformers 6 saves it;
    `tokenizer_class`: the class that decides what the tokenizer gives."""
    words, behind_padding = vocabulary(), {"roberta": 1, "mpnet": 2}.get(family, 0)  # positions that no token has
    shape = {"hidden": hidden, "intermediate": 2 * hidden, "layers": 2, "positions": positions, "vocabulary": len(words)}

    def put(name, content):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)

    sizes = {"hidden_act": "gelu", "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_attention_heads": 2,
             "num_hidden_layers": 2, "layer_norm_eps": 1e-12, "type_vocab_size": 2}
    if family == "mpnet":
        del sizes["type_vocab_size"]
    if family == "distilbert":
        sizes = {"activation": "gelu", "dim": hidden, "hidden_dim": 2 * hidden, "n_heads": 2, "n_layers": 2}
    if family == "modernbert":
        sizes = {"hidden_activation": "gelu", "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_attention_heads": 2,
                 "num_hidden_layers": 2, "norm_eps": 1e-3, "local_attention": 16}
    if family == "qwen3":
        sizes = {"hidden_act": "silu", "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 12, "num_hidden_layers": 2, "rope_theta": 1000000}
    if family == "gte":
        sizes["rope_parameters"] = {"rope_theta": 160000.0, "rope_type": "default"}
    put("config.json", {
        "architectures": [CLASSES[family] + "ForSequenceClassification"],
        "model_type": family, "max_position_embeddings": positions, "pad_token_id": 0, "vocab_size": len(words),
        "id2label": {str(i): label for i, label in enumerate(labels)}, "label2id": {label: i for i, label in enumerate(labels)},
        **sizes, **(config or {})})
    put("tokenizer_config.json", {
        "tokenizer_class": tokenizer_class or {"bert": "BertTokenizer", "gte": "BertTokenizer", "distilbert": "DistilBertTokenizer"}.get(family, "PreTrainedTokenizerFast"),
        "do_lower_case": True, "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
        "mask_token": "[MASK]", "model_max_length": positions - behind_padding,
        **({} if family in ("bert", "gte") or tokenizer_class else {"model_input_names": ["input_ids", "attention_mask"]})})
    tokenizer = tokenizer_json(words)
    if behind_padding:  # the template of these families, with the others' words
        piece = lambda word: {"SpecialToken": {"id": word, "type_id": 0}}
        text = lambda name: {"Sequence": {"id": name, "type_id": 0}}
        tokenizer["post_processor"]["pair"] = [piece("[CLS]"), text("A"), piece("[SEP]"), piece("[SEP]"), text("B"), piece("[SEP]")]
    put("tokenizer.json", tokenizer)
    if modules:
        put("modules.json", [{"idx": 0, "name": "0", "path": "",
                              "type": "sentence_transformers.base.modules.transformer.Transformer"}])
        put("sentence_bert_config.json", {
            "transformer_task": "sequence-classification", "module_output_name": "scores",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}})
        put("config_sentence_transformers.json", {"activation_fn": modules, "default_prompt_name": None,
                                                  "model_type": "CrossEncoder", "prompts": {}})
    if family in ("modernbert", "qwen3"):
        names = list((modern_tensors if family == "modernbert" else qwen_tensors)(shape, seed))
    elif family == "gte":
        names = list(gte_tensors(shape, seed))
    else:
        names = [(name_in(family, name), dims, values) for name, dims, values in tensors(shape, seed)]
    names += [(HEADS[family][name.split(".")[0]] + "." + name.split(".")[1], dims, values)
              for name, dims, values in head_tensors(hidden, len(labels), seed)
              if name.split(".")[0] in HEADS[family] and
              ((family, name) not in (("modernbert", "dense.bias"), ("qwen3", "out.bias")) or (config or {}).get("classifier_bias"))]
    if family == "mpnet":
        generator = random.Random(seed)
        names.append(("mpnet.encoder.relative_attention_bias.weight", (32, 2), array.array("f", [generator.gauss(0, 1) for _ in range(64)])))
    write_safetensors(os.path.join(directory, "model.safetensors"), [named for named in names if named[0]])
    return directory


if __name__ == "__main__":
    write_model(sys.argv[1], seed=int(sys.argv[2]) if len(sys.argv) > 2 else 1)

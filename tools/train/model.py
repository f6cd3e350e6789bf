"""The encoder: a transformers BertModel for its parameters and files, with a faster forward pass
for training on CPUs (bf16 throughout, weights stay f32), a start from word statistics, and the
export to a sentence-transformers folder."""
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MAX_TOKENS = 256


def train_tokenizer(texts, size, path):
    """Uncased WordPiece, as BERT's."""
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.train_from_iterator(texts, trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=SPECIAL, min_frequency=2, limit_alphabet=128,
        continuing_subword_prefix="##", show_progress=False))
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tok.decoder = decoders.WordPiece(prefix="##")
    tok.save(path)
    return tok


def new_model(args):
    return BertModel(BertConfig(
        vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=args.hidden // 32, intermediate_size=4 * args.hidden,
        max_position_embeddings=MAX_TOKENS, hidden_act="gelu", layer_norm_eps=1e-12,
        pad_token_id=0), add_pooling_layer=False)


def start_from_counts(model, tokens, window=6):
    """Word vectors to start with: the leading factors of the words' positive pointwise mutual
    information. tokens is one flat array in which 0 separates the texts."""
    vocab, width = model.embeddings.word_embeddings.weight.shape
    counts = np.zeros(vocab * vocab, np.float32)
    for gap in range(1, window + 1):
        left, right = tokens[:-gap].astype(np.int64), tokens[gap:]
        pairs = np.bincount(left * vocab + right, minlength=vocab * vocab)
        counts += pairs.astype(np.float32) / gap
    counts = torch.from_numpy(counts).view(vocab, vocab)
    counts = counts + counts.T
    counts[:5] = 0
    counts[:, :5] = 0
    total = counts.sum(1, keepdim=True)
    smooth = total.T.clamp(min=1e-9) ** 0.75
    smooth = smooth / smooth.sum()
    info = (counts / total.clamp(min=1e-9) / smooth).clamp(min=1e-9).log().clamp(min=0)
    left, scale, _ = torch.svd_lowrank(info, q=width, niter=4)
    words = left * scale.sqrt()
    words = words / words[5:].norm(dim=1).mean() * 0.2 * width ** 0.5
    with torch.no_grad():
        words[:5] = torch.randn(5, width) * 0.1
        model.embeddings.word_embeddings.weight.copy_(words)
        model.embeddings.token_type_embeddings.weight.zero_()


def layers(model, ids, inside, kinds=None):
    """The outputs of the embeddings and of each layer for a padded batch, [rows, tokens, hidden],
    computed in bf16. kinds are the token types, all 0 if there are none."""
    low = torch.bfloat16
    embed, heads = model.embeddings, model.config.num_attention_heads
    rows, cols = ids.shape

    def norm(x, ln):
        return F.layer_norm(x, x.shape[-1:], ln.weight.to(low), ln.bias.to(low), 1e-12)

    def linear(x, weight, bias):
        return F.linear(x, weight.to(low), bias.to(low))

    place = embed.position_embeddings.weight[:cols] + embed.token_type_embeddings.weight[0 if kinds is None else kinds]
    x = F.embedding(ids, embed.word_embeddings.weight).to(low) + place.to(low)
    x = norm(x, embed.LayerNorm)
    out = [x]
    hide = torch.where(inside, 0.0, -1e4).to(low)[:, None, None]
    for layer in model.encoder.layer:
        own, after = layer.attention.self, layer.attention.output
        scale = (x.shape[-1] // heads) ** -0.5
        weight = torch.cat([own.query.weight * scale, own.key.weight, own.value.weight])
        bias = torch.cat([own.query.bias * scale, own.key.bias, own.value.bias])
        q, k, v = linear(x, weight, bias).view(rows, cols, 3, heads, -1).permute(2, 0, 3, 1, 4)
        share = (q @ k.transpose(-1, -2) + hide).softmax(-1)
        mixed = (share @ v).transpose(1, 2).reshape(rows, cols, -1)
        x = norm(x + linear(mixed, after.dense.weight, after.dense.bias), after.LayerNorm)
        wide = F.gelu(linear(x, layer.intermediate.dense.weight, layer.intermediate.dense.bias))
        x = norm(x + linear(wide, layer.output.dense.weight, layer.output.dense.bias),
                 layer.output.LayerNorm)
        out.append(x)
    return out


def forward(model, ids, lengths):
    """Mean-pooled, normalised vectors of a padded batch, computed in bf16."""
    inside = torch.arange(ids.shape[1])[None] < lengths[:, None]
    x = layers(model, ids, inside)[-1]
    pooled = (x.float() * inside[..., None]).sum(1) / lengths[:, None]
    return F.normalize(pooled, dim=-1)


def chunks(rows, budget=4096):
    """Split token rows, longest last, into padded chunks of about as many tokens and of few
    different widths: yields (which rows, ids, lengths)."""
    order, at = sorted(range(len(rows)), key=lambda i: len(rows[i])), 0
    while at < len(order):
        count = width = 0
        for i in order[at:]:
            wider = min(MAX_TOKENS, -(-len(rows[i]) // 4) * 4)
            if count and (count + 1) * wider > budget:
                break
            count, width = count + 1, wider
        which = order[at: at + count]
        at += count
        ids = torch.zeros(count, width, dtype=torch.long)
        for i, number in enumerate(which):
            ids[i, : len(rows[number])] = torch.as_tensor(np.asarray(rows[number], dtype=np.int64))
        yield which, ids, torch.tensor([len(rows[number]) for number in which])


def in_order(parts, vectors):
    """The chunks' vectors as one matrix in the order of the rows."""
    order = torch.tensor([i for which, _, _ in parts for i in which])
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return torch.cat(vectors)[back]


def encode_ids(run, rows):
    parts = list(chunks(rows))
    return in_order(parts, [run(ids, lengths) for _, ids, lengths in parts])


class Workers:
    """Runs the chunks of a batch on single-threaded workers, which a busy machine slows less than
    threads that wait for each other in every operation."""

    def __init__(self, count):
        self.pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))

    def step(self, model, rows, loss_of):
        """Forward, loss over the whole batch, backward; the gradients stay in the parameters."""
        parts = sorted(chunks(rows), key=lambda part: -part[1].numel())
        vectors = list(self.pool.map(lambda part: forward(model, part[1], part[2]), parts))
        leaves = [v.detach().requires_grad_() for v in vectors]
        loss = loss_of(in_order(parts, leaves))
        loss.backward()
        list(self.pool.map(lambda v, leaf: v.backward(leaf.grad), vectors, leaves))
        return loss.item()


def reference(model):
    """The plain transformers forward pass in f32, for measuring."""
    def run(ids, lengths):
        mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
        with torch.no_grad():
            x = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return F.normalize((x * mask[..., None]).sum(1) / lengths[:, None], dim=-1)
    return run


def put_json(folder, name, value):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)
        out.write("\n")


def export(model, tokenizer_path, folder):
    """Write a sentence-transformers folder: f16 weights, tokenizer, pooling, normalising."""
    os.makedirs(folder, exist_ok=True)
    state = {k: v.detach().to(torch.float16).contiguous() for k, v in model.state_dict().items()
             if not k.startswith("pooler.") and not k.endswith("_ids")}
    save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    shape = model.config
    put_json(folder, "config.json", {
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size, "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "intermediate_size": shape.intermediate_size, "hidden_act": "gelu",
        "max_position_embeddings": MAX_TOKENS, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "pad_token_id": 0,
        "torch_dtype": "float16"})
    shutil.copy(tokenizer_path, os.path.join(folder, "tokenizer.json"))
    words = Tokenizer.from_file(tokenizer_path).get_vocab()
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as out:
        out.writelines(w + "\n" for w in sorted(words, key=words.get))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL))
    put_json(folder, "special_tokens_map.json", names)
    put_json(folder, "tokenizer_config.json", {
        **names, "tokenizer_class": "BertTokenizer", "do_lower_case": True, "do_basic_tokenize": True,
        "strip_accents": None, "tokenize_chinese_chars": True, "model_max_length": MAX_TOKENS})
    part = "sentence_transformers.models."
    put_json(folder, "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": part + "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": part + "Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": part + "Normalize"}])
    put_json(folder, "1_Pooling/config.json", {
        "word_embedding_dimension": shape.hidden_size, "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False})
    put_json(folder, "2_Normalize/config.json", {})
    put_json(folder, "sentence_bert_config.json",
             {"max_seq_length": MAX_TOKENS, "do_lower_case": False})
    put_json(folder, "config_sentence_transformers.json", {
        "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"})


def export_beside(base, folder, shared, own, config):
    """Write the folder of a model that takes the tensors `shared` from the model in `base` through links, and has those
    of `own` in f16 in head.safetensors. `config` has the fields that differ."""
    os.makedirs(folder, exist_ok=True)
    for name, target in (("encoder.safetensors", "model.safetensors"), ("tokenizer.json", "tokenizer.json"),
                         ("tokenizer_config.json", "tokenizer_config.json")):
        if not os.path.islink(os.path.join(folder, name)):
            os.symlink(os.path.join("..", os.path.basename(base), target), os.path.join(folder, name))
    save_file({k: v.to(torch.float16) for k, v in own.items()}, os.path.join(folder, "head.safetensors"), metadata={"format": "pt"})
    put_json(folder, "model.safetensors.index.json", {"metadata": {}, "weight_map": {
        **dict.fromkeys(shared, "encoder.safetensors"), **dict.fromkeys(own, "head.safetensors")}})
    with open(os.path.join(base, "config.json"), encoding="utf-8") as file:
        put_json(folder, "config.json", {**json.load(file), "architectures": ["BertForSequenceClassification"], **config})


def load_exported(folder):
    config = BertConfig.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, config=config, add_pooling_layer=False,
                                      dtype=torch.float32)
    return model.eval()

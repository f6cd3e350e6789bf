"""llama.cpp: the encoder as GGUF in f32, bf16 and q8_0. It gets the rows of a batch one after the other, without padding."""
import json

import numpy as np

import worker
from with_ctranslate2 import weights_of


def write_words(writer, material):
    """Writes the vocabulary in llama.cpp's form of WordPiece: a mark before words, and continuations without the two
    signs."""
    import gguf
    words = json.loads((material / "model/tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(words, key=words.get)
    special = [word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") for word in words]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([word if marked else word[2:] if word.startswith("##") else "\u2581" + word
                           for word, marked in zip(words, special)])
    writer.add_token_types([gguf.TokenType.CONTROL if marked else gguf.TokenType.NORMAL for marked in special])
    for name, add in (("[PAD]", writer.add_pad_token_id), ("[UNK]", writer.add_unk_token_id), ("[CLS]", writer.add_bos_token_id),
                      ("[SEP]", writer.add_sep_token_id), ("[SEP]", writer.add_eos_token_id)):
        add(words.index(name))


def prepare(material, variant):
    import gguf
    target = material / f"llama/{variant}.gguf"
    if target.exists():
        return
    target.parent.mkdir(exist_ok=True)
    shape = json.loads((material / "shape.json").read_text())
    part = target.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "bert")
    writer.add_block_count(shape["layers"])
    writer.add_context_length(512)
    writer.add_embedding_length(shape["hidden"])
    writer.add_feed_forward_length(shape["inner"])
    writer.add_head_count(shape["heads"])
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.CLS if shape["pooling"] == "cls" else gguf.PoolingType.MEAN)
    writer.add_token_type_count(2)
    write_words(writer, material)
    kind = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16,
            "q8_0": gguf.GGMLQuantizationType.Q8_0}[variant]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, shape["layers"])
    for name, values in weights_of(material / "model/model.safetensors").items():
        # Vectors, positions and token types stay in f32, as in its own converter.
        small = values.ndim == 1 or "position_embeddings" in name or "token_type" in name
        own = gguf.GGMLQuantizationType.F32 if small else kind
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), gguf.quants.quantize(values, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(target)


BATCH_TOKENS = 512  # attention runs over all tokens of a batch with a mask, so larger batches only cost more


def without_own_layouts(llama_cpp):
    """On a processor with AMX, products of q8_0 weights in the AMX layout end with a segmentation fault
    (ggml_backend_amx_mul_mat); so the weights keep the file's layout. Llama's arguments do not include this switch."""
    import llama_cpp.llama_cpp as bindings
    defaults = bindings.llama_model_default_params

    def params():
        plain = defaults()
        plain.use_extra_bufts = False
        return plain

    bindings.llama_model_default_params = llama_cpp.llama_model_default_params = params


class Peer:
    def __init__(self, material, variant, lanes, threads):
        import llama_cpp
        if variant == "q8_0":
            without_own_layouts(llama_cpp)
        self.api, self.dim = llama_cpp, json.loads((material / "shape.json").read_text())["hidden"]
        self.model = llama_cpp.Llama(str(material / f"llama/{variant}.gguf"), embedding=True, n_ctx=BATCH_TOKENS,
                                     n_batch=BATCH_TOKENS, n_ubatch=BATCH_TOKENS, n_threads=threads, n_threads_batch=threads,
                                     verbose=False)

    def decode(self, rows):
        """The vectors of the rows of one batch."""
        batch, context = self.model._batch, self.model._ctx
        batch.reset()
        for number, row in enumerate(rows):
            batch.add_sequence(row, number, True)
        context.kv_cache_clear()
        context.decode(batch)
        return [np.ctypeslib.as_array(self.api.llama_get_embeddings_seq(context.ctx, number), (self.dim,)).copy()
                for number in range(len(rows))]

    def forward(self, lane, ids, mask):
        vectors, rows, tokens = [], [], 0
        for row, length in zip(ids.tolist(), mask.sum(1).tolist()):
            if tokens + length > BATCH_TOKENS:
                vectors += self.decode(rows)
                rows, tokens = [], 0
            rows.append(row[:length])
            tokens += length
        vectors = np.stack(vectors + self.decode(rows))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    worker.main(Peer, prepare)

"""CTranslate2: the encoder in its own format, in f32, int8 and int8 with bf16 around it; pooling in NumPy."""
import json

import numpy as np

import worker

COMPUTE = {"f32": "float32", "bf16": "bfloat16", "int8": "int8", "int8_bf16": "int8_bfloat16"}
STORED = {"f32": "float32", "bf16": "float32", "int8": "int8", "int8_bf16": "int8"}


def weights_of(path):
    """Returns {name: f32 array} of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data, "<f4", offset=8 + size + entry["data_offsets"][0],
                                count=int(np.prod(entry["shape"]))).reshape(entry["shape"]).copy()
            for name, entry in header.items()}


def fill(spec, weights, layers):
    def linear(to, *names):
        to.weight = np.concatenate([weights[name + ".weight"] for name in names])
        to.bias = np.concatenate([weights[name + ".bias"] for name in names])

    def norm(to, name):
        to.gamma, to.beta = weights[name + ".weight"], weights[name + ".bias"]

    spec.embeddings[0].weight = weights["embeddings.word_embeddings.weight"]
    spec.embeddings[1].weight = weights["embeddings.token_type_embeddings.weight"]
    spec.position_encodings.encodings = weights["embeddings.position_embeddings.weight"]
    norm(spec.layernorm_embedding, "embeddings.LayerNorm")
    for number in range(layers):
        layer, name = spec.layer[number], f"encoder.layer.{number}."
        linear(layer.self_attention.linear[0], *(name + f"attention.self.{part}" for part in ("query", "key", "value")))
        linear(layer.self_attention.linear[1], name + "attention.output.dense")
        norm(layer.self_attention.layer_norm, name + "attention.output.LayerNorm")
        linear(layer.ffn.linear_0, name + "intermediate.dense")
        linear(layer.ffn.linear_1, name + "output.dense")
        norm(layer.ffn.layer_norm, name + "output.LayerNorm")


def prepare(material, variant):
    folder = material / f"ctranslate2-{variant}"
    if (folder / "model.bin").exists():
        return
    from ctranslate2.specs import TransformerEncoderModelSpec, TransformerEncoderSpec, common_spec
    shape = json.loads((material / "shape.json").read_text())
    encoder = TransformerEncoderSpec(shape["layers"], shape["heads"], pre_norm=False, activation=common_spec.Activation.GELU,
                                     layernorm_embedding=True, num_source_embeddings=2,
                                     embeddings_merge=common_spec.EmbeddingsMerge.ADD)
    encoder.scale_embeddings = False
    fill(encoder, weights_of(material / "model/model.safetensors"), shape["layers"])
    spec = TransformerEncoderModelSpec(encoder)
    spec.register_vocabulary(list(json.loads((material / "model/tokenizer.json").read_text())["model"]["vocab"]))
    spec.config.layer_norm_epsilon = 1e-12
    spec.config.unk_token = "[UNK]"
    spec.validate()
    spec.optimize(quantization=STORED[variant])
    folder.mkdir()
    spec.save(str(folder))


class Peer:
    def __init__(self, material, variant, lanes, threads):
        import ctranslate2
        shape = json.loads((material / "shape.json").read_text())
        self.encoder = ctranslate2.Encoder(str(material / f"ctranslate2-{variant}"), device="cpu", inter_threads=lanes,
                                           intra_threads=threads, compute_type=COMPUTE[variant])
        self.storage, self.float32 = ctranslate2.StorageView, ctranslate2.DataType.float32
        self.dim, self.cls = shape["hidden"], shape["pooling"] == "cls"

    def forward(self, lane, ids, mask):
        lengths = mask.sum(1).astype(np.int32)
        output = self.encoder.forward_batch(self.storage.from_array(ids.astype(np.int32)), self.storage.from_array(lengths),
                                            token_type_ids=np.zeros_like(ids).tolist())
        hidden = np.array(output.last_hidden_state.to(self.float32))
        pooled = hidden[:, 0] if self.cls else (hidden * mask[:, :, None]).sum(1, dtype=np.float32) / lengths[:, None]
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


if __name__ == "__main__":
    worker.main(Peer, prepare)

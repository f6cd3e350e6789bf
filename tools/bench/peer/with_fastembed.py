"""fastembed: from texts to vectors with its own tokenising and batching around ONNX Runtime, in f32."""
import json
import shutil

import numpy as np

import worker


def prepare(material, variant):
    folder = material / "fastembed"
    if (folder / "model.onnx").exists():
        return
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(material / "model" / name, folder)
    shutil.copy(material / "onnx/model.onnx", folder)


class Peer:
    def __init__(self, material, variant, lanes, threads):
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType
        self.dim = json.loads((material / "shape.json").read_text())["hidden"]
        TextEmbedding.add_custom_model("bench/model", PoolingType.DISABLED, False, ModelSource(hf="bench/model"), self.dim,
                                       model_file="model.onnx")
        self.model = TextEmbedding("bench/model", threads=threads, specific_model_path=str(material / "fastembed"))

    def encode(self, texts, rows):
        return np.array(list(self.model.embed(texts, batch_size=rows)))


if __name__ == "__main__":
    worker.main(Peer, prepare)

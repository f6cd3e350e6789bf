"""sentence-transformers on torch's CPU backend, plain and with torch.compile; in f32, or entirely in bf16.

`prepare` also makes the files from which the others start: the graph in ONNX and the reference in float64."""
import json
import os

import worker


def reference(material):
    """Embeds every probe alone, and so without padding, in float64."""
    import encoder
    import torch
    model = encoder.load(material, torch.float64)
    with torch.inference_mode():
        rows = [torch.from_numpy(row)[None] for row in worker.Loads(material / "loads").ids("probe")]
        vectors = torch.cat([model(row, torch.ones_like(row)) for row in rows]).numpy()
    vectors.tofile(material / "part")
    os.replace(material / "part", material / "reference.f64")


def export(material):
    import encoder
    import torch
    (material / "onnx").mkdir(exist_ok=True)
    ids, mask = torch.randint(5, 1000, (2, 9)), torch.ones(2, 9, dtype=torch.int64)
    axes = {name: {0: "rows", 1: "tokens"} for name in ("input_ids", "attention_mask")} | {"embedding": {0: "rows"}}
    with torch.no_grad():
        torch.onnx.export(encoder.load(material, torch.float32), (ids, mask), str(material / "onnx/part"), opset_version=17,
                          input_names=["input_ids", "attention_mask"], output_names=["embedding"], dynamic_axes=axes,
                          dynamo=False)
    os.replace(material / "onnx/part", material / "onnx/model.onnx")


def prepare(material, variant):
    has_golden_test = "family" in json.loads((material / "shape.json").read_text())
    if not has_golden_test and not (material / "reference.f64").exists():
        reference(material)
    if not (material / "onnx/model.onnx").exists():
        export(material)


def dtype_of(variant):
    import torch
    return torch.bfloat16 if variant.startswith("bf16") else torch.float32


class SentenceTransformers:
    def __init__(self, material, variant):
        from sentence_transformers import SentenceTransformer
        dtype = dtype_of(variant)
        self.model = SentenceTransformer(str(material / "model"), device="cpu", local_files_only=True,
                                         model_kwargs={"dtype": dtype, "attn_implementation": "sdpa"}).eval()
        if next(self.model[0].parameters()).dtype != dtype:
            self.model = self.model.to(dtype)

    def forward(self, lane, ids, mask):
        import torch
        with torch.inference_mode():
            features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
            return self.model.forward(features)["sentence_embedding"].float().numpy()

    def encode(self, texts, rows):
        return self.model.encode(texts, batch_size=rows, show_progress_bar=False)


class Compiled:
    """The graph of encoder.py with packed weights, compiled for the first shape, then once more for any shape."""

    def __init__(self, material, variant):
        import encoder
        import torch
        import torch._inductor.config
        torch._inductor.config.freezing = True
        self.run = torch.compile(encoder.load(material, dtype_of(variant), fused=True))

    def forward(self, lane, ids, mask):
        import torch
        with torch.no_grad():  # a frozen graph refuses inference_mode
            return self.run(torch.from_numpy(ids), torch.from_numpy(mask)).float().numpy()


def open_peer(material, variant, lanes, threads):
    import torch
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    peer = (Compiled if variant.endswith("-compile") else SentenceTransformers)(material, variant)
    peer.dim = json.loads((material / "shape.json").read_text())["hidden"]
    return peer


if __name__ == "__main__":
    worker.main(open_peer, prepare)

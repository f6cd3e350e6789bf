"""ONNX Runtime: the exported graph with its transformer fusions, in f32 and with dynamically quantised weights."""
import json
import shutil

import worker


def fold_constants(source, target):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    ort.InferenceSession(str(source), options, ["CPUExecutionProvider"])


def prepare(material, variant):
    """f32: attention, LayerNorm, GELU and their residual sums fused; int8: the same, quantised by output channel."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    shape, folder = json.loads((material / "shape.json").read_text()), material / "onnxruntime"
    folder.mkdir(exist_ok=True)
    target = folder / f"{variant}.onnx"
    if target.exists():
        return
    fold_constants(material / "onnx/model.onnx", folder / "folded.onnx")  # or the optimizer would do it with torch
    fused = optimizer.optimize_model(str(folder / "folded.onnx"), model_type="bert", num_heads=shape["heads"],
                                     hidden_size=shape["hidden"], opt_level=0)
    print(fused.get_fused_operator_statistics())
    fused.save_model_to_file(str(folder / "fused.onnx"))
    if variant == "int8":
        quantize_dynamic(str(folder / "fused.onnx"), str(folder / "part"), per_channel=True, weight_type=QuantType.QInt8,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})  # fused operators hide their types
        (folder / "part").rename(target)
    else:
        shutil.copy(folder / "fused.onnx", target)


class Peer:
    def __init__(self, material, variant, lanes, threads):
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        # Lanes share a session and its weights; with one thread each, the calling threads do the work.
        self.session = ort.InferenceSession(str(material / f"onnxruntime/{variant}.onnx"), options, ["CPUExecutionProvider"])
        self.dim = json.loads((material / "shape.json").read_text())["hidden"]

    def forward(self, lane, ids, mask):
        return self.session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


if __name__ == "__main__":
    worker.main(Peer, prepare)

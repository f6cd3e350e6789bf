"""OpenVINO: the exported graph in f32 and bf16, and quantised by NNCF's post-training method for transformers,
calibrated on texts of the same kind. Operations that stay unquantised run in bf16 if the processor has it, which is
OpenVINO's default."""
import json
import os
import pathlib

import worker


def prepare(material, variant):
    folder = material / "openvino"
    target = folder / ("int8.xml" if variant == "int8" else "float.xml")
    if target.exists():
        return
    import nncf
    import openvino
    folder.mkdir(exist_ok=True)
    model = openvino.Core().read_model(material / "onnx/model.onnx")
    if variant == "int8":
        loads = worker.Loads(material / "loads")
        rows = loads.ids("mixed")[-128:] + loads.ids("ranking")[::32]
        batches = [dict(zip(("input_ids", "attention_mask"), worker.padded([row]))) for row in rows]
        model = nncf.quantize(model, nncf.Dataset(batches), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(rows))
    openvino.save_model(model, target, compress_to_fp16=False)


def has_bf16():
    """Returns whether the processor has bf16; OpenVINO also says so where its bf16 is a plain loop."""
    return ("avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
            and os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16") == "AVX512_CORE_BF16")


class Peer:
    def __init__(self, material, variant, lanes, threads):
        import openvino
        if variant == "bf16" and not has_bf16():
            raise SystemExit("no instructions for bf16")
        settings = {"INFERENCE_PRECISION_HINT": "f32" if variant == "f32" or not has_bf16() else "bf16",
                    "NUM_STREAMS": str(lanes), "INFERENCE_NUM_THREADS": str(lanes * threads),
                    "PERFORMANCE_HINT": "LATENCY" if lanes == 1 else "THROUGHPUT"}
        file = material / "openvino" / ("int8.xml" if variant == "int8" else "float.xml")
        compiled = openvino.Core().compile_model(file, "CPU", settings)
        self.requests = [compiled.create_infer_request() for _ in range(lanes)]
        self.dim = json.loads((material / "shape.json").read_text())["hidden"]

    def forward(self, lane, ids, mask):
        request = self.requests[lane]
        request.infer({"input_ids": ids, "attention_mask": mask}, share_inputs=True)
        return request.get_output_tensor().data


if __name__ == "__main__":
    worker.main(Peer, prepare)

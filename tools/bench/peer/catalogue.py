"""The engines to compare, their variants and packages. Variants that do not exist or do not run are listed, too: the
run finds out why."""
import dataclasses
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
THREADS = 2
PRECISIONS = ("f32", "bf16", "int8")
OURS = "sluice"
RIVALS = ("openvino", "onnxruntime")  # the best peers nearly everywhere so far
# The shapes with trained weights, and their names in tests/support/published.py. int8 is measured on no others: what it
# costs depends on the weights.
TRAINED = {"minilm": "all-MiniLM-L6-v2", "mpnet-base": "all-mpnet-base-v2"}

# The columns measured for the families other than BERT.
FAMILIES = {"xlmr-base": ("fixed", "docs"), "modernbert-base": ("fixed", "long"), "qwen3-0.6b": ("fixed",)}

# SLUICE_ISA -> oneDNN's name for it; oneDNN runs OpenVINO's products, too.
ONEDNN_ISAS = {"avx512_bf16": "AVX512_CORE_BF16", "avx512_vnni": "AVX512_CORE_VNNI", "avx512": "AVX512_CORE",
               "avx2_vnni": "AVX2_VNNI", "avx2": "AVX2"}
RESTRICTABLE = ("openvino",)  # ONNX Runtime has no setting for it


@dataclasses.dataclass(frozen=True)
class Engine:
    peer: str
    precision: str        # the column of the table: f32, bf16 or int8; "" where it does not matter
    variant: str          # the argument of its script
    lanes: int            # batches side by side; the threads are shared out among them
    script: str           # with_X.py, or "" for ours
    packages: str = ""    # requirements/X.txt; "" for the packages of the tests
    columns: tuple = ("fixed", "job", "windows", "docs", "long", "one", "start", "accuracy", "ranking")

    @property
    def key(self):
        if not self.precision:
            return self.peer
        lanes = f" {self.lanes}x{THREADS // self.lanes}" if self.lanes > 1 else ""
        special = f" {self.variant}" if self.variant not in (self.precision, self.precision + "-compile") else ""
        return f"{self.peer}{special}{lanes} {self.precision}".strip()


def _engines():
    for precision in PRECISIONS:
        yield Engine(OURS, precision, precision, 1, "", columns=Engine.columns + ("text", "share"))
    yield Engine(OURS, "", "f32", 1, "", columns=("tokenizer", "document"))
    for precision in ("f32", "bf16"):
        yield Engine("sentence-transformers", precision, precision, 1, "torch", "torch", Engine.columns + ("text",))
        yield Engine("torch.compile", precision, precision + "-compile", 1, "torch", "torch")
    for lanes in (1, 2):
        for precision in ("f32", "int8"):
            yield Engine("onnxruntime", precision, precision, lanes, "onnxruntime", "onnxruntime")
        for precision in PRECISIONS:
            yield Engine("openvino", precision, precision, lanes, "openvino", "openvino")
        for precision in PRECISIONS:
            yield Engine("ctranslate2", precision, precision, lanes, "ctranslate2", "ctranslate2")
    yield Engine("ctranslate2", "int8", "int8_bf16", 1, "ctranslate2", "ctranslate2")
    for precision, variant in (("f32", "f32"), ("bf16", "bf16"), ("int8", "q8_0")):
        yield Engine("llama.cpp", precision, variant, 1, "llama", "llama")
    yield Engine("fastembed", "f32", "f32", 1, "fastembed", "fastembed", ("text", "start"))
    yield Engine("tokenizers", "", "fast", 1, "tokenizers", "", ("tokenizer", "document"))


ENGINES = tuple(_engines())


def choose(columns, peers=None, precisions=None, engines=ENGINES):
    """The engines that can be measured in these columns; ours are always among them."""
    return [engine for engine in engines if set(engine.columns) & set(columns)
            and (not peers or engine.peer in (*peers, OURS) or "all" in peers)
            and (not precisions or not engine.precision or engine.precision in precisions)]

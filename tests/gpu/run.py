#!/usr/bin/env python3
"""The GPU check: one list of parts, most telling first, as many as fit into the given seconds, and one table at the end.

    tests/gpu/run.py --seconds N --out FOLDER [--from PART | PART...]

It runs out of an archive of tests/gpu/pack.sh, or beside a build, on a machine with an NVIDIA GPU and a Python with torch,
transformers and sentence-transformers. Nothing is fetched. A part may take its own seconds and what parts before it left of
theirs; then it is cut short. A failed part runs once more with CUDA_LAUNCH_BLOCKING=1 if time is left in the end.
FOLDER/results.tar.gz is written anew after every part: summary.txt, each part's output, and its figures as JSON.

Exit code: 0 all asked parts passed; 1 something failed; 3 the rest did not fit, and --from goes on there."""
import argparse
import glob
import importlib.util
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time

from check import commit, said

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACK = ROOT / "pack"
NO_GPU = "cudaErrorInsufficientDriver|cudaErrorNoDevice|driver version is insufficient|no CUDA-capable device"
TELLING = r"WRONG|FAILED|DIFFERENT|not here|SUMMARY|[Ee]rror|tokens/s|texts/s|TFLOP|p50| us |flash|worst cosine| \| "


class Tools:
    """The commands that parts are made of; without a GPU, those of tiny models on the CPU."""

    def __init__(self, options):
        self.options, self.programs, self.json = options, options.built / "tests", None
        has_torch = importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")
        self.reference = ["--reference", "transformers" if has_torch else "numpy"]

    def script(self, name, *words, before=()):
        driver = shlex.join(map(str, [*before, self.programs / "gpu_check"]))
        return [sys.executable, "-B", HERE / f"{name}.py", *words, "--driver", driver, "--work", self.options.out / "work",
                "--backend", "cpu" if self.options.no_gpu else "cuda"]

    def shapes(self, names):
        tiny = {"minilm": "tiny", "bert-large": "tiny", "bert-base": "tiny-cls", "bge-small": "tiny-cls"}
        if self.options.no_gpu:
            names = ",".join(tiny.get(name, f"tiny-{name}") for name in names.split(","))
        return ["--shapes", names]

    def check(self, kind, names, *words):
        words = [*words, "--quick"] if self.options.no_gpu else words
        return [self.script("check", kind, *self.shapes(names), *self.reference, "--json", self.json, *words)]

    def whole(self, *words):
        small = ["--texts", 1000, "--batch-tokens", 1024, "--prep-threads", 1] if self.options.no_gpu else []
        return [self.script("e2e", *words, *self.shapes("minilm,bert-base"), *self.reference, "--json", self.json, *small)]

    def kernels(self, before=()):
        found = sorted(self.programs.glob("gpu_kernels_*"))
        if not found:
            raise OSError(f"no kernel tests in {self.programs}")
        few = ["the_same_operands_give_the_same_bits"] if before else []  # not the 270 products beside f64
        return [[*before, program, *(few if program.name == "gpu_kernels_products" else [])] for program in found]

    def attention(self):
        return [[self.programs / "gpu_attention", "--json", self.json], self.script("attention", "--ours", self.json)]

    def sanitizer(self, tool, *words):
        """A forward pass, and with memcheck the kernels. All kernels are looked at: a filter of names breaks racecheck."""
        before = ["env", "SLUICE_UNTIMED=1"]
        if not self.options.no_gpu:
            before += ["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, "--print-limit", 20, "--target-processes", "all"]
        return [self.script("forward_once", *words, before=before), *(self.kernels(before) if tool == "memcheck" else [])]


# Name, seconds, commands. The first call takes 5 minutes: numbers and our own speed. The second takes 6: others beside
# ours, the host's part, sanitizers. The last parts have all lengths of all shapes.
PARTS = [
    ("numbers", 60, lambda t: t.check("numbers", "minilm,bert-base,overflow,modernbert", "--quick")),
    ("bench", 110, lambda t: t.check("bench", "minilm,bert-base", "--no-peers")),
    ("kernels", 60, lambda t: t.kernels()),
    ("attention", 30, lambda t: t.attention()),
    ("profile", 20, lambda t: [t.script("kernel_times", *t.shapes("bert-base,minilm"))]),
    ("peers", 110, lambda t: t.check("bench", "bert-base,minilm", "--no-compile")),
    ("bulk", 50, lambda t: t.whole("--bulk", "--texts", 400000)),
    ("e2e", 80, lambda t: t.whole()),
    ("memcheck", 75, lambda t: t.sanitizer("memcheck")),
    ("racecheck", 45, lambda t: t.sanitizer("racecheck", "--models", "tiny")),
    ("numbers-rotary", 70, lambda t: t.check("numbers", "modernbert,nomic,gte,qwen3,gemma3")),
    ("numbers-bert", 300, lambda t: t.check("numbers", "minilm,overflow,bert-base,bge-small,bert-large")),
    ("bench-others", 120, lambda t: t.check("bench", "bert-large,modernbert", "--no-peers")),
    ("initcheck", 60, lambda t: t.sanitizer("initcheck")),
    ("synccheck", 60, lambda t: t.sanitizer("synccheck")),
]
NAMES = [name for name, _, _ in PARTS]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all: {', '.join(NAMES)}")
    parser.add_argument("--from", dest="first", default=NAMES[0], choices=NAMES, metavar="PART", help="it and those after it")
    parser.add_argument("--seconds", type=int, default=3600, help="for everything together")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--built", type=pathlib.Path, default=PACK if PACK.exists() else ROOT / "build/release")
    parser.add_argument("--no-gpu", action="store_true", help="tiny models on the CPU: the test of this script")
    options = parser.parse_args()
    if not set(options.parts) <= set(NAMES):
        parser.error(f"there are the parts {', '.join(NAMES)}")
    chosen = options.parts or NAMES[NAMES.index(options.first):]
    options.parts = [part for part in PARTS if part[0] in chosen]
    options.out, options.built = options.out.resolve(), options.built.resolve()
    found = subprocess.run(["ldd", options.built / "sluice", options.built / "tests/gpu_check"], capture_output=True, text=True, check=False)
    missing = sorted({line.strip() for line in (found.stdout + found.stderr).splitlines() if "not found" in line})
    if missing:
        sys.exit("the programs lack what this machine does not have:\n" + "\n".join(missing))
    return options


def environment(options):
    """Adds what is not on the usual paths: the archive's programs, the toolkit's, and cuBLAS where only a wheel has it."""
    wheels = importlib.util.find_spec("nvidia")
    blas = [path for root in (wheels.submodule_search_locations if wheels else []) for path in glob.glob(f"{root}/*/lib/libcublasLt.so.*")]
    added = {"PATH": [options.built, os.environ["PATH"], "/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"],
             "PYTHONPATH": [options.built / "python", os.environ.get("PYTHONPATH")],
             "LD_LIBRARY_PATH": [os.environ.get("LD_LIBRARY_PATH"), *(pathlib.Path(path).parent for path in blas)]}
    return {**os.environ, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "SLUICE_BINARY": str(options.built / "sluice"),
            **({"CUDA_VISIBLE_DEVICES": ""} if options.no_gpu else {}),
            **{name: ":".join(str(folder) for folder in folders if folder) for name, folders in added.items()}}


class Check:
    def __init__(self, options):
        self.options, self.out, self.tools, self.env = options, options.out, Tools(options), environment(options)
        self.end, self.table, self.telling = time.monotonic() + options.seconds, [], []
        for folder in ("work", "parts"):
            (self.out / folder).mkdir(parents=True, exist_ok=True)

    def run_command(self, command, seconds, file, extra):
        """None, or why it failed. Whatever it has started ends with it."""
        begun = file.seek(0, os.SEEK_END)
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                   env={**self.env, **extra}, start_new_session=True)
        try:
            code = process.wait(max(1, seconds))
        except subprocess.TimeoutExpired:
            return "cut short"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        file.seek(begun)  # without a GPU, a program that launches straight on one has passed if it finds none
        return f"exit code {code}" if code and not (self.options.no_gpu and re.search(NO_GPU, file.read())) else None

    def run_part(self, title, seconds, commands, **extra):
        """True if it passed."""
        print(f"== {title}, {seconds:.0f} s at most", flush=True)
        begin, why, self.tools.json = time.monotonic(), [], self.out / f"parts/{title}.json"
        with open(self.out / f"parts/{title}.txt", "w+", errors="replace") as file:
            try:
                for command in commands(self.tools):
                    failed = self.run_command(command, seconds - (time.monotonic() - begin), file, extra)
                    why += [f"{failed}: {pathlib.Path(command[0]).name}"] if failed else []
            except OSError as error:  # a program that is not there
                why.append(str(error))
            file.seek(0)
            lines = [line.rstrip()[:240] for line in file]
        self.telling += [(title, line) for line in lines if re.search(TELLING, line)][:60]
        self.telling += [(title, line) for line in lines[-12:] if why and not re.search(TELLING, line)]
        self.table.append((title, f"{time.monotonic() - begin:.0f} s", f"FAILED, {'; '.join(why)}" if why else "passed"))
        self.write()
        return not why

    def write(self):
        gpu = said(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
        with open(self.out / "summary.txt", "w") as file:
            print(commit(), gpu or "nvidia-smi says nothing", sep=", ", file=file)
            for row in self.telling + self.table:
                print(f"{row[0]:>18} | {' | '.join(row[1:])}", file=file)
        with tarfile.open(self.out / "new.tar.gz", "w:gz") as archive:
            for name in ("summary.txt", "parts"):
                archive.add(self.out / name, name)
        (self.out / "new.tar.gz").replace(self.out / "results.tar.gz")

    def run(self):
        """The exit code."""
        spare, failed, unbegun = 0, [], []
        for name, seconds, commands in self.options.parts:
            begin = time.monotonic()
            limit = min(3600 if self.options.no_gpu else seconds + spare, self.end - begin)  # seconds are a GPU machine's
            if limit < 5:
                unbegun.append(name)
            elif not self.run_part(name, limit, commands):
                failed.append((name, commands))
            spare = max(0, seconds + spare - (time.monotonic() - begin))
        for name, commands in failed:
            if self.end - time.monotonic() > 5:
                self.run_part(f"{name}-blocking", self.end - time.monotonic(), commands, CUDA_LAUNCH_BLOCKING="1")
        print((self.out / "summary.txt").read_text() if self.table else "")
        print("no time for:", f"--from {unbegun[0]}" if unbegun else "nothing; all parts have run")
        return 1 if failed else 3 if unbegun else 0


if __name__ == "__main__":
    sys.exit(Check(read_options()).run())

#!/usr/bin/env python3
"""Compares Sluice with engines from PyPI: the same model, the same real texts, two threads each, in turns, medians. Without
options it makes the table of this machine in docs/speed.md, of trained weights, within twenty minutes once --prepare has
installed the peers; with SLUICE_ISA=avx2 in the environment it makes the table of a machine with only AVX2, with those
peers that can be restricted likewise; --families makes the table of other families, with random weights.

usage: peers.py BUILD_DIR [--families] [--shapes minilm,…] [--precisions f32,…] [--peers openvino,…] [--columns fixed,…] [--rounds N]
                [--step-ms N] [--chance SHARE] [--quick] [--table]

Each peer gets its own environment with pinned packages (tools/bench/peer/requirements) below WORK, once; a peer that
cannot be installed, and each variant that does not run, is listed with the reason. Figures are merged into
WORK/results[-ISA].json, so that a long comparison can be run in parts; ratios are always between engines that took
turns in one run. """
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
sys.path.insert(0, str(HERE / "peer"))

import catalogue  # noqa: E402
import measure  # noqa: E402
import table  # noqa: E402
from warm import Process, Refused  # noqa: E402

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "2",
           "TRANSFORMERS_VERBOSITY": "error"}
ONE_CORE = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
FROM_ONNX = ("onnxruntime", "openvino", "fastembed")  # start from the graph that with_torch.py exports
ALL_COLUMNS = ("fixed", "job", "windows", "docs", "long", "text", "one", "share", "start", "accuracy", "ranking", "tokenizer",
               "document")
TABLE_COLUMNS = ["fixed", "job", "one", "share", "start", "ranking"]


class Plan:
    """The duration of each step, and its number of repetitions."""

    def __init__(self, options, tokens):
        self.rounds, self.chance, self.tokens, self.cpu = options.rounds, options.chance, tokens, options.cpu
        self.end = time.monotonic() + options.seconds
        self.step_ms, self.singles = (100, 10) if options.quick else (options.step_ms, 100)

    def but(self, **changes):
        other = object.__new__(Plan)
        other.__dict__ = {**self.__dict__, **changes}
        return other


def last_line(error):
    lines = [line for line in (error.stderr or "").splitlines() if line.strip()]
    return lines[-1].strip()[:400] if lines else f"ended with {error.returncode}"


class Installed:
    """The Python of each peer, made at its first use."""

    def __init__(self, options):
        self.options, self.known = options, {}

    def python(self, packages):
        if packages not in self.known:
            self.known[packages] = self._find(packages)
        if isinstance(self.known[packages], Refused):
            raise self.known[packages]
        return self.known[packages]

    def _find(self, packages):
        given = dict(pair.split("=", 1) for pair in self.options.venv)
        if packages in given:
            return pathlib.Path(given[packages]) / "bin/python"
        if packages == "":
            folder, wanted = SOURCE / "build/venv", SOURCE / "tests/requirements.txt"
        else:
            folder, wanted = self.options.work / f"venv-{packages}", HERE / f"peer/requirements/{packages}.txt"
        try:
            done = subprocess.run([SOURCE / "tests/support/venv.sh", folder, wanted], capture_output=True, text=True,
                                  check=True, timeout=self.options.install_s)
            return done.stdout.strip().splitlines()[-1]
        except subprocess.CalledProcessError as error:
            return Refused(f"not installed: {last_line(error)}")
        except subprocess.TimeoutExpired:
            return Refused(f"not installed: not done after {self.options.install_s} s")


def script_of(engine):
    return HERE / f"peer/with_{engine.script}.py"


def command(engine, options, installed, folder):
    if engine.peer == catalogue.OURS:
        return [options.build / "tools/peer_sluice", "serve", folder, engine.variant, catalogue.THREADS]
    threads = catalogue.THREADS // engine.lanes
    return [installed.python(engine.packages), "-B", script_of(engine), "serve", folder, engine.variant, engine.lanes, threads]


def prepare(engine, installed, folder):
    """Makes the files that the peer opens, once."""
    python, done = engine.script and installed.python(engine.packages), folder / f"made-{engine.script}-{engine.variant}"
    if engine.peer == catalogue.OURS or done.exists():
        return
    if engine.script in FROM_ONNX and not (folder / "onnx/model.onnx").exists():
        prepare(next(other for other in catalogue.ENGINES if other.script == "torch"), installed, folder)
    try:
        subprocess.run([python, "-B", script_of(engine), "prepare", folder, engine.variant], capture_output=True, text=True,
                       check=True, env={**os.environ, **OFFLINE})
        done.touch()
    except subprocess.CalledProcessError as error:
        raise Refused(f"not prepared: {last_line(error)}") from None


def start(engine, options, installed, folder):
    one_core = "tokenizer" in engine.columns
    return Process(command(engine, options, installed, folder), {**OFFLINE, **(ONE_CORE if one_core else {})}, one_core=one_core)


def measure_starts(engines, options, installed, folder, plan, figures):
    """Every round starts each engine anew, alone, and runs one job before its memory is read."""
    refused = set()
    for number in range(plan.rounds):
        for engine in engines if number == 0 or time.monotonic() < plan.end else ():
            if "start" not in engine.columns or engine in refused:
                continue
            try:
                process = start(engine, options, installed, folder)
                try:
                    words = ("text", "fixed", 0, 1) if "fixed" not in engine.columns else ("run", "fixed", 0, 1)
                    process.ask(*words)
                    figures.add(engine, {"ready": process.ready_s, "memory": process.resident_mb()})
                finally:
                    process.close()
            except Refused as reason:
                figures.refuse(engine, "", reason)
                refused.add(engine)


def measure_shares(engines, options, folder, plan, figures):
    """Runs `bench peak`: our products alternating with oneDNN's. Returns its description of the machine, if it ran."""
    machine = ""
    for engine in engines:
        if "share" not in engine.columns:
            continue
        words = [options.build / "tools/sluice_dev", "bench", "peak", "--model", folder / "model", "--precision", engine.precision,
                 "--tokens", 128, "--threads", catalogue.THREADS, "--rounds", plan.rounds, "--round-ms", plan.step_ms, "--json", "-"]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            figures.refuse(engine, "share", done.stderr.strip())
            continue
        said = json.loads(done.stdout)
        figures.add(engine, {"share": said["peak"][-1]["share"], "peak": said["peak"][-1]["peak_gflops"]})
        machine = f"{said['kernels']}: {said['processor']}, {said['usable_cpus']} cores"
    return machine


def measure_accuracy(processes, options, folder, figures):
    path = folder / "reference.f64"
    if not path.exists():
        return
    dim = json.loads((folder / "shape.json").read_text())["hidden"]
    reference = measure.read_vectors(path, path.stat().st_size // 8 // dim, dim, "d")
    for engine, process in processes.items():
        if "accuracy" not in engine.columns:
            continue
        try:
            figures.add(engine, measure.accuracy(process, reference, options.work / "vectors"))
        except Refused as reason:
            figures.refuse(engine, "accuracy", reason)


def measure_ranking(processes, options, installed, folder, figures):
    """Compares how engines in int8 rank real texts with how ours in f32 does, which is exact (tests/golden)."""
    python, reference = installed.python(""), folder / "ranking.f32"
    engines = [engine for engine in processes if "ranking" in engine.columns and engine.precision == "int8" and engine.lanes == 1]
    if engines and not reference.exists():
        exact = start(catalogue.Engine(catalogue.OURS, "f32", "f32", 1, ""), options, installed, folder)
        try:
            exact.ask("vectors", "ranking", 0, folder / "part")
        finally:
            exact.close()
        (folder / "part").rename(reference)
    for engine in engines:
        try:
            answer = processes[engine].ask("vectors", "ranking", 0, options.work / "vectors")
            done = subprocess.run([python, "-B", SOURCE / "tests/support/retrieval.py", options.work / "vectors", reference,
                                   str(answer["dim"])], capture_output=True, text=True, check=True)
            figures.add(engine, json.loads(done.stdout))
        except Refused as reason:
            figures.refuse(engine, "ranking", reason)


def measure_shape(options, installed, folder, tokens, engines, figures):
    """Measures everything of one shape. Returns a description of the machine, or "" if that was not asked for."""
    processes, ready = {}, []
    for engine in engines:
        try:
            prepare(engine, installed, folder)
            ready.append(engine)
        except Refused as reason:
            figures.refuse(engine, "", reason)
    if options.prepare:
        return ""
    plan = Plan(options, tokens)
    warm = [column for column in options.columns if column not in ("share", "start", "accuracy", "ranking")]
    ranking = "ranking" in options.columns and (folder / "loads/ranking.ids").stat().st_size > 0
    try:
        if warm or ranking or "accuracy" in options.columns:
            for engine in ready:
                try:
                    processes[engine] = start(engine, options, installed, folder)
                except Refused as reason:
                    figures.refuse(engine, "", reason)
        measure.take_turns(processes, warm, plan, figures)
        if "accuracy" in options.columns:
            measure_accuracy(processes, options, folder, figures)
        if ranking:
            measure_ranking(processes, options, installed, folder, figures)
    finally:
        for process in processes.values():
            process.close()
    if "start" in options.columns:
        measure_starts(ready, options, installed, folder, plan, figures)
    return measure_shares(engines, options, folder, plan, figures) if "share" in options.columns else ""


def make_material(options, installed, shape):
    """Returns (folder, {load: tokens}), made by a Python that has NumPy and tokenizers."""
    words = [installed.python(""), "-B", HERE / "peer/material.py", options.work, shape, "quick" if options.quick else ""]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"peers.py: no material: {done.stderr}")
    answer = json.loads(done.stdout)
    return pathlib.Path(answer["folder"]), answer["tokens"]


def read(path):
    return json.loads(path.read_text()) if path.exists() else {"figures": {}, "refused": {}}


def store(path, results):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.rename(path)


def words(text):
    return [word for word in text.split(",") if word]


def parse(arguments):
    parser = argparse.ArgumentParser(description="Sluice beside the engines that PyPI carries")
    parser.add_argument("build", type=pathlib.Path, help="a build folder, for tools/peer_sluice")
    parser.add_argument("--families", action="store_true", help="the families beside BERT, each with its columns, f32 and bf16")
    parser.add_argument("--shapes", type=words, default=list(catalogue.TRAINED), help="minilm,mpnet-base,bge-small,…")
    parser.add_argument("--precisions", type=words, help="f32,bf16,int8; by default all, f32 and bf16 on random weights")
    parser.add_argument("--peers", type=words, help="openvino,onnxruntime,…; all: all; ours always")
    parser.add_argument("--columns", type=words, default=TABLE_COLUMNS, help=",".join(ALL_COLUMNS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step-ms", type=int, default=500, help="how long a turn lasts at least")
    parser.add_argument("--seconds", type=float, default=300, help="of a shape: no round begins later than this")
    parser.add_argument("--chance", type=float, default=0.8,
                        help="a peer below this share of the fastest one has no more rounds; 0: all have all rounds")
    parser.add_argument("--cpu", action="store_true", help="tokens/s of processor time, for a machine on which others compute")
    parser.add_argument("--quick", action="store_true", help="small loads and short steps: shows that it runs, no more")
    parser.add_argument("--prepare", action="store_true", help="install and convert, measure nothing")
    parser.add_argument("--table", action="store_true", help="only show what earlier runs found")
    parser.add_argument("--work", type=pathlib.Path, default=SOURCE / "build/peers", help="where all files go")
    parser.add_argument("--results", type=pathlib.Path, help="WORK/results.json by default")
    parser.add_argument("--venv", action="append", default=[], metavar="PACKAGES=FOLDER", help="an environment that exists already")
    parser.add_argument("--install-s", type=float, default=3600, help="how long an installation may take")
    options = parser.parse_args(arguments)
    unknown = set(options.columns) - set(ALL_COLUMNS)
    if unknown:
        parser.error(f"no columns named {', '.join(sorted(unknown))}")
    isa = os.environ.get("SLUICE_ISA")
    if isa and isa not in catalogue.ONEDNN_ISAS:
        parser.error(f"SLUICE_ISA is none of {', '.join(catalogue.ONEDNN_ISAS)}")
    if isa:
        os.environ["ONEDNN_MAX_CPU_ISA"] = catalogue.ONEDNN_ISAS[isa]
    if options.families:
        options.shapes = list(catalogue.FAMILIES)
    options.peers = options.peers or (catalogue.RESTRICTABLE if isa else catalogue.RIVALS)
    options.work = options.work.resolve()
    name = "-".join(filter(None, ("results", options.families and "families", isa, options.quick and "quick")))
    options.results = options.results or options.work / f"{name}.json"
    return options


def main(arguments=None, engines=catalogue.ENGINES):
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes end, too
    options.work.mkdir(parents=True, exist_ok=True)
    if not options.table:
        installed = Installed(options)
        for shape in options.shapes:
            if options.families:
                options.columns = list(catalogue.FAMILIES[shape])
            folder, tokens = make_material(options, installed, shape)
            precisions = options.precisions or (catalogue.PRECISIONS if shape in catalogue.TRAINED else ("f32", "bf16"))
            chosen = catalogue.choose(options.columns, options.peers, precisions, engines)
            figures, machine = measure.Figures(), ""
            try:
                machine = measure_shape(options, installed, folder, tokens, chosen, figures)
            finally:  # an interrupted run keeps its rounds
                when = f"{time.strftime('%Y-%m-%d %H:%M')}, load {os.getloadavg()[0]:.1f}"
                results = table.merge(read(options.results), table.records(figures, shape, when), figures.refused, shape)
                store(options.results, results | ({"machine": machine} if machine else {}))
    print(table.report(read(options.results)))


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""What `sluice plan` says of one worker beside what a daemon does, at a tenth, a half and 85 % of what it can do.

usage: bench_plan.py BUILD_DIR [SECONDS]      of each run, 20 unless given; the whole takes nine times as long
MODEL=DIR is for another model than MiniLM's shape with random weights. Texts are one to six lines of tools/demo/packages.tsv. Ends
with 1 where a p50 is off by more than 15 % or a p99 by more than 30 %."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SLUICE = pathlib.Path(sys.argv[1]).resolve() / "sluice"
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 20
LOADS = (0.1, 0.5, 0.85)
OFF = {"p50_ms": 0.15, "p99_ms": 0.30}


def sluice(*words):
    return subprocess.run([SLUICE, *map(str, words)], check=True, stdout=subprocess.PIPE).stdout


def write_texts(path):
    lines = [line.split("\t")[1].strip() for line in open(HERE.parent / "demo/packages.tsv", encoding="utf-8")]
    draw = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(5000):
            print("; ".join(draw.choices(lines, k=draw.randint(1, 6))), file=file)


def e2e(folder, *words):
    """The runs of bench e2e: full, and at the rate if one is given."""
    path = os.path.join(folder, "e2e.json")
    sluice("bench", "e2e", "--duration-ms", int(SECONDS * 1000), "--no-alone", "--default-encoding", "f32", "--json", path, *words)
    with open(path, encoding="utf-8") as file:
        return json.load(file)["runs"]


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        texts, model = os.path.join(folder, "texts"), os.environ.get("MODEL")
        write_texts(texts)
        if not model:
            model = os.path.join(folder, "minilm")
            subprocess.run(["/usr/bin/python3", "-B", HERE / "shapes.py", "minilm", model], check=True)
        null = e2e(folder, "--backend", "null", "--tokens", 16, "--rate", 100)
        print(f"null engine: {null[0]['texts_per_s']:.0f} texts/s, {null[0]['cpu_us_per_text']} us of processor time each; "
              f"at 100 a second p50 {null[1]['p50_ms']:.2f} ms, p99 {null[1]['p99_ms']:.2f}", flush=True)
        both = ["--model", model, "--cache-dir", folder]
        plan = ["plan", *both, "--default-encoding", "f32", "--lengths", texts, "--workers", 1, "--json", "--rate"]
        found = json.loads(sluice(*plan, 1))
        most = found["limits"][0]["requests_per_s"]
        print(", ".join(f"{key} {found[key]}" for key in ("model", "precision", "threads", "mean_tokens", "batch_us", "token_ns", "square_ps",
                                                          "help", "alone", "crowded", "tokenise_us", "reply_us")), flush=True)
        full = e2e(folder, *both, "--input", texts)[0]["texts_per_s"]
        print(f"at most: planned {most:.0f}/s, the daemon {full:.1f}/s, {most / full - 1:+.0%}\n\n"
              f"{'load':>6} {'rate':>6} {'p50':>8} {'daemon':>8} {'off':>6} {'p99':>8} {'daemon':>8} {'off':>6}"
              f" {'busy':>6} {'daemon':>6} {'a batch':>8} {'daemon':>6}", flush=True)
        good = True
        for load in LOADS:
            rate = max(1, round(load * full))
            planned, seen = json.loads(sluice(*plan, rate))["simulated"][0], e2e(folder, *both, "--input", texts, "--rate", rate)[1]
            off = {key: planned[key] / seen[key] - 1 for key in OFF}
            good = good and all(abs(off[key]) <= most for key, most in OFF.items())
            times = " ".join(f"{planned[key]:8.2f} {seen[key]:8.2f} {off[key]:+6.0%}" for key in OFF)
            print(f"{load:6.0%} {rate:6} {times} {planned['busy_share']:6.2f} {seen['busy_share']:6.2f}"
                  f" {planned['batch_rows']:8.1f} {seen['batch_rows']:6.1f}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

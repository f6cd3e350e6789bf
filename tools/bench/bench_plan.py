#!/usr/bin/python3
"""Compares the predictions of `sluice plan` for one worker with a daemon, at a tenth, a half and 85 % of its capacity.

usage: bench_plan.py BUILD_DIR [SECONDS]      of the run at full load, 25 by default; the whole takes about twelve times that
MODEL=DIR selects another model than MiniLM's shape with random weights, SLUICE_PRECISION=f32 and the like the precision of
daemon and plan. Texts are one to six lines of tools/demo/packages.tsv. Redis and the producer run on the daemon's cores:
their time per request is measured in each run and passed to the plans right after it, whose mean counts. Exits with 1 if a
p50 is off by more than 15 % or a p99 by more than 30 %."""

import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SLUICE = pathlib.Path(sys.argv[1]).resolve() / "sluice"
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 25
LOADS = ((0.1, 1.5), (0.5, 1.5), (0.85, 6))  # load, and its length in SECONDS: a queue's p99 needs many requests
OFF = {"p50_ms": 0.15, "p99_ms": 0.30}
MACHINE = ("batch_us", "token_ns", "square_ps", "help", "alone", "crowded", "hop_us", "tokenise_us", "reply_us")
PLANS = 2  # per load
WAKES = 8  # of a daemon's threads for a single request


def sluice(*words):
    return subprocess.run([SLUICE, *map(str, words)], check=True, stdout=subprocess.PIPE).stdout


def write_texts(path):
    """Each block of sixty texts has every number of lines equally often, so that all parts of the file have about the
    same lengths."""
    lines = [line.split("\t")[1].strip() for line in open(HERE.parent / "demo/packages.tsv", encoding="utf-8")]
    draw = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(100):
            for count in draw.sample(list(range(1, 7)) * 10, 60):
                print("; ".join(draw.choices(lines, k=count)), file=file)


def processor_s():
    """Processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def e2e(folder, seconds, *words):
    """Runs bench e2e; the result includes the time of Redis and the producer per request."""
    path, before = os.path.join(folder, "e2e.json"), processor_s()
    sluice("bench", "e2e", "--duration-ms", int(seconds * 1000), "--no-alone", "--default-encoding", "f32", "--json", path, *words)
    with open(path, encoding="utf-8") as file:
        run = json.load(file)["runs"][0]
    beside_us = 1e6 * (processor_s() - before) / run["requests"] - run["cpu_us_per_text"]
    return {**run, "beside_us": max(0, round(beside_us))}


def measure_constants(folder):
    """Measures the figures of docs/scale.md for a request without an engine, from which plan.c takes its constants."""
    null = ("--backend", "null", "--tokens", 16, "--no-full", "--rate")
    slow, fast = e2e(folder, 5, *null, 100), e2e(folder, 5, *null, 1000)
    print(f"null engine: p50 {slow['p50_ms']:.2f} ms at 100 a second; {fast['cpu_us_per_text'] / WAKES:.0f} us of processor time for each time "
          "that a thread wakes, at 1,000", flush=True)


class Comparison:
    """A model and its texts."""

    def __init__(self, folder, model):
        self.folder, self.texts = folder, os.path.join(folder, "texts")
        self.words = ("--model", model, "--cache-dir", folder)
        write_texts(self.texts)

    def plan(self, rate, beside_us):
        return json.loads(sluice("plan", *self.words, "--default-encoding", "f32", "--lengths", self.texts, "--workers", 1, "--json",
                                 "--rate", rate, "--beside-us", beside_us))

    def run(self, seconds, *words):
        return e2e(self.folder, seconds, *self.words, "--input", self.texts, *words)

    def full(self):
        """Measures the daemon's maximum rate."""
        seen = self.run(SECONDS)
        found = self.plan(1, seen["beside_us"])
        print(", ".join(f"{key} {found[key]}" for key in MACHINE))
        print("\n| load, requests/s | p50 in ms: planned, the daemon | p99 | busy | texts a batch | Redis and producer |\n|---|---|---|---|---|---|\n"
              f"| full | {off(found['limits'][0]['requests_per_s'], seen['texts_per_s'], 0)} requests/s | | | {seen['batch_rows']:.1f} | {seen['beside_us']} us |", flush=True)
        return seen

    def at(self, load, times, full):
        """Prints a row of the table; returns whether the plan is accurate enough."""
        rate = max(1, round(load * full["texts_per_s"]))
        seen = self.run(times * SECONDS, "--rate", rate, "--no-full")
        plans = [self.plan(rate, seen["beside_us"])["simulated"][0] for _ in range(PLANS)]
        planned = {key: sum(plan[key] for plan in plans) / PLANS for key in (*OFF, "busy_share", "batch_rows")}
        print(f"| {load:.0%}, {rate} | {off(planned['p50_ms'], seen['p50_ms'])} | {off(planned['p99_ms'], seen['p99_ms'])} "
              f"| {planned['busy_share']:.2f}, {seen['busy_share']:.2f} | {planned['batch_rows']:.1f}, {seen['batch_rows']:.1f} "
              f"| {seen['beside_us']} us |", flush=True)
        return all(abs(planned[key] / seen[key] - 1) <= most for key, most in OFF.items())


def off(planned, seen, digits=1):
    return f"{planned:.{digits}f}, {seen:.{digits}f}: {planned / seen - 1:+.0%}"


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        model = os.environ.get("MODEL")
        if not model:
            model = os.path.join(folder, "minilm")
            subprocess.run(["/usr/bin/python3", "-B", HERE / "shapes.py", "minilm", model], check=True)
        comparison = Comparison(folder, model)
        found = comparison.plan(1, 0)  # calibrates
        print(f"{time.strftime('%Y-%m-%d %H:%M')}, {found['processor']}, load average {os.getloadavg()[0]:.1f}: {found['model']}, "
              f"{found['precision']}, {found['threads']} threads, {found['mean_tokens']} tokens a text")
        measure_constants(folder)
        full = comparison.full()
        good = all([comparison.at(load, times, full) for load, times in LOADS])
        print(f"\nload average {os.getloadavg()[0]:.1f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

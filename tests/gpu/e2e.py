#!/usr/bin/env python3
"""The whole daemon on the GPU: XADD to reply through a private Redis, in texts/s, with the GPU's busy share and what
limits it. Single texts and `inputs` arrays, `f32` and `json`; the vectors in the replies are checked first.

The stream is filled before the daemon starts and the rate is taken over the middle of the run, so that neither the
producer nor the start counts. With --bulk, in place of all that, the same texts as a bulk job beside the engine alone."""
import argparse
import json
import os
import pathlib
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench  # noqa: E402
import check  # noqa: E402
import check_numbers  # noqa: E402
import references  # noqa: E402
import shapes  # noqa: E402
from driver import PACKED, Driver, Failed, NotHere  # noqa: E402
from report import Report  # noqa: E402

from daemon import BINARY, Daemon  # noqa: E402  (tests/support, whose folder shapes has put on the path)
from redis_server import RedisServer  # noqa: E402
from waiting import wait_until  # noqa: E402

QUEUE = "gpu"
STREAM, REPLY = f"sluice:{{{QUEUE}}}:requests", f"sluice:{{{QUEUE}}}:reply:"
PER_ARRAY = 64
KINDS = [("single", "f32"), ("single", "json"), ("inputs", "f32"), ("inputs", "json")]
FULL = 0.9  # share of a core, or of the GPU; above it, either is the limit


WORDS = np.array([f"w{i - len(shapes.golden.SPECIALS)}" for i in range(shapes.VOCABULARY)], object)


def text_of(ids):
    """The words whose ids these are; the tokenizer adds the first and the last id itself."""
    return " ".join(WORDS[ids[1:-1]])


def ids_of(lengths, seed):
    """Ids as the tokenizer will have them: [CLS], words, [SEP]."""
    ends = np.cumsum(np.maximum(lengths, 3))
    ids = np.random.default_rng(seed).integers(check_numbers.FIRST_WORD, shapes.VOCABULARY, ends[-1])
    ids[ends - 1], ids[0], ids[ends[:-1]] = 3, 2, 2
    return np.split(ids, ends[:-1])


def fill(client, texts, kind, encoding):
    """Adds the texts to the stream; the entries' names."""
    names = []
    step = PER_ARRAY if kind == "inputs" else 1
    for at in range(0, len(texts), 512 * step):
        pipe = client.pipeline(transaction=False)
        for first in range(at, min(len(texts), at + 512 * step), step):
            field = {"inputs": json.dumps(texts[first:first + step])} if kind == "inputs" else {"text": texts[first]}
            pipe.xadd(STREAM, {**field, "encoding": encoding})
        names += [name.decode() for name in pipe.execute()]
    return names


def vectors_of(client, names, encoding, dim, precision):
    """The vectors of all replies, in order; a reply that is none, or of another precision, fails the check."""
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.hgetall(REPLY + name)
    vectors = []
    for name, reply in zip(names, pipe.execute()):
        if reply.get(b"status") != b"done":
            raise AssertionError(f"{name}: {reply}")
        used = json.loads(reply[b"info"]).get("precision")
        if precision is not None and used != precision:
            raise AssertionError(f"{name}: computed in {used}, not {precision}")
        raw = reply[b"embedding"]
        found = np.frombuffer(raw, "<f4") if encoding == "f32" else np.array(json.loads(raw), np.float32)
        vectors.append(found.reshape(-1, dim))
    return np.concatenate(vectors)


class Gpu:
    """Samples the GPU's busy share with nvidia-smi while it runs; has no samples where there is no such program."""

    def __init__(self, options):
        self.samples, self.process = [], None
        if options.backend == "cuda" and shutil.which("nvidia-smi"):
            self.process = subprocess.Popen(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms",
                                             "100", "-i", str(options.device)], stdout=subprocess.PIPE, text=True)
            self.thread = threading.Thread(target=self._read, daemon=True)
            self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.samples.append((time.monotonic(), int(line)))

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def busy(self, begin, end):
        """The mean share between two times, or None."""
        found = [share for at, share in self.samples if begin <= at <= end]
        return statistics.mean(found) / 100 if found else None


def thread_seconds(pid):
    """(thread id, name) -> CPU seconds so far."""
    found, tick = {}, os.sysconf("SC_CLK_TCK")
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        head, _, tail = (task / "stat").read_text().rpartition(")")
        fields = tail.split()
        found[task.name, head.partition("(")[2]] = (int(fields[11]) + int(fields[12])) / tick
    return found


def shares(before, after, seconds):
    """(share of a core, thread name), the busiest first."""
    return sorted(((after[key] - before.get(key, 0)) / seconds, key[1]) for key in after)[::-1]


def limit(gpu_busy, daemon, server):
    """Says in words what limits the rate."""
    if gpu_busy is not None and gpu_busy >= FULL:
        return "the GPU"
    busiest = max((server[0], "Redis"), (daemon[0], "the daemon"))
    if busiest[0][0] >= FULL:
        return f"{busiest[1]}'s thread \"{busiest[0][1]}\""
    return f"nothing alone; the busiest are {busiest[1]}'s \"{busiest[0][1]}\" at {busiest[0][0]:.0%}"


class Run:
    """One Redis, and one daemon at a time."""

    def __init__(self, options, name, folder):
        self.options, self.folder, self.number = options, folder, 0
        self.name, self.model, self.dim = name, shapes.write(options.work, name), shapes.SHAPES[name]["hidden"]
        self.server = RedisServer(folder, aof=None, options=["--maxmemory", "0"]).start()
        self.client = self.server.client()

    def daemon(self):
        self.number += 1
        o = self.options
        flags = ["--backend", o.backend, "--max-batch-tokens", o.batch_tokens, "--max-batch-rows", 1024, "--prep-threads",
                 o.prep_threads, "--stats-s", 0, "--cache-dir", o.work / "cache"]
        if o.backend == "cuda":
            flags += ["--device", o.device]
        return Daemon(self.folder, self.number, self.server.socket, self.model, QUEUE, flags)

    def check(self, report, kind, encoding):
        """The replies' vectors beside the reference."""
        ids = ids_of([3 + 7 * i % 120 for i in range(2 * PER_ARRAY)], 51)
        daemon = self.daemon().start()
        try:
            names = fill(self.client, [text_of(text) for text in ids], kind, encoding)
            wait_until(lambda: daemon.running() and self.client.xlen(STREAM) == 0,
                       lambda: "the replies; the log:\n" + daemon.read_log()[-3000:], timeout=120)
            got = vectors_of(self.client, names, encoding, self.dim, "f16" if self.options.backend == "cuda" else None)
            code = daemon.stop()
        finally:
            daemon.cleanup()
        precision = "f16" if self.options.backend == "cuda" else "bf16"
        wanted = references.vectors(self.options.reference, self.model, self.name, ids, self.options.torch_device)
        check_numbers.judge(report, f"{self.name} {kind} {encoding}", precision, got, wanted, np.arange(len(ids)), ids,
                            [f"text {i}" for i in range(len(ids))])
        if code != 0:
            report.fail(f"{self.name} {kind} {encoding}", f"the daemon ended with {code}")

    def measure(self, report, kind, encoding, gpu, texts, mean_tokens):
        entries = len(fill(self.client, texts, kind, encoding))
        daemon = self.daemon().start()
        try:
            marks = []
            for part in (0.85, 0.15):
                wait_until(lambda: daemon.running() and self.client.xlen(STREAM) <= part * entries,
                           lambda: "the queue to drain; the log:\n" + daemon.read_log()[-3000:], timeout=self.options.timeout)
                marks.append((time.monotonic(), self.client.xlen(STREAM), thread_seconds(daemon.pid),
                              thread_seconds(self.server.process.pid)))
            wait_until(lambda: self.client.xlen(STREAM) == 0, "the rest", timeout=self.options.timeout)
            code = daemon.stop()
        finally:
            daemon.cleanup()
        (begin, first, daemon_0, redis_0), (end, last, daemon_1, redis_1) = marks
        taken = end - begin
        rate = (first - last) / entries * len(texts) / taken  # 0: too few texts, all gone between two looks
        busy = gpu.busy(begin, end)
        in_daemon, in_redis = shares(daemon_0, daemon_1, taken), shares(redis_0, redis_1, taken)
        why = limit(busy, in_daemon, in_redis)
        share = "-" if busy is None else f"{busy:.0%}"
        report.speed(f"{self.name} {kind} {encoding}", f"{rate:10,.0f} texts/s {rate * mean_tokens:12,.0f} tokens/s over "
                     f"{taken:.1f} s; GPU busy {share} (goal 90 %); limit: {why}", texts_s=rate, seconds=taken, gpu_busy=busy,
                     limit=why, daemon_threads=in_daemon[:8], redis_threads=in_redis[:3])
        if code != 0:
            report.fail(f"{self.name} {kind} {encoding}", f"the daemon ended with {code}")
        self.client.flushall()

    def close(self):
        self.server.cleanup()


def embed(options, model, texts, folder):
    """(vectors, seconds, CPU seconds) of `sluice embed`."""
    path, output = folder / "texts.txt", folder / "vectors.npy"
    path.write_text("\n".join(texts) + "\n")
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([BINARY, "embed", path, "--format", "lines", "--model", model, "--output", output, "--overwrite", "--progress",
                    "none", "--backend", options.backend, "--cache-dir", options.work / "cache"], check=True, timeout=options.timeout)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return np.load(output), seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bulk(options, report, name, ids, texts):
    """Texts/s of a bulk job, its start deducted, as a share of the engine's on the same lengths."""
    model, dim, precision = shapes.write(options.work, name), shapes.SHAPES[name]["hidden"], "f16" if options.backend == "cuda" else "f32"
    driver, few = Driver(options.driver, options.backend, options.work), sorted(ids[:20000], key=len)
    lines, _ = driver.rates(model, few, [bench.packed_batches([len(text) for text in few], options.batch_tokens)],
                            "--precision", precision, "--rounds", 3, "--round-ms", 100)
    engine = bench.median_rate(lines[0], "rows")
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        _, start, idle = embed(options, model, texts[:1], pathlib.Path(folder))
        got, seconds, cpu = embed(options, model, texts, pathlib.Path(folder))
    wanted, _ = driver.vectors(model, ids[:64], [[(PACKED, range(64))]], dim, "--precision", precision)
    check_numbers.judge(report, f"{name} bulk", "f16" if precision == "f16" else "bf16", got[:64], wanted, np.arange(64), ids, [f"text {i}" for i in range(64)])
    rate = len(texts) / (seconds - start)
    report.speed(f"{name} bulk", f"{rate:10,.0f} texts/s after a start of {start:.2f} s, {rate / engine:.0%} of the engine's "
                 f"{engine:,.0f} (goal 95 %); {(cpu - idle) / (seconds - start):.1f} cores, {(cpu - idle) / len(texts) * 1e6:.1f} us of "
                 "all threads a text", texts_s=rate, engine_texts_s=engine, start_s=start, cpu_s=cpu)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--json", required=True, type=pathlib.Path)
    parser.add_argument("--shapes", default="minilm,bert-base")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--reference", default="transformers", choices=["transformers", "numpy"])
    parser.add_argument("--driver", type=shlex.split, help="the program gpu_check; for --bulk")
    parser.add_argument("--bulk", action="store_true")
    parser.add_argument("--texts", type=int, default=150_000)
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--prep-threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--timeout", type=float, default=240, help="seconds that a queue may take to drain")
    options = parser.parse_args()
    options.peers = False
    options.torch_device = f"cuda:{options.device}" if options.backend == "cuda" else "cpu"
    return options


def main():
    options = read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    report, gpu = Report(options.json, check.machine(options)), Gpu(options)
    lengths = (bench.mixed_lengths(20000) * (options.texts // 20000 + 1))[:options.texts]
    ids, mean_tokens = ids_of(lengths, 52), float(np.mean(lengths))
    texts = [text_of(text) for text in ids]
    try:
        for name in options.shapes.split(","):
            if options.bulk:
                try:
                    bulk(options, report, name, ids, texts)
                except (Failed, NotHere, subprocess.SubprocessError) as error:
                    report.fail(f"{name} bulk", str(error))
                continue
            with tempfile.TemporaryDirectory() as folder:
                run = Run(options, name, folder)
                try:
                    for kind, encoding in KINDS:
                        run.check(report, kind, encoding)
                    run.client.flushall()
                    for kind, encoding in KINDS:
                        run.measure(report, kind, encoding, gpu, texts, mean_tokens)
                except AssertionError as error:
                    report.fail(name, str(error))
                finally:
                    run.close()
    finally:
        gpu.stop()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())

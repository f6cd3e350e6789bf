#!/usr/bin/python3
"""The main job on real input, for a first look: `make demo`.

Starts its own redis-server on a unix socket in a temporary directory and one daemon with the shipped model, enqueues
the names and summaries of 2,000 Debian packages with plain XADD, then answers a few questions with the nearest
packages. Nothing else on the machine is touched, and everything is removed afterwards unless KEEP=1. """
import array
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "config/models/sluice-mini-en"
SAMPLE = ROOT / "tools/demo/packages.tsv"
SLUICE = pathlib.Path(os.environ.get("SLUICE", ROOT / "build/release/sluice"))
REQUESTS, REPLY = "sluice:{default}:requests", "sluice:{default}:reply:%s"
COUNT = 2000
QUERIES = ["edit photos", "play music", "watch films", "browse the web", "read email", "draw diagrams",
           "a game of chess", "keep my passwords safe"]
SECTIONS = {"graphics", "sound", "video", "games", "web", "mail", "editors", "net", "utils", "education", "text", "vcs", "news",
            "misc", "gnome", "kde", "xfce"}


def apt_packages():
    """(name, summary) of programs in the machine's own apt lists; libraries and their companions are left out."""
    if shutil.which("apt-cache") is None:
        return []
    text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, errors="replace").stdout
    found = {}
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Section|Description): (.*)$", stanza, re.M))
        name, section = fields.get("Package", ""), fields.get("Section", "").split("/")[-1]
        companion = re.search(r"^(lib|python3-|gir1)|-(dev|doc|docs|data|common|dbg|dbgsym|l10n|plugins?|examples|locale.*)$", name)
        if section in SECTIONS and not companion and fields.get("Description"):
            found[name] = fields["Description"]
    return sorted(found.items())


def pick_packages():
    """2,000 packages, always the same ones for the same lists; without lists, the sample in the repository."""
    packages = apt_packages()
    if len(packages) < COUNT:
        lines = SAMPLE.read_text().splitlines()
        return [tuple(line.split("\t")) for line in lines], "the sample in the repository"
    packages.sort(key=lambda package: hashlib.sha256(package[0].encode()).digest())
    return packages[:COUNT], "this machine's apt lists"


class Services:
    """The private redis-server and the daemon, in their own directory."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sluice-demo-"))
        self.socket = self.directory / "redis.sock"
        self.log = self.directory / "sluice.log"
        self.processes = []

    def start(self):
        self._spawn(["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "yes",
                     "--dir", str(self.directory), "--maxmemory-policy", "noeviction"], self.directory / "redis.log")
        client = redis.Redis(unix_socket_path=str(self.socket))
        self._until(lambda: self._pings(client), "redis-server")
        self._spawn([str(SLUICE), "serve", "--redis", str(self.socket), "--model", str(MODEL), "--log-level", "debug",
                     "--stats-s", "1"], self.log)
        self._until(lambda: b" ready " in self.log.read_bytes(), "sluice serve")
        return client

    def _spawn(self, command, log):
        with open(log, "wb") as out:
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                   start_new_session=True))

    @staticmethod
    def _pings(client):
        try:
            return client.ping()
        except redis.ConnectionError:
            return False

    def _until(self, ready, name):
        deadline = time.monotonic() + 30
        while not ready():
            if time.monotonic() > deadline or self.processes[-1].poll() is not None:
                logs = "\n".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log")))
                raise SystemExit(f"demo: {name} did not become ready; its log:\n{logs}")
            time.sleep(0.01)

    def counters(self, rows):
        """The daemon's newest line of counters, once it has counted `rows` rows."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            lines = re.findall(r"^.* (?:stats|drained) (.*)$", self.log.read_text(errors="replace"), re.M)
            counters = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", lines[-1])} if lines else {}
            if counters.get("rows", 0) >= rows:
                return counters
            time.sleep(0.01)
        raise SystemExit("demo: the daemon's log has no line of counters")

    def stop(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=30)

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def enqueue(client, packages):
    """Sends one plain XADD per package, pipelined. Returns the reply ids in order."""
    pipe = client.pipeline(transaction=False)
    for name, summary in packages:
        pipe.xadd(REQUESTS, {"text": f"{name}: {summary}", "encoding": "f32"})
    return [entry.decode() for entry in pipe.execute()]


def progress(done, total, started):
    seconds = time.monotonic() - started
    rate = done / seconds if seconds > 0 else 0.0
    if sys.stdout.isatty():
        filled = 40 * done // total
        print(f"\r  [{'#' * filled}{'.' * (40 - filled)}] {done}/{total}  {rate:,.0f} texts/s ", end="", flush=True)
    if done == total:
        print(f"{os.linesep if sys.stdout.isatty() else ''}  {total} texts in {seconds:.2f} s: {rate:,.0f} texts/s")


def collect(client, ids, started):
    """Polls until all replies exist; returns the vectors and each reply's total milliseconds."""
    replies, waiting = {}, list(ids)
    deadline = time.monotonic() + 120
    while waiting:
        pipe = client.pipeline(transaction=False)
        for entry in waiting[:500]:
            pipe.hmget(REPLY % entry, "status", "embedding", "info", "message")
        answers = dict(zip(waiting[:500], pipe.execute()))
        ready = {entry: answer for entry, answer in answers.items() if answer[0] in (b"done", b"error")}
        for entry, answer in ready.items():
            if answer[0] == b"error":
                raise SystemExit(f"demo: {entry} failed: {answer[3].decode()}")
        replies.update(ready)
        if ready:
            waiting = [entry for entry in waiting if entry not in ready]
            progress(len(ids) - len(waiting), len(ids), started)
        elif time.monotonic() > deadline:
            raise SystemExit(f"demo: no reply for {len(waiting)} requests after two minutes")
        else:
            time.sleep(0.005)
    vectors = [array.array("f", replies[entry][1]) for entry in ids]
    infos = [json.loads(replies[entry][2]) for entry in ids]
    return vectors, sorted(info["queued_ms"] + info["compute_ms"] for info in infos)


def embed_one(client, text):
    """Sends one request and waits for its wake token; returns the vector and the milliseconds from XADD to reply."""
    started = time.monotonic()
    entry = client.xadd(REQUESTS, {"text": text, "encoding": "f32", "notify": "1"}).decode()
    if client.blpop(["sluice:{default}:wake:%s" % entry], timeout=10) is None:
        raise SystemExit(f"demo: no reply for {text!r} within 10 s")
    vector = array.array("f", client.hget(REPLY % entry, "embedding"))
    return vector, 1000 * (time.monotonic() - started)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def answer_queries(client, packages, vectors):
    print("\nNearest packages to a question (cosine of the vectors):")
    for query in QUERIES:
        vector, _ = embed_one(client, query)
        scores = [sum(map(float.__mul__, vector, other)) for other in vectors]
        best = sorted(range(len(scores)), key=lambda i: -scores[i])[:3]
        print(f"\n  {query}")
        for i in best:
            print(f"    {scores[i]:.2f}  {packages[i][0]}: {packages[i][1]}"[:118])


def print_statistics(counters, bulk_ms, single_ms):
    """Prints figures from the daemon's counters, and those that this client measured."""
    rows, batches, tokens = counters["rows"], counters["batches"], counters["tokens"]
    avoided = 1 - tokens / counters["rectangle_tokens"]
    print(f"\nHow it went:\n  {rows} texts in {batches} batches: {rows / batches:.1f} texts and {tokens / batches:.0f} tokens a batch")
    print(f"  padding avoided: {100 * avoided:.0f} % of what the same batches would compute, padded")
    print(f"  all at once:   p50 {percentile(bulk_ms, 0.5):.0f} ms, p99 {percentile(bulk_ms, 0.99):.0f} ms from XADD to reply")
    print(f"  one at a time: p50 {percentile(single_ms, 0.5):.1f} ms, p99 {percentile(single_ms, 0.99):.1f} ms")


def print_by_hand(services, keep):
    if keep:
        socket, when = services.socket, ""
    else:
        socket, when = "SOCKET", ", while it runs (make demo KEEP=1 leaves it running and prints the path of its SOCKET)"
    shown = SLUICE.relative_to(ROOT) if SLUICE.is_relative_to(ROOT) else SLUICE
    print(f"""
By hand{when}:
  redis-cli -s {socket} XADD 'sluice:{{default}}:requests' '*' text 'hello world'
  redis-cli -s {socket} HGETALL 'sluice:{{default}}:reply:<the id that XADD printed>'
  {shown} submit --wait 'hello world' --redis {socket}
  {shown} top --redis {socket}""")
    if keep:
        pids = " ".join(str(process.pid) for process in services.processes)
        print(f"\nStill running; stop it with: kill {pids}; rm -r {services.directory}")


def main():
    packages, source = pick_packages()
    services = Services()
    keep = os.environ.get("KEEP") == "1"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # cleans up, without a traceback
    try:
        client = services.start()
        print(f"sluice serve with {MODEL.name}; {len(packages)} package names and summaries from {source}:")
        started = time.monotonic()
        vectors, bulk_ms = collect(client, enqueue(client, packages), started)
        answer_queries(client, packages, vectors)
        single_ms = [embed_one(client, f"{name}: {summary}")[1] for name, summary in packages[:100]]
        print_statistics(services.counters(len(packages) + len(QUERIES) + len(single_ms)), bulk_ms, single_ms)
        print_by_hand(services, keep)
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            services.stop()
            services.remove()


if __name__ == "__main__":
    main()

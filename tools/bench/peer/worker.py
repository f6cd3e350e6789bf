"""The common part of every peer's process: it opens the peer, then answers each command line with one line of JSON.

    run LOAD WINDOW MS       embeds rows of ids in windows of WINDOW rows (0: all at once), at least once and until MS
                             milliseconds have passed
    tune LOAD WINDOW         finds the peer's best number of rows per batch for that, and warms it up
    text LOAD WINDOW MS      as run, but from texts: the peer tokenises, sorts and pads as it likes
    each LOAD COUNT          embeds one row after the other; milliseconds of each
    vectors LOAD WINDOW FILE writes the vectors, f32
    tokens LOAD MS           tokenises all texts, likewise until MS have passed
    document LOAD COUNT      tokenises one long text COUNT times; milliseconds of each

A peer is an object with `forward(lane, ids, mask)` -> [rows, dim], its vectors of length 1; or with `encode(texts,
rows)`; or with `tokenize(texts)` -> number of ids. Batches are sorted by length, cut, padded and laid out before the
clock starts, which is in a peer's favour, as is the choice of the best batch for each load. With two lanes, two batches
run in parallel on one thread each, and two threads call `forward`; otherwise one batch runs on two threads.
tools/bench/peer_sluice.c uses the same commands. """
import concurrent.futures
import json
import pathlib
import sys
import time

import numpy as np

BATCH_ROWS = [8, 16, 32, 64]
TUNED_ROWS = 128  # rows of a load with which the best batch is found
TUNED_TEXTS = 256


class Loads:
    """The rows of each load, by its name."""

    def __init__(self, folder):
        self.folder, self.known_ids, self.known_texts = pathlib.Path(folder), {}, {}

    def ids(self, name):
        if name not in self.known_ids:
            lines = (self.folder / f"{name}.ids").read_text().splitlines()
            self.known_ids[name] = [np.array(line.split(), np.int64) for line in lines]
        return self.known_ids[name]

    def texts(self, name):
        if name not in self.known_texts:
            self.known_texts[name] = (self.folder / f"{name}.txt").read_text().rstrip("\n").split("\n")
        return self.known_texts[name]


def padded(rows):
    ids = np.zeros((len(rows), max(len(row) for row in rows)), np.int64)
    mask = np.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, :len(row)], mask[number, :len(row)] = row, 1
    return ids, mask


def cut(rows, window, batch_rows):
    """Returns each window's batches (which rows, ids, mask), sorted by length, the longest first."""
    windows = []
    for start in range(0, len(rows), window):
        order = sorted(range(start, min(start + window, len(rows))), key=lambda i: -len(rows[i]))
        parts = [order[at:at + batch_rows] for at in range(0, len(order), batch_rows)]
        windows.append([(part, *padded([rows[i] for i in part])) for part in parts])
    return windows


def some(rows, window):
    """One window; or, if there is no window, the rows of medium length, which need as little padding as all rows
    sorted."""
    first = (len(rows) - TUNED_ROWS) // 2
    return rows[:window or None] if window or first < 0 else sorted(rows, key=len)[first:first + TUNED_ROWS]


class Worker:
    def __init__(self, peer, loads, lanes, tunes=True):
        self.peer, self.loads, self.lanes, self.tunes = peer, loads, lanes, tunes
        self.pool = concurrent.futures.ThreadPoolExecutor(lanes) if lanes > 1 else None
        self.chosen, self.laid_out = {}, {}

    def layout(self, name, window):
        key = (name, window)
        if key not in self.laid_out:
            rows = self.loads.ids(name)
            self.laid_out[key] = cut(rows, window or len(rows), self.chosen.get(key, 32))
        return self.laid_out[key]

    def embed(self, windows, to):
        """Embeds all windows in sequence; within a window, the lanes take batches as they become free."""
        def lane(number, batches):
            for which, ids, mask in batches:
                to[which] = self.peer.forward(number, ids, mask)

        for batches in windows:
            if self.pool is None or len(batches) == 1:
                lane(0, batches)
            else:
                left = iter(batches)  # next() of a list's iterator is atomic for other threads
                for done in [self.pool.submit(lane, number, left) for number in range(self.lanes)]:
                    done.result()

    def repeat(self, once, milliseconds):
        runs, begin = 0, time.perf_counter()
        while runs == 0 or time.perf_counter() - begin < milliseconds / 1000:
            once()
            runs += 1
        return {"runs": runs, "seconds": time.perf_counter() - begin}

    def room(self, name):
        return np.empty((len(self.loads.ids(name)), self.peer.dim), np.float32)

    def run(self, name, window, milliseconds):
        windows, to = self.layout(name, int(window)), self.room(name)
        return self.repeat(lambda: self.embed(windows, to), int(milliseconds))

    def tune(self, name, window):
        """Uses only a part of the load. A peer that takes texts cuts its batches itself."""
        if not self.tunes:
            return {}
        rows = some(self.loads.ids(name), int(window))
        to, took = np.empty((len(rows), self.peer.dim), np.float32), {}
        for batch_rows in BATCH_ROWS:
            windows = cut(rows, len(rows), batch_rows)
            self.embed([windows[0][:self.lanes]], to)  # a peer's first run of a shape may cost more
            took[batch_rows] = self.repeat(lambda: self.embed(windows, to), 0)["seconds"]
        self.chosen[(name, int(window))] = min(took, key=took.get)
        return {"seconds": took}

    def text(self, name, window, milliseconds):
        texts = self.loads.texts(name)
        window = int(window) or len(texts)

        if ("text", name) not in self.chosen:
            took = {rows: self.repeat(lambda: self.peer.encode(texts[:TUNED_TEXTS], rows), 0)["seconds"] for rows in (16, 32, 64)}
            self.chosen[("text", name)] = min(took, key=took.get)
        rows = self.chosen[("text", name)]
        return self.repeat(lambda: [self.peer.encode(texts[at:at + window], rows) for at in range(0, len(texts), window)],
                           int(milliseconds))

    def each(self, name, count):
        took, batches = [], [padded([row]) for row in self.loads.ids(name)]
        for number in range(int(count)):
            ids, mask = batches[number % len(batches)]
            begin = time.perf_counter()
            self.peer.forward(0, ids, mask)
            took.append(1000 * (time.perf_counter() - begin))
        return {"ms": took}

    def vectors(self, name, window, path):
        to = self.room(name)
        self.embed(self.layout(name, int(window)), to)
        to.tofile(path)
        return {"rows": len(to), "dim": to.shape[1]}

    def tokens(self, name, milliseconds):
        texts, counted = self.loads.texts(name), []
        took = self.repeat(lambda: counted.append(self.peer.tokenize(texts)), int(milliseconds))
        return took | {"tokens": sum(counted)}

    def document(self, name, count):
        took, texts = [], self.loads.texts(name)
        for _ in range(int(count)):
            begin = time.perf_counter()
            self.peer.tokenize(texts)
            took.append(1000 * (time.perf_counter() - begin))
        return {"ms": took}

    def answer(self, line):
        command, *words = line.split()
        if command not in ("run", "tune", "text", "each", "vectors", "tokens", "document"):
            return {"error": f"no command named {command}"}
        try:
            return getattr(self, command)(*words)
        except Exception as error:  # a peer's errors go into the report
            return {"error": f"{type(error).__name__}: {error}"[:600]}


def serve(open_peer):
    """usage: … MATERIAL VARIANT LANES THREADS, where THREADS is per lane. The first row of the load `one` is embedded
    before the peer says that it is ready."""
    material, variant, lanes, threads = pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    answers = sys.stdout
    sys.stdout = sys.stderr  # output of packages is not an answer
    peer = open_peer(material, variant, lanes, threads)
    worker = Worker(peer, Loads(material / "loads"), lanes, tunes=hasattr(peer, "forward"))
    if hasattr(peer, "forward"):
        worker.each("one", 1)
    elif hasattr(peer, "encode"):
        peer.encode(worker.loads.texts("one")[:1], 1)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.answer(line)), file=answers, flush=True)


def main(open_peer, prepare=None):
    """`prepare(material, variant)` makes the files that the peer opens, once, in its own format."""
    if sys.argv[1] == "serve":
        serve(open_peer)
    elif prepare is not None:
        prepare(pathlib.Path(sys.argv[2]), sys.argv[3])

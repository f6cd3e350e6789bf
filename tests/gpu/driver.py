"""Jobs for gpu_check (tests/gpu/gpu_job.h says what a job is), and its answers."""
import json
import pathlib
import subprocess
import tempfile

import numpy as np

PACKED, PADDED = 0, 1
NOT_HERE = 77


class NotHere(Exception):
    """The machine or the build cannot do the job."""


class Failed(Exception):
    """The driver ended with an error."""


def write_job(path, texts, loads):
    """`texts`: arrays of ids. `loads`: lists of batches (layout, [text numbers])."""
    parts = [np.array([len(texts)]), np.array([len(t) for t in texts]), *texts, np.array([len(loads)])]
    for load in loads:
        parts.append(np.array([len(load)]))
        for layout, which in load:
            parts += [np.array([layout, len(which)]), np.asarray(which)]
    with open(path, "wb") as file:
        for part in parts:
            file.write(np.asarray(part, np.int32).tobytes())


def rows_of(loads):
    """The text number of every row, in the order of the vectors."""
    return np.concatenate([np.asarray(which) for load in loads for _, which in load])


class Driver:
    def __init__(self, command, backend, work, device=0, graphs=True):
        self.command, self.backend, self.work, self.device = [str(c) for c in command], backend, pathlib.Path(work), device
        self.graphs = graphs  # False: never

    def _run(self, words, options, timeout):
        command = [*self.command, *map(str, words), "--backend", self.backend, "--device", str(self.device),
                   "--cache", str(self.work / "cache"), *([] if self.graphs else ["--no-graphs"]), *map(str, options)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"gpu_check hung: more than {timeout} s for {' '.join(command)}") from None
        except OSError as error:  # a tool before it is missing
            raise NotHere(str(error)) from None
        message = done.stderr.decode("utf-8", "replace").strip()
        answers = []
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            if line.startswith("{"):
                answers.append(json.loads(line))
            else:
                print(line)  # output of a sanitizer around it
        if done.returncode == NOT_HERE:
            raise NotHere(message)
        if done.returncode != 0:
            raise Failed(f"gpu_check ended with {done.returncode}: {message[-2000:]}")
        return answers

    def vectors(self, model, texts, loads, dim, *options, timeout=400):
        """(vectors [rows, dim], what the engine says of itself)."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            job, output = pathlib.Path(folder) / "job", pathlib.Path(folder) / "vectors"
            write_job(job, texts, loads)
            lines = self._run(["vectors", model, job, output], options, timeout)
            vectors = np.fromfile(output, np.float32)
        rows = len(rows_of(loads))
        if vectors.size != rows * dim:
            raise Failed(f"gpu_check wrote {vectors.size} floats for {rows} rows of {dim}")
        return vectors.reshape(rows, dim), lines[-1]["engine"]

    def _measured(self, command, model, texts, loads, options, timeout):
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            job = pathlib.Path(folder) / "job"
            write_job(job, texts, loads)
            lines = self._run([command, model, job], options, timeout)
        if [line["load"] for line in lines[:-1]] != list(range(len(loads))):
            raise Failed(f"gpu_check measured {len(lines) - 1} of {len(loads)} loads")
        return lines[:-1], lines[-1]["engine"]

    def rates(self, model, texts, loads, *options, timeout=400):
        """(for each load its rows, tokens and seconds of every round, what the engine says)."""
        return self._measured("rates", model, texts, loads, options, timeout)

    def latencies(self, model, texts, loads, *options, timeout=200):
        return self._measured("latencies", model, texts, loads, options, timeout)

#!/usr/bin/python3
"""Runs the code of docs/bulk.md that loads vectors into other programs, and compares their content.

    loaders.py SLUICE [numpy faiss pgvector qdrant elasticsearch parquet]

Its packages are those of tests/docs/requirements.txt; numpy alone needs only NumPy. The vectors are those of a random model
of 192 floats, of texts whose ids need quoting and of one that fails. Nearest rows are those of plain NumPy."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
SLUICE = str(pathlib.Path(sys.argv[1]).resolve())
os.environ["SLUICE_BINARY"] = SLUICE
sys.path[:0] = [str(SOURCE / "tests/support"), str(HERE)]

import model  # noqa: E402
import process  # noqa: E402
from blocks import code_blocks, only_block, put_in  # noqa: E402
from corpus import texts  # noqa: E402

PAGE = (SOURCE / "docs/bulk.md").read_text(encoding="utf-8")
MARKS = {"numpy": "import json, numpy", "faiss": "import faiss", "pgvector": "CREATE EXTENSION", "qdrant": "QdrantClient(",
         "elasticsearch": "Elasticsearch(", "parquet": "to_parquet"}
IDS = ["plain", 'a "quoted" one', "back\\slash", "two\\\\of them", "a\ttab", "two\nlines", "it's", "grün 你好", "{}", "\\N", "0"]
ROWS, FAILED, ASKED, NEAREST = 700, 17, 3, 5  # more rows than a request of Elasticsearch's client takes


class Docs:
    """The files that the page's loaders read, in the current folder, and their content."""

    def __init__(self):
        self.ids = [*IDS, *(f"row {i}" for i in range(ROWS - len(IDS)))]
        self.texts = texts(ROWS, seed=7, longest=12)
        self.texts[FAILED] = ""
        lines = [json.dumps({"id": name, "text": text}) for name, text in zip(self.ids, self.texts)]
        pathlib.Path("in.jsonl").write_text("\n".join(lines), encoding="utf-8")
        model.write_model("model", hidden=192, heads=6, layers=1, intermediate=64)
        for output in ("docs.npy", "docs.jsonl"):
            self.sluice(f"sluice embed in.jsonl --id-field id --output {output}", code=1)
        self.vectors = numpy.load("docs.npy")
        self.good = [row for row in range(ROWS) if row != FAILED]
        assert self.vectors.shape == (ROWS, 192) and numpy.isnan(self.vectors[FAILED]).all()

    def sluice(self, command, code=0):
        """A command line as the page has it, with its configuration in the environment."""
        path = f"{os.path.dirname(SLUICE)}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        environment = process.clean_environment({"SLUICE_MODEL": "model", "SLUICE_PRECISION": "f32", "PATH": path})
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stderr}"

    def nearest(self):
        """The rows whose vectors are nearest to that of the row ASKED, best first."""
        cosines = numpy.nan_to_num(self.vectors, nan=-1) @ self.vectors[ASKED]
        return numpy.argsort(-cosines, kind="stable")[:NEAREST].tolist()

    def same(self, found, exactly=True):
        """`found`: vectors by id, of exactly the good rows."""
        assert set(found) == {self.ids[row] for row in self.good}, "other ids"
        for row in self.good:
            vector = numpy.asarray(found[self.ids[row]], "float32")
            assert numpy.array_equal(vector, self.vectors[row]) if exactly else numpy.allclose(vector, self.vectors[row], atol=1e-6)


def load(name, change=lambda code: code):
    """Runs the NumPy block and then this one; returns the names that they have set."""
    names = {}
    exec(compile(only_block(PAGE, MARKS["numpy"]), "docs/bulk.md (numpy)", "exec"), names)
    if name != "numpy":
        exec(compile(change(only_block(PAGE, MARKS[name])), f"docs/bulk.md ({name})", "exec"), names)
    return names


def run_numpy(docs):
    names = load("numpy")
    assert numpy.flatnonzero(names["good"]).tolist() == docs.good and names["ids"] == docs.ids
    with open("docs.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert rows[FAILED]["vector"] is None
    docs.same({row["id"]: row["vector"] for row in rows if row["vector"]})  # the two files say the same
    docs.same({names["ids"][row]: names["vectors"][row] for row in numpy.flatnonzero(names["good"])})


def run_faiss(docs):
    index = load("faiss")["index"]
    assert index.ntotal == len(docs.good)
    _, rows = index.search(docs.vectors[[ASKED]], NEAREST)
    assert rows[0].tolist() == docs.nearest()


def run_pgvector(docs):
    from postgres import Postgres
    pathlib.Path("load.sql").write_text(only_block(PAGE, MARKS["pgvector"]), encoding="utf-8")
    with Postgres(os.getcwd()) as server:
        server.psql("-f", "load.sql")
        said = server.psql("-c", "SELECT json_build_object('id', id, 'vector', embedding::text::json) FROM docs")
        rows = [json.loads(line) for line in said.splitlines()]
        docs.same({row["id"]: row["vector"] for row in rows})
        asked = "'" + str(docs.vectors[ASKED].tolist()) + "'"
        said = server.psql("-c", f"SELECT to_json(id) FROM docs ORDER BY embedding <=> {asked} LIMIT {NEAREST}")
        assert [json.loads(line) for line in said.splitlines()] == [docs.ids[row] for row in docs.nearest()]


def run_qdrant(docs):
    client = load("qdrant", lambda code: put_in(code, '"http://localhost:6333"', '":memory:"'))["client"]
    points, more = client.scroll("docs", limit=ROWS, with_vectors=True)
    assert more is None and [point.id for point in points] == docs.good
    docs.same({point.payload["id"]: point.vector for point in points}, exactly=False)  # it normalises them once more
    found = client.query_points("docs", query=docs.vectors[ASKED].tolist(), limit=NEAREST).points
    assert [point.id for point in found] == docs.nearest()


def run_elasticsearch(docs):
    from elasticsearch_stub import Elasticsearch
    with Elasticsearch() as server:
        load("elasticsearch", lambda code: put_in(code, "http://localhost:9200", server.url))
        docs.same({name: source["vector"] for name, source in server.indices["docs"].documents.items()})
        assert server.requests == 1 + 2 and server.indices["docs"].dims == {"vector": 192}


def run_parquet(docs):
    """Writes a Parquet file with pandas, and reads such a file through DuckDB."""
    import pandas
    load("parquet")
    frame = pandas.read_parquet("docs.parquet")
    docs.same(dict(zip(frame["id"], frame["vector"])))
    names, kept = [docs.ids[row] for row in docs.good], [docs.texts[row] for row in docs.good]
    pandas.DataFrame({"id": names, "text": kept}).to_parquet("docs.parquet")
    os.rename("docs.npy", "before.npy")
    os.unlink("docs.npy.manifest.json")
    os.unlink("docs.npy.failures.jsonl")
    docs.sluice(only_block(PAGE, "duckdb -c"))
    assert numpy.array_equal(numpy.load("docs.npy"), docs.vectors[docs.good])
    assert load("numpy")["ids"] == names


RUNS = {"numpy": run_numpy, "faiss": run_faiss, "pgvector": run_pgvector, "qdrant": run_qdrant,
        "elasticsearch": run_elasticsearch, "parquet": run_parquet}


def check_page():
    """Every block that loads something is one of those that are run here, and the versions are those that are installed."""
    loading = [code for language, code in code_blocks(PAGE) if language]
    assert sorted(loading) == sorted(only_block(PAGE, mark) for mark in MARKS.values()), "a block of another kind"
    for line in (HERE / "requirements.txt").read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            name, version = line.split("==")
            said = PAGE.replace("\n", " ").replace("NumPy", "numpy")
            assert f"{name} {version}" in said, f"docs/bulk.md does not say {name} {version}"


def main():
    check_page()
    for name in sys.argv[2:] or RUNS:
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            os.chdir(folder)
            RUNS[name](Docs())
            os.chdir(SOURCE)
        print(f"{name}: loaded as docs/bulk.md says", flush=True)


if __name__ == "__main__":
    main()

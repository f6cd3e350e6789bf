"""The comparison with other engines, tested on stand-ins: its treatment of figures, and of peers that fail. Nothing is
installed."""
# ctest-once

import argparse
import array
import contextlib
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peer"))

import catalogue  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import table  # noqa: E402
from catalogue import OURS, Engine  # noqa: E402
from model import write_model  # noqa: E402
from warm import Process, Refused  # noqa: E402

# Answers like a worker, with the figures of its first argument: {command: answer, "start": "dies"}.
STAND_IN = r"""
import json, sys
behaviour = json.loads(sys.argv[1])
if behaviour.get("start") == "dies":
    sys.exit("ImportError: no such library")
if behaviour.get("start") == "silent":
    sys.stdin.read()
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    command = line.split()[0]
    answers = behaviour.get(command, {"error": "cannot " + command})
    if answers == "dies":
        sys.exit("killed by its own bug")
    if answers == "silent":
        sys.stdin.read()
    if isinstance(answers, list):
        answers = answers.pop(0) if len(answers) > 1 else answers[0]
    print(json.dumps(answers), flush=True)
"""


def stand_in(**behaviour):
    return [sys.executable, "-c", STAND_IN, json.dumps(behaviour)]


def took(seconds):
    return {"runs": 1, "seconds": seconds}


class Plan(peers.Plan):
    def __init__(self, **changes):
        self.rounds, self.end, self.step_ms, self.singles, self.chance, self.cpu = 3, math.inf, 1, 4, 0, False
        self.tokens = {"fixed": 1000, "mixed": 2000, "windows": 500}
        self.__dict__.update(changes)


def engine(peer, precision="f32", columns=("fixed", "one")):
    return Engine(peer, precision, precision, 1, "none", columns=columns)


class Peers(unittest.TestCase):
    def start(self, **behaviour):
        process = Process(stand_in(**behaviour), start_s=60)
        self.addCleanup(process.close)
        return process

    def turns(self, engines, columns=("fixed",), **plan):
        figures = measure.Figures()
        measure.take_turns({e: self.start(**behaviour) for e, behaviour in engines.items()}, columns, Plan(**plan), figures)
        return figures

    def test_a_rate_is_tokens_over_seconds_and_every_round_counts(self):
        ours = engine(OURS)
        figures = self.turns({ours: {"run": [took(9), took(1), took(2), took(4)]}})
        self.assertEqual(figures.rounds, {(ours, "fixed"): [1000, 500, 250]})  # the first one warmed up

    def test_a_rate_by_processor_time_counts_what_the_process_has_used(self):
        process = self.start(run=took(9))
        used = iter([2.0, 3.0])
        process.cpu_s = lambda: next(used)
        self.assertEqual(measure.one_step(process, "fixed", Plan(cpu=True)), {"fixed": 1000 * catalogue.THREADS})
        busy = Process([sys.executable, "-c", "import json,time\nwhile time.process_time() < 0.1: pass\nprint(json.dumps({'ready': True}), "
                        "flush=True)\ninput()"])
        self.addCleanup(busy.close)
        self.assertAlmostEqual(busy.cpu_s(), 0.1, delta=0.05)

    def test_latency_is_given_by_percentiles(self):
        figures = self.turns({engine(OURS): {"each": {"ms": [5, 1, 2, 3]}}}, columns=("one",), rounds=1)
        self.assertEqual({column: rounds for (_, column), rounds in figures.rounds.items()}, {"one": [2], "one_p99": [5]})
        self.assertEqual([measure.percentile(range(1, 101), share) for share in (0.5, 0.99, 1)], [50, 99, 100])

    def test_the_best_batch_is_looked_for_where_rows_differ_in_length(self):
        figures = self.turns({engine(OURS, columns=("job", "windows")): {"run": took(1)}}, columns=("job", "windows"))
        self.assertEqual(figures.rounds, {})
        self.assertEqual(list(figures.refused.values()), ["cannot tune"] * 2)

    def test_who_cannot_do_one_column_stays_in_the_others(self):
        figures = self.turns({engine("a"): {"run": took(1)}}, columns=("fixed", "one"))
        self.assertEqual([column for _, column in figures.rounds], ["fixed"])
        self.assertEqual(figures.refused, {"a f32: one": "cannot each"})

    def test_who_dies_in_the_middle_is_listed_and_the_others_go_on(self):
        dying, ours = engine("a", columns=("fixed", "one")), engine(OURS)
        figures = self.turns({dying: {"run": took(1), "each": "dies"}, ours: {"run": took(1), "each": {"ms": [1]}}},
                             columns=("one", "fixed"))
        self.assertEqual(figures.rounds[(ours, "one")], [1, 1, 1])
        self.assertIn("killed by its own bug", figures.refused["a f32: one"])

    def test_who_is_far_behind_the_fastest_peer_has_one_round(self):
        ours, fast, slow, other = engine(OURS), engine("a"), engine("b"), engine("c", "int8")
        rate = {"run": took(1), "each": {"ms": [1]}}
        late = {"run": [took(9), took(2), took(1)], "each": {"ms": [1]}}
        figures = self.turns({ours: late, fast: rate, slow: late, other: late}, columns=("fixed", "one"), chance=0.8)
        self.assertEqual({e.peer: len(figures.rounds[(e, "fixed")]) for e in (ours, fast, slow, other)},
                         {OURS: 3, "a": 3, "b": 1, "c": 3})
        self.assertEqual(len(figures.rounds[(slow, "one")]), 3)  # no race

    def test_no_round_begins_after_the_time_is_up(self):
        figures = self.turns({engine(OURS): {"run": took(1)}}, end=0)
        self.assertEqual([len(rounds) for rounds in figures.rounds.values()], [1])

    def test_who_does_not_start_says_why(self):
        with self.assertRaisesRegex(Refused, "ended with 1: ImportError: no such library"):
            Process(stand_in(start="dies"))
        with self.assertRaisesRegex(Refused, "no answer within 0.2 s"):
            Process(stand_in(start="silent"), start_s=0.2)

    def test_who_does_not_answer_does_not_go_on(self):
        process = self.start(run="silent")
        with self.assertRaisesRegex(Refused, "no answer within 0.2 s"):
            process.ask("run", timeout_s=0.2)
        with self.assertRaisesRegex(Refused, "ended with -9"):
            process.ask("run")

    def test_a_process_is_stopped_while_others_have_their_turn(self):
        process = self.start(run=took(1))
        process.ask("run", "fixed", 0, 1)
        def state():
            return pathlib.Path(f"/proc/{process.child.pid}/stat").read_text().rpartition(")")[2].split()[0]
        while state() != "T":
            os.sched_yield()
        self.assertEqual(process.ask("run", "fixed", 0, 1), took(1))
        self.assertGreater(process.resident_mb(), 1)

    def test_accuracy_is_of_the_worst_row_and_bits_of_all(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vectors")
            def answering(*sets):
                left = list(sets)
                class Answering:
                    def ask(self, *words):
                        pathlib.Path(words[3]).write_bytes(array.array("f", sum(left.pop(0), [])).tobytes())
                        return {"rows": 2, "dim": 2}
                return Answering()
            reference, right, off = [[1, 0], [0, 2]], [[2.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [1.0, 1.0]]
            self.assertEqual(measure.accuracy(answering(right, right), reference, path), {"cosine": 1.0, "same_bits": 1.0})
            found = measure.accuracy(answering(right, off), reference, path)
            self.assertAlmostEqual(found["cosine"], 0.5 ** 0.5)
            self.assertEqual(found["same_bits"], 0.0)

    def test_the_ranking_is_of_engines_in_int8_and_once_for_all_lanes(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            compares = folder / "python"  # in place of retrieval.py; prints its last argument, the number of columns
            compares.write_text('#!/bin/sh\nfor last; do :; done\necho "{\\"overlap\\": $last}"\n')
            compares.chmod(0o755)
            (folder / "ranking.f32").touch()
            int8, f32, silent = engine("a", "int8", ("ranking",)), engine("a", "f32", ("ranking",)), engine("b", "int8", ("ranking",))
            able = [int8, f32, Engine("a", "int8", "int8", 2, "none", columns=("ranking",))]
            processes = {e: self.start(vectors={"rows": 1, "dim": 7}) for e in able} | {silent: self.start()}
            figures = measure.Figures()
            peers.measure_ranking(processes, argparse.Namespace(work=folder), argparse.Namespace(python=lambda _: compares), folder, figures)
            self.assertEqual(figures.rounds, {(int8, "overlap"): [7]})
            self.assertEqual(figures.refused, {"b int8: ranking": "cannot vectors"})

    def records(self, shape="minilm", **rates):
        """`rates`: peer -> rounds of the column fixed, all of f32."""
        figures = measure.Figures()
        for peer, rounds in rates.items():
            figures.rounds[(engine(peer), "fixed")] = rounds
        return table.records(figures, shape, "today")

    def test_a_ratio_is_the_median_of_pairs(self):
        # The machine was half as fast in the third round: this affects the medians of each, but not the pairs.
        found = self.records(sluice=[200, 220, 100], a=[100, 100, 50])
        self.assertEqual(table.ratio(found["minilm|fixed|a f32"]), 2.0)
        self.assertIsNone(table.ratio(found["minilm|fixed|a f32"], "int8"))

    def test_the_best_peer_is_the_one_that_ours_leads_least(self):
        found = self.records(sluice=[100] * 3, a=[50] * 3, b=[125] * 3)
        row = "| all-MiniLM-L6-v2: 128 tokens, batches of 32, tokens/s | **100, 0.80 b** |  |  | 1.3, 1.3, 1.2 |"
        self.assertEqual(table.machine_table(list(found.values())).splitlines()[2:], [row])
        figures = measure.Figures()
        figures.rounds = {(engine(OURS), "one"): [1.0], (engine("a"), "one"): [4.0], (engine("b"), "one"): [2.0]}
        self.assertIn("| 1, 0.50 b |", table.machine_table(list(table.records(figures, "minilm", "").values())))

    def test_some_goals_are_for_our_own_figure(self):
        figures = measure.Figures()
        figures.rounds = {(engine(OURS), "memory"): [160], (engine("a"), "memory"): [320], (engine(OURS), "share"): [0.97]}
        rows = table.machine_table(list(table.records(figures, "minilm", "").values())).splitlines()[2:]
        self.assertEqual([row.split(" | ")[1] for row in rows], ["0.97", "**160, 0.50 a**"])

    def test_an_instruction_set_is_for_all_of_them(self):
        saved = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(saved)))
        os.environ["SLUICE_ISA"] = "avx2"
        options = peers.parse(["build"])
        self.assertEqual((os.environ["ONEDNN_MAX_CPU_ISA"], options.results.name), ("AVX2", "results-avx2.json"))
        self.assertNotIn("onnxruntime", options.peers)
        os.environ["SLUICE_ISA"] = "avx3"
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            peers.parse(["build"])

    def test_what_most_people_run_is_beside_all_of_ours(self):
        figures = measure.Figures()
        for precision, rate in (("f32", 30), ("bf16", 120)):
            figures.add(engine(OURS, precision), {"text": rate})
        self.assertEqual(table.usual_row(list(table.records(figures, "minilm", "").values()), "minilm"), "")
        figures.add(engine("sentence-transformers"), {"text": 10})
        row = table.usual_row(list(table.records(figures, "minilm", "").values()), "minilm").splitlines()[-1]
        self.assertIn("1 rounds | 3.00, goal 2.4 | 12.00, goal 5 |  |", row)

    def test_int8_is_beside_bf16(self):
        figures = measure.Figures()
        figures.add(engine(OURS, "bf16"), {"fixed": 20, "one": 1})
        self.assertEqual(table.int8_row(list(table.records(figures, "minilm", "").values()), "minilm"), "")
        figures.add(engine(OURS, "int8"), {"fixed": 30, "one": 1})
        row = table.int8_row(list(table.records(figures, "minilm", "").values()), "minilm")
        self.assertEqual(row.splitlines()[-1], "| tokens/s | 1.50 |")

    def test_merged_runs_keep_the_ratio_of_their_own_run(self):
        first, second = self.records(sluice=[100], a=[50]), self.records(sluice=[300], b=[100])
        results = table.merge(table.merge({}, first, {}, "minilm"), second, {}, "minilm")
        self.assertEqual({key: table.ratio(r) for key, r in results["figures"].items()},
                         {"minilm|fixed|sluice f32": 1, "minilm|fixed|a f32": 2, "minilm|fixed|b f32": 3})
        again = table.merge(results, self.records(sluice=[100], a=[200]), {}, "minilm")
        self.assertEqual(table.ratio(again["figures"]["minilm|fixed|a f32"]), 0.5)

    def test_refusals_are_listed_until_there_is_a_figure(self):
        results = table.merge({}, {}, {"a f32": "not installed: no wheel", "b f32: one": "cannot"}, "minilm")
        self.assertIn("- a f32: not installed: no wheel", table.report(results))
        results = table.merge(results, self.records(a=[1]), {}, "minilm")
        text = table.report(results)
        self.assertNotIn("no wheel", text)
        self.assertIn("- b f32: one: cannot", text)

    def test_a_table_shows_every_engine_and_what_it_did(self):
        lines = table.figures_table(list(self.records(a=[1234.5], sluice=[0.5, 0.25, 0.375]).values()), "minilm").splitlines()
        self.assertEqual(lines[2:], ["| sluice f32 | 0.375 |", "| a f32 | 1,234 |"])

    def test_ours_is_always_chosen_and_others_as_asked(self):
        chosen = catalogue.choose(("fixed",), peers=["openvino"], precisions=["bf16"])
        self.assertEqual([e.key for e in chosen], ["sluice bf16", "openvino bf16", "openvino 2x1 bf16"])
        self.assertEqual(len({e.key for e in catalogue.ENGINES}), len(catalogue.ENGINES))

    def test_each_family_has_its_own_columns(self):
        seen = []
        saved = peers.make_material, peers.measure_shape
        self.addCleanup(lambda: vars(peers).update(zip(("make_material", "measure_shape"), saved)))
        peers.make_material = lambda options, installed, shape: (shape, {})
        peers.measure_shape = lambda options, installed, shape, *rest: seen.append((shape, *options.columns)) or ""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            peers.main([folder, "--work", folder, "--families"])
            self.assertTrue((pathlib.Path(folder) / "results-families.json").exists())
        self.assertEqual(seen, [(shape, *columns) for shape, columns in catalogue.FAMILIES.items()])

    def test_a_run_merges_what_it_found_and_lists_what_it_did_not(self):
        """Runs the whole script with a peer that cannot be installed and one whose environment lacks everything."""
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            (work / "minilm").mkdir()
            missing = Engine("missing", "f32", "f32", 1, "openvino", "no-such-list")
            empty = Engine("empty", "f32", "f32", 1, "openvino", "empty")
            (work / "bin").mkdir()
            (work / "bin/python").symlink_to(sys.executable)
            saved = peers.make_material, peers.command, peers.prepare
            self.addCleanup(lambda: vars(peers).update(zip(("make_material", "command", "prepare"), saved)))
            peers.make_material = lambda *_: (work / "minilm", {"fixed": 100})
            peers.command = lambda e, *rest: stand_in(run=took(1)) if e.peer == OURS else saved[1](e, *rest)
            peers.prepare = lambda e, installed, folder: installed.python(e.packages) if e is missing else None
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                peers.main([folder, "--work", folder, "--shapes", "minilm", "--peers", "all", "--columns", "fixed",
                            "--rounds", "2", "--quick", "--venv", f"empty={folder}"], [engine(OURS), missing, empty])
            results = json.loads((work / "results-quick.json").read_text())
            self.assertEqual(results["figures"]["minilm|fixed|sluice f32"]["rounds"], [100, 100])
            self.assertIn("not installed", results["refused"]["minilm|missing f32"])
            self.assertIn("No module named", results["refused"]["minilm|empty f32"])
            for expected in ("| sluice f32 | 100 |", "- missing f32: not installed", "- empty f32: ended with 1"):
                self.assertIn(expected, shown.getvalue())


class Ours(unittest.TestCase):
    """peer_sluice on a tiny model: the workers' commands, and its vectors."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        write_model(str(self.folder / "model"))
        (self.folder / "loads").mkdir()
        # [CLS] the of and a [SEP] …: ids from the tiny model's tokenizer
        tokenizer = json.loads((self.folder / "model/tokenizer.json").read_text())
        ids = tokenizer["model"]["vocab"]
        texts = [" ".join(text.split()[:n]) for n in range(1, 8) for text in ("the of and a to in is", "red blue green")]
        rows = [[2, *(ids[word] for word in text.split()), 3] for text in texts]
        for name in ("one", "mixed"):
            (self.folder / f"loads/{name}.txt").write_text("\n".join(texts) + "\n")
            (self.folder / f"loads/{name}.ids").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        self.rows, self.tokens = len(rows), sum(map(len, rows))
        built = pathlib.Path(os.environ["SLUICE_BINARY"]).parent / "tools/peer_sluice"
        self.process = Process([built, "serve", self.folder, "f32", 2], start_s=60)
        self.addCleanup(self.process.close)

    def vectors(self, window):
        answer = self.process.ask("vectors", "mixed", window, self.folder / "vectors")
        self.assertEqual(answer, {"rows": self.rows, "dim": 64})
        return measure.read_vectors(self.folder / "vectors", self.rows, 64)

    def test_ours_gives_each_row_its_vector_in_any_window(self):
        alone = self.vectors(1)
        self.assertEqual(self.vectors(0), alone)
        self.assertEqual(self.vectors(5), alone)
        # The same text has the same vector, and another text another.
        self.assertEqual(alone[5], alone[7])
        self.assertLess(measure.cosine(alone[0], alone[1]), 0.999)

    def test_ours_answers_every_command(self):
        for words in (("run", "mixed", 5, 1), ("text", "mixed", 0, 1), ("tune", "mixed", 0)):
            self.assertGreaterEqual(self.process.ask(*words)["runs"], 1, words)
        self.assertEqual(len(self.process.ask("each", "one", 30)["ms"]), 30)
        answer = self.process.ask("tokens", "mixed", 1)
        self.assertEqual(answer["tokens"], answer["runs"] * self.tokens)
        self.assertEqual(len(self.process.ask("document", "one", 3)["ms"]), 3)
        with self.assertRaisesRegex(Refused, "no command named sing"):
            self.process.ask("sing", "mixed")

    def test_ours_refuses_texts_that_become_other_ids(self):
        (self.folder / "loads/other.ids").write_text("2 3\n")
        (self.folder / "loads/other.txt").write_text("red\n")
        with self.assertRaisesRegex(Refused, "other.txt, line 1: other ids than in other.ids"):
            self.process.ask("text", "other", 0, 1)


if __name__ == "__main__":
    unittest.main()

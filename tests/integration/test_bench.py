"""`sluice bench`: each part in a tiny form. Its counts must add up and every request must be answered; speed is not
tested here."""
# ctest-cost: 20

import glob
import json
import signal
import subprocess

import process
from case import SluiceCase
from daemon import BINARY, DEVELOPER
from language_model import make_llama

USAGE, DATAERR, NOINPUT, UNAVAILABLE, TEMPFAIL = 64, 65, 66, 69, 75


class Bench(SluiceCase):
    def setUp(self):
        super().setUp()
        self.environment = {"TMPDIR": self.directory}

    def tearDown(self):
        """Checks that nothing is left: no folder, and so no server in it."""
        super().tearDown()
        self.assertEqual(glob.glob(self.path("sluice-bench-*")), [])

    def run_bench(self, part, *arguments, **options):
        binary = DEVELOPER if part in ("queue", "peak") else BINARY
        return self.run_sluice("bench", part, *arguments, binary=binary, environment=self.environment, timeout=300, **options)

    def figures(self, part, *arguments):
        result = self.run_bench(part, *arguments, "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        found = json.loads(result.stdout)
        self.assertEqual(found["bench"], part)
        self.assertRegex(found["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertGreaterEqual(found["usable_cpus"], 1)
        self.assertRegex(found["kernels"], r"^\w+$")
        return found

    def refused(self, part, *arguments, code=USAGE, says=()):
        result = self.run_bench(part, *arguments)
        text = result.stderr.decode()
        self.assertEqual(result.returncode, code, text)
        for word in says:
            self.assertIn(word, text)

    def test_what_only_developers_need_is_not_in_sluice(self):
        for part in ("queue", "peak"):
            self.assertNotIn(f"bench {part}".encode(), self.run_sluice("bench", "--help").stdout)
            self.assertIn(f"bench {part}".encode(), self.run_sluice("bench", "--help", binary=DEVELOPER).stdout)
            self.assertEqual(self.run_sluice("bench", part).returncode, USAGE)

    def test_the_parts_are_listed(self):
        result = self.run_sluice("bench")
        self.assertEqual(result.returncode, USAGE)
        self.assertIn(b"sluice bench e2e", result.stderr)
        for words in (("bench", "--help"), ("help", "bench")):
            result = self.run_sluice(*words)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertIn(b"sluice bench engine", result.stdout)
        for words in (("bench", "engine", "--help"), ("help", "bench", "engine")):
            self.assertIn(b"--batch-tokens", self.run_sluice(*words).stdout)

    def test_bad_arguments_are_named(self):
        model = self.make_model()
        self.refused("motor", says=["bench"])
        self.refused("engine", "--requests", "5", says=["--requests"])
        self.refused("engine", "--gelu", "slow", says=["--gelu", "fast"])
        self.refused("engine", "--model", model, "--tokens", "16,", code=DATAERR, says=["--tokens", "16,"])
        self.refused("engine", "--model", model, "--tokens", "65", code=DATAERR, says=["65", "64"])
        self.refused("engine", "--model", self.path("none"), code=NOINPUT, says=["none"])
        self.refused("engine", "--json", self.path("no", "folder"), "--backend", "null", "--model", model, "--round-ms", "1",
                     "--tokens", "8", code=NOINPUT, says=["folder"])
        self.refused("e2e", "--model", model, "--tokens", "1", code=DATAERR, says=["1 token"])
        self.refused("e2e", "--queue", "mine", says=["--queue"], code=DATAERR)
        self.refused("e2e", "--no-full", code=DATAERR, says=["--no-full", "--rate"])
        self.refused("e2e", "--model", model, "--input", self.path("none"), code=NOINPUT, says=["none"])
        self.refused("queue", "--model", model, "--requests", "0", says=["--requests"])
        self.refused("e2e", "--model", model, "--input", self.write("empty", ""), code=DATAERR, says=["empty"])
        self.refused("e2e", "--model", model, "--input", self.write("bytes", b"caf\xe9\n"), code=DATAERR, says=["UTF-8"])

    def test_without_a_redis_server(self):
        self.environment["PATH"] = self.directory
        self.refused("e2e", "--model", self.make_model(), code=NOINPUT, says=["--redis", "redis-server"])

    def check_engine(self, found, lengths, helps):
        threads = sorted({row["threads"] for row in found["batches"]})
        self.assertEqual(threads[0], 1)
        self.assertEqual([row["tokens"] for row in found["batches"]], lengths * len(threads))
        for row in found["batches"]:
            self.assertEqual(row["rows"], max(1, 64 // row["tokens"]))
            self.assertGreater(row["texts_per_s"], 0)
            self.assertAlmostEqual(row["tokens_per_s"] / row["texts_per_s"], row["tokens"], delta=0.05 * row["tokens"])
        self.assertEqual([(row["way"], row["padding_share"] > 0) for row in found["mixed"]],
                         [("packed", False), ("padded, by length", True), ("padded, in order", True), ("one by one", False)])
        self.assertLess(found["mixed"][1]["padding_share"], found["mixed"][2]["padding_share"])
        self.assertGreater(found["mixed"][3]["batches"], found["mixed"][0]["batches"])
        for row in found["mixed"]:
            self.assertGreater(row["texts_per_s"], 0)
        alone = [row for row in found["passes"] if row["threads"] == 1]
        self.assertEqual([(row["tokens"], row["rows"]) for row in alone], [(n, 1) for n in lengths] + [(n, 1024 // n) for n in lengths])
        helped = [(row["tokens"], row["rows"]) for row in found["passes"] if row["threads"] > 1]
        self.assertEqual(helped, [(n, 1) for n in lengths] if helps else [])
        for row in found["passes"]:
            self.assertGreaterEqual(row["passes"], 10)
            self.assertLessEqual(row["p50_ms"], row["p99_ms"])
        self.assertEqual([row["tokens"] for row in found["cost"]], lengths + [1024 for _ in lengths] + (lengths if helps else []))
        for name in ("model_open_ms", "engine_open_ms", "worst_batch_error", "cost_token_ns", "memory_mb"):
            self.assertGreaterEqual(found[name], 0, name)
        self.assertGreaterEqual(found["memory_peak_mb"], found["memory_mb"])

    def test_engine(self):
        model = self.make_model()
        arguments = ("--model", model, "--tokens", "8,64", "--batch-tokens", "64", "--round-ms", "5", "--rounds", "1")
        found = self.figures("engine", *arguments, "--precision", "f32", "--threads", "2")
        self.assertEqual((found["model"], found["backend"], found["precision"]), ("tiny", "cpu", "f32"))
        self.assertEqual({row["threads"] for row in found["batches"]}, {1, 2})
        self.check_engine(found, [8, 64], helps=True)
        self.check_engine(self.figures("engine", *arguments, "--backend", "null", "--no-graphs", "--gelu", "exact"), [8, 64],
                          helps=False)

    def test_a_table_for_people_and_json_in_a_file(self):
        path = self.path("figures.json")
        result = self.run_bench("engine", "--model", self.make_model(), "--tokens", "8", "--batch-tokens", "8", "--round-ms", "1",
                                "--rounds", "1", "--threads", "1", "--precision", "f32", "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertRegex(result.stdout.decode(), r"\n +threads +tokens +rows +texts/s .*\n +1 +8 +1 +")
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        self.assertIn(f"{found['passes'][0]['p50_ms']:.3f}", result.stdout.decode())

    def test_peak(self):
        found = self.figures("peak", "--model", self.make_model(), "--tokens", "8,64", "--batch-tokens", "64", "--round-ms", "5",
                             "--rounds", "1", "--precision", "f32", "--threads", "2")
        self.assertEqual([(row["tokens"], row["rows"], row["threads"]) for row in found["peak"]],
                         [(8, 8, 1), (8, 8, 2), (64, 1, 1), (64, 1, 2)])
        for row in found["peak"]:
            self.assertGreater(row["peak_gflops"], 0)
            share, rounded = row["gflops"] / row["peak_gflops"], 0.05 / row["peak_gflops"]  # one decimal; a busy machine has small numbers
            self.assertAlmostEqual(row["share"], share, delta=0.01 + 2 * rounded * (1 + share))

    def test_queue(self):
        found = self.figures("queue", "--model", self.make_model(), "--requests", "3000", "--rounds", "2")
        self.assertEqual(found["floats"], 64)
        self.assertEqual([row["encoding"] for row in found["loop"]], ["f32", "json"])
        for row in found["loop"]:
            self.assertEqual((row["requests"], row["rounds"]), (3000, 2))
            self.assertGreater(row["daemon_per_s"], 0)
            self.assertGreater(row["ceiling_per_s"], 0)
            self.assertGreater(row["share"], 0)

    def test_queue_on_a_given_redis_leaves_nothing_there(self):
        client = (server := self.start_redis()).client()
        found = self.figures("queue", "--redis", server.socket, "--model", self.make_model(), "--requests", "2000", "--rounds", "1")
        self.assertEqual([row["requests"] for row in found["loop"]], [2000, 2000])
        self.assertEqual(client.keys(), [])

    def check_run(self, row):
        """Asserts that every request has one answer and a vector, and that the daemon's busy time is possible."""
        self.assertGreater(row["requests"], 0)
        self.assertEqual((row["errors"], row["doubled"]), (0, 0))
        self.assertGreaterEqual(row["batch_rows"], 1)
        self.assertLessEqual(row["p50_ms"], row["p99_ms"])
        self.assertGreater(row["p50_ms"], 0)
        self.assertGreaterEqual(row["busy_share"], 0)

    def test_e2e(self):
        found = self.figures("e2e", "--model", self.make_model(), "--tokens", "8,0", "--duration-ms", "200", "--rate", "100",
                             "--outstanding", "32", "--threads", "1", "--precision", "f32")
        kinds = [(row["batching"], row["load"]) for row in found["runs"]]
        self.assertEqual(kinds, 2 * [("on", "full"), ("off", "full"), ("on", "random")])
        for row in found["runs"]:
            self.check_run(row)
            if row["batching"] == "off":
                self.assertEqual(row["batch_rows"], 1)
        self.assertEqual([row["tokens"] for row in found["runs"][:3]], [8, 8, 8])
        self.assertEqual(found["runs"][2]["offered_per_s"], 100)
        self.assertEqual([row["tokens"] for row in found["batching"]], [8, 0])
        found = self.figures("e2e", "--model", self.make_model(), "--tokens", "8", "--duration-ms", "200", "--rate", "100", "--no-full",
                             "--backend", "null")
        self.assertEqual([(row["load"], row["requests"]) for row in found["runs"]], [("random", 20)])
        self.assertNotIn("batching", found)

    def test_e2e_on_a_given_redis_leaves_nothing_there(self):
        server = self.start_redis()
        client = server.client()
        client.set("sluice:{mine}:x", "stays")
        texts = self.write("texts.txt", "one text\nand another one\n")
        found = self.figures("e2e", "--redis", server.socket, "--model", self.make_model(), "--input", texts, "--duration-ms", "50",
                             "--no-alone", "--backend", "null")
        self.assertEqual(len(found["runs"]), 1)
        self.check_run(found["runs"][0])
        self.assertEqual(client.keys(), [b"sluice:{mine}:x"])

    def test_an_interrupted_run_cleans_up(self):
        server = self.start_redis()
        client = server.client()
        bench = process.start([BINARY, "bench", "e2e", "--redis", server.socket, "--model", self.make_model(), "--duration-ms", "600000"],
                              env=process.clean_environment(self.environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            self.wait_until(lambda: client.keys("sluice:{bench-*:results:bench"), "the run to have begun")
            bench.send_signal(signal.SIGINT)
            _, said = bench.communicate(timeout=60)
        finally:
            process.end(bench)
        self.assertEqual(bench.returncode, TEMPFAIL, said.decode())
        self.assertIn(b"interrupted", said)
        self.assertEqual(client.keys(), [])

    def test_a_daemon_that_does_not_start_is_no_figure(self):
        self.refused("e2e", "--model", self.make_model(), "--backend", "steam", code=UNAVAILABLE, says=["sluice serve", "steam"])

    def test_generate(self):
        model = make_llama(self.path("llama"))
        arguments = ("--model", model, "--precision", "f32", "--prompt-tokens", "48", "--new-tokens", "20", "--rounds", "2")
        found = self.figures("generate", *arguments, "--texts", "1,5,40", "--shared-tokens", "32")
        self.assertEqual((found["model"], found["precision"], found["blocks"]), ("llama", "f32", 32 * 5))
        self.assertEqual([row["texts"] for row in found["generate"]], [1, 5, 40])
        for row in found["generate"]:
            for name in ("prefill_tokens_per_s", "decode_tokens_per_s", "tokens_per_s", "ttft_p50_ms", "itl_p50_ms"):
                self.assertGreater(row[name], 0, name)
            self.assertLessEqual(row["ttft_p50_ms"], row["ttft_p99_ms"])
            self.assertLessEqual(row["itl_p50_ms"], row["itl_p99_ms"])
            self.assertEqual(row["preemptions"], 0)
            # The 32 common tokens of a prompt are in the pool from the first rounds on.
            self.assertAlmostEqual(row["prefix_share"], 32 / 48, delta=0.01)
        # A text needs 5 blocks, of which 2 are common to all.
        self.assertAlmostEqual(found["generate"][0]["pool_share"], 5 / 160, delta=0.001)
        self.assertAlmostEqual(found["generate"][1]["pool_share"], (2 + 5 * 3) / 160, delta=0.001)
        crowded = self.figures("generate", *arguments, "--texts", "6", "--blocks", "14", "--new-tokens", "60", "--optimistic")["generate"][0]
        self.assertGreater(crowded["preemptions"], 0)
        self.assertEqual(crowded["prefix_share"], 0)
        self.refused("generate", *arguments, "--shared-tokens", "49", code=DATAERR, says=["--shared-tokens", "49"])
        self.refused("generate", "--model", model, "--new-tokens", "200", code=DATAERR, says=["--new-tokens", "256"])
        self.refused("generate", *arguments, "--blocks", "4", code=DATAERR, says=["5 blocks"])
        self.refused("generate", "--model", self.make_model(), code=DATAERR, says=["does not generate"])

"""`sluice plan`: its numbers add up, and its errors name unusable input. tools/bench/bench_plan.py measures its
accuracy."""

import json
import re

from case import SluiceCase

USAGE, DATAERR, NOINPUT = 64, 65, 66


class Plan(SluiceCase):
    def setUp(self):
        super().setUp()
        self.model = self.make_model()
        self.lengths = self.write("texts", "hello\nhello world\n" + "hello " * 30 + "\n")

    def plan(self, *arguments):
        return self.run_sluice("plan", "--model", self.model, "--cache-dir", self.directory, *arguments, timeout=120)

    def planned(self, *arguments):
        result = self.plan("--lengths", self.lengths, *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(result.stdout)

    def test_workers_are_found(self):
        found = self.planned("--rate", "100", "--p99", "10s", "--price-per-hour", "3.6")
        self.assertTrue(0 < found["p50_ms"] <= found["p99_ms"] <= 10000)
        last = [row for row in found["simulated"] if row["workers"] == found["workers"]]
        self.assertEqual([(row["holds"], row["p99_ms"]) for row in last], [("yes", found["p99_ms"])])
        self.assertAlmostEqual(found["cost_per_1000"], found["workers"] * 0.01, places=6)
        limits = {row["limit"]: row["requests_per_s"] for row in found["limits"]}
        self.assertEqual(list(limits), ["engine", "redis", "memory"])
        self.assertEqual(found["gives_first"], min(limits, key=limits.get))
        self.assertEqual((found["window"], found["model"]), ("idle", "tiny"))
        self.assertIn("256 texts", found["budget"])

    def test_settings_of_the_daemon_count(self):
        found = self.planned("--rate", "50", "--workers", "2", "--window", "fixed", "--window-ms", "300", "--max-batch-rows", "7")
        self.assertEqual((found["workers"], found["window"]), (2, "fixed, 300 ms"))
        self.assertIn(" 7 texts", found["budget"])
        self.assertGreater(found["simulated"][0]["batch_rows"], 2)
        self.assertGreater(found["p50_ms"], 30)

    def test_other_programs_take_cores(self):
        found = self.planned("--rate", "1", "--workers", "1", "--beside-us", "100000")
        self.assertLessEqual(found["limits"][0]["requests_per_s"], 10 * found["threads"])

    def test_a_classifier(self):
        found = self.planned("--model", self.make_classifier(labels=["joy", "fear"]), "--rate", "50", "--workers", "1")
        self.assertEqual(found["simulated"][0]["holds"], "yes")
        self.assertLess(found["reply_bytes"], 100)  # two labels

    def test_a_table_for_people(self):
        result = self.plan("--lengths", self.lengths, "--rate", "10", "--workers", "1")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertRegex(result.stdout.decode(), r"(?m)^workers +1$")
        self.assertRegex(result.stdout.decode(), r"(?m)^gives_first +(engine|redis|memory)$")

    def test_memory_below_the_rate_is_a_warning(self):
        """Replies kept for a week fill any machine's memory sooner than that; replies kept for a second do not."""
        for ttl_s, warned in ((604800, True), (1, False)):
            load = ("--rate", "5000", "--workers", "1", "--default-ttl-s", str(ttl_s))
            found = self.planned(*load)
            memory = found["limits"][2]["requests_per_s"]
            self.assertEqual(memory < 5000, warned)
            self.assertEqual("warning" in found, warned)
            shown = self.plan("--lengths", self.lengths, *load).stdout.decode()
            fills = re.search(r"(?m)^warning +replies .* in (\d+) s, and live for (\d+) s: ", shown)
            self.assertEqual(bool(fills), warned)
            if fills:
                self.assertEqual(int(fills[2]), ttl_s)
                self.assertAlmostEqual(int(fills[1]), memory * ttl_s / 5000, delta=ttl_s / 500)

    def test_the_help_explains_each_column(self):
        shown = self.plan("--lengths", self.lengths, "--rate", "10", "--p99", "10s").stdout.decode()
        help = self.run_sluice("plan", "--help").stdout.decode().replace("\n", " ")
        columns = re.search(r"(?m)^ workers .*$", shown)[0].split("  ")
        facts = re.findall(r"(?m)^(batch_us|[a-z]+_[npu]s|help|alone|crowded|reply_bytes|replies_gb) ", shown)
        self.assertGreaterEqual(len(facts), 11)
        for name in [*filter(None, map(str.strip, columns)), *facts, "engine", "memory"]:
            self.assertIn(name.removesuffix(" ms"), help)

    def refused(self, *arguments, code=DATAERR, says=()):
        result = self.plan(*arguments)
        text = result.stderr.decode()
        self.assertEqual(result.returncode, code, text)
        for word in says:
            self.assertIn(word, text)
        return result.stdout

    def test_bad_arguments_are_named(self):
        good = {"--rate": "10", "--p99": "1s", "--lengths": self.lengths}
        for option in good:
            shown = self.refused(*(word for pair in good.items() if pair[0] != option for word in pair), says=[f"{option} is needed"])
            self.assertEqual(shown, b"")
        for option, value, code, *says in (
                ("--rate", "-1", USAGE, "--rate"), ("--rate", "many", USAGE, "--rate", "many"),
                ("--p99", "200", DATAERR, "--p99", '"200"'), ("--p99", "0ms", DATAERR, "--p99"), ("--p99", "ms", DATAERR, "--p99"),
                ("--p99", "nans", DATAERR, "--p99"), ("--p99", "2h", DATAERR, "--p99"), ("--p99", "3601s", DATAERR, "--p99"),
                ("--workers", "1001", USAGE, "--workers"),
                ("--price-per-hour", "free", DATAERR, "--price-per-hour", "free"),
                ("--lengths", self.path("none"), NOINPUT, "none"),
                ("--lengths", self.write("empty", ""), DATAERR, "empty"),
                ("--lengths", self.write("bytes", b"caf\xe9\n"), DATAERR, "UTF-8"),
                ("--lengths", self.write("numbers", "12\n128\n"), DATAERR, "--lengths", "only numbers"),
                ("--model", self.path("none"), NOINPUT, "none")):
            arguments = {**good, option: value}
            self.refused(*(word for pair in arguments.items() for word in pair), code=code, says=says)
        self.refused(*(word for pair in good.items() for word in pair), "--no-truncate", "--max-tokens", "8",
                     says=["--lengths: text 3", "8"])

    def test_what_cannot_be_had_is_refused(self):
        self.refused("--lengths", self.lengths, "--rate", "10000000", "--p99", "1s", says=["--rate", "redis gives first"])
        self.refused("--lengths", self.lengths, "--rate", "10", "--p99", "0.001ms", says=["--p99", "engine gives first"])

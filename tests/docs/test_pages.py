"""Compares the pages of docs/ with the code: all that they name exists, and they name all that users meet in the log."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest

import blocks
from tables import COUNTER_ROWS, COUNTERS, SOURCE

PAGES = [SOURCE / "README.md", SOURCE / "SECURITY.md", *sorted((SOURCE / "docs").rglob("*.md"))]
OPERATIONS = (SOURCE / "docs/operations.md").read_text() + (SOURCE / "docs/redis.md").read_text()

METRICS = (SOURCE / "docs/metrics.md").read_text()
PROTOCOL = (SOURCE / "docs/protocol.md").read_text()

METRICS_OF_COUNTERS = {f"sluice_{name}_total": "queue" for kind, name, _ in COUNTERS if kind == "COUNTER"}


def sources(*patterns):
    return "".join(path.read_text() for pattern in patterns for path in sorted(SOURCE.glob(pattern)))


def sluice(*arguments):
    return subprocess.run([os.environ["SLUICE_BINARY"], *arguments], capture_output=True, text=True, check=True).stdout


def anchors(page):
    """The names by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
                if link.startswith("https://"):
                    continue
                path, _, anchor = link.partition("#")
                target = page.parent / path if path else page
                with self.subTest(page=page.name, link=link):
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(target))

    def test_the_map_names_what_is_there(self):
        """Files and folders in docs/architecture.md exist in their folder; a name with an x is that of a new one."""
        page = (SOURCE / "docs/architecture.md").read_text()
        named = set(re.findall(r"`([a-z_]+(?:/[\w.*]+)+)/?`", page) + re.findall(r"(?m)^ ([a-z_]+/[a-z_]+) ", page))
        named = {name for name in named if not re.search(r"_x\b", name)}
        self.assertGreater(len(named), 60)
        for name in sorted(named):
            with self.subTest(name=name):
                self.assertTrue([path for folder in ("", "src/", "src/bulk/", "tests/") for end in ("", ".c", ".h", ".lua")
                                 for path in SOURCE.glob(folder + name + end)])

    def test_named_cases_are_there(self):
        """Each behaviour in docs/operations.md, docs/redis.md, docs/metrics.md, docs/admin-api.md, docs/batches.md, docs/http.md and SECURITY.md names an
        existing case and its file of tests/integration or tests/fault."""
        named = set(re.findall(r"`([a-z_]+): ([a-z0-9_]+)`", OPERATIONS + METRICS + "".join((SOURCE / page).read_text() for page in ("SECURITY.md", "docs/admin-api.md", "docs/batches.md", "docs/http.md"))))
        self.assertGreater(len(named), 30)
        for file, case in sorted(named):
            with self.subTest(file=file, case=case):
                tests = sources(f"tests/integration/test_{file}.py", f"tests/fault/test_{file}.py")
                self.assertIn(f"def test_{case}(", tests)

    def test_warnings_and_errors_are_explained(self):
        events = set(re.findall(r'log_(?:warn|error)\((?:[^"()]*\? )?"([a-z_]+)"', sources("src/**/*.c")))
        self.assertGreater(len(events), 20)
        for event in sorted(events | {"redis_unavailable", "dead_letter"}):
            with self.subTest(event=event):
                self.assertIn(f"`{event}`", OPERATIONS)

    def test_counters_are_explained(self):
        """Each row of counters.inc, as `make docs` writes them, then the other numbers of the log lines."""
        code = (SOURCE / "src/daemon/consumer.c").read_text()
        others = re.findall(r'log_int\("([a-z0-9_]+)"', re.search(r"void consumer_log_stats\(.*?\n}\n", code, re.DOTALL)[0])
        self.assertGreater(len(COUNTERS), 30)
        self.assertIn(COUNTER_ROWS, OPERATIONS)
        for name in others:
            with self.subTest(name=name):
                self.assertRegex(OPERATIONS, rf"(?m)^\| `[^|]*\b{name}`")

    def test_request_fields_are_explained(self):
        """Each field of fields.c has a row in docs/protocol.md, the tasks with fields of their own name them, and no row is of another one."""
        code = (SOURCE / "src/schedule/fields.c").read_text()
        fields = re.findall(r'(?m)^    FIELD\(\w+, "(\w+)", (\w+), (\w+)\)', code)
        self.assertGreater(len(fields), 25)
        own = {name for name, _, _ in fields if name.startswith("_")}
        known = {name: tasks for name, parser, tasks in fields if name not in own and parser != "refuse_unsupported"}
        tables = re.findall(r"(?m)^\| field \| default \| meaning \|\n\|[-|]+\n((?:\|.*\n)+)", PROTOCOL)
        explained = re.findall(r"(?m)^\| `(\w+)` \|", "".join(tables))
        self.assertEqual(sorted([*explained, "cancel"]), sorted(known))
        self.assertRegex(PROTOCOL, r"`cancel`")
        for name in own:
            self.assertIn(f"`{name}`", (SOURCE / "docs/workers.md").read_text() + PROTOCOL)
        masks = dict(re.findall(r"(?m)^    ([A-Z]+) = ([A-Z| ]+),$", code))
        for task in ("embed", "rerank", "classify", "tokenize", "generate"):
            single = {name: name for name in ("EMBED", "RERANK", "CLASSIFY", "TOKENIZE", "GENERATE")}
            has = {mask for mask, parts in {**single, **masks}.items() if task.upper() in parts}
            wanted = [name for name, tasks in known.items() if tasks in has and tasks not in ("ALL", "ENCODED") and name != "text"]
            row = re.search(rf"(?m)^\| `{task}` \| ([^|;]*)", PROTOCOL)[1]
            self.assertEqual(sorted(re.findall(r"`(\w+)`", row)), sorted(wanted))

    def test_metrics_are_explained(self):
        """Each row of the table in metrics.c with its labels, and each name on the page is in the table, or a counter."""
        code, page = (SOURCE / "src/daemon/metrics.c").read_text(), (SOURCE / "docs/metrics.md").read_text()
        labels = {"PROCESS": "", "BUILD": "version", "MODEL": "queue, model, precision", "GPU": "gpu", "QUEUE": "queue", "CLASS": "queue, class",
                  "INFO": "queue, model, revision, precision, backend", "PAUSE": "queue, by, why", "END": "queue, class, code"}
        table = {name: labels[level] for name, level in re.findall(r'^    \{"(\w+)", .*?", TYPE_[A-Z]+, ([A-Z]+), OF_', code, re.MULTILINE)}
        self.assertEqual(len(table), code.count("\n    {\""))
        rows = re.findall(r"(?m)^\| (`(?:sluice|process)_[^|]*) \|([^|]*)\|", page)
        explained = {name: row[1].strip() for row in rows for name in re.findall(r"`(\w+)`", row[0])}
        self.assertEqual(explained, table)
        for name in set(re.findall(r"\bsluice_[a-z0-9_]+", page)):
            self.assertIn(re.sub(r"_(sum|count|bucket)$", "", name), table | METRICS_OF_COUNTERS)

    def test_the_gateway_is_explained(self):
        """docs/http.md has each path, each header that is read and each metric."""
        page, code = (SOURCE / "docs/http.md").read_text(), sources("src/gateway/*.c", "src/batch/*.c")
        paths = re.findall(r'"(/[a-z0-9/]*)"', sources("src/gateway/dialect_*.c"))
        paths += re.findall(r'^ +\{"(/[^"]*)", "(?:get|delete|post)"', code, re.MULTILINE)
        headers = set(re.findall(r'http_header\(request, "([^"]+)"', code))
        metrics = re.findall(r"# TYPE (te_\w+|sluice_gateway_http_\w+)", code)
        metrics += ["sluice_gateway_" + name for name in re.findall(r'"(\w+) (?:gauge|counter)"', code)]
        self.assertGreater(min(len(paths) - 10, len(headers) - 5, len(metrics) - 5), 0)
        for name in {*paths, *headers, *metrics}:
            with self.subTest(name=name):
                self.assertRegex(page, rf"[` ]{re.escape(name)}[`{{: ]")

    def test_alerts_and_dashboard_are_explained(self):
        """Each alert has an entry, in the same order, with all that it should say; no file names a metric that does not exist."""
        alerts, page = (SOURCE / "config/monitoring/alerts.yml").read_text(), (SOURCE / "docs/oncall.md").read_text()
        entries = [entry for entry in re.split(r"(?m)^## ", page) if entry.startswith("Sluice")]
        self.assertEqual(re.findall(r"alert: (\w+)", alerts), [entry.split()[0] for entry in entries])
        for entry in entries:
            self.assertEqual(re.findall(r"(?m)^- (\w+): ", entry), ["Means", "Look", "Type", "Then"], entry)
        table = set(re.findall(r'^    \{"(\w+)", ', (SOURCE / "src/daemon/metrics.c").read_text(), re.MULTILINE)) | METRICS_OF_COUNTERS.keys()
        named = set(re.findall(r"\b(?:sluice|process)_[a-z0-9_]+", sources("config/monitoring/*", "docs/oncall.md")))
        self.assertGreater(len(named), 40)
        self.assertEqual({re.sub(r"_(sum|count|bucket)$", "", name) for name in named} - table, set())

    def test_options_are_those_of_their_command(self):
        """Each option after `sluice COMMAND` on a line of a page is one of that command."""
        commands = re.findall(r"^  ([a-z0-9 ]*[a-z0-9]) +[A-Z]", sluice("--help"), re.MULTILINE)
        self.assertGreater(len(commands), 15)
        helps = {command: sluice(*command.split(), "--help") for command in commands}
        seen = 0
        for page in PAGES:
            for command, rest in re.findall(rf"\bsluice ({'|'.join(commands)})\b([^`|#\n]*)", page.read_text()):
                for option in re.findall(r"(?<=\s)--[a-z][a-z0-9-]*", rest):
                    seen += 1
                    with self.subTest(page=page.name, command=command):
                        self.assertIn(option, [*re.findall(r"--[a-z][a-z0-9-]*", helps[command]), "--help"])
        self.assertGreater(seen, 30)

    def test_files_of_the_readme(self):
        """The README's two commands find what it shows; the last digits of a cosine depend on the processor."""
        lines = blocks.only_block((SOURCE / "README.md").read_text(), "sluice embed").replace("\\\n", "").splitlines()
        commands, shown = [line[2:] for line in lines if line.startswith("$ ")], [line for line in lines if not line.startswith("$ ")]
        self.assertEqual((len(commands), len(shown)), (2, 2))
        with tempfile.TemporaryDirectory() as directory:
            for command in commands:
                command = command.replace("build/release/sluice", shlex.quote(os.environ["SLUICE_BINARY"])).replace("build/vectors", directory + "/vectors")
                printed = subprocess.run(command, shell=True, cwd=SOURCE, capture_output=True, text=True, check=True).stdout.splitlines()
        for mine, other in zip(shown, printed, strict=True):
            (cosine, row), (other_cosine, other_row) = mine.split(maxsplit=1), other.split(maxsplit=1)
            self.assertEqual(row, other_row)
            self.assertAlmostEqual(float(cosine), float(other_cosine), delta=0.02)


if __name__ == "__main__":
    unittest.main()

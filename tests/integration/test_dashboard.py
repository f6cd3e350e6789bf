"""The compiled-in files of the dashboard: what a browser receives, and whether it can use it. Tests that need a browser
are in tests/dashboard (`make dashboard`)."""

import http.client
import json
import os
import re
import subprocess

from daemon import SOURCE
from http_case import HttpCase

FILES = {"/": ("dashboard.html", "text/html"), "/dashboard.css": ("dashboard.css", "text/css"), "/dashboard.js": ("dashboard.js", "text/javascript")}


def read(*names):
    with open(os.path.join(SOURCE, *names), encoding="utf-8") as file:
        return file.read()


class Dashboard(HttpCase):
    def test_the_files_are_compiled_in(self):
        self.watched()
        for path, (name, kind) in FILES.items():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            connection.request("GET", path)
            answer = connection.getresponse()
            self.assertEqual(answer.read().decode(), read("src", "daemon", "dashboard", name))
            connection.close()
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, kind + "; charset=utf-8"))
            policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
            self.assertEqual([policy[name] for name in ("default-src", "script-src", "style-src")], ["'none'", "'self'", "'self'"])

    def test_it_asks_for_what_there_is(self):
        self.watched("--http-token-file", self.write("token", "0123456789abcdef\n"))
        script = read("src", "daemon", "dashboard", "dashboard.js")
        self.wait_answer("/readyz", 200)
        metrics = self.get("/metrics")[1]
        for name in set(re.findall(r'"(sluice_\w+|process_\w+)"', script)):
            other = name.startswith(("sluice_gpu_", "sluice_generate_"))  # of a machine or a model of another kind
            self.assertIn(f"\n# TYPE {name} " if other else "\n" + name, metrics)
        drawn = set(re.findall(r'(?:human|share|seconds|perSecond), "(\w+)"\]', script))
        self.assertEqual(drawn | {"at"}, set(json.loads(self.get("/api/history")[1])["names"]))
        pages = set(re.findall(r"### `(?:GET|POST) /api/([\w/]+)", read("docs", "admin-api.md")))
        asked = set(re.findall(r'\b(?:get|post)\("([\w/]*\w)"', script))
        self.assertGreater(len(asked), 4)
        self.assertLessEqual(asked, pages)

    def test_numbers_are_written_as_people_write_them(self):
        script = read("src", "daemon", "dashboard", "dashboard.js")
        numbers = script[script.index("/* ---- numbers"):script.index("/* ---- what is said to the server")]
        wanted = dict((("count(1234567)", "1,234,567"), ("count(null)", "–"), ("human(1234.4)", "1,234"), ("human(12345678)", "12.3 M"), ("human(9.96)", "10"),
                       ("human(3.14159)", "3.1"), ("human(7)", "7"), ("human(0.12345)", "0.12"), ("human(0)", "0"), ("human(null)", "–"), ("bytes(0)", "0 B"),
                       ("bytes(512)", "512 B"), ("bytes(3210000)", "3.2 MB"), ("bytes(1000)", "1 kB"), ("bytes(99e9)", "99 GB"), ("span(300000)", "5 min"),
                       ("span(89000)", "89 s"), ("span(5400000)", "1.5 h"), ("span(0.131)", "0.13 ms"), ("span(3600000)", "60 min"), ("seconds(0.0048)", "4.8 ms"),
                       ("share(0.073)", "7.3 %"), ("share(0.5)", "50 %"), ("many(1, 'worker')", "1 worker"), ("many(1200, 'worker')", "1,200 workers")))
        self.assertEqual(self.called(numbers, wanted), wanted)

    def called(self, script, wanted):
        """Returns the results of these calls."""
        calls = "\n".join(f"console.log({call});" for call in wanted)
        said = subprocess.run(["node", "-e", script + calls], check=True, capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}).stdout
        return dict(zip(wanted, said.splitlines(), strict=True))

    def test_who_paused_and_why(self):
        """The text shows as much as is known."""
        script = read("src", "daemon", "dashboard", "dashboard.js")
        parts = re.findall(r"(?m)^const (?:joined|clock) = .*;", script) + re.findall(r"(?ms)^const pausedWords = .*?;$", script)
        self.assertEqual(len(parts), 3)
        wanted = {"pausedWords({paused: true, paused_since_ms: 1763937000000, paused_until_ms: 1763938800000, paused_by: 'ann', paused_why: 'reindexing'})":
                  "paused since 2025-11-23 22:30:00 · until 2025-11-23 23:00:00 · by ann · reindexing",
                  "pausedWords({paused: true, paused_since_ms: 1763937000000, paused_until_ms: null, paused_by: null, paused_why: null})": "paused since 2025-11-23 22:30:00",
                  "JSON.stringify(pausedWords({paused: true}))": '""', "pausedWords({paused: false})": "false"}
        self.assertEqual(self.called("\n".join(parts) + "\n", wanted), wanted)

    def test_the_script_is_one(self):
        """It parses, each element that it names is there, and no text becomes markup or code."""
        script, page = (read("src", "daemon", "dashboard", "dashboard." + kind) for kind in ("js", "html"))
        subprocess.run(["node", "--check", os.path.join(SOURCE, "src", "daemon", "dashboard", "dashboard.js")], check=True)
        ids = re.findall(r'\bid="([\w-]+)"', page)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertLessEqual(set(re.findall(r'\$\("([\w-]+)"\)', script)), set(ids))
        self.assertIsNone(re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc|setAttribute\(\"(on|style)", script))
        self.assertIsNone(re.search(r"\s(style|on\w+)=|<script>|<style|https?:", page))

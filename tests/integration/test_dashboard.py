"""The files of the dashboard as they are compiled in: what a browser gets, and what it could not do with it. tests/dashboard has what
needs a browser (`make dashboard`)."""

import http.client
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
        for name in set(re.findall(r'"(sluice_\w+|process_\w+)"', script)) - {"sluice_gpu_busy_ratio"}:
            self.assertIn("\n" + name, metrics)
        pages = set(re.findall(r"### `(?:GET|POST) /api/([\w/]+)", read("docs", "admin-api.md")))
        asked = set(re.findall(r'\b(?:get|post)\("([\w/]*\w)"', script))
        self.assertGreater(len(asked), 4)
        self.assertLessEqual(asked, pages)

    def test_the_script_is_one(self):
        """It parses, each element that it names is there, and no text becomes markup or code."""
        script, page = (read("src", "daemon", "dashboard", "dashboard." + kind) for kind in ("js", "html"))
        subprocess.run(["node", "--check", os.path.join(SOURCE, "src", "daemon", "dashboard", "dashboard.js")], check=True)
        ids = re.findall(r'\bid="([\w-]+)"', page)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertLessEqual(set(re.findall(r'\$\("([\w-]+)"\)', script)), set(ids))
        self.assertIsNone(re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc|setAttribute\(\"(on|style)", script))
        self.assertIsNone(re.search(r"\s(style|on\w+)=|<script>|<style|https?:", page))

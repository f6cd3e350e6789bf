"""The files of config/monitoring with a real Prometheus that scrapes real daemons under load: every query of the dashboard and of
docs/metrics.md has an answer, and every alert fires when it should. `make monitoring` runs it.

Prometheus comes from Debian's package of that name (96 MB when unpacked, so not with `make test`): from the system, or unpacked into
build/monitoring without being installed."""

import glob
import http.client
import json
import math
import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.parse

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILES = os.path.join(SOURCE, "config", "monitoring")
WORK = os.path.join(SOURCE, "build", "monitoring")
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
os.environ["SLUICE_BINARY"] = os.path.abspath(os.environ.get("SLUICE_BINARY", os.path.join(SOURCE, "build", "release", "sluice")))
FAKES = os.path.join(os.path.dirname(os.environ["SLUICE_BINARY"]), "tests")

import process  # noqa: E402
from case import SluiceCase  # noqa: E402
from ports import free_port  # noqa: E402


def tool(name):
    """The path of `prometheus` or `promtool`."""
    unpacked = os.path.join(WORK, "usr", "bin", name)
    if not shutil.which(name) and not os.path.exists(unpacked):
        os.makedirs(WORK, exist_ok=True)
        subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=WORK, check=True)
        subprocess.run(["dpkg", "-x", glob.glob(os.path.join(WORK, "prometheus_*.deb"))[0], WORK], check=True)
    return shutil.which(name) or unpacked


def read(*names):
    with open(os.path.join(*names), encoding="utf-8") as file:
        return file.read()


def get(address, path, **query):
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""))
        return connection.getresponse().read().decode()
    finally:
        connection.close()


class Prometheus:
    """A server with our configuration, except that it scrapes these targets, every second."""

    def __init__(self, directory, targets):
        self.log = os.path.join(directory, "prometheus.log")
        self.address = f"127.0.0.1:{free_port()}"
        config = re.sub(r"targets: .*", f"targets: {json.dumps(targets)}", read(FILES, "prometheus.yml").replace("15s", "1s"))
        with open(os.path.join(directory, "prometheus.yml"), "w", encoding="utf-8") as file:
            file.write(config)
        shutil.copy(os.path.join(FILES, "alerts.yml"), directory)
        with open(self.log, "wb") as log:
            self.process = process.start([tool("prometheus"), "--config.file", os.path.join(directory, "prometheus.yml"),
                                          "--storage.tsdb.path", os.path.join(directory, "tsdb"), "--web.listen-address", self.address],
                                         stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def api(self, path, **query):
        answer = json.loads(get(self.address, "/api/v1/" + path, **query))
        assert answer["status"] == "success", (query, answer)
        return answer["data"]

    def values(self, query):
        """The finite numbers that a query gives now."""
        numbers = [float(result["value"][1]) for result in self.api("query", query=query)["result"]]
        return [number for number in numbers if math.isfinite(number)]

    def read_log(self):
        return read(self.log)

    def cleanup(self):
        process.end(self.process)


class Monitoring(SluiceCase):
    lease_ms = 3000

    def promtool(self, *arguments, **options):
        result = subprocess.run([tool("promtool"), *arguments], cwd=FILES, capture_output=True, text=True, check=False, **options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def test_alerts(self):
        """Each alert is silent while it should be, and fires alone when it should."""
        self.promtool("check", "config", "prometheus.yml")
        self.promtool("test", "rules", "alerts_test.yml")
        alerts = re.findall(r"alert: (\w+)", read(FILES, "alerts.yml"))
        self.assertEqual(set(re.findall(r'alertname="(\w+)"', read(FILES, "alerts_test.yml"))), set(alerts))

    def test_every_query_has_an_answer(self):
        server = self.start_redis()
        targets = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        for target in targets:
            self.start_daemon(server, "--http", target, environment={"LD_LIBRARY_PATH": FAKES})  # with GPUs that pretend
        self.assertEqual(self.promtool("check", "metrics", input=get(targets[0], "/metrics")), "")
        load = self.start_load(server)
        prometheus = Prometheus(self.directory, targets)
        self.children.append(prometheus)
        self.wait_until(lambda: len(prometheus.values("sluice_requests_received_total > 100")) == 2, "both to be scraped",
                        ignore=(OSError, ValueError))
        panels = json.loads(read(FILES, "grafana.json"))["panels"]
        block = re.search(r"(?ms)^```promql\n(.*?)^```$", read(SOURCE, "docs", "metrics.md"))[1]
        questions = [re.sub("(?m)^#.*\n", "", question) for question in block.split("\n\n")]
        queries = [target["expr"].replace("$queue", ".*").replace("$__rate_interval", "10s") for panel in panels for target in panel["targets"]]
        self.assertGreater(len(queries), 30)
        self.assertGreater(len(questions), 7)
        for query in [*queries, *(re.sub(r"\[\dm\]", "[10s]", question) for question in questions)]:
            with self.subTest(query=query):
                self.wait_until(lambda: prometheus.values(query), f"an answer to {query}", timeout=30)
        self.assertEqual({rule["health"] for rule in prometheus.api("rules")["groups"][0]["rules"]}, {"ok"})
        self.assertEqual([alert for alert in prometheus.api("alerts")["alerts"] if alert["state"] == "firing"], [])
        load.stop()


if __name__ == "__main__":
    if not shutil.which("prometheus") and not shutil.which("apt-get"):
        sys.exit("left out: there is neither prometheus nor apt-get here")
    unittest.main(verbosity=2)

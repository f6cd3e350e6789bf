"""The HTTP port of the daemon: metrics count what happened, probes report its state, and no client can do harm. Follows
docs/metrics.md, sentence by sentence."""
# ctest: threads
# ctest-cost: 20

import collections
import json
import os
import re
import signal
import socket
import time

import yaml
from prometheus_client.parser import text_string_to_metric_families

from acl import make_user
from case import SANITIZED
from daemon import BINARY, SOURCE
from http_case import HttpCase
from producer import opened
from resp_server import Voices


class Http(HttpCase):
    def metrics(self):
        """Returns {(name, labels): number}."""
        status, text = self.get("/metrics")
        self.assertEqual(status, 200)
        samples = [((sample.name, *sorted(sample.labels.items())), sample.value)
                   for family in text_string_to_metric_families(text) for sample in family.samples]
        self.assertEqual(len(dict(samples)), len(samples), "each once")
        return dict(samples)

    def number(self, name, **labels):
        return self.metrics()[(name, *sorted({"queue": self.queue, **labels}.items()))]

    def test_a_port_for_those_who_watch(self):
        """The port is closed unless it is asked for; its output is what Prometheus reads."""
        silent = self.start_daemon(self.server)
        self.assertNotIn("http_listens", silent.read_log())
        self.watched()
        self.wait_answer("/readyz", 200, "ready")
        self.assertEqual(self.get("/healthz"), (200, "ok\n"))
        for path in ("/metrics/", "/metric", "//metrics", "/metrics%00", "/../metrics"):
            self.assertEqual(self.get(path)[0], 404, path)
        for path in ("/depth?queue=other", "/depth?queue=", "/depth?test"):
            self.assertEqual(self.get(path)[0], 400, path)
        text = self.get("/metrics")[1]
        families = list(text_string_to_metric_families(text))
        self.assertEqual(len({family.name for family in families}), len(families))
        for family in families:
            self.assertTrue(family.documentation, family.name)
            self.assertEqual(f"# TYPE {family.name}_total counter\n" in text, family.type == "counter", family.name)

    def test_spans_that_the_disk_does_not_take_are_counted(self):
        """No request waits for them either. A folder in place of the file simulates a failing disk."""
        file = self.path("traces.jsonl")
        daemon = self.watched("--traces", file)
        self.wait_answer("/readyz", 200)
        os.remove(file)
        os.mkdir(file)

        def send(count):
            for number in range(count):
                context = f"00-{number + 1:032x}-{number + 1:016x}-01"
                self.sender.submit_fields({"text": f"text {number}", "traceparent": context}, expected="done")
            self.wait_finished(self.sender)

        def counted():
            metrics = self.metrics()
            return metrics[("sluice_trace_spans_total",)], metrics[("sluice_trace_spans_dropped_total",)]

        send(40)
        self.wait_until(lambda: counted()[0] > 40 and counted()[0] == counted()[1], lambda: f"all to be dropped: {counted()}")
        self.logged(daemon, "traces_not_written")
        self.assertEqual(daemon.read_log().count("traces_not_written"), 1)
        dropped = counted()[1]
        os.rmdir(file)
        send(1)
        self.wait_until(lambda: "traces_written_again" in daemon.read_log(), "the file to be written again")
        self.assertEqual(counted()[1], dropped)

    def test_each_line_stands_once(self):
        """Two queues use one model, which is opened twice because they truncate texts at different lengths."""
        model = self.make_model()
        settings = {"queues": [{"queue": f"cut{most}", "model": model, "max_tokens": most} for most in (64, 32)]}
        self.watched(make=lambda server, *flags: self.make_configured(server, settings, *flags))
        self.wait_answer("/readyz", 200)
        opened = [dict(key[1:])["queue"] for key in self.metrics() if key[0] == "sluice_model_load_seconds"]
        self.assertEqual(sorted(opened), ["cut32", "cut64"])

    def test_the_share_of_int8_is_told(self):
        """In /metrics and in the list of workers, with the numbers of `sluice model`; not where the precision is another."""
        told = json.loads(self.run_sluice("model", self.make_model(), "--precision", "int8").stdout)
        listed = ("workers", "list", "--redis", self.server.socket, "--queue", self.queue, "--json")
        for precision in ("int8", "f32"):
            daemon = self.watched("--precision", precision)
            self.wait_answer("/readyz", 200)
            worker, = self.wait_until(lambda: json.loads(self.run_sluice(*listed).stdout)["workers"], "a heartbeat")
            found = self.metrics().get(("sluice_model_int8_ratio", ("model", "tiny"), ("precision", precision), ("queue", self.queue)))
            share = told["int8_count"] / told["int8_of"] if precision == "int8" else None
            self.assertEqual(found, share)
            self.assertEqual(worker["int8_products"], f"{told['int8_count']}/{told['int8_of']}" if share else None)
            daemon.stop()

    def test_a_bad_address_is_refused(self):
        for address in ("9464", "127.0.0.1", "localhost:9464", "127.0.0.1:0", "127.0.0.1:99999", "::1", "127.0.0.1:9464/"):
            result = self.run_sluice("serve", "--http", address)
            self.assertEqual((result.returncode, b"--http must be an IP address and a port" in result.stderr), (64, True), address)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            result = self.run_sluice("serve", "--redis", self.server.socket, "--model", self.make_model(), "--http",
                                     f"127.0.0.1:{taken.getsockname()[1]}")
        self.assertIn(b"cannot listen on 127.0.0.1:", result.stderr)
        self.assertNotEqual(result.returncode, 0)

    def add(self, number, level="", **fields):
        """Adds `number` requests with these fields to one of the streams."""
        for i in range(number):
            self.client.xadd(self.sender.stream_of(level), {"id": f"{level or 'normal'}-{self.client.incr('added')}", **fields})

    def test_counts_are_exact(self):
        """With requests of every kind in every class, /metrics agrees with the replies."""
        self.watched("--backoff-ms", "20", "--backoff-cap-ms", "20", "--no-truncate", "--max-batch-rows", "1", make=self.make_faulty,
                     faults=["flaky:{kernel}:3", "error:{driver}"])
        self.wait_answer("/readyz", 200)
        self.sluice("pause")
        self.wait_paused(self.client)
        self.sluice("caps", "--low", "6")
        for level, number in (("high", 7), ("", 12), ("low", 6)):
            for i in range(number):
                self.add(1, level, text=f"hello {i}")
        self.add(4, "low", text="the newest four of ten")
        self.wait_until(lambda: self.number("sluice_requests_total", **{"class": "low", "code": "queue_full"}) == 4, "caps")
        self.add(1, "", inputs=json.dumps(["hello", "hello", "world"]))
        self.add(3, "", tekst="no text")
        self.add(2, "high", text=b"\xff")
        self.add(1, "", text="hello", model="other")
        self.add(1, "", text="hello " * 100)
        self.add(1, "", text="kernel")  # fails three times, then succeeds
        self.add(1, "high", text="driver", max_attempts=2)  # a dead letter
        self.sluice("cancel", self.sender.submit("never computed").entries[0])
        self.client.set("gone", self.client.xadd(self.sender.stream, {"text": "late", "expires_in": 1}))
        self.wait_until(lambda: self.number("sluice_queue_unread", **{"class": "normal"}) >= 20, "a second in which one expires")
        self.sluice("resume")
        expected = collections.Counter({("normal", "done"): 14, ("high", "done"): 7, ("low", "done"): 6, ("low", "queue_full"): 4,
                                        ("normal", "bad_request"): 3, ("high", "bad_utf8"): 2, ("normal", "wrong_model"): 1,
                                        ("normal", "too_long"): 1, ("high", "internal"): 1, ("normal", "cancelled"): 1,
                                        ("normal", "expired"): 1})

        def counted():
            return {(dict(key[1:])["class"], dict(key[1:])["code"]): int(value) for key, value in self.metrics().items()
                    if key[0] == "sluice_requests_total" and value > 0}

        self.wait_until(lambda: counted() == expected, lambda: f"{expected}, not {counted()}")
        metrics = self.metrics()
        here = lambda name, **labels: metrics[(name, *sorted({"queue": self.queue, **labels}.items()))]
        for name, value in (("sluice_retries_total", 4), ("sluice_dead_letters_total", 1), ("sluice_queue_dead_letters", 1),
                            ("sluice_late_total", 0), ("sluice_reclaimed_total", 0), ("sluice_held_requests", 0),
                            ("sluice_ignored_fields_total", 3),
                            ("sluice_redis_connects_total", 1), ("sluice_worker_ready", 1)):
            self.wait_until(lambda: self.number(name) == value, lambda: f"{name} to be {value}, not {self.number(name)}")
        for level in ("high", "normal", "low"):
            for stage in ("", "queue_", "prepare_", "window_", "compute_"):
                self.assertEqual(here(f"sluice_request_{stage}seconds_count", **{"class": level}), expected[(level, "done")])
            parts = sum(here(f"sluice_request_{stage}_seconds_sum", **{"class": level}) for stage in ("prepare", "window", "compute"))
            whole = here("sluice_request_seconds_sum", **{"class": level})
            self.assertGreater(whole + 0.002 * expected[(level, "done")], parts, "Redis counts whole milliseconds")
        texts_run = 12 + 3 + 7 + 6 + 4 + 2  # the last two ran four times and twice
        self.assertEqual(here("sluice_batch_rows_sum") + here("sluice_rows_shared_total"), texts_run)
        self.assertEqual(here("sluice_batch_rows_count"), here("sluice_batches_total"))
        self.assertEqual(here("sluice_batch_tokens_sum"), here("sluice_tokens_total"))
        self.assertEqual(here("sluice_computed_tokens_total"), here("sluice_tokens_total"), "packed batches have no padding")
        replied = sum(opened(self.client.hgetall(key)).get("tokens", 0) for key in self.client.scan_iter(self.sender.key("reply:*")))
        self.assertEqual(here("sluice_input_tokens_total"), replied + (3 + 2) * 3, "and the failed runs: [CLS] word [SEP]")
        stats = json.loads(self.sluice("stats", "--json"))
        self.assertEqual((sum(stats["ended"]["normal"].values()), stats["ignored"]), (21, 3))

    def test_gpus_where_there_is_a_driver(self):
        """Uses a fake driver library: one of its four GPUs does not answer, one reports only its memory."""
        self.watched()
        self.assertNotIn("sluice_gpu_busy_ratio{", self.get("/metrics")[1])
        self.watched(environment={"LD_LIBRARY_PATH": os.path.join(os.path.dirname(BINARY), "tests")})
        self.wait_answer("/metrics", 200, "sluice_gpu_busy_ratio{")
        gpus = {key: value for key, value in self.metrics().items() if key[0].startswith("sluice_gpu_")}
        self.assertEqual(gpus, {("sluice_gpu_busy_ratio", ("gpu", "0")): 0.25, ("sluice_gpu_busy_ratio", ("gpu", "2")): 0.75,
                                **{("sluice_gpu_memory_used_bytes", ("gpu", str(i))): (i + 1) << 30 for i in (0, 2, 3)},
                                **{("sluice_gpu_memory_bytes", ("gpu", str(i))): 80 << 30 for i in (0, 2, 3)}})

    def depth(self):
        status, body = self.get("/depth?queue=" + self.queue)
        return json.loads(body) if status == 200 else status

    def stats_depth(self):
        return json.loads(self.sluice("stats", "--json"))["depth"]

    def test_depth_with_and_without_workers(self):
        """Depth counts unread, running and due requests: on the port, in Prometheus' numbers, and by a command without
        workers."""
        daemon = self.watched("--max-batch-rows", "1", "--shutdown-timeout-ms", "0", make=self.make_faulty, faults=["slow:{kernel}:60000"])
        self.wait_answer("/depth", 200)
        self.assertEqual(self.depth(), {"queue": "test", "depth": 0, "unread": 0, "running": 0, "due": 0})
        self.add(1, text="kernel")
        self.wait_until(lambda: self.depth()["running"] == 1, "one to run")
        self.add(1, text="driver", delay=60000)
        self.wait_until(lambda: self.number("sluice_queue_later") == 1, "the delayed one to be parked")
        self.sluice("pause", "--for", "1h", "--why", "a reason")
        self.wait_paused(self.client)
        self.wait_until(lambda: self.depth()["running"] == 1, "the blocked read to end")
        self.add(3, text="hello")
        self.add(2, "low", text="hello")
        self.client.zadd(self.sender.key("later"), {name: 1 for name in self.client.zrange(self.sender.key("later"), 0, -1)})
        due = self.client.zcard(self.sender.key("later"))
        expected = {"queue": "test", "depth": 6 + due, "unread": 5, "running": 1, "due": due}
        self.wait_until(lambda: self.depth() == expected, lambda: f"{expected}, not {self.depth()}")
        self.assertEqual(self.stats_depth(), 6 + due)
        self.assertGreater(self.number("sluice_queue_oldest_seconds", **{"class": "normal"}), 0)
        self.assertGreater(self.number("sluice_queue_oldest_seconds", **{"class": "low"}), 0, "unread ones have an age, too")
        self.assertEqual(self.number("sluice_queue_paused"), 1)
        host = re.sub("[^A-Za-z0-9.]", "-", os.uname().nodename)
        self.assertEqual(self.number("sluice_queue_pause_info", by="default@" + host, why="a reason"), 1)
        lasts = self.number("sluice_queue_pause_end_time_seconds") - self.number("sluice_queue_pause_start_time_seconds")
        self.assertAlmostEqual(lasts, 3600, delta=5)
        daemon.kill()
        self.assertEqual(self.stats_depth(), 6 + due)

    def test_what_scales_on_kubernetes(self):
        """Reads config/kubernetes/keda.yaml as KEDA does. A deleted entry makes Redis forget the group's lag, but hides
        no backlog here."""
        with open(os.path.join(SOURCE, "config", "kubernetes", "keda.yaml"), encoding="utf-8") as file:
            scaled = next(part for part in yaml.safe_load_all(file) if part["kind"] == "ScaledObject")["spec"]
        make_user(self.client, "operator", self.queue)
        operator = self.server.client(username="sluice-operator", password="pw")

        def ask(kind, metadata):
            """Returns the measured number of a trigger."""
            if kind == "redis-streams":
                self.assertEqual(set(metadata), {"address", "stream", "streamLength"})
                return operator.xlen(metadata["stream"].replace("{default}", f"{{{self.queue}}}"))
            self.assertEqual(kind, "metrics-api")
            url = metadata["url"].removeprefix("http://sluice:9464").replace("=default", "=" + self.queue)
            return json.loads(self.get(url)[1])[metadata["valueLocation"]]

        def measured():
            return [ask(trigger["type"], trigger["metadata"]) for trigger in scaled["triggers"]]
        self.watched()
        self.wait_answer("/depth", 200)
        self.sluice("pause")
        self.wait_paused(self.client)
        self.wait_until(lambda: measured() == [0, 0, 0, 0], "nothing")
        names = [self.client.xadd(self.sender.stream, {"text": "hello"}) for _ in range(5)]
        self.add(2, "low", text="hello")
        self.add(1, "high", text="hello")
        self.client.xdel(self.sender.stream, names[1])
        self.client.zadd(self.sender.key("later"), {"1-1": 1, "1-2": 10**15})
        self.wait_until(lambda: measured() == [1, 4, 2, 1], lambda: f"the backlog, not {measured()}")
        self.assertIsNone(self.client.xinfo_groups(self.sender.stream)[0]["lag"])
        self.assertGreater(scaled["minReplicaCount"], 0)

    def test_readiness_is_redis_and_health_is_not(self):
        """While Redis is killed, stopped, loading, a replica or full, the daemon is not ready, with the reason, but
        always alive."""
        voices = Voices(self.directory, self.server.socket)
        self.children.append(voices)
        daemon = self.watched(address=voices.address)
        self.wait_answer("/readyz", 200)

        def check(away, words, back):
            away()
            self.wait_answer("/readyz", 503, words)
            self.assertEqual(self.get("/healthz")[0], 200)
            ready = self.number("sluice_worker_ready")
            back()
            self.wait_answer("/readyz", 200)
            self.assertEqual(ready, 0)

        def say(text):
            voices.voice = lambda words: text if text and words[0].upper() == b"EVALSHA" else None

        connects = self.number("sluice_redis_connects_total")
        check(lambda: self.server.process.send_signal(signal.SIGSTOP), "no answer", lambda: self.server.process.send_signal(signal.SIGCONT))
        check(lambda: say("LOADING Redis is loading the dataset in memory"), "loading", lambda: say(None))
        check(lambda: say("READONLY You can't write against a read only replica."), "read only replica", lambda: say(None))
        self.assertGreaterEqual(self.number("sluice_redis_connects_total"), connects + 3)
        self.server.kill()
        self.wait_answer("/readyz", 503, "queue test: ")
        self.assertEqual(self.get("/depth")[0], 503)
        metrics = {key[0] for key in self.metrics()}
        self.assertNotIn("sluice_queue_unread", metrics)
        self.assertIn("sluice_queue_paused", metrics)
        self.server.start()
        self.wait_answer("/readyz", 200)
        self.wait_answer("/depth", 200)
        client = self.server.client()
        client.set("others", bytes(8 << 20))
        fill = lambda: client.config_set("maxmemory", client.info("memory")["used_memory"] * 100 // 95)  # buffers shrink gradually
        check(lambda: self.wait_until(lambda: fill() and self.get("/readyz")[0] == 503, "a full Redis"), "maxmemory",
              lambda: client.config_set("maxmemory", 0))
        daemon.signal(signal.SIGSTOP)
        self.assertEqual(self.get("/healthz", timeout=0.5), (0, ""), "nobody is at home")
        daemon.signal(signal.SIGCONT)
        self.wait_answer("/healthz", 200)

    def test_a_daemon_that_leaves_is_not_ready(self):
        daemon = self.watched(make=self.make_faulty, faults=["held:{kernel}"])
        self.wait_answer("/readyz", 200)
        self.shut_gate()
        self.add(1, text="kernel")
        self.wait_until(lambda: self.fired("held"), "the batch to begin")
        daemon.signal(signal.SIGTERM)
        self.wait_answer("/readyz", 503, "draining")
        self.assertEqual(self.get("/healthz")[0], 200)
        self.open_gate()
        self.assertEqual(daemon.wait_exit(), 0)

    def test_hostile_requests_change_nothing(self):
        """Bytes of every kind arrive on 200 connections at once, under load: the port answers, memory is bounded, no
        request is lost."""
        daemon = self.watched("--log-level", "debug")
        self.wait_answer("/readyz", 200)
        load = self.start_load(self.server, depth=8)
        rss = daemon.rss_bytes()

        def say(data, shut=False):
            """Sends `data` and returns the bytes received until the port closes."""
            with socket.create_connection(("127.0.0.1", self.port), timeout=20) as peer:
                try:
                    peer.sendall(data)
                    if shut:
                        peer.shutdown(socket.SHUT_WR)
                    return b"".join(iter(lambda: peer.recv(65536), b""))
                except OSError:
                    return b""

        for data, status in ((b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 405), (b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
                             (b"get /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405), (b"GET /metrics HTTP/2.0\r\n\r\n", 400), (b"GET /metrics\r\n\r\n", 400),
                             (b"\r\n\r\n", 400), (b"GET  /metrics HTTP/1.1\r\n\r\n", 400), (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
                             (b"GET /\0metrics HTTP/1.1\r\n\r\n", 400), (b"\xff\xfe \xff \xff\r\n\r\n", 400),
                             (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 431), (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2000, 431),
                             (b"GET /depth?queue=%74est HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
                             (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
                             (b"GET /healthz HTTP/1.1\r\n\r\n", 400)):
            answer = say(data)
            if answer or status != 431:  # bytes sent after the refusal may reset the connection
                self.assertEqual(answer.split(b" ")[1:2], [b"%d" % status], (data[:60], answer[:200]))
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1)
        self.assertEqual(say(b"GET /healthz HTTP/1.1\r\n", shut=True), b"")
        self.assertEqual(say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", shut=True), b"", "a TLS hello")
        self.assertGreaterEqual(self.metrics()[("sluice_http_refused_total",)], 2)
        for _ in range(20):  # a client that shuts down its side still gets the whole answer
            head, _, body = say(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", shut=True).partition(b"\r\n\r\n")
            self.assertIn(b"\r\nContent-Length: %d\r\n" % len(body), head)

        # Of 200 connections that send a byte now and then, 32 are accepted, each for five seconds.
        slow = [socket.create_connection(("127.0.0.1", self.port), timeout=20) for _ in range(200)]
        begun = time.monotonic()
        while slow and time.monotonic() - begun < 60:
            for peer in list(slow):
                try:
                    peer.send(b"G")
                except OSError:
                    peer.close()
                    slow.remove(peer)
            self.assertLess(len([name for name in self.open_files(daemon) if name.startswith("socket:")]), 60)
            self.client.ping()
        self.assertEqual(slow, [], "all are cut off, whatever they say")
        self.wait_answer("/healthz", 200)
        self.assertGreaterEqual(self.metrics()[("sluice_http_refused_total",)], 170)
        load.stop()
        if not SANITIZED:  # sanitizers keep freed memory
            self.assertLess(daemon.rss_bytes() - rss, 64 << 20)
        self.finish(self.server, self.sender)

    def open_files(self, daemon):
        folder = f"/proc/{daemon.pid}/fd"
        names = []
        for name in os.listdir(folder):
            try:
                names.append(os.readlink(os.path.join(folder, name)))
            except FileNotFoundError:
                pass
        return names

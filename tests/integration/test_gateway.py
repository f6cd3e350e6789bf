"""HTTP clients and a queue: calls become requests, replies become answers."""
# ctest: threads
# ctest-cost: 60

import base64
import json
import re
import signal
import struct

from corpus import texts
from gateway_case import GatewayCase


def vectors(answer):
    assert answer.status == 200, answer.body
    return [base64.b64decode(item["embedding"]) for item in answer.json["data"]]


class Calls(GatewayCase):
    """With a worker."""

    def setUp(self):
        super().setUp()
        self.worker = self.start_daemon(self.server, "--max-inputs", "100", "--max-text-bytes", "20000")
        self.start_gateway()
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")

    def test_vectors_are_those_of_embed(self):
        some = texts(5)
        answer = self.embed(some)
        self.assertEqual(vectors(answer), self.expected(some))
        self.assertEqual(answer.json["model"], "tiny")
        self.assertGreater(answer.json["usage"]["total_tokens"], 5)
        self.assertRegex(answer.headers["x-request-id"], "^http-[0-9a-f]{16}-")
        numbers = self.ask("POST", "/v1/embeddings", {"input": some[0], "model": "tiny"}).json["data"][0]["embedding"]
        self.assertEqual(struct.pack(f"<{len(numbers)}f", *numbers), self.reference()(some[0]))

    def test_a_large_call_becomes_several_requests(self):
        many = [f"{number} {text}" for number, text in enumerate(texts(60) * 6)]
        answer = self.embed(many)
        self.assertEqual(vectors(answer), self.expected(many))
        long = ["a b " * 1500 + str(number) for number in range(9)]  # three of them fit into max_text_bytes
        self.assertEqual(len(vectors(self.embed(long))), 9)

    def test_a_large_answer_is_rendered_beside_the_loop(self):
        """Others are answered meanwhile, and a client may go away meanwhile."""
        many = [f"text {number}" for number in range(2048)]
        wanted = self.ask("POST", "/v1/embeddings", {"input": many[:9]}).json["data"]
        self.assertGreaterEqual(2048 * len(wanted[0]["embedding"]), 1 << 16)
        bodies = [self.send("POST", "/v1/embeddings", {"input": many}) for _ in range(4)]
        bodies[1].close()
        self.assertEqual(self.embed("small").status, 200)
        for connection in (bodies[0], *bodies[2:]):
            data = json.loads(connection.getresponse().read())["data"]
            connection.close()
            self.assertEqual((len(data), data[:9]), (2048, wanted))
        self.assertEqual(self.embed("after").status, 200)

    def test_one_bad_text_is_named_by_its_place_in_the_call(self):
        answer = self.embed(["fine"] * 150 + ["x " * 15000])
        self.assertEqual(answer.status, 413, answer.body)
        self.assertIn("input[150]", answer.json["error"]["message"])

    def send_many(self, count):
        """Calls that are all in the queue."""
        connections = [self.send("POST", "/v1/embeddings", {"input": f"text {number}"}) for number in range(count)]
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == count, "the requests")
        return connections

    def read_all(self, connections):
        answers = [connection.getresponse() for connection in connections]
        for answer in answers:
            answer.read()
        for connection in connections:
            connection.close()
        return answers

    def test_load_alone_makes_no_error(self):
        """The worker gets more calls than it can do; nobody tries again."""
        self.worker.signal(signal.SIGSTOP)
        connections = self.send_many(300)
        self.worker.signal(signal.SIGCONT)
        self.assertEqual({answer.status for answer in self.read_all(connections)}, {200})

    def test_a_cap(self):
        self.client.hset(self.sender.key("meta"), "cap_normal", 5)
        self.assertEqual(self.run_sluice("pause", "--redis", self.server.socket, "--queue", self.queue).returncode, 0)
        self.wait_paused(self.client)
        connections = [self.send("POST", "/v1/embeddings", {"input": f"text {number}"}) for number in range(40)]
        self.wait_until(lambda: self.client.xinfo_stream(self.sender.stream)["entries-added"] == 40, "the requests")
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 5, "the others to be refused")
        self.assertEqual(self.run_sluice("resume", "--redis", self.server.socket, "--queue", self.queue).returncode, 0)
        answers = self.read_all(connections)
        self.assertEqual(sorted(answer.status for answer in answers), [200] * 5 + [429] * 35)
        self.assertTrue(all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status == 429))

    def test_nothing_is_left_in_redis(self):
        for number in range(20):
            self.assertEqual(self.embed(f"text {number}").status, 200)
        self.wait_until(lambda: not self.client.keys(self.sender.key("reply:*")), "the replies to be unlinked")
        self.wait_empty(self.sender)

    def test_a_key_makes_calls_the_same_request(self):
        first = self.embed("hello", **{"Idempotency-Key": "order 42"})
        second = self.embed("hello", **{"Idempotency-Key": "order 42"})
        self.assertEqual(first.body, second.body)
        self.assertEqual(self.client.xinfo_stream(self.sender.stream)["entries-added"], 1)
        other = self.embed("hello", **{"Idempotency-Key": "order 42", "X-Sluice-Tenant": "somebody"})
        text = self.embed("another", **{"Idempotency-Key": "order 42"})
        self.assertEqual((other.status, vectors(text)), (200, [self.reference()("another")]))
        self.assertEqual(self.client.xinfo_stream(self.sender.stream)["entries-added"], 3)

    def test_a_job_is_answered_later_by_any_gateway(self):
        body = {"input": ["hello", "world"], "encoding_format": "base64"}
        answer = self.ask("POST", "/v1/embeddings", body, {"Prefer": "respond-async"})
        self.assertEqual((answer.status, answer.json["status"]), (202, "queued"))
        self.assertTrue(answer.headers["location"].endswith(answer.json["id"]))
        other = self.make_gateway().start().wait_listening()
        result = self.ask("GET", answer.headers["location"] + "?wait=30", gateway=other)
        self.assertEqual(result.body, self.ask("POST", "/v1/embeddings", body).body)
        self.assertEqual(self.ask("GET", answer.headers["location"]).body, result.body)
        tei = self.ask("POST", "/embed", {"inputs": "hello"}, {"Prefer": "respond-async"})
        self.assertEqual(self.ask("GET", tei.headers["location"] + "?wait=30").body,
                         self.ask("POST", "/embed", {"inputs": "hello"}).body)

    def test_nobody_cancels_a_request_by_guessing_its_name(self):
        """The name of a request is a time; its id, which is in the address of a job, is random."""
        self.assertEqual(self.run_sluice("pause", "--redis", self.server.socket, "--queue", self.queue).returncode, 0)
        self.wait_paused(self.client)
        job, second = (self.ask("POST", "/v1/embeddings", {"input": "a"}, {"Prefer": "respond-async"}).headers["location"]
                       for _ in range(2))
        self.assertEqual(self.ask("DELETE", job[:-1] + ("0" if job[-1] != "0" else "1")).status, 202)
        for address, left in ((second, 202), (job, 410)):  # workers take cancels in their order
            self.assertEqual(self.ask("DELETE", address).status, 202)
            self.wait_until(lambda: self.ask("GET", address).status == 410, "the cancel")
            self.assertEqual(self.ask("GET", job).status, left)

    def test_jobs_that_are_none(self):
        now, job = f"{self.now_ms()}-0", "job-" + "0" * 32
        for path in ("x", "x/y", f"test/{now}/job-", f"test/{now}/job-00", f"test/{now}/{job}/", f"test/{now}/../{job}",
                     f"test/1-1/{job}", f"nix/{now}/{job}", f"test/{now}/secret", f"test//{job}", f"//{job}"):
            with self.subTest(path):
                self.assertEqual(self.ask("GET", "/v1/jobs/" + path).status, 404)
        self.assertEqual(self.ask("GET", f"/v1/jobs/test/{now}/{job}").status, 202)

    def test_a_connection_has_many_calls(self):
        connection = self.send("POST", "/v1/embeddings", {"input": "hello"})
        first = connection.getresponse().read()
        for _ in range(5):
            connection.request("POST", "/v1/embeddings", json.dumps({"input": "hello"}), {"Content-Type": "application/json"})
            self.assertEqual(connection.getresponse().read(), first)
        connection.close()

    def test_metrics_count_calls(self):
        self.embed("hello")
        self.embed("")
        lines = dict(re.findall(r"(?m)^(te_\S+|sluice_\S+) (\S+)$", self.ask("GET", "/metrics").body.decode()))
        self.assertEqual(lines["te_request_success"], "1")
        self.assertEqual(lines['te_request_failure{err="invalid_value"}'], "1")
        self.assertEqual(lines["te_request_duration_count"], "1")
        self.assertEqual(lines['sluice_gateway_replies_total{queue="test"}'], "1")


class Requests(GatewayCase):
    """Without a worker; the test looks at entries and writes replies."""

    def setUp(self):
        super().setUp()
        self.start_gateway()

    def done(self, entry, vector=(1.0, 2.0), model="m", **info):
        count = len(json.loads(entry["inputs"]))
        self.reply(entry, status="done", embedding=struct.pack(f"<{len(vector)}f", *vector) * count,
                   info={"dim": len(vector), "count": count, "tokens": 3, "model": model, **info})

    def test_fields_of_a_request(self):
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        connection = self.send("POST", "/v1/embeddings", {"input": "caf\u00e9 \"x\"", "dimensions": 2}, {
            "X-Sluice-Priority": "high", "X-Sluice-Tenant": "shop", "X-Sluice-Timeout": "99.5", "traceparent": trace,
            "tracestate": "a=b"})
        entry = self.wait_entries(level="high")[0]
        self.assertEqual(json.loads(entry.pop("inputs")), ["caf\u00e9 \"x\""])
        self.assertEqual({name: entry[name] for name in set(entry) - {"id", "notify"}}, {
            "encoding": "f32", "dims": "2", "tenant": "shop", "expires_in": "99500", "traceparent": trace, "tracestate": "a=b"})
        self.reply({**entry, "inputs": "[1]"}, status="error", code="bad_request", message="dims: 2 is not good")
        answer = connection.getresponse()
        self.assertEqual((answer.status, json.loads(answer.read())["error"]["param"]), (400, "dimensions"))
        connection.close()

    def test_how_long_a_client_waits(self):
        first = self.send("POST", "/v1/embeddings", {"input": "a"})
        self.wait_entries(1)
        second = self.send("POST", "/v1/embeddings", {"input": "a"}, {"x-stainless-read-timeout": "20"})
        self.assertEqual([entry["expires_in"] for entry in self.wait_entries(2)], ["600000", "20000"])
        late = self.embed("a", **{"X-Sluice-Timeout": "0.1"})
        self.assertEqual((late.status, late.json["error"]["code"]), (504, "expired"))
        self.wait_until(lambda: self.client.xlen(self.sender.key("control")) == 1, "the cancel, which is sent with the answer")
        first.close()
        second.close()

    def test_refusals_of_the_server_are_in_the_words_of_the_dialect(self):
        large = {"Content-Length": str(1 << 40)}  # no such body is sent
        for method, path, headers, status, words in (("POST", "/v1/nothing", {}, 404, "there is no such path"), ("PUT", "/v1/embeddings", {}, 405, "method"),
                                                     ("POST", "/v1/embeddings", large, 413, "too large"), ("POST", "/embed", large, 413, "too large"),
                                                     ("POST", "/v2/rerank", large, 413, "too large")):
            answer = self.ask(method, path, headers=headers)
            error = answer.json["error"] if "error" in answer.json else answer.json
            message = error if isinstance(error, str) else error["message"]
            self.assertEqual((answer.status, words in message), (status, True), answer.body)
            self.assertEqual(set(answer.json), {"/embed": {"error", "error_type"}, "/v2/rerank": {"message", "detail"}}.get(path, {"error"}), answer.body)

    def test_wrong_headers(self):
        for header, value, status in (("X-Sluice-Priority", "urgent", 400), ("X-Sluice-Timeout", "soon", 400),
                                      ("X-Sluice-Timeout", "-1", 400), ("X-Sluice-Timeout", "inf", 400),
                                      ("Content-Type", "text/plain", 400), ("Origin", "https://example.com", 403)):
            with self.subTest(header):
                answer = self.embed("a", **{header: value})
                self.assertEqual(answer.status, status, answer.body)
                self.assertIn("error", answer.json)
                self.assertIn("x-request-id", answer.headers)
        self.assertEqual(self.entries(), [])

    def test_a_full_queue(self):
        connection = self.send("POST", "/v1/embeddings", {"input": "a"})
        self.reply(self.wait_entries()[0], status="error", code="queue_full", message="full",
                   info={"retry_after_ms": 2500, "retryable": True})
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.headers["retry-after"]), (429, "3"))
        connection.close()

    def test_a_reply_that_is_not_what_was_asked(self):
        for fields in ({"embedding": b"123"}, {}, {"embedding": b"1234" * 2}):
            connection = self.send("POST", "/v1/embeddings", {"input": "a"})
            entry = self.wait_entries()[-1]
            self.reply(entry, status="done", **fields, info={"dim": 1, "count": 1})
            self.assertEqual(connection.getresponse().status, 500)
            connection.close()
            self.client.delete(self.sender.stream)

    def test_a_client_that_goes_away_cancels_its_request(self):
        connection = self.send("POST", "/v1/embeddings", {"input": "a"})
        self.wait_entries()
        name = self.client.xrange(self.sender.stream)[0][0]
        connection.close()
        self.wait_until(lambda: [fields[b"cancel"] for _, fields in self.client.xrange(self.sender.key("control"))] == [name],
                        "the cancel")
        kept = self.send("POST", "/v1/embeddings", {"input": "b"}, {"Idempotency-Key": "k"})
        self.wait_entries(2)
        kept.close()
        later = self.send("POST", "/v1/embeddings", {"input": "c"})
        self.wait_entries(3)
        later.close()
        self.wait_until(lambda: self.client.xlen(self.sender.key("control")) == 2, "the second cancel, not the third")

    def test_parts_are_joined_in_their_order(self):
        self.client.hset(self.sender.key("meta"), mapping={"max_inputs": 2})
        self.wait_until(self.knows_the_limit, "the limits to be known")
        connection = self.send("POST", "/v1/embeddings", {"input": ["a", "b", "c"]})
        first, last = self.wait_entries(2)
        self.assertEqual((first["inputs"], last["inputs"]), ('["a","b"]', '["c"]'))
        self.assertTrue(last["id"].endswith(".1"))
        self.done(last, (3.0, 4.0))
        self.done(first)
        answer = json.loads(connection.getresponse().read())
        self.assertEqual([item["embedding"] for item in answer["data"]], [[1, 2], [1, 2], [3, 4]])
        self.assertEqual(answer["usage"]["total_tokens"], 6)
        connection.close()

    def test_parts_of_two_models_are_not_joined(self):
        self.test_parts_are_joined_in_their_order()
        self.client.delete(self.sender.stream)
        connection = self.send("POST", "/v1/embeddings", {"input": ["a", "b", "c"]})
        for entry, model in zip(self.wait_entries(2), ("m", "n")):
            self.done(entry, model=model)
        self.assertEqual(connection.getresponse().status, 500)
        connection.close()

    def test_a_key_whose_call_is_divided_otherwise_now(self):
        """The reply of c and d is not taken for that of d and e, though both are of the second part."""
        self.test_parts_are_joined_in_their_order()
        self.client.delete(self.sender.stream)
        body, key = {"input": list("abcde")}, {"Idempotency-Key": "k"}
        connection = self.send("POST", "/v1/embeddings", body, key)
        first, second, _ = self.wait_entries(3)
        self.assertEqual(second["inputs"], '["c","d"]')
        name = self.client.xrange(self.sender.stream)[0][0].decode()
        self.done(second, (7.0, 8.0))
        self.reply(first, status="error", code="internal", message="broken", info={"entry": name})
        self.assertEqual(connection.getresponse().status, 500)
        connection.close()
        self.client.delete(self.sender.stream)
        self.client.hset(self.sender.key("meta"), mapping={"max_inputs": 3})
        self.wait_until(lambda: self.knows_the_limit(requests=1), "the limits to be known")
        connection = self.send("POST", "/v1/embeddings", body, key)
        for entry in self.wait_entries(2):
            self.done(entry)
        answer = json.loads(connection.getresponse().read())
        self.assertEqual([item["embedding"] for item in answer["data"]], [[1, 2]] * 5)
        connection.close()

    def knows_the_limit(self, requests=2):
        """Whether a call of three texts becomes that number of requests. It is answered, so that nothing of it comes later."""
        connection = self.send("POST", "/v1/embeddings", {"input": ["a", "b", "c"]})
        self.wait_until(lambda: sum(len(json.loads(entry["inputs"])) for entry in self.entries()) == 3, "the three texts")
        entries = self.entries()
        for entry in entries:
            self.done(entry)
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()
        self.client.delete(self.sender.stream)
        return len(entries) == requests

    def test_one_failed_part_cancels_the_others(self):
        self.test_parts_are_joined_in_their_order()
        self.client.delete(self.sender.stream)
        connection = self.send("POST", "/v1/embeddings", {"input": ["a", "b", "c", "d", "e"]})
        entries = self.wait_entries(3)
        self.reply(entries[1], status="error", code="too_long", message="inputs: text 0 has 99 tokens", info={"index": 0})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 400)
        self.assertIn("input[2]", json.loads(answer.read())["error"]["message"])
        self.wait_until(lambda: self.client.xlen(self.sender.key("control")) == 2, "the cancels")
        connection.close()

    def test_a_job_that_is_cancelled(self):
        answer = self.ask("POST", "/v1/embeddings", {"input": "a"}, {"Prefer": "respond-async"})
        entry = self.wait_entries()[0]
        self.assertEqual(entry["expires_in"], "86400000")
        self.assertEqual(self.ask("GET", answer.headers["location"]).status, 202)
        self.assertEqual(self.ask("GET", answer.headers["location"] + "?wait=0.1").status, 202)
        deleted = self.ask("DELETE", answer.headers["location"])
        self.assertEqual((deleted.status, deleted.json["status"]), (202, "cancelling"))
        self.wait_until(lambda: self.client.xlen(self.sender.key("control")) == 1, "the cancel")
        name = answer.headers["location"].split("/")[4]
        self.reply(entry, status="cancelled", info={"meta": entry["meta"], "entry": name})
        self.assertEqual(self.ask("GET", answer.headers["location"]).status, 410)

    def test_an_error_of_an_earlier_call_does_not_answer_the_job_of_a_later_one(self):
        headers = {"Prefer": "respond-async", "Idempotency-Key": "k"}
        locations = []
        for count in (1, 2):
            answer = self.ask("POST", "/v1/embeddings", {"input": "a"}, headers)
            self.assertEqual(answer.status, 202)
            locations.append(answer.headers["location"])
            entry = self.wait_entries(count)[-1]
            if count == 1:
                self.reply(entry, status="error", code="internal", message="broken", info={"meta": entry["meta"], "entry": locations[0].split("/")[4]})
                self.assertEqual(self.ask("GET", locations[0]).status, 500)
        self.assertEqual(self.ask("GET", locations[0]).status, 500)
        self.assertEqual(self.ask("GET", locations[1]).status, 202)
        self.done(entry, meta=entry["meta"])
        self.assertEqual([self.ask("GET", location).status for location in locations], [200, 200])

    def test_health_without_workers(self):
        self.assertEqual(self.ask("GET", "/health").status, 503)
        self.assertEqual(self.ask("GET", "/v1/models").json["data"][0]["id"], "test")

    def test_a_late_redis_and_one_that_stays_away(self):
        self.wait_until(lambda: "redis_connected" in self.gateway.read_log(), "a connection that can be lost")
        self.server.kill()
        connection = self.send("POST", "/v1/embeddings", {"input": "a"})
        self.wait_until(lambda: re.search("redis_(lost|unavailable)", self.gateway.read_log()), "the gateway to notice")
        self.server.start()
        self.client = self.server.client()
        self.done(self.wait_entries()[0])
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()
        self.server.kill()
        answer = self.embed("a")
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"))
        self.server.start()

    def test_a_stop_waits_for_calls_in_flight(self):
        connection = self.send("POST", "/v1/embeddings", {"input": "a"})
        entry = self.wait_entries()[0]
        self.gateway.signal(signal.SIGTERM)
        self.wait_until(lambda: "gateway_stops" in self.gateway.read_log(), "the stop to begin")
        self.wait_until(self.is_deaf, "the port to be closed")
        self.done(entry)
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()
        self.assertEqual(self.gateway.wait_exit(), 0)

    def is_deaf(self):
        try:
            self.ask("GET", "/health")
        except ConnectionError:
            return True
        return False

    def test_a_stop_gives_up_calls_that_take_too_long(self):
        hasty = self.start_gateway(None, "--shutdown-timeout-ms", "100")
        connection = self.send("POST", "/v1/embeddings", {"input": "a"})
        self.wait_entries()
        hasty.signal(signal.SIGTERM)
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.getheader("retry-after")), (503, "1"))
        connection.close()
        self.assertEqual(hasty.wait_exit(), 0)


class Starts(GatewayCase):
    def test_a_model_picks_its_queue(self):
        settings = {"queues": [{"queue": "one"}, {"queue": "two"}]}
        for queue, model in (("one", "alpha"), ("two", "beta")):
            self.client.hset(f"sluice:{{{queue}}}:meta", "model", model)
        gateway = self.make_gateway(environment={"SLUICE_CONFIG": self.write("gateway.json", json.dumps(settings))})
        at = gateway.argv.index("--queue")
        del gateway.argv[at:at + 2]
        self.gateway = gateway.start().wait_listening()
        self.wait_until(lambda: [model["id"] for model in self.ask("GET", "/v1/models").json["data"]] == ["alpha", "beta"],
                        "the names of the models")
        for model, queue in (("alpha", "one"), ("two", "two"), ("somebody/beta", "two")):
            connection = self.send("POST", "/v1/embeddings", {"input": model, "model": model})
            stream = f"sluice:{{{queue}}}:requests"
            self.wait_until(lambda: any(json.loads(fields[b"inputs"]) == [model] for _, fields in self.client.xrange(stream)),
                            f"{model} in {queue}")
            connection.close()
        for body in ({"input": "a", "model": "gamma"}, {"input": "a"}):
            answer = self.ask("POST", "/v1/embeddings", body)
            self.assertEqual((answer.status, answer.json["error"]["code"]), (404, "model_not_found"))
            self.assertIn("alpha, beta", answer.json["error"]["message"])
        self.assertEqual(self.ask("GET", "/v1/models/alpha").json["id"], "alpha")
        self.assertEqual(self.ask("GET", "/v1/models/gamma").status, 404)

    def test_the_producers_login_is_enough(self):
        guarded = self.start_guarded(name="guarded")
        self.start_daemon(guarded)
        self.start_gateway(guarded)
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        self.assertEqual(self.embed("hello").status, 200)
        gone = self.send("POST", "/v1/embeddings", {"input": "a"})
        gone.close()
        self.assertNotIn("NOPERM", self.gateway.read_log())

    def test_a_refused_login_ends_it(self):
        guarded = self.start_guarded(name="guarded")
        gateway = self.make_gateway(guarded, environment={"SLUICE_REDIS_PASSWORD": "wrong"}).start()
        self.assertEqual(gateway.wait_exit(), 77)
        self.assertIn("WRONGPASS", gateway.read_log())

    def test_it_listens_to_this_machine_only(self):
        result = self.run_sluice("gateway", "--listen", "0.0.0.0:8080", "--redis", self.server.socket)
        self.assertEqual(result.returncode, 77)
        self.assertIn(b"not a loopback address", result.stderr)
        self.assertEqual(self.run_sluice("gateway", "--redis", self.server.socket).returncode, 64)

    def test_a_daemon_serves_http_itself(self):
        gateway = self.make_gateway()
        daemon = self.start_daemon(self.server, "--listen", f"127.0.0.1:{gateway.port}")
        self.gateway = gateway
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        some = texts(30)
        self.assertEqual(vectors(self.embed(some)), self.expected(some))
        self.assertEqual(daemon.stop(), 0)

"""API keys of the gateway: who may ask, which queues, how much."""
# ctest-cost: 30

import hashlib
import json
import os
import socket
import subprocess

from daemon import BINARY
from gateway_case import GatewayCase
from sentinel import free_port

BODIES = {
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "base64"},
    "/embed": {"inputs": ["a", "b"]},
    "/v2/embed": {"texts": ["a", "b"], "input_type": "search_document", "embedding_types": ["float"]},
}


def message(path, answer):
    if path == "/v1/embeddings":
        return answer.json["error"]["message"]
    return answer.json["error"] if path == "/embed" else answer.json["message"]


class KeysCase(GatewayCase):
    def create(self, name, *options, queue=None):
        done = self.run_sluice("keys", "create", name, "--redis", str(self.server.address("operator")), "--queue", queue or self.queue,
                               *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        key = done.stdout.decode().strip()
        self.assertRegex(key, "^sk-[0-9a-f]{64}$")
        return key

    def call(self, key, path="/v1/embeddings", body=None, gateway=None, **headers):
        if key:
            headers["Authorization"] = "Bearer " + key
        return self.ask("POST", path, body or BODIES[path], headers, gateway)

    def wait_status(self, status, key, **how):
        self.wait_until(lambda: self.call(key, **how).status == status, f"a {status}")


class Redis(KeysCase):
    """Keys in Redis, and a worker."""

    def setUp(self):
        super().setUp()
        self.start_daemon(self.server)
        self.start_gateway(None, "--keys", "redis")
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")

    def test_every_dialect_refuses_in_its_own_words(self):
        key, small, slow = self.create("good"), self.create("small", "--texts", "1"), self.create("slow", "--requests", "1")
        self.wait_status(200, slow)
        for path in BODIES:
            with self.subTest(path):
                self.assertEqual(self.call(key, path).status, 200)
                for wrong in (None, "", "sk-" + "0" * 64, key[:-1], key + "0", hashlib.sha256(key.encode()).hexdigest()):
                    answer = self.call(wrong, path)
                    self.assertEqual((answer.status, answer.headers["www-authenticate"]), (401, "Bearer"))
                    self.assertIn("a key is needed", message(path, answer))
                answer = self.call(small, path)
                self.assertEqual(answer.status, 413)
                self.assertIn("at most 1 texts", message(path, answer))
                answer = self.call(slow, path)
                self.assertEqual(answer.status, 429, answer.body)
                self.assertIn("'slow' has used", message(path, answer))
                self.assertIn(int(answer.headers["retry-after"]), range(1, 61))
        scheme = self.ask("POST", "/embed", BODIES["/embed"], {"Authorization": "Basic " + key})
        self.assertEqual(scheme.status, 401)
        self.assertEqual(self.ask("POST", "/embed", BODIES["/embed"], {"Authorization": "bearer  " + key}).status, 200)

    def test_nobody_sends_a_body_without_a_key(self):
        self.start_gateway(None, "--keys", "redis", "--data", self.path("data"))
        self.wait_until(lambda: self.call(None).status == 401, "the keys to be known")
        for path in (*BODIES, "/v1/files", "/v1/batches"):
            with self.subTest(path), socket.create_connection(("127.0.0.1", self.gateway.port), timeout=60) as connection:
                connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode())
                self.assertIn(b" 401 ", connection.makefile("rb").readline())

    def test_pages(self):
        key = self.create("k")
        self.wait_status(200, key)
        for path in ("/v1/models", "/v1/models/tiny", "/info", "/metrics"):
            self.assertEqual(self.ask("GET", path).status, 401, path)
            self.assertEqual(self.ask("GET", path, None, {"Authorization": "Bearer " + key}).status, 200, path)
        for path in ("/health", "/openapi.json"):
            self.assertEqual(self.ask("GET", path).status, 200, path)
        document = self.ask("GET", "/openapi.json").json
        self.assertEqual(document["security"], [{"key": []}])
        free = [path for path, methods in document["paths"].items() if methods.get("get", {}).get("security") == []]
        self.assertEqual(free, ["/health", "/openapi.json"])

    def test_a_revoked_key_ends_within_seconds(self):
        key, other = self.create("k"), self.create("other")
        self.wait_status(200, key)
        again = self.run_sluice("keys", "create", "k", "--redis", str(self.server.address("operator")), "--queue", self.queue)
        self.assertEqual(again.returncode, 65)
        self.assertIn(b"has a key k already", again.stderr)
        done = self.run_sluice("keys", "revoke", "k", "--redis", str(self.server.address("operator")), "--queue", self.queue)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wait_status(401, key)
        self.assertEqual(self.call(other).status, 200)
        done = self.run_sluice("keys", "revoke", "k", "--redis", str(self.server.address("operator")), "--queue", self.queue)
        self.assertIn(b"has no key k", done.stderr)

    def test_only_the_digest_is_kept(self):
        key = self.create("k", "--tenant", "t", "--requests", "9", "--tokens", "1000", "--texts", "3")
        kept = json.loads(self.client.hget(self.sender.key("keys"), "k"))
        self.assertEqual(kept, {"name": "k", "sha256": hashlib.sha256(key.encode()).hexdigest(), "tenant": "t",
                                "requests_per_minute": 9, "tokens_per_minute": 1000, "max_texts": 3})
        done = self.run_sluice("keys", "--redis", str(self.server.address("operator")), "--queue", self.queue)
        self.assertEqual(done.stdout, b"k tenant=t requests=9 tokens=1000 texts=3 batches=no\n")
        self.wait_status(200, key)
        self.assertNotIn(key, self.gateway.read_log())

    def test_two_gateways_share_a_bucket(self):
        key = self.create("k", "--requests", "6")
        other = self.make_gateway(None, "--keys", "redis").start().wait_listening()
        self.wait_until(lambda: self.ask("GET", "/v1/models", None, {"Authorization": "Bearer " + key}).status == 200, "the key")
        self.wait_until(lambda: self.ask("GET", "/v1/models", None, {"Authorization": "Bearer " + key}, other).status == 200, "the key")
        answers = [self.call(key, gateway=(self.gateway, other)[i % 2]) for i in range(12)]
        taken = sum(answer.status == 200 for answer in answers)
        self.assertIn(taken, range(6, 10))  # a token comes back every ten seconds, and the machine may be slow
        self.assertEqual({answer.status for answer in answers}, {200, 429})

    def test_tokens_are_charged_after_the_call(self):
        key = self.create("k", "--tokens", "20")
        self.wait_until(lambda: self.ask("GET", "/v1/models", None, {"Authorization": "Bearer " + key}).status == 200, "the key")
        first = self.call(key, body={"input": ["some words of a text"] * 50})
        self.assertEqual(first.status, 200)
        self.assertGreater(first.json["usage"]["total_tokens"], 100)
        answer = self.call(key)
        self.assertEqual(answer.status, 429)
        # It is worth another try once the bucket is above nothing.
        below = first.json["usage"]["total_tokens"] - 20 + 1
        self.assertLessEqual(abs(int(answer.headers["retry-after"]) - 3 * below), 30)

    def test_the_tenant_is_the_keys(self):
        key, other, same = self.create("k", "--tenant", "acme"), self.create("o"), self.create("s", "--tenant", "acme")
        for each in (key, other, same):
            self.wait_status(200, each)
        job = self.call(key, **{"Prefer": "respond-async", "X-Sluice-Tenant": "o"})
        self.assertEqual(job.status, 202, job.body)
        where = job.headers["location"] + "?wait=30"
        self.assertEqual(self.ask("GET", where, None, {"Authorization": "Bearer " + same}).status, 200)
        self.assertEqual(self.ask("GET", where, None, {"Authorization": "Bearer " + key}).status, 200)
        stranger = self.ask("GET", where, None, {"Authorization": "Bearer " + other})
        self.assertEqual((stranger.status, stranger.json["error"]["message"]), (404, "there is no such job"))
        self.assertEqual(self.ask("GET", where).status, 401)

    def test_a_tenant_cancels_its_own_jobs(self):
        mine, other = self.create("k", "--tenant", "acme"), self.create("o")
        for key in (mine, other):
            self.wait_status(200, key)
        self.assertEqual(self.run_sluice("pause", "--redis", str(self.server.address("operator")), "--queue", self.queue).returncode, 0)
        self.wait_paused(self.client)
        job, second = (self.call(mine, **{"Prefer": "respond-async"}).headers["location"] for _ in range(2))

        def ask(method, path, key):
            return self.ask(method, path, None, {"Authorization": "Bearer " + key}).status

        self.assertEqual(ask("DELETE", job, other), 202)
        for path, left in ((second, 202), (job, 410)):  # workers take cancels in their order
            self.assertEqual(ask("DELETE", path, mine), 202)
            self.wait_until(lambda: ask("GET", path, mine) == 410, "the cancel")
            self.assertEqual(ask("GET", job, mine), left)

    def test_a_hit_of_the_cache_needs_a_key_and_is_charged(self):
        """A hit is a request of its key's bucket, and its tokens are taken as if it had been computed."""
        self.client.hset(self.sender.key("meta"), "precision", "f32")
        self.gateway.stop()
        self.start_gateway(None, "--keys", "redis", "--cache-bytes=20000000")
        free, limited = self.create("free"), self.create("limited", "--tokens", "100")
        self.wait_until(lambda: self.call(free).headers.get("x-sluice-cache") == "hit", "a hit")
        computed = self.call(free).json
        spend = max(computed["usage"]["total_tokens"], 1)
        self.assertLess(spend, 100)
        self.wait_until(lambda: self.ask("GET", "/v1/models", None, {"Authorization": "Bearer " + limited}).status == 200, "the key")
        answers = []
        while not answers or answers[-1].status == 200:
            answers.append(self.call(limited))
            self.assertLess(len(answers), 100 // spend + 30)
        self.assertEqual([(answer.headers["x-sluice-cache"], answer.json) for answer in answers[:-1]],
                         [("hit", computed)] * (len(answers) - 1))
        self.assertGreaterEqual(len(answers) - 1, 100 // spend)
        self.assertEqual((answers[-1].status, answers[-1].headers.get("x-sluice-cache")), (429, None))
        self.assertEqual(self.call(None).status, 401)

    def test_a_forgotten_script_is_loaded_by_a_worker(self):
        key = self.create("k", "--requests", "1000")
        self.wait_status(200, key)
        self.client.script_flush()
        self.assertEqual(self.call(key).status, 200)


class Restart(KeysCase):
    redis_options = {"aof": "always"}

    def test_a_call_with_a_limit_waits_for_redis(self):
        self.start_daemon(self.server)
        self.start_gateway(None, "--keys", "redis")
        key = self.create("k", "--requests", "1000", "--tokens", "1000000")
        self.wait_status(200, key)
        self.server.kill()
        connections = [self.send("POST", "/v1/embeddings", BODIES["/v1/embeddings"], {"Authorization": "Bearer " + key}) for _ in range(3)]
        self.wait_until(lambda: "redis_lost" in self.gateway.read_log(), "the gateway to notice")
        self.server.start()
        for connection in connections:
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()
        self.server.kill()
        answer = self.call(key)
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"))
        self.server.start()


class Queues(KeysCase):
    def test_a_worker_is_needed_once_for_a_limit(self):
        """Producers may call the script of the buckets, and only workers load it."""
        self.start_gateway(None, "--keys", "redis")
        key, free = self.create("k", "--requests", "5"), self.create("free")
        self.wait_status(504, free, **{"X-Sluice-Timeout": "0.001"})
        connection = self.send("POST", "/v1/embeddings", BODIES["/v1/embeddings"], {"Authorization": "Bearer " + key})
        self.start_daemon(self.server)
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()

    def test_batches_need_a_key_for_them(self):
        self.start_gateway(None, "--keys", "redis", "--data", self.path("data"))
        plain, batches = self.create("plain"), self.create("batches", "--batches")
        for path in ("/v1/files", "/v1/batches"):
            self.wait_until(lambda path=path: self.ask("GET", path, None, {"Authorization": "Bearer " + batches}).status == 200, path)
            self.assertEqual(self.ask("GET", path).status, 401)
            answer = self.ask("GET", path, None, {"Authorization": "Bearer " + plain})
            self.assertEqual((answer.status, answer.json["error"]["message"]), (403, "the key may not use files and batches"))

    def test_the_shipped_logins_are_enough(self):
        self.server = self.start_guarded(name="guarded")
        self.start_daemon(self.server)
        self.start_gateway(self.server, "--keys", "redis")
        done = self.run_sluice("keys", "create", "k", "--requests", "9", "--tokens", "1000", "--redis", self.server.address("operator"),
                               "--queue", self.queue, environment={"SLUICE_REDIS_PASSWORD": "pw"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wait_status(200, done.stdout.decode().strip())
        self.assertNotIn("NOPERM", self.gateway.read_log())

    def test_a_key_of_one_queue_is_not_one_of_the_other(self):
        settings = self.write("gateway.json", json.dumps({"queues": [{"queue": "one"}, {"queue": "two"}]}))
        self.gateway = self.make_gateway(None, "--keys", "redis", environment={"SLUICE_CONFIG": settings})
        at = self.gateway.argv.index("--queue")
        del self.gateway.argv[at:at + 2]
        self.gateway.start().wait_listening()
        key, both = self.create("k", queue="one"), self.create("both", queue="one")
        self.client.hset("sluice:{two}:keys", "both", self.client.hget("sluice:{one}:keys", "both"))
        timeout = {"X-Sluice-Timeout": "0.001"}
        for queue, expected in (("one", 504), ("two", 504)):
            self.wait_status(expected, both, body={"input": "a", "model": queue}, **timeout)
        self.assertEqual(self.call(key, body={"input": "a", "model": "one"}, **timeout).status, 504)
        answer = self.call(key, body={"input": "a", "model": "two"})
        self.assertEqual((answer.status, answer.json["error"]["code"]), (403, "forbidden"))
        for path, body in (("/embed", {"inputs": "a", "model": "two"}),
                           ("/v2/embed", {**BODIES["/v2/embed"], "model": "two"})):
            self.assertEqual(self.call(key, path, body).status, 403, path)
        self.assertEqual([model["id"] for model in self.ask("GET", "/v1/models", None, {"Authorization": "Bearer " + key}).json["data"]],
                         ["one"])
        self.assertNotIn("two", self.call(key, body={"input": "a", "model": "three"}).json["error"]["message"])


class Files(KeysCase):
    def line(self, name, key, **more):
        return json.dumps({"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **more}) + "\n"

    def replace(self, path, text):
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def test_keys_of_a_file_change_while_it_runs(self):
        path = self.write("keys", "# ours\n\n" + self.line("a", "first", queues=[self.queue], tenant="t") + self.line("b", "second", queues=["x"]))
        self.start_daemon(self.server)
        self.start_gateway(None, "--keys", path)
        self.wait_status(200, "first")
        self.assertEqual((self.call("third").status, self.call("second").status), (401, 401))
        self.replace(path, self.line("c", "third"))
        self.wait_status(200, "third")
        self.assertEqual(self.call("first").status, 401)
        self.replace(path, self.line("c", "third") + "{}\n")
        self.wait_until(lambda: "line 2" in self.gateway.read_log(), "the bad line to be logged")
        self.assertEqual(self.call("third").status, 200)

    def test_bad_files(self):
        good = {"name": "a", "sha256": "0" * 64}
        for bad in ("x", "{}", "[]", json.dumps({**good, "sha256": "0" * 63}), json.dumps({**good, "tenant": "a b"}),
                    json.dumps({**good, "request_per_minute": 5}), json.dumps({**good, "max_texts": 0}),
                    json.dumps({**good, "queues": []}), json.dumps({**good, "queues": "one"}), json.dumps(good)[:-1] + ', "name": "b"}'):
            with self.subTest(bad):
                path = self.write("bad", json.dumps(good) + "\n" + bad + "\n")
                done = self.run_sluice("gateway", "--listen", "127.0.0.1:1", "--keys", path, "--redis", str(self.server.address("producer")))
                self.assertEqual(done.returncode, 65, done.stderr)
                self.assertIn(b"bad, line 2: ", done.stderr)

    def test_only_with_keys_others_may_connect(self):
        self.start_daemon(self.server)
        port = free_port()
        argv = ["gateway", "--redis", str(self.server.address("producer")), "--queue", self.queue, "--listen", f"0.0.0.0:{port}"]
        done = self.run_sluice(*argv)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn(b"--keys says who may ask", done.stderr)
        self.gateway = self.make_gateway(None, "--keys", self.write("keys", self.line("a", "first")))
        self.gateway.argv[self.gateway.argv.index("--listen") + 1] = f"0.0.0.0:{self.gateway.port}"
        self.gateway.start().wait_listening()
        self.wait_status(200, "first")
        self.assertEqual(self.call(None).status, 401)

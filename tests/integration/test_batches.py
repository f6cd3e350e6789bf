"""The Files and Batches API: what clients see, and what a batch comes to whatever happens to it."""
# ctest: threads
# ctest-cost: 30

import fcntl
import gzip
import json
import os
import re
import signal
import time

from batch_case import request
from batches_case import SHIM, BatchesCase
from case import SANITIZED
from corpus import texts


def lines(count, prefix="n"):
    return "\n".join(request(f"{prefix}{i}", f"{text} {i}") for i, text in zip(range(count), texts(20) * count)).encode()


class Api(BatchesCase):
    def setUp(self):
        super().setUp()
        self.start_daemon(self.server)
        self.start_with_data()

    def test_a_batch(self):
        """Its outputs are those of `sluice batch` with the same file."""
        content = self.content(self.write_requests(300, seed=3))
        file = self.upload(content, "my requests.jsonl").json
        self.assertEqual(list(file), ["id", "object", "bytes", "created_at", "filename", "purpose", "status"])
        self.assertEqual((file["object"], file["bytes"], file["filename"], file["purpose"]), ("file", len(content), "my requests.jsonl", "batch"))
        self.assertEqual(self.ask("GET", f"/v1/files/{file['id']}").json, file)
        self.assertEqual(self.ask("GET", f"/v1/files/{file['id']}/content").body, content)
        made = self.create(file["id"], metadata={"job": "nightly"}).json
        self.assertEqual((made["object"], made["endpoint"], made["input_file_id"], made["completion_window"], made["status"]),
                         ("batch", "/v1/embeddings", file["id"], "24h", "validating"))
        self.assertEqual(made["expires_at"], made["created_at"] + 24 * 3600)
        batch = self.end(made["id"])
        self.assertEqual(batch["metadata"], {"job": "nightly"})
        self.assertIsNone(batch["errors"])
        wanted = self.wanted(content)
        self.assertEqual(self.outputs(batch), wanted)
        counts = [part.count(b"\n") for part in wanted]
        self.assertEqual(batch["request_counts"], {"total": 300, "completed": counts[0], "failed": counts[1]})
        self.assertGreater(counts[1], 0)
        times = [batch[name + "_at"] for name in ("created", "in_progress", "finalizing", "completed")]
        self.assertEqual(times, sorted(times))
        self.wait_nothing_left()
        wanted = {"es_running": "0", "es_waiting": "0", "_lines_completed_total": str(counts[0]), "_lines_failed_total": str(counts[1])}
        self.wait_until(lambda: self.batch_metrics() == wanted, lambda: str(self.batch_metrics()))
        self.wait_empty(self.sender)

    def batch_metrics(self):
        return dict(re.findall(r"(?m)^sluice_gateway_batch(\w+) (\d+)$", self.ask("GET", "/metrics").body.decode()))

    def test_lists(self):
        ids = [self.upload(lines(1), f"{i}.jsonl").json["id"] for i in range(5)]
        found = self.ask("GET", "/v1/files").json
        self.assertEqual(([file["id"] for file in found["data"]], found["has_more"]), (ids[::-1], False))
        page = self.ask("GET", "/v1/files?order=asc&limit=2").json
        self.assertEqual(([file["id"] for file in page["data"]], page["has_more"], page["last_id"]), (ids[:2], True, ids[1]))
        page = self.ask("GET", f"/v1/files?after={ids[1]}&order=asc").json
        self.assertEqual([file["id"] for file in page["data"]], ids[2:])
        self.assertEqual(self.ask("GET", "/v1/files?purpose=batch_output").json["data"], [])
        batches = [self.create(file).json["id"] for file in ids]
        for batch in batches:
            self.end(batch)
        page = self.ask("GET", "/v1/batches?limit=3").json
        self.assertEqual(([batch["id"] for batch in page["data"]], page["has_more"]), (batches[:1:-1], True))
        page = self.ask("GET", f"/v1/batches?after={page['last_id']}").json
        self.assertEqual(([batch["id"] for batch in page["data"]], page["has_more"]), (batches[1::-1], False))
        self.assertEqual(len(self.ask("GET", "/v1/files?purpose=batch_output").json["data"]), 5)
        for limit in ("0", "x", "101"):
            self.assertEqual(self.ask("GET", "/v1/batches?limit=" + limit).json["error"]["param"], "limit")

    def test_a_deleted_input_is_not_missed(self):
        content = lines(30)
        file = self.upload(content).json["id"]
        batch = self.create(file).json["id"]
        deleted = self.ask("DELETE", f"/v1/files/{file}")
        self.assertEqual(deleted.json, {"id": file, "object": "file", "deleted": True})
        for answer in (self.ask("GET", f"/v1/files/{file}"), self.ask("GET", f"/v1/files/{file}/content"), self.ask("DELETE", f"/v1/files/{file}")):
            self.assertEqual((answer.status, answer.json["error"]["code"]), (404, "not_found"))
        refused = self.create(file)
        self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "input_file_id"))
        self.assertEqual(self.outputs(self.end(batch)), self.wanted(content))

    def test_content_that_cannot_be_read_is_not_an_empty_file(self):
        file = self.upload(lines(3)).json["id"]
        os.rename(self.path("data", "files", file), self.path("aside"))
        self.assertEqual(self.ask("GET", f"/v1/files/{file}/content").status, 404)
        os.symlink(file, self.path("data", "files", file))
        self.assertEqual(self.ask("GET", f"/v1/files/{file}/content").status, 503)

    def test_files_that_are_no_batch(self):
        one = request("a", "hello")
        for content, code, line in ((b"", "empty_file", None), (b"\n \n", "empty_file", None), ((one + "\n" + one).encode(), "duplicate_custom_id", 2),
                                    ("\n".join(request(f"n{i}", "a") for i in range(50001)).encode(), "too_many_requests", None)):
            batch = self.end(self.begin(content), "failed")
            self.assertEqual(batch["errors"]["object"], "list")
            error = batch["errors"]["data"][0]
            self.assertEqual((list(sorted(error)), error["code"], error["line"]), (["code", "line", "message", "param"], code, line))
            self.assertEqual((batch["output_file_id"], batch["error_file_id"], batch["in_progress_at"]), (None, None, None))
        bomb = gzip.compress(b"x" * (16 << 20)) * 101
        for content, words in ((bomb, "when it is unpacked"), (gzip.compress(one.encode())[:-9], "ends early")):
            batch = self.end(self.begin(content), "failed")
            self.assertEqual(batch["errors"]["data"][0]["code"], "invalid_file")
            self.assertIn(words, batch["errors"]["data"][0]["message"])
        self.wait_nothing_left()
        batch = self.end(self.begin(b"{broken\n" + b"\xff\xfe\n" + one.encode()))
        self.assertEqual(batch["request_counts"], {"total": 3, "completed": 1, "failed": 2})

    def test_calls_that_are_refused(self):
        file = self.upload(lines(1)).json["id"]
        for param, more in (("endpoint", {"endpoint": "/v1/chat/completions"}), ("completion_window", {"completion_window": "soon"}),
                            ("completion_window", {"completion_window": "31d"}), ("metadata", {"metadata": [1]}),
                            *(("output_expires_after", {"output_expires_after": value}) for value in (
                                {"anchor": "created_at"}, {"anchor": "created_at", "seconds": 3599}, {"anchor": "created_at", "seconds": 2592001},
                                {"anchor": "last_used_at", "seconds": 3600}, {"seconds": 3600}, 3600)),
                            ("input_file_id", {"input_file_id": "../x"}), ("input_file_id", {"input_file_id": "file-gone"})):
            answer = self.create(file, **more)
            self.assertEqual((answer.status, answer.json["error"]["param"]), (400, param), answer.body)
        for body in (b"", b"[]", b"{", b"7"):
            self.assertEqual(self.ask("POST", "/v1/batches", body).status, 400)
        self.assertEqual(self.ask("POST", "/v1/batches", b"{}", {"Content-Type": "text/plain"}).status, 400)
        for path in ("/v1/files/../../secret", "/v1/files/..", "/v1/files/file-..%2f..%2fx/content", "/v1/files/file-gone/other", "/v1/files/x",
                     "/v1/batches/batch_../x", "/v1/batches/batch_gone", "/v1/batches/" + "batch_" + 100 * "a", "/v1/files/" + 200 * "/"):
            self.assertEqual(self.ask("GET", path).status, 404, path)
        self.assertEqual(self.ask("DELETE", "/v1/batches/batch_1").status, 405)
        for method, path in (("GET", "/v1/files"), ("POST", "/v1/files"), ("POST", "/v1/batches/batch_1/cancel")):
            self.assertEqual(self.ask(method, path, headers={"Origin": "http://evil.example"}).status, 403)
        self.assertEqual(os.listdir(self.path("data", "batches")), [])

    def test_hostile_uploads(self):
        """Each is refused, and nothing is left of it."""
        head = b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        purpose = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        file = b"--b\r\n" + head + b"content\r\n"
        good = {"Content-Type": "multipart/form-data; boundary=b"}
        for body, headers in ((b"", good), (b"junk" + purpose + file + b"--b--\r\n", good), (purpose + file + b"--b--\r\nmore", good),
                              (purpose + file, good), (purpose + b"--b\r\n" + head + b"content", good), (purpose + b"--b--\r\n", good),
                              (file + b"--b--\r\n", good), (purpose + file + file + b"--b--\r\n", good), (purpose * 2 + file + b"--b--\r\n", good),
                              (purpose.replace(b"batch", b"") * 100000 + purpose + file + b"--b--\r\n", good),
                              (purpose.replace(b"batch", b"assistants") + file + b"--b--\r\n", good), (purpose + b"--b\r\n\r\ncontent\r\n--b--\r\n", good),
                              (purpose + b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\nx\r\n--b--\r\n", good),
                              (purpose + b"--b\r\n" + b"X: " + b"y" * 5000 + b"\r\n" + head + b"x\r\n--b--\r\n", good),
                              (purpose + file.replace(b'"a"', b'"' + b"a" * 400 + b'"') + b"--b--\r\n", good),
                              (purpose + file.replace(b"name=", b"other=") + b"--b--\r\n", good),
                              (purpose + file.replace(b'name="file"', b'name="extra"') + b"--b--\r\n", good),
                              (purpose + file + b"--b--\r\n", {"Content-Type": "application/json"}),
                              (purpose + file + b"--b--\r\n", {"Content-Type": "multipart/form-data"}),
                              (purpose + file + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=" + 71 * "b"})):
            answer = self.ask("POST", "/v1/files", body, headers)
            self.assertEqual(answer.status, 400, (body, answer.body))
            self.assertIn("message", answer.json["error"])
        self.assertEqual(os.listdir(self.path("data", "files")), [])
        for content in (b"content", b"", b"\r\n", b"-\r\n--a\r\n-b\r\n--", b"\r\n\r\n" + b"\0\xff" * 700000 + b"\r\n--"):
            for body in (purpose + file.replace(b"content", content) + b"--b--", file.replace(b"content", content) + purpose + b"--b--\r\n"):
                answer = self.ask("POST", "/v1/files", body, {"Content-Type": 'multipart/form-data; boundary="b"'})
                self.assertEqual(answer.status, 200, (body[:300], answer.body))
                self.assertEqual(self.ask("GET", f"/v1/files/{answer.json['id']}/content").body, content)
        body = purpose + file.replace(b'"a"', b'"../../\xc3\xa4 \\"q\\".jsonl"') + b"--b--\r\n"
        answer = self.ask("POST", "/v1/files", body, good)
        self.assertEqual(answer.json["filename"], '../../\u00e4 "q".jsonl')


    def test_files_expire(self):
        content = lines(3)
        for anchor, seconds in (("created_at", 60), ("created_at", "soon"), ("created_at", ""), ("last_used_at", 3600)):
            answer = self.upload(content, expiry=(anchor, seconds))
            self.assertEqual((answer.status, answer.json["error"]["param"]), (400, "expires_after"), answer.body)
        file = self.upload(content, expiry=("created_at", 2592000)).json
        self.assertEqual(file["expires_at"], file["created_at"] + 2592000)
        made = self.create(file["id"], output_expires_after={"anchor": "created_at", "seconds": 3600}).json
        self.assertEqual(made["output_expires_after"], {"anchor": "created_at", "seconds": 3600})
        batch = self.end(made["id"])
        output = self.ask("GET", f"/v1/files/{batch['output_file_id']}").json
        self.assertEqual(output["expires_at"], output["created_at"] + 3600)
        kept = self.upload(content).json["id"]
        for one in (file["id"], output["id"]):
            path = self.path("data", "files", one + ".json")
            self.write(path, json.dumps({**json.loads(self.content(path)), "expires_at": int(time.time())}).encode())
            for answer in (self.ask("GET", f"/v1/files/{one}"), self.ask("GET", f"/v1/files/{one}/content")):
                self.assertEqual(answer.status, 404, answer.body)
        self.assertEqual([one["id"] for one in self.ask("GET", "/v1/files").json["data"]], [kept])
        self.assertEqual(self.create(file["id"]).json["error"]["param"], "input_file_id")
        self.restart_gateway()
        self.wait_until(lambda: sorted(os.listdir(self.path("data", "files"))) == [kept, kept + ".json"], lambda: str(os.listdir(self.path("data", "files"))))

    def test_leftovers_go(self):
        """A sweep removes the rest of an upload or a batch that a kill left, unless it may still become one."""
        content = lines(3)
        file = self.upload(content).json["id"]
        self.gateway.kill()
        files, batch = self.path("data", "files"), self.path("data", "batches", "batch_9")
        for name in ("file-1", "file-2.part", "file-3.json.new", "file-4-output", "file-5-output", "file-6", "file-7.part"):
            self.write(os.path.join(files, name), b"x")
            if name not in ("file-6", "file-7.part"):
                os.utime(os.path.join(files, name), (0, 0))
        lock = os.open(self.path("data", "batches", "batch_5.lock"), os.O_CREAT | os.O_RDWR)  # another gateway's
        fcntl.flock(lock, fcntl.LOCK_EX)
        for ending in (".lock", ".json.new"):
            self.write(batch + ending, b"")
        os.link(os.path.join(files, file), batch + ".input")
        self.start_with_data()
        self.wait_until(lambda: self.left() == ["batch_5.lock"], lambda: str(self.left()))
        self.assertEqual(sorted(os.listdir(files)), sorted([file, file + ".json", "file-5-output", "file-6", "file-7.part"]))
        os.close(lock)
        self.wait_nothing_left()

    def test_an_upload_leaves_room(self):
        self.gateway.kill()
        content = b"x" * 1000000
        for free, status in ((999999, 503), (54687090, 503), (54687091, 200)):  # of 1 GiB, a twentieth of which is kept
            gateway = self.make_gateway(self.server, "--data", self.data, environment={
                "LD_PRELOAD": SHIM, "CALLS_SHIM_FREE": str(free), "ASAN_OPTIONS": "verify_asan_link_order=0"})
            gateway.start().wait_listening()
            answer = self.upload(content, gateway=gateway)
            self.assertEqual(answer.status, status, answer.body)
            gateway.kill()
        self.assertEqual(len(os.listdir(self.path("data", "files"))), 2)


class Ends(BatchesCase):
    def test_cancelled_before_a_worker_came(self):
        self.start_with_data()
        content = lines(40)
        batch = self.begin(content)
        self.wait_until(lambda: self.look(batch)["status"] == "in_progress", "the validation")
        answer = self.ask("POST", f"/v1/batches/{batch}/cancel")
        self.assertEqual((answer.status, answer.json["status"]), (200, "cancelling"))
        # The thread still waits for an answer to its question about the model.
        self.start_daemon(self.server)
        ended = self.end(batch, "cancelled")
        self.assertIsNotNone(ended["cancelling_at"])
        self.assertEqual(set(self.check_lines(ended, content)), {"batch_cancelled"})
        self.assertEqual(self.ask("POST", f"/v1/batches/{batch}/cancel").status, 400)
        self.wait_nothing_left()

    def test_cancelled_before_its_file_was_found_to_be_broken(self):
        """It fails; nothing could give each of its requests a line."""
        self.start_with_data()
        file = self.upload(gzip.compress(lines(40))[:-9]).json["id"]
        batch = self.create(file).json["id"]
        made = self.end(batch, "failed")
        self.gateway.kill()
        path = self.path("data", "batches", batch)
        for ending in (".lock", ".cancel"):
            self.write(path + ending, b"")
        os.link(self.path("data", "files", file), path + ".input")
        self.write(path + ".json", json.dumps({**made, "status": "validating", "failed_at": None, "errors": None}).encode())
        self.start_with_data()
        self.assertIn("ends early", self.end(batch, "failed")["errors"]["data"][0]["message"])
        self.wait_nothing_left()

    def test_cancelled_while_its_answers_cannot_be_read(self):
        """It waits: taken for none, they would get an error, too."""
        self.start_with_data()
        content = lines(5)
        file = self.upload(content).json["id"]
        batch = self.create(file).json["id"]
        self.ask("POST", f"/v1/batches/{batch}/cancel")
        made = self.end(batch, "cancelled")
        self.assertEqual(self.ask("DELETE", "/v1/files/" + made["error_file_id"]).status, 200)
        self.gateway.kill()
        path = self.path("data", "batches", batch)
        self.write(path + ".lock", b"")
        os.link(self.path("data", "files", file), path + ".input")
        os.symlink(batch + ".jsonl", path + ".jsonl")
        self.write(path + ".json", json.dumps({**made, "status": "finalizing", "error_file_id": None}).encode())
        self.start_with_data()
        self.wait_until(lambda: self.look(batch)["errors"], lambda: str(self.look(batch)))
        self.assertEqual(self.look(batch)["status"], "finalizing")
        os.remove(path + ".jsonl")
        self.write(path + ".jsonl", b"".join(line + b"\n" for line in content.splitlines()[:2]))
        ended = self.end(batch, "cancelled")
        self.assertEqual(self.check_lines(ended, content), 3 * ["batch_cancelled"])

    def test_cancelled_while_it_runs(self):
        """The answers so far are there, and every other request has an error."""
        worker = self.start_daemon(self.server)
        self.start_with_data()
        content = lines(9000 if SANITIZED else 20000)
        batch = self.begin(content)
        self.wait_until(lambda: self.look(batch)["request_counts"]["completed"] > 0, "answers", timeout=300)
        self.ask("POST", f"/v1/batches/{batch}/cancel")
        ended = self.end(batch, "cancelled")
        codes = self.check_lines(ended, content)
        self.assertEqual(set(codes), {"batch_cancelled"})
        self.assertGreater(ended["request_counts"]["completed"], 0)
        wanted = self.wanted(content)[0]
        self.assertTrue(wanted.startswith(self.outputs(ended)[0]))
        self.assertEqual(worker.stop(), 0)

    def test_expired(self):
        worker = self.start_daemon(self.server)
        self.start_with_data()
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        worker.process.send_signal(signal.SIGSTOP)
        content = lines(30)
        batch = self.begin(content, completion_window="2s")
        self.wait_until(lambda: time.time() >= self.look(batch)["expires_at"], "the end of the window")
        worker.process.send_signal(signal.SIGCONT)
        ended = self.end(batch, "expired")
        self.assertEqual(set(self.check_lines(ended, content)), {"batch_expired"})

    def test_a_batch_of_another_model_fails(self):
        """The workers of the queue have another model after a restart; what was answered is there."""
        worker = self.start_daemon(self.server)
        self.start_with_data()
        content = lines(9000 if SANITIZED else 40000)
        batch = self.begin(content)
        output = self.path("data", "batches", batch + ".jsonl")
        self.wait_until(lambda: os.path.exists(output) and os.path.getsize(output) > 5 << 20, "two windows", timeout=300)  # the first is durable then
        self.gateway.kill()
        self.assertEqual(worker.stop(), 0)
        self.server.client().flushall()
        self.start_daemon(self.server, model=self.make_model("other", hidden=32))
        self.start_with_data()
        ended = self.end(batch, "failed")
        self.assertIn("another model", ended["errors"]["data"][0]["message"])
        self.assertEqual(set(self.check_lines(ended, content)), {"batch_failed"})
        self.assertGreater(ended["request_counts"]["completed"], 0)

    def test_disk_full(self):
        """The batch says why it waits, and goes on where there is room."""
        self.start_daemon(self.server)
        content = lines(6000)
        self.start_with_data()
        file = self.upload(content).json["id"]
        self.restart_gateway("/bin/sh", "-c", 'trap "" XFSZ; ulimit -f 0; exec "$@"', "sh")
        self.assertEqual(self.create(file).status, 503)
        self.wait_nothing_left()
        self.restart_gateway("/bin/sh", "-c", 'trap "" XFSZ; ulimit -f 2000; exec "$@"', "sh")
        batch = self.create(file).json["id"]
        self.wait_until(lambda: self.look(batch)["errors"], lambda: str(self.look(batch)))
        found = self.look(batch)
        self.assertEqual((found["status"], found["errors"]["data"][0]["code"]), ("in_progress", "waiting"))
        self.assertIn("cannot write", found["errors"]["data"][0]["message"])
        upload = self.upload(b"x" * 2_000_000)
        self.assertGreaterEqual(upload.status, 500, upload.body)
        self.restart_gateway()
        found = self.end(batch)
        self.assertIsNone(found["errors"])
        self.assertEqual(self.outputs(found), self.wanted(content))

    def test_without_data_there_is_no_batch_api(self):
        self.start_gateway()
        for path in ("/v1/files", "/v1/batches"):
            self.assertEqual(self.ask("GET", path).status, 404)
        self.assertNotIn("/v1/batches", json.dumps(self.ask("GET", "/openapi.json").json))

    def test_serve_has_it_too(self):
        self.start_gateway()
        daemon = self.start_daemon(self.server, "--listen", f"127.0.0.1:{self.gateway.port + 1}", "--data", self.data)
        self.gateway.port += 1
        content = lines(10)
        self.assertEqual(self.outputs(self.end(self.begin(content))), self.wanted(content))
        self.assertEqual(daemon.stop(), 0)

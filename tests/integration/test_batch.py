"""`sluice batch`: each line of an OpenAI batch gets one line in one of two files, with the vectors that a queue gives."""
# ctest: bulk
# ctest-cost: 15

import base64
import gzip
import json
import os
import struct
import subprocess

import process
from batch_case import BatchCase, request
from bulk_case import DATAERR, FAILED, IOERR, NOINPUT, USAGE
from daemon import BINARY


class Answers(BatchCase):
    def test_vectors_are_those_of_a_queue(self):
        """In every form, and where equal texts are computed once, because vectors are cut and normalised for each line."""
        server = self.start_redis()
        self.start_daemon(server)
        producer = self.producer(server)
        long = "word " * 2000
        wanted = {}
        lines = []
        for number, (texts, body) in enumerate([("hello", {}), ("hello", {"dimensions": 4}), (["hello"], {"dimensions": 1}),
                                                (["a b", "hello", "the \u00e4 \\ \""], {}), ([long, "hello"], {"dimensions": 7}),
                                                (["\U0001f600", "tab\tquote\""], {})]):
            for form in ("float", "base64"):
                lines.append(request(f"{number} {form}", texts, encoding_format=form, **body))
                for i, text in enumerate([texts] if isinstance(texts, str) else texts):
                    wanted[f"{number} {form}", i] = producer.submit(text, encoding="f32", **({"dims": body["dimensions"]} if body else {}))
        self.wait_finished(producer)
        source = self.write("in.jsonl", "\n".join(lines))
        said = self.batch(source)
        self.assertIn(f"out.jsonl: {len(lines)} requests, {len(lines)} completed, 0 failed; ", said)
        self.assertFalse(os.path.exists(self.path("out.errors.jsonl")))
        good, _ = self.answers()
        self.assertEqual([line["custom_id"] for line in good], [json.loads(line)["custom_id"] for line in lines])
        for line in good:
            body = line["response"]["body"]
            self.assertEqual((body["object"], body["model"], list(body)), ("list", "tiny", ["object", "data", "model", "usage"]))
            self.assertEqual([entry["index"] for entry in body["data"]], list(range(len(body["data"]))))
            tokens = 0
            for entry in body["data"]:
                reply = producer.reply(wanted.pop((line["custom_id"], entry["index"])))
                vector = entry["embedding"]
                found = base64.b64decode(vector) if isinstance(vector, str) else struct.pack(f"<{len(vector)}f", *vector)
                self.assertEqual(found, reply[b"embedding"])
                self.assertEqual(isinstance(vector, str), "base64" in line["custom_id"])
                tokens += json.loads(reply[b"info"])["tokens"]
            self.assertEqual(body["usage"], {"prompt_tokens": tokens, "total_tokens": tokens})
        self.assertEqual(wanted, {})
        queue = self.run_sluice("batch", "--redis", server.socket, "--queue", self.queue, source, "--output", self.path("queue.jsonl"))
        self.assertEqual(queue.returncode, 0, queue.stderr)
        self.assertIn(b"at least 1 text is longer than the queue's model takes", queue.stderr)
        self.assertEqual(self.content(self.path("queue.jsonl")), self.content(self.path("out.jsonl")))

    def test_a_model_may_have_the_name_of_its_queue(self):
        server = self.start_redis()
        self.start_daemon(server)
        lines = [request("a", "hello"), request("b", "hello", model="org/" + self.queue), request("c", "hello", model="other"),
                 json.dumps({"custom_id": "d", "method": "POST", "url": "/v1/embeddings", "body": {"input": "hello"}})]
        done = self.run_sluice("batch", "--redis", server.socket, "--queue", self.queue, self.write("in.jsonl", "\n".join(lines)),
                               "--output", self.path("out.jsonl"))
        self.assertEqual(done.returncode, FAILED, done.stderr)
        good, failed = self.answers()
        self.assertEqual(["".join(line["custom_id"] for line in lines) for lines in (good, failed)], ["abd", "c"])

    def test_escapes_are_those_of_any_json(self):
        """PHP writes a slash as \\/."""
        line = request("a", "hello")
        escaped = line.replace("/", "\\/").replace("POST", "\\u0050OST")
        self.assertNotEqual(line, escaped)
        self.batch(self.write("in.jsonl", escaped))
        self.batch(self.write("plain.jsonl", line), "plain-out.jsonl")
        self.assertEqual(self.answers()[0][0]["response"]["body"], self.answers("plain-out.jsonl")[0][0]["response"]["body"])

    def test_lines_that_fail(self):
        """Each is in the file of errors, in its place, and all others are answered."""
        line = json.loads(request("x", "hello"))
        cases = {  # what is changed in a line, and its error
            b"{broken": (None, "invalid_json_line", "line 1: not JSON, or nested too deep"),
            b"[1, 2]": (None, "missing_required_parameter", "line 2: custom_id is missing"),
            b"\xff\xfe": (None, "invalid_json_line", "line 3: not UTF-8 at byte 1"),
            b'{"custom_id": "\xc3"}': (None, "invalid_json_line", "line 4: not UTF-8 at byte 16"),
            b'{"custom_id": "a", "custom_id": "b"}': ("a", "invalid_json_line", "line 5: it has custom_id twice"),
            b'{"custom_id": "' + b"long" * 300000 + b'"}': (None, "line_too_long", "line 6: longer than 8 times --max-text-bytes"),
            json.dumps({**line, "custom_id": 7}).encode(): (None, "invalid_custom_id", "line 7: custom_id is no text, or is empty"),
            json.dumps({**line, "custom_id": ""}).encode(): (None, "invalid_custom_id", "line 8: custom_id is no text, or is empty"),
            b'{"custom_id": "\\ud800", "method": "POST", "url": "/v1/embeddings", "body": {"input": "a"}}':
                (None, "invalid_custom_id", "line 9: custom_id is no text, or is empty"),
            json.dumps({**line, "custom_id": "j", "method": "GET"}).encode(): ("j", "invalid_method", "line 10: method is not POST"),
            json.dumps({**line, "custom_id": "k", "url": "/v1/chat/completions"}).encode():
                ("k", "invalid_url", "line 11: url is not /v1/embeddings, the only one of a batch here"),
            b'{"custom_id": "l", "method": "POST", "url": "/v1/embeddings"}': ("l", "missing_required_parameter", "line 12: body is missing"),
        }
        bodies = {  # changes of the body, and its fault
            "m": ({"input": ""}, 400, "input", "must not be empty"),
            "n": ({"input": ["a", ""]}, 400, "input", "input[1]"),
            "o": ({"input": []}, 400, "input", ""),
            "p": ({"input": [1, 2, 3]}, 400, "input", "check_embedding_ctx_length"),
            "q": ({"dimensions": 100000}, 400, "dimensions", "dimensions: 100000, but the model has 64"),
            "r": ({"model": "gpt"}, 404, "model", 'the model "gpt" is not here, but "tiny"'),
            "s": ({"prompt_name": "query"}, 400, "prompt_name", "one prompt"),
            "S": ({"input_type": "query"}, 400, "input_type", "one prompt"),
            "w": ({"input_type": "query"}, 400, "input_type", "one prompt"),
            "t": ({"truncation": False}, 400, "truncation", "cuts texts"),
            "u": ({"input": "x" * 70000}, 413, "input", "input[0] has 70000 bytes, and 65536 are allowed"),
            "v": ({"encoding_format": "hex"}, 400, "encoding_format", ""),
        }
        lines = [*cases, *(request(name, change.pop("input", "hello"), **change).encode() for name, (change, *_) in bodies.items())]
        mixed = b"".join(bad + b"\n" + request(f"good {i}", f"text {i}").encode() + b"\r\n" for i, bad in enumerate(lines))
        source = self.write("in.jsonl", b"\n".join(lines) + b"\n")
        for number, (name, content) in enumerate((("bad", source), ("mixed", self.write("mixed.jsonl", mixed)))):
            said = self.batch(content, name + "-out.jsonl", "--max-text-bytes", 65536, code=FAILED)
            self.assertIn(f"{len(lines) * (1 + number)} requests, {len(lines) * number} completed, {len(lines)} failed", said)
            good, failed = self.answers(name + "-out.jsonl")
            self.assertEqual([line["custom_id"] for line in good], [f"good {i}" for i in range(len(lines) * number)])
            for line, (custom_id, code, message) in zip(failed, cases.values()):
                place = message.split()[1].rstrip(":")
                message = message.replace(f"line {place}", f"line {(int(place) - 1) * (1 + number) + 1}")
                self.assertEqual((line["custom_id"], line["error"]), (custom_id, {"code": code, "message": message}))
            self.assertEqual([line["custom_id"] for line in failed[len(cases):]], list(bodies))
            for line, (_, status, param, says) in zip(failed[len(cases):], bodies.values()):
                error = line["response"]["body"]["error"]
                self.assertEqual((line["response"]["status_code"], error["param"]), (status, param), error)
                self.assertIn(says, error["message"])

    def test_a_text_without_a_vector_fails_its_line(self):
        """Every other line with that text fails, too. The other texts of the line are computed in vain."""
        server = self.start_redis()
        self.start_daemon(server, "--no-truncate")
        lines = [request("a", ["hello", "the", "a"]), request("b", "the"), request("c", ["the", "word " * 3000, "hello"]),
                 request("d", "word " * 3000), request("e", "hello")]
        done = self.run_sluice("batch", "--redis", server.socket, "--queue", self.queue, self.write("in.jsonl", "\n".join(lines)),
                               "--output", self.path("out.jsonl"))
        self.assertEqual(done.returncode, FAILED, done.stderr)
        good, failed = self.answers()
        self.assertEqual([line["custom_id"] for line in good], ["a", "b", "e"])
        self.assertEqual([(line["custom_id"], line["response"]["status_code"]) for line in failed], [("c", 400), ("d", 400)])
        self.assertEqual([line["response"]["body"]["error"]["message"] for line in failed],
                         ["input[1]: the queue answered with an error", "input: the queue answered with an error"])

    def test_forms_of_the_file(self):
        """Line ends, a byte order mark, empty lines, gzip, and a missing line feed at the end change nothing."""
        lines = [request(f"n{i}", f"text {i}") for i in range(5)] + ["{broken"]
        self.batch(self.write("in.jsonl", "\n".join(lines) + "\n"), code=FAILED)
        self.batch(self.write("crlf.jsonl", "\ufeff" + "\r\n".join(lines)), "crlf-out.jsonl", code=FAILED)
        with open(self.path("in.gz"), "wb") as file:
            file.write(gzip.compress("\n".join(lines).encode()))
        self.batch(self.path("in.gz"), "gz-out.jsonl", code=FAILED)
        for name in ("crlf", "gz"):
            self.assertEqual(self.content(self.path(name + "-out.jsonl")), self.content(self.path("out.jsonl")))
            self.assertEqual(self.content(self.path(name + "-out.errors.jsonl")), self.content(self.path("out.errors.jsonl")))
        self.batch(self.write("spread.jsonl", "\n\n" + "\n \t\n".join(lines)), "spread-out.jsonl", code=FAILED)
        self.assertEqual([line["custom_id"] for line in self.answers("spread-out.jsonl")[0]], [f"n{i}" for i in range(5)])
        for content in ("", "\n", "\ufeff"):
            said = self.batch(self.write("empty.jsonl", content), "empty-out.jsonl", "--overwrite")
            self.assertIn("0 requests, 0 completed, 0 failed", said)
            self.assertEqual(self.content(self.path("empty-out.jsonl")), b"")

    def test_every_line_of_an_array_and_of_an_object_over_several_lines_is_one(self):
        for content, lines in (("[\n" + request("a", "hello") + "\n]\n", 3), ("{\n" + request("a", "hello") + "\n}\n", 3)):
            self.batch(self.write("in.jsonl", content), "out.jsonl", "--overwrite", code=FAILED)
            good, failed = self.answers()
            self.assertEqual(([line["custom_id"] for line in good], len(good) + len(failed)), (["a"], lines))


class Refused(BatchCase):
    def there(self):
        return {name: self.content(self.path(name)) for name in os.listdir(self.directory) if name != "models"}

    def refuse(self, says, source, *flags, code=DATAERR, output="out.jsonl"):
        self.make_model()
        before = self.there()
        self.assertIn(says, self.batch(source, output, *flags, code=code))
        self.assertEqual(self.there(), before)

    def test_the_same_custom_id_twice(self):
        lines = [request("a", "1"), request("b", "2"), "{broken", request("a", "3"), request("c", "4"),
                 request("b", "5").replace('"b"', '"\\u0062"'), request("a", "6")]
        source = self.write("in.jsonl", "\n".join(lines))
        self.refuse(f"{source}: 3 lines have the custom_id of an earlier line: lines ", source)
        said = self.batch(source, code=DATAERR)
        for pair in ("4 (as line 1)", "7 (as line 1)", "6 (as line 2)"):
            self.assertIn(pair, said)
        self.refuse(": 1 line has the custom_id of an earlier line: line 2 (as line 1)", self.write("one.jsonl", "\n".join(lines[:1] * 2)))
        many = self.write("many.jsonl", "\n".join(request("same", "text") for _ in range(40)))
        self.refuse(": 39 lines have the custom_id of an earlier line: lines ", many)

    def test_files(self):
        source = self.write("in.jsonl", request("a", "hello"))
        self.refuse("name the file of the responses: --output OUT.jsonl", source, output="out.npy")
        self.refuse("cannot open", self.path("absent.jsonl"), code=NOINPUT)
        self.refuse("is no file: a batch is read twice", "/dev/null")
        self.refuse("is an input, and a file that this job would write or delete", source, output="in.jsonl")
        errors = self.write("x.errors.jsonl", request("a", "hello"))
        self.refuse("is an input, and a file that this job would write or delete", errors, output="x.jsonl")
        self.refuse(f"{errors} exists already, and there is no job to resume; --overwrite deletes it", source, output="x.jsonl")
        self.refuse(f"{source} exists already", errors, output="in.jsonl")
        for arguments in ((), (source, source)):
            self.assertEqual(self.run_sluice("batch", *arguments, "--output", self.path("out.jsonl")).returncode, USAGE)


class Reruns(BatchCase):
    def setUp(self):
        super().setUp()
        self.lines = [request(f"n{i}", [f"text {i}", "hello"], dimensions=5) for i in range(30)]
        self.lines[7] = "{broken"
        self.source = self.write("in.jsonl", "\n".join(self.lines))

    def test_a_finished_batch(self):
        self.batch(self.source, code=FAILED)
        before = self.files(self.path("out"))
        self.assertIn("is finished already: 30 requests, 29 completed, 1 failed", self.batch(self.source, code=FAILED))
        self.assertEqual(self.files(self.path("out")), before)
        for line, change in ((3, request("n3", ["text 3", "hello"], dimensions=6)), (3, request("n3", ["text ", "3hello"], dimensions=5)),
                             (3, request("other", ["text 3", "hello"], dimensions=5)), (7, request("n7", "mended")), (9, "{broken")):
            changed = [*self.lines]
            changed[line] = change
            self.write("in.jsonl", "\n".join(changed))
            self.assertIn("the input has changed since this job began", self.batch(self.source, code=DATAERR))
            self.assertEqual(self.files(self.path("out")), before)
        more = [*self.lines, request("more", "text"), "{broken, too"]
        self.write("in.jsonl", "\n".join(more))
        self.assertIn("32 requests, 30 completed, 2 failed", self.batch(self.source, code=FAILED))
        grown = self.files(self.path("out"))
        self.batch(self.source, "out.jsonl", "--overwrite", code=FAILED)
        again = self.files(self.path("out"))
        for name in (".jsonl", ".errors.jsonl"):
            self.assertEqual(grown[name], again[name])

    def test_outputs_that_were_cut(self):
        self.batch(self.source, code=FAILED)
        for name in ("out.jsonl", "out.errors.jsonl"):
            content = self.content(self.path(name))
            self.write(name, content[:-20])
            self.assertIn(f"{self.path(name)} was cut or changed since its job was finished", self.batch(self.source, code=DATAERR))
            os.unlink(self.path(name))
            self.assertIn(self.path(name), self.batch(self.source, code=NOINPUT))
            self.write(name, content)
        self.batch(self.source, code=FAILED)

    def test_disk_full(self):
        """A file system without room ends the batch, and with room it goes on to the same bytes."""
        self.lines = [request(f"n{i}", [f"text {i} {k}" for k in range(4)]) for i in range(600)] + ["{broken"]
        self.source = self.write("in.jsonl", "\n".join(self.lines))
        self.batch(self.source, "straight.jsonl", code=FAILED)
        size = len(self.content(self.path("straight.jsonl")))
        output = self.path("out.jsonl")
        command = [BINARY, "batch", "--model", self.make_model(), "--precision", "f32", self.source, "--output", output, "--look-ahead", "256"]
        for blocks in (4, size // 4 // 512, size // 2 // 512):
            limited = subprocess.run(["/bin/sh", "-c", f'trap "" XFSZ; ulimit -f {blocks}; exec "$@"', "sh", *command],
                                     env=process.clean_environment(), capture_output=True, check=False)
            self.assertEqual(limited.returncode, IOERR, limited.stderr)
            self.assertIn(b"cannot write ", limited.stderr)
        self.batch(self.source, code=FAILED)
        for name in (".jsonl", ".errors.jsonl"):
            self.assertEqual(self.content(self.path("out" + name)), self.content(self.path("straight" + name)))

"""The commands, as a person or a script meets them: output, exit codes of sysexits.h, errors that say what to do."""

import json
import os
import re
import signal
import struct
import subprocess

import process
from case import SluiceCase
from corpus import AWKWARD, texts
from daemon import BINARY, SOURCE
from vectors import decode_f32, read_npy

USAGE, DATAERR, NOINPUT, UNAVAILABLE, TEMPFAIL, NOPERM, CONFIG = 64, 65, 66, 69, 75, 77, 78
COMMANDS = ("serve", "submit", "get", "embed", "similar", "tokenize", "config", "version")


class CommandLine(SluiceCase):
    def ok(self, *arguments, **options):
        result = self.run_sluice(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout.decode()

    def fails(self, codes, *arguments, says="", **options):
        result = self.run_sluice(*arguments, **options)
        codes = codes if isinstance(codes, tuple) else (codes,)
        text = result.stderr.decode("utf-8", "replace")
        self.assertIn(result.returncode, codes, f"{arguments}: {text}")
        self.assertIn(says, text)
        self.assertEqual(result.stdout, b"")
        self.assertGreater(len(text), 10)
        return text

    def test_version(self):
        with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
            version = re.search(r"project\(sluice VERSION ([0-9.]+)", file.read())[1]
        self.assertIn(f"sluice {version}", self.ok("version"))
        self.assertIn(f"sluice {version}", self.ok("--version"))

    def test_help(self):
        listing = self.ok("--help")
        for command in COMMANDS:
            self.assertIn(command, listing)
            text = self.ok(command, "--help")
            self.assertIn("sluice " + command, text)
        self.assertIn("--redis", self.ok("serve", "--help"))
        self.assertIn("--window-ms", self.ok("serve", "--help"))
        self.assertIn("--precision", self.ok("embed", "--help"))
        self.assertNotIn("--window-ms", self.ok("embed", "--help"))

    def test_help_shows_every_setting_of_serve(self):
        """Each key of config/sluice.json is a flag, but for the password itself and the list of queues."""
        with open(os.path.join(SOURCE, "config", "sluice.json"), encoding="utf-8") as file:
            keys = re.findall(r'^ {4}"([a-z0-9_]+)":', file.read(), re.M)
        self.assertGreater(len(keys), 20)
        text = self.ok("serve", "--help")
        for key in keys:
            if key not in ("redis_password", "queues"):
                self.assertIn("--" + key.replace("_", "-"), text)
        self.assertNotRegex(text, r"--redis-password\b(?!-file)")

    def test_usage_errors(self):
        self.fails(USAGE, says="sluice")
        self.fails(USAGE, "dance", says="dance")
        self.fails(USAGE, "serve", "--widow-ms", "3", says="--window-ms")
        self.fails(USAGE, "embed", "--nonsense", says="--nonsense")
        self.fails(USAGE, "serve", "--window-ms", says="--window-ms")
        self.fails(USAGE, "version", "too", "much", says="too")
        self.fails((USAGE, CONFIG, DATAERR), "serve", "--window-ms", "many", says="window")
        self.fails((USAGE, CONFIG, DATAERR), "serve", "--queue", "Upper Case", says="queue")
        self.fails((USAGE, CONFIG, DATAERR), "embed", "--precision", "f64", says="precision")
        self.fails(USAGE, "submit", "--id", "a\tb", "text", says="--id")
        self.fails(USAGE, "submit", "--id", "1700000000000-0", "text", says="--id")

    def test_help_says_how_to_turn_a_switch_off(self):
        self.assertIn("--no-truncate", self.ok("serve", "--help"))
        self.assertIn('truncate               false', self.ok("config", "--no-truncate"))

    def test_directory_that_is_no_model(self):
        text = self.fails(NOINPUT, "tokenize", "--model", self.directory, says="modules.json")
        self.assertIn("no model", text)
        text = self.fails(NOINPUT, "embed", "--model", self.path("absent"), says="absent")
        self.assertEqual(text.count("absent"), 1, text)
        self.fails(USAGE, "serve", "--max-batch-rows", "1025", says="from 1 to 1024")
        self.fails(USAGE, "serve", "--max-text-bytes", "15728641", says="from 1 to 15728640")

    def test_password_is_not_a_flag(self):
        self.fails(USAGE, "serve", "--redis-password", "secret", says="--redis-password")

    # embed

    def test_embed_npy(self):
        batch = AWKWARD + texts(300, seed=1)
        source = self.write("texts", "".join(text + "\n" for text in batch))
        self.ok("embed", "--model", self.make_model(), "--input", source, "--output", self.path("v.npy"), "--precision", "f32")
        rows = read_npy(self.path("v.npy"))
        self.assertEqual(len(rows), len(batch))
        for row in rows:
            vector = struct.unpack("<64f", row)
            self.assertAlmostEqual(sum(value * value for value in vector), 1.0, places=5)

    def test_embed_jsonl_is_the_npy(self):
        source = self.write("texts", "".join(text + "\n" for text in AWKWARD))
        for name in ("v.npy", "v.jsonl"):
            self.ok("embed", "--model", self.make_model(), "--precision", "f32", "--input", source, "--output", self.path(name))
        rows = read_npy(self.path("v.npy"))
        with open(self.path("v.jsonl"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(len(lines), len(rows))
        for line, row in zip(lines, rows):
            value = json.loads(line)
            vector = value if isinstance(value, list) else value["embedding"]
            self.assertEqual(struct.pack("<64f", *vector), row)

    def test_embed_stdin_to_stdout(self):
        out = self.ok("embed", "--model", self.make_model(), "--precision", "f32", "--input", "-", "--output", "-",
                      input=b"hello world\nlast line without an end")
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(lines), 2)
        first = lines[0] if isinstance(lines[0], list) else lines[0]["embedding"]
        self.assertEqual(struct.pack("<64f", *first), self.reference()("hello world"))

    def test_embed_order_and_batches(self):
        """The n-th line has the n-th vector, whatever the batches; a text's vector is the same in each of them."""
        batch = texts(200, seed=2)
        source = self.write("texts", "".join(text + "\n" for text in batch))
        outputs = []
        for flags in ([], ["--max-batch-rows", "1"], ["--max-batch-tokens", "100"], ["--threads", "3"]):
            target = self.path(f"v{len(outputs)}.npy")
            self.ok("embed", "--model", self.make_model(), "--precision", "f32", "--input", source, "--output", target, *flags)
            outputs.append(read_npy(target))
        for output in outputs[1:]:
            self.assertEqual(output, outputs[0])
        backwards = self.write("backwards", "".join(text + "\n" for text in reversed(batch)))
        self.ok("embed", "--model", self.make_model(), "--precision", "f32", "--input", backwards, "--output", self.path("b.npy"))
        self.assertEqual(read_npy(self.path("b.npy"))[::-1], outputs[0])

    def test_embed_no_lines(self):
        self.ok("embed", "--model", self.make_model(), "--input", self.write("empty", ""), "--output", self.path("e.npy"))
        self.assertEqual(read_npy(self.path("e.npy")), [])

    def test_embed_errors(self):
        source = self.write("texts", "hello\n")
        model = self.make_model()
        self.fails((NOINPUT, CONFIG, DATAERR), "embed", "--model", self.path("absent"), "--input", source, "--output",
                   self.path("v.npy"), says="absent")
        self.fails(NOINPUT, "embed", "--model", model, "--input", self.path("missing"), "--output", self.path("v.npy"),
                   says="missing")
        self.fails(DATAERR, "embed", "--model", model, "--input", self.write("bad", b"fine\n\xff\n"), "--output",
                   self.path("v.npy"), says="2")
        self.fails((USAGE, DATAERR), "embed", "--model", model, "--input", source, "--output", self.path("v.txt"), says="v.txt")
        result = self.run_sluice("embed", "--model", model, "--input", source, "--output", self.path("no", "v.npy"))
        self.assertNotEqual(result.returncode, 0)

    def test_embed_broken_model(self):
        """Each file of the model, broken: an error that names the file, never a crash."""
        source = self.write("texts", "hello\n")
        for name, content in (("config.json", b"{"), ("config.json", b'{"model_type": "gpt2"}'), ("model.safetensors", b"short"),
                              ("model.safetensors", struct.pack("<Q", 2**60) + b"{}"), ("tokenizer.json", b"[]"),
                              ("1_Pooling/config.json", b"null"), ("modules.json", b"[1]")):
            model = self.make_model(f"broken-{len(os.listdir(self.directory))}-{abs(hash(content))}")
            with open(os.path.join(model, name), "wb") as file:
                file.write(content)
            result = self.run_sluice("embed", "--model", model, "--input", source, "--output", self.path("v.npy"))
            self.assertGreaterEqual(result.returncode, 64, (name, content, result))
            self.assertIn(os.path.basename(name).encode(), result.stderr)

    def test_embed_into_a_closed_pipe(self):
        """`sluice embed … | head -1` ends without noise about the pipe and without a crash."""
        source = self.write("texts", "".join(text + "\n" for text in texts(3000, seed=3)))
        child = process.start([BINARY, "embed", "--model", self.make_model(), "--input", source, "--output", "-"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=process.clean_environment())
        self.assertTrue(child.stdout.readline())
        child.stdout.close()
        code = child.wait(60)
        self.assertIn(code, (0, -signal.SIGPIPE, 74), child.stderr.read())
        child.stderr.close()

    # tokenize

    def test_tokenize(self):
        out = self.ok("tokenize", "--model", self.make_model(), input="hello world\n\nunaffable wording 世界\n".encode())
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(lines), 3)
        with open(os.path.join(self.make_model(), "vocab.txt"), encoding="utf-8") as file:
            words = file.read().split("\n")
        names = [[words[id] for id in line] for line in lines]
        self.assertEqual(names[0], ["[CLS]", "hello", "world", "[SEP]"])
        self.assertEqual(names[1], ["[CLS]", "[SEP]"])
        self.assertEqual(names[2][-3:], ["世", "界", "[SEP]"])

    def test_tokenize_file_and_truncation(self):
        source = self.write("texts", "hello " * 500 + "\n")
        out = json.loads(self.ok("tokenize", "--model", self.make_model(), "--input", source))
        self.assertEqual(len(out), 64)
        out = json.loads(self.ok("tokenize", "--model", self.make_model(), "--input", source, "--max-tokens", "10"))
        self.assertEqual(len(out), 10)
        self.fails(NOINPUT, "tokenize", "--model", self.make_model(), "--input", self.path("missing"), says="missing")

    # config

    def test_config_sources(self):
        path = self.write("sluice.json", '{ // one\n "window_ms": 7, /* two */ "queue": "from-file", "lease_ms": 900 }')
        out = self.ok("config", "--config", path, "--lease-ms", "800", environment={"SLUICE_QUEUE": "from-env"})
        found = {}
        for line in out.splitlines():
            words = line.replace("=", " ").replace('"', "").split()
            if words:
                found[words[0]] = line
        for key, value, source in (("window_ms", "7", "file"), ("queue", "from-env", "environment"),
                                   ("lease_ms", "800", "flag"), ("backoff_ms", "1000", "default")):
            self.assertIn(value, found[key])
            self.assertIn(source, found[key])

    def test_config_errors(self):
        text = self.fails((CONFIG, DATAERR, USAGE), "config", "--config", self.write("a.json", '{"windw_ms": 7}'), says="windw_ms")
        self.assertIn("window_ms", text)
        self.fails((CONFIG, DATAERR), "config", "--config", self.write("b.json", '{"window_ms": 7'), says="b.json")
        self.fails((CONFIG, DATAERR), "config", "--config", self.write("c.json", '{"window_ms": "often"}'), says="window_ms")
        self.fails((CONFIG, NOINPUT), "config", "--config", self.path("d.json"), says="d.json")
        self.fails((CONFIG, DATAERR, USAGE), "config", environment={"SLUICE_WINDOW_MS": "-1"}, says="SLUICE_WINDOW_MS")

    def test_shipped_config_is_the_defaults(self):
        shipped = os.path.join(SOURCE, "config", "sluice.json")
        value = lambda text: [re.sub(r"\b(default|file)\b.*", "", line).strip() for line in text.splitlines()]
        self.assertEqual(value(self.ok("config", "--config", shipped)), value(self.ok("config")))

    # submit and get

    def serve(self):
        self.server = self.start_redis()
        self.start_daemon(self.server)
        self.where = ("--redis", self.server.socket, "--queue", self.queue)
        return self.server.client()

    def test_submit_and_get(self):
        client = self.serve()
        ids = self.ok("submit", *self.where, "hello world", "second text").split()
        self.assertEqual(len(ids), 2)
        for id, text in zip(ids, ("hello world", "second text")):
            key = f"sluice:{{{self.queue}}}:reply:{id}"
            self.wait_until(lambda key=key: client.hget(key, "status") == b"done", "the reply")
            out = self.ok("get", *self.where, id)
            self.assertIn("done", out)
            self.assertIn(id, out)
            embedding = client.hget(key, "embedding")
            self.assertEqual(decode_f32("json", embedding), self.reference()(text))

    def test_submit_wait(self):
        self.serve()
        out = self.ok("submit", *self.where, "--wait", "hello world", "another")
        replies = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([reply["status"] for reply in replies], ["done", "done"])
        for reply, text in zip(replies, ("hello world", "another")):
            self.assertEqual(struct.pack("<64f", *reply["embedding"]), self.reference()(text))

    def test_submit_from_stdin_and_file(self):
        client = self.serve()
        batch = texts(120, seed=4)
        lines = "".join(text + "\n" for text in batch).encode()
        first = self.ok("submit", *self.where, "--input", "-", input=lines).split()
        second = self.ok("submit", *self.where, "--input", self.write("texts", lines)).split()
        local = self.reference()
        local.learn(batch)
        for ids in (first, second):
            self.assertEqual(len(ids), len(batch))
            for id, text in zip(ids, batch):
                key = f"sluice:{{{self.queue}}}:reply:{id}"
                self.wait_until(lambda key=key: client.hget(key, "status") == b"done", "the reply")
                self.assertEqual(decode_f32("json", client.hget(key, "embedding")), local(text))

    def test_submit_options(self):
        client = self.serve()
        self.ok("submit", *self.where, "--wait", "--id", "mine", "--ttl", "50", "--encoding", "f32", "hello world")
        key = f"sluice:{{{self.queue}}}:reply:mine"
        self.assertEqual(client.hget(key, "embedding"), self.reference()("hello world"))
        self.assertLessEqual(client.ttl(key), 50)

    def test_submit_wait_is_not_told_of_an_earlier_request(self):
        """Who uses an id again finds the token and the reply of the first one."""
        self.server = self.start_redis()
        daemon = self.start_daemon(self.server)
        where = ("--redis", self.server.socket, "--queue", self.queue)
        client = self.server.client()
        client.xadd(f"sluice:{{{self.queue}}}:requests", {"id": "mine", "text": "the first", "notify": "1"})
        self.wait_until(lambda: client.exists(f"sluice:{{{self.queue}}}:wake:mine"), "the first token")
        out = self.ok("submit", *where, "--wait", "--id", "mine", "the second")
        self.assertEqual(struct.pack("<64f", *json.loads(out)["embedding"]), self.reference()("the second"))
        daemon.stop()
        self.fails(TEMPFAIL, "submit", *where, "--wait", "--timeout-s", "1", "--id", "mine", "third", says="no reply for mine")

    def test_submit_wait_tells_of_an_error(self):
        self.serve()
        result = self.run_sluice("submit", *self.where, "--wait", "")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(b"bad_request", result.stdout + result.stderr)

    def test_get_unknown(self):
        self.serve()
        result = self.run_sluice("get", *self.where, "never-sent")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(b"never-sent", result.stdout + result.stderr)

    def test_no_redis(self):
        nowhere = ("--redis", self.path("nobody"))
        for command in (["submit", *nowhere, "hello"], ["get", *nowhere, "1-1"]):
            self.fails(UNAVAILABLE, *command, says="nobody")

    def test_serve_errors(self):
        server = self.start_redis()
        where = ("--redis", server.socket)
        self.fails((NOINPUT, CONFIG, DATAERR), "serve", *where, "--model", self.path("absent"), says="absent")
        self.fails((USAGE, CONFIG, DATAERR), "serve", "--redis", "http://example", "--model", self.make_model(), says="redis://")
        self.fails((USAGE, CONFIG, DATAERR, UNAVAILABLE), "serve", *where, "--model", self.make_model(), "--backend", "tpu",
                   says="tpu")

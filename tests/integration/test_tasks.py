"""`classify` and `rerank` on the queue: the replies equal the output of the local commands, byte for byte."""

import base64
import json
import os
import re
import struct
import unicodedata

from case import RedisCase

TEXTS = ["hello world", "the green music library", "red", "some text, with signs!", "hello " * 60, "red", "a stream of work"]


class Tasks(RedisCase):
    def local(self, task, directory, texts, *arguments):
        """Returns the lines of the local command."""
        source = self.write("in.txt", "".join(text + "\n" for text in texts))
        result = self.run_sluice(task, "--model", directory, "--precision", "f32", "--input", source, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()

    def scores(self, directory, query, documents, *arguments):
        """Returns the scores as printed."""
        lines = self.local("rerank", directory, documents, "--query", query, *arguments)
        return [re.fullmatch(rb'{"index":\d+,"score":(.+)}', line)[1] for line in lines]

    def send(self, task, expected="done", **fields):
        return self.sender.submit_fields({"task": task, **fields}, expected=expected)

    def reply(self, request):
        self.wait_finished(self.sender, [request])
        reply = self.sender.reply(request)
        self.assertEqual(reply[b"status"], b"done" if request.expected == "done" else b"error", reply)
        self.assertEqual(reply.get(b"code", b"done").decode(), request.expected, reply)
        return reply

    def test_classify(self):
        directory = self.make_classifier(labels=["no", "maybe \"so\"", "ja, größer"])
        lines, raw = self.local("classify", directory, TEXTS), self.local("classify", directory, TEXTS, "--raw")
        self.start_daemon(self.server, "--default-encoding", "f32", model=directory)
        alone = [self.send("classify", text=text) for text in TEXTS]
        logits = [self.send("classify", text=text, raw="1") for text in TEXTS]
        many = self.send("classify", inputs=json.dumps(TEXTS * 20))
        for request, line in zip(alone + logits, lines + raw):
            self.assertEqual(self.reply(request)[b"labels"], line)
        reply = self.reply(many)
        self.assertEqual(reply[b"labels"], b"[" + b",".join(lines * 20) + b"]")
        self.assertEqual({key: reply.get(key) for key in ("count", "encoding", "truncated", "dim", b"embedding")},
                         {"count": 140, "encoding": "json", "truncated": True, "dim": None, b"embedding": None})
        self.assertEqual(set(self.reply(alone[0])), {b"status", b"labels", b"info", "entry", "model", "revision", "engine", "encoding",
                                                     "tokens", "queued_ms", "compute_ms", "done_at"})

    def test_tokenize(self):
        """Every queue does it; ids are those of the vocabulary, places are bytes of the text, and no batch runs."""
        for queue, directory in (("embeds", self.make_model()), ("several", self.make_classifier(labels=["a", "b"]))):
            self.sender = self.producer(self.server, queue)
            daemon = self.start_daemon(self.server, "--default-encoding", "f32", model=directory, queue=queue)
            with open(os.path.join(directory, "tokenizer.json"), encoding="utf-8") as file:
                vocabulary = json.load(file)["model"]["vocab"]
            texts = [*TEXTS, "Ünïcode 漢字 \u0001 \"quoted\"", "hello " * 3000]
            alone = [self.reply(self.send("tokenize", text=text)) for text in texts]
            bare = self.reply(self.send("tokenize", inputs=json.dumps(texts), special_tokens="0"))
            for text, reply, without in zip(texts, alone, json.loads(bare[b"tokens"])):
                tokens = json.loads(reply[b"tokens"])
                self.assertEqual((len(tokens), reply["encoding"]), (reply["tokens"], "json"))
                self.assertEqual(tokens[1:-1], without)
                for token, name in ((tokens[0], "[CLS]"), (tokens[-1], "[SEP]")):
                    self.assertEqual(token, {"id": vocabulary[name], "text": name, "special": True, "start": None, "stop": None})
                for token in without:
                    self.assertEqual(token["text"].encode(), text.encode()[token["start"]:token["stop"]])
                    name = "".join(c for c in unicodedata.normalize("NFD", token["text"].lower()) if not unicodedata.combining(c))
                    self.assertIn(token["id"], [vocabulary.get(name), vocabulary.get("##" + name), vocabulary["[UNK]"]])
            self.assertEqual((bare["count"], bare["row_tokens"]), (len(texts), [reply["tokens"] - 2 for reply in alone]))
            self.assertGreater(alone[-1]["tokens"], 3000)
            self.assertEqual(self.reply(self.send("tokenize", "bad_request", text="x", truncate="1"))[b"message"],
                             b"truncate: not with task tokenize")
            self.wait_empty(self.sender)
            daemon.stop()

    def check_rerank(self, name, **how):
        directory, queue = self.make_classifier(name, **how), name
        sender = self.sender = self.producer(self.server, queue)
        self.start_daemon(self.server, model=directory, queue=queue)
        for query in ("red", "hello world " * 9, "a query " * 40):
            documents = TEXTS + [f"document {number}" + " blue" * number for number in range(40)]
            scores, logits = (self.scores(directory, query, documents, *more) for more in ((), ("--raw",)))
            fields = {"query": query, "inputs": json.dumps(documents)}
            asked = [self.send("rerank", **fields), self.send("rerank", raw="1", **fields)]
            for request, expected in zip(asked, (scores, logits)):
                self.assertEqual(self.reply(request)[b"scores"], b"[" + b",".join(expected) + b"]")
            packed = struct.pack(f"<{len(scores)}f", *map(float, scores))
            self.assertEqual(self.reply(self.send("rerank", encoding="f32", **fields))[b"scores"], packed)
            self.assertEqual(base64.b64decode(self.reply(self.send("rerank", encoding="base64", **fields))[b"scores"]), packed)
            best = sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i))
            for most in (1, 5, 1000):
                reply = self.reply(self.send("rerank", top_n=str(most), **fields))
                self.assertEqual(reply[b"top"], b"[" + b",".join(b'{"index":%d,"score":%s}' % (i, scores[i]) for i in best[:most]) + b"]")
                self.assertEqual((reply["count"], reply["encoding"], b"scores" in reply), (47, "json", False))
        self.assertEqual(sender.unfinished(), 0)

    def test_rerank(self):
        self.check_rerank("bert")

    def test_rerank_with_two_separators(self):
        self.check_rerank("roberta", family="roberta", config={"sbert_ce_default_activation_function":
                                                               "torch.nn.modules.linear.Identity"})

    def test_a_pair_that_is_too_long(self):
        self.start_daemon(self.server, model=self.make_classifier())
        request = self.send("rerank", "too_long", query="red", inputs=json.dumps(["a", "hello " * 60]), truncate="0")
        self.assertEqual((self.reply(request)["index"], self.reply(request)["retryable"]), (1, False))

    def test_wrong_tasks(self):
        """Each of three queues refuses the tasks that it does not do."""
        for queue, model, does, wrong in (
                ("embeds", self.make_model(), "embed", ("rerank", "classify", "summarise")),
                ("one", self.make_classifier("one"), "rerank and classify", ("embed", "")),
                ("several", self.make_classifier("several", labels=["a", "b"]), "classify", ("embed", "rerank"))):
            self.sender = self.producer(self.server, queue)
            daemon = self.start_daemon(self.server, model=model, queue=queue)
            refused = [self.send(task, "unknown_task", text="x") for task in wrong]
            if queue != "embeds":
                refused.append(self.sender.submit_fields({"text": "the default"}, expected="unknown_task"))
            for request in refused:
                self.assertEqual(self.reply(request)[b"message"].decode(), f"task: this queue does {does}")
            if queue != "embeds":
                self.reply(self.send("classify", text="x"))
            daemon.stop()

    def test_failures(self):
        """A retry gives the same labels, a request that cannot be computed becomes a dead letter, and one row's fault
        affects only its request."""
        directory = self.make_classifier(labels=["a", "b"])
        [line] = self.local("classify", directory, ["the queue"])
        self.make_faulty(self.server, model=directory, faults=["flaky:{queue}:1", "nan:{kernel}"],
                         environment={"FAULTY_ENGINE_DIM": "2"}).start().wait_ready(self.server.client())
        flaky = self.reply(self.send("classify", text="the queue"))
        self.assertEqual((flaky[b"labels"], flaky["attempts"]), (line, 2))
        bad = self.reply(self.send("classify", "non_finite", inputs='["a", "kernel"]', max_attempts="1"))
        self.assertEqual((bad["index"], bad["retryable"]), (1, True))
        letter = self.server.client().xrange(self.sender.key("dead"))[0][1]
        self.assertEqual((letter[b"task"], letter[b"inputs"]), (b"classify", b'["a", "kernel"]'))

    def test_a_worker_is_killed(self):
        """A worker dies in the middle of its work: another one finishes all of it, once and with the same scores."""
        directory, client = self.make_classifier(), self.server.client()
        victim = self.start_slow(self.server, model=directory)
        documents = TEXTS[:4]
        requests = [self.send("rerank", query=f"query {number % 7}", inputs=json.dumps(documents)) for number in range(200)]
        self.catch(victim, client)
        victim.kill()
        self.start_daemon(self.server, model=directory)
        expected = [b"[" + b",".join(self.scores(directory, f"query {number}", documents)) + b"]" for number in range(7)]
        for number, request in enumerate(requests):
            self.assertEqual(self.reply(request)[b"scores"], expected[number % 7])
        self.wait_empty(self.sender)
        self.assertEqual(client.exists(self.sender.key("dead")), 0)

    def test_a_worker_is_killed_while_it_tokenises(self):
        directory, client = self.make_model(), self.server.client()
        victim = self.start_slow(self.server, model=directory)
        text = "hello world " * 2000
        requests = [self.sender.submit_fields({"task": "tokenize", "text": f"{number} {text}"}) for number in range(100)]
        mixed = [self.sender.submit_fields({"text": f"text {number}"}) for number in range(20)]
        self.wait_finished(self.sender, requests[:1])
        victim.kill()
        self.start_daemon(self.server, model=directory)
        for number, request in enumerate(requests):
            tokens = json.loads(self.reply(request)[b"tokens"])
            self.assertEqual("".join(token["text"] for token in tokens[1:-1]), f"{number} {text}".replace(" ", ""))
        self.wait_finished(self.sender, mixed)
        self.wait_empty(self.sender)
        self.assertEqual(client.exists(self.sender.key("dead")), 0)

    def test_cancelled(self):
        directory, client = self.make_classifier(labels=["a", "b"]), self.server.client()
        self.make_faulty(self.server, model=directory, faults=["held:{kernel}"],
                         environment={"FAULTY_ENGINE_DIM": "2"}).start().wait_ready(client)
        self.shut_gate()
        request = self.send("classify", "cancelled", text="kernel")
        self.wait_until(lambda: self.fired("held"), "the compute to begin")
        self.sender.cancel(request)
        self.wait_finished(self.sender, [request])
        self.assertEqual(self.sender.reply(request)[b"status"], b"cancelled")
        self.open_gate()
        self.wait_empty(self.sender)

    def test_commands_of_a_producer(self):
        directory = self.make_classifier()
        self.start_daemon(self.server, model=directory)
        here = ("--redis", self.server.socket, "--queue", self.queue, "--wait")

        def submit(*arguments):
            result = self.run_sluice("submit", *here, *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            return [json.loads(line) for line in result.stdout.splitlines()]

        documents = TEXTS[:3]
        scores = [float(score) for score in self.scores(directory, "red", documents)]
        for encoding in ("json", "f32"):
            [reply] = submit("--task", "rerank", "--query", "red", "--encoding", encoding, *documents)
            self.assertEqual((reply["scores"], reply["info"]["count"]), (scores, 3))
        [reply] = submit("--task", "rerank", "--query", "red", "--top-n", "1", *documents)
        self.assertEqual(reply["top"], [{"index": scores.index(max(scores)), "score": max(scores)}])
        replies = submit("--task", "classify", "--raw", *documents)
        self.assertEqual([reply["labels"] for reply in replies],
                         [json.loads(line) for line in self.local("classify", directory, documents, "--raw")])

"""`task generate` on a queue: texts are those of `sluice generate`, whatever happens to workers."""
# ctest-cost: 20

import json
import random

from generate_case import LONG, SOME, GenerateCase
from ports import free_port


class GenerateQueue(GenerateCase):
    def assert_counted(self, port, texts, tokens):
        found = self.metrics(port)
        self.assertEqual(found["written_tokens_total"], tokens)
        self.assertEqual(found["generate_first_token_seconds_count"], texts)
        self.assertEqual(found["generate_inter_token_seconds_count"], tokens - texts)
        self.assertEqual([found["generate_" + name] for name in ("running", "waiting", "kv_blocks_used")], [0, 0, 0])
        self.assertGreater(found["generate_kv_blocks"], 0)
        # The longest prompt came twice: its 250 tokens were there, in whole blocks.
        self.assertGreaterEqual(found["generate_prefix_hit_tokens_total"], 240)

    def test_texts_are_those_of_the_command(self):
        directory = self.llama()
        port, tokens, texts = free_port(), 0, 0
        daemon = self.start_daemon(self.server, "--http", f"127.0.0.1:{port}", model=directory)
        chat = [{"role": "system", "content": "Be \"brief\"\n"}, {"role": "user", "content": "Hi <|im_end|> \u00e4"}]
        cases = [("Hello", {"max_tokens": 24}), ("Hello", {"max_tokens": 24, "temperature": "1", "seed": 5}), (chat, {"max_tokens": 12}),
                 ("Hello", {"max_tokens": 40, "temperature": "0.8", "seed": 9, "top_k": 20, "top_p": "0.9", "min_p": "0.01",
                            "repetition_penalty": "1.2"}),
                 ("Hello", {"max_tokens": 6, "temperature": "1", "seed": 8, "logprobs": 3}), ("w" * 250, {"max_tokens": 100})]
        whole = self.locally(directory, "Hello", "--max-tokens", "32")["text"]
        cases.append(("Hello", {"max_tokens": 32, "temperature": "1e-5"}))
        cases.append(("Hello", {"max_tokens": 32, "stop": whole[9:11]}))
        for prompt, wishes in cases:
            words = [word for name, value in wishes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
            lines = self.locally(directory, prompt, *words)
            if isinstance(prompt, str):
                submitted = self.run_sluice("submit", "--task", "generate", "--wait", "--redis", self.server.socket,
                                            "--queue", self.queue, *words, prompt)
                self.assertEqual(submitted.returncode, 0, submitted.stderr)
                self.assertEqual(json.loads(submitted.stdout)["text"], lines["text"])
                tokens, texts = tokens + lines["completion_tokens"], texts + 1
            named = {"prompt": prompt} if isinstance(prompt, str) else {"messages": json.dumps(prompt)}
            reply = self.reply(self.send(**named, **{name: str(value) for name, value in wishes.items()}))
            self.assert_like(reply, lines)
            self.assertGreater(reply["ttft_ms"], 0)
            tokens, texts = tokens + reply["completion_tokens"], texts + 1
        self.assert_counted(port, texts, tokens)
        self.assertEqual(set(reply), {"status", "text", "entry", "done_at", "queued_ms", "finish_reason", "prompt_tokens",
                                      "completion_tokens", "ttft_ms", "compute_ms", "model", "revision", "engine"})
        self.assertEqual(reply["finish_reason"], "stop")
        self.assert_nothing_left()
        self.assertEqual(daemon.stop(), 0)

    def test_texts_that_end_at_one_of_several_stops(self):
        directory = self.llama()
        self.start_daemon(self.server, model=directory)
        whole = self.locally(directory, "Hello", "--max-tokens", "32")["text"]
        stops = ["never in it", whole[12:14], whole[9:11]]
        reply = self.reply(self.send(prompt="Hello", max_tokens="32", stops=json.dumps(stops)))
        self.assertEqual((reply["text"], reply["finish_reason"]), (whole[:min(map(whole.index, stops[1:]))], "stop"))
        reply = self.reply(self.send(prompt="Hello", max_tokens="32", stops='["never in it"]', stop=whole[9:11]))
        self.assertEqual(reply["text"], whole[:whole.index(whole[9:11])])

    def test_a_text_without_a_bound_ends_with_the_model(self):
        self.start_daemon(self.server, model=self.llama("endless", eos_token_id=None, seed=4))
        reply = self.reply(self.send(prompt="Hello", max_tokens="0"))
        self.assertEqual((reply["finish_reason"], reply["completion_tokens"]), ("length", 256 - 5))

    def test_a_mix_of_classes_and_tenants(self):
        directory = self.llama()
        self.start_daemon(self.server, model=directory)
        choice, asked = random.Random(3), []
        for number in range(50):
            fields = {"prompt": choice.choice(["Hello", "a", "one two three " * 5]), "max_tokens": str(choice.randint(1, 60)),
                      "temperature": "1", "seed": str(number), "tenant": f"t{number % 3}"}
            level = choice.choice(["", ":high", ":low"])
            entry = self.client.xadd(f"sluice:{{{self.queue}}}:requests{level}", {"task": "generate", **fields}).decode()
            asked.append(((level[1:] + ":" if level else "") + entry, fields))
        for name, fields in asked:
            key = f"sluice:{{{self.queue}}}:reply:{name}"
            self.wait_until(lambda: self.client.hget(key, "status"), f"the reply to {name}")
        for name, fields in asked[::7]:
            line = self.locally(directory, fields["prompt"], "--max-tokens", fields["max_tokens"], "--temperature", "1",
                                "--seed", fields["seed"])
            self.assertEqual(self.client.hget(f"sluice:{{{self.queue}}}:reply:{name}", "text").decode(), line["text"])
        for name, fields in asked:
            self.assertEqual(self.client.hget(f"sluice:{{{self.queue}}}:reply:{name}", "status"), b"done")
        self.assert_nothing_left()

    def test_a_short_text_does_not_wait_for_a_long_one(self):
        self.start_daemon(self.server, model=self.endless())
        long = self.send(prompt="a", max_tokens=str(LONG))
        self.wait_running()
        for _ in range(5):
            self.assertEqual(self.reply(self.send(prompt="Hello", max_tokens="4"))["completion_tokens"], 4)
        self.assertEqual(self.fields(long), {})
        self.sender.cancel(long)
        self.wait_until(lambda: self.fields(long).get("status") == "cancelled", "the cancel")

    def test_kill_in_the_middle(self):
        """Another worker writes the same text, also without a seed."""
        directory = self.endless()
        first = self.start_daemon(self.server, model=directory)
        asked = [self.send(prompt="Hello", max_tokens=str(SOME), temperature="1", **seed) for seed in ({"seed": "7"}, {}, {})]
        self.wait_running(3)
        first.kill()
        self.assertEqual([self.fields(request) for request in asked], [{}] * 3)
        self.start_daemon(self.server, model=directory)
        replies = [self.reply(request) for request in asked]
        self.assertEqual([reply["status"] for reply in replies], ["done"] * 3)
        line = self.locally(directory, "Hello", "--max-tokens", str(SOME), "--temperature", "1", "--seed", "7")
        self.assert_like(replies[0], line)
        self.assertEqual(len({reply["text"] for reply in replies}), 3)
        # A request of the same name, which no kill disturbs, has the same text.
        self.start_daemon(self.server, queue="calm", model=directory)
        for reply in replies[1:]:
            self.client.xadd("sluice:{calm}:requests", {"task": "generate", "prompt": "Hello", "max_tokens": str(SOME), "temperature": "1"},
                             id=reply["entry"])
            key = f"sluice:{{calm}}:reply:{reply['entry']}"
            self.wait_until(lambda: self.client.hget(key, "status") == b"done", "the calm text", timeout=60)
            self.assertEqual(self.client.hget(key, "text").decode(), reply["text"])
        self.assert_nothing_left()

    def test_cancel_ends_a_text(self):
        daemon = self.start_daemon(self.server, model=self.endless())
        long = self.send(prompt="a", max_tokens=str(LONG))
        self.wait_running()
        self.sender.cancel(long)
        self.wait_until(lambda: self.fields(long).get("status") == "cancelled", "the cancel")
        self.wait_until(lambda: self.held(daemon) == 0, "the worker to end the text", timeout=30)
        self.assert_nothing_left()
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("completion_tokens", self.fields(long))

    def held(self, daemon):
        daemon.signal(12)  # SIGUSR2
        lines = [line for line in daemon.read_log().splitlines() if " in_flight " in line]
        return int(lines[-1].split(" held=")[1].split()[0]) if lines else None

    def test_a_text_ends_at_its_deadline(self):
        daemon = self.start_daemon(self.server, model=self.endless())
        late = self.send("expired", prompt="a", max_tokens=str(LONG), expires_in="1500")
        soon = self.send(prompt="a", max_tokens="5", expires_in="60000")
        self.assertEqual(self.reply(soon)["completion_tokens"], 5)
        reply = self.reply(late)
        self.assertEqual((reply["status"], reply["code"], reply["message"]), ("error", "expired", "expired before its text was complete"))
        self.assertNotIn("dead", reply)
        self.assert_nothing_left()
        self.assertEqual(daemon.stop(), 0)

    def test_a_long_text_is_no_hang(self):
        """Its steps are short: only a machine that stops a process for a second would let one of them be a hang."""
        daemon = self.start_daemon(self.server, "--compute-timeout-ms", "1000", model=self.endless())
        reply = self.reply(self.send(prompt="a", max_tokens=str(3 * SOME)))
        self.assertEqual(reply["completion_tokens"], 3 * SOME)
        self.assertGreater(reply["compute_ms"], 1000)
        self.assertEqual(daemon.stop(), 0)

    def test_wrong_fields(self):
        self.start_daemon(self.server, model=self.llama())
        good = {"prompt": "a", "max_tokens": "2"}
        wrong = [({}, "bad_request", "prompt: missing, and so is messages"),
                 ({"prompt": ""}, "bad_request", "prompt: must not be empty"),
                 ({"prompt": "a", "messages": "[]"}, "bad_request", "messages: not together with prompt"),
                 ({"messages": "[]"}, "bad_request", "messages: "), ({"messages": "{}"}, "bad_request", "messages: "),
                 ({"messages": '[{"role":"user","content":"a"}'}, "bad_request", "messages: "),
                 ({"messages": '[{"role":"user","content":"a","x":1}]'}, "bad_request", "messages: "),
                 ({"messages": '[{"role":"user"}]'}, "bad_request", "messages: "),
                 ({"messages": '[{"role":"nobody","content":"a"}]'}, "bad_request", "messages: "),
                 ({"prompt": "a" * 256}, "too_long", "prompt: the model takes 256 tokens"),
                 ({"messages": json.dumps([{"role": "user", "content": "a" * 256}])}, "too_long", "messages: the model takes 256 tokens"),
                 ({**good, "max_tokens": "-1"}, "bad_request", "max_tokens: "), ({**good, "temperature": "-1"}, "bad_request", "temperature: "),
                 ({**good, "temperature": "1e4"}, "bad_request", "temperature: "), ({**good, "top_p": "1.2.3"}, "bad_request", "top_p: "),
                 ({**good, "top_p": ""}, "bad_request", "top_p: "), ({**good, "min_p": "."}, "bad_request", "min_p: "),
                 ({**good, "top_k": "-1"}, "bad_request", "top_k: "), ({**good, "repetition_penalty": "1001"}, "bad_request", "repetition_penalty: "),
                 ({**good, "seed": "x"}, "bad_request", "seed: "), ({**good, "stop": ""}, "bad_request", "stop: "),
                 ({**good, "logprobs": "21"}, "bad_request", "logprobs: "), ({**good, "logprobs": "1", "stream": "s"}, "bad_request", "logprobs: not together with stream"),
                 ({**good, "stop": "s" * 129}, "bad_request", "stop: "), ({**good, "stops": "s"}, "bad_request", "stops: "),
                 ({**good, "stops": '["a","b","c","d","e"]'}, "bad_request", "stops: "),
                 ({**good, "stops": '["\\u0000"]'}, "bad_request", "stops: "), ({**good, "stops": json.dumps(["s" * 129])}, "bad_request", "stops: "),
                 ({**good, "min_p": "e"}, "bad_request", "min_p: "), ({**good, "text": "b"}, "bad_request", "text: not with task generate"),
                 ({**good, "inputs": '["b"]'}, "bad_request", "inputs: not with task generate"),
                 ({**good, "encoding": "f32"}, "bad_request", "encoding: not with task generate"),
                 ({**good, "dims": "4"}, "bad_request", "dims: not with task generate")]
        asked = [(self.send(code, **fields), code, message) for fields, code, message in wrong]
        for request, code, message in asked:
            reply = self.reply(request)
            self.assertEqual((reply["status"], reply["code"]), ("error", code), (request.fields, reply))
            self.assertTrue(reply["message"].startswith(message), (request.fields, reply))
        self.assertEqual(self.reply(self.send(**good))["status"], "done")
        self.assert_nothing_left()

    def test_an_unknown_template_refuses_messages_alone(self):
        self.start_daemon(self.server, model=self.llama(template=None))
        reply = self.reply(self.send("bad_request", messages='[{"role":"user","content":"a"}]'))
        self.assertEqual(reply["code"], "bad_request")
        self.assertIn("template", reply["message"])
        self.assertEqual(self.reply(self.send(prompt="a", max_tokens="2"))["status"], "done")

    def test_each_model_does_its_task(self):
        writes, embeds = self.start_daemon(self.server, model=self.llama()), self.producer(self.server, "vectors")
        self.start_daemon(self.server, queue="vectors")
        refused = [(self.sender, self.sender.submit_fields({"text": "a"}, expected="unknown_task")),
                   (self.sender, self.sender.submit_fields({"task": "embed", "text": "a"}, expected="unknown_task")),
                   (embeds, embeds.submit_fields({"task": "generate", "prompt": "a", "id": "other"}, expected="unknown_task"))]
        for (sender, request), does in zip(refused, ("generate", "generate", "embed")):
            self.wait_finished(sender, [request])
            reply = sender.reply(request)
            self.assertEqual((reply[b"code"], reply[b"message"]), (b"unknown_task", f"task: this queue does {does}".encode()))
        facts = json.loads(self.client.hget(f"sluice:{{{self.queue}}}:meta", "model_facts"))
        self.assertEqual(facts["tasks"], ["generate"])
        self.assertTrue(writes.running())

"""Streams of tokens: they have the text of the reply, each index once, and one end."""
# ctest-cost: 20

import random

from generate_case import LONG, GenerateCase


class GenerateStream(GenerateCase):
    def test_the_text_of_the_reply(self):
        """The model writes bytes, so many characters take several tokens, and many bytes are no character."""
        directory = self.llama()
        daemon = self.start_daemon(self.server, model=directory)
        whole = self.locally(directory, "Hello", "--max-tokens", "32")["text"]
        cases = [{}, {"temperature": "1", "seed": "5"}, {"temperature": "1", "top_k": "30"}, {"max_tokens": "1"}, {"stop": whole[9:11]},
                 {"stop": whole[:1]}, {"stop": whole[5:30]}, {"stop": "never in this text"}, {"prompt": "w" * 250}]
        for number, wishes in enumerate(cases):
            request = self.send(**{"prompt": "Hello", "max_tokens": "200", "stream": f"s{number}", "ttl": "1000", **wishes})
            self.reply(request)
            text = self.assert_streamed(f"s{number}", request)
            ttl = self.client.pttl(f"sluice:{{{self.queue}}}:tokens:s{number}")
            self.assertTrue(900000 < ttl <= 1000000, ttl)
            if "temperature" not in wishes:
                words = [word for name in ("max_tokens", "stop") if name in wishes for word in (f"--{name.replace('_', '-')}", wishes[name])]
                words += [] if "max_tokens" in wishes else ["--max-tokens", "200"]
                self.assertEqual(text, self.locally(directory, wishes.get("prompt", "Hello"), *words)["text"])
        self.assert_nothing_left()
        self.assertEqual(daemon.stop(), 0)

    def test_tokens_come_while_the_text_is_written(self):
        self.start_daemon(self.server, model=self.endless())
        long = self.send(prompt="a", max_tokens=str(LONG), stream="web", id="long")
        for count in (1, 100, 500):
            self.wait_tokens("web", long, count)
            self.assertEqual(self.fields(long), {})
        self.sender.cancel(long)
        self.reply(long)

    def test_many_requests_share_a_stream(self):
        self.start_daemon(self.server, model=self.llama())
        choice, asked = random.Random(5), []
        for number in range(60):
            fields = {"prompt": choice.choice(["Hello", "a"]), "max_tokens": str(choice.randint(1, 80)), "temperature": "1",
                      "seed": str(number), "stream": "web", **choice.choice([{}, {"notify": "stream:ends"}, {"notify": "1"}])}
            asked.append(self.send(**fields))
        for request in asked:
            self.reply(request)
            self.assert_streamed("web", request)
        self.assert_nothing_left()

    def test_two_workers_share_the_requests(self):
        directory = self.llama()
        daemons = [self.start_daemon(self.server, model=directory) for _ in range(2)]
        asked = [self.send(prompt="Hello", max_tokens="100", temperature="1", stream="web") for _ in range(40)]
        for request in asked:
            self.reply(request)
            self.assert_streamed("web", request)
        self.assertEqual([daemon.stop() for daemon in daemons], [0, 0])

    def test_a_bad_request_ends_its_stream(self):
        self.start_daemon(self.server, model=self.llama())
        good = {"prompt": "a", "max_tokens": "2", "stream": "web"}
        wrong = [({**good, "temperature": "x"}, "bad_request", "temperature: "), ({**good, "prompt": "a" * 256}, "too_long", "prompt: "),
                 ({**good, "task": "embed"}, "unknown_task", "task: "),
                 ({"task": "tokenize", "text": "a", "stream": "web"}, "bad_request", "stream: not with task tokenize")]
        for fields, code, message in wrong:
            request = self.sender.submit_fields({"task": "generate", **fields}, expected=code)
            reply = self.reply(request)
            self.assertEqual((reply["code"], reply["message"][:len(message)]), (code, message), reply)
            self.assertEqual(self.assert_streamed("web", request), "")
        for name in ("", "A", "a b", "a" * 65):
            reply = self.reply(self.send("bad_request", **{**good, "stream": name}))
            self.assertEqual((reply["code"], reply["message"]), ("bad_request", "stream: 1 to 64 of a-z 0-9 _ . -"))
        self.assertEqual(len(self.entries("web")), len(wrong))

    def test_cancel_ends_a_stream(self):
        daemon = self.start_daemon(self.server, model=self.endless())
        long = self.send(prompt="a", max_tokens=str(LONG), stream="web", id="mine")
        waits = self.send(prompt="a", max_tokens="9", stream="web", delay="600000")
        self.wait_tokens("web", long, 10)
        self.sender.cancel(long)
        self.sender.cancel(waits)
        for request in (long, waits):
            self.assertEqual(self.reply(request)["status"], "cancelled")
        self.assertNotEqual(self.assert_streamed("web", long), "")
        self.assertEqual(self.assert_streamed("web", waits), "")
        done = self.send(prompt="a", max_tokens="9", stream="web")
        self.reply(done)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(["status" in entry for entry in self.entries("web", long)].count(True), 1)
        self.assertIn("status", self.entries("web", long)[-1])

    def test_a_deadline_ends_a_stream(self):
        self.start_daemon(self.server, model=self.endless())
        late = self.send("expired", prompt="a", max_tokens=str(LONG), expires_in="1500", stream="web")
        self.assertEqual(self.reply(late)["code"], "expired")
        self.assertNotEqual(self.assert_streamed("web", late), "")
        self.assert_nothing_left()

    def test_a_key_of_another_type_costs_only_the_stream(self):
        self.start_daemon(self.server, model=self.llama())
        self.client.set(f"sluice:{{{self.queue}}}:tokens:web", "x")
        self.assertEqual(self.reply(self.send(prompt="a", max_tokens="20", stream="web"))["status"], "done")
        self.assertEqual(self.client.keys(f"sluice:{{{self.queue}}}:sent:*"), [])

    def test_submit_prints_a_text_as_it_comes(self):
        directory = self.llama()
        self.start_daemon(self.server, model=directory)
        words = ("submit", "--task", "generate", "--stream", "--redis", self.server.socket, "--queue", self.queue, "--max-tokens", "60")
        lines = [self.locally(directory, prompt, "--max-tokens", "60")["text"] for prompt in ("Hello", "a")]
        done = self.run_sluice(*words, "Hello", "a")
        self.assertEqual((done.returncode, done.stdout.decode()), (0, "".join(line + "\n" for line in lines)), done.stderr)
        failed = self.run_sluice(*words, "--temperature", "x", "Hello")
        self.assertEqual(failed.returncode, 65)
        self.assertIn("bad_request: temperature: ", failed.stderr.decode())
        self.assertEqual(self.run_sluice(*words, "--wait", "Hello").returncode, 64)

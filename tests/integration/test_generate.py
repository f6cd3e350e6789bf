"""`sluice generate`: its input, output and errors. golden/decoder_golden.py tests the numbers."""

import json
import os
import random
import subprocess

from case import SluiceCase
from daemon import BINARY
from language_model import CHAT, END, STOP, make_llama

class Generate(SluiceCase):
    def make_llama(self, name="llama", **how):
        return make_llama(self.path("models", name), **how)

    def generate(self, directory, lines, *arguments, code=0, says=None):
        """Runs the command on lines of text, or on objects. Returns its objects."""
        source = self.write("in.txt", "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        result = self.run_sluice("generate", "--model", directory, "--precision", "f32", "--input", source, *arguments)
        said = result.stderr.decode()
        self.assertEqual(result.returncode, code, said)
        if says is not None:
            self.assertIn(says, said)
        return [json.loads(line) for line in result.stdout.decode().splitlines()]

    def test_lines_come_in_order_and_depend_on_nothing_else(self):
        directory = self.make_llama()
        prompts = ["The queue", "Hello", "a", "ä" * 30, "one two three " * 8] * 12
        greedy = ("--max-tokens", "24", "--token-ids")
        together = self.generate(directory, prompts, *greedy)
        self.assertEqual([line["index"] for line in together], list(range(len(prompts))))
        for i in range(5):
            line = together[i]
            self.assertEqual(line["prompt_tokens"], len(prompts[i].encode()))
            self.assertEqual(line["completion_tokens"], len(line["token_ids"]))
            self.assertEqual(line["finish_reason"], "stop" if line["token_ids"][-1] in (END, STOP) else "length")
            written = bytes(token for token in line["token_ids"] if token < 256).decode(errors="replace")
            self.assertEqual(line["text"], written)
            alone = self.generate(directory, [prompts[i]], *greedy)
            self.assertEqual({**alone[0], "index": i}, line)
            for j in range(i, len(prompts), 5):
                self.assertEqual(together[j]["token_ids"], line["token_ids"])

    def test_draws_depend_on_the_seed(self):
        directory = self.make_llama()
        drawn = ("--temperature", "1", "--max-tokens", "16")
        first, again = (self.generate(directory, ["Hello"] * 3, *drawn, "--seed", "5") for _ in range(2))
        self.assertEqual(first, again)
        self.assertEqual(len({line["text"] for line in first}), 3)
        other = self.generate(directory, ["Hello"] * 3, *drawn, "--seed", "6")
        self.assertNotEqual([line["text"] for line in first], [line["text"] for line in other])
        one_thread = self.generate(directory, ["Hello"] * 3, *drawn, "--seed", "5", "--threads", "1")
        self.assertEqual(first, one_thread)
        likeliest = self.generate(directory, ["Hello"], "--max-tokens", "16")
        self.assertEqual(self.generate(directory, ["Hello"], *drawn, "--top-k", "1"), likeliest)
        self.assertEqual(self.generate(directory, ["Hello"], *drawn, "--top-p", "0.000001"), likeliest)
        self.assertEqual(self.generate(directory, ["Hello"], *drawn, "--min-p", "1"), likeliest)
        penalized = self.generate(directory, ["Hello"], "--max-tokens", "64", "--repetition-penalty", "1000", "--token-ids")[0]
        self.assertEqual(len(set(penalized["token_ids"])), len(penalized["token_ids"]))

    def test_a_stop_text_is_left_out(self):
        directory = self.make_llama()
        whole = self.generate(directory, ["Hello"], "--max-tokens", "32")[0]["text"]
        stop = whole[9:11]
        line = self.generate(directory, ["Hello"], "--max-tokens", "32", "--stop", stop)[0]
        self.assertEqual((line["text"], line["finish_reason"]), (whole[:whole.index(stop)], "stop"))

    def test_prompts_and_messages(self):
        directory = self.make_llama()
        greedy = ("--max-tokens", "8")
        rendered = "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n"
        messages = [{"role": "user", "content": "Hi there"}]
        lines = self.generate(directory, [{"prompt": "Hello\nworld"}, {"prompt": rendered}, {"messages": messages}], *greedy)
        self.assertEqual(lines[0]["prompt_tokens"], 11)
        self.assertEqual(lines[1]["prompt_tokens"], len("user\nHi there\nassistant\n") + 3)
        self.assertEqual({**lines[1], "index": 2}, lines[2])
        # The same marks inside a message are text.
        inside = self.generate(directory, [{"messages": [{"role": "user", "content": "<|im_end|>"}]}], *greedy)[0]
        self.assertEqual(inside["prompt_tokens"], len("user\n<|im_end|>\nassistant\n") + 3)
        # A line of text may look like JSON; only the first line decides.
        self.assertEqual(self.generate(directory, ["{}", '{"prompt": "x"}'], *greedy)[1]["prompt_tokens"], 15)

    def test_a_line_that_fails_fails_alone(self):
        directory = self.make_llama()
        lines = self.generate(directory, [{"prompt": "Hello"}, {"prompt": "x" * 300}, {"prompt": ""}, {"prompt": "a", "top": 1},
                                          "nonsense", {"messages": []}, {"messages": [{"role": "tool", "content": "x"}]},
                                          {"prompt": "a", "messages": []}, {"prompt": "Hello"}],
                              "--max-tokens", "8", code=1, says="7 of 9 lines failed")
        self.assertEqual([line["index"] for line in lines], list(range(9)))
        for line, words in zip(lines[1:8], ["more than the 256 tokens", "no tokens", "top", "", "no message", "tool", "either"]):
            self.assertEqual(list(line), ["index", "error"])
            self.assertIn(words, line["error"])
        self.assertEqual({**lines[0], "index": 8}, lines[8])

        plain = self.make_llama("plain", template=None)
        error = self.generate(plain, [{"messages": [{"role": "user", "content": "x"}]}], code=1)[0]["error"]
        self.assertIn("no chat_template", error)
        strange = self.make_llama("strange", template="<|user|>{{ message }}")
        error = self.generate(strange, [{"messages": [{"role": "user", "content": "x"}]}], code=1)[0]["error"]
        self.assertIn("chatml, llama3, gemma and inst", error)

    def test_models_and_options_that_are_refused(self):
        self.generate(self.make_model(), ["a"], code=65, says="does not generate text")
        directory = self.make_llama()
        self.generate(directory, ["a"], "--temperature", "warm", code=64, says="a number from 0 to 1000")
        self.generate(directory, ["a"], "--pooling", "mean", code=64, says="generate does not take --pooling")
        self.generate(directory, ["a"], "--output", self.path("none", "x"), code=66, says="none/x")

    def test_model_says_whether_it_generates_and_chats(self):
        def look(directory, code=0):
            result = self.run_sluice("model", directory, "--precision", "f32")
            self.assertEqual(result.returncode, code, result.stderr)
            return result.stderr.decode() if code else json.loads(result.stdout)

        found = look(self.make_llama())
        self.assertEqual((found["tasks"], found["chat"]), (["generate"], "chatml"))
        found = look(self.make_llama("strange", template="<|user|>{{ message }}"))
        self.assertNotIn("chat", found)
        self.assertIn("chatml, llama3, gemma and inst", found["chat_refused"])
        said = look(self.make_llama("member", logit_scale=0.5), 65)
        self.assertRegex(said, "to generate text: .*the field logit_scale is not known.*to embed texts: .*pooling is not known")
        said = look(self.make_llama("family", model_type="lama"), 65)
        self.assertRegex(said, "to generate text: .*lama.*to embed texts: .*pooling is not known")
        directory = self.make_model()
        os.unlink(os.path.join(directory, "modules.json"))
        self.assertNotIn("to generate text", self.run_sluice("model", directory).stderr.decode())

    def test_output_file(self):
        directory, target = self.make_llama(), self.path("out.jsonl")
        self.assertEqual(self.generate(directory, ["a", "b"], "--output", target, "--max-tokens", "3"), [])
        with open(target, encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["index"] for line in file], [0, 1])
        self.assertEqual(self.generate(directory, []), [])

    def test_a_prompt_is_answered_before_the_next_one_comes(self):
        """Whoever writes a line to its standard input need not write another one to get the answer."""
        process = subprocess.Popen([BINARY, "generate", "--model", self.make_llama(), "--max-tokens", "4"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            for index in range(3):
                process.stdin.write(b"Hello\n")
                process.stdin.flush()
                self.assertEqual(json.loads(process.stdout.readline())["index"], index)
            process.stdin.close()
            self.assertEqual(process.wait(60), 0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

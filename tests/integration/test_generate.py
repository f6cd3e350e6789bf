"""`sluice generate`: its input, output and errors. golden/decoder_golden.py tests the numbers."""

import gzip
import json
import math
import os
import random
import signal
import subprocess

import process
from case import SluiceCase
from daemon import BINARY
from language_model import CHAT, END, SPECIALS, STOP, make_llama


class GenerateCase(SluiceCase):
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


class Generate(GenerateCase):
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

    def test_several_texts_for_a_prompt(self):
        directory = self.make_llama()
        drawn = ("--temperature", "1", "--max-tokens", "16", "--seed", "5")
        single = self.generate(directory, ["Hello", "a"], *drawn)
        several = self.generate(directory, ["Hello", "a"], *drawn, "--n", "3")
        self.assertEqual([(line["index"], line["choice"]) for line in several], [(i, j) for i in range(2) for j in range(3)])
        self.assertEqual([{name: line[name] for name in single[0]} for line in several[::3]], single)
        self.assertEqual(len({line["text"] for line in several}), 6)
        failed = self.generate(directory, ["Hello", ""], *drawn, "--n", "3", code=1, says="1 of 4 lines failed")
        self.assertEqual((failed[:3], list(failed[3])), (several[:3], ["index", "error"]))
        self.generate(directory, ["a"], "--n", "3", code=65, says="--n 3: with --temperature 0")

    def test_logprobs(self):
        directory = self.make_llama()
        likeliest = self.generate(directory, ["Hello"], "--max-tokens", "12", "--logprobs", "20", "--token-ids")[0]
        self.assertEqual([token["id"] for token in likeliest["logprobs"]], likeliest["token_ids"])
        for token in likeliest["logprobs"]:
            top = token["top_logprobs"]
            self.assertEqual({**token, "top_logprobs": None}, {**top[0], "top_logprobs": None})
            values = [other["logprob"] for other in top]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLess(sum(map(math.exp, values)), 1)
            self.assertEqual(len({other["id"] for other in top}), 20)
            for other in top:
                self.assertEqual(other["token"], SPECIALS[other["id"] - 256] if other["id"] > 255 else bytes([other["id"]]).decode(errors="replace"))
        # The first token's are those of the model, whatever it is drawn by; and a drawn token has its own.
        first = self.generate(directory, ["Hello"] * 20, "--max-tokens", "1", "--logprobs", "20", "--temperature", "2", "--repetition-penalty", "5")
        for line in first:
            token = line["logprobs"][0]
            self.assertEqual(token["top_logprobs"], likeliest["logprobs"][0]["top_logprobs"])
            same = [other["logprob"] for other in token["top_logprobs"] if other["id"] == token["id"]]
            self.assertTrue(same == [token["logprob"]] if same else token["logprob"] <= token["top_logprobs"][-1]["logprob"])
        self.assertGreater(len({line["logprobs"][0]["id"] for line in first}), 5)

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
        self.generate(directory, ["a"], "--output", self.path("none", "x.jsonl"), code=66, says="none/x.jsonl")
        self.generate(directory, ["a"], "--output", self.path("x"), code=65, says="must end in .jsonl")
        self.generate(directory, ["a"], "--output", self.path("in.jsonl"), "--input", self.write("in.jsonl", "a\n"), code=65, says="is an input, and a file that this job would write")

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

    def test_int8(self):
        """The products are chosen in one start, and found in the next; texts do not depend on those beside them."""
        directory = self.make_llama()
        told = json.loads(self.run_sluice("model", directory, "--precision", "int8").stdout)
        self.assertEqual((told["int8_of"], told["int8_lm_head"]), (11, True))
        self.assertEqual(told["int8_count"], 1 + sum(map(len, told["int8_products"].values())))
        self.assertTrue(0 < told["int8_mean_error"] <= told["int8_worst_error"] <= 0.1)
        prompts = ["The queue", "Hello", "a", "one two three " * 8]
        greedy = ("--max-tokens", "24", "--token-ids", "--precision", "int8")
        together = self.generate(directory, prompts, *greedy)
        for i, prompt in enumerate(prompts):
            self.assertEqual({**self.generate(directory, [prompt], *greedy)[0], "index": i}, together[i])

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


class OutputFile(GenerateCase):
    """A job that writes a file: the same command goes on with it. fault/test_generate_kill.py kills it."""
    lines = [{"prompt": "Hello"}, {"prompt": ""}, {"messages": [{"role": "user", "content": "x"}]}]

    def setUp(self):
        super().setUp()
        self.directory_of_model = self.make_llama()
        self.output = self.path("out.jsonl")

    def job(self, lines, *arguments, **options):
        """Runs the job; returns the content of its file."""
        self.assertEqual(self.generate(self.directory_of_model, lines, "--output", self.output, "--max-tokens", "5", *arguments, **options), [])
        return self.content()

    def content(self):
        with open(self.output, "rb") as file:
            return file.read()

    def test_it_has_what_standard_output_has(self):
        written = self.job(self.lines, code=1, says="out.jsonl: 3 lines, 3 written now and 0 before")
        lines = self.generate(self.directory_of_model, self.lines, "--max-tokens", "5", code=1)
        self.assertEqual([json.loads(line) for line in written.splitlines()], lines)
        with open(self.output + ".manifest.json", encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual({key: manifest[key] for key in ("rows", "computed", "failed", "precision")},
                         {"rows": 3, "computed": 2, "failed": 1, "precision": "f32"})
        self.assertEqual([file["bytes"] for file in manifest["files"]], [len(written)])
        self.assertEqual(manifest["terms"]["max_tokens"], '"5"')
        self.assertFalse(os.path.exists(self.output + ".job"))

    def test_a_finished_job_writes_only_what_is_new(self):
        first = self.job(self.lines, "--temperature", "1", code=1)
        self.assertEqual(self.job(self.lines, "--temperature", "1", code=1, says="is finished already: 3 lines"), first)
        more = self.job(self.lines * 2, "--temperature", "1", code=1, says="6 lines, 3 written now and 3 before")
        self.assertTrue(more.startswith(first))
        self.assertEqual(self.job(self.lines * 2, "--temperature", "1", "--overwrite", code=1, says="6 written now"), more)

    def test_another_job_is_refused(self):
        first = self.job(self.lines, code=1)
        for arguments, says in ((("--seed", "1"), 'another seed: "0", and not "1"'), (("--max-tokens", "6"), 'another max_tokens: "5", and not "6"'),
                                (("--precision", "bf16"), "another precision"), (("--stop", "x"), "another stop")):
            self.job(self.lines, *arguments, code=65, says=says)
        self.job([self.lines[0], {"prompt": "a"}, self.lines[2]], code=65, says="the input has changed")
        self.job(self.lines[:2], code=65, says="it has 2 lines, and the job has done 3")
        self.directory_of_model = self.make_llama("other", seed=2)
        self.job(self.lines, code=65, says="another model")
        self.assertEqual(self.content(), first)
        os.remove(self.output + ".manifest.json")
        self.job(self.lines, code=65, says="exists already, and there is no job to resume")
        self.assertNotEqual(self.job(self.lines, "--overwrite", code=1), first)

    def test_a_file_that_was_cut_is_refused(self):
        first = self.job(self.lines, code=1)
        self.write("out.jsonl", first[:-20])
        self.job(self.lines, code=65, says="was cut or changed")

    def test_a_broken_input_keeps_what_came_before(self):
        packed = gzip.compress("".join(f"prompt {number}\n" for number in range(3000)).encode())
        whole = self.job([], "--input", self.write("whole.gz", packed))
        self.assertEqual(whole.count(b"\n"), 3000)
        os.remove(self.output)
        os.remove(self.output + ".manifest.json")
        source = self.write("in.gz", packed[:-len(packed) // 2])
        part = self.job([], "--input", source, code=65, says="rerunning the command resumes")
        self.assertTrue(part and whole.startswith(part))
        self.write("in.gz", packed)
        self.assertEqual(self.job([], "--input", source, says="lines"), whole)

    def test_ctrl_c_and_standard_input(self):
        prompts = [f"prompt {number}\n".encode() for number in range(20)]
        command = [BINARY, "generate", "--model", self.directory_of_model, "--precision", "f32", "--output", self.output, "--max-tokens", "5"]
        child = process.start(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=process.clean_environment())
        self.addCleanup(lambda: (process.end(child), child.stderr.close()))
        child.stdin.write(b"".join(prompts[:8]))
        child.stdin.flush()
        self.wait_until(lambda: os.path.exists(self.output) and self.content().count(b"\n") == 8, "eight lines")
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(60), 75)
        child.stdin.close()
        self.assertIn(b"nothing is lost, rerunning the command resumes", child.stderr.read())
        stopped = self.content()
        done = subprocess.run(command, input=b"".join(prompts), env=process.clean_environment(), capture_output=True, check=True, timeout=60)
        self.assertIn(b"20 lines, 12 written now and 8 before", done.stderr)
        resumed = self.content()
        self.assertTrue(resumed.startswith(stopped))
        straight = subprocess.run([*command, "--overwrite"], input=b"".join(prompts), env=process.clean_environment(), capture_output=True,
                                  check=True, timeout=60)
        self.assertIn(b"20 written now", straight.stderr)
        self.assertEqual(self.content(), resumed)

    def test_progress_as_json(self):
        self.generate(self.directory_of_model, self.lines, "--output", self.output, "--progress", "json", code=1, says='{"phase":"finished","rows":3')

"""HTTP clients from PyPI against a gateway, and the snippets of docs/http.md and the README as they are."""
# ctest-cost: 30

import json
import re
import struct
import subprocess
import sys

import installed
import process
from daemon import SOURCE
from gateway_case import GatewayCase
from language_model import LanguageModels

sys.path.insert(0, SOURCE + "/tests/docs")
import blocks  # noqa: E402

ALL_OF_OPENAI = """
import asyncio, json, sys
import openai
address = sys.argv[1] + "/v1"
say = lambda value: print(json.dumps(value))
client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
say([model.id for model in client.models.list().data])
say(client.models.retrieve("tiny").id)
one = client.embeddings.create(model="tiny", input="hello world")
say([one.data[0].embedding, one.model, one.usage.total_tokens])
say(client.embeddings.create(model="tiny", input="hello world", encoding_format="float").data[0].embedding)
many = client.embeddings.create(model="tiny", input=[f"hello {n}" for n in range(300)])
say([[each.index for each in many.data], many.data[7].embedding])
say(client.embeddings.create(model="tiny", input=["hello"], dimensions=8).data[0].embedding)
say(client.embeddings.with_raw_response.create(model="tiny", input="hello").headers["x-request-id"])
for wrong in ({"model": "gamma", "input": "a"}, {"model": "tiny", "input": [1, 2]}, {"model": "tiny", "input": [""]}):
    try:
        client.embeddings.create(**wrong)
    except openai.APIStatusError as error:
        say([type(error).__name__, error.status_code, error.code, error.param, error.request_id])

async def all_at_once():
    async with openai.AsyncOpenAI(base_url=address, api_key="none") as client:
        return await asyncio.gather(*(client.embeddings.create(model="tiny", input=f"hello {n}") for n in range(100)))

say([answer.data[0].embedding for answer in asyncio.run(all_at_once())])
"""


TEXTS_OF_OPENAI = """
import asyncio, json, sys
import openai
address = sys.argv[1] + "/v1"
say = lambda value: print(json.dumps(value))
client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
messages = [{"role": "user", "content": "Hi"}]
wishes = {"model": "llama", "seed": 5, "max_tokens": 24}
chat = client.chat.completions.create(messages=messages, stop=None, n=1, **wishes)
say([chat.choices[0].message.content, chat.choices[0].message.role, chat.choices[0].finish_reason, chat.usage.total_tokens])
text = client.completions.create(prompt=["Hello", "a"], **wishes)
say([choice.text for choice in text.choices])
stream = client.chat.completions.create(messages=messages, stream=True, stream_options={"include_usage": True}, **wishes)
*chunks, end, last = stream
say(["".join(chunk.choices[0].delta.content for chunk in chunks), end.choices[0].finish_reason, last.usage.total_tokens])
say("".join(chunk.choices[0].text for chunk in client.completions.create(prompt="Hello", stream=True, **wishes)))
answered = messages + [chat.choices[0].message.model_dump(), {"role": "user", "content": [{"type": "text", "text": "a"}]}]
say(client.chat.completions.create(messages=answered, **wishes).choices[0].finish_reason)
for wrong in ({"messages": messages, "n": 2}, {"messages": [], "stream": True}, {"messages": messages, "tools": [
        {"type": "function", "function": {"name": "f"}}]}):
    try:
        client.chat.completions.create(**{**wishes, **wrong})
    except openai.BadRequestError as error:
        say([error.code, error.param])
try:
    for _ in client.completions.create(prompt="a", stream=True, model="llama", max_tokens=10**6, extra_headers={"X-Sluice-Timeout": "1"},
                                       extra_body={"repetition_penalty": 1.1}):
        pass
    say("complete")
except openai.APIError as error:
    say(error.code)

async def all_at_once():
    async with openai.AsyncOpenAI(base_url=address, api_key="none") as client:
        async def one():
            return "".join([chunk.choices[0].delta.content or "" async for chunk in
                            await client.chat.completions.create(messages=messages, stream=True, **wishes)])
        whole = await client.chat.completions.create(messages=messages, **wishes)
        return [whole.choices[0].message.content, *await asyncio.gather(*(one() for _ in range(20)))]

say(asyncio.run(all_at_once()))
"""


BATCHES_OF_OPENAI = """
import io, json, sys, time
import openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
lines = [json.dumps({"custom_id": f"n{n}", "method": "POST", "url": "/v1/embeddings",
                     "body": {"model": "tiny", "input": f"hello {n}"}}) for n in range(50)] + ["{broken"]
file = client.files.create(file=("requests.jsonl", "\\n".join(lines).encode()), purpose="batch")
assert client.files.retrieve(file.id).filename == "requests.jsonl"
assert client.files.content(file.id).text == "\\n".join(lines)
made = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h", metadata={"a": "b"})
assert made.status == "validating" and made.metadata == {"a": "b"}
while (batch := client.batches.retrieve(made.id)).status not in ("completed", "failed"):
    time.sleep(0.05)
good = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
failed = [json.loads(line) for line in client.files.content(batch.error_file_id).text.splitlines()]
counts = batch.request_counts
print(json.dumps([counts.total, counts.completed, counts.failed, failed[0]["error"]["code"]]))
print(json.dumps([[line["custom_id"], line["response"]["body"]["data"][0]["embedding"]] for line in good]))
print(json.dumps([[batch.id for batch in client.batches.list(limit=1)], sorted(file.purpose for file in client.files.list())]))
assert client.files.delete(file.id).deleted
try:
    client.batches.cancel(batch.id)
except openai.BadRequestError as error:
    print(json.dumps(error.body["message"]))
try:
    client.files.retrieve(file.id)
except openai.NotFoundError as error:
    print(json.dumps([error.code, error.request_id]))
"""


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


class HttpClients(LanguageModels, GatewayCase):
    def setUp(self):
        super().setUp()
        self.python = installed.python_of("venv-http", "clients/requirements-http.txt")
        self.start_daemon(self.server)
        self.start_gateway()
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")

    def run_python(self, code, *arguments):
        done = subprocess.run([self.python, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False,
                              env=process.clean_environment({"PYTHONPATH": ""}))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_batches_of_openai(self):
        self.start_gateway(None, "--data", self.path("data"))
        said = map(json.loads, self.run_python(BATCHES_OF_OPENAI, f"http://127.0.0.1:{self.gateway.port}").splitlines())
        self.assertEqual(next(said), [51, 50, 1, "invalid_json_line"])
        reference = self.reference()
        reference.learn([f"hello {n}" for n in range(50)])
        self.assertEqual([[name, floats(vector)] for name, vector in next(said)], [[f"n{n}", reference(f"hello {n}")] for n in range(50)])
        batches, purposes = next(said)
        self.assertEqual((len(batches), purposes), (1, ["batch", "batch_output", "batch_output"]))
        self.assertEqual(next(said), "the batch has ended already")
        code, request_id = next(said)
        self.assertEqual(code, "not_found")
        self.assertRegex(request_id, "^http-")

    def test_openai(self):
        said = map(json.loads, self.run_python(ALL_OF_OPENAI, f"http://127.0.0.1:{self.gateway.port}").splitlines())
        self.assertEqual(next(said), ["tiny"])
        self.assertEqual(next(said), "tiny")
        vector, model, tokens = next(said)
        self.assertEqual((floats(vector), model, tokens), (self.reference()("hello world"), "tiny", 4))
        self.assertEqual(floats(next(said)), self.reference()("hello world"))
        numbers, seventh = next(said)
        self.assertEqual((numbers, floats(seventh)), (list(range(300)), self.reference()("hello 7")))
        self.assertEqual(len(next(said)), 8)
        self.assertRegex(next(said), "^http-")
        for name, status, code, member in (("NotFoundError", 404, "model_not_found", "model"),
                                           ("BadRequestError", 400, "invalid_value", "input"),
                                           ("BadRequestError", 400, "invalid_value", "input")):
            *found, request_id = next(said)
            self.assertEqual(found, [name, status, code, member])
            self.assertRegex(request_id, "^http-")
        self.assertEqual([floats(each) for each in next(said)], self.expected([f"hello {n}" for n in range(100)]))

    def test_texts_of_openai(self):
        model = self.llama(eos_token_id=None, positions=4096)
        self.start_daemon(self.server, model=model, queue="texts")
        self.start_gateway(queue="texts")
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        said = map(json.loads, self.run_python(TEXTS_OF_OPENAI, f"http://127.0.0.1:{self.gateway.port}").splitlines())
        draw = ("--temperature", "1", "--seed", "5", "--max-tokens", "24")
        chat = self.locally(model, [{"role": "user", "content": "Hi"}], *draw)
        hello, other = (self.locally(model, prompt, *draw)["text"] for prompt in ("Hello", "a"))
        tokens = chat["prompt_tokens"] + chat["completion_tokens"]
        self.assertEqual(next(said), [chat["text"], "assistant", "length", tokens])
        self.assertEqual(next(said), [hello, other])
        self.assertEqual(next(said), [chat["text"], "length", tokens])
        self.assertEqual(next(said), hello)
        self.assertEqual(next(said), "length")
        for wrong in (["invalid_value", "n"], ["invalid_value", "messages"], ["invalid_value", "tools"]):
            self.assertEqual(next(said), wrong)
        self.assertIn(next(said), ("complete", "expired"))
        self.assertEqual(next(said), [chat["text"]] * 21)

    def test_the_snippets(self):
        """Those of the first pages, with another port and the shipped model."""
        self.start_daemon(self.server, model=SOURCE + "/config/models/sluice-mini-en", queue="shipped")
        gateway = self.start_gateway(queue="shipped")
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        run = 0
        for page in ("README.md", "docs/http.md"):
            with open(f"{SOURCE}/{page}", encoding="utf-8") as file:
                code = [code.replace("127.0.0.1:8080", f"127.0.0.1:{gateway.port}") for _, code in blocks.code_blocks(file.read())]
            for block in code:
                with self.subTest(page=page, block=block):
                    if "from openai" in block:
                        self.assertIn("2 192 ", self.run_python(block) if "print(" in block else
                                      f"2 {self.run_python(block + 'print(len(vector))').strip()} ")
                        run += 1
                    elif "curl" in block and f":{gateway.port}/" in block and "sudo" not in block and "chat" not in block:
                        command = re.sub(r"(?m)^.*sluice serve.*\n", "", block)
                        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=60, check=True)
                        self.assertRegex(done.stdout, r'"embedding":\[-?0\.|^\[\[-?0\.|"status":"queued"')
                        run += 1
        self.assertEqual(run, 7)

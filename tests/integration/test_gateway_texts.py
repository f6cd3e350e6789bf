"""OpenAI's completions and chats over HTTP: texts are those of `sluice generate`, at once or as they are written."""
# ctest: threads
# ctest-cost: 25

import hashlib
import json

from gateway_case import GatewayCase
from language_model import LanguageModels

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = 60000  # tokens of a text that takes many seconds
HELLO = [{"role": "system", "content": "Be \"brief\"\n"}, {"role": "user", "content": "Hi <|im_end|> \u00e4"}]
DRAWN = {"seed": 5, "max_tokens": 24}
DRAW = ("--temperature", "1", "--seed", "5", "--max-tokens", "24")


def events(body):
    """The objects of a stream, which ends as it should."""
    *found, done, nothing = body.decode().split("\n\n")
    assert (done, nothing) == ("data: [DONE]", ""), body
    return [json.loads(event.removeprefix("data: ")) for event in found]


class Texts(LanguageModels, GatewayCase):
    def serve(self, directory=None):
        self.model = directory or self.llama()
        self.worker = self.start_daemon(self.server, model=self.model)
        self.start_gateway()
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")

    def post(self, path, **body):
        answer = self.ask("POST", path, body)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def usage(self, *lines):
        prompt, written = (sum(line[name] for line in lines) for name in ("prompt_tokens", "completion_tokens"))
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}

    def choice(self, line, index=0):
        return {"index": index, "text": line["text"], "logprobs": None, "finish_reason": line["finish_reason"]}

    def assert_nothing_left(self):
        self.wait_empty(self.sender)
        for what in ("reply:*", "wake:*"):
            self.wait_until(lambda: not self.client.keys(self.sender.key(what)), "the replies to be unlinked")
        for key in self.client.keys(self.sender.key("tokens:*")):
            self.wait_until(lambda: self.client.xlen(key) <= 1, "the tokens to be trimmed")

    def test_texts_are_those_of_the_command(self):
        self.serve()
        line = self.locally(self.model, HELLO, *DRAW)
        answer = self.post(CHAT, model="llama", messages=HELLO, **DRAWN)
        self.assertRegex(answer.pop("id"), "^chatcmpl-http-")
        self.assertLess(abs(answer.pop("created") - self.now_ms() / 1000), 60)
        message = {"role": "assistant", "content": line["text"], "refusal": None}
        self.assertEqual(answer, {"object": "chat.completion", "model": "llama", "usage": self.usage(line), "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": line["finish_reason"]}]})
        parts = [{**HELLO[0], "name": None}, {"role": "user", "content": [{"type": "text", "text": HELLO[1]["content"]}]}]
        again = self.post(CHAT, messages=parts, seed=5, max_completion_tokens=24, temperature=1.0, top_p=1)
        self.assertEqual((again["choices"][0]["message"], again["usage"]), (message, self.usage(line)))

        line = self.locally(self.model, "Hello \n\u00e9", *DRAW)
        answer = self.post(COMPLETIONS, prompt="Hello \n\u00e9", **DRAWN)
        self.assertRegex(answer.pop("id"), "^cmpl-http-")
        self.assertGreater(answer.pop("created"), 0)
        self.assertEqual(answer, {"object": "text_completion", "model": "llama", "choices": [self.choice(line)], "usage": self.usage(line)})
        words = ("--temperature", "0.8", "--seed", "9", "--top-k", "20", "--top-p", "0.9", "--min-p", "0.01",
                 "--repetition-penalty", "1.2", "--max-tokens", "40")
        line = self.locally(self.model, "Hello", *words)
        answer = self.post(COMPLETIONS, prompt="Hello", temperature=0.8, seed=9, top_k=20, top_p=0.9, min_p=1e-2,
                           repetition_penalty=1.2, max_tokens=40)
        self.assertEqual(answer["choices"], [self.choice(line)])
        stop = line["text"][9:11]
        cut = self.post(COMPLETIONS, prompt="Hello", temperature=0.8, seed=9, top_k=20, top_p=0.9, min_p=1e-2,
                        repetition_penalty=1.2, max_tokens=40, stop=["never in it", stop])["choices"][0]
        self.assertEqual((cut["text"], cut["finish_reason"]), (line["text"][:line["text"].index(stop)], "stop"))
        self.assertEqual([model["id"] for model in self.ask("GET", "/v1/models").json["data"]], ["llama"])
        self.assertEqual(self.ask("GET", "/info").json["model_type"], {"generator": {}})
        self.assert_nothing_left()

    def test_what_is_not_given_is_as_with_openai(self):
        self.serve(self.llama("endless", eos_token_id=None, seed=4))
        self.assertEqual(self.post(COMPLETIONS, prompt="Hello")["usage"]["completion_tokens"], 16)
        usage = self.post(CHAT, messages=HELLO)["usage"]
        self.assertEqual(usage["total_tokens"], 256)
        drawn = {self.post(COMPLETIONS, prompt="Hello")["choices"][0]["text"] for _ in range(5)}
        self.assertGreater(len(drawn), 1)

    def test_several_prompts(self):
        self.serve()
        prompts = ["Hello", "a", "one two three"]
        lines = [self.locally(self.model, prompt, *DRAW) for prompt in prompts]
        answer = self.post(COMPLETIONS, prompt=prompts, **DRAWN)
        self.assertEqual(answer["choices"], [self.choice(line, index) for index, line in enumerate(lines)])
        self.assertEqual(answer["usage"], self.usage(*lines))
        refused = self.ask("POST", COMPLETIONS, {"prompt": ["a", "b" * 256], **DRAWN})
        self.assertEqual((refused.status, refused.json["error"]["code"], refused.json["error"]["param"]),
                         (400, "context_length_exceeded", "prompt"), refused.body)
        self.assertIn("prompt[1]: ", refused.json["error"]["message"])
        self.assert_nothing_left()

    def test_refusals(self):
        self.serve()
        question = {"role": "user", "content": "a"}
        for path, body, status, code, param in (
                (CHAT, {"messages": []}, 400, "invalid_value", "messages"),
                (CHAT, {"messages": [{**question, "role": "tool"}]}, 400, "invalid_value", "messages"),
                (CHAT, {"messages": [{**question, "content": [{"type": "image_url"}]}]}, 400, "invalid_value", "messages"),
                (CHAT, {"messages": [{**question, "content": "a" * 256}]}, 400, "context_length_exceeded", "messages"),
                (CHAT, {"messages": [question], "temperature": -1}, 400, "invalid_value", "temperature"),
                (CHAT, {"messages": [question], "seed": 0.5}, 400, "invalid_value", "seed"),
                (CHAT, {"messages": [question], "stop": ["s"] * 5}, 400, "invalid_value", "stop"),
                (CHAT, {"messages": [question], "stop": ""}, 400, "invalid_value", "stop"),
                (CHAT, {"messages": [question], "tools": [{}]}, 400, "invalid_value", "tools"),
                (CHAT, {"messages": [question], "stream": True, "temperature": -1}, 400, "invalid_value", "temperature"),
                (CHAT, {"messages": [question], "model": "gpt"}, 404, "model_not_found", "model"),
                ("/v1/embeddings", {"input": "a"}, 400, "unsupported_task", None)):
            answer = self.ask("POST", path, body)
            self.assertEqual(answer.status, status, (body, answer.body))
            error = answer.json["error"]
            self.assertEqual((error["code"], error["param"], error["type"]), (code, param, "invalid_request_error"), body)
        self.assert_nothing_left()

    def test_a_text_comes_as_it_is_written(self):
        self.serve()
        line = self.locally(self.model, HELLO, *DRAW)
        answer = self.ask("POST", CHAT, {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}, **DRAWN})
        self.assertEqual((answer.status, answer.headers["content-type"], answer.headers["cache-control"]),
                         (200, "text/event-stream", "no-cache"))
        *chunks, end, usage = events(answer.body)
        self.assertEqual({(chunk["id"], chunk["object"], chunk["model"], chunk["created"]) for chunk in (*chunks, end, usage)},
                         {(usage["id"], "chat.completion.chunk", "llama", usage["created"])})
        self.assertEqual((usage["choices"], usage["usage"]), ([], self.usage(line)))
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        self.assertEqual("".join(delta["content"] for delta in deltas), line["text"])
        self.assertEqual([delta.get("role") for delta in deltas], ["assistant"] + [None] * (len(deltas) - 1))
        self.assertEqual(end["choices"], [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": line["finish_reason"]}])
        self.assertEqual({chunk["usage"] for chunk in chunks}, {None})
        self.assert_nothing_left()

    def test_several_texts_come_as_they_are_written(self):
        self.serve()
        prompts = ["Hello", "a", "one two three"]
        chunks = events(self.ask("POST", COMPLETIONS, {"prompt": prompts, "stream": True, **DRAWN}).body)
        self.assertNotIn("usage", chunks[0])
        for index, prompt in enumerate(prompts):
            line = self.locally(self.model, prompt, *DRAW)
            own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
            self.assertEqual("".join(choice["text"] for choice in own), line["text"])
            self.assertEqual([choice["finish_reason"] for choice in own], [None] * (len(own) - 1) + [line["finish_reason"]])

    def begin(self, **body):
        """A stream of which the first event has come."""
        connection = self.send("POST", COMPLETIONS, {"prompt": "a", "stream": True, "max_tokens": LONG, **body})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        first = json.loads(answer.readline().removeprefix(b"data: "))
        self.assertEqual(answer.readline(), b"\n")
        return connection, answer, first["choices"][0]["text"]

    def test_events_come_before_the_end_and_a_client_that_leaves_ends_the_text(self):
        self.serve(self.endless())
        connection, answer, text = self.begin()
        self.assertGreater(len(text), 0)
        self.assertEqual(self.pending(self.client), 1)
        answer.close()
        connection.close()
        self.wait_until(lambda: self.pending(self.client) == 0, "the cancel")
        waits = self.send("POST", CHAT, {"messages": HELLO})
        self.wait_until(lambda: self.pending(self.client) == 1, "the text to be begun")
        waits.close()
        self.wait_until(lambda: self.pending(self.client) == 0, "the cancel")
        self.assert_nothing_left()

    def test_a_text_ends_at_its_deadline(self):
        self.serve(self.endless())
        late = self.ask("POST", COMPLETIONS, {"prompt": "a", "max_tokens": LONG}, {"X-Sluice-Timeout": "1"})
        self.assertEqual((late.status, late.json["error"]["code"]), (504, "expired"))
        answer = self.ask("POST", COMPLETIONS, {"prompt": "a", "max_tokens": LONG, "stream": True}, {"X-Sluice-Timeout": "1"})
        *chunks, error, nothing = answer.body.decode().split("\n\n")
        self.assertEqual((json.loads(error.removeprefix("data: "))["error"]["code"], nothing), ("expired", ""))
        self.assertGreater(len(chunks), 0)
        self.assert_nothing_left()

    def test_another_worker_goes_on(self):
        self.serve(self.endless())
        wishes = {"seed": 7, "max_tokens": 3000}
        connection, answer, text = self.begin(**wishes)
        self.worker.kill()
        self.start_daemon(self.server, model=self.model)
        rest = events(answer.read())
        connection.close()
        whole = text + "".join(chunk["choices"][0]["text"] for chunk in rest)
        self.assertEqual(whole, self.post(COMPLETIONS, prompt="a", **wishes)["choices"][0]["text"])

    def test_redis_forgets_all_meanwhile(self):
        """The text is written again from its beginning, and goes on where the client is."""
        self.serve(self.endless())
        connection, answer, text = self.begin(max_tokens=3000, stream_options={"include_usage": True})
        self.server.kill()
        self.server.start()
        *rest, usage = events(answer.read())
        connection.close()
        self.assertEqual(usage["usage"]["completion_tokens"], 3000)
        self.assertEqual(rest[-1]["choices"][0]["finish_reason"], "length")
        self.assertGreater(len(text), 0)

    def test_a_stop_of_the_gateway_is_an_event(self):
        self.serve(self.endless())
        self.gateway.kill()
        self.start_gateway(None, "--shutdown-timeout-ms", "100")
        connection, answer, text = self.begin()
        self.gateway.signal(15)
        last = answer.read().decode().split("\n\n")[-2]
        connection.close()
        self.assertEqual(json.loads(last.removeprefix("data: "))["error"]["code"], "service_unavailable")

    def test_tokens_are_taken_from_the_keys_bucket(self):
        digest = hashlib.sha256(b"secret").hexdigest()
        keys = self.write("keys", json.dumps({"name": "k", "sha256": digest, "tokens_per_minute": 150}))
        self.serve(self.llama("endless", eos_token_id=None, seed=4))
        self.start_gateway(None, "--keys", keys)
        key = {"Authorization": "Bearer secret"}
        self.wait_until(lambda: self.ask("GET", "/v1/models", headers=key).json["data"][0]["id"] == "endless", "the gateway to know the model")
        for stream, status in ((False, 200), (True, 200), (True, 429)):  # 95 and 5 each
            answer = self.ask("POST", COMPLETIONS, {"prompt": "Hello", "max_tokens": 95, "stream": stream}, key)
            self.assertEqual(answer.status, status, answer.body)

    def test_a_login_that_may_not_read_tokens(self):
        """The text comes whole, at its end."""
        guarded = self.start_guarded(name="guarded")
        with open(self.path("guarded.acl"), encoding="utf-8") as file:
            users = file.read()
        self.write("guarded.acl", users.replace(" %R~sluice:{test}:tokens:* +xread)", " +xread)"))
        guarded.client().acl_load()
        self.start_daemon(guarded, model=self.llama())
        self.start_gateway(guarded)
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        answer = self.ask("POST", COMPLETIONS, {"prompt": "Hello", "stream": True, **DRAWN})
        self.assertEqual(len(events(answer.body)), 2, answer.body)
        self.logged(self.gateway, "tokens_denied")

    def test_jobs_and_keys_of_calls(self):
        self.serve()
        line = self.locally(self.model, HELLO, *DRAW)
        job = self.ask("POST", CHAT, {"messages": HELLO, **DRAWN}, {"Prefer": "respond-async"})
        self.assertEqual(job.status, 202, job.body)
        answer = self.ask("GET", job.headers["location"] + "?wait=30")
        self.assertEqual(answer.json["choices"][0]["message"]["content"], line["text"])
        self.assertEqual(self.ask("GET", job.headers["location"]).body, answer.body)
        refused = self.ask("POST", CHAT, {"messages": HELLO, "stream": True}, {"Prefer": "respond-async"})
        self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "stream"))
        before = self.client.xinfo_stream(self.sender.stream)["entries-added"]
        first, second = (self.ask("POST", CHAT, {"messages": HELLO}, {"Idempotency-Key": "one"}).body for _ in range(2))
        self.assertEqual(first, second)
        again = self.ask("POST", CHAT, {"messages": HELLO, "stream": True}, {"Idempotency-Key": "two"})
        other = self.ask("POST", CHAT, {"messages": HELLO, "stream": True}, {"Idempotency-Key": "two"})
        self.assertEqual(*("".join(chunk["choices"][0]["delta"].get("content", "") for chunk in events(each.body)) for each in (again, other)))
        self.assertEqual(self.client.xinfo_stream(self.sender.stream)["entries-added"], before + 2)

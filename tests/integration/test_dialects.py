"""Each path of the gateway against a worker: what the queue computes is what the client reads."""
# ctest-cost: 20

import base64
import json
import struct

from gateway_case import GatewayCase

TEXTS = ["hello world", "the green music library", "red"]
PROMPTS = {"query": "find: ", "passage": "text: "}
ASYNC = {"Prefer": "respond-async"}


def packed(vectors):
    return [struct.pack(f"<{len(vector)}f", *vector) for vector in vectors]


class Dialects(GatewayCase):
    def serve(self, model):
        self.model = model
        self.start_daemon(self.server, model=model)
        self.start_gateway()
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")

    def post(self, path, **body):
        answer = self.ask("POST", path, body)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def local(self, task, *arguments):
        """Returns the lines of the local command."""
        source = self.write("in.txt", "".join(text + "\n" for text in TEXTS))
        result = self.run_sluice(task, "--model", self.model, "--precision", "f32", "--input", source, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def test_a_purpose_chooses_the_prompt(self):
        self.serve(self.make_model(prompts=PROMPTS))
        reference = self.reference(self.model)
        plain, query, passage = ([reference(prompt + text) for text in TEXTS] for prompt in ("", "find: ", "text: "))
        for wanted, fields in ((plain, {}), (query, {"input_type": "search_query"}), (passage, {"input_type": "search_document"}),
                               (plain, {"input_type": "clustering"})):
            answer = self.post("/v2/embed", texts=TEXTS, embedding_types=["float", "base64"], **fields)
            self.assertEqual(packed(answer["embeddings"]["float"]), wanted, fields)
            self.assertEqual([base64.b64decode(text) for text in answer["embeddings"]["base64"]], wanted, fields)
        for wanted, fields in ((query, {"input_type": "query"}), (passage, {"task": "retrieval.passage"}), (query, {"prompt_name": "query"})):
            data = self.post("/v1/embeddings", input=TEXTS, **fields)["data"]
            self.assertEqual(packed(item["embedding"] for item in data), wanted, fields)
        for path in ("/", "/embed"):
            self.assertEqual(packed(self.post(path, inputs=TEXTS)), plain)
            self.assertEqual(packed(self.post(path, inputs=TEXTS[0], prompt_name="query")), query[:1])
        self.assertEqual(packed(self.post("/v1/embed", texts=TEXTS)["embeddings"]), plain)
        info = self.ask("GET", "/info").json
        self.assertEqual((info["model_id"], info["model_type"], info["max_input_length"]), ("tiny", {"embedding": {}}, 64))
        refused = self.ask("POST", "/embed", {"inputs": "a", "prompt_name": "nope"})
        self.assertEqual((refused.status, refused.json["error"]), (422, "prompt_name: the model has no prompt of this name"))

    def test_a_purpose_waits_until_the_prompts_are_known(self):
        model = self.make_model(prompts=PROMPTS)
        self.start_gateway()
        body = {"texts": ["hello"], "input_type": "search_query"}
        early = self.ask("POST", "/v2/embed", body)
        self.assertEqual((early.status, early.headers.get("retry-after")), (503, "1"), early.body)
        self.start_daemon(self.server, model=model)
        self.wait_until(lambda: self.ask("POST", "/v2/embed", body).status == 200, "the gateway to know the model")
        answer = self.ask("POST", "/v2/embed", body).json
        self.assertEqual(packed(answer["embeddings"]["float"]), [self.reference(model)("find: hello")])

    def test_similarities_are_cosines(self):
        self.serve(self.make_model())
        first, *others = self.post("/embed", inputs=TEXTS)
        found = self.post("/similarity", inputs={"source_sentence": TEXTS[0], "sentences": TEXTS[1:]})
        for cosine, other in zip(found, others, strict=True):
            self.assertAlmostEqual(cosine, sum(a * b for a, b in zip(first, other)), places=6)

    def test_the_answer_of_a_job_is_without_the_texts(self):
        self.serve(self.make_model())
        body = {"texts": TEXTS, "embedding_types": ["float"]}
        job = self.ask("POST", "/v2/embed", body, ASYNC)
        answer = self.ask("GET", job.headers["location"] + "?wait=30")
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json["embeddings"], self.post("/v2/embed", **body)["embeddings"])
        self.assertEqual(answer.json["texts"], [])

    def test_ranks(self):
        self.serve(self.make_classifier())
        self.assertEqual(self.ask("GET", "/info").json["model_type"], {"reranker": {}})
        scores = [line["score"] for line in self.local("rerank", "--query", "red fox")]
        best = sorted(range(len(TEXTS)), key=lambda i: (-scores[i], i))
        ranks = self.post("/rerank", query="red fox", texts=TEXTS, return_text=True)
        self.assertEqual(ranks, [{"index": i, "text": TEXTS[i], "score": scores[i]} for i in best])
        for path in ("/v1/rerank", "/v2/rerank"):
            answer = self.post(path, query="red fox", documents=[*TEXTS[:2], {"text": TEXTS[2]}], top_n=2, return_documents=True)
            self.assertEqual(answer["results"], [{"index": i, "relevance_score": scores[i], "document": {"text": TEXTS[i]}}
                                                 for i in best[:2]])
            self.assertGreater(answer["meta"]["tokens"]["input_tokens"], 3)
        voyage = self.post("/v1/rerank", query="red fox", documents=TEXTS, top_k=1, truncation=True)
        self.assertEqual(voyage["data"], [{"index": best[0], "relevance_score": scores[best[0]]}])
        wrong = self.ask("POST", "/v1/embeddings", {"input": "a"})
        self.assertEqual((wrong.status, wrong.json["error"]["code"]), (400, "unsupported_task"))

    def test_tokens(self):
        """As the queue's own reply, also where a call becomes several requests, and as the OpenAPI document says."""
        self.serve(self.make_model())
        sender = self.producer(self.server)
        request = sender.submit_fields({"task": "tokenize", "inputs": json.dumps(TEXTS)})
        self.wait_finished(sender, [request])
        lists = json.loads(sender.reply(request)[b"tokens"])
        self.assertEqual(self.post("/tokenize", inputs=TEXTS), lists)
        self.assertEqual(self.post("/tokenize", inputs=TEXTS[0]), lists[:1])
        self.assertEqual(self.post("/tokenize", inputs=TEXTS, add_special_tokens=False), [each[1:-1] for each in lists])
        self.assertEqual(self.post("/tokenize", inputs=TEXTS * 200), lists * 200)
        self.assertEqual(self.post("/tokenize", inputs="é漢", add_special_tokens=False)[0][0]["text"], "é")
        refused = self.ask("POST", "/tokenize", {"inputs": "a", "prompt_name": "none"})
        self.assertEqual((refused.status, refused.json["error_type"]), (422, "Validation"))

    def test_labels(self):
        self.serve(self.make_classifier(labels=["no", 'maybe "so"', "ja, größer"]))
        lines, raw = self.local("classify"), self.local("classify", "--raw")
        self.assertEqual(self.post("/predict", inputs=TEXTS[0]), lines[0])
        self.assertEqual(self.post("/predict", inputs=[[text] for text in TEXTS]), lines)
        self.assertEqual(self.post("/predict", inputs=[[text] for text in TEXTS], raw_scores=True), raw)

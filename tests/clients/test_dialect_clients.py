"""Clients of OpenAI, TEI, Cohere and Voyage from PyPI, unmodified, against a gateway: vectors and texts are those of the commands."""
# ctest-cost: 60

import json
import struct
import subprocess

import installed
import process
from gateway_case import GatewayCase
from language_model import LanguageModels

TEXTS = ["hello world", "the green music library", "red"]
PROMPTS = {"query": "find: ", "document": "text: "}

HEAD = """
import json, sys
address, texts = sys.argv[1], json.loads(sys.argv[2])
say = lambda value: print("said", json.dumps(value))
"""

EMBED = HEAD + """
import cohere
client = cohere.ClientV2(api_key="none", base_url=address)
for kind in ("search_query", "search_document"):
    answer = client.embed(texts=texts, model="tiny", input_type=kind, embedding_types=["float"])
    say(answer.embeddings.float_)
say([answer.texts, answer.meta.billed_units.input_tokens > 3])
say(cohere.Client(api_key="none", base_url=address).embed(texts=texts, model="tiny", input_type="search_query").embeddings)
try:
    client.embed(texts=texts, model="huge", input_type="search_query")
except cohere.NotFoundError as error:
    say(error.body["message"])

from langchain_openai import OpenAIEmbeddings
chain = OpenAIEmbeddings(model="tiny", base_url=address + "/v1", api_key="none", check_embedding_ctx_length=False)
say(chain.embed_documents(texts))
say([chain.embed_query(text) for text in texts])

from llama_index.embeddings.openai import OpenAIEmbedding
index = OpenAIEmbedding(model_name="tiny", api_base=address + "/v1", api_key="none")
say(index.get_text_embedding_batch(texts))

from haystack.components.embedders import HuggingFaceAPIDocumentEmbedder, HuggingFaceAPITextEmbedder
from haystack import Document
tei = {"api_type": "text_embeddings_inference", "api_params": {"url": address}, "normalize": True}  # it sends false unless told so
documents = HuggingFaceAPIDocumentEmbedder(**tei).run([Document(content=text) for text in texts])["documents"]
say([document.embedding for document in documents])
embedder = HuggingFaceAPITextEmbedder(**tei)
say([embedder.run(text)["embedding"] for text in texts])

from huggingface_hub import InferenceClient
client = InferenceClient(address + "/embed")
say([client.feature_extraction(text)[0].tolist() for text in texts])
say([client.feature_extraction(text, prompt_name="query", truncate=True)[0].tolist() for text in texts])
say(InferenceClient(address + "/similarity").sentence_similarity(texts[0], other_sentences=texts))

import voyageai
client = voyageai.Client(api_key="none", base_url=address + "/v1")
say(client.embed(texts, model="tiny", input_type="query").embeddings)
say(client.embed(texts, model="tiny").embeddings)
"""

RERANK = HEAD + """
import cohere
for kind in (cohere.ClientV2, cohere.Client):
    answer = kind(api_key="none", base_url=address).rerank(model="tiny", query="red fox", documents=texts)
    say([[item.index, item.relevance_score] for item in answer.results])

from haystack import Document
from haystack.components.rankers import HuggingFaceTEIRanker
found = HuggingFaceTEIRanker(url=address, top_k=2).run("red fox", [Document(content=text) for text in texts])["documents"]
say([[texts.index(document.content), document.score] for document in found])

import voyageai
found = voyageai.Client(api_key="none", base_url=address + "/v1").rerank("red fox", texts, model="tiny")
say([[item.index, item.relevance_score] for item in found.results])
"""

TEXT = HEAD + """
from langchain_openai import ChatOpenAI, OpenAI
wishes = {"model": "llama", "base_url": address + "/v1", "api_key": "none", "temperature": 1, "seed": 5, "max_tokens": 24}
chat, text = ChatOpenAI(**wishes, stream_usage=True), OpenAI(**wishes)
said = chat.invoke(texts[0])
say([said.content, "".join(chunk.content for chunk in chat.stream(texts[0])), said.usage_metadata["total_tokens"]])
say([text.invoke(texts[0]), "".join(text.stream(texts[0]))])
say(text.batch(texts))
say(type(chat.invoke([("human", texts[0]), said, ("human", [{"type": "text", "text": "a"}])]).content).__name__)
"""


def packed(vectors):
    return [struct.pack(f"<{len(vector)}f", *vector) for vector in vectors]


class DialectClients(LanguageModels, GatewayCase):
    def serve(self, model, *flags):
        self.python = installed.python_of("venv-dialects", "clients/requirements-dialects.txt")
        self.start_daemon(self.server, model=model)
        self.start_gateway(None, *flags)
        self.wait_until(lambda: self.ask("GET", "/health").status == 200, "the gateway to see the worker")
        self.address = f"http://127.0.0.1:{self.gateway.port}"

    def run_program(self, *argv):
        done = subprocess.run([self.python, *argv], capture_output=True, text=True, timeout=300, check=False, cwd=self.directory,
                              env=process.clean_environment({"PYTHONPATH": "", "HF_HUB_OFFLINE": "0", "HAYSTACK_TELEMETRY_ENABLED": "False"}))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def run_python(self, code):
        lines = self.run_program("-c", code, self.address, json.dumps(TEXTS)).splitlines()
        return iter([json.loads(line.removeprefix("said ")) for line in lines if line.startswith("said ")])

    def test_vectors(self):
        model = self.make_model(prompts=PROMPTS)
        reference = self.reference(model)
        plain, query, document = ([reference(prompt + text) for text in TEXTS] for prompt in ("", "find: ", "text: "))
        self.serve(model)
        said = self.run_python(EMBED)
        self.assertEqual(packed(next(said)), query)  # Cohere
        self.assertEqual(packed(next(said)), document)
        self.assertEqual(next(said), [TEXTS, True])
        self.assertEqual(packed(next(said)), query)
        self.assertIn("tiny", next(said))
        for _ in range(2):  # LangChain
            self.assertEqual(packed(next(said)), plain)
        self.assertEqual(packed(next(said)), plain)  # LlamaIndex
        for _ in range(2):  # Haystack
            self.assertEqual(packed(next(said)), plain)
        self.assertEqual(packed(next(said)), plain)  # huggingface_hub
        self.assertEqual(packed(next(said)), query)
        self.assertAlmostEqual(next(said)[0], 1, places=6)
        self.assertEqual(packed(next(said)), query)  # Voyage
        self.assertEqual(packed(next(said)), plain)

    def test_ranks(self):
        model = self.make_classifier("tiny")
        source = self.write("in.txt", "".join(text + "\n" for text in TEXTS))
        lines = self.run_sluice("rerank", "--model", model, "--precision", "f32", "--input", source, "--query", "red fox").stdout
        scores = [json.loads(line)["score"] for line in lines.splitlines()]
        best = [[i, scores[i]] for i in sorted(range(len(TEXTS)), key=lambda i: (-scores[i], i))]
        self.serve(model)
        said = self.run_python(RERANK)
        self.assertEqual([next(said), next(said)], [best, best])  # Cohere
        self.assertEqual(next(said), best[:2])  # Haystack
        self.assertEqual(next(said), best)  # Voyage

    def test_texts(self):
        model = self.llama()
        self.serve(model)
        said = self.run_python(TEXT)  # LangChain
        draw = ("--temperature", "1", "--seed", "5", "--max-tokens", "24")
        chat = self.locally(model, [{"role": "user", "content": TEXTS[0]}], *draw)
        written = [self.locally(model, text, *draw)["text"] for text in TEXTS]
        self.assertEqual(next(said), [chat["text"]] * 2 + [chat["prompt_tokens"] + chat["completion_tokens"]])
        self.assertEqual(next(said), written[:1] * 2)
        self.assertEqual(next(said), written)
        self.assertEqual(next(said), "str")

    def test_the_openapi_document(self):
        """Its form is right, and answers are as it says, to bodies that follow it and to those that do not: never a 5xx. A body that
        follows it may still be refused, because the schema does not know the queue: its models and their dimensions."""
        self.serve(self.make_model(), "--data", self.path("data"))
        document = self.write("openapi.json", self.ask("GET", "/openapi.json").body.decode())
        self.run_program("-m", "openapi_spec_validator", document)
        checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
        said = self.run_program("-m", "schemathesis.cli", "run", self.address + "/openapi.json", "--checks", checks, "--seed", "1",
                                "--phases", "coverage,fuzzing", "--max-examples", "20", "--generation-database", "none", "--no-color")
        self.assertRegex(said, r"Tested: +[23]\d")
        self.assertTrue(self.gateway.running())

"""The recipes of docs/producers.md and the snippets of README.md, as they stand there and with the rights of config/acl/producer.acl: each
with an answer, with a bad request, in class high, and without a worker; Python's with the redis-py of Debian, an old and the newest one of
PyPI."""
# ctest-cost: 30

import json
import os
import pathlib
import subprocess
import sys

import process
from case import SluiceCase

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "docs"))
from blocks import code_blocks, only_block, put_in  # noqa: E402

RECIPES = (SOURCE / "docs/producers.md").read_text()
README = (SOURCE / "README.md").read_text()

# What a test lets a recipe do: a call a line, the answers as JSON.
PYTHON_CHECK = """
import sys
admin = redis.Redis(unix_socket_path=sys.argv[1], username="admin", password="pw")
vector = embed("hello world", seconds=60)
print(json.dumps([list(embed("hello world", seconds=60, priority="high")) == list(vector), list(vector)]))
try:
    embed("hello", seconds=60, dims="none")
except EmbeddingError as error:
    print(json.dumps([error.code, str(error), error.retryable]))
print(json.dumps([list(each) for each in embed_many(["hello", "world"], seconds=60)]))
print(json.dumps(sorted((number, list(vector)) for number, vector in embed_each(["hello", "world"], seconds=60))))
for id in ("1795252518106-0", "gr\u00f6\u00dfe 42", 42):
    try:
        print(json.dumps(len(embed("hello", seconds=60, id=id))))
    except EmbeddingError as error:
        print(json.dumps(error.code))
try:
    embed("hello", seconds=60, encoding="f16")
except ValueError as error:
    print(json.dumps(str(error)[-24:]))
print(json.dumps([list(embed_once("hello")) == list(embed_once("hello")), admin.xlen(QUEUE + "requests")]))
print(json.dumps(rerank("red", ["hello", "the red world", "blue", "red"], best=2, seconds=60)))
try:
    rerank("", ["hello"], seconds=60)
except EmbeddingError as error:
    print(json.dumps(error.code))
QUEUE = "sluice:{nobody}:"
begin = time.monotonic()
try:
    embed("hello", seconds=2.5)
except TimeoutError as error:
    print(json.dumps([str(error)[:11], time.monotonic() - begin < 20, admin.xlen(QUEUE + "requests")]))
"""

ASYNCIO_CHECK = """
import json
async def main():
    print(json.dumps(list(await embed("hello world", seconds=60))))
    many = await asyncio.gather(*(embed(f"hello {number}", seconds=60) for number in range(150)))
    print(json.dumps([len({vector.tobytes() for vector in many}), len(many[0])]))
    try:
        await embed("", seconds=60)
    except RuntimeError as error:
        print(json.dumps(str(error)))
    global QUEUE
    QUEUE = "sluice:{nobody}:"
    try:
        await embed("hello", seconds=2.5)
    except TimeoutError as error:
        print(json.dumps(str(error)[:11]))
asyncio.run(main())
"""

NODE_CHECK = """
(async () => {
  const embedder = await new Embedder({ socket: { path: process.argv[2] } }).connect();
  const vector = await embedder.embed("hello world", { seconds: 60 });
  const high = await embedder.embed("hello world", { seconds: 60, priority: "high" });
  console.log(JSON.stringify([JSON.stringify(high) === JSON.stringify(vector), vector]));
  await embedder.embed("hello", { seconds: 60, dims: "none" }).catch((error) =>
    console.log(JSON.stringify([error.code, error.message, error.retryable])));
  await embedder.redis.ping();
  for (const id of ["1795252518106-0", "gr\u00f6\u00dfe 42", 42])
    console.log(JSON.stringify(await embedder.embed("hello world", { seconds: 60, id }).then((found) => found.length, (error) => error.code)));
  const app = { get: (path, handler) => (app.handler = handler) };
  HANDLER
  const response = { code: 200, status(code) { this.code = code; return this; }, json(body) { this.body = body; } };
  await app.handler({ query: { text: "hello world" } }, response);
  console.log(JSON.stringify([response.code, JSON.stringify(response.body.vector) === JSON.stringify(vector)]));
  await app.handler({ query: { text: "" } }, response);
  console.log(JSON.stringify([response.code, response.body.code]));
  QUEUE_NOBODY
  await embedder.embed("hello", { seconds: 2.5 }).catch((error) => console.log(JSON.stringify(error.message.slice(0, 11))));
  await embedder.close();
})().catch((error) => { console.error(error); process.exit(1); });
"""


class Producers(SluiceCase):
    queue = "default"

    def setUp(self):
        super().setUp()
        self.server = self.start_guarded("ranks", "nobody", everybody="producer")
        self.start_daemon(self.server)
        self.reference_of = self.reference()
        self.reference_of.learn(["hello world", "hello", "world"])

    def run_code(self, name, code, argv, environment=None):
        """The lines that the code prints, each of them JSON."""
        result = subprocess.run([*argv, self.write(name, code), self.server.socket], capture_output=True, timeout=300, check=False,
                                env=process.clean_environment(environment))
        self.assertEqual(result.returncode, 0, result.stderr.decode("utf-8", "replace"))
        return [json.loads(line) for line in result.stdout.decode().splitlines()]

    def floats(self, text):
        import struct
        data = self.reference_of(text)
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def serve_reranker(self, query, documents):
        """Returns what it will say of these: documents with their scores, the best first."""
        directory = self.make_classifier()
        self.start_daemon(self.server, model=directory, queue="ranks")
        result = self.run_sluice("rerank", "--model", directory, "--precision", "f32", "--query", query,
                                 "--input", self.write("documents", "\n".join(documents)))
        scores = [json.loads(line)["score"] for line in result.stdout.splitlines()]
        return [list(pair) for pair in sorted(zip(documents, scores), key=lambda pair: -pair[1])]

    def check_python(self, path):
        """`path`: where that version of redis-py is; None: Debian's."""
        environment = {"PYTHONPATH": str(path or "")}
        best = self.serve_reranker("red", ["hello", "the red world", "blue", "red"])[:2]
        blocks = [code for language, code in code_blocks(RECIPES) if language == "python"]
        first = put_in(blocks[0], "redis.Redis()", f"redis.Redis(unix_socket_path={self.server.socket!r})")
        said = self.run_code("recipes.py", first + "".join(blocks[1:5]) + PYTHON_CHECK, ["/usr/bin/python3"], environment)
        self.assertEqual(said[0], [True, self.floats("hello world")])
        self.assertEqual((said[1][0], said[1][2]), ("bad_request", False))
        self.assertIn("dims", said[1][1])
        self.assertEqual(said[2], [self.floats("hello"), self.floats("world")])
        self.assertEqual(said[3], [[0, self.floats("hello")], [1, self.floats("world")]])
        self.assertEqual(said[4:7], ["bad_id", "bad_id", len(self.floats("hello"))])  # the first two are answered under the name
        self.assertEqual(said[7], "is not in f32 but in f16")
        self.assertEqual(said[8], [True, 0])
        self.assertEqual(said[9], best)
        self.assertEqual(said[10], "bad_request")
        self.assertEqual(said[11], ["no reply to", True, 1])  # the request waits for a worker

        said = self.run_code("asynchronous.py", self.asynchronous() + ASYNCIO_CHECK, ["/usr/bin/python3"], environment)
        self.assertEqual(said, [self.floats("hello world"), [150, len(self.floats("hello"))], said[2], "no reply to"])
        self.assertIn("text", said[2])

    def asynchronous(self):
        return put_in(only_block(RECIPES, "import redis.asyncio"), "redis://127.0.0.1:6379", f"unix://{self.server.socket}")

    def installed(self, folder, requirements):
        """Where a Python environment has its packages."""
        python = subprocess.run([SOURCE / "tests/support/venv.sh", SOURCE / "build" / folder, SOURCE / "tests" / requirements],
                                capture_output=True, check=True, timeout=300).stdout.decode().strip()
        return next(pathlib.Path(python).parents[1].glob("lib/python3*/site-packages"))

    def newest(self):
        return self.installed("venv", "requirements.txt")

    def test_python_with_debians_redis_py(self):
        self.check_python(None)

    def test_python_with_redis_py_5(self):
        self.check_python(self.installed("venv-redis-py-5", "clients/requirements-redis-py-5.txt"))

    def test_python_with_redis_py_8(self):
        self.check_python(self.newest())

    def test_django(self):
        """The views, with the few words of Django that they use."""
        blocks = [code for language, code in code_blocks(RECIPES) if language == "python"]
        self.write("embeddings.py", put_in(blocks[0], "redis.Redis()", f"redis.Redis(unix_socket_path={self.server.socket!r})"))
        os.mkdir(self.path("django"))
        self.write("django/http.py", "class JsonResponse:\n    def __init__(self, body, status=200):\n"
                   "        self.body, self.status = body, status\n")
        check = """
import json, time, types
request = types.SimpleNamespace(POST={"text": "hello world"})
made = submit(request)
while (answer := result(request, made.body["id"])).status == 202:
    time.sleep(0.01)
print(json.dumps([made.status, answer.status, answer.body["vector"]]))
request.POST = {"text": ""}
made = submit(request)
while (answer := result(request, made.body["id"])).status == 202:
    time.sleep(0.01)
print(json.dumps([answer.status, answer.body["code"]]))
"""
        said = self.run_code("views.py", only_block(RECIPES, "from django.http") + check, ["/usr/bin/python3"],
                             {"PYTHONPATH": self.directory})
        self.assertEqual(said, [[202, 200, self.floats("hello world")], [422, "bad_request"]])

    def test_node(self):
        handler = only_block(RECIPES, 'app.get("/embedding"')
        check = NODE_CHECK.replace("HANDLER", handler).replace("QUEUE_NOBODY", "queue = 'sluice:{nobody}:';")
        code = only_block(RECIPES, "class Embedder").replace('const QUEUE = "', 'let queue = "').replace("QUEUE", "queue")
        said = self.run_code("recipes.js", code + check, ["/usr/bin/nodejs"], {"NODE_PATH": "/usr/share/nodejs"})
        self.assertTrue(said[0][0])
        self.assertEqual(len(said[0][1]), len(self.floats("hello world")))
        for one, other in zip(said[0][1], self.floats("hello world")):
            self.assertAlmostEqual(one, other, places=6)
        self.assertEqual((said[1][0], said[1][2]), ("bad_request", False))
        self.assertEqual(said[2:5], ["bad_id", "bad_id", len(said[0][1])])
        self.assertEqual(said[5:], [[200, True], [422, "bad_request"], "no reply to"])

    def test_readme(self):
        python = put_in(only_block(README, "import array, redis"), "redis.Redis()", f"redis.Redis(unix_socket_path={self.server.socket!r})")
        said = self.run_code("readme.py", python + "import json\nprint(json.dumps(list(vector)))\n", ["/usr/bin/python3"],
                             {"PYTHONPATH": str(self.newest())})
        self.assertEqual(said, [self.floats("hello world")])
        node = only_block(README, "createClient").replace('import { createClient } from "redis";', 'const { createClient } = require("redis");')
        node = put_in(node, "createClient()", "createClient({ socket: { path: process.argv[2] } })")
        said = self.run_code("readme.js", "(async () => {" + node + "console.log(vector.length); process.exit(0); })()", ["/usr/bin/nodejs"],
                             {"NODE_PATH": "/usr/share/nodejs"})
        self.assertEqual(said, [len(self.floats("hello world"))])

"""Runs the recipes of docs/producers.md and the snippets of README.md unchanged, with the rights of config/acl/producer.acl; Python's with
Debian's redis-py, an old one and the newest one of PyPI. test_installed.py tests the clients that some of them use."""
# ctest-cost: 30

import json
import os
import pathlib
import re
import struct
import subprocess
import sys

import installed
import process
from case import SluiceCase

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "docs"))
from blocks import code_blocks, only_block, put_in  # noqa: E402

RECIPES = (SOURCE / "docs/producers.md").read_text()
README = (SOURCE / "README.md").read_text()

# Calls of the recipes, with answers as JSON, one a line.
PLAIN_CHECK = """
import json, sys
admin = redis.Redis(unix_socket_path=sys.argv[1], username="admin", password="pw")
vector = embed("hello world", seconds=60)
print(json.dumps([list(embed("hello world", seconds=60, priority="high")) == list(vector), list(vector)]))
try:
    embed("hello", seconds=60, dims="none")
except EmbeddingError as error:
    print(json.dumps([error.code, str(error), error.retryable]))
for id in ("1795252518106-0", "gr\u00f6\u00dfe 42", 42):
    try:
        print(json.dumps(len(embed("hello", seconds=60, id=id))))
    except EmbeddingError as error:
        print(json.dumps(error.code))
try:
    embed("hello", seconds=60, encoding="f16")
except ValueError as error:
    print(json.dumps(str(error)[-24:]))
QUEUE = "sluice:{nobody}:"
begin = time.monotonic()
try:
    embed("hello", seconds=2.5)
except TimeoutError as error:
    print(json.dumps([str(error)[:11], time.monotonic() - begin < 20, admin.xlen(QUEUE + "requests")]))
"""

CLIENT_CHECK = """
import json, sys
admin = redis.Redis(unix_socket_path=sys.argv[1], username="admin", password="pw")
print(json.dumps([list(vector), [list(each) for each in vectors]]))
print(json.dumps([list(embed_once("hello")) == list(embed_once("hello")), admin.xlen("sluice:{default}:requests")]))
print(json.dumps(rerank("red", ["hello", "the red world", "blue", "red"], best=2)))
"""

ASYNCIO_CHECK = """
import asyncio, json
async def main():
    print(json.dumps(list(await embed("hello world", seconds=60))))
    many = await asyncio.gather(*(embed(f"hello {number}", seconds=60) for number in range(150)))
    print(json.dumps([len({vector.tobytes() for vector in many}), len(many[0])]))
    try:
        await embed("", seconds=60)
    except RuntimeError as error:
        print(json.dumps("text" in str(error)))
asyncio.run(main())
"""

NODE_CHECK = """
console.log(JSON.stringify([Array.from(vector), vectors.map((each) => Array.from(each))]));
const app = { get: (path, handler) => (app.handler = handler) };
HANDLER
const ask = async (text, on = () => {}) => {
  const response = { code: 200, status(code) { this.code = code; return this; }, json(body) { this.body = body; }, on };
  await app.handler({ query: { text } }, response);
  return response;
};
const { code, body } = await ask("hello world");
console.log(JSON.stringify([code, body.vector]));
for (const answer of [await ask(""), await ask(["a", "b"]), await ask(undefined), await ask("hello world", (event, act) => event === "close" && act())])
  console.log(JSON.stringify([answer.code, answer.body.code, answer.body.message]));
"""

DJANGO_SITE = """
import json, time, unittest.mock
import django.conf, django.test
from django.urls import path
django.conf.settings.configure(SECRET_KEY="of this test", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
urlpatterns = [path("vectors", submit), path("vectors/<id>", result), path("vectors/<id>/cancel", cancel)]
site = django.test.Client()
"""

DJANGO_CHECK = DJANGO_SITE + """

def ask(text):
    made = site.post("/vectors", {"text": text})
    while True:
        answer = site.get("/vectors/" + made.json()["id"])
        if answer.status_code != 202:
            return made, answer
        time.sleep(0.01)


made, answer = ask("hello world")
print(json.dumps([made.status_code, answer.status_code, answer.json()]))
print(json.dumps(ask("")[1].status_code))
id = made.json()["id"]
print(json.dumps([site.get("/vectors/" + other).status_code for other in ("nothing", "1795252518106-0", id[:-1], id.partition(":")[0])]))
with unittest.mock.patch("time.time", return_value=time.time() + KEPT_S + 1):
    print(json.dumps(site.get("/vectors/" + id).status_code))
client.__init__(redis.Redis(), "nobody")
waits = site.post("/vectors", {"text": "hello"}).json()["id"]
print(json.dumps([site.get("/vectors/" + waits).status_code, *(site.post(f"/vectors/{one}/cancel").status_code for one in (waits, "nothing"))]))
"""

DJANGO_AWAY_CHECK = DJANGO_SITE + """
begin, id = time.monotonic(), signing.dumps(["a", "1-0"])
answers = site.post("/vectors", {"text": "hello"}), site.get("/vectors/" + id), site.post(f"/vectors/{id}/cancel")
print(json.dumps([[(answer.status_code, answer.json()) for answer in answers], time.monotonic() - begin]))
"""


class Producers(SluiceCase):
    queue = "default"

    def setUp(self):
        super().setUp()
        self.server = self.start_guarded("ranks", "nobody", everybody="producer")
        self.start_daemon(self.server)
        self.reference_of = self.reference()
        self.reference_of.learn(["hello world", "hello", "world"])

    def run_lines(self, name, code, argv, environment=None):
        """The lines that the code prints."""
        result = subprocess.run([*argv, self.write(name, code), self.server.socket], capture_output=True, timeout=300, check=False,
                                env=process.clean_environment(environment))
        self.assertEqual(result.returncode, 0, result.stderr.decode("utf-8", "replace"))
        return result.stdout.decode().splitlines()

    def run_code(self, *how):
        """Each line is JSON."""
        return [json.loads(line) for line in self.run_lines(*how)]

    def floats(self, text):
        data = self.reference_of(text)
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def serve_reranker(self, query, documents):
        """Returns the expected answer for these: documents with their scores, the best first."""
        directory = self.make_classifier()
        self.start_daemon(self.server, model=directory, queue="ranks")
        result = self.run_sluice("rerank", "--model", directory, "--precision", "f32", "--query", query,
                                 "--input", self.write("documents", "\n".join(documents)))
        scores = [json.loads(line)["score"] for line in result.stdout.splitlines()]
        return [list(pair) for pair in sorted(zip(documents, scores), key=lambda pair: -pair[1])]

    def python_blocks(self):
        """The recipes are run as the page has them, except for the address of this server."""
        blocks = [code for language, code in code_blocks(RECIPES) if language == "python"]
        return [re.sub(r"\bRedis\((?!connection_pool)", f"Redis(unix_socket_path={self.server.socket!r}, ", code) for code in blocks]

    def check_python(self, path):
        """`path`: the folder of that version of redis-py; None: Debian's."""
        _, client = installed.install_python()
        environment = {"PYTHONPATH": os.pathsep.join([client, str(path or "")])}
        texts = ["a red fox", "a blue dog"]
        self.reference_of.learn(texts)
        best = self.serve_reranker("red", ["hello", "the red world", "blue", "red"])[:2]
        plain, calls, once, rerank, plain_asynchronous, asynchronous, _ = self.python_blocks()
        said = self.run_code("plain.py", plain + PLAIN_CHECK, ["/usr/bin/python3"], environment)
        self.assertEqual(said[0], [True, self.floats("hello world")])
        self.assertEqual((said[1][0], said[1][2]), ("bad_request", False))
        self.assertIn("dims", said[1][1])
        self.assertEqual(said[2:5], ["bad_id", "bad_id", len(self.floats("hello"))])  # the first two are answered under the name
        self.assertEqual(said[5], "is not in f32 but in f16")
        self.assertEqual(said[6], ["no reply to", True, 1])  # the request waits for a worker

        said = self.run_lines("client.py", calls + once + rerank + CLIENT_CHECK, ["/usr/bin/python3"], environment)
        self.assertEqual(sorted(said[:2]), [f"{number} {self.floats(text)[0]}" for number, text in enumerate(texts)])
        self.assertEqual(json.loads(said[2]), [self.floats("hello world"), [self.floats(text) for text in texts]])
        self.assertEqual(json.loads(said[3]), [True, 0])
        self.assertEqual(json.loads(said[4]), best)

        plain_asynchronous = put_in(plain_asynchronous, "redis://127.0.0.1:6379", f"unix://{self.server.socket}")
        said = self.run_code("plain_asynchronous.py", plain_asynchronous + ASYNCIO_CHECK, ["/usr/bin/python3"], environment)
        self.assertEqual(said, [self.floats("hello world"), [150, len(self.floats("hello"))], True])

        said = self.run_lines("asynchronous.py", asynchronous + "asyncio.run(main())\n", ["/usr/bin/python3"], environment)
        self.assertEqual(sorted(said[:2]), [f"{number} {self.floats(text)[0]}" for number, text in enumerate(texts)])
        self.assertRegex(said[2], r"^\[\([01], -?\d.*\)\]$")

    def test_python_with_debians_redis_py(self):
        self.check_python(None)

    def test_python_with_redis_py_5(self):
        self.check_python(installed.packages_of(installed.python_of("venv-redis-py-5", "clients/requirements-redis-py-5.txt")))

    def test_python_with_redis_py_8(self):
        self.check_python(installed.packages_of(installed.clients_python()))

    def test_django(self):
        """The views, in Django itself."""
        _, client = installed.install_python()
        recipe = self.python_blocks()[-1]
        code = recipe + DJANGO_CHECK.replace("redis.Redis()", f"redis.Redis(unix_socket_path={self.server.socket!r})")
        said = self.run_code("views.py", code, [installed.clients_python()], {"PYTHONPATH": client})
        self.assertEqual(said, [[202, 200, {"vector": self.floats("hello world")}], 422, [404] * 4, 404, [202, 202, 404]])
        server = self.server.client()
        (asked, _), = server.xrange("sluice:{nobody}:requests")
        self.assertEqual([fields for _, fields in server.xrange("sluice:{nobody}:control")], [{b"cancel": asked}])
        code = put_in(recipe, self.server.socket, self.path("nothing")) + DJANGO_AWAY_CHECK
        (answers, seconds), = self.run_code("away.py", code, [installed.clients_python()], {"PYTHONPATH": client})
        self.assertEqual(answers, [[503, {"code": "unavailable"}]] * 3)
        self.assertLess(seconds, 20)

    def run_module(self, name, code):
        """Runs a module unchanged, except for the address of this server; it has to end by itself."""
        if not os.path.exists(self.path("node_modules")):
            installed.install_node(self.directory)
        return self.run_lines(name, put_in(code, "createClient()", "createClient({ socket: { path: process.argv[2] } })"), ["/usr/bin/nodejs"],
                              {"NODE_PATH": "/usr/share/nodejs"})

    def assert_near(self, vector, text):
        """Redis and Node write a 32-bit float with different digits in JSON."""
        self.assertEqual([struct.pack("<f", value) for value in vector], [struct.pack("<f", value) for value in self.floats(text)])

    def test_node(self):
        texts = ["a red fox", "a blue dog"]
        self.reference_of.learn(texts)
        ranking = self.serve_reranker("red", texts)
        plain, calls, handler = [code for language, code in code_blocks(RECIPES) if language == "js"]
        self.assertEqual(self.run_module("plain.mjs", plain), [str(len(self.floats("hello world")))])
        ends = "await Promise.all([client.close()"
        said = self.run_module("recipes.mjs", put_in(calls, ends, NODE_CHECK.replace("HANDLER", handler) + ends))
        self.assertEqual([line.split()[0] for line in sorted(said[:2])], ["0", "1"])
        self.assertRegex(said[2], rf"^\[ {{ index: {texts.index(ranking[0][0])}, ")
        vector, vectors = json.loads(said[3])
        for floats, text in zip([vector, *vectors], ["hello world", *texts], strict=True):
            self.assert_near(floats, text)
        code, vector = json.loads(said[4])
        self.assertEqual(code, 200)
        self.assert_near(vector, "hello world")
        answers = [json.loads(line) for line in said[5:]]
        self.assertEqual([answer[0] for answer in answers], [422, 400, 400, 503])
        self.assertEqual(answers[0][1], "bad_request")
        self.assertEqual([answer[2] for answer in answers[1:]], ["one text is a string (embedMany takes several), not an array",
                         "one text is a string (embedMany takes several), not undefined", "This operation was aborted"])

    def test_readme(self):
        python = put_in(only_block(README, "import array, redis"), "redis.Redis()", f"redis.Redis(unix_socket_path={self.server.socket!r})")
        said = self.run_code("readme.py", python + "import json\nprint(json.dumps(list(vector)))\n", ["/usr/bin/python3"],
                             {"PYTHONPATH": str(installed.packages_of(installed.clients_python()))})
        self.assertEqual(said, [self.floats("hello world")])
        said = self.run_module("readme.mjs", only_block(README, "createClient") + "console.log(vector.length);\n")
        self.assertEqual(said, [str(len(self.floats("hello world")))])

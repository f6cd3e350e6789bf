"""The clients of tools/clients, installed as a user installs them: Python's wheel on the redis-py of Debian and the newest one,
Node's module on Debian's node-redis."""
# ctest-cost: 30

import asyncio
import contextlib
import importlib
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
import zipfile

import installed
import process
import redis
import redis.asyncio
from case import SluiceCase
from proxy import Proxy

ALL_OF_NODE = """
import { createClient } from "redis";
import { Client, SluiceError, TimeoutError, vectors } from "sluice-client";

const say = (value) => console.log(JSON.stringify(value));
const error = (promise) => promise.then((value) => ({ value }), (e) =>
  ({ name: e.name, message: e.message, code: e.code, retryable: e.retryable, index: e.index }));
const redis = createClient({ socket: { path: process.argv[2] } });
await redis.connect();
const client = new Client(redis, { queue: "test" });

const vector = await client.embed("hello world");
say([vector instanceof Float32Array, ...vector]);
say(await Promise.all(["high", "low"].map(async (priority) => [...await client.embed("hello world", { priority })].join() === [...vector].join())));
say((await client.embedMany(["hello", "world", "hello world", "hello", "world"])).map((each) => [...each]));
say([await client.embedMany([]), await client.rerank("red", [])]);
say(await error(client.embed("hello", { dims: -1 })));
say(await error(client.embedMany(["hello", "hello", "hello", ""])));
say(await error(client.embed("hello", { id: "1795252518106-0" })));
say((await client.embed("hello", { id: "order-42" })).length);
say([vectors(await client.read("order-42")).length, await client.read("nobody")]);
const each = [];
for await (const { number, vector, error } of client.embedEach(["hello", "", "world"])) each[number] = vector ? [...vector] : error.code;
say(each);
const many = await Promise.all(Array.from({ length: 200 }, (_, n) => client.embed(`hello ${n}`)));
say([many.length, new Set(many.map(String)).size]);
const ranks = new Client(redis, { queue: "ranks" });
say(await ranks.rerank("red", ["hello", "the red world", "blue", "red"], { best: 3 }));
const labels = new Client(redis, { queue: "labels" });
say(await labels.classify("hello"));
const nobody = new Client(redis, "nobody");
say(await error(nobody.embed("hello", { timeout: 0.5 })));
const left = new AbortController();
const abandoned = error(nobody.embed("hello", { signal: left.signal }));
setTimeout(() => left.abort(new Error("the visitor left")), 100);
say(await abandoned);
say(await error(nobody.embed("hello", { signal: left.signal })));
say((await client.embed("hello", { truncate: false, dims: undefined, "x-own": "1" })).length);
const wrong = [() => nobody.embed(["hello", "world"]), () => nobody.embed(), () => nobody.embed(null), () => nobody.embed(5), () => nobody.classify(["hello"]),
  () => nobody.embedMany("hello"), () => nobody.embedMany(["hello", undefined]), () => nobody.embedEach("hello").next(), () => nobody.rerank("red", "hello"),
  () => nobody.rerank(undefined, ["hello"]), () => nobody.enqueue(null), () => nobody.enqueue([5]), () => nobody.embed("hello", { timeuot: 1 }),
  () => nobody.embed("hello", { encoding: "json" }), () => nobody.embed("hello", { tenant: null }), () => nobody.embed("hello", { priority: "urgent" }),
  () => nobody.wait("order-42"), () => nobody.cancel("order-42"), () => nobody.read({}), async () => new Client(redis, { quue: "nobody" }),
  async () => new Client(redis, "No Such")];
for (const each of wrong) say(await error((async () => each())()));
await Promise.all([client, ranks, labels, nobody].map((each) => each.close()));
await redis.quit();
"""

USES_PYTHON = """
import array
import asyncio
import redis
import redis.asyncio
from sluice_client import AsyncClient, Client, SluiceError

client = Client(redis.Redis())
vector: array.array[float] = client.embed("hello", priority="high", dims=3, id="a")
many: list[array.array[float]] = client.embed_many(["hello"], timeout=3)
ranking: list[tuple[int, float]] = client.rerank("query", ["a"], best=1)
request = client.enqueue(["a", "b"], task="rerank", query="c", expires_in=1000, timeout=1, truncate=True)
client.cancel(request)


async def main() -> None:
    other = AsyncClient(redis.asyncio.Redis(), "queue")
    async for number, either in other.embed_each(["a"]):
        print(number + 1, either.code if isinstance(either, SluiceError) else either[0])
    labels: list[tuple[str, float]] = await other.classify("hello")
    print(labels[0][0])
"""

MISUSES_PYTHON = ('client.embed("hello", priority="hgih")', 'client.embed("hello", dims="3")', 'client.embed("hello", dim=3)',
                  'client.embed("hello", encoding="json")', 'client.embed_many("a", id="b")', "client.cancel(request.id)")

# Calls of a client, and what their TypeError or ValueError says.
WRONG_PYTHON = (
    (lambda client: client.embed(["hello", "world"]), "one text is a str (embed_many takes several), not list"),
    (lambda client: client.embed(("hello",)), "embed_many takes several"),
    (lambda client: client.embed(None), "not NoneType"),
    (lambda client: client.embed(b"hello"), "not bytes"),
    (lambda client: client.classify(["hello"]), "not list"),
    (lambda client: client.rerank(None, ["hello"]), "not NoneType"),
    (lambda client: client.rerank("red", "hello"), "several texts are a list of str, not str"),
    (lambda client: client.embed_many("hello"), "several texts are a list of str, not str"),
    (lambda client: client.embed_many(["hello", None]), "not NoneType"),
    (lambda client: client.enqueue(None), "several texts are a list of str, not NoneType"),
    (lambda client: client.enqueue(["hello", b"world"]), "not bytes"),
    (lambda client: client.embed("hello", dim=64), "no field dim here: do you mean dims?"),
    (lambda client: client.embed("hello", timeuot=64), "do you mean timeout?"),
    (lambda client: client.embed("hello", encoding="json"), "no field encoding here: enqueue takes all"),
    (lambda client: client.enqueue("hello", expire_in=5), "do you mean expires_in?"),
    (lambda client: client.embed("hello", tenant=None), "tenant is a str or a number, not NoneType"),
    (lambda client: client.embed("hello", priority="urgent"), "priority is high, normal or low, not 'urgent'"),
    (lambda client: client.wait("order-42"), "wait takes what enqueue returned"),
    (lambda client: client.cancel("order-42"), "cancel takes what enqueue returned"),
    (lambda client: client.read(client.enqueue), "read takes an id"),
)

USES_NODE = """
import { Client, Connection, SluiceError } from "sluice-client";

export async function uses(redis: Connection): Promise<number> {
  const client = new Client(redis, { queue: "q" });
  const vector: Float32Array = await client.embed("hello", { priority: "high", dims: 3, id: "a", "x-own": "b" });
  const many: Float32Array[] = await client.embedMany(["hello"], { timeout: 3, signal: new AbortController().signal, truncate: false });
  await new Client(redis, "q").close();
  for await (const each of client.embedEach(["a"])) if (each.vector) vector.set(each.vector); else console.log(each.error.code);
  const request = await client.enqueue(["a"], { task: "rerank", query: "b", top_n: 1, expires_in: 1000 });
  await client.cancel(request);
  const error = new Error() as SluiceError;
  await client.close();
  return many.length + (await client.rerank("a", ["b"], { best: 1 }))[0].score + (await client.classify("a"))[0].label.length + error.retryAfter;
}
"""

MISUSES_NODE = ('client.embed("hello", { priority: "hgih" })', 'client.embed("hello", { dims: "3" })', 'client.embed("hello", { dim: 3 })',
                'client.embed("hello", { encoding: "json" })', 'client.embedMany(["a"], { id: "b" })', "client.cancel(request.id)")


class Installed(SluiceCase):
    def setUp(self):
        super().setUp()
        self.wheel, self.folder = installed.install_python()
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        self.module = importlib.import_module("sluice_client")

    def serve(self, *flags):
        """Daemons and clients have the shipped rights."""
        self.server = self.start_guarded(self.queue, "ranks", "labels", "nobody", everybody="producer")
        self.start_daemon(self.server, *flags)
        self.client = self.module.Client(self.connection(), self.queue)
        self.reference_of = self.reference()

    def connection(self, **options):
        return redis.Redis(unix_socket_path=self.server.socket, **options)

    def key(self, name, queue=None):
        return f"sluice:{{{queue or self.queue}}}:{name}"

    def floats(self, text):
        data = self.reference_of(text)
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def limits_known(self):
        self.wait_until(lambda: self.server.client().hget(self.key("meta"), "max_inputs"), "the queue's limits")

    def serve_heads(self):
        """Serves the queues `ranks` and `labels`; computes the expected answers with commands that need no Redis."""
        directories = [self.make_classifier("one"), self.make_classifier("several", labels=("a", "b", "c"))]
        for queue, directory in zip(("ranks", "labels"), directories):
            self.start_daemon(self.server, "--max-inputs", 3, model=directory, queue=queue)
        self.documents = ["hello", "the red world", "blue", "red"]
        source, text = self.write("documents", "\n".join(self.documents)), self.write("text", "hello")
        scores = self.run_sluice("rerank", "--model", directories[0], "--precision", "f32", "--query", "red", "--input", source).stdout
        labels = self.run_sluice("classify", "--model", directories[1], "--precision", "f32", "--input", text).stdout
        scores = {line["index"]: line["score"] for line in map(json.loads, scores.splitlines())}
        self.ranking = sorted(scores.items(), key=lambda pair: -pair[1])
        self.labels = json.loads(labels)

    # The packages.

    def test_wheel(self):
        """The wheel needs redis and nothing else, and has the marker of a typed package; the other cases import it as installed here."""
        with zipfile.ZipFile(self.wheel) as file:
            names = file.namelist()
            metadata = file.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        self.assertIn("sluice_client/py.typed", names)
        self.assertEqual([line for line in metadata.splitlines() if line.startswith("Requires-Dist")], ["Requires-Dist: redis>=4.3"])
        self.assertEqual(os.path.dirname(os.path.dirname(self.module.__file__)), self.folder)

    def assert_only_refused(self, lines, said, pattern):
        """Each of these lines of a file is refused and no other."""
        self.assertEqual(sorted({int(line) for line in re.findall(pattern, said)}), lines, said)

    def test_types(self):
        """A strict checker accepts right uses of the client and refuses wrong ones."""
        path = self.write("uses.py", USES_PYTHON + "\n".join(MISUSES_PYTHON) + "\n")
        done = subprocess.run([installed.clients_python(), "-m", "mypy", "--strict", "--cache-dir", self.path("mypy"), path], capture_output=True,
                              text=True, timeout=300, check=False, env=process.clean_environment({"MYPYPATH": self.folder, "PYTHONPATH": ""}))
        begin = USES_PYTHON.count("\n") + 1
        self.assert_only_refused(list(range(begin, begin + len(MISUSES_PYTHON))), done.stdout + done.stderr, r"uses\.py:(\d+): error: ")

    def test_types_of_node(self):
        installed.install_node(self.directory)
        path = self.write("uses.mts", USES_NODE.replace("  await client.close();", ";\n".join(MISUSES_NODE) + ";\n  await client.close();"))
        done = subprocess.run(["/usr/bin/tsc", "--strict", "--noEmit", "--target", "es2022", "--module", "node16", "--moduleResolution", "node16",
                               path], capture_output=True, text=True, timeout=300, check=False)
        begin = USES_NODE[:USES_NODE.index("  await client.close();")].count("\n") + 1
        self.assert_only_refused(list(range(begin, begin + len(MISUSES_NODE))), done.stdout + done.stderr, r"uses\.mts\((\d+),\d+\): error ")

    # Python.

    def test_all_of_python(self):
        self.serve("--max-inputs", 2)
        self.limits_known()
        self.serve_heads()
        with self.assertRaises(ValueError):
            self.module.Client(self.connection(decode_responses=True))
        for protocol in ({}, {"protocol": 3}) if hasattr(redis.connection.Connection, "default_protocol") else ({},):
            self.check_plain(**protocol)
        asyncio.run(self.check_async())

    def check_plain(self, **options):
        client = self.module.Client(self.connection(**options), self.queue)
        self.assertEqual(client.embed("hello world").tolist(), self.floats("hello world"))
        for priority in ("high", "low"):
            self.assertEqual(client.embed("hello", priority=priority).tolist(), self.floats("hello"))
        texts = ["hello", "world", "hello world", "hello", "world"]
        self.assertEqual([vector.tolist() for vector in client.embed_many(texts)], [self.floats(text) for text in texts])
        self.assertEqual((client.embed_many([]), client.rerank("red", [])), ([], []))
        with self.assertRaises(self.module.SluiceError) as raised:
            client.embed("hello", dims=-1)
        self.assertEqual((raised.exception.code, raised.exception.retryable, raised.exception.index), ("bad_request", False, None))
        self.assertIn("dims", str(raised.exception))
        with self.assertRaises(self.module.SluiceError) as raised:
            client.embed_many(["hello", "hello", "hello", ""])
        self.assertEqual(raised.exception.index, 3)
        for id in ("1795252518106-0", "low:1795252518106-0", "größe", ""):
            with self.assertRaises(ValueError):
                client.embed("hello", id=id)
        self.assertEqual(client.embed("hello", id="12-34").tolist(), client.read("12-34").vector.tolist())
        self.assertIsNone(client.read("nobody"))
        reply = client.wait(client.enqueue("hello", encoding="f16"))
        with self.assertRaisesRegex(ValueError, "not in f32 but in f16"):
            reply.vector
        for part in (r"^Reply\(\{.*\}\)$", "'encoding': 'f16'", r"'embedding': '\d+ bytes'"):  # fields come in any order
            self.assertRegex(repr(reply), part)
        self.assertEqual(len(client.embed("hello", truncate=False, **{"x-own": "1"})), len(self.floats("hello")))
        ended = dict(client.embed_each(["hello", "", "world"]))
        self.assertEqual((ended[0].tolist(), ended[1].code, ended[2].tolist()), (self.floats("hello"), "bad_request", self.floats("world")))
        ranks, labels = (self.module.Client(self.connection(), queue) for queue in ("ranks", "labels"))
        self.assertEqual(ranks.rerank("red", self.documents), self.ranking)
        self.assertEqual(ranks.rerank("red", self.documents, best=2), self.ranking[:2])
        self.assertEqual(labels.classify("hello"), [(each["label"], each["score"]) for each in self.labels])

    @contextlib.asynccontextmanager
    async def two_connections(self):
        """A client on a connection pool that has no third connection to give."""
        pool = redis.asyncio.ConnectionPool(connection_class=redis.asyncio.UnixDomainSocketConnection, path=self.server.socket, max_connections=2)
        yield redis.asyncio.Redis(connection_pool=pool)
        await pool.disconnect()

    async def check_async(self):
        async with self.two_connections() as connection:
            client = self.module.AsyncClient(connection, self.queue)
            many = await asyncio.gather(*(client.embed(f"hello {number}", timeout=60) for number in range(200)))
            self.assertEqual([vector.tolist() for vector in many], [self.floats(f"hello {number}") for number in range(200)])
            self.assertEqual([(await client.embed("hello", priority=priority)).tolist() for priority in ("high", "low")], 2 * [self.floats("hello")])
            texts = ["hello", "world", "hello world", "hello", "world"]
            self.assertEqual([vector.tolist() for vector in await client.embed_many(texts)], [self.floats(text) for text in texts])
            with self.assertRaises(self.module.SluiceError) as raised:
                await client.embed_many(["hello", "hello", "hello", ""])
            self.assertEqual((raised.exception.code, raised.exception.index), ("bad_request", 3))
            ended = {number: either async for number, either in client.embed_each(["hello", "", "world"])}
            self.assertEqual((ended[0].tolist(), ended[1].code, ended[2].tolist()), (self.floats("hello"), "bad_request", self.floats("world")))
            self.assertEqual((await client.embed("hello", id="a-1")).tolist(), (await client.read("a-1")).vector.tolist())
            self.assertIsNone(await client.read("nobody"))
        for queue, check in (("ranks", self.check_ranks), ("labels", self.check_labels)):
            async with self.two_connections() as connection:
                await check(self.module.AsyncClient(connection, queue))

    async def check_ranks(self, client):
        self.assertEqual(await client.rerank("red", self.documents), self.ranking)

    async def check_labels(self, client):
        self.assertEqual(await client.classify("hello"), [(each["label"], each["score"]) for each in self.labels])

    def test_all_of_python_on_the_newest_redis_py(self):
        """The same case, in a process that has it; there also in RESP3."""
        python = installed.clients_python()
        environment = process.clean_environment({"SLUICE_BINARY": os.environ["SLUICE_BINARY"], "PYTHONPATH": os.pathsep.join(
            [str(installed.SOURCE / "tests/support"), str(installed.packages_of(python))])})
        done = subprocess.run(["/usr/bin/python3", "-B", "-W", "ignore::ResourceWarning", installed.SOURCE / "tests/support/cases.py",
                               "test_installed", "all_of_python"], cwd=installed.SOURCE / "tests/clients", capture_output=True, text=True,
                              timeout=300, check=False, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_many_texts_are_split_by_bytes_too(self):
        """Texts are sent in as few requests as the limit allows; a text that exceeds it alone is refused."""
        self.serve("--max-text-bytes", 10)
        self.limits_known()
        texts = ["hello", "world", "grün", "hello", "你好 好", "hello"]
        before = self.requests_of()
        self.assertEqual([vector.tolist() for vector in self.client.embed_many(texts)], [self.floats(text) for text in texts])
        self.assertEqual(self.requests_of() - before, 4)
        with self.assertRaises(self.module.SluiceError) as raised:
            self.client.embed_many([*texts, "x" * 11])
        self.assertEqual(raised.exception.code, "too_large")

    def requests_of(self):
        """The number of entries that were ever added to the stream."""
        try:
            return self.server.client().xinfo_stream(self.key("requests"), full=True)["entries-added"]
        except redis.ResponseError:
            return 0

    # When something goes wrong.

    def test_a_request_that_is_late_is_cancelled(self):
        self.server = self.start_redis()
        client = self.module.Client(self.connection(), self.queue)
        for ask in (lambda: client.embed("hello", timeout=0.3), lambda: client.embed_many(["hello"], timeout=0.3), lambda: list(client.embed_each(["hello"], timeout=0.3))):
            with self.assertRaisesRegex(TimeoutError, f"^no reply to .* in time: queue {self.queue} has never had a worker$"):
                ask()

        async def late():
            async with self.two_connections() as connection:
                other = self.module.AsyncClient(connection, self.queue)
                with self.assertRaisesRegex(TimeoutError, "has never had a worker$"):
                    await other.embed("hello", timeout=0.3)
                task = asyncio.ensure_future(other.embed("hello"))
                while self.server.client().xlen(self.key("requests")) < 5:
                    await asyncio.sleep(0.01)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
        asyncio.run(late())
        asked = [entry.decode() for entry, _ in self.server.client().xrange(self.key("requests"))]
        cancelled = [fields[b"cancel"].decode() for _, fields in self.server.client().xrange(self.key("control"))]
        self.assertEqual((len(asked), cancelled), (5, asked))
        self.start_daemon(self.server)
        self.wait_empty(self.producer(self.server))

    def test_a_late_request_says_since_when_no_worker_lives(self):
        self.server = self.start_redis()
        client, admin = self.module.Client(self.connection(), self.queue), self.server.client()
        seconds, _ = admin.time()
        admin.hset(self.key("meta"), "published_at", 1000 * (seconds - 60))
        with self.assertRaisesRegex(TimeoutError, rf": queue {self.queue} has had no worker for 6\d s$"):
            client.embed("hello", timeout=0.1)
        admin.hset(self.key("meta"), "published_at", 1000 * seconds)
        with self.assertRaisesRegex(TimeoutError, "in time$"):
            client.embed("hello", timeout=0.1)

    def test_wrong_uses_are_refused_before_anything_is_sent(self):
        self.server = self.start_redis()
        client = self.module.Client(self.connection(), self.queue)

        async def use_wrongly(use):
            connection = redis.asyncio.Redis(unix_socket_path=self.server.socket)
            try:
                await use(self.module.AsyncClient(connection, self.queue))
            finally:
                await connection.connection_pool.disconnect()
        for use, says in (*WRONG_PYTHON, (lambda client: list(client.embed_each("hello")), "several texts are a list of str, not str")):
            with self.assertRaisesRegex((TypeError, ValueError), re.escape(says)):
                use(client)
        for use, says in WRONG_PYTHON:
            with self.assertRaisesRegex((TypeError, ValueError), re.escape(says)):
                asyncio.run(use_wrongly(use))
        for name in ("No Such", "", "x" * 65, "{default}"):
            with self.assertRaisesRegex(ValueError, "a queue's name"):
                self.module.Client(self.connection(), name)
        self.assertEqual(self.server.client().dbsize(), 0)

    def test_a_request_without_a_deadline_is_given_up_soon_while_redis_is_away(self):
        """`timeout` of `enqueue` is not the request's deadline, which here is a day."""
        self.server = self.start_redis()
        client = self.module.Client(self.connection(), self.queue)
        self.server.kill()
        begin = time.monotonic()
        with self.assertRaises(redis.ConnectionError):
            client.enqueue("hello", timeout=0.5, expires_in=86400000)
        self.assertLess(time.monotonic() - begin, 30)
        self.server.start()
        request = client.enqueue("hello", timeout=0.5, expires_in=86400000)
        (_, fields), = self.server.client().xrange(self.key("requests"))
        self.assertEqual((fields[b"expires_in"], fields[b"id"].decode()), (b"86400000", request.id))

    def test_a_cancelled_request_raises(self):
        self.server = self.start_redis()
        client = self.module.Client(self.connection(), self.queue)
        self.server.client().set(self.key("paused"), "1")
        self.start_daemon(self.server)
        request = client.enqueue("hello", priority="low")
        client.cancel(request)
        with self.assertRaises(self.module.SluiceError) as raised:
            client.wait(request)
        self.assertEqual(raised.exception.code, "cancelled")

    def test_a_request_whose_answer_was_lost_has_one_reply(self):
        """The XADD is repeated under the same id."""
        self.serve()
        proxy = Proxy(self.directory, self.server.socket, lambda _, words: "after" if words[0] == b"XADD" else None)
        proxy.strike = proxy.cut
        self.children.append(proxy)
        client = self.module.Client(redis.Redis(unix_socket_path=proxy.path), self.queue)
        self.assertEqual(client.embed("hello", timeout=60).tolist(), self.floats("hello"))
        self.assertEqual(proxy.struck[0], b"XADD")
        ids = {words[words.index(b"id") + 1] for words in proxy.commands if words[0] == b"XADD"}
        self.assertEqual((len(ids), self.requests_of()), (1, 2))
        self.assertEqual(len(self.server.client().keys(self.key("reply:*"))), 1)

        async def again():
            proxy.struck = None
            connection = redis.asyncio.Redis(unix_socket_path=proxy.path)
            other = self.module.AsyncClient(connection, self.queue)
            self.assertEqual((await other.embed("world", timeout=60)).tolist(), self.floats("world"))
            await connection.connection_pool.disconnect()
        asyncio.run(again())
        self.assertEqual((proxy.struck[0], self.requests_of()), (b"XADD", 4))

    def test_redis_restarts_while_calls_wait(self):
        """No call fails: the requests are in the append-only file, and the calls go on."""
        self.server = self.start_redis(aof="always")
        client, answers = self.module.Client(self.connection(), self.queue), {}

        def ask():
            answers["plain"] = client.embed("hello", timeout=60).tolist()
        thread = threading.Thread(target=ask)
        thread.start()

        async def ask_too():
            async with self.two_connections() as connection:
                other = self.module.AsyncClient(connection, self.queue)
                tasks = [asyncio.ensure_future(other.embed("hello", timeout=60)) for _ in range(20)]
                while self.server.client().xlen(self.key("requests")) < 21:
                    await asyncio.sleep(0.01)
                self.server.kill()
                self.server.start()
                self.start_daemon(self.server)
                return [vector.tolist() for vector in await asyncio.gather(*tasks)]
        answers["async"] = asyncio.run(ask_too())
        thread.join()
        self.reference_of = self.reference()
        self.assertEqual(answers, {"plain": self.floats("hello"), "async": 20 * [self.floats("hello")]})

    def test_an_older_reply_does_not_count(self):
        """Neither an earlier reply's error nor its vector answers the request that was sent now. `read` returns it all the same."""
        self.serve()
        with self.assertRaises(self.module.SluiceError):
            self.client.embed("", id="again")
        self.assertEqual(self.client.embed("hello", id="again").tolist(), self.floats("hello"))
        self.assertEqual(self.client.embed("world", id="again").tolist(), self.floats("world"))
        self.assertEqual(self.client.read("again").vector.tolist(), self.floats("world"))

        async def again():
            async with self.two_connections() as connection:
                other = self.module.AsyncClient(connection, self.queue)
                self.assertEqual((await other.embed("hello", id="again")).tolist(), self.floats("hello"))
        asyncio.run(again())

    def test_a_wrong_password_is_said_at_once(self):
        self.server = self.start_redis()
        self.server.client().config_set("requirepass", "secret")
        client = self.module.Client(self.connection(password="other"), self.queue)
        with self.assertRaises((redis.AuthenticationError, redis.ResponseError)):
            client.embed("hello", timeout=600)

    # Node.

    def test_all_of_node(self):
        self.serve("--max-inputs", 2)
        self.limits_known()
        self.serve_heads()
        installed.install_node(self.directory)
        done = subprocess.run(["/usr/bin/nodejs", self.write("all.mjs", ALL_OF_NODE), self.server.socket], capture_output=True, text=True,
                              timeout=300, check=False, env=process.clean_environment({"NODE_PATH": "/usr/share/nodejs"}))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(said[0], [True, *self.floats("hello world")])
        self.assertEqual(said[1], [True, True])
        self.assertEqual(said[2], [self.floats(text) for text in ("hello", "world", "hello world", "hello", "world")])
        self.assertEqual(said[3], [[], []])
        self.assertEqual([said[4][word] for word in ("name", "code", "retryable", "index")], ["SluiceError", "bad_request", False, None])
        self.assertIn("dims", said[4]["message"])
        self.assertEqual((said[5]["code"], said[5]["index"]), ("bad_request", 3))
        self.assertIn("looks like a name", said[6]["message"])
        self.assertEqual((said[7], said[8]), (len(self.floats("hello")), [1, None]))
        self.assertEqual(said[9], [self.floats("hello"), "bad_request", self.floats("world")])
        self.assertEqual(said[10], [200, 200])
        self.assertEqual([(each["index"], each["score"]) for each in said[11]], self.ranking[:3])
        self.assertEqual(said[12], self.labels)
        self.assertEqual(said[13]["name"], "TimeoutError")
        self.assertRegex(said[13]["message"], "^no reply to .* in time: queue nobody has never had a worker$")
        self.assertEqual([each["message"] for each in said[14:16]], ["the visitor left"] * 2)
        self.assertEqual(said[16], len(self.floats("hello")))
        wrong = said[17:]
        self.assertEqual({each["name"] for each in wrong}, {"TypeError"}, wrong)
        self.assertEqual(wrong[0]["message"], "one text is a string (embedMany takes several), not an array")
        for each, ends in zip(wrong, ("an array", "undefined", "null", "number", "an array", "string", "undefined", "string", "string", "undefined", "null",
                                      "number", "", "", "tenant is a string or a number, not null", "high, normal or low, not urgent",
                                      "wait and cancel take what enqueue returned", "wait and cancel take what enqueue returned", "read takes an id, not object",
                                      "no option quue here; there are queue", "a queue's name is 1 to 64 of a-z 0-9 _ . -, not No Such"), strict=True):
            self.assertTrue(each["message"].endswith(ends), (each, ends))
        self.assertRegex(wrong[12]["message"], "^no option timeuot here; there are .*timeout")
        self.assertRegex(wrong[13]["message"], "^no option encoding here")
        asked, cancelled = (self.server.client().xrange(self.key(stream, "nobody")) for stream in ("requests", "control"))
        self.assertEqual([fields[b"cancel"] for _, fields in cancelled], [entry for entry, _ in asked])
        self.assertEqual((len(asked), done.stderr), (2, ""))

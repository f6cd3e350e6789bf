"""Unmodified client libraries of six languages enqueue and read, with nothing of ours installed: Debian's own packages, each
with a script of twenty lines beside this file, and with the rights of config/acl/producer.acl. A missing interpreter or library is a
failure, not a skip."""
# ctest-cost: 5

import json
import os
import subprocess

import process
from case import SluiceCase
from corpus import AWKWARD, texts
from vectors import decode_f32

HERE = os.path.dirname(os.path.abspath(__file__))


class Clients(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_guarded(everybody="producer")
        self.start_daemon(self.server)
        self.texts = AWKWARD + texts(10, seed=1)
        self.reference_of = self.reference()
        self.reference_of.learn(self.texts)

    def run_client(self, *argv, environment=None):
        self.assertTrue(os.access(argv[0], os.X_OK), f"{argv[0]} is not installed: run make deps")
        path = self.write("texts.json", json.dumps(self.texts, ensure_ascii=False))
        result = subprocess.run([*argv, self.server.socket, self.queue, path], capture_output=True, timeout=120, check=False,
                                env=process.clean_environment(environment))
        self.assertEqual(result.returncode, 0, result.stderr.decode("utf-8", "replace"))
        lines = result.stdout.decode().split()
        self.assertEqual(len(lines), 2 * len(self.texts))
        for number, text in enumerate(self.texts):
            expected = self.reference_of(text).hex()
            self.assertEqual(lines[2 * number], expected, f"json reply to {text!r}")
            self.assertEqual(lines[2 * number + 1], expected, f"f32 reply to {text!r}")
        self.wait_empty(self.producer(self.server))

    def test_python(self):
        self.run_client("/usr/bin/python3", os.path.join(HERE, "client.py"), environment={"PYTHONPATH": ""})

    def test_ruby(self):
        self.run_client("/usr/bin/ruby", os.path.join(HERE, "client.rb"))

    def test_php(self):
        self.run_client("/usr/bin/php", os.path.join(HERE, "client.php"))

    def test_perl(self):
        self.run_client("/usr/bin/perl", os.path.join(HERE, "client.pl"))

    def test_node(self):
        """Debian's node-redis, also where another node stands before /usr/bin in PATH."""
        self.run_client("/usr/bin/nodejs", os.path.join(HERE, "client.js"), environment={"NODE_PATH": "/usr/share/nodejs"})

    def redis_cli(self, *words):
        result = subprocess.run(["/usr/bin/redis-cli", "-s", self.server.socket, *words], capture_output=True, check=True,
                                timeout=60)
        return result.stdout

    def test_redis_cli(self):
        """XADD, BLPOP and HGET from a shell; of the raw floats it prints the bytes and a newline."""
        for text in self.texts:
            for encoding in ("json", "f32"):
                id = self.redis_cli("XADD", f"sluice:{{{self.queue}}}:requests", "*", "text", text, "encoding", encoding,
                                    "notify", "1").decode().strip()
                woken = self.redis_cli("BLPOP", f"sluice:{{{self.queue}}}:wake:{id}", "30").decode().split()
                self.assertEqual(woken[1], id)
                embedding = self.redis_cli("HGET", f"sluice:{{{self.queue}}}:reply:{id}", "embedding")
                self.assertEqual(decode_f32(encoding, embedding[:-1]), self.reference_of(text))

"""config/mend-aof.sh: what it cuts off the append-only file, and what it leaves alone. Redis itself reads the result in
tests/fault/test_redis_kill.py, and after every other kill -9 of a test."""
# ctest-once

import os
import subprocess

from case import SluiceCase
from redis_server import MEND_AOF, append_only, command

BEFORE = command("SELECT", 0) + command("SET", "a", "1")
FILE = command("SET", "text", "file under: any line may begin with that word")
WHOLE = command("MULTI") + command("SET", "b", "2") + command("SET", "c", "EXEC") + command("EXEC")


class MendAof(SluiceCase):
    def redis(self, content):
        """Makes Redis' directory as after its exit, with this content in the last file."""
        folder = self.path("appendonlydir")
        os.makedirs(folder, exist_ok=True)
        self.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.base.aof seq 1 type b\n"
                   "file appendonly.aof.1.incr.aof seq 1 type i\n")
        self.write("appendonlydir/appendonly.aof.1.base.aof", command("SET", "base", "1"))
        with open(append_only(self.directory), "wb") as file:
            file.write(content)

    def mend(self, code=0, arguments=None):
        done = subprocess.run([MEND_AOF, *([self.directory] if arguments is None else arguments)], capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stdout.decode() + done.stderr.decode())
        return (done.stderr or done.stdout).decode()

    def test_the_wrong_folder(self):
        """Before each start of Redis, a mistyped folder must not pass for a mended one."""
        self.assertIn("nothing to mend: there is no " + self.path("appendonlydir"), self.mend())  # Redis has never been started here
        self.redis(BEFORE + WHOLE[:60])
        self.assertIn("name the one above", self.mend(66, [self.path("appendonlydir")]))
        self.assertIn("there is no such folder", self.mend(66, [self.path("nowhere")]))
        for arguments in ([], [""], ["--fix"]):
            self.assertIn("usage: mend-aof.sh ", self.mend(64, arguments))
        self.assertEqual(self.read(append_only(self.directory)), BEFORE + WHOLE[:60])

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def test_torn_at_every_byte(self):
        kept = b""
        for torn in range(1, len(WHOLE)):
            with self.subTest(bytes=torn):
                self.redis(BEFORE + WHOLE + WHOLE[:torn])
                self.mend()
                self.assertEqual(self.read(append_only(self.directory)), BEFORE + WHOLE)
                kept += WHOLE[:torn]
                self.assertEqual(self.read(self.path("appendonly.torn")), kept)

    def test_only_the_last_file_is_looked_at(self):
        """The other files were finished before the last was begun. The manifest says which one is last, also in Redis
        8's format."""
        self.redis(BEFORE + WHOLE)
        self.write("appendonlydir/appendonly.aof.1.base.rdb", b"VALKEY080, which no tool here reads")
        self.write("appendonlydir/appendonly.aof.2.incr.aof", BEFORE + WHOLE[:60])
        self.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.base.rdb seq 1 type b\n"
                   "file appendonly.aof.1.incr.aof seq 1 type i startoffset 0 endoffset 9\n"
                   "file appendonly.aof.2.incr.aof seq 2 type i startoffset 9\n")
        self.mend()
        self.assertEqual(self.read(self.path("appendonlydir", "appendonly.aof.2.incr.aof")), BEFORE)
        self.assertEqual(self.read(append_only(self.directory)), BEFORE + WHOLE)

    def test_a_text_that_looks_like_a_manifest(self):
        self.redis(FILE + WHOLE[:60])
        self.mend()
        self.assertEqual(self.read(append_only(self.directory)), FILE)

    def test_what_is_whole_stays(self):
        for content in (b"", BEFORE, BEFORE + WHOLE, FILE + WHOLE):
            self.redis(content)
            self.mend()
            self.assertEqual(self.read(append_only(self.directory)), content)
        self.assertEqual(os.listdir(self.directory), ["appendonlydir"])

    def test_more_than_a_torn_end_is_left_to_a_person(self):
        """Two cases: half a transaction with later writes after it, as Redis itself would leave it; and a changed
        byte."""
        for damage in (WHOLE[:60], WHOLE.replace(b"$3", b"$2", 1)):
            self.redis(BEFORE + damage + WHOLE)
            self.assertIn("more than a torn end", self.mend(code=1))
            self.assertEqual(self.read(append_only(self.directory)), BEFORE + damage + WHOLE)
        self.write("appendonlydir/appendonly.aof.manifest", "no manifest\n")
        self.assertIn("more than a torn end", self.mend(code=1))

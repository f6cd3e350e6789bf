"""Test support whose mistakes would make tests fail without a fault of Sluice's."""
# ctest-once

import os
import shutil
import socket
import subprocess
import threading

import redis

from case import SluiceCase
from daemon import SOURCE
from redis_server import connect


class Support(SluiceCase):
    def test_a_reset_on_a_unix_socket_is_a_connection_error(self):
        """A server that dies with a command unread resets the connection; the next command finds the reset in the pool."""
        path = os.path.join(self.directory, "s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()

            def answer_once():
                peer, _ = listener.accept()
                peer.recv(1000)
                peer.sendall(b"+PONG\r\n")
                peer.recv(1)
                peer.close()
                listener.close()

            server = threading.Thread(target=answer_once)
            server.start()
            client = connect(path)
            self.assertTrue(client.ping())
            [connection] = client.connection_pool._available_connections
            connection._sock.sendall(b"unread")
            server.join()
        with self.assertRaises(redis.ConnectionError):
            client.ping()


class OnServer(SluiceCase):
    """tests/support/on_server.sh, which `make test SERVER=...` uses: tests never run on a server other than the named
    one, nor on none."""

    def on_server(self, program, command):
        done = subprocess.run([os.path.join(SOURCE, "tests", "support", "on_server.sh"), program, "sh", "-c", command],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False, text=True)
        return done.returncode, done.stdout

    def wrapped(self, says):
        """Returns a program that starts the existing server under another version string."""
        path = self.write("server", f"#!/bin/sh\n[ \"$1\" != --version ] || exec echo '{says}'\nexec {shutil.which('redis-server')} \"$@\"\n")
        os.chmod(path, 0o755)
        return path

    def test_every_start_is_counted(self):
        server = shutil.which("redis-server")
        code, text = self.on_server(server, "redis-server --version && redis-server --version")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^on_server.sh: (Redis|Valkey) [0-9.]+ was started 2 times")
        self.assertEqual(self.on_server(server, "redis-server --version; exit 3")[0], 3)

    def test_a_run_without_a_server_fails(self):
        code, text = self.on_server("redis-server", f"{shutil.which('redis-server')} --version")  # bypasses the switch
        self.assertEqual(code, 1, text)
        self.assertIn("nothing has started the server", text)

    def test_what_is_no_server_is_refused(self):
        for program, words in (("/bin/true", "is no server"), ("/bin/nothing", "no program"),
                               (self.wrapped("Redis server v=99.0.0 sha=0"), "calls itself Redis 99.0.0, and ")):
            code, text = self.on_server(program, "touch " + self.path("ran"))
            self.assertEqual(code, 1, text)
            self.assertIn(words, text)
            self.assertFalse(os.path.exists(self.path("ran")))

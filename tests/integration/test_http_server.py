"""The HTTP server of all ports, spoken to in bytes: what it understands, what it refuses, and what clients cost that are
slow, many or gone."""
# ctest: threads
# ctest-cost: 15

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
import unittest

from daemon import BINARY
from ports import free_port
from process import clean_environment, end, start
from waiting import wait_until

SERVER = os.path.join(os.path.dirname(BINARY), "tests", "http_server")
HEAD = "POST /echo HTTP/1.1\r\nHost: h\r\n"


class Peer:
    """A connection that speaks bytes and reads answers."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.rest = bytearray()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
        return self

    def more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        self.rest += data
        return data

    def answer(self, body=True):
        """The status, the headers in lower case, and the body of the next answer; None: the connection has ended. `body`
        is false where the answer to a HEAD is expected."""
        while b"\r\n\r\n" not in self.rest:
            if not self.more():
                return None
        end_of_head = self.rest.index(b"\r\n\r\n")
        head = self.rest[:end_of_head]
        del self.rest[:end_of_head + 4]
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", 0)) if body else 0
        while len(self.rest) < length and self.more():
            pass
        data = bytes(self.rest[:length])
        del self.rest[:length]
        return int(first.split(" ")[1]), headers, data

    def chunks(self):
        """The chunks of the next body."""
        found = []
        while not found or found[-1]:
            while self.rest.count(b"\r\n") < 1 and self.more():
                pass
            size, _, self.rest = self.rest.partition(b"\r\n")
            length = int(size, 16)
            while len(self.rest) < length + 2 and self.more():
                pass
            found.append(bytes(self.rest[:length]))
            assert self.rest[length:length + 2] == b"\r\n", self.rest[length:length + 20]
            del self.rest[:length + 2]
        return found[:-1]

    def ended(self):
        """Whether the server closes the connection without another byte."""
        return self.rest == b"" and self.more() == b""

    def close(self):
        self.socket.close()


class HttpServer(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.children, self.peers = [], []

    def tearDown(self):
        for peer in self.peers:
            peer.close()
        for child in self.children:
            end(child)

    def serve(self, connections=64, body=1 << 20, memory=8 << 20, receive=20000, answer=20000, idle=20000, files=()):
        self.port = free_port()
        words = [f"127.0.0.1:{self.port}", self.folder, connections, body, memory, receive, answer, idle]
        self.child = start([*files, SERVER, *map(str, words)], stdout=-1, env=clean_environment())
        self.children.append(self.child)
        self.assertEqual(self.child.stdout.readline(), b"listens\n")

    def peer(self):
        self.peers.append(Peer(self.port))
        return self.peers[-1]

    def ask(self, data):
        with contextlib.closing(Peer(self.port)) as peer:
            return peer.send(data).answer()

    def state(self):
        return json.loads(self.ask("GET /state HTTP/1.1\r\nHost: h\r\n\r\n")[2])

    def wait_state(self, **expected):
        wait_until(lambda: (state := self.state()) and all(state[name] == value for name, value in expected.items()),
                   lambda: f"{expected}, not {self.state()}")

    def test_many_requests_on_a_connection(self):
        self.serve()
        peer = self.peer()
        for number in range(50):
            body = "b" * number * 100
            status, headers, data = peer.send(f"{HEAD}X-Test: {number}\r\nContent-Length: {len(body)}\r\n\r\n{body}").answer()
            self.assertEqual((status, data.decode()), (200, f"2 /echo? [] <{number}> {body}"))
            self.assertEqual((headers["x-answer"], headers["content-type"]), ("yes", "text/plain"))
            self.assertNotIn("connection", headers)
        self.assertEqual(peer.send("GET /echo/a%20b?c HTTP/1.1\r\nHost: h\r\n\r\n").answer()[2], b"1 /echo/a%20b?c [a%20b] <-> ")
        self.assertEqual(peer.send("DELETE /echo HTTP/1.1\r\nHost: h\r\n\r\n").answer()[2], b"4 /echo? [] <-> ")
        self.assertEqual(peer.send("POST /echo HTTP/1.1\r\nHost: h\r\n\r\n").answer()[2], b"2 /echo? [] <-> ", "no body is sent")
        status, headers, data = peer.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n").answer(body=False)
        self.assertEqual((status, headers["content-length"]), (200, "16"))
        status, headers, data = peer.send("GET /echo?204 HTTP/1.1\r\nHost: h\r\n\r\n").answer()
        self.assertEqual((status, data, "content-length" in headers), (204, b"", False))
        self.assertEqual(peer.send("GET http://h/echo HTTP/1.1\r\nHost: h\r\n\r\n").answer()[0], 200)
        status, headers, data = peer.send("GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").answer()
        self.assertEqual((status, headers["connection"]), (200, "close"))
        self.assertTrue(peer.ended())
        self.assertEqual(self.state()["refused"], 0)

    def test_pipelined_requests_are_answered_in_their_order(self):
        """Whatever the cuts, also where one of them is answered later."""
        self.serve()
        dice = random.Random(1)
        for late in (False, True):
            requests = [f"{HEAD}Content-Length: {len(str(i))}\r\n\r\n{i}" if i % 2 else
                        f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{len(str(i)):x}\r\n{i}\r\n0\r\n\r\n" for i in range(40)]
            if late:
                requests[7] = requests[21] = "GET /later HTTP/1.1\r\nHost: h\r\n\r\n"
            data = "".join(requests).encode()
            peer = self.peer()
            while data:
                cut = dice.choice((1, 3, 200, 3000))
                peer.send(data[:cut])
                data = data[cut:]
            for i in range(40):
                if late and i in (7, 21):
                    self.wait_state(waiting=1)
                    self.assertEqual(self.ask("POST /release HTTP/1.1\r\nHost: h\r\n\r\n")[2], b"1")
                    self.assertEqual(peer.answer()[2], b"released")
                else:
                    self.assertEqual(peer.answer()[2].decode(), f"2 /echo? [] <-> {i}")
        self.assertEqual(self.state()["gone"], 0)

    def test_bodies_of_every_kind_arrive_whole(self):
        self.serve(body=300000)
        dice = random.Random(2)
        for length in (1, 16383, 16384, 65536, 299999, 300000):
            body = dice.randbytes(length)
            expected = b"2 /echo? [] <-> " + body
            self.assertEqual(self.ask(HEAD.encode() + b"Content-Length: %d\r\n\r\n" % length + body)[2], expected)
            chunked, at = b"", 0
            while at < length:
                size = min(dice.choice((1, 10, 5000, 70000)), length - at)
                chunked += b"%x%s\r\n%s\r\n" % (size, dice.choice((b"", b";a=b")), body[at:at + size])
                at += size
                if len(chunked) > 2 * length + 20000:
                    break
            chunked += b"%x\r\n%s\r\n" % (length - at, body[at:]) if at < length else b""
            peer = self.peer().send(HEAD + "Transfer-Encoding: chunked\r\n\r\n").send(chunked + b"0\r\nTrailer: x\r\n\r\n")
            self.assertEqual(peer.answer()[2], expected)
            self.assertEqual(peer.send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n").answer()[2], b"ok")

    def test_a_client_that_expects_to_be_told_to_go_on(self):
        self.serve()
        peer = self.peer().send(HEAD + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        self.assertEqual(peer.answer()[:2], (100, {}))
        self.assertEqual(peer.send("hello").answer()[2], b"2 /echo? [] <-> hello")
        peer.send(HEAD + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello")
        self.assertEqual(peer.answer()[0], 200, "the body is there already")
        self.assertEqual(self.ask(HEAD + "Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")[0], 413)
        self.assertEqual(self.ask(HEAD + "Content-Length: 5\r\nExpect: x\r\n\r\n")[0], 417)

    def test_requests_that_others_could_read_otherwise_are_refused(self):
        """Each gets one answer and the connection ends, so that the bytes after it are never a request. They would be one
        if the head were read as a more lenient server reads it."""
        self.serve()
        hidden = "GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n"
        wrong = [(f"{HEAD}Content-Length: {len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Content-Length: 0\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Content-Length: 0, {len(hidden)}\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Content-Length: {len(hidden)}\r\n 0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Content-Length: 0x0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Content-Length: +0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Content-Length : 0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Content-Length: 18446744073709551616\r\n\r\n{hidden}", 413),
                 (f"{HEAD}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}", 501),
                 (f"{HEAD}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}", 501),
                 (f"{HEAD}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{hidden}", 400),
                 (f"{HEAD} Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}X: y\nContent-Length: 0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}X: y\rContent-Length: 0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}X: \0\r\n\r\n{hidden}", 400),
                 (f"{HEAD}Host: h\r\n\r\n{hidden}", 400),
                 (f"POST /echo HTTP/1.1\r\n\r\n{hidden}", 400),
                 (f"POST /echo HTTP/1.1\n\n{hidden}", 400),
                 (f"GET http://other/echo HTTP/1.1\r\nHost: h\r\n\r\n{hidden}", 400),
                 (f"GET /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}", 400),
                 (f"PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}", 405),
                 (f"POST /none HTTP/1.1\r\nHost: h\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}", 404),
                 (f"POST /echo HTTP/1.1 {hidden}", 400),
                 (f"\r\n\r\n{hidden}", 400),
                 (f"GET /{'a' * 9000} HTTP/1.1\r\nHost: h\r\n\r\n{hidden}", 431),
                 (HEAD + "A: b\r\n" * 2000 + "\r\n" + hidden, 431)]
        for size in ("", "g", "+0", "0x0", " 0", "0 ", "0\n", "0;\n", "-0", "10000000000000000", "0\rx"):
            wrong.append((f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{size}\r\n\r\n{hidden}", 400))
        for tail in ("\n\r\n", "\r\n\n", "\r\n folded: x\r\n\r\n", "\r\n" + "A: b\r\n" * 2000 + "\r\n"):
            wrong.append((f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0{tail}{hidden}", 400))
        wrong.append((f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n{hidden}", 400))
        for data, expected in wrong:
            peer = self.peer().send(data)
            peer.socket.shutdown(socket.SHUT_WR)
            answer = peer.answer()
            self.assertIsNotNone(answer, data)
            self.assertEqual((answer[0], answer[1]["connection"]), (expected, "close"), data)
            self.assertTrue(peer.ended(), data)
        status, headers, _ = self.ask("PUT /echo HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual((status, headers["allow"]), (405, "GET, HEAD, POST, DELETE"))

    def test_the_server_refuses_in_the_words_of_its_user(self):
        self.serve(answer=100)
        for data, status, route in (("GET /none HTTP/1.1\r\nHost: h\r\n\r\n", 404, None), ("PUT /echo HTTP/1.1\r\nHost: h\r\n\r\n", 405, "/echo"),
                                    (f"{HEAD}Content-Length: 9999999\r\n\r\n", 413, "/echo"), ("nonsense\r\n\r\n", 400, None),
                                    ("GET /later HTTP/1.1\r\nHost: h\r\n\r\n", 504, "/later")):
            answer = self.ask(data)
            told = json.loads(answer[2])
            self.assertEqual((answer[0], told["status"], told["route"], answer[1]["content-type"]), (status, status, route, "application/json"))

    def test_too_much_is_refused_before_it_is_kept(self):
        self.serve(body=1000)
        self.assertEqual(self.ask(f"{HEAD}Content-Length: 1001\r\n\r\n")[0], 413)
        self.assertEqual(self.ask(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n3e8\r\n{'a' * 1000}\r\n1\r\na\r\n")[0], 413)
        peer = self.peer().send(f"{HEAD}Content-Length: {1 << 40}\r\n\r\n")
        self.assertEqual(peer.answer()[0], 413)
        with contextlib.suppress(ConnectionError):  # the client goes on; what it sends is dropped
            for _ in range(200):
                peer.send(b"x" * 65536)
        self.assertEqual(self.state()["in_flight"], 1)

    def test_bodies_share_a_bounded_memory(self):
        """Bodies that have not arrived whole, those of requests that wait for their answer, and answers that nobody reads
        count; an end of a connection gives back."""
        self.serve(body=1 << 20, memory=2 << 20)
        part = f"{HEAD}Content-Length: {1 << 20}\r\n\r\n" + "x" * ((1 << 20) - 1)
        slow = [self.peer().send(part) for _ in range(2)]
        wait_until(lambda: self.ask(f"{HEAD}Content-Length: 10\r\n\r\n0123456789")[0] == 503, "the memory to be used up")
        self.assertEqual(self.ask("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n")[0], 200)
        self.assertEqual(len(slow[0].send("x").answer()[2]), (1 << 20) + 16)
        slow[1].close()
        wait_until(lambda: self.ask(f"{HEAD}Content-Length: 1000000\r\n\r\n" + "x" * 1000000)[0] == 200, "room")
        unread = self.peer().send(f"GET /large?{30 << 20} HTTP/1.1\r\nHost: h\r\n\r\n")
        wait_until(lambda: self.ask(f"{HEAD}Content-Length: 10\r\n\r\n0123456789")[0] == 503, "the answer to count")
        self.assertEqual(len(unread.answer()[2]), 30 << 20)
        self.assertEqual(self.ask(f"{HEAD}Content-Length: 10\r\n\r\n0123456789")[0], 200)
        large = f"POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: {1 << 20}\r\n\r\n" + "x" * (1 << 20)
        waiting = [self.peer().send(large) for _ in range(2)]
        self.wait_state(waiting=2)
        self.assertEqual(self.ask(f"{HEAD}Content-Length: 10\r\n\r\n0123456789")[0], 503)
        waiting[0].close()
        self.wait_state(gone=1)
        self.assertEqual(self.ask(f"{HEAD}Content-Length: 10\r\n\r\n0123456789")[0], 200)
        self.ask("POST /release HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(waiting[1].answer()[2], b"released")
        self.assertEqual(self.ask(f"{HEAD}Content-Length: 1500000\r\n\r\n")[0], 413)
        self.assertEqual(self.ask(f"{HEAD}Content-Length: {1 << 20}\r\n\r\n" + "x" * (1 << 20))[0], 200)

    def test_bodies_that_go_through_files(self):
        self.serve()
        dice = random.Random(3)
        peer = self.peer()
        for length in (1, 1000, 5 << 20):
            body = dice.randbytes(length)
            peer.send(b"POST /spool HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % length + body)
            status, _, data = peer.answer()
            self.assertEqual((status, hashlib.sha256(data).digest()), (200, hashlib.sha256(body).digest()))
        peer.send(b"POST /spool HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")
        self.assertEqual(peer.answer()[2], b"hello!")
        self.assertEqual(peer.send("POST /spool HTTP/1.1\r\nHost: h\r\n\r\n").answer()[0], 400)
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(self.ask(f"POST /spool HTTP/1.1\r\nHost: h\r\nContent-Length: {(64 << 20) + 1}\r\n\r\n")[0], 413)
        peer = self.peer().send("POST /cut HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789")
        status, headers, data = peer.answer()
        self.assertEqual((status, headers["content-length"], data), (200, "10", b"01234"), "a file that was cut ends the connection")
        self.assertTrue(peer.ended())
        wait_until(lambda: not [file for file in self.open_files() if self.folder in file], self.open_files)

    def open_files(self):
        folder, found = f"/proc/{self.child.pid}/fd", []
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed just now
                found.append(os.readlink(os.path.join(folder, name)))
        return found

    def test_a_disk_that_takes_nothing(self):
        self.folder = "/proc"
        self.serve()
        self.assertEqual(self.ask("POST /spool HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789")[0], 507)
        self.assertEqual(self.ask("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n")[0], 200)

    def test_clients_that_go_away(self):
        """The callback comes once, and no answer goes to another connection in its place."""
        self.serve()
        for leave in (lambda peer: peer.close(), lambda peer: peer.socket.shutdown(socket.SHUT_WR),
                      lambda peer: peer.send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n").close()):
            gone = self.state()["gone"]
            peer = self.peer().send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n")
            self.wait_state(waiting=1)
            leave(peer)
            self.wait_state(gone=gone + 1, waiting=0)
        peers = [self.peer().send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(10)]
        self.wait_state(waiting=10)
        for peer in peers[::2]:
            peer.close()
        self.wait_state(waiting=5)
        others = [self.peer().send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(5)]
        self.wait_state(waiting=10)
        self.assertEqual(self.ask("POST /release HTTP/1.1\r\nHost: h\r\n\r\n")[2], b"10")
        for peer in peers[1::2] + others:
            self.assertEqual(peer.answer()[2], b"released")
        self.serve(answer=100)
        gone = self.state()["gone"]
        peer = self.peer().send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(peer.answer()[0], 504)
        self.assertTrue(peer.ended())
        self.assertEqual(self.state()["gone"], gone + 1)

    def push(self, count):
        self.assertEqual(self.ask(f"POST /push?{count} HTTP/1.1\r\nHost: h\r\n\r\n")[0], 200)

    def test_answers_in_parts(self):
        """A chunk for each part; another answer may follow. Without chunks, the end of the connection ends it."""
        letters = bytes(range(ord("a"), ord("z") + 1))
        self.serve()
        peer, close, old = (self.peer().send(f"GET /parts HTTP/1.{minor}\r\nHost: h\r\n{more}\r\n")
                            for minor, more in ((1, ""), (1, "Connection: close\r\n"), (0, "")))
        self.wait_state(streams=3)
        for count in (3, 5, 20):
            self.push(count)
            self.wait_state(streams=3)
        late = self.peer().send("GET /parts HTTP/1.1\r\nHost: h\r\n\r\n")
        self.wait_state(streams=4)
        self.push(0)
        status, headers, _ = peer.answer()
        self.assertEqual((status, headers["content-type"], headers["x-answer"], headers["transfer-encoding"]),
                         (200, "text/event-stream", "yes", "chunked"))
        self.assertNotIn("content-length", headers)
        text = letters + letters[:2]
        self.assertEqual(peer.chunks(), [text[:3], text[3:8], text[8:]])
        self.assertEqual(peer.send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n").answer()[2], b"ok")
        late.answer()
        self.assertEqual(late.chunks(), [text])
        for each in (close, old):
            status, headers, _ = each.answer()
            self.assertEqual((status, headers["connection"], headers.get("transfer-encoding")), (200, "close", None))
            while each.more():
                pass
            self.assertEqual(each.rest, text)
        self.wait_state(streams=0, gone=0)

    def test_a_slow_reader_of_parts_holds_one_of_them(self):
        self.serve()
        peer = self.peer().send("GET /parts HTTP/1.1\r\nHost: h\r\n\r\n")
        self.wait_state(streams=1)
        for _ in range(40):
            self.push(1 << 20)
        self.push(0)
        peer.answer()
        chunks = peer.chunks()
        self.assertLess(len(chunks), 20)
        self.assertEqual(sum(map(len, chunks)), 40 << 20)
        self.wait_state(streams=0, gone=0)

    def test_clients_that_leave_an_answer_in_parts(self):
        self.serve(receive=500)
        waits, reads, sleeps = (self.peer().send("GET /parts HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(3))
        self.wait_state(streams=3)
        self.push(10)
        waits.answer()
        waits.close()
        self.wait_state(gone=1, streams=2)
        self.push(50 << 20)
        reads.close()
        sleeps.answer()
        self.wait_state(gone=3, streams=0)

    def test_slow_clients_are_cut_off(self):
        """Whatever they do slowly: a head, a body, reading, or nothing at all."""
        self.serve(receive=500, idle=500)
        slow = {"silent": self.peer(), "head": self.peer().send("POST /echo HTT"),
                "body": self.peer().send(f"{HEAD}Content-Length: 5\r\n\r\nhell"),
                "chunks": self.peer().send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\nhell"),
                "idle": self.peer().send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n")}
        self.assertEqual(slow["idle"].answer()[2], b"ok")
        for name, peer in slow.items():
            self.assertTrue(peer.ended(), name)
        drop = self.peer().send("X-Test")
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):  # a byte now and then gains no time
            while time.monotonic() - begun < 20:
                drop.send("t")
                time.sleep(0.05)
        self.assertLess(time.monotonic() - begun, 10)
        reader = self.peer().send(f"GET /large?{50 << 20} HTTP/1.1\r\nHost: h\r\n\r\n")
        reader.more()
        self.wait_state(in_flight=1)  # that is the question itself
        self.assertLess(len(reader.answer()[2]), 50 << 20)

    def test_a_steady_client_may_be_slow(self):
        """The time begins anew with each 64 KiB."""
        self.serve(receive=3000)
        body = b"x" * (1 << 20)
        peer = self.peer().send(HEAD + f"Content-Length: {len(body)}\r\n\r\n")
        begun = time.monotonic()
        for at in range(0, len(body), 1 << 17):
            peer.send(body[at:at + (1 << 17)])
            time.sleep(0.45)  # paces the client
        self.assertGreater(time.monotonic() - begun, 3)
        self.assertEqual(len(peer.answer()[2]), len(body) + 16)

    def test_too_many_connections(self):
        self.serve(connections=8)
        peers = [self.peer() for _ in range(7)]
        for peer in peers:
            self.assertEqual(peer.send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n").answer()[2], b"ok")
        peers.append(self.peer().send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n"))
        self.assertEqual(peers[-1].answer()[2], b"ok")
        self.assertTrue(self.peer().ended())
        peers[0].close()
        wait_until(lambda: self.ask("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n") is not None, "a place")

    def test_the_limit_for_open_files(self):
        """It is raised as far as the system allows; what it leaves too little for is refused, not kept waiting."""
        for most, expected in ((1000, 100), (300, 44)):
            self.serve(connections=100, files=("prlimit", f"--nofile=64:{most}"))
            peers = [self.peer() for _ in range(expected)]
            for peer in peers:
                self.assertEqual(peer.send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n").answer()[2], b"ok")
            self.assertTrue(self.peer().ended())

    def test_a_graceful_stop(self):
        """Requests in flight are answered, idle connections are closed, and nobody new gets in."""
        self.serve(memory=64 << 20)
        idle, fresh = self.peer().send("GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n"), self.peer()
        idle.answer()
        waiting = self.peer().send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n")
        arriving = self.peer().send(f"{HEAD}Content-Length: 5\r\n\r\nhel")
        releasing = self.peer().send("POST /release HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n")
        reading = self.peer().send(f"GET /large?{20 << 20} HTTP/1.1\r\nHost: h\r\n\r\n")
        self.wait_state(waiting=1, in_flight=5)
        self.child.send_signal(signal.SIGTERM)
        self.assertTrue(idle.ended() and fresh.ended())
        with self.assertRaises(ConnectionError):
            socket.create_connection(("127.0.0.1", self.port))
        status, headers, data = arriving.send("lo").answer()
        self.assertEqual((status, headers["connection"], data), (200, "close", b"2 /echo? [] <-> hello"))
        self.assertEqual(releasing.send("x").answer()[2], b"1")
        self.assertEqual(waiting.answer()[2], b"released")
        self.assertIsNone(self.child.poll())
        self.assertEqual(len(reading.answer()[2]), 20 << 20)
        self.assertEqual(self.child.wait(20), 0)

    def test_random_bytes_change_nothing(self):
        """While clients send parts of requests with bytes changed, others get their answers."""
        self.serve()
        samples = [f"{HEAD}Content-Length: 5\r\n\r\nhello", f"{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                   "GET /later HTTP/1.1\r\nHost: h\r\n\r\n", "POST /spool HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"]
        stop, wrong = threading.Event(), []

        def attack(seed):
            dice = random.Random(seed)
            for _ in range(300):
                data = bytearray("".join(dice.choices(samples, k=dice.randrange(1, 4))).encode())
                for _ in range(dice.randrange(4)):
                    data[dice.randrange(len(data))] = dice.choice((0, 10, 13, 32, 44, 48, 57, 58, 255, dice.randrange(256)))
                with contextlib.suppress(OSError), contextlib.closing(Peer(self.port)) as peer:
                    peer.send(bytes(data[:dice.randrange(1, len(data) + 1)]))
                    if dice.randrange(2):
                        peer.socket.shutdown(socket.SHUT_WR)
                        peer.answer()

        def honest():
            while not stop.is_set():
                answer = self.ask(f"{HEAD}Content-Length: 5\r\n\r\nhello")
                if not answer or answer[2] != b"2 /echo? [] <-> hello":
                    wrong.append(answer)

        attackers = [threading.Thread(target=attack, args=(seed,)) for seed in range(4)]
        witness = threading.Thread(target=honest)
        for thread in attackers + [witness]:
            thread.start()
        for thread in attackers:
            thread.join()
        stop.set()
        witness.join()
        self.assertEqual(wrong, [])
        self.wait_state(waiting=0, in_flight=1)
        self.assertEqual(os.listdir(self.folder), [])
        self.child.send_signal(signal.SIGTERM)
        self.assertEqual(self.child.wait(20), 0)

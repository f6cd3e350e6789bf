"""A unix-socket proxy between a daemon and Redis that knows where commands begin and end, so that a test can act at an exact
step of the protocol: before a command reaches Redis, or after Redis has executed it and before the daemon gets the answer."""

import os
import socket
import threading
import time


class Proxy:
    """`act(number, words)` is called for each command of the daemon, counted from 0 over all connections, before it is
    forwarded; it returns None to forward the command, "before" to run `strike` instead, "after" to forward it, wait for
    the first bytes of its answer, and run `strike` instead of passing them on."""

    def __init__(self, directory, target, act=lambda number, words: None, strike=None,
                 bytes_per_second=None, sent_per_second=None):
        self.path = os.path.join(directory, f"p{len(os.listdir(directory))}")
        self.target, self.act, self.strike = target, act, strike
        self.bytes_per_second = bytes_per_second  # of answers: a slow line
        self.sent_per_second = sent_per_second    # of commands, in the same way
        self.log = self.path
        self.commands = []  # the words of each command, in order
        self.struck = None  # the command at which `strike` ran
        self._lock = threading.Lock()
        self._sockets = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.target)
            except OSError:  # Redis is down
                client.close()
                continue
            link = _Link(self, client, server)
            self._sockets += [client, server]
            threading.Thread(target=link.requests, daemon=True).start()
            threading.Thread(target=link.answers, daemon=True).start()

    def decide(self, words):
        with self._lock:
            number = len(self.commands)
            self.commands.append(words)
            if self.struck is not None:
                return None
            what = self.act(number, words)
            if what is not None:
                self.struck = words
            return what

    def cut(self):
        """Breaks every connection."""
        for end in self._sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cleanup(self):
        """Wakes all threads; the one that accepts would else do so for whoever gets its descriptor next."""
        self._sockets.append(self._listener)
        self.cut()
        self._listener.close()

    def read_log(self):
        return "\n".join(" ".join(word.decode("utf-8", "replace")[:60] for word in words[:6]) for words in self.commands)


class _Link:
    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.strike_at_answer = threading.Event()

    def requests(self):
        buffered = b""
        try:
            while True:
                data = self.client.recv(1 << 16)
                if not data:
                    break
                if self.proxy.sent_per_second:
                    time.sleep(len(data) / self.proxy.sent_per_second)
                buffered += data
                while True:
                    words, size = split_command(buffered)
                    if words is None:
                        break
                    what = self.proxy.decide(words)
                    if what == "before":
                        self.proxy.strike()
                        return self._close()
                    if what == "after":
                        self.strike_at_answer.set()
                    self.server.sendall(buffered[:size])
                    buffered = buffered[size:]
        except OSError:
            pass
        self._close()

    def answers(self):
        """An answer that was under way to an earlier command may come first; then the strike is a little early, which is
        another moment of the same step."""
        try:
            while True:
                data = self.server.recv(1 << 16)
                if not data:
                    break
                if self.strike_at_answer.is_set():
                    self.proxy.strike()
                    break
                self.client.sendall(data)
                if self.proxy.bytes_per_second:
                    time.sleep(len(data) / self.proxy.bytes_per_second)
        except OSError:
            pass
        self._close()

    def _close(self):
        for end in (self.client, self.server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def split_command(data):
    """The words of the first complete command in `data` and its size, or (None, 0)."""
    end = data.find(b"\r\n")
    if end < 0:
        return None, 0
    assert data[:1] == b"*", f"not a command: {data[:40]!r}"
    words, at = [], end + 2
    for _ in range(int(data[1:end])):
        end = data.find(b"\r\n", at)
        if end < 0:
            return None, 0
        length = int(data[at + 1:end])
        if len(data) < end + 2 + length + 2:
            return None, 0
        words.append(data[end + 2:end + 2 + length])
        at = end + 2 + length + 2
    return words, at

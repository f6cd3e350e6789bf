"""A server that speaks just enough of Redis' protocol to be one in a test: each command goes to a function that returns the
answer's bytes. `Voices` is such a server in front of a real Redis: it passes everything on, unless the test answers instead."""

import os
import socket
import threading


def error(text):
    return b"-" + text.encode() + b"\r\n"


def array(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def read_command(file):
    """The words of the next command, or None at the end."""
    line = file.readline()
    if not line:
        return None
    words = []
    for _ in range(int(line[1:])):
        size = int(file.readline()[1:])
        words.append(file.read(size + 2)[:-2])
    return words


def read_answer(file):
    """The bytes of one whole answer."""
    line = file.readline()
    if not line:
        raise ConnectionError("the server closed the connection")
    if line[:1] == b"$" and line[1:3] != b"-1":
        return line + file.read(int(line[1:]) + 2)
    if line[:1] == b"*":
        return line + b"".join(read_answer(file) for _ in range(max(0, int(line[1:]))))
    return line


class RespServer:
    """`answer(words)` is called in the connection's own thread. It listens on a unix socket in `directory`, or without one on TCP."""

    def __init__(self, answer=None, directory=None):
        self.answer = answer
        self.connections = 0
        self.log = "resp_server"
        self._sockets = []
        self._listener = socket.socket(socket.AF_UNIX if directory else socket.AF_INET)
        self._listener.bind(os.path.join(directory, f"v{len(os.listdir(directory))}") if directory else ("127.0.0.1", 0))
        self._listener.listen(64)
        self.address = self._listener.getsockname()
        self.port = None if directory else self.address[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            with client, client.makefile("rb") as file:
                answer = self.connection()
                while (words := read_command(file)) is not None:
                    client.sendall(answer(words))
        except (OSError, ValueError):
            pass

    def connection(self):
        """Returns the function that answers the commands of one connection."""
        return self.answer

    def cleanup(self):
        """Wakes all threads; the one that accepts would else do so for whoever gets its descriptor next."""
        for end in (self._listener, *self._sockets):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._listener.close()

    def read_log(self):
        return ""


class Voices(RespServer):
    """`voice(words)` returns the text of an error to answer in place of Redis, or None."""

    def __init__(self, directory, target):
        self.target = target
        self.voice = lambda words: None
        self.spoken = 0
        self.commands = []  # the first word of each, in order; of scripts "EVALSHA"
        super().__init__(directory=directory)

    def connection(self):
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.target)
        self._sockets.append(server)
        file = server.makefile("rb")

        def answer(words):
            self.commands.append(words[0].upper())
            text = self.voice(words)
            if text is not None:
                self.spoken += 1
                return error(text)
            server.sendall(array(*words))
            return read_answer(file)
        return answer

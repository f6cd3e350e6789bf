"""Cases with a daemon that answers HTTP."""

import http.client

from case import SluiceCase
from ports import free_port


class HttpCase(SluiceCase):
    """Daemons with an HTTP port, on self.port."""

    def setUp(self):
        super().setUp()
        self.server = self.start_redis()
        self.client = self.server.client()
        self.sender = self.producer(self.server)

    def watched(self, *flags, make=None, host="127.0.0.1", **options):
        """A daemon with a port."""
        self.port = free_port()
        daemon = (make or self.make_daemon)(self.server, "--http", f"{host}:{self.port}", *flags, **options).start()
        self.wait_until(lambda: "http_listens" in daemon.read_log() or not daemon.running(), "a port")
        return daemon

    def get(self, path, timeout=20):
        """Status, body; (0, "") where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def wait_answer(self, path, status, words=""):
        self.wait_until(lambda: (lambda got: got[0] == status and words in got[1])(self.get(path)),
                        lambda: f"{path} to say {status} {words!r}; it says {self.get(path)}")

    def sluice(self, *arguments):
        result = self.run_sluice(*arguments, "--redis", self.server.socket, "--queue", self.queue)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout.decode()

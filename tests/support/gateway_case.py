"""Cases with a gateway: HTTP calls that become requests of a queue."""

import http.client
import json
import os

from case import RedisCase
from daemon import BINARY, Daemon
from ports import free_port
from waiting import wait_until

JSON = {"Content-Type": "application/json"}


class Gateway(Daemon):
    """`sluice gateway` as a child of the test."""

    def __init__(self, directory, number, address, queue, flags=(), environment=None):
        super().__init__(directory, number, address, "", queue, (), environment)
        self.log = os.path.join(directory, f"gateway-{number}.log")
        self.port = free_port()
        self.argv = [BINARY, "gateway", "--redis", str(address), "--queue", queue, "--listen", f"127.0.0.1:{self.port}",
                     *map(str, flags)]

    def wait_listening(self):
        wait_until(lambda: "gateway_listens" in self.read_log() or not self.running(), "the gateway to listen")
        assert self.running(), self.read_log()
        return self


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class GatewayCase(RedisCase):
    def make_gateway(self, server=None, *flags, queue=None, environment=None):
        server = server or self.server
        if server.guarded:
            environment = {"SLUICE_REDIS_PASSWORD": "pw", **(environment or {})}
        gateway = Gateway(self.directory, len(self.children), server.address("producer"), queue or self.queue, flags, environment)
        self.children.append(gateway)
        return gateway

    def start_gateway(self, *arguments, **options):
        self.gateway = self.make_gateway(*arguments, **options).start().wait_listening()
        return self.gateway

    def ask(self, method, path, body=None, headers=None, gateway=None, timeout=60):
        """One call on a connection of its own."""
        connection = self.send(method, path, body, headers, gateway, timeout)
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def send(self, method, path, body=None, headers=None, gateway=None, timeout=60):
        """A call whose answer is not read yet: connection.getresponse()."""
        connection = http.client.HTTPConnection("127.0.0.1", (gateway or self.gateway).port, timeout=timeout)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, data, {**(JSON if body is not None else {}), **(headers or {})})
        return connection

    def embed(self, text, gateway=None, timeout=60, **headers):
        return self.ask("POST", "/v1/embeddings", {"input": text, "encoding_format": "base64"}, headers, gateway, timeout)

    def expected(self, texts):
        """The vectors of `sluice embed`."""
        reference = self.reference()
        reference.learn(texts)
        return [reference(text) for text in texts]

    def entries(self, level=""):
        """The fields of the entries of a class."""
        return [{name.decode(): value.decode() for name, value in fields.items()}
                for _, fields in self.client.xrange(self.sender.stream_of(level))]

    def wait_entries(self, count=1, level=""):
        wait_until(lambda: len(self.entries(level)) >= count, f"{count} entries")
        return self.entries(level)

    def reply(self, entry, **fields):
        """Plays the worker for one entry."""
        results = entry["notify"].removeprefix("stream:")
        info = fields.pop("info", {})
        self.client.hset(self.sender.key("reply:" + entry["id"]), mapping={**fields, "info": json.dumps({"entry": "1-1", **info})})
        self.client.xadd(self.sender.key("results:" + results), {"id": entry["id"], "status": fields["status"], "entry": "1-1"})

"""kill -9 of workers, gateways and Redis under load: every call is answered once, with the right vector, to clients that
try once more."""
# ctest-cost: 40

import http.client
import json
import random
import struct
import threading

from case import SOON, scaled
from corpus import texts
from gateway_case import JSON, Gateway, GatewayCase
from sentinel import Group

CLIENTS = 6


class Client(threading.Thread):
    """Sends one call after another to the first gateway, and those that fail once more, to the second."""

    def __init__(self, ports, texts, seed):
        super().__init__(daemon=True)
        self.ports, self.texts, self.random = ports, texts, random.Random(seed)
        self.answers, self.failures, self.retries, self.stopping = [], [], 0, False
        self.begun = self.ended = 0  # calls

    def run(self):
        while not self.stopping:
            text = self.random.choice(self.texts)
            first = self.random.randrange(2)
            self.begun += 1
            for attempt in range(2):
                try:
                    why = self.call(self.ports[(first + attempt) % 2], text)
                except (OSError, http.client.HTTPException) as error:
                    why = repr(error)
                if why is None:
                    break
                self.retries += 1
            else:
                self.failures.append(why)
            self.ended += 1

    def call(self, port, text):
        """None, or why there is no vector."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/v1/embeddings", json.dumps({"input": text}), JSON)
            response = connection.getresponse()
            body = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            return f"{response.status} {body}"
        vector = body["data"][0]["embedding"]
        self.answers.append((text, struct.pack(f"<{len(vector)}f", *vector)))
        return None


class GatewayKill(GatewayCase):
    lease_ms = SOON

    def begin(self):
        self.workers = [self.start_slow(self.server) for _ in range(2)]
        self.gateways = [self.make_gateway().start().wait_listening() for _ in range(2)]
        self.load()

    def load(self):
        self.some = texts(200, seed=5, longest=40)
        self.clients = [Client([gateway.port for gateway in self.gateways], self.some, seed) for seed in range(CLIENTS)]
        for client in self.clients:
            client.start()

    def answered(self):
        return sum(len(client.answers) for client in self.clients)

    def wait_answers(self, count):
        """Also until no call is left that was out before: one that is tried once more survives one kill, not two."""
        goal, each = self.answered() + count, [len(client.answers) for client in self.clients]
        self.wait_until(lambda: self.answered() >= goal and all(len(client.answers) > before for client, before in zip(self.clients, each))
                        or any(client.failures for client in self.clients), "answers")

    def wait_round(self):
        """Waits for the calls under way to end: a client tries only once more, so no call may meet two kills."""
        begun = [client.begun for client in self.clients]
        self.wait_until(lambda: all(client.ended >= calls for client, calls in zip(self.clients, begun)), "the calls under way to end")

    def end(self):
        self.wait_answers(20)
        for client in self.clients:
            client.stopping = True
        for client in self.clients:
            client.join(90)
            self.assertFalse(client.is_alive(), "a call is never answered")
        self.assertEqual([client.failures for client in self.clients], [[] for _ in self.clients])
        expected = dict(zip(self.some, self.expected(self.some)))
        for client in self.clients:
            for text, vector in client.answers:
                self.assertEqual(vector, expected[text], text)
        self.wait_empty(self.producer(self.server))
        print(f"{self.answered()} calls, {sum(client.retries for client in self.clients)} of them tried again")

    def kill(self, kind, generator):
        if kind == "redis":
            self.server.kill()
            self.server.start()
        else:
            victim = generator.choice(self.workers if kind == "worker" else self.gateways)
            victim.kill()
            victim.start()
            if kind == "gateway":
                self.wait_until(lambda: victim.read_log().count("gateway_listens") > self.listened[victim], "the gateway to listen")
                self.listened[victim] += 1

    def run_kills(self, kinds, count, seed):
        generator = random.Random(seed)
        self.begin()
        self.listened = {gateway: 1 for gateway in self.gateways}
        for number in range(count):
            self.wait_answers(generator.randrange(1, 30))
            self.kill(kinds[number % len(kinds)], generator)
            self.wait_round()
        self.end()

    def test_workers(self):
        self.run_kills(["worker"], scaled(12), 1)

    def test_gateways(self):
        self.run_kills(["gateway"], scaled(25), 2)

    def test_redis(self):
        self.run_kills(["redis"], scaled(12), 3)

    def test_all_of_them(self):
        self.run_kills(["worker", "gateway", "redis"], scaled(24), 4)

    def test_a_poison_text(self):
        """The call that crashes each worker ends with 422, which no client repeats; those beside it get vectors."""
        self.start_gateway()
        answers = {}

        def call(text):
            answers[text] = self.embed(text)

        texts = ["the kernel", *(f"music {number}" for number in range(10))]
        threads = [threading.Thread(target=call, args=(text,), daemon=True) for text in texts]
        for thread in threads:
            thread.start()
        self.wait_entries(len(texts))
        deaths = 0
        while len(answers) < len(texts):
            worker = self.make_faulty(self.server, faults=["crash:{kernel}"]).start()
            self.wait_until(lambda: not worker.running() or len(answers) == len(texts), "a crash or the answers")
            deaths += not worker.running()
            self.assertLess(deaths, 10, "workers die for ever")
        self.assertEqual((answers["the kernel"].status, answers["the kernel"].json["error"]["code"]), (422, "poison"))
        self.assertEqual({answers[text].status for text in texts[1:]}, {200})
        self.assertGreaterEqual(deaths, 3)

    def test_another_redis_becomes_the_master(self):
        """By Sentinel's decision: calls in flight are sent again to the new master, where it lacks them."""
        group = Group(self.directory, self.children, replicas=1)
        self.workers = [self.start_daemon(group.servers[0], address=group.url())]
        self.gateways = [Gateway(self.directory, 90 + number, group.url(), self.queue) for number in range(2)]
        self.children += self.gateways
        for gateway in self.gateways:
            gateway.start().wait_listening()
        self.load()
        for _ in range(scaled(3)):
            self.wait_answers(20)
            group.wait_replicas()
            group.fail_over()
        self.server = group.wait_master()
        self.end()

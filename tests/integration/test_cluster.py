"""A queue on a Redis Cluster occupies one slot: workers and gateways follow it to the node that owns it, also when it
moves under load."""
# ctest-cost: 15

import redis

from case import SluiceCase
from corpus import texts
from gateway_case import Gateway, GatewayCase
from ports import free_port
from sentinel import TcpRedis

SLOTS = 16384


class Cluster(GatewayCase):
    def setUp(self):
        SluiceCase.setUp(self)  # without the server of other cases
        self.nodes = []
        for name in "abc":
            options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-node-timeout", "5000"]
            self.nodes.append(TcpRedis(self.directory, name, options=options))
            self.children.append(self.nodes[-1])
        share = SLOTS // 3 + 1
        for number, node in enumerate(self.nodes):
            self.tell(node, "ADDSLOTSRANGE", number * share, min(SLOTS, (number + 1) * share) - 1)
            bus = node.options[node.options.index("--cluster-port") + 1]
            self.tell(self.nodes[0], "MEET", "127.0.0.1", node.port, bus)
        self.wait_until(lambda: all(self.tell(node, "INFO")["cluster_state"] == "ok" and
                                    self.tell(node, "INFO")["cluster_known_nodes"] == "3" for node in self.nodes), "the cluster")
        self.stream = f"sluice:{{{self.queue}}}:requests"
        self.slot = self.tell(self.nodes[0], "KEYSLOT", self.stream)

    def tell(self, node, *words):
        return node.client().execute_command("CLUSTER " + words[0], *words[1:])

    def id_of(self, node):
        answer = self.tell(node, "MYID")
        return answer.decode() if isinstance(answer, bytes) else answer

    def owner(self):
        share = SLOTS // 3 + 1
        return self.nodes[self.slot // share]

    def url(self, *nodes):
        return "redis://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)

    def others(self, node):
        return [other for other in self.nodes if other is not node]

    def test_any_node_will_do(self):
        owner = self.owner()
        sender = self.producer(owner)
        for node in self.others(owner):
            daemon = self.start_daemon(owner, address=self.url(node))
            self.logged(daemon, "MOVED")
            self.wait_finished(sender, sender.submit_many(texts(30, seed=node.port), encoding="f32"))
            self.assertEqual(daemon.stop(), 0)
        self.assert_clean(owner)
        result = self.run_sluice("submit", "--redis", self.url(self.others(owner)[0]), "--queue", self.queue, "hello")
        self.assertEqual(result.returncode, 69)
        self.assertIn(f"127.0.0.1:{owner.port}".encode(), result.stderr)

    def test_a_gateway_follows(self):
        source = self.owner()
        target, other = self.others(source)
        daemon = self.start_daemon(source, address=self.url(*self.nodes))
        self.gateway = Gateway(self.directory, len(self.children), self.url(other), self.queue)
        self.children.append(self.gateway.start().wait_listening())
        for round in range(2):
            answer = self.embed(f"round {round}", timeout=60)
            self.assertEqual(answer.status, 200, answer.body)
            self.move(source, target)
            self.wait_until(lambda: daemon.alive_key(target.client()), "the worker to follow", ignore=(redis.ResponseError,))
            source, target = target, source
        self.assertEqual(self.embed("the end").status, 200)

    def move(self, source, target):
        """Moves the slot from one node to the other as redis-cli --cluster would."""
        self.wait_until(self.agreed, "all nodes to agree")
        self.tell(target, "SETSLOT", self.slot, "IMPORTING", self.id_of(source))
        self.tell(source, "SETSLOT", self.slot, "MIGRATING", self.id_of(target))
        while keys := self.tell(source, "GETKEYSINSLOT", self.slot, 5):
            source.client().execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.others(source)):
            self.tell(node, "SETSLOT", self.slot, "NODE", self.id_of(target))

    def agreed(self):
        """Returns whether all nodes know the same configuration epochs. The next move derives a new epoch from those
        that its node knows: too early, two nodes would get the same one, and one of them could take the slot back."""
        seen = []
        for node in self.nodes:
            lines = node.client().execute_command("CLUSTER", "NODES").decode().splitlines()
            seen.append({line.split()[0]: line.split()[6] for line in lines})
        return all(epochs == seen[0] for epochs in seen) and len(set(seen[0].values())) == len(self.nodes)

    def submit_until_held(self, sender, seed):
        """Submits until some requests are held: a fast machine may have answered all of them before the test looks."""
        sender.submit_many(texts(200, seed=seed), encoding="f32")
        return self.pending(sender.client) > 0

    def test_a_hash_of_its_producer_must_be_in_the_same_slot(self):
        """The vector is also written to the hash; if that is not possible, only this copy is missing."""
        owner = self.owner()
        sender, near, far = self.producer(owner), f"doc:{{{self.queue}}}:1", "doc:1"
        self.start_daemon(owner, "--into-keys", "doc:*", address=self.url(owner))
        self.assertNotEqual(self.tell(owner, "KEYSLOT", far), self.slot)
        requests = [sender.submit("hello", encoding="f32", into=key) for key in (near, far)]
        self.wait_finished(sender, requests)
        good, bad = map(sender.reply, requests)
        self.assertEqual(sender.client.hget(near, "embedding"), good[b"embedding"])
        self.assertEqual((bad[b"embedding"], "into_error" in good), (good[b"embedding"], False))
        self.assertIn("ttempted to access a non local key", bad["into_error"])

    def test_the_slot_moves_under_load(self):
        source = self.owner()
        target = self.others(source)[0]
        daemon = self.start_daemon(source, address=self.url(*self.nodes))
        sender = self.producer(source)
        for round in range(4):
            self.wait_until(lambda: self.submit_until_held(sender, round), "entries in the worker's hands", ignore=(redis.ResponseError,))
            self.move(source, target)
            source, target = target, source
            self.wait_until(lambda: daemon.alive_key(source.client()), "the worker to follow", ignore=(redis.ResponseError,))
            sender.client = source.client()
            self.journal.fault("slot moved")
        self.wait_finished(sender)
        self.wait_empty(sender)
        source.aof = None  # its history covers only one of two owners
        self.assert_clean(source, faults=["slot moved"])
        self.assertEqual(daemon.stop(), 0)

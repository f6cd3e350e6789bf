"""The master changes under load: by Sentinel's decision, by kill -9, by hand. Every request that a replica has
confirmed is answered."""
# ctest-cost: 25

import signal

import redis

from case import SluiceCase, scaled
from checker import Checker
from confirmed import ConfirmedLoad
from corpus import texts
from sentinel import Group, TcpRedis

BUSY = (redis.ConnectionError, redis.ResponseError)


class Failover(SluiceCase):
    def start_confirmed(self, master):
        load = ConfirmedLoad(master, self.queue, self.journal, texts(400, seed=4, longest=40))
        self.loads.append(load)
        return load.start()

    def wait_busy(self, server, load):
        """Waits until 40 more requests have been confirmed and some are in a worker's hands."""
        enough = load.count + 40
        self.wait_until(lambda: load.count > enough, "more requests")
        self.wait_until(lambda: self.pending(server.client()) > 0, "entries in a worker's hands", ignore=BUSY)

    def finish(self, load, server, faults):
        """Asserts that the current master shows every request answered, correctly and exactly once."""
        load.stop()
        producer = self.producer(server)
        self.wait_finished(producer)
        self.wait_empty(producer)
        load.accept_unanswered(server)
        server.aof = None  # a server that was a replica for a while does not have the queue's whole history
        Checker(server, self.queue, self.journal, self.reference()).assert_clean(faults=faults)
        print(f"{self.journal.faults}, {load.count} requests confirmed, {load.resubmitted} submitted again")

    def serve(self, url, server, count=2):
        return [self.start_daemon(server, address=url) for _ in range(count)]

    def wait_connected(self, daemons, server):
        for daemon in daemons:
            self.wait_until(lambda: daemon.alive_key(server.client()), lambda: f"a daemon on the master:\n{daemon.read_log()}",
                            ignore=BUSY)

    # Sentinel.

    def test_sentinel_failover(self):
        """SENTINEL FAILOVER in both directions: both servers live, and the old master becomes a replica."""
        group = Group(self.directory, self.children, replicas=1)
        daemons = self.serve(group.url(), group.servers[0])
        load = self.start_confirmed(group.master)
        for _ in range(scaled(2)):
            master = group.wait_master()
            group.wait_replicas()
            self.wait_connected(daemons, master)
            self.wait_busy(master, load)
            group.fail_over()
            self.journal.fault("sentinel failover")
        self.assertTrue(all(daemon.running() for daemon in daemons))
        group.wait_replicas()  # without a replica nothing is confirmed any more
        self.finish(load, group.wait_master(), ["sentinel failover"])

    def test_master_killed(self):
        """kill -9 of the master; the sentinels choose another one, and the dead one comes back as its replica."""
        group = Group(self.directory, self.children, replicas=1)
        daemons = self.serve(group.url(), group.servers[0])
        load = self.start_confirmed(group.master)
        for _ in range(scaled(2)):
            master = group.wait_master()
            group.wait_replicas()
            self.wait_connected(daemons, master)
            self.wait_busy(master, load)
            master.kill()
            group.wait_master(other_than=master)
            self.journal.fault("master killed")
            master.start()
        self.assertTrue(all(daemon.running() for daemon in daemons))
        group.wait_replicas()  # without a replica nothing is confirmed any more
        self.finish(load, group.wait_master(), ["master killed"])

    def test_master_hangs(self):
        """The master stops answering without closing anything; the worker abandons it, and does not return to it when
        it wakes."""
        group = Group(self.directory, self.children, replicas=1)
        daemons = self.serve(group.url(), group.servers[0])
        load = self.start_confirmed(group.master)
        for _ in range(scaled(2)):
            master = group.wait_master()
            group.wait_replicas()
            self.wait_connected(daemons, master)
            self.wait_busy(master, load)
            master.process.send_signal(signal.SIGSTOP)
            other = next(server for server in group.servers if server is not master)
            self.wait_until(lambda: other.role() == "master", "the other one to be promoted", ignore=BUSY)
            # A sentinel that has not heard of it yet would send it back to the old master as soon as that wakes.
            self.wait_until(lambda: all(sentinel.master_port() == other.port for sentinel in group.sentinels), "all sentinels to know")
            self.wait_connected(daemons, other)
            master.process.send_signal(signal.SIGCONT)
            group.wait_replicas()
            self.assertEqual(master.role(), "slave")
            self.journal.fault("master hangs")
        self.assertTrue(all(daemon.running() for daemon in daemons))
        group.wait_replicas()  # without a replica nothing is confirmed any more
        self.finish(load, group.wait_master(), ["master hangs"])

    # By hand.

    def pair(self):
        servers = [TcpRedis(self.directory, name) for name in "ab"]
        self.children += servers
        servers[1].follow(servers[0])
        return servers

    def test_replicaof_switch(self):
        """The roles of two servers are exchanged by hand, and the worker knows both by name."""
        servers = self.pair()
        url = "redis://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
        daemons = self.serve(url, servers[0])
        load = self.start_confirmed(lambda: next((s for s in servers if s.role() == "master"), None))
        for number in range(scaled(6)):
            old, new = servers[number % 2], servers[(number + 1) % 2]
            self.wait_connected(daemons, old)
            self.wait_until(lambda: old.client().info("replication")["connected_slaves"] == 1, "the replica", ignore=BUSY)
            self.wait_busy(old, load)
            # In any switch, writes that the old master has not sent yet would be lost, so it pauses them for a moment.
            old.client().execute_command("CLIENT", "PAUSE", "2000", "WRITE")
            self.wait_until(lambda: self.in_step(old, new), "the replica to have everything", ignore=BUSY)
            new.follow(None)
            old.client().execute_command("CLIENT", "UNPAUSE")
            old.follow(new)
            self.journal.fault("replicaof switch")
        last = servers[scaled(6) % 2]
        self.wait_connected(daemons, last)
        self.assertTrue(all(daemon.running() for daemon in daemons))
        self.finish(load, last, ["replicaof switch"])

    def in_step(self, master, replica):
        return replica.client().info("replication")["slave_repl_offset"] == \
            master.client().info("replication")["master_repl_offset"]

    def test_replica_for_a_while(self):
        """A single server, given by its own address, becomes a replica and then a master again: nothing is claimed in
        between, finished results are kept, and nothing is computed twice."""
        server, other = self.pair()
        other.follow(None)
        daemon = self.start_daemon(server, address=f"redis://127.0.0.1:{server.port}")
        sender = self.producer(server)
        self.wait_finished(sender, sender.submit_many(texts(30, seed=1), encoding="f32"))
        for round in range(3):
            # There is nothing at its master's address, so the data stays as it is.
            client = server.client()
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            seen = daemon.read_log().count("is a replica of")
            self.wait_until(lambda: daemon.read_log().count("is a replica of") > seen, "a word about it")
            self.assertTrue(daemon.running())
            client.execute_command("REPLICAOF", "NO", "ONE")
            self.journal.fault("replica for a while")
            self.wait_finished(sender, sender.submit_many(texts(30, seed=5 + round), encoding="f32"))
        self.wait_empty(sender)
        self.assert_clean_final(server, ["replica for a while"])
        self.assertEqual(daemon.stop(), 0)

    def assert_clean_final(self, server, faults):
        server.aof = None
        Checker(server, self.queue, self.journal, self.reference()).assert_clean(faults=faults)

    def test_results_kept_while_a_replica(self):
        """The server becomes a replica when the worker holds everything and nothing is answered; the results wait."""
        server, other = self.pair()
        other.follow(None)
        daemon = self.make_faulty(server, "--threads", "1", "--window", "fixed", "--window-ms", "1000", faults=["held:{kernel}"],
                                  address=f"redis://127.0.0.1:{server.port}").start().wait_ready(server.client())
        self.shut_gate()
        sender = self.producer(server)
        requests = sender.submit_many([f"kernel {text}" for text in texts(40, seed=8)], encoding="f32")
        client = server.client()
        self.wait_until(lambda: self.pending(client) == 40 and self.fired("held"), "all of them in the worker's hands")
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        self.journal.fault("replica before the settle", not sender.finished(requests[:1]))
        self.open_gate()
        self.wait_until(lambda: daemon.read_log().count("is a replica of") > 2, "a word about it")
        client.execute_command("REPLICAOF", "NO", "ONE")
        self.wait_finished(sender)
        self.wait_empty(sender)
        self.assert_clean_final(server, ["replica before the settle"])
        self.assertEqual(daemon.stop(), 0)
        self.assertRegex(daemon.read_log(), r" drained .*done=40\b.* rows=40\b")

"""Redis is absent, goes away, comes back, loses the group, the scripts or everything: the daemon goes on."""
# ctest: threads
# ctest-cost: 35

import json
import threading

import redis

from case import RedisCase
from corpus import texts
from proxy import Proxy
from redis_server import RedisServer


class RedisTrouble(RedisCase):
    def roundtrip(self, seed, count=50):
        self.wait_finished(self.sender, self.sender.submit_many(texts(count, seed=seed), encoding="f32"))

    def test_daemon_before_redis(self):
        late = RedisServer(self.directory, "late")
        self.children.append(late)
        daemon = self.make_daemon(late).start()
        self.wait_until(lambda: "redis" in daemon.read_log(), "a word that Redis is not there")
        late.start()
        daemon.wait_ready(late.client())
        sender = self.producer(late)
        sender.submit("hello world", encoding="f32")
        self.wait_finished(sender)
        self.assert_clean(late)
        self.assertEqual(daemon.stop(), 0)

    def test_redis_stopped_and_started(self):
        daemon = self.start_daemon(self.server)
        for round in range(3):
            self.roundtrip(round)
            self.server.stop()
            self.server.start()
        self.roundtrip(9)
        self.assertTrue(daemon.running())
        self.assert_clean(self.server)
        self.assertEqual(daemon.stop(), 0)

    def test_requests_from_before_the_daemon(self):
        self.sender.submit_many(texts(100, seed=2), encoding="f32")
        self.start_daemon(self.server)
        self.wait_finished(self.sender)
        self.assert_clean(self.server)

    def test_group_destroyed(self):
        """The stream holds exactly the unfinished requests, so the group is created again at 0 and nothing is lost."""
        self.start_daemon(self.server)
        self.roundtrip(1)
        self.client.xgroup_destroy(self.sender.stream, "sluice")
        self.roundtrip(2)
        for round in range(10):
            self.sender.submit_many(texts(300, seed=10 + round), encoding="f32")
            self.wait_until(lambda: self.client.xlen(self.sender.stream) < 200, "some of them to be done")
            self.client.xgroup_destroy(self.sender.stream, "sluice")
        self.wait_finished(self.sender, timeout=60)
        self.wait_empty(self.sender)

    def test_stream_deleted(self):
        """DEL of the stream deletes its requests; later ones are served."""
        self.start_daemon(self.server)
        self.roundtrip(1)
        self.client.delete(self.sender.stream)
        self.roundtrip(2)
        self.assert_clean(self.server)

    def test_large_entries_cost_no_connection(self):
        """There are twenty entries larger than a worker reads, and a dead worker's requests to take over: no connection
        is lost, each of the twenty is answered unread, and the other requests are answered."""
        self.client.xgroup_create(self.sender.stream, "sluice", id="0", mkstream=True)
        held = self.sender.submit_many(texts(40, seed=6), encoding="f32")
        self.client.xreadgroup("sluice", "somebody-dead", {self.sender.stream: ">"}, count=40)
        large = [self.sender.submit_fields({"text": b"x" * (24 << 20)}, expected="too_large") for _ in range(20)]
        small = self.sender.submit_many(texts(40, seed=7), encoding="f32")
        daemon = self.start_daemon(self.server)
        self.wait_finished(self.sender, [*held, *large, *small])
        self.wait_empty(self.sender)
        self.assertEqual({self.sender.reply(request)[b"code"] for request in large}, {b"too_large"})
        self.assertNotIn("redis_lost", daemon.read_log())
        self.assertEqual(daemon.stop(), 0)

    def test_flushall(self):
        daemon = self.start_daemon(self.server)
        self.roundtrip(1)
        self.client.flushall()
        self.journal.requests.clear()
        # Requests deleted by FLUSHALL cannot be answered; later ones must be, by the same daemon.
        self.roundtrip(2)
        self.wait_until(lambda: daemon.alive_key(self.client), "a new alive key")
        self.roundtrip(3)
        self.assertTrue(daemon.running())

    def test_script_flush(self):
        self.start_daemon(self.server)
        for round in range(5):
            self.client.script_flush()
            self.roundtrip(round)
        self.sender.submit_many(texts(500, seed=8), encoding="f32")
        for _ in range(20):
            self.client.script_flush()
        self.wait_finished(self.sender)
        self.assert_clean(self.server)

    def test_connections_killed(self):
        """CLIENT KILL ends the daemon's connections again and again under load."""
        self.start_daemon(self.server)
        killed = 0
        for round in range(10):
            self.sender.submit_many(texts(60, seed=30 + round), encoding="f32")
            for connection in self.client.client_list():
                if connection["id"] != str(self.client.client_id()):
                    try:
                        killed += self.client.client_kill_filter(_id=connection["id"])
                    except redis.ResponseError:
                        pass  # gone already
        self.assertGreater(killed, 10)
        self.wait_finished(self.sender)
        self.assert_clean(self.server)

    def test_alive_key_deleted(self):
        """A worker that finds its lease gone settles what it has and joins again."""
        daemon = self.start_daemon(self.server)
        self.roundtrip(1)
        key = daemon.alive_key(self.client)
        self.client.delete(key)
        self.wait_until(lambda: daemon.alive_key(self.client), "the worker to join again")
        self.roundtrip(2)
        self.assert_clean(self.server)

    def test_pending_entry_deleted_by_hand(self):
        """XDEL of an entry that a dead worker holds: its producer gets `internal`, and the queue goes on."""
        daemon = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000")
        request = self.sender.submit("to be deleted")
        request.expected = "internal"
        self.wait_until(lambda: self.pending(self.client) == 1, "the entry to be held")
        daemon.kill()
        self.client.xdel(self.sender.stream, request.entries[0])
        self.start_daemon(self.server)
        self.wait_finished(self.sender)
        self.assertEqual(self.sender.reply(request)[b"code"], b"internal")
        self.roundtrip(4)
        self.wait_until(lambda: self.pending(self.client) == 0, "nothing pending")

    def test_stream_of_wrong_type(self):
        """SET over the stream by mistake, then repaired: the daemon serves again without a restart."""
        daemon = self.start_daemon(self.server)
        self.roundtrip(1)
        self.client.set(self.sender.stream, "a mistake")
        self.wait_until(lambda: "is not a stream" in daemon.read_log(), "a complaint")
        self.assertTrue(daemon.running())
        self.client.delete(self.sender.stream)
        self.roundtrip(2)

    def test_parking_place_of_wrong_type(self):
        """Nothing can be promoted from it, and the log says why."""
        daemon = self.start_daemon(self.server)
        self.client.set(f"sluice:{{{self.queue}}}:later", "junk")
        self.wait_until(lambda: "lua/promote: Redis says: WRONGTYPE" in daemon.read_log(), "a word about it")
        self.roundtrip(11)

    def test_eviction_policy_refused(self):
        for policy in ("allkeys-lru", "volatile-ttl", "allkeys-random"):
            self.client.config_set("maxmemory-policy", policy)
            daemon = self.make_daemon(self.server).start()
            self.assertNotEqual(daemon.wait_exit(), 0)
            self.assertIn("noeviction", daemon.read_log())
            self.assertIn(policy, daemon.read_log())
        self.start_daemon(self.server, "--allow-eviction")
        self.roundtrip(1)

    def test_eviction_policy_switched(self):
        """A running daemon goes on, also after a reconnect, and logs the switch and its end; a new one does not
        start."""
        daemon = self.start_daemon(self.server)
        self.roundtrip(1)
        self.client.config_set("maxmemory-policy", "allkeys-lru")
        self.wait_until(lambda: "redis_evicts queue=test maxmemory_policy=allkeys-lru" in daemon.read_log(), "a word about it")
        self.assertNotEqual(self.make_daemon(self.server).start().wait_exit(), 0)
        connected = daemon.read_log().count("redis_connected")
        self.client.client_kill_filter(_type="normal", skipme=True)
        self.wait_until(lambda: daemon.read_log().count("redis_connected") > connected, "a reconnect")
        self.roundtrip(2)
        self.client.config_set("maxmemory-policy", "noeviction")
        self.wait_until(lambda: "redis_evicts_no_more" in daemon.read_log(), "the end")
        self.assertEqual(daemon.read_log().count("redis_evicts queue"), 1)
        self.assertEqual(daemon.stop(), 0)

    def test_second_model_refused(self):
        """A queue has one model: a worker with another one refuses to join, with an error, and disturbs nobody."""
        self.start_daemon(self.server)
        self.roundtrip(1)
        stranger = self.make_daemon(self.server, model=self.make_model("stranger", seed=2)).start()
        self.assertNotEqual(stranger.wait_exit(), 0)
        self.assertIn("model", stranger.read_log())
        self.roundtrip(2)
        self.assert_clean(self.server)

    def test_higher_protocol_refused(self):
        self.client.hset(self.sender.key("meta"), "protocol", "2")
        daemon = self.make_daemon(self.server).start()
        self.assertNotEqual(daemon.wait_exit(), 0)
        self.assertIn("protocol", daemon.read_log())

    def test_slow_redis(self):
        """A Redis that is blocked for a while (DEBUG SLEEP by another client) delays requests, but loses none."""
        self.server.cleanup()
        self.server.options = ["--enable-debug-command", "yes"]
        self.server.start()
        self.start_daemon(self.server)
        self.sender.submit_many(texts(200, seed=5), encoding="f32")
        held = threading.Thread(target=lambda: self.server.client().execute_command("DEBUG", "SLEEP", "1"))
        held.start()
        self.sender.submit_many(texts(200, seed=6), encoding="f32")
        held.join()
        self.wait_finished(self.sender)
        self.assert_clean(self.server)

    def test_slow_line(self):
        """An answer or a command may take longer than the limit for a silent Redis, as long as its bytes keep
        moving."""
        proxy = Proxy(self.directory, self.server.socket, bytes_per_second=300 << 10, sent_per_second=180 << 10)
        self.children.append(proxy)
        model = self.make_model("wide", hidden=384, heads=6, layers=1, intermediate=64)
        daemon = self.start_daemon(self.server, "--lease-ms", "30000", address=proxy.path, model=model)
        wide = texts(256, seed=8, longest=4)
        self.sender.submit_fields({"inputs": json.dumps(wide)}, wide)  # a reply of more than a MiB
        self.sender.submit_fields({"text": "a" * (3 << 20)}, expected="too_large")
        self.sender.submit("behind it")
        self.wait_finished(self.sender)
        self.assertNotIn("redis_lost", daemon.read_log())
        self.assert_clean(self.server, model=model)

    def test_database_number(self):
        """A URL with a database number works over TCP, as the bare socket does."""
        server = RedisServer(self.directory, "tcp")
        self.children.append(server)
        port = server.start_on_tcp()
        client = redis.Redis(port=port, db=3)
        daemon = self.make_daemon(server, address=f"redis://127.0.0.1:{port}/3").start().wait_ready(client)
        entry = client.xadd(f"sluice:{{{self.queue}}}:requests", {"text": "hello", "encoding": "f32"}).decode()
        reply = f"sluice:{{{self.queue}}}:reply:{entry}"
        self.wait_until(lambda: client.hget(reply, "status") == b"done", "the reply in database 3")
        self.assertEqual(client.hget(reply, "embedding"), self.reference()("hello"))
        self.assertEqual(self.client.dbsize(), 0)
        self.assertEqual(daemon.stop(), 0)

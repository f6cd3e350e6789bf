"""Streams of tokens while workers, Redis and connections die: each index once."""
# ctest-cost: 30

import random
import signal
import struct
import time

import redis

from case import SOON
from generate_case import SOME, GenerateCase
from ports import free_port


class StreamKillCase(GenerateCase):

    def ask(self, count, **fields):
        """Sends texts that draw, some with a seed, some without."""
        return [self.send(prompt=f"Hello {number}", max_tokens=str(SOME), temperature="1", stream="web", id=f"text-{number}",
                          **({"seed": str(number)} if number % 2 else {}), **fields) for number in range(count)]

    def assert_all_streamed(self, asked, directory, client=None):
        for request in asked:
            self.wait_until(lambda: (client or self.client).exists(f"sluice:{{{self.queue}}}:reply:{request.id}"), request.id, timeout=120)
            self.assertEqual(self.fields(request)["status"], "done")
            self.assert_streamed("web", request, client)
        text = self.locally(directory, "Hello 1", "--max-tokens", str(SOME), "--temperature", "1", "--seed", "1")["text"]
        self.assertEqual(self.fields(asked[1])["text"], text)

    def wait_more(self, count=5):
        """Waits until the stream has so many more entries."""
        before = len(self.entries("web"))
        self.wait_until(lambda: len(self.entries("web")) >= before + count, "more entries", timeout=60)

    def run_faults(self, asked, fault):
        """Calls `fault` whenever the stream has grown, until all texts have ended."""
        faults, ignore = 0, (redis.ConnectionError, redis.ResponseError)

        def state():
            entries = self.entries("web")
            return len(entries), sum("status" in entry for entry in entries)

        def grown():
            now = state()
            return (now[0] >= seen[0] + 5 or now[1] == len(asked)) and now

        seen = self.wait_until(state, "the stream", ignore=ignore)
        while seen[1] < len(asked):
            if self.wait_until(grown, lambda: f"more than {seen}", timeout=60, ignore=ignore)[1] < len(asked):
                fault()
                faults += 1
            seen = self.wait_until(state, "the stream", ignore=ignore)
        self.assertGreater(faults, 0)


class StreamKill(StreamKillCase):
    lease_ms = SOON

    def test_kill_of_workers(self):
        """Each goes on where the last one was, and the text is that of a run without a kill. They run together, as a group of
        suspects, and alone; a fifth kill would be poison."""
        directory, generator = self.endless(), random.Random(1)
        asked = self.ask(4)
        for _ in range(4):
            daemon = self.start_daemon(self.server, model=directory)
            self.wait_more()
            time.sleep(generator.uniform(0, 0.05))  # the random moment is the fault itself
            daemon.kill()
        port, begun = free_port(), time.monotonic()
        self.start_daemon(self.server, "--http", f"127.0.0.1:{port}", model=directory)
        self.assert_all_streamed(asked, directory)
        found = self.metrics(port)
        self.assertGreater(found["generate_inter_token_seconds_count"], 0)
        self.assertLess(found["generate_inter_token_seconds_sum"], len(asked) * (time.monotonic() - begun))

    def test_two_workers_take_turns_to_die(self):
        directory = self.endless()
        daemons = [self.start_daemon(self.server, model=directory) for _ in range(2)]
        asked = self.ask(8)
        for kill in range(3):
            self.wait_more()
            daemons[kill % 2].kill()
            daemons[kill % 2] = self.start_daemon(self.server, model=directory)
        self.assert_all_streamed(asked, directory)

    def test_a_worker_that_has_lost_its_requests_adds_nothing(self):
        """It was stopped for longer than its lease, and goes on while another one writes."""
        directory = self.endless()
        stopped = self.start_daemon(self.server, model=directory)
        asked = self.ask(2)
        for request in asked:
            self.wait_tokens("web", request, 50)
        stopped.signal(signal.SIGSTOP)
        self.start_daemon(self.server, model=directory)
        self.wait_more()
        stopped.signal(signal.SIGCONT)
        self.assert_all_streamed(asked, directory)
        self.assertTrue(stopped.running())

    def test_workers_that_are_told_to_end(self):
        """They have no time to end their texts; the next one goes on with them."""
        directory = self.endless()
        asked = self.ask(2)
        for _ in range(2):
            daemon = self.start_daemon(self.server, "--shutdown-timeout-ms", "50", model=directory)
            self.wait_more()
            daemon.stop()
        self.start_daemon(self.server, model=directory)
        self.assert_all_streamed(asked, directory)

    def test_lost_connections(self):
        directory = self.endless()
        self.start_daemon(self.server, model=directory)
        asked = self.ask(4)
        self.run_faults(asked, lambda: self.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
        self.assert_all_streamed(asked, directory)

    def test_redis_loses_its_last_writes(self):
        """A failover forgets the last entries, and the record of their tokens. They are sent again."""
        directory = self.endless()
        self.start_daemon(self.server, model=directory)
        asked = self.ask(2)
        stream = f"sluice:{{{self.queue}}}:tokens:web"
        forget = self.client.register_script("""
          for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 3)) do
            local fields = {}
            for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
            if fields.status then return end
            local record = ARGV[1] .. fields.entry
            redis.call('SET', record, string.sub(redis.call('GET', record), 1, 4 * fields.index))
            redis.call('XDEL', KEYS[1], entry[1])
          end""")
        self.run_faults(asked, lambda: forget(keys=[stream], args=[f"sluice:{{{self.queue}}}:sent:"]))
        self.assert_all_streamed(asked, directory)

    def test_a_damaged_record_ends_in_an_error(self):
        first = self.start_daemon(self.server, model=self.endless())
        asked, = self.ask(1, max_attempts="1")
        self.wait_tokens("web", asked, 50)
        first.kill()
        name = self.entries("web")[0]["entry"]
        self.client.set(f"sluice:{{{self.queue}}}:sent:{name}", struct.pack("<3i", 5, -1, 1 << 30))
        asked.expected = "error"
        self.start_daemon(self.server, model=self.path("models", "endless"))
        self.wait_until(lambda: self.fields(asked), "an end", timeout=60)
        self.assertEqual(self.fields(asked)["status"], "error")
        self.assertIn("status", self.entries("web", asked)[-1])


class RedisKillStream(StreamKillCase):
    redis_options = {"aof": "always"}

    def test_kill_of_redis(self):
        directory = self.endless()
        daemon = self.start_daemon(self.server, model=directory)
        asked = self.ask(3)

        def restart():
            self.server.kill()
            self.server.start()
            self.client = self.server.client()

        self.run_faults(asked, restart)
        self.assert_all_streamed(asked, directory)
        self.assertEqual(daemon.stop(), 0)

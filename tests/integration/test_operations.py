"""An operator's actions on a running queue and their effects: docs/operations.md, sentence by sentence."""
# ctest-cost: 25

import json
import re
import signal

from case import RedisCase
from corpus import texts
from producer import Journal


class Operations(RedisCase):
    brief = ("--lease-ms", "2000")  # for workers that get no orders, and whose leases the test waits for


    def stats(self):
        return json.loads(self.sluice("stats", "--json"))

    def state(self, name):
        """The state that a worker reports of itself."""
        line = self.client.hget(self.sender.key("workers"), name)
        words = line.decode().split()[1:] if line else []
        return dict(zip(words[::2], words[1::2])).get("state")

    def wait_state(self, name, state):
        self.wait_until(lambda: self.state(name) == state, lambda: f"{name} to be {state}; it is {self.state(name)}")

    def calls(self, command):
        return self.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    def housekeeper(self):
        """The housekeeper's rank and name."""
        return (self.client.get(self.sender.key("housekeeper")) or b"- -").decode().split()[:2]

    def test_one_of_many_idle_workers_does_the_chores(self):
        daemons = [self.start_daemon(self.server, *self.brief) for _ in range(4)]
        self.wait_until(lambda: self.housekeeper()[0] == "2", "a housekeeper that may judge")
        self.client.config_resetstat()
        self.wait_until(lambda: self.calls("hgetall") >= 8, "eight pulses of the housekeeper")
        published, heartbeats = self.calls("hgetall"), self.calls("hset") - self.calls("hgetall")
        self.assertGreater(heartbeats, 3 * published, "the others beat as often")
        self.assertLess(self.calls("xinfo|consumers"), 8 * (published + 1), "nobody else looks who is there")
        dead = self.housekeeper()[1]
        next(daemon for daemon in daemons if daemon.worker_name(self.client) == dead).kill()
        self.journal.kills.append(dead)
        self.wait_until(lambda: self.housekeeper()[1] not in (dead, "-"), "another housekeeper")
        self.sender.submit("hello", delay=300)
        self.wait_finished(self.sender)
        self.wait_until(lambda: dead not in self.sluice("workers", "list"), "the dead one to be gone from the list")
        self.assertEqual(self.stats()["died"], 1)

    def finish(self, **options):
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        self.assert_clean(self.server, **options)

    # pause

    def test_pause_and_resume(self):
        """No daemon claims while the queue is paused, not even one that starts meanwhile; requests enqueued then are
        answered later."""
        first = self.start_daemon(self.server)
        self.sender.submit_many(texts(50, seed=1))
        self.wait_finished(self.sender)
        self.sluice("pause")
        self.wait_paused(self.client)
        waiting = self.sender.submit_many(texts(50, seed=2))
        second = self.start_daemon(self.server)
        self.wait_until(lambda: self.state(second.worker_name(self.client)) is not None, "the second to have asked")
        self.wait_nobody_reads(self.client)
        self.assertEqual(self.pending(self.client), 0)
        self.assertFalse(any(self.sender.finished([request]) for request in waiting))
        stats = self.stats()
        self.assertTrue(stats["paused"])
        self.assertEqual({name: stats["classes"]["normal"][name] for name in ("unread", "pending", "cap", "above_cap")},
                         {"unread": 50, "pending": 0, "cap": None, "above_cap": 0})
        self.sluice("resume")
        self.finish()
        for served in (first, second):
            self.assertEqual(served.stop(), 0)

    def test_a_pause_ends_by_itself(self):
        """It ends by Redis' clock: the client that paused is gone, and nobody resumes the queue."""
        self.start_daemon(self.server)
        self.sluice("pause", "--for", "8s")  # time enough for a slow machine to see it
        until = self.stats()["paused_until_ms"]
        self.wait_paused(self.client)
        waiting = self.sender.submit_many(texts(10))
        self.finish()
        self.assertFalse(self.stats()["paused"])
        for request in waiting:
            self.assertGreaterEqual(self.sender.reply(request)["done_at"], until)

    def test_pause_finishes_what_is_held(self):
        self.make_faulty(self.server, "--threads", "1", faults=["held:{kernel}"]).start().wait_ready(self.client)
        self.shut_gate()
        requests = self.sender.submit_many(["kernel", *texts(19)])
        self.wait_until(lambda: self.pending(self.client) == 20, "the worker to hold them")
        self.sluice("pause")
        self.open_gate()
        self.wait_finished(self.sender, requests)
        self.finish()

    # orders to a worker

    def test_orders_reach_one_worker(self):
        first, second = self.start_daemon(self.server), self.start_daemon(self.server)
        names = [served.worker_name(self.client) for served in (first, second)]
        for name in names:
            self.wait_state(name, "running")
        self.sluice("workers", "quiet", names[0])
        self.wait_state(names[0], "quiet")
        self.assertEqual(self.state(names[1]), "running")
        self.assertEqual(self.stats()["quiet"], 1)
        self.sender.submit_many(texts(100, seed=3))
        self.wait_finished(self.sender)
        self.sluice("workers", "resume", names[0])
        self.wait_state(names[0], "running")
        self.sluice("workers", "drain", names[0])
        self.assertEqual(first.wait_exit(), 0)
        self.assertNotIn(names[0], self.sluice("workers", "list"))
        self.assertTrue(second.running())
        self.sender.submit_many(texts(50, seed=4))
        self.finish()
        self.sluice("workers", "drain", "--all")
        self.assertEqual(second.wait_exit(), 0)
        self.assertIn("no worker", self.sluice("workers", "list"))

    def test_stop_leaves_its_work_to_others(self):
        first = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000")
        name = first.worker_name(self.client)
        self.wait_state(name, "running")
        self.sender.submit_many(texts(30))
        self.wait_until(lambda: self.pending(self.client) > 0, "the worker to hold something")
        self.sluice("workers", "stop", name)
        self.assertEqual(first.wait_exit(), 75)
        self.start_daemon(self.server)
        self.finish()

    def test_check_is_of_this_host_only(self):
        served = self.start_daemon(self.server, *self.brief)
        self.wait_state(served.worker_name(self.client), "running")
        self.assertEqual(self.sluice("workers", "check"), "1 alive\n")
        served.kill()
        self.wait_until(lambda: not self.client.keys("sluice:{test}:alive:*"), "its lease to end")
        self.sluice("workers", "check", code=69)

    def live(self, *processes):
        """The exit code and output of the liveness check, under a broken configuration, because it must not read
        any."""
        result = self.run_sluice("live", *processes, environment={"SLUICE_REDIS": "nonsense", "SLUICE_CONFIG": self.path("none")})
        return result.returncode, result.stdout.decode() + result.stderr.decode()

    def test_live_without_redis(self):
        """Liveness is about the process: it lasts without Redis and beside workers that died, and ends with the
        process."""
        served, other = self.start_daemon(self.server), self.start_daemon(self.server)
        self.assertEqual(self.live(served.pid, other.pid), (0, "2 live\n"))
        self.assertEqual(self.live()[0], 0)
        other.kill()
        self.assertEqual(self.live(served.pid), (0, "1 live\n"))
        self.assertEqual(self.live(served.pid, other.pid)[0], 69)
        self.server.kill()
        self.wait_until(lambda: " redis_unavailable " in served.read_log(), "the worker to miss Redis")
        self.assertEqual(self.live(served.pid), (0, "1 live\n"))
        self.assertEqual(self.live(self.server.process.pid)[0], 69)
        self.assertEqual(self.live("nobody")[0], 64)

    def test_live_says_when_the_loop_stands_still(self):
        served = self.start_daemon(self.server)
        served.stand_still()
        code, words = self.live(served.pid)
        self.assertEqual(code, 69)
        self.assertRegex(words, rf"process {served.pid} stands still for 6\d{{4}} ms")
        served.signal(signal.SIGCONT)
        self.wait_until(lambda: self.live(served.pid)[0] == 0, "it to turn again")
        self.assertEqual(served.stop(), 0)

    # caps, cancel

    def test_caps_refuse_the_newest(self):
        """Above the cap the newest are answered with queue_full; the oldest are computed."""
        self.sluice("pause")
        self.sluice("caps", "--normal", "40")
        requests = self.sender.submit_many(texts(100))
        self.start_daemon(self.server)
        key = self.sender.key("reply:")
        refused = requests[40:]
        self.wait_until(lambda: self.client.exists(*(key + request.id for request in refused)) == 60, "60 to be refused")
        for request in refused:
            reply = self.sender.reply(request)
            self.assertIn(b"code", reply, f"{request.id} of {refused[0].id}: {reply}")
            self.assertEqual((reply[b"code"], reply["retryable"]), (b"queue_full", True), request.id)
            self.assertGreaterEqual(reply["retry_after_ms"], 1000)
            request.expected = "queue_full"
        self.assertEqual(self.stats()["classes"]["normal"]["unread"], 40)
        self.sluice("resume")
        self.finish()

    def test_caps_are_enforced_by_workers(self):
        """Redis itself refuses nothing: without a worker the class exceeds its cap, and stats shows by how much."""
        self.sluice("caps", "--normal", "40")
        self.assertIn("workers enforce", self.run_sluice("caps", "--help").stdout.decode())
        for i in range(50):
            self.sender.submit(f"text {i}")
        normal = self.stats()["classes"]["normal"]
        self.assertEqual((normal["unread"], normal["cap"], normal["above_cap"]), (50, 40, 10))
        self.assertRegex(self.sluice("stats"), r"(?m)^normal +50 +0 +unknown +40 +10$")

    def test_precisions(self):
        """A worker that joins with another precision is logged, and a pinned precision keeps others out."""
        first = self.start_daemon(self.server)
        self.wait_until(lambda: self.stats()["precisions"] == {"f32": 1}, "its heartbeat")
        second = self.start_daemon(self.server, "--precision", "bf16")
        self.wait_until(lambda: any("precisions_differ" in daemon.read_log() and 'precisions="bf16 f32"' in daemon.read_log()
                                    for daemon in (first, second)), "a warning of the housekeeper")
        stats = self.stats()
        self.assertEqual((stats["precisions"], stats["pinned_precision"]), ({"f32": 1, "bf16": 1}, None))
        self.assertRegex(self.sluice("stats"), r"(?m)^computing in (f32 \(1\), bf16|bf16 \(1\), f32) \(1\); pinned: any$")
        self.assertIn("precision any", self.sluice("pin"))
        said = self.sluice("pin", "--precision", "f32")
        self.assertIn("precision f32\n", said)
        self.assertIn(f"{second.worker_name(self.client)} computes in bf16", said)
        self.assertNotIn(first.worker_name(self.client), said)
        self.assertEqual(self.stats()["pinned_precision"], "f32")
        third = self.make_daemon(self.server, "--precision", "bf16").start()
        self.assertEqual(third.wait_exit(), 65)
        self.assertIn("is pinned to precision f32, this worker computes in bf16", third.read_log())
        self.assertIn("precision any\n", self.sluice("pin", "--precision", "any"))
        self.restart(third, self.server)

    def ended(self, which="normal"):
        return self.stats()["ended"][which]

    def test_what_ends_is_counted(self):
        """Ends are counted by code and class, over all workers, including the last moments of a drained one."""
        daemon = self.start_daemon(self.server)
        for i in range(20):
            self.sender.submit(f"text {i}")
        for _ in range(3):
            self.sender.submit("", expected="bad_request")
        self.client.xadd(self.sender.key("requests:high"), {"text": "hello"})
        parked = self.sender.submit("cancelled", delay=600000, expected="cancelled")
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 1, "it to be parked")
        self.sluice("cancel", parked.id)
        self.wait_finished(self.sender)
        daemon.stop()
        self.assertEqual(self.ended(), {"done": 20, "bad_request": 3, "cancelled": 1})
        self.assertEqual(self.ended("high"), {"done": 1})
        self.assertLess(self.stats()["since"], self.stats()["at"])
        self.start_daemon(self.server)
        self.sender.submit("another")
        self.wait_until(lambda: self.ended()["done"] == 21, "a pulse")

    def test_what_ends_is_counted_when_workers_die(self):
        """A dying worker loses only the counts since its last pulse; nothing is counted twice."""
        doomed = self.start_daemon(self.server)
        for i in range(30):
            self.sender.submit(f"text {i}")
        self.wait_until(lambda: self.ended()["done"] == 30, "a pulse")
        self.journal.kills.append(doomed.worker_name(self.client))
        doomed.kill()
        self.start_daemon(self.server)
        for i in range(10):
            self.sender.submit(f"another {i}")
        self.wait_until(lambda: self.ended()["done"] == 40, "the heir's pulse")

    def test_what_ends_is_counted_once_when_connections_break(self):
        self.start_daemon(self.server, "--lease-ms", "1000")
        for number in range(15):
            for i in range(20):
                self.sender.submit(f"text {number} {i}")
            self.client.client_kill_filter(_type="normal", skipme=True)
        self.wait_finished(self.sender)
        self.wait_until(lambda: self.ended()["done"] >= 300, lambda: f"a pulse: {self.ended()}")
        self.sender.submit("the last")
        self.wait_until(lambda: self.ended()["done"] > 300, "another one")
        self.assertEqual(self.ended()["done"], 301)

    def test_refusals_in_the_log(self):
        """The log has a few refusals a second one by one, and the number of the others."""
        daemon = self.start_daemon(self.server)
        for request in self.sender.submit_many([""] * 300):
            request.expected = "bad_request"
        self.wait_finished(self.sender)
        daemon.stop()
        log = daemon.read_log()
        said = [line for line in log.splitlines() if " info request_refused " in line]
        more = [int(number) for number in re.findall(r" info requests_refused .*more=(\d+)", log)]
        self.assertEqual(len(said) + sum(more), 300)
        self.assertLess(len(said), 150)
        self.assertIn("code=bad_request", said[0])

    def test_caps_are_about_requests(self):
        """Cancels without a target push out no requests, however many there are, and a forged name evades no cap."""
        self.sluice("pause")
        self.sluice("caps", "--normal", "40")
        pipe = self.client.pipeline(transaction=False)
        for _ in range(1100):
            pipe.xadd(self.sender.stream, {"cancel": "7-7"})
        pipe.execute()
        self.sender.submit_many(texts(40))
        forged = [f"forged-{number}" for number in range(30)]
        for number, id in enumerate(forged):
            pipe.xadd(self.sender.stream, {"_id": f"{number + 1}-1", "id": id, "text": "x"})
        for _ in range(1100):
            pipe.xadd(self.sender.stream, {"cancel": "7-7"})
        pipe.execute()
        self.start_daemon(self.server)
        key = self.sender.key("reply:")
        self.wait_until(lambda: self.client.exists(*(key + id for id in forged)) == 30, "30 to be refused")
        self.assertEqual({self.client.hget(key + id, "code") for id in forged}, {b"queue_full"})
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 40, "all cancels to be dealt with")
        self.assertEqual(self.stats()["classes"]["normal"]["unread"], 40)
        self.sluice("resume")
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)

    def test_a_cap_on_what_waits_for_its_time(self):
        """Above it a request with a delay is refused at once; one without is not affected."""
        self.sluice("caps", "--later", "5")
        self.start_daemon(self.server)
        names = [self.client.xadd(self.sender.stream, {"text": "later", "delay": "3600000"}).decode() for _ in range(12)]
        replies = [self.sender.key("reply:" + name) for name in names]
        self.wait_until(lambda: self.client.exists(*replies) == 7, "seven to be refused")
        for reply in map(self.sender.reply, names):
            if reply:
                self.assertEqual((reply[b"code"], reply["retryable"]), (b"queue_full", True))
                self.assertGreaterEqual(reply["retry_after_ms"], 1000)
        self.assertEqual(self.client.zcard(self.sender.key("later")), 5)
        self.sender.submit_many(texts(20))
        self.wait_finished(self.sender)

    def test_cancel_command(self):
        self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000")
        name = self.client.xadd(self.sender.stream, {"text": "never mind"}).decode()
        self.wait_until(lambda: self.pending(self.client) == 1, "the worker to hold it")
        self.sluice("cancel", name)
        self.wait_until(lambda: self.client.hget(self.sender.key("reply:" + name), "status") == b"cancelled", "the cancelled reply")
        self.wait_until(lambda: self.client.xlen(self.sender.stream) + self.client.xlen(self.sender.key("requests:high")) == 0,
                        "both entries to be gone")

    # one of several queues

    def test_drain_of_one_queue_leaves_the_others(self):
        model = self.make_model()
        served = self.make_configured(self.server, {"threads": 1, "queues": [{"queue": q, "model": model} for q in ("test", "other")]})
        served.start().wait_ready(self.client)
        name = served.worker_name(self.client)
        self.wait_state(name, "running")
        self.sluice("workers", "drain", name)
        self.wait_until(lambda: " drained " in served.read_log() or not self.client.exists(self.sender.key("alive:" + name)), "its end")
        self.assertTrue(served.running())
        journal = Journal()
        other = self.producer(self.server, "other", journal)
        other.submit_many(texts(30))
        self.wait_finished(other)
        self.assert_clean(self.server, queue="other", journal=journal)
        self.assertEqual(served.stop(), 0)

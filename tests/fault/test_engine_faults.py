"""An engine that fails: transient faults are retried, lasting ones end in a dead letter that holds the whole request, a
request that crashes the worker is poison, and those that only shared its batch get their vectors."""
# ctest-cost: 25

import signal

import redis

from case import SOON, RedisCase, SluiceCase
from corpus import texts
from history import History
from producer import Journal
from vectors import decode_f32

WORD = "kernel"  # the word that triggers a fault; no other text of these tests has it


class EngineFaults(RedisCase):
    lease_ms = SOON

    def setUp(self):
        super().setUp()
        self.healthy = [text.replace(WORD, "music") for text in texts(60, seed=1)]

    def serve(self, *faults, flags=("--backoff-ms", "20", "--backoff-cap-ms", "60"), wait=True, **options):
        """Starts a daemon whose engine has these faults."""
        served = self.make_faulty(self.server, *flags, faults=faults, **options).start()
        if wait:
            served.wait_ready(self.client)
        return served

    def fired(self, kind):
        """As in the base class; the count also goes into the journal."""
        self.journal.faults[kind] = super().fired(kind)
        return self.journal.faults[kind]

    def finish(self, *kinds, **options):
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        for kind in kinds:
            self.fired(kind)
        self.assert_clean(self.server, faults=kinds, **options)

    def submit_among_others(self, count=1, expected="done", **fields):
        """Submits guilty requests in the middle of healthy ones."""
        self.sender.submit_many(self.healthy[:30], encoding="f32")
        guilty = [self.sender.submit(f"the {WORD} {number}", expected, id=f"guilty-{number}", **fields) for number in range(count)]
        self.sender.submit_many(self.healthy[30:], encoding="f32")
        return guilty

    def letter(self, request):
        """The dead letter that a reply names."""
        return dict(self.client.xrange(self.sender.key("dead")))[self.sender.reply(request)["dead"].encode()]

    def attempts_of_others(self, guilty):
        replies = [self.sender.reply(request) for request in self.journal.requests.values() if request not in guilty]
        return {reply.get("attempts", 1) for reply in replies}

    def test_lasting_error_ends_in_a_dead_letter(self):
        self.serve("error:{kernel}")
        guilty = self.submit_among_others(2, "internal", encoding="f32", meta="kept", **{"x-user": "also kept"})
        self.finish("error", may_die=[request.id for request in guilty])
        for request in guilty:
            reply = self.sender.reply(request)
            self.assertEqual(reply["attempts"], 4)
            self.assertIs(reply["retryable"], True)
            self.assertEqual(self.letter(request)[b"meta"], b"kept")
            self.assertEqual(self.letter(request)[b"x-user"], b"also kept")
        self.assertGreaterEqual(self.fired("error"), 8)
        self.assertEqual(self.attempts_of_others(guilty), {1}, "the innocent were charged")

    def test_max_attempts(self):
        self.serve("error:{kernel}")
        for attempts in (1, 2, 10):
            self.sender.submit(f"{WORD} {attempts}", "internal", id=f"try-{attempts}", max_attempts=attempts)
        self.finish("error", may_die=["try-1", "try-2", "try-10"])
        for attempts in (1, 2, 10):
            self.assertEqual(self.sender.reply(f"try-{attempts}")["attempts"], attempts)

    def test_transient_error_is_retried(self):
        self.serve("flaky:{kernel}:2")
        request = self.sender.submit(f"one {WORD} alone", id="retried", encoding="f32")
        self.finish("flaky")
        self.assertEqual(self.sender.reply(request)["attempts"], 3)
        self.assertEqual(self.sender.reply(request)["entry"], request.entries[0], "identity survives the retry")

    def test_retry_without_an_id(self):
        """The reply is stored under the first entry id, though the retry is another entry."""
        self.serve("flaky:{kernel}:1")
        self.sender.submit(f"one {WORD} alone", encoding="json", notify=1)
        self.finish("flaky")

    def test_nan_never_leaves(self):
        self.serve("nan:{kernel}")
        guilty = self.submit_among_others(1, "non_finite", encoding="json")
        self.finish("nan", may_die=[guilty[0].id])
        self.assertEqual(self.attempts_of_others(guilty), {1}, "the innocent were charged")

    def test_out_of_memory_for_one(self):
        self.serve("oom:{kernel}")
        guilty = self.submit_among_others(1, "out_of_memory")
        self.finish("oom", may_die=[guilty[0].id])
        self.assertEqual(self.attempts_of_others(guilty), {1}, "the innocent were charged")

    def test_out_of_memory_in_large_batches(self):
        """Batches shrink until they fit; no request fails and none is charged."""
        self.serve("crowd:0:4")
        self.sender.submit_many(self.healthy, encoding="f32")
        self.finish("crowd")
        self.assertEqual(self.attempts_of_others([]), {1})

    def test_lost_device_ends_the_process(self):
        """A lost device needs a new process: exit 70, no request is charged, and the next worker answers all."""
        first = self.serve("lost:{kernel}")
        self.submit_among_others(1)
        self.assertEqual(first.wait_exit(30), 70, first.read_log())
        self.assertGreaterEqual(self.fired("lost"), 1)
        self.start_daemon(self.server)
        self.finish("lost")
        self.assertEqual(self.attempts_of_others([]), {1})

    def until_answered(self, start, answered, most):
        """Replaces each daemon that dies, until all is answered; returns the last one."""
        served, deaths = start(), 0
        while not answered():
            self.wait_until(lambda: not served.running() or answered(), "a crash or an answer", timeout=120)
            if not served.running():
                served.wait_exit()
                deaths += 1
                self.assertLess(deaths, most, "workers die for ever")
                served = start()
        return served

    def answered_poison(self):
        return [r.id for r in self.journal.requests.values() if self.sender.reply(r).get(b"code") == b"poison"]

    def test_one_poison_among_many_that_were_held(self):
        """Each request of its group has a crash on record and runs alone; only the guilty one is answered with
        `poison`."""
        holder = self.serve(flags=("--window", "fixed", "--window-ms", "60000"))
        guilty = self.submit_among_others(1, "poison")[0]
        self.wait_until(lambda: self.pending(self.client) == 61, "all to be held")
        holder.kill()
        served = self.until_answered(lambda: self.serve("crash:{kernel}", wait=False), lambda: self.sender.finished([guilty]), most=6)
        self.finish("crash")
        self.assertEqual(self.fired("crash"), 4, "once in its group, then three times alone")
        self.assertEqual(self.answered_poison(), ["guilty-0"])
        self.assertTrue(served.running())

    def serve_both(self, *faults):
        """Starts one daemon for two queues."""
        entries = [{"queue": queue, "model": self.make_model()} for queue in (self.queue, "other")]
        return self.make_configured(self.server, {"queues": entries, "threads": 2}, faults=faults).start()

    def test_poison_of_one_queue_is_not_held_against_another(self):
        """A suspect runs alone in the process: a slow request in a second queue of the daemon is not charged with its
        crash."""
        faults = ("slow:{kernel}:150", "crash:{kernel}", "slow:{music}:200")
        guilty = self.sender.submit(f"the {WORD}", "poison", id="guilty")
        other = self.producer(self.server, "other", Journal())
        other.submit_many([f"music {number}" for number in range(6)], encoding="f32")
        innocent = list(other.journal.requests.values())
        self.until_answered(lambda: self.serve_both(*faults), lambda: self.sender.finished([guilty]) and other.finished(innocent),
                            most=8)
        self.finish("crash")
        self.wait_empty(other)
        self.assert_clean(self.server, queue="other", journal=other.journal)
        self.assertIn(self.fired("crash"), (4, 5), "in company, in its group, then three times alone")

    def test_an_entry_that_kills_its_reader(self):
        """It kills before anything could be charged: after ten deaths it is answered unread; the requests beside it get
        vectors."""
        environment = {"FAULTY_PARSER": "deadly"}
        self.sender.submit_many(self.healthy[:30], encoding="f32")
        guilty = self.sender.submit("a deadly text", "poison", id="guilty", notify=1)
        self.sender.submit_many(self.healthy[30:], encoding="f32")
        served = self.until_answered(lambda: self.serve(wait=False, environment=environment),
                                     lambda: self.sender.finished([guilty]), most=14)
        self.finish("parse")
        self.assertIn(self.fired("parse"), range(9, 13))
        self.assertEqual(self.letter(guilty)[b"text"], b"a deadly text")
        self.assertIs(self.sender.reply(guilty)["retryable"], False)
        self.assertEqual(self.answered_poison(), ["guilty"])
        self.assertTrue(served.running())

    def test_slow_engine_is_not_robbed(self):
        """A pass takes several leases' time: the worker renews its lease meanwhile, and no other worker takes its
        entries."""
        self.lease_ms = SluiceCase.lease_ms
        slow = self.serve("slow:{kernel}:7000")
        request = self.sender.submit(f"slow {WORD}", id="slow", encoding="f32")
        self.wait_until(lambda: self.fired("slow") == 1, "the slow pass to begin")
        self.start_daemon(self.server)
        self.finish("slow")
        self.assertTrue(slow.running())
        history = History(self.server.directory, self.queue)
        self.assertEqual(len(history.deliveries[("requests", request.entries[0])]), 1)

    def test_term_during_a_slow_pass(self):
        """After SIGTERM the worker waits for the batch on the device and writes its reply."""
        slow = self.serve("held:{kernel}")
        self.shut_gate()
        self.sender.submit(f"slow {WORD}", id="slow", encoding="f32")
        self.wait_until(lambda: self.fired("held") == 1, "the slow pass to begin")
        slow.signal(signal.SIGTERM)
        self.logged(slow, " draining ")
        self.assertEqual(self.sender.reply("slow"), {})
        self.open_gate()
        self.assertEqual(slow.wait_exit(), 0)
        self.assertEqual(self.sender.reply("slow")[b"status"], b"done")
        self.finish("held")

    def test_second_term_during_a_slow_pass(self):
        """After a second SIGTERM the worker does not wait for the device, and the entry goes to another worker."""
        slow = self.serve("held:{kernel}")
        self.shut_gate()
        self.sender.submit(f"slow {WORD}", id="slow", encoding="f32")
        self.wait_until(lambda: self.fired("held") == 1, "the slow pass to begin")
        slow.stop_twice()
        self.assertEqual(self.client.xlen(self.sender.stream), 1)
        self.start_daemon(self.server)
        self.finish("held")

    def test_retry_survives_the_worker(self):
        """A parked retry belongs to the queue: the worker that parked it is gone, and another one brings it back."""
        first = self.serve("error:{kernel}", flags=("--backoff-ms", "600000", "--backoff-cap-ms", "600000"))
        request = self.sender.submit(f"parked {WORD}", id="parked", encoding="json")
        self.wait_until(lambda: self.client.zcard(self.sender.key("later")) == 1, "the retry to be parked")
        self.assertEqual(self.client.xlen(self.sender.stream), 0)
        self.assertEqual(first.stop(), 0)
        self.start_daemon(self.server)
        self.sender.come_due()
        self.finish("error")
        self.assertEqual(decode_f32("json", self.sender.reply(request)[b"embedding"]), self.reference()(f"parked {WORD}"))
        self.assertEqual(self.sender.reply(request)["attempts"], 2)

    def test_redis_killed_while_retries_wait(self):
        """Parked requests survive, too, because they are in the append-only file."""
        self.server = self.start_redis("durable", aof="always")
        self.client, self.sender = self.server.client(), self.producer(self.server)
        self.serve("flaky:{kernel}:3", flags=("--backoff-ms", "600000", "--backoff-cap-ms", "600000"))
        for number in range(3):
            self.sender.submit(f"{WORD} {number}", id=f"parked-{number}", encoding="f32")
        self.wait_until(lambda: self.fired("flaky") == 3 and self.client.zcard(self.sender.key("later")) > 0, "a parked retry")
        self.server.kill()
        self.server.start()
        self.wait_until(lambda: self.sender.come_due() or self.sender.finished(self.journal.requests.values()), "replies",
                        ignore=(redis.BusyLoadingError,))
        self.finish("flaky")

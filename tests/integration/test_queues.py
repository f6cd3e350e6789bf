"""Several queues, and so several models, in one daemon."""
# ctest-cost: 20

import json
import re
import signal

from case import RedisCase
from corpus import texts
from producer import Journal

WORD = "kernel"  # a batch with this word takes 30 ms longer


class Queues(RedisCase):
    def serve(self, *entries, flags=(), wait=True, **settings):
        """Starts a daemon with `queues` in its file; tests of single queues give theirs by a flag."""
        daemon = self.make_configured(self.server, {"queues": list(entries), "threads": 1, **settings}, *flags).start()
        if wait:
            self.wait_until(lambda: len(re.findall(" ready queue=", daemon.read_log())) == len(entries),
                            lambda: f"all queues to be ready:\n{daemon.read_log()[-3000:]}")
        return daemon

    def test_two_models(self):
        """Each queue gets the vectors of its own model, which are not those of the other one."""
        models = {"a": self.make_model("one"), "b": self.make_model("two", hidden=32, seed=7), "c": self.make_model("one")}
        daemon = self.serve(*({"queue": queue, "model": model, "weight": 2} for queue, model in models.items()))
        journals = {queue: Journal() for queue in models}
        senders = {queue: self.producer(self.server, queue, journals[queue]) for queue in models}
        for queue, sender in senders.items():
            sender.submit_many(texts(150, seed=3), encoding="f32")
            sender.submit_many(texts(50, seed=4))
        for queue, sender in senders.items():
            self.wait_finished(sender)
            self.wait_empty(sender)
            self.assert_clean(self.server, queue=queue, model=models[queue], journal=journals[queue])
        with self.assertRaises(AssertionError):
            self.assert_clean(self.server, queue="a", model=models["b"], journal=journals["a"])
        self.assertEqual(len(re.findall(" start .* model=one ", daemon.read_log())), 2)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(len(re.findall(" drained queue=", daemon.read_log())), 3)
        self.assertEqual(self.client.keys("sluice:{?}:alive:*"), [])

    def test_a_flag_serves_one_of_them(self):
        entries = [{"queue": "a", "model": self.make_model("one")}, {"queue": "b", "model": self.make_model("two", seed=7)}]
        daemon = self.serve(*entries, flags=("--queue", "b"), wait=False)
        self.wait_until(lambda: " ready queue=b" in daemon.read_log(), "b to be ready")
        self.assertNotIn("queue=a", daemon.read_log())
        self.assertEqual(daemon.stop(), 0)
        daemon = self.serve(*entries, flags=("--queue", "c"), wait=False)
        self.assertEqual(daemon.wait_exit(), 65)
        self.assertIn("c is none of them", daemon.read_log())

    def test_a_refused_queue_ends_all(self):
        """One queue belongs to another model: the daemon says so and exits, and returns the entries that it held of the
        other queue."""
        self.client.hset("sluice:{b}:meta", mapping={"protocol": 1, "model_id": "another", "model": "its-name"})
        journal = Journal()
        sender = self.producer(self.server, "a", journal)
        sender.submit_many(texts(200))
        model = self.make_model("one")
        daemon = self.serve({"queue": "a", "model": model}, {"queue": "b", "model": model}, wait=False)
        self.assertEqual(daemon.wait_exit(), 65)
        self.assertRegex(daemon.read_log(), r"error redis_refuses queue=b .*belongs to the model another \(its-name\), this worker.s is [0-9a-f]{32} \(one\)")
        last = self.serve({"queue": "a", "model": model})
        self.wait_finished(sender)
        self.assert_clean(self.server, queue="a", model=model, journal=journal)
        self.assertEqual(last.stop(), 0)

    def test_signals_reach_all(self):
        model = self.make_model("one")
        daemon = self.serve({"queue": "a", "model": model}, {"queue": "b", "model": model})
        daemon.signal(signal.SIGUSR2)
        self.wait_until(lambda: len(re.findall(" in_flight queue=[ab] ", daemon.read_log())) == 2, "both in the dump")
        self.write("sluice.json", json.dumps({"threads": 1, "queues": [{"queue": "a", "model": model, "max_text_bytes": 5}]}))
        daemon.signal(signal.SIGHUP)
        self.wait_until(lambda: " reloaded " in daemon.read_log(), "the reload")
        self.assertIn("reload_needs_restart setting=queues", daemon.read_log())
        senders = {queue: self.producer(self.server, queue, Journal()) for queue in "ab"}
        senders["a"].submit_fields({"text": "too long now", "id": "long"}, expected="too_large")
        senders["b"].submit("as before")
        for sender in senders.values():
            self.wait_finished(sender)
        self.assert_clean(self.server, queue="a", model=model, journal=senders["a"].journal)
        self.assert_clean(self.server, queue="b", model=model, journal=senders["b"].journal)
        self.assertEqual(daemon.stop(), 0)

    def sluice(self, *arguments, code=0, environment=None):
        """Runs a command with a configuration that lists the queues a and b."""
        result = self.run_sluice(*arguments, "--config", self.path("two.json"), "--redis", self.server.socket, environment=environment)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout.decode()}{result.stderr.decode()}")
        return (result.stdout if code == 0 else result.stdout + result.stderr).decode()

    def write_two(self):
        models = {"a": self.make_model("one"), "b": self.make_model("two", hidden=32, seed=7)}
        self.write("two.json", json.dumps({"queues": [{"queue": queue, "model": model} for queue, model in models.items()]}))
        return models

    def test_commands_are_about_all_of_them(self):
        """Output has a heading for each queue, or a line of JSON for each; --queue and SLUICE_QUEUE select one."""
        self.write_two()
        for queue, count in (("a", 2), ("b", 3)):
            for _ in range(count):
                self.client.xadd(f"sluice:{{{queue}}}:requests", {"text": "x"})
            self.client.xadd(f"sluice:{{{queue}}}:dead", {"_entry": "5-0", "_code": "internal", "text": queue})

        def unread(*flags, environment=None):
            lines = self.sluice("stats", "--json", *flags, environment=environment).splitlines()
            return {stats["queue"]: stats["classes"]["normal"]["unread"] for stats in map(json.loads, lines)}
        self.assertEqual(unread(), {"a": 2, "b": 3})
        self.assertEqual(unread("--queue", "b"), {"b": 3})
        self.assertEqual(unread("--queue", "elsewhere"), {"elsewhere": 0})
        self.assertEqual(unread(environment={"SLUICE_QUEUE": "a"}), {"a": 2})
        self.assertEqual(re.findall(r"(?m)^queue +(\S+)", self.sluice("stats")), ["a", "b"])
        self.assertEqual(self.sluice("workers").splitlines(), ["queue a", "no worker is alive on queue a", "queue b", "no worker is alive on queue b"])
        missing = self.sluice("workers", "check", code=69)
        for queue in "ab":
            self.assertRegex(missing, f"queue {queue}: no worker of .* is alive on queue {queue}\n")
        self.assertRegex(self.sluice("pause"), r"^queue a is paused since .*\nqueue b is paused since .*\n$")
        self.assertEqual(self.sluice("resume", "--queue", "b"), "queue b goes on\n")
        self.assertEqual(self.sluice("resume"), "queue a goes on\nqueue b was not paused\n")
        self.sluice("caps", "--queue", "b", "--high", "7")
        self.assertEqual(self.sluice("caps", "--low", "9").split(),
                         "queue a high none normal none low 9 later none queue b high 7 normal none low 9 later none".split())
        for lists in (["workers", "list"], ["dead", "list"]):
            lines = self.sluice(*lists, "--json").splitlines()
            self.assertEqual([json.loads(line)["queue"] for line in lines], ["a", "b"], lists)
        self.assertEqual([line.split()[0] for line in self.sluice("dead").splitlines()][::2], ["queue", "queue"])
        for words in (["dead", "list"], ["workers", "list"]):
            self.assertEqual([json.loads(line)["queue"] for line in self.sluice(*words, "--json").splitlines()], ["a", "b"])
        self.assertEqual(re.findall(r"(?m)^queue +(\S+)", self.sluice("pin")), ["a", "b"])
        self.assertEqual(self.sluice("dead", "purge", "--all"), "queue a\n1 deleted\nqueue b\n1 deleted\n")

    def test_what_is_one_queues_wants_its_name(self):
        """Names of requests, letters and workers may also exist in another queue."""
        self.write_two()
        for words in (["cancel", "5-0"], ["dead", "show", "1-1"], ["workers", "drain", "host-1-aa"],
                      ["pin", "--precision", "f32"], ["submit", "text"], ["get", "5-0"],
                      ["embed", "--input", "/dev/null"]):
            self.assertRegex(self.sluice(*words, code=64), "name one of the configuration's queues with --queue: a b\n")
        self.assertEqual(self.client.keys("*"), [])
        self.sluice("cancel", "5-0", "--queue", "b")
        self.sluice("submit", "text", "--queue", "b")
        self.assertEqual(sorted(self.client.keys("*")), [b"sluice:{b}:control", b"sluice:{b}:requests"])

    def test_a_queue_that_fails_does_not_hide_the_others(self):
        self.write_two()
        self.client.set("sluice:{a}:dead", "x")
        text = self.sluice("dead", "list", code=70)
        self.assertRegex(text, "(?s)queue a\n.*queue b\n.*sluice dead: queue a: XRANGE: .*wrong kind of value")
        self.assertEqual(text.count("wrong kind"), 1)

    def test_doctor_looks_at_each_with_its_own_model(self):
        models = self.write_two()
        daemon = self.serve(*({"queue": queue, "model": model} for queue, model in models.items()))
        self.assertEqual(daemon.stop(), 0)
        text = self.sluice("doctor", code=78)  # this Redis has no password
        parts = dict(zip(*[iter(re.split(r"(?m)^(queue \w+|this host)$", text)[1:])] * 2))
        self.assertEqual(list(parts), ["queue a", "queue b", "this host"])
        self.assertRegex(parts["queue a"], r"(?m)^ok    model       one \(\w+\) is the queue's$")
        self.assertRegex(parts["queue b"], r"(?m)^ok    model       two \(\w+\) is the queue's$")
        for finding in (" version ", " backend "):
            self.assertEqual(text.count(finding), 1, text)
        one = self.sluice("doctor", "--queue", "b", code=78)
        self.assertRegex(one, r"(?m)^ok    model       two \(\w+\) is the queue's$")
        self.assertNotIn("one (", one)
        self.client.hset("sluice:{b}:meta", mapping={"model_id": "another", "model": "its-name"})
        self.assertRegex(self.sluice("doctor", code=78), r"(?m)^fail  model       the queue belongs to the model another \(its-name\); two is")


class Weights(RedisCase):
    def serve_two(self, weight, **settings):
        """Starts a daemon with the queues `test`, of this weight, and `other`, of weight 1; one thread, one text per
        batch, at least 30 ms each. Returns it, and the producer of the other queue."""
        model = self.make_model()
        served = self.make_configured(self.server, {"threads": 1, "max_batch_rows": 1, **settings, "queues": [
            {"queue": "test", "model": model, "weight": weight}, {"queue": "other", "model": model}]}, faults=["slow:{kernel}:30"])
        return served, self.producer(self.server, "other", Journal())

    def finish_two(self, served, other):
        """Returns when each request of either queue was done: sorted (Redis' ms, queue)."""
        done = []
        for sender in (self.sender, other):
            self.wait_finished(sender)
            self.wait_empty(sender)
            self.assert_clean(self.server, queue=sender.queue, journal=sender.journal)
            done += [(sender.reply(id)["done_at"], sender.queue) for id in sender.journal.requests]
        self.assertEqual(served.stop(), 0)
        return sorted(done)

    def test_weights_while_both_have_work(self):
        """Once both run, there are three batches of one queue for each of the other's."""
        served, other = self.serve_two(weight=3)
        self.sender.submit_many([f"{number} {WORD}" for number in range(110)])
        other.submit_many([f"{number} {WORD}" for number in range(110)])
        served.start()
        queues = [queue for _, queue in self.finish_two(served, other)]
        both = max(queues.index("test"), queues.index("other"))
        shared = queues[both + 4:both + 64]  # the first few were dispatched before the other queue was ready
        self.assertIn(shared.count("test"), range(35, 51), shared)

    def test_a_batch_that_waits_for_other_queues_does_not_hang(self):
        """A queue of little weight waits far longer than compute_timeout_ms for its turn, which must not count as a
        hang."""
        served, other = self.serve_two(weight=1000, compute_timeout_ms=3000)
        other.submit_many([f"{number} {WORD}" for number in range(3)])
        self.sender.submit_many([f"{number} {WORD}" for number in range(200)])
        served.start()
        done = [ms for ms, queue in self.finish_two(served, other) if queue == "other"]
        self.assertGreater(max(later - earlier for earlier, later in zip(done, done[1:])), 3500, "one has waited for the others")

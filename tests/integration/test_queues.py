"""Several queues, and so several models, in one daemon."""

import json
import re
import signal

from case import SluiceCase
from corpus import texts
from producer import Journal


class Queues(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_redis()
        self.client = self.server.client()

    def serve(self, *entries, flags=(), wait=True, **settings):
        """A daemon with `queues` in its file; the tests of single queues name theirs by a flag."""
        self.write("sluice.json", json.dumps({"queues": list(entries), "threads": 1, **settings}))
        daemon = self.make_daemon(self.server, *flags, environment={"SLUICE_CONFIG": self.path("sluice.json")})
        at = daemon.argv.index("--queue")
        del daemon.argv[at:at + 2]
        at = daemon.argv.index("--model")
        del daemon.argv[at:at + 2]
        daemon.start()
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
        """One queue belongs to another model: the daemon says so and exits, and what it held of the other is given back."""
        self.client.hset("sluice:{b}:meta", mapping={"protocol": 1, "model_id": "another"})
        journal = Journal()
        sender = self.producer(self.server, "a", journal)
        sender.submit_many(texts(200))
        model = self.make_model("one")
        daemon = self.serve({"queue": "a", "model": model}, {"queue": "b", "model": model}, wait=False)
        self.assertEqual(daemon.wait_exit(), 65)
        self.assertRegex(daemon.read_log(), "error redis_refuses queue=b .*belongs to the model another")
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

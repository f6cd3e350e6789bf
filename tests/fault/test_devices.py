"""Several devices: a lost device is no longer used and no request is blamed; losing the last one ends the process, and
no request is lost. The null engine simulates the devices; its vectors are those of `sluice embed --backend null`."""

import json
import re

from case import RedisCase
from checker import Checker
from corpus import texts
from daemon import FAULTY
from producer import Journal
from vectors import Reference

WORD = "kernel"  # the word that triggers a fault; no other text of these tests has it


class Devices(RedisCase):
    def setUp(self):
        super().setUp()
        self.healthy = [text.replace(WORD, "music") for text in texts(200, seed=6)]

    def reference(self, model=None, **options):
        return Reference(model or self.make_model(), flags=("--backend", "null"), **options)

    def serve(self, *faults, device="0,1", flags=(), wait=True):
        """Starts a daemon on null devices of one thread each, with these faults."""
        served = self.make_faulty(self.server, "--backend", "null", "--device", device, "--threads", "1", *flags,
                                  faults=faults).start()
        if wait:
            served.wait_ready(self.client)
        return served

    def lost_devices(self, served):
        """(number, devices left) from each of the log's lines about a lost device."""
        return [tuple(map(int, pair)) for pair in
                re.findall(r' error device_lost device=(\d+) message="injected: lost" devices_left=(\d+)', served.read_log())]

    def worker_line(self, served):
        return next(line for line in self.run_sluice("workers", "list", "--redis", self.server.socket, "--queue", self.queue)
                    .stdout.decode().splitlines() if f"-{served.pid}-" in line)

    def finish_uncharged(self, *kinds):
        """Asserts that every request succeeded at its first attempt, and that nothing is left over."""
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        for kind in kinds:
            self.journal.faults[kind] = self.fired(kind)
        self.assertEqual(self.fired("used"), 0, "a device was used after it was lost")
        self.assertEqual({self.sender.reply(request).get("attempts", 1) for request in self.journal.requests.values()}, {1})
        self.assertEqual(self.client.keys(self.sender.key("trouble")), [])
        self.assert_clean(self.server, faults=kinds)

    def test_one_of_two_is_lost_under_load(self):
        """Its batch runs on the other device; the daemon goes on, and reports the remaining devices in the log and to
        operators."""
        served = self.serve("lost:{kernel}:1", flags=("--max-batch-rows", "4"))
        load = self.start_load(self.server, seed=9)
        self.sender.submit_many(self.healthy[:100], encoding="f32")
        guilty = self.sender.submit(f"the {WORD} of it", encoding="f32")
        self.sender.submit_many(self.healthy[100:], encoding="f32")
        self.wait_finished(self.sender, [guilty])
        self.sender.submit_many(self.healthy[:50], encoding="f32")
        load.stop()
        self.finish_uncharged("lost")
        self.assertEqual(self.fired("lost"), 1)
        self.logged(served, " error device_lost ")
        lost = self.lost_devices(served)
        self.assertEqual([left for _, left in lost], [1], served.read_log())
        self.wait_until(lambda: " devices=1 devices_lost=1 " in self.worker_line(served), "the worker to say so")
        self.assertIn(" state=running ", self.worker_line(served))
        stats = json.loads(self.run_sluice("stats", "--json", "--redis", self.server.socket, "--queue", self.queue).stdout)
        self.assertEqual((stats["devices"], stats["devices_lost"]), (1, 1))
        self.assertEqual(served.stop(), 0)
        self.assertRegex(served.read_log(), r" info drained queue=test .* devices=1 devices_lost=1 ")

    def test_the_last_one_ends_the_process(self):
        """The batch moves from one device to the other, and both are lost: exit 70, and the next worker answers
        everything."""
        served = self.serve("lost:{kernel}")
        self.sender.submit_many(self.healthy[:100], encoding="f32")
        self.sender.submit(f"the {WORD} of it", encoding="f32")
        self.sender.submit_many(self.healthy[100:], encoding="f32")
        self.assertEqual(served.wait_exit(30), 70, served.read_log())
        lost = self.lost_devices(served)
        self.assertEqual(sorted(device for device, _ in lost), [0, 1], served.read_log())
        self.assertEqual([left for _, left in lost], [1, 0])
        self.start_daemon(self.server, "--backend", "null")
        self.finish_uncharged("lost")
        self.assertEqual(self.fired("lost"), 2)

    def test_two_models_on_two_devices(self):
        """Each device has an engine for each model: every request gets its own model's vector, on either device, before
        and after the loss."""
        models = {"test": self.make_model(), "other": self.make_model("other", hidden=32, seed=7)}
        served = self.make_configured(self.server, {"device": [0, 0], "queues": [{"queue": q, "model": m} for q, m in models.items()]},
                                      "--backend", "cpu", "--threads", "1", faults=["lost:{kernel}:1"])
        served.start()
        journals = {"test": self.journal, "other": Journal()}
        senders = {queue: self.producer(self.server, queue, journals[queue]) for queue in models}
        for sender in senders.values():
            sender.submit_many([*self.healthy[:100], f"the {WORD} of it", *self.healthy[100:]], encoding="f32")
        for queue, sender in senders.items():
            self.wait_finished(sender)
            self.wait_empty(sender)
            Checker(self.server, queue, journals[queue], Reference(models[queue])).assert_clean()
        self.assertEqual((self.fired("lost"), self.fired("used")), (1, 0))
        self.assertEqual(served.stop(), 0)
        self.assertEqual(self.lost_devices(served), [(0, 1)])
        self.assertEqual(len(re.findall(r" info drained queue=\w+ .* devices=1 devices_lost=1 ", served.read_log())), 2)

    def test_one_device_twice(self):
        """The same number twice makes two separate devices, and one of them can be lost."""
        served = self.serve("lost:{kernel}:1", device="0,0")
        self.logged(served, r" info start .* devices=2 threads=2 ")
        self.sender.submit_many([f"the {WORD} of it", *self.healthy], encoding="f32")
        self.finish_uncharged("lost")
        self.assertEqual(served.stop(), 0)
        self.assertEqual(self.lost_devices(served), [(0, 1)])

    def test_a_device_that_is_dead_from_the_start(self):
        served = self.serve("dead:1", device="0,1")
        self.logged(served, r' error device_lost device=1 message="injected: dead" effect=')
        self.logged(served, r" info start .* devices=1 threads=1 ")
        self.sender.submit_many(self.healthy, encoding="f32")
        self.finish_uncharged("dead")
        self.wait_until(lambda: " devices=1 devices_lost=1 " in self.worker_line(served), "the worker to say so")
        self.assertEqual(served.stop(), 0)
        none = self.serve("dead:0", "dead:1", wait=False)
        self.assertEqual(none.wait_exit(), 70)
        self.assertIn("none of the 2 devices works", none.read_log())

    def test_a_free_device_takes_what_comes(self):
        """While one of the devices is busy with a slow batch, the other answers new requests at once."""
        served = self.serve("slow:{kernel}:600000", flags=("--compute-timeout-ms", "0"))
        slow = self.sender.submit(f"the {WORD} is slow", encoding="f32")
        self.wait_until(lambda: self.fired("slow") == 1, "the slow batch to begin")
        for text in self.healthy[:20]:
            self.wait_finished(self.sender, [self.sender.submit(text, encoding="f32")])
        self.assertFalse(self.sender.finished([slow]))
        self.assertEqual(self.fired("slow"), 1)
        served.kill()
        self.start_daemon(self.server, "--backend", "null")
        self.finish_uncharged("slow")

    def test_a_hang_on_one_of_two_ends_the_process(self):
        """A hanging thread cannot be recovered, so the watchdog ends the whole process."""
        served = self.serve("slow:{kernel}:600000", flags=("--compute-timeout-ms", "3000"))
        self.sender.submit_many([*self.healthy, f"the {WORD} hangs"], encoding="f32")
        self.assertEqual(served.wait_exit(), 70)
        self.assertRegex(served.read_log(), r" error compute_hangs queue=test worker=\S+ compute_timeout_ms=3000 batches=\d+ message=")
        self.start_daemon(self.server, "--backend", "null")
        self.wait_finished(self.sender)
        self.journal.faults["slow"] = self.fired("slow")
        self.finish(self.server, self.sender, faults=["slow"])

    def test_embed(self):
        """`sluice embed` uses the devices in the same way: a lost device is no longer used, and losing the last one
        ends it."""
        lines = "".join(text + "\n" for text in [*self.healthy, f"the {WORD} of it"]).encode()
        arguments = ("embed", "--model", self.make_model(), "--precision", "f32", "--backend", "null")
        plain = self.run_sluice(*arguments, input=lines).stdout
        self.assertEqual(plain.count(b"\n"), 201)
        for fault, code in (("lost:{kernel}:1", 0), ("lost:{kernel}", 70)):
            result = self.run_sluice(*arguments, "--device", "0,1", "--threads", "1", binary=FAULTY,
                                     environment=self.faulty_engine(fault), input=lines)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout if code == 0 else plain, plain)
            self.assertIn(b" error device_lost device=", result.stderr)

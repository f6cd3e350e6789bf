"""The whole daemon on the CUDA engine, with two GPUs simulated in plain memory (tests/support/gpu_daemon.c): several
batches in flight on each, the loss of one GPU under load, and the loss of both."""
# ctest-cost: 25

import json
import operator
import os
import re
import signal
import struct
import subprocess

from case import RedisCase
from corpus import texts
from daemon import BINARY
from vectors import Reference

ON_GPUS = os.path.join(os.path.dirname(BINARY), "tests", "sluice_on_gpus")


class Gpus(RedisCase):
    lease_ms = 2000  # slow: every matrix product is three plain loops


    def serve(self, *flags):
        return self.make("--backend", "cuda", "--threads", "8", *flags).start().wait_ready(self.client)

    def make(self, *flags, model=None):
        served = self.make_daemon(self.server, *flags, model=model, environment={"XDG_CACHE_HOME": self.path("cache")})
        served.argv[0] = ON_GPUS
        return served

    def reference(self, model=None, **options):
        """The vectors of the same engine, text by text in one process."""
        return Reference(model or self.make_model(), flags=("--backend", "cuda", "--device", "0"), binary=ON_GPUS, **options)

    def finish_uncharged(self):
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        self.assertEqual({self.sender.reply(request).get("attempts", 1) for request in self.journal.requests.values()}, {1})
        self.assert_clean(self.server)

    def lose(self, served, gpu):
        """Loses a GPU, and sends requests until the daemon notices: an idle GPU's loss goes unnoticed."""
        before = len(self.lost_devices(served))
        served.signal(signal.SIGRTMIN + gpu)

        def missed():
            if self.sender.unfinished() < 4:
                self.sender.submit("one more", encoding="f32")
            return len(self.lost_devices(served)) > before
        self.wait_until(missed, lambda: f"the loss to be seen:\n{served.read_log()[-2000:]}")

    def lost_devices(self, served):
        return [tuple(map(int, pair)) for pair in re.findall(r" error device_lost device=(\d+) .* devices_left=(\d+)", served.read_log())]

    def test_two_gpus(self):
        """Each is fed by one thread, whatever --threads says."""
        served = self.serve("--max-batch-rows", "8")
        self.logged(served, r" info start .* backend=cuda precision=f32 devices=2 threads=2 ")
        self.sender.submit_many(texts(40, seed=2, longest=12), encoding="f32")
        self.finish_uncharged()
        self.assertEqual(served.stop(), 0)

    def test_batches_are_as_large_as_gpus_like(self):
        shown = subprocess.run([ON_GPUS, "config"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(shown, r'max_batch_tokens +"auto" +# default; 65536 on cuda\n')
        self.assertRegex(shown, r'max_batch_rows +"auto" +# default; 4096 on cuda\n')

    def test_rows_beyond_f16(self):
        """Texts with a word that f16 cannot hold are answered like any other, and the log counts them."""
        model = self.make_model("large", large="kernel")
        served = self.make("--backend", "cuda", "--precision", "auto", model=model).start().wait_ready(self.client)
        self.logged(served, " backend=cuda precision=f16 ")
        wanted = self.reference(model)
        requests = [self.sender.submit(text, encoding="f32") for text in ("red fish", "the kernel driver", "a blue stream", "my kernel")]
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        for request in requests:
            reply = self.sender.reply(request)
            got, expected = (struct.unpack("<64f", vector) for vector in (reply[b"embedding"], wanted(request.text)))
            self.assertGreater(sum(map(operator.mul, got, expected)), 0.999, request.text)
            self.assertEqual(reply.get("attempts", 1), 1)
        self.assertEqual(served.stop(), 0)
        self.assertEqual(re.findall(" rows_not_finite (.*)", served.read_log())[-1], "finite_in_bf16=2 finite_in_f32=0 never_finite=0")

    def test_the_program_as_it_is_without_a_gpu(self):
        """Runs the shipped program, built with or without CUDA, on a machine where it sees no GPU."""
        blind = {"CUDA_VISIBLE_DEVICES": "-1"}
        refused = self.make_daemon(self.server, "--backend", "cuda", environment=blind).start()
        self.assertEqual(refused.wait_exit(), 65)
        has_cuda = 'no backend "cuda"' not in refused.read_log()
        served = self.make_daemon(self.server, environment=blind).start().wait_ready(self.client)
        self.logged(served, " backend=cpu precision=f32 ")
        self.assertEqual(" better_backend_passed_over uses=cpu message=" in served.read_log(), has_cuda)
        self.sender.submit_many(texts(5, seed=2))
        self.wait_finished(self.sender)
        self.assertEqual(served.stop(), 0)

    def test_int8_is_computed_on_the_cpu(self):
        """The GPU engine has no int8: `auto` then means the CPU, once, and the log says why."""
        served = self.make("--precision", "int8", "--threads", "1").start().wait_ready(self.client)
        self.logged(served, r" info start .* backend=cpu precision=int8 devices=1 threads=1 ")
        self.logged(served, r' better_backend_passed_over uses=cpu message=.*cuda.* cannot compute in int8')
        self.sender.submit_many(texts(10, seed=2), encoding="f32")
        self.wait_finished(self.sender)
        self.wait_empty(self.sender)
        self.assertEqual({self.sender.reply(request)["precision"] for request in self.journal.requests.values()}, {"int8"})
        self.assertEqual(served.stop(), 0)

    def test_queues_of_two_backends_are_refused(self):
        self.write("sluice.json", json.dumps({"queues": [{"queue": "a", "precision": "f32"}, {"queue": "b", "precision": "int8"}]}))
        served = self.make("--config", self.path("sluice.json"))
        for flag in ("--queue", "--precision"):
            at = served.argv.index(flag)
            del served.argv[at:at + 2]
        self.assertEqual(served.start().wait_exit(), 65, served.read_log())
        self.assertRegex(served.read_log(), r'int8 is for backend .*cpu.*, but the queues before this one are on .*cuda')

    def test_one_is_lost_under_load(self):
        served = self.serve("--max-batch-rows", "4")
        self.sender.submit_many(texts(40, seed=2, longest=12), encoding="f32")
        self.wait_until(lambda: self.client.xlen(self.sender.stream) < 36, "the load to be under way")
        self.lose(served, 1)
        self.finish_uncharged()
        self.assertEqual(self.lost_devices(served), [(1, 1)])
        self.sender.submit_many(texts(8, seed=4, longest=12), encoding="f32")
        self.finish_uncharged()
        self.assertEqual(served.stop(), 0)

    def test_both_are_lost_under_load(self):
        served = self.serve("--max-batch-rows", "4")
        self.sender.submit_many(texts(40, seed=2, longest=12), encoding="f32")
        self.wait_until(lambda: self.client.xlen(self.sender.stream) < 36, "the load to be under way")
        self.lose(served, 0)
        self.sender.submit_many(texts(20, seed=3, longest=12), encoding="f32")
        self.lose(served, 1)
        self.assertEqual(served.wait_exit(), 70, served.read_log())
        self.assertEqual(self.lost_devices(served), [(0, 1), (1, 0)])
        self.serve()
        self.finish_uncharged()

    def test_one_hangs(self):
        served = self.serve("--max-batch-rows", "4", "--compute-timeout-ms", "2000")
        served.signal(signal.SIGRTMIN + 2)
        self.sender.submit_many(texts(20, seed=2, longest=12), encoding="f32")
        self.assertEqual(served.wait_exit(), 70, served.read_log())
        self.assertIn(" error compute_hangs queue=test ", served.read_log())
        self.serve()
        self.finish(self.server, self.sender)

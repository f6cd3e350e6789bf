"""kill -9 of gateways, workers and Redis while a batch runs: it ends complete, with the bytes of `sluice batch`. Several
gateways share the folder, and one goes on where another one died."""
# ctest: threads
# ctest-cost: 90

import json
import os
import random
import shutil

from batch_case import request
from batches_case import ENDED, SHIM, BatchesCase
from case import SANITIZED, scaled


class BatchesKill(BatchesCase):
    redis_options = {"aof": "always"}

    def setUp(self):
        super().setUp()
        self.generator = random.Random(20261127)

    def end_somewhere(self, batch):
        """Waits until the object on the disk says that the batch has ended; a gateway may be down."""
        path = self.path("data", "batches", batch + ".json")
        self.wait_until(lambda: json.loads(self.content(path))["status"] in ENDED, lambda: self.content(path))

    def test_kills_at_random_moments(self):
        model = self.make_heavy()
        content = self.content(self.write_requests(scaled(2500), seed=9)).replace(b'"model": "tiny"', b'"model": "heavy"')
        workers = [self.start_daemon(self.server, model=model) for _ in range(2)]
        gateways = [self.start_with_data() for _ in range(2)]
        batch = self.begin(content)
        results = f"sluice:{{{self.queue}}}:results:bulk"
        kills = {"gateway": 0, "worker": 0, "redis": 0}
        for turn in range(scaled(24)):
            victim = ("gateway", "worker", "gateway", "redis")[turn % 4]
            before = self.server.client().xlen(results)
            more = self.generator.randrange(0, 3)
            ended = lambda: json.loads(self.content(self.path("data", "batches", batch + ".json")))["status"] in ENDED
            self.wait_until(lambda: ended() or self.server.client().xlen(results) >= before + more, "answers")
            if ended():
                break
            kills[victim] += 1
            if victim == "gateway":
                one = gateways[self.generator.randrange(2)]
                one.kill()
                one.start().wait_listening()
            elif victim == "worker":
                workers[turn % 2].kill()
                self.restart(workers[turn % 2], self.server)
            else:
                self.server.kill()
                self.server.start()
        self.end_somewhere(batch)
        self.gateway = gateways[0]
        self.write("wanted.jsonl", content)
        self.run_sluice("batch", "--model", model, "--precision", "f32", self.path("wanted.jsonl"), "--output", self.path("straight.jsonl"), timeout=300)
        wanted = [self.content(self.path(name)) for name in ("straight.jsonl", "straight.errors.jsonl")]
        found = self.end(batch)
        self.assertEqual(self.outputs(found), wanted)
        self.assertEqual([found["request_counts"][name] for name in ("completed", "failed")], [part.count(b"\n") for part in wanted])
        self.wait_nothing_left()
        self.assertGreaterEqual(sum(kills.values()), scaled(6))
        print(kills)

    def test_a_gateway_dies_before_each_call(self):
        """Of those that change or sync a file (under a sanitizer before every fifth), from the validation to the end; the batch may be
        cancelled, too."""
        content = "\n".join([*(request(f"n{i}", [f"text {i % 7}", f"text {i}"], dimensions=3) for i in range(30)), "{broken", "{}"]).encode()
        worker = self.start_daemon(self.server)
        wanted = self.wanted(content)
        self.start_with_data()
        folder = self.path("before")
        batch = self.begin(b"placeholder")
        self.end(batch)
        for cancelled in (False, True):
            shutil.rmtree(folder, ignore_errors=True)
            self.stop_gateway()
            shutil.rmtree(self.data)
            # Made while the thread that runs batches waits for a worker.
            self.assertEqual(worker.stop(), 0)
            self.start_with_data()
            batch = self.begin(content)
            if cancelled:
                self.ask("POST", f"/v1/batches/{batch}/cancel")
            self.gateway.kill()
            shutil.copytree(self.data, folder)
            self.restart(worker, self.server)
            kills = 0
            for call in range(1, 1000, 5 if SANITIZED else 1):
                shutil.rmtree(self.data)
                shutil.copytree(folder, self.data)
                gateway = self.make_gateway(self.server, "--data", self.data, environment={
                    "LD_PRELOAD": SHIM, "CALLS_SHIM_KILL": str(call), "ASAN_OPTIONS": "verify_asan_link_order=0"})
                gateway.start()
                path = self.path("data", "batches", batch + ".json")
                self.wait_until(lambda: not gateway.running() or (json.loads(self.content(path))["status"] in ENDED and self.left() == []),
                                "a kill or the end")
                if gateway.running():
                    gateway.kill()
                    break
                kills += 1
                self.start_with_data()
                found = self.end(batch, "cancelled" if cancelled else "completed")
                if cancelled:
                    codes = self.check_lines_of(found, content)
                    self.assertIn("batch_cancelled", codes)
                else:
                    self.assertEqual(self.outputs(found), wanted, f"killed before call {call}")
                self.wait_until(lambda: self.left() == [], lambda: f"call {call}: {self.left()}")
                self.gateway.kill()
            self.assertGreater(kills, 5 if SANITIZED else 20)
            print(f"{kills} kills, {'cancelled' if cancelled else 'completed'}")

    def test_a_gateway_dies_while_it_takes_a_batch(self):
        """Before each of its calls that change or sync a file: an answer that its client got holds, and nothing else is left."""
        content = request("a", "hello").encode()
        self.start_daemon(self.server)
        self.start_with_data()
        files, kills = self.path("data", "files"), 0
        for call in range(1, 1000, 5 if SANITIZED else 1):
            self.gateway.kill()
            shutil.rmtree(self.data)
            gateway = self.make_gateway(self.server, "--data", self.data, environment={
                "LD_PRELOAD": SHIM, "CALLS_SHIM_KILL": str(call), "ASAN_OPTIONS": "verify_asan_link_order=0"})
            gateway.start()
            file = batch = None
            try:
                self.wait_until(lambda: not gateway.running() or self.ask("GET", "/v1/files", gateway=gateway).status == 200, "a kill or the start",
                                ignore=(ConnectionError,))
                file = self.upload(content, gateway=gateway).json["id"]
                batch = self.create(file, gateway).json["id"]
            except ConnectionError:
                pass
            if gateway.running():
                gateway.kill()
            kills += batch is None
            for name in os.listdir(files) if os.path.exists(files) else ():
                os.utime(os.path.join(files, name), (0, 0))
            self.start_with_data()
            self.wait_until(lambda: self.left() == [], lambda: f"call {call}: {self.left()}")
            found = [one["id"] for one in self.ask("GET", "/v1/batches").json["data"]]
            self.assertTrue(batch in found if batch else len(found) <= 1, (call, batch, found))
            for one in found:
                self.end(one)
            known = {one["id"] for one in self.ask("GET", "/v1/files").json["data"]}
            self.assertTrue(file is None or file in known, call)
            self.wait_until(lambda: set(os.listdir(files)) == known | {one + ".json" for one in known}, lambda: f"call {call}: {os.listdir(files)}")
            if batch:
                break
        self.assertGreater(kills, 3 if SANITIZED else 15)
        print(kills, "kills")

    def stop_gateway(self):
        self.gateway.kill()

    def check_lines_of(self, found, content):
        """As check_lines, for a file with lines that have no custom_id."""
        good, failed = ([json.loads(line) for line in part.splitlines()] for part in self.outputs(found))
        named = sorted(line["custom_id"] for line in good + failed if line["custom_id"])
        self.assertEqual(named, sorted(f"n{i}" for i in range(30)))
        self.assertEqual(len(good) + len(failed), len(content.splitlines()))
        self.assertEqual(found["request_counts"], {"total": len(content.splitlines()), "completed": len(good), "failed": len(failed)})
        return [line["error"]["code"] for line in failed if line["error"]]

"""Several daemons on one queue share the work; many producers at once are served."""
# ctest: threads

import threading

from case import RedisCase, scaled
from corpus import texts
from producer import Request


class Sharing(RedisCase):
    def test_both_daemons_work(self):
        """The history of deliveries shows it, not the daemons' own reports."""
        from history import History
        daemons = [self.start_daemon(self.server, "--max-batch-tokens", "64") for _ in range(2)]
        names = [daemon.worker_name(self.client) for daemon in daemons]
        self.assertEqual(len(set(names)), 2)
        for number, text in enumerate(texts(max(400, scaled(1500)), seed=1)):
            self.sender.push(self.sender.journal.add(Request(f"shared-{number}", text, {"text": text, "id": f"shared-{number}", "encoding": "f32"})), "low")
        self.wait_finished(self.sender)
        self.assert_clean(self.server)
        taken = [consumers[0] for consumers in History(self.server.directory, self.queue).deliveries.values()]
        for name in names:
            self.assertGreater(taken.count(name), len(taken) // 20, {name: taken.count(name) for name in names})
        self.assertEqual(set(taken), set(names))

    def test_joining_and_leaving(self):
        """A daemon joins under load and another leaves."""
        first = self.start_daemon(self.server)
        self.sender.submit_many(texts(scaled(1000), seed=2), encoding="f32")
        second = self.start_daemon(self.server)
        self.sender.submit_many(texts(scaled(1000), seed=3), encoding="f32")
        self.assertEqual(first.stop(), 0)
        self.sender.submit_many(texts(scaled(500), seed=4), encoding="f32")
        self.wait_finished(self.sender)
        self.assertTrue(second.running())
        self.assert_clean(self.server)

    def test_eight_producers_with_5000_requests(self):
        for _ in range(2):
            self.start_daemon(self.server)
        errors, each = [], scaled(625)

        def produce(number):
            try:
                sender = self.producer(self.server)
                batch = texts(each, seed=100 + number)
                for start in range(0, each, 25):
                    sender.submit_many([f"{number}: {text}" for text in batch[start:start + 25]],
                                       encoding=("json", "f32")[number % 2])
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(len(self.journal.requests), 8 * each)
        self.wait_finished(self.sender)
        self.assert_clean(self.server)

    def test_threads(self):
        """Several compute and prep threads give the same bits as one."""
        self.start_daemon(self.server, "--threads", "4", "--prep-threads", "3", "--max-batch-rows", "8")
        self.sender.submit_many(texts(scaled(1500), seed=5), encoding="json")
        self.wait_finished(self.sender)
        self.assert_clean(self.server)

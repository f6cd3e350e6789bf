"""A bulk job through a queue with all of its threads at work, short enough for the race detector: chunks, failed rows,
equal texts, an interruption."""
# ctest: threads

import signal
import subprocess

import process
from bulk_case import FAILED, TEMPFAIL, BulkCase
from daemon import BINARY


class BulkThreads(BulkCase):
    def test_bulk_interrupted_through_a_queue(self):
        source = self.write_rows(900, seed=21, broken=(97, 5))
        options = [source, "--chunk", "tokens:16,overlap:2", "--look-ahead", "300"]
        straight, output = self.path("straight.jsonl"), self.path("v.jsonl")
        self.job(*options, "--output", straight, code=FAILED)
        server = self.start_redis()
        self.start_daemon(server)
        command = [BINARY, "embed", "--redis", server.socket, "--queue", self.queue, "--model", self.make_model(), *options,
                   "--output", output, "--progress", "none"]
        job = process.start(command, stderr=subprocess.PIPE, env=process.clean_environment())
        self.addCleanup(lambda: process.end(job))
        results = f"sluice:{{{self.queue}}}:results:bulk"
        self.wait_until(lambda: job.poll() is not None or server.client().xlen(results) > 2, "answers")
        job.send_signal(signal.SIGINT)
        said = job.communicate(timeout=120)[1]
        self.assertIn(job.returncode, (TEMPFAIL, FAILED), said)
        done = subprocess.run(command, env=process.clean_environment(), capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        without = b'"max_tokens"'
        self.assertEqual(self.files(output, without), self.files(straight, without))

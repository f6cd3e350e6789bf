"""Bulk jobs through a queue give the bytes of a local run no matter which process is killed meanwhile, and other
producers are still answered."""
# ctest-cost: 30

import json
import os
import signal
import subprocess

import process
from bulk_case import DATAERR, FAILED, NOINPUT, TEMPFAIL, UNAVAILABLE, BulkCase
from corpus import texts
from daemon import BINARY, SOURCE


def catches(child, number):
    """Returns whether a process has a handler for a signal."""
    with open(f"/proc/{child.pid}/status", encoding="ascii") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return int(caught, 16) >> (number - 1) & 1


class BulkQueue(BulkCase):
    known = None

    def setUp(self):
        super().setUp()
        self.source = self.write_rows(3000, seed=7, broken=(497, 5), ending=' "\\ \t\u00e4')
        self.model = self.make_heavy()

    def local(self, ending=".npy", *flags, source=None, code=FAILED):
        output = self.path("local" + ending)
        result = self.run_sluice("embed", "--model", self.model, "--precision", "f32", source or self.source, "--output", output, *flags,
                                  timeout=300)  # under a sanitizer, on a busy machine
        self.assertEqual(result.returncode, code, result.stderr)
        return self.contents(output)

    def wanted(self):
        """The output of a local job over the whole source, which is the same in every case."""
        BulkQueue.known = BulkQueue.known or self.local()
        return BulkQueue.known

    def contents(self, output):
        """All files of a job, without the token limit of texts, which a queue does not report."""
        return self.files(output.rstrip("/"), without=b'"max_tokens"')

    def command(self, server, output, *flags, source=None, address=None):
        return [BINARY, "embed", "--redis", address or server.socket, "--queue", self.queue, source or self.source, "--output", output,
                "--look-ahead", "750", "--progress", "none", *map(str, flags)]

    def start_job(self, server, output, *flags, **options):
        """Starts the job as a child that dies with the test."""
        child = process.start(self.command(server, output, *flags, **options), stderr=subprocess.PIPE, env=process.clean_environment())
        self.addCleanup(lambda: (process.end(child), child.stderr.close()))
        return child

    def start_answered_job(self, server, output):
        """Starts the job and returns once it has some of its answers."""
        child = self.start_job(server, output)
        self.wait_until(lambda: child.poll() is not None or self.answered(server.client()) > 3, "answers")
        return child

    def finish_job(self, child, code=FAILED):
        said = child.communicate(timeout=120)[1].decode("utf-8", "replace")
        self.assertEqual(child.returncode, code, said)
        return said

    def run_job(self, server, output, *flags, code=FAILED, **options):
        result = subprocess.run(self.command(server, output, *flags, **options), env=process.clean_environment(),
                                capture_output=True, timeout=120, check=False)
        said = result.stderr.decode("utf-8", "replace")
        self.assertEqual(result.returncode, code, said)
        return said

    def answered(self, client):
        """The number of requests from jobs that have ended so far."""
        return client.xlen(f"sluice:{{{self.queue}}}:results:bulk")

    def serve(self, server, *flags):
        return self.start_daemon(server, *flags, model=self.model)

    def test_every_output_is_that_of_a_local_job(self):
        server = self.start_redis()
        self.serve(server)
        with open(self.source, encoding="utf-8") as file:
            source = self.write("part.jsonl", "".join(file.readlines()[:1000]))
        for ending, flags in ((".npy", ("--dtype", "f16")), (".jsonl", ("--keep", "n", "--id-field", "n")), ("/", ("--shard-rows", "400"))):
            wanted = self.local(ending, *flags, source=source)
            output = self.path("remote" + ending)
            self.run_job(server, output, *flags, source=source)
            self.assertEqual(self.contents(output), wanted)
            before = self.answered(server.client())
            self.run_job(server, output, *flags, source=source)  # already finished: it sends no requests
            self.assertEqual(self.answered(server.client()), before)
        client = server.client()
        self.assertEqual(client.xlen(f"sluice:{{{self.queue}}}:requests:low"), 0)
        self.assertEqual(list(client.scan_iter("*:reply:bulk:*", count=1000)), [])  # read, and deleted

    def test_a_local_job_goes_on_through_a_queue(self):
        server = self.start_redis()
        self.serve(server)
        output = self.path("v.npy")
        source = self.write("one.txt", "hello\nthe\n")
        self.local(source=source, code=0)
        os.rename(self.path("local.npy"), output)
        os.rename(self.path("local.npy.manifest.json"), output + ".manifest.json")
        before = self.contents(output)
        self.run_job(server, output, source=source, code=0)
        self.assertEqual(self.contents(output), before)
        self.assertEqual(self.answered(server.client()), 0)

    def test_kills_of_the_job(self):
        wanted = self.wanted()
        server = self.start_redis()
        self.serve(server)
        output = self.path("remote.npy")
        client = server.client()
        kills = 0
        for more in (1, 3, 10, 15, 8):
            before = self.answered(client)
            child = self.start_job(server, output)
            self.wait_until(lambda: child.poll() is not None or self.answered(client) >= before + more, "answers")
            kills += child.poll() is None
            process.end(child)
        self.assertGreaterEqual(kills, 2)
        self.run_job(server, output)
        self.assertEqual(self.contents(output)[""], wanted[""])
        self.assertEqual(self.contents(output)[".failures.jsonl"], wanted[".failures.jsonl"])
        with open(output + ".manifest.json", encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual((manifest["rows"], manifest["failed"]), (3000, 7))

    def test_a_killed_job_finds_its_replies(self):
        server = self.start_redis()
        daemon = self.serve(server)
        client = server.client()
        output = self.path("remote.npy")
        child = self.start_job(server, output)
        self.wait_until(lambda: self.answered(client) >= 3, "answers")
        child.send_signal(signal.SIGSTOP)
        low = f"sluice:{{{self.queue}}}:requests:low"
        self.wait_until(lambda: client.xlen(low) == 0, "the workers to finish what was asked")
        process.end(child)
        waiting = list(client.scan_iter("*:reply:bulk:*", count=1000))
        self.assertGreater(len(waiting), 0)
        self.assertEqual(daemon.stop(), 0)
        child = self.start_job(server, output)
        # There is no worker: the test itself answers the job's first request.
        normal = f"sluice:{{{self.queue}}}:requests"
        self.wait_until(lambda: client.xlen(normal) == 1, "the question")
        self.restart(daemon, server)
        self.wait_until(lambda: not any(client.exists(key) for key in waiting), "the replies to be read")
        self.finish_job(child)
        self.assertEqual(self.contents(output), self.wanted())

    def test_kills_of_the_worker_and_others_are_answered(self):
        wanted = self.wanted()
        server = self.start_redis()
        daemons = [self.serve(server), self.serve(server)]
        load = self.start_load(server, depth=8)
        output = self.path("remote.npy")
        client = server.client()
        child = self.start_job(server, output)
        for turn in range(3):
            before = self.answered(client)
            self.wait_until(lambda: child.poll() is not None or self.answered(client) > before + 3, "answers")
            daemons[turn % 2].kill()
            self.restart(daemons[turn % 2], server)
        self.finish_job(child)
        load.stop()
        self.wait_finished(self.producer(server))
        self.assertEqual(self.contents(output), wanted)

    def test_kills_of_redis(self):
        wanted = self.wanted()
        server = self.start_redis(aof="always")
        self.serve(server)
        output = self.path("remote.npy")
        child = self.start_job(server, output)
        kills = 0
        for _ in range(3):
            before = self.answered(server.client())
            self.wait_until(lambda: child.poll() is not None or self.answered(server.client()) > before + 3, "answers")
            kills += child.poll() is None
            server.kill()
            server.start()
        self.assertGreaterEqual(kills, 1)
        self.finish_job(child)
        self.assertEqual(self.contents(output), wanted)

    def test_a_queue_that_forgets_is_asked_again(self):
        """One Redis comes back empty; the other runs FLUSHALL, where no connection is lost and no error is reported.
        Both jobs notice within seconds."""
        wanted = self.wanted()
        restarted, flushed = (self.start_redis(name, aof=None) for name in ("restarted", "flushed"))
        daemons = [self.serve(server) for server in (restarted, flushed)]
        outputs = [self.path(name) for name in ("restarted.npy", "flushed.npy")]
        jobs = [self.start_answered_job(restarted, outputs[0])]
        restarted.kill()
        self.assertIsNone(jobs[0].poll())
        restarted.start()
        jobs.append(self.start_answered_job(flushed, outputs[1]))
        daemons[1].signal(signal.SIGSTOP)  # so that unread requests wait
        low = f"sluice:{{{self.queue}}}:requests:low"
        self.wait_until(lambda: jobs[1].poll() is not None or flushed.client().xlen(low) > 3, "requests")
        self.assertIsNone(jobs[1].poll())
        flushed.client().flushall()
        daemons[1].signal(signal.SIGCONT)
        for job, output in zip(jobs, outputs):
            self.finish_job(job)
            self.assertEqual(self.contents(output), wanted)

    def test_chunks(self):
        source = self.write("long.txt", "\n".join(" ".join(texts(30, seed=seed, longest=9)) for seed in range(80)))
        server = self.start_redis()
        self.serve(server)
        for ending, how in ((".npy", "tokens:24,overlap:4"), (".jsonl", "tokens:24,mean")):
            wanted = self.local(ending, "--chunk", how, source=source, code=0)
            output = self.path("remote" + ending)
            self.run_job(server, output, "--chunk", how, "--model", self.model, source=source, code=0)
            self.assertEqual(self.contents(output), wanted)

    def test_a_prefix_stands_for_the_queues_own(self):
        source = self.write("few.txt", "\n".join(texts(100, seed=4)))
        wanted = self.local(".npy", "--prefix", "find: ", source=source, code=0)
        server = self.start_redis()
        self.serve(server, "--prefix", "another one ")
        output = self.path("remote.npy")
        self.run_job(server, output, "--prefix", "find: ", source=source, code=0)
        self.assertEqual(self.contents(output)[""], wanted[""])  # the vectors; the models have other ids

    def test_the_rights_of_a_producer_are_enough(self):
        with open(os.path.join(SOURCE, "config", "acl", "producer.acl"), encoding="utf-8") as file:
            rules = file.read().replace("{default}", "{%s}" % self.queue).replace(" resetpass ", " resetpass >secret ")
        users = self.write("users.acl", "user default on nopass ~* &* +@all\n" + rules)
        server = self.start_redis(options=("--aclfile", users))
        self.serve(server)
        source = self.write("few.txt", "\n".join(texts(300, seed=9)))
        output = self.path("remote.npy")
        self.run_job(server, output, source=source, code=0, address=f"redis+unix://sluice-producer:secret@{server.socket}")
        self.assertEqual(self.contents(output), self.local(source=source, code=0))

    def test_notices_that_never_come(self):
        source = self.write("few.txt", "\n".join(texts(500, seed=3)))
        wanted = self.local(source=source, code=0)
        server = self.start_redis()
        last = f"{2**64 - 1}-{2**64 - 1}"  # so that the stream accepts no more entries
        server.client().xadd(f"sluice:{{{self.queue}}}:results:bulk", {"id": "x"}, last)
        self.serve(server)
        output = self.path("remote.npy")
        self.run_job(server, output, source=source, code=0)
        self.assertEqual(self.contents(output), wanted)

    def test_interrupt_and_go_on(self):
        wanted = self.wanted()
        server = self.start_redis()
        daemon = self.serve(server)
        output = self.path("remote.npy")
        child = self.start_job(server, output)
        self.wait_until(lambda: self.answered(server.client()) > 3, "answers")
        child.send_signal(signal.SIGINT)
        self.assertIn("rerunning the command resumes", self.finish_job(child, TEMPFAIL))
        child = self.start_job(server, output)
        before = self.answered(server.client())
        self.wait_until(lambda: catches(child, signal.SIGTERM), "the job to listen to signals")
        self.wait_until(lambda: self.answered(server.client()) > before, "answers")  # they may belong to the first job
        daemon.kill()  # no worker is left to answer
        child.send_signal(signal.SIGTERM)
        self.assertIn("rerunning the command resumes", self.finish_job(child, TEMPFAIL))
        self.restart(daemon, server)
        self.run_job(server, output)
        self.assertEqual(self.contents(output), wanted)

    def test_rows_that_the_queue_refuses(self):
        lines = texts(300, seed=4, longest=10)
        for place in (0, 17, 18, 299):
            lines[place] = "the " * 300
        source = self.write("long.txt", "\n".join(lines))
        server = self.start_redis()
        self.serve(server, "--no-truncate", "--max-inputs", "24")
        output = self.path("remote.npy")
        self.run_job(server, output, source=source)
        with open(output + ".failures.jsonl", encoding="utf-8") as file:
            self.assertEqual([(row["row"], row["code"]) for row in map(json.loads, file)],
                             [(place, "refused") for place in (0, 17, 18, 299)])
        good = self.write("good.txt", "\n".join("hello" if len(line) > 1000 else line for line in lines))
        wanted = self.local(source=good, code=0)[""]
        with open(output, "rb") as file:
            data = file.read()
        size = 192 * 4
        for row in range(300):
            if row not in (0, 17, 18, 299):
                self.assertEqual(data[128 + row * size:128 + (row + 1) * size], wanted[128 + row * size:128 + (row + 1) * size], row)

    def test_a_full_queue_is_waited_for(self):
        source = self.write("few.txt", "\n".join(texts(1500, seed=5)))
        wanted = self.local(source=source, code=0)
        server = self.start_redis()
        self.serve(server)
        server.client().hset(f"sluice:{{{self.queue}}}:meta", "cap_low", 1)
        output = self.path("remote.npy")
        self.run_job(server, output, source=source, code=0)
        self.assertEqual(self.contents(output), wanted)

    def test_no_live_worker_is_said(self):
        """When the job begins, and while it runs; it goes on with the next worker."""
        server = self.start_redis()
        daemon = self.serve(server)
        daemon.kill()
        child = process.start([word if word != "none" else "lines" for word in self.command(server, self.path("remote.npy"))],
                              stderr=subprocess.PIPE, env=process.clean_environment())
        self.addCleanup(lambda: (process.end(child), child.stderr.close()))
        alone = f"no live worker on queue {self.queue}; waiting for one".encode()
        again = f"queue {self.queue} has a live worker again".encode()
        self.assertIn(alone, child.stderr.readline())
        daemon = self.serve(server)
        self.assertIn(again, child.stderr.readline())
        self.wait_until(lambda: self.answered(server.client()) > 3, "answers")
        daemon.kill()
        said = child.stderr.readline()
        while b"rows/s" in said:
            said = child.stderr.readline()
        self.assertIn(alone, said)
        self.serve(server)
        self.assertIn(again, child.stderr.read())
        self.assertEqual(child.wait(60), FAILED)
        self.assertEqual(self.contents(self.path("remote.npy")), self.wanted())

    def test_texts_that_lose_their_end_are_counted(self):
        """A reply says only that some text of its request did."""
        server = self.start_redis()
        self.serve(server)
        source = self.write("long.txt", "hello " * 3000 + "\nhello\n")
        command = [word if word != "none" else "lines" for word in self.command(server, self.path("v.npy"), source=source)]
        done = subprocess.run(command, env=process.clean_environment(), capture_output=True, timeout=60, check=True)
        self.assertIn(b"at least 1 text is longer than the queue's model takes and lost the rest", done.stderr)

    def test_what_cannot_begin(self):
        server = self.start_redis()
        output = self.path("remote.npy")
        self.assertIn("has no model yet", self.run_job(server, output, code=UNAVAILABLE))
        daemon = self.serve(server)
        chunk = ("--chunk", "tokens:16,overlap:2")
        self.assertIn("--chunk cuts with the tokenizer of the queue's model", self.run_job(
            server, output, *chunk, "--model", self.path("nowhere"), code=NOINPUT))
        self.assertIn("is not the model of queue", self.run_job(server, output, *chunk, "--model", self.make_model(), code=DATAERR))
        self.assertIn("--chunk also needs --model DIR, the model of queue", self.run_job(server, output, *chunk, code=DATAERR))
        self.assertIn("the model is a matter of the queue's workers", self.run_job(server, output, "--model", self.model, code=DATAERR))
        self.assertIn("matter of the queue's workers", self.run_job(server, output, "--precision", "f32", code=DATAERR))
        self.assertIn("name its --redis", self.run_sluice("embed", self.source, "--output", output, "--queue", "x").stderr.decode())
        child = self.start_job(server, output)
        journal = os.path.join(output + ".job", "journal")
        self.wait_until(lambda: os.path.exists(journal) and os.path.getsize(journal) > 4096, "rows on record")
        process.end(child)
        daemon.stop()
        server.client().flushall()
        self.start_daemon(server, model=self.make_model("other", seed=5))
        self.assertIn("this job began with another model", self.run_job(server, output, code=DATAERR))
        server.kill()
        self.run_job(server, output, code=UNAVAILABLE)

"""A warm engine behind a pipe. A signal stops it whenever it is not its turn, so that a thread pool that still spins
takes no time from the engine that is measured."""
import json
import os
import select
import signal
import subprocess
import tempfile
import time


class Refused(Exception):
    """An engine's refusal, in its own words."""


class Process:
    def __init__(self, command, env=None, start_s=600, one_core=False):
        """Returns when the engine says that it is ready; `ready_s` is the time from its start until then."""
        self.errors = tempfile.TemporaryFile()
        begin = time.monotonic()
        self.child = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.errors, env={**os.environ, **(env or {})}, process_group=0,
                                      preexec_fn=_on_one_core if one_core else None)
        self.unread = b""
        try:
            answer = self._answer(start_s)
            if not answer.get("ready"):
                raise Refused(answer.get("error") or f"said {answer} in place of ready")
        except Refused:
            self.close()
            raise
        self.ready_s = time.monotonic() - begin

    def _last_words(self):
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1][:400] if lines else "said nothing"

    def _answer(self, timeout_s):
        end = time.monotonic() + timeout_s
        while b"\n" not in self.unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                self._signal(signal.SIGKILL)  # it would keep running beside the others
                raise Refused(f"no answer within {timeout_s} s")
            data = os.read(self.child.stdout.fileno(), 1 << 20)
            if not data:
                code = self.child.wait()
                raise Refused(f"ended with {code}: {self._last_words()}")
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    def ask(self, *words, timeout_s=600):
        """Sends one command; the process runs until it has answered."""
        self._signal(signal.SIGCONT)
        try:
            self.child.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self.child.stdin.flush()
        except BrokenPipeError:
            raise Refused(f"ended with {self.child.wait()}: {self._last_words()}") from None
        answer = self._answer(timeout_s)
        self._signal(signal.SIGSTOP)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def cpu_s(self):
        """The processor time of all its threads so far."""
        return time.clock_gettime(~self.child.pid << 3 | 2)  # as Linux' clock_getcpuclockid makes the clock

    def resident_mb(self):
        """The process' current resident memory (VmRSS), including pages that it shares."""
        with open(f"/proc/{self.child.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024

    def _signal(self, number):
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    def close(self):
        self._signal(signal.SIGKILL)
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout, self.errors):
            try:
                stream.close()
            except BrokenPipeError:
                pass


def _on_one_core():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

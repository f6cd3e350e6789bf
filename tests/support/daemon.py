"""`sluice serve` as a child of the test, and the other commands as plain calls."""

import os
import re
import signal
import subprocess

import process
from waiting import wait_until

BINARY = os.environ.get("SLUICE_BINARY", "")
FAULTY = os.path.join(os.path.dirname(BINARY), "tests", "sluice_faulty")  # that program with an engine that fails on demand
DEVELOPER = os.path.join(os.path.dirname(BINARY), "tools", "sluice_dev")  # that program with benchmarks for developers
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Any of these in a log is a failure, whatever the test was about.
SANITIZER_MARKS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer", "runtime error: ")

CRASHES = {-number for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS)}


def sluice(*arguments, binary=BINARY, environment=None, input=None, timeout=60, **options):
    """Runs one command of sluice to its end. stdout and stderr are bytes; a sanitizer report in stderr fails the test."""
    result = subprocess.run([binary, *map(str, arguments)], env=process.clean_environment(environment), input=input,
                            stdin=subprocess.DEVNULL if input is None else None,
                            capture_output=True, timeout=timeout, check=False, **options)
    text = result.stderr.decode("utf-8", "replace")
    assert not any(mark in text for mark in SANITIZER_MARKS), text
    assert result.returncode not in CRASHES, f"sluice {arguments[:1]} crashed with {result.returncode}: {text}"
    return result


class Daemon:
    def __init__(self, directory, number, address, model, queue, flags=(), environment=None):
        """`address` is the value of --redis: a unix socket path or a redis:// URL; None leaves the flag out."""
        self.log = os.path.join(directory, f"daemon-{number}.log")
        self.queue = queue
        self.argv = [BINARY, "serve"]
        if address is not None:
            self.argv += ["--redis", str(address)]
        self.argv += ["--model", str(model), "--queue", queue, *map(str, flags)]
        self.environment = environment
        self.process = None

    def start(self, stderr=None):
        """Its log goes into a file, or into the given descriptor."""
        with open(self.log, "ab") as log:
            self.process = process.start(self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log if stderr is None else stderr,
                                         env=process.clean_environment(self.environment))
        return self

    @property
    def pid(self):
        return self.process.pid

    def names(self):
        """The names under which it has joined, by its log: to look for the pid among all keys of a queue with many replies
        would take most of the time of a fault test."""
        return re.findall(rf"redis_connected.*queue\W{{1,3}}{re.escape(self.queue)}\W.*?\b([\w.-]+-{self.pid}-\w+)", self.read_log())

    def last_name(self):
        """The name under which it joined last, dead or alive; None before it has."""
        return (self.names() or [None])[-1]

    def alive_key(self, client):
        """This process's liveness key, or None."""
        name = self.last_name()
        key = f"sluice:{{{self.queue}}}:alive:{name}"
        return key if name and client.exists(key) else None

    def worker_name(self, client):
        """The name under which it lives, or None."""
        key = self.alive_key(client)
        return key and key.split(":alive:", 1)[1]

    def wait_ready(self, client, timeout=60):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.read_log()}")
            return self.alive_key(client)
        wait_until(ready, lambda: f"the daemon to be alive; its log:\n{self.read_log()[-3000:]}", timeout=timeout)
        return self

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def wait_exit(self, timeout=60):
        """The exit code; negative for a signal."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon did not exit within {timeout} s:\n{self.read_log()[-3000:]}") from None

    def stop(self, timeout=60):
        """Sends SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_exit(timeout)

    def stop_twice(self, timeout=20):
        """Sends SIGTERM, and another once the first was noticed (two pending ones count as one); returns the exit code."""
        self.signal(signal.SIGTERM)
        wait_until(lambda: " draining " in self.read_log() or not self.running(), "the first signal to be noticed")
        self.signal(signal.SIGTERM)
        return self.wait_exit(timeout)

    def stand_still(self):
        """Sends SIGSTOP, and makes it look to `sluice live` as if that had been a minute ago."""
        folder = f"/proc/{self.pid}/fd"
        turned = next(f"{folder}/{fd}" for fd in os.listdir(folder) if "sluice-loop" in os.readlink(f"{folder}/{fd}"))
        self.signal(signal.SIGSTOP)
        with open(turned, "r+b") as file:
            ms = int.from_bytes(file.read(8), "little")
            file.seek(0)
            file.write((ms - 60_000).to_bytes(8, "little"))

    def cleanup(self):
        if self.process is not None:
            process.end(self.process)

    def read_log(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def crashed(self):
        """Returns whether it ended by a signal that no test sends: an assertion, a bad pointer."""
        return self.process is not None and self.process.poll() in CRASHES

    def sanitizer_report(self):
        """The log if it has a sanitizer's report, else None."""
        log = self.read_log()
        return log if any(mark in log for mark in SANITIZER_MARKS) else None

    def peak_bytes(self):
        """The peak of its memory."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))

    def rss_bytes(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

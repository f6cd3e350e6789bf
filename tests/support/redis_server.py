"""A private redis-server on a unix socket, with an append-only file that the checker can read back as a history.

`appendfsync no` still writes every command to the file before its answer leaves Redis, so that kill -9 of the process loses
nothing; `always` is used where the test says so. A file that a kill -9 has cut in the middle of a write is mended as an
operator would do it."""

import os
import signal
import subprocess

import redis

import process
from ports import free_port
from waiting import wait_until

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEND_AOF = os.path.join(SOURCE, "config", "mend-aof.sh")  # says why


class UnixConnection(redis.UnixDomainSocketConnection):
    """The package's own class (4.3.4) names host and port when it reports a reset, and has neither: it raises an
    AttributeError instead of the ConnectionError that its pool and its callers expect."""

    port = "unix"

    @property
    def host(self):
        return self.path


def connect(path, **options):
    """A client of the server on the unix socket."""
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=UnixConnection, path=path, **options))


def append_only(directory):
    """The file that a server in this directory appends to, as long as it has not rewritten it."""
    return os.path.join(directory, "appendonlydir", "appendonly.aof.1.incr.aof")


def command(*words):
    """A command in the format of an append-only file."""
    words = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class RedisServer:
    def __init__(self, directory, name="redis", aof="no", options=()):
        """`aof`: None for no append-only file, else the appendfsync mode. `options`: further redis-server arguments."""
        self.directory = os.path.join(directory, name)
        os.mkdir(self.directory)
        self.socket = os.path.join(self.directory, "s")
        self.log = os.path.join(self.directory, "redis.log")
        self.aof = aof
        self.options = list(options)
        self.user = self.password = None  # ours; None: the default user, and no password
        self.guarded = False  # each role has a login: SluiceCase.start_guarded
        self.environment = None  # variables for the process
        self.process = None
        self.starts = 0
        self.start_timeout = 30  # seconds: a long append-only file takes its time

    def start(self):
        if self.process is not None and self.process.returncode != 0:
            self.mend()
        argv = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.directory, "--save", "",
                "--logfile", self.log, "--maxmemory-policy", "noeviction", "--daemonize", "no",
                "--appendonly", "yes" if self.aof else "no", "--appendfsync", self.aof or "no",
                "--aof-load-truncated", "no", "--aof-use-rdb-preamble", "no", "--auto-aof-rewrite-percentage", "0"]
        self.process = process.start(argv + self.options, env=process.clean_environment(self.environment))
        self.starts += 1
        # LOADING answers a ping with an error, too; a password that the client lacks does not mean "not up".
        wait_until(self._answers, lambda: f"redis-server to answer; its log:\n{self.read_log()}", timeout=self.start_timeout,
                   ignore=(redis.ConnectionError, redis.BusyLoadingError))
        return self

    def mend(self):
        """Mends the append-only file as an operator does after a crash and before the next start."""
        done = subprocess.run([MEND_AOF, self.directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout.decode()

    def start_on_tcp(self, flag="--port"):
        """Starts with a TCP port (or a TLS one: `--tls-port`) beside the socket and returns it."""
        port = free_port()
        self.options += [flag, str(port), "--bind", "127.0.0.1"]
        self.start()
        return port

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"redis-server ended with {self.process.returncode}:\n{self.read_log()}")
        try:
            return self.client().ping()
        except redis.AuthenticationError:
            return True
        except redis.ResponseError as error:
            return "NOAUTH" in str(error)

    def address(self, role):
        """The value of --redis: the socket, with the role's login if roles have one."""
        return f"redis+unix://sluice-{role}@{self.socket}" if self.guarded else self.socket

    def client(self, **options):
        options.setdefault("username", self.user)
        options.setdefault("password", self.password)
        return connect(self.socket, **options)

    def kill(self):
        """kill -9, as a power switch for the process."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """An orderly end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def cleanup(self):
        """Ends it for good, in whatever state it is; safe to call twice."""
        if self.process is not None:
            process.end(self.process)

    def read_log(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()[-4000:]
        except FileNotFoundError:
            return ""

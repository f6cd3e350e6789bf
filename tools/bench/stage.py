"""The setup of the daemon's benchmarks: a Redis, a model with random weights and daemons, in a temporary directory in
memory."""

import os
import tempfile

from daemon import Daemon
from model import write_model
from redis_server import RedisServer


class Stage:
    def __init__(self, flags=(), aof=None, where="/dev/shm", model=None, **shape):
        """`flags`: those of every daemon. `shape`: arguments of write_model, unless `model` is a folder with a model.
        `where`: a folder on a disk if fsync must have a cost."""
        self.flags, self.aof, self.where, self.model, self.shape = flags, aof, where, model, shape

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(dir=self.where)
        self.model = self.model or write_model(os.path.join(self.folder.name, "model"), **self.shape)
        self.server = RedisServer(self.folder.name, aof=self.aof).start()
        self.client, self.daemons = self.server.client(), []
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.cleanup()
        self.server.cleanup()
        self.folder.cleanup()

    def start(self, *flags):
        """Starts a daemon, which may not be ready yet."""
        daemon = Daemon(self.folder.name, len(self.daemons), self.server.socket, self.model, "default", [*self.flags, *flags])
        self.daemons.append(daemon)
        return daemon.start()

    def daemon(self, *flags):
        return self.start(*flags).wait_ready(self.client)

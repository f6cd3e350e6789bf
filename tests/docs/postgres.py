"""A PostgreSQL of its own in a folder, with pgvector: the programs that the PyPI package pgserver brings."""

import importlib.util
import os
import pathlib
import shutil
import subprocess

import process
from waiting import wait_until

PROGRAMS = pathlib.Path(importlib.util.find_spec("pgserver").origin).parent / "pginstall/bin"


class Postgres:
    """`with Postgres(folder) as server`: listens on a socket in the folder only."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder) / "postgres"
        # It refuses to be root. Whoever else then runs it has to be able to read its programs.
        self.user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}

    def run(self, name, *arguments, **options):
        done = subprocess.run([PROGRAMS / name, *map(str, arguments)], capture_output=True, text=True, check=False, **options)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def __enter__(self):
        self.folder.mkdir()
        self.folder.parent.chmod(0o755)
        if self.user:
            shutil.chown(self.folder, self.user["user"], self.user["group"])
        self.run("initdb", "-D", self.folder / "data", "-A", "trust", "-U", "docs", "-E", "UTF8", "--locale=C", "--no-sync",
                 cwd=self.folder, **self.user)
        self.log = open(self.folder.parent / "postgres.log", "wb")
        self.child = process.start([PROGRAMS / "postgres", "-D", self.folder / "data", "-k", self.folder, "-c", "fsync=off",
                                    "-c", "listen_addresses="], stdout=self.log, stderr=self.log, cwd=self.folder, **self.user)
        wait_until(lambda: self.psql("-c", "SELECT 1"), "PostgreSQL to answer", ignore=(AssertionError,))
        return self

    def __exit__(self, *_):
        process.end(self.child)
        self.log.close()

    def psql(self, *arguments, **options):
        """Runs psql, which ends with the first error; rows of what it prints are bare."""
        return self.run("psql", "-h", self.folder, "-U", "docs", "-d", "postgres", "-X", "-q", "-A", "-t",
                        "-v", "ON_ERROR_STOP=1", *arguments, **options)

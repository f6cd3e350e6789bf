"""Child processes that cannot outlive their test: a process group each, and SIGKILL from the kernel if the test dies.

The kernel sends that signal when the *thread* that forked ends, so children are started from the main thread only."""

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import threading

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

# Keeps the measurements that daemons make of their engines at their start, so that a test's first daemon makes them for all.
_cache = tempfile.mkdtemp(prefix="sluice-cache-")
atexit.register(shutil.rmtree, _cache, ignore_errors=True)


def _die_with_parent():
    os.setpgid(0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def start(argv, **options):
    assert threading.current_thread() is threading.main_thread(), "children die with the thread that started them"
    return subprocess.Popen(argv, preexec_fn=_die_with_parent, **options)


def end(process):
    """Ends a child and everything it started; safe to call twice."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
    process.wait()


def clean_environment(extra=None):
    """The environment without any SLUICE_ variable and without a home, so that nothing of the caller's leaks into a test;
    measurements are kept for this process alone."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_") and key != "HOME"}
    environment.update({"XDG_CACHE_HOME": _cache, **(extra or {})})
    return environment

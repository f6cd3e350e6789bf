"""Child processes that cannot outlive their test: a process group each, and SIGKILL from the kernel if the test dies.

The kernel sends that signal when the *thread* that forked ends, so children are started from the main thread only."""

import ctypes
import os
import signal
import subprocess
import threading

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


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
    """The environment without any SLUICE_ variable, so that settings of the caller cannot leak into a test, and without a
    home, where measurements would be kept for other tests."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("SLUICE_") and key not in ("HOME", "XDG_CACHE_HOME")}
    environment.update(extra or {})
    return environment

"""Waiting for conditions. Nothing in the tests sleeps in the hope that something has happened meanwhile."""

import time


def wait_until(condition, what, timeout=60.0, ignore=()):
    """Polls `condition` until it returns something true, which is returned; fails with `what` after `timeout` seconds.

    Exceptions listed in `ignore` count as "not yet": a Redis that is just being restarted, for example."""
    deadline = time.monotonic() + timeout
    last = None
    while True:
        try:
            last = condition()
            if last:
                return last
        except ignore as error:
            last = error
        if time.monotonic() > deadline:
            described = what() if callable(what) else what
            raise AssertionError(f"gave up after {timeout:g} s waiting for: {described} (last seen: {last!r:.500})")
        time.sleep(0.003)

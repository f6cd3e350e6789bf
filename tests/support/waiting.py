"""Waiting for conditions. Nothing in the tests sleeps in the hope that something has happened meanwhile."""

import time


def wait_until(condition, what, timeout=60.0, ignore=()):
    """Polls `condition` until it returns something true, which is returned; fails with `what` after `timeout` seconds. The
    longer it has taken, the less often it looks: on a busy machine a look takes time away from the work that it waits for.

    Exceptions listed in `ignore` count as "not yet": a Redis that is just being restarted, for example."""
    start = time.monotonic()
    last = None
    while True:
        try:
            last = condition()
            if last:
                return last
        except ignore as error:
            last = error
        waited = time.monotonic() - start
        if waited > timeout:
            described = what() if callable(what) else what
            raise AssertionError(f"gave up after {timeout:g} s waiting for: {described} (last seen: {last!r:.500})")
        time.sleep(min(max(waited / 16, 0.003), 0.02))

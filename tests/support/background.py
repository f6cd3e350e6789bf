"""A thread of a test that repeats something until it is stopped, and then shows what went wrong."""

import sys
import threading
import traceback


class Background:
    """Calls _turn() until stop(). An exception in it ends the thread and is raised again by stop(), where the test can fail."""

    def __init__(self):
        self.error = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def running(self):
        return self._thread.is_alive()

    def cancel(self):
        """Asks the thread to end without waiting; for a test that has failed already."""
        self._stop.set()

    def stop(self):
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{type(self).__name__} hangs:\n{self._where()}"
        if self.error is not None:
            raise self.error

    def _where(self):
        return "".join(traceback.format_stack(sys._current_frames()[self._thread.ident]))

    def _run(self):
        try:
            while not self._stop.is_set():
                self._turn()
        except Exception as error:
            self.error = error

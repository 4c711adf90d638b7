"""What a start is doing, when it takes long, and about how long it will: as long for each op as it took here before."""

import contextlib
import json
import threading
import time

from . import _files

SECONDS_QUIET = 2  # between two lines, and before the first


class Progress:
    """In a with statement, says every now and then which phase is running.

    tell   gets the lines
    path   of the file with the seconds that an op took in each phase
    """

    def __init__(self, tell, path):
        self._tell, self._path, self._over = tell, path, threading.Event()
        self._phase, self._start, self._ops, self._began = None, 0, 0, time.monotonic()

    def __enter__(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind, *error):
        self._over.set()
        self._thread.join()
        if kind is None:
            self.phase(None)

    def phase(self, name, ops=0):
        """`name` begins, for so many ops; None: one that speaks for itself, or none."""
        taken = self._phase and time.monotonic() - self._start
        if self._ops and taken > SECONDS_QUIET / 4:
            with contextlib.suppress(OSError):
                _files.replace(self._path, json.dumps({**self._pace(), self._phase: taken / self._ops}).encode())
        self._start, self._ops, self._phase = time.monotonic(), ops, name

    def _pace(self):
        try:
            return {k: float(v) for k, v in json.loads(self._path.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _run(self):
        while not self._over.wait(SECONDS_QUIET):
            phase, ops, now = self._phase, self._ops, time.monotonic()
            if phase:
                left = self._start + ops * self._pace().get(phase, 0) - now
                self._tell(phase + (f" {ops} ops" if ops else "") + f", {now - self._began:.0f} s so far"
                           + (f", about {left:.0f} s left" if left > 0 else ""))

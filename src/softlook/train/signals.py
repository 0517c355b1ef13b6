"""Graceful stop on SIGINT, SIGTERM and SIGHUP.

The first signal finishes the step, saves and stops; a second one raises KeyboardInterrupt.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(BaseException):
    """Repeatable work was interrupted by a signal."""


class GracefulStop:
    """Records the first signal in `received`, by name.

    Signals within `debounce` seconds after it are ignored: a launcher forwards what a terminal has already
    sent to every process.
    """

    def __init__(self, debounce: float = 0.0) -> None:
        self.received: str | None = None
        self.debounce, self._received_at, self._may_interrupt = debounce, 0.0, False

    @contextmanager
    def install(self) -> Iterator["GracefulStop"]:
        """Handle signals inside. Does nothing outside the main thread, which signals never reach."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise Interrupted inside as soon as a signal arrives: for work that can be repeated."""
        self._may_interrupt = True
        try:
            if self.received is not None:
                raise Interrupted
            yield
        finally:
            self._may_interrupt = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if time.monotonic() - self._received_at < self.debounce:
                return
            raise KeyboardInterrupt
        self.received, self._received_at = signal.Signals(number).name, time.monotonic()
        if self._may_interrupt:
            self._may_interrupt = False
            raise Interrupted

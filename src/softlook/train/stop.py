"""Ctrl-C, once: finish the step, save, and say how to go on. Twice: now."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(BaseException):
    """Something that can be done again was broken off."""


class Stop:
    """Listens while a run goes on. `asked` is the name of the signal that came, if one did.

    What comes within `echo` seconds after it is taken for the same wish: a launcher passes on what a terminal has sent
    to everybody already.
    """

    def __init__(self, echo: float = 0.0) -> None:
        self.asked: str | None = None
        self.echo, self._when, self._may_break = echo, 0.0, False

    @contextmanager
    def listening(self) -> Iterator["Stop"]:
        """Signals reach the main thread only; in another one nothing is listened to."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._ask) for number in ASKING}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """What is done inside may be broken off at once, as it can be done again."""
        self._may_break = True
        try:
            if self.asked is not None:
                raise Interrupted
            yield
        finally:
            self._may_break = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            if time.monotonic() - self._when < self.echo:
                return
            raise KeyboardInterrupt
        self.asked, self._when = signal.Signals(number).name, time.monotonic()
        if self._may_break:
            self._may_break = False
            raise Interrupted

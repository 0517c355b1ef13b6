"""What a package prints is kept out of a command's result."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Aside:
    """A stream that is deaf to one thread and passes on what the others write: one that hangs silences nobody else."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def printing_aside() -> Iterator[None]:
    """While in here, nothing that this thread prints reaches stdout."""
    before = sys.stdout
    sys.stdout = aside = Aside(before)
    try:
        yield
    finally:
        if sys.stdout is aside:
            sys.stdout = before

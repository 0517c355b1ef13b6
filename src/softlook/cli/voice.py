"""Answers, said to stdout as they come: lines for people and filters, or an object of JSON for each."""

import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from softlook.base.excerpt import escaped
from softlook.cli.progress import talk

WAIT = 1.0
"""Seconds after which it is said how far one is."""


class Voice:
    """The way out of a command that answers."""

    def __init__(self) -> None:
        voice = talk()
        self.json = voice is not None and voice.json
        self.terminal = sys.stdout.isatty()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # an answer that a terminal has no letters for

    def line(self, *cells: str) -> None:
        """Cells with tabs between them; a line stays a line."""
        self._write("\t".join(self._shown(" ".join(cell.splitlines())) for cell in cells) + "\n")

    def object(self, content: dict[str, Any]) -> None:
        """One line of JSON."""
        self._write(json.dumps(content, ensure_ascii=False) + "\n")

    def piece(self, text: str) -> None:
        """Some text as it is, seen at once."""
        self._write("\n".join(map(self._shown, text.split("\n"))))
        self.flush()

    def flush(self) -> None:
        """Let it be seen."""
        sys.stdout.flush()

    def _shown(self, text: str) -> str:
        """On a terminal nothing in a text may act on it."""
        return escaped(text) if self.terminal else text

    def _write(self, words: str) -> None:
        sys.stdout.write(words)


@contextmanager
def counting(voice: Voice, what: str = "texts") -> Iterator["Counted"]:
    """Tells on a terminal how many answers there are, while they go elsewhere."""
    said = talk()
    console = None if said is None or said.level > 20 or voice.terminal else said.console
    if console is None or not console.is_terminal:
        yield Counted(what)
        return
    with console.status("") as status:
        yield Counted(what, status)


class Counted:
    """How many answers there are so far."""

    def __init__(self, what: str, status: Any = None) -> None:
        self.what, self.status, self.count, self.began = what, status, 0, time.monotonic()

    def add(self, count: int) -> None:
        self.count += count
        spent = time.monotonic() - self.began
        if self.status is not None and spent > WAIT:
            self.status.update(f"{self.count:,} {self.what}, {self.count / spent:,.0f} a second")

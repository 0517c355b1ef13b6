"""What is said, and where: the result to stdout, everything else to stderr."""

import json
import logging
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from softlook.base.excerpt import escaped
from softlook.cli.ending import INTERNAL, NOBODY, STOPPED, TERMINATED, Ending, in_words


@dataclass(frozen=True)
class Result:
    """What a command made, and what there is to know about it."""

    path: Path
    facts: dict[str, Any]
    text: str = ""
    """What people read, where the path alone does not say it."""


class Talk(logging.Handler):
    """One command's way of speaking. What softlook logs and warns of is said; what others do, is not."""

    def __init__(self, *, json: bool = False, quiet: bool = False, debug: bool = False) -> None:
        super().__init__(logging.WARNING if quiet else logging.INFO)
        self.json, self.debug = json, debug
        # Colours are rich's affair: it knows NO_COLOR, dumb terminals, and what is no terminal.
        self.console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While in here, the library's own words are passed on."""
        logger = logging.getLogger("softlook")
        level, spread = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = self._warned
                yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = spread

    def emit(self, record: logging.LogRecord) -> None:
        """Say what was logged."""
        self._say(record.getMessage())

    def result(self, made: Result | None) -> None:
        """The path, alone on its line, or everything as one JSON object. Help has no result."""
        if made is None:
            return
        self._out(json.dumps({"path": str(made.path), **made.facts}) if self.json else made.text or _shown(made.path))

    def fault(self, fault: BaseException, ended: Ending) -> int:
        """What went wrong, in one message, and the code to end with."""
        if ended is NOBODY:
            return ended.code
        if self.debug:
            self.console.print("".join(traceback.format_exception(fault)), style="dim")
        was_asked = ended in (STOPPED, TERMINATED)
        message = "stopped, as asked" if was_asked else in_words(fault)
        if ended is INTERNAL:
            message = f"{type(fault).__name__}: {message}. This is a fault of softlook's own; --debug shows where."
        if self.json:
            self._out(json.dumps({"error": {"code": ended.code, "kind": ended.word, "message": message}}))
        self._say(message, "" if was_asked else "error: ")
        return ended.code

    def _warned(self, message: Warning | str, category: type[Warning], *where: Any) -> None:
        if category.__module__.startswith("softlook") and self.level < logging.WARNING:
            self._say(str(message), "note: ")

    def _say(self, words: str, kind: str = "") -> None:
        said = Text(laid_out(kind + words, self.console))
        said.stylize("bold red" if kind == "error: " else "bold", 0, len(kind))
        self.console.print(said)

    def _out(self, words: str) -> None:
        sys.stdout.write(words + "\n")
        sys.stdout.flush()


def laid_out(words: str, console: Console) -> str:
    """Lines in which nothing acts on a terminal. There, sentences are broken between words; what is laid out in cells,
    with wider gaps between them, stays as it is, and so do lines for a file or a pipe.

    >>> print(laid_out("  age: a number\\n  a  b  c  d  e  f", Console(width=12, force_terminal=True)))
      age: a
        number
      a  b  c  d  e  f
    """
    lines = [escaped(line) for line in words.split("\n")]
    if not console.is_terminal:
        return "\n".join(lines)
    return "\n".join(part for line in lines for part in _broken(line, console.width))


def _broken(line: str, width: int) -> list[str]:
    body = line.lstrip(" ")
    indent = " " * (len(line) - len(body))
    if len(line) <= width or "  " in body:
        return [line]
    more = indent + "  " if indent else ""
    return textwrap.wrap(
        body, width, initial_indent=indent, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )


def _shown(path: Path) -> str:
    """As it is, for programs; on a terminal so that nothing in a name can act on it."""
    name = str(path)
    try:
        name.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return escaped(name).encode("ascii", "backslashreplace").decode()
    return escaped(name) if sys.stdout.isatty() else name

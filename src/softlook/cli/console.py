"""Console output: results on stdout, log messages and errors on stderr."""

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

from softlook.base.errors import escape_control
from softlook.cli.exit_codes import BROKEN_PIPE, INTERNAL, INTERRUPTED, TERMINATED, ExitCode, error_message


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    path: Path
    details: dict[str, Any]
    """Further fields of the JSON object."""
    text: str = ""
    """Printed instead of the path."""


class ConsoleHandler(logging.Handler):
    """Prints softlook's log messages and warnings to stderr, and results to stdout."""

    def __init__(self, *, json: bool = False, quiet: bool = False, debug: bool = False) -> None:
        super().__init__(logging.WARNING if quiet else logging.INFO)
        self.json, self.debug = json, debug
        # rich handles NO_COLOR, dumb terminals and redirection.
        self.console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the library's log messages and warnings inside the context."""
        logger = logging.getLogger("softlook")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = self._show_warning
                yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate

    def emit(self, record: logging.LogRecord) -> None:
        self._print(record.getMessage())

    def print_result(self, result: CommandResult | None) -> None:
        """Print the path or the text of a result, or all of it as one JSON object."""
        if result is None:
            return
        if self.json:
            self._print_stdout(json.dumps({"path": str(result.path), **result.details}))
        else:
            self._print_stdout(result.text or _printable(result.path))

    def print_error(self, error: BaseException, exit_code: ExitCode) -> int:
        """Print an error; return its exit code."""
        if exit_code is BROKEN_PIPE:
            return exit_code.code
        if self.debug:
            self.console.print("".join(traceback.format_exception(error)), style="dim")
        is_interrupt = exit_code in (INTERRUPTED, TERMINATED)
        message = exit_code.name if is_interrupt else error_message(error)
        if exit_code is INTERNAL:
            message = f"{type(error).__name__}: {message}. This is an internal error; --debug shows the traceback."
        if self.json:
            fields = {"code": exit_code.code, "kind": exit_code.name, "message": message}
            self._print_stdout(json.dumps({"error": fields}))
        self._print(message, "" if is_interrupt else "error: ")
        return exit_code.code

    def _show_warning(self, message: Warning | str, category: type[Warning], *location: Any) -> None:
        if category.__module__.startswith("softlook") and self.level < logging.WARNING:
            self._print(str(message), "note: ")

    def _print(self, message: str, prefix: str = "") -> None:
        text = Text(wrap_lines(prefix + message, self.console))
        text.stylize("bold red" if prefix == "error: " else "bold", 0, len(prefix))
        self.console.print(text)

    def _print_stdout(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def active_handler() -> ConsoleHandler | None:
    """The handler of the running command."""
    handlers = logging.getLogger("softlook").handlers
    return next((handler for handler in handlers if isinstance(handler, ConsoleHandler)), None)


def wrap_lines(text: str, console: Console) -> str:
    """Escape control characters and, on a terminal, wrap sentences. Lines with aligned columns are not wrapped.

    >>> print(wrap_lines("  age: a number\\n  a  b  c  d  e  f", Console(width=12, force_terminal=True)))
      age: a
        number
      a  b  c  d  e  f
    """
    lines = [escape_control(line) for line in text.split("\n")]
    if not console.is_terminal:
        return "\n".join(lines)
    return "\n".join(part for line in lines for part in _wrap(line, console.width))


def _wrap(line: str, width: int) -> list[str]:
    body = line.lstrip(" ")
    indent = " " * (len(line) - len(body))
    if len(line) <= width or "  " in body:
        return [line]
    hanging = indent + "  " if indent else ""
    return textwrap.wrap(
        body, width, initial_indent=indent, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def _printable(path: Path) -> str:
    """The path unchanged for programs; on a terminal with control characters escaped."""
    name = str(path)
    try:
        name.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return escape_control(name).encode("ascii", "backslashreplace").decode()
    return escape_control(name) if sys.stdout.isatty() else name

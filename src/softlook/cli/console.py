"""Console output: results on stdout, log messages and errors on stderr, exit codes."""

import io
import json
import logging
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import CycloptsError
from rich.console import Console
from rich.text import Text

from softlook.base.errors import (
    ConfigError,
    DataError,
    DiskError,
    TrainingError,
    WeightsError,
    escape_control,
    is_out_of_memory,
)
from softlook.cli.usage import explain

COUNTER_DELAY = 1.0
"""Seconds after which the counter is shown."""


@dataclass(frozen=True)
class ExitCode:
    """An exit code, as in sysexits.h, and its name in JSON errors."""

    code: int
    name: str


FAILED = ExitCode(1, "run-failed")
USAGE = ExitCode(2, "usage")
DATA = ExitCode(65, "data")
NOT_INSTALLED = ExitCode(69, "not-installed")
INTERNAL = ExitCode(70, "internal")
DISK = ExitCode(74, "disk")
INTERRUPTED = ExitCode(130, "interrupted")
BROKEN_PIPE = ExitCode(141, "broken-pipe")
TERMINATED = ExitCode(143, "terminated")


class Terminated(KeyboardInterrupt):
    """Stopped by SIGTERM."""


EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (Terminated, TERMINATED),
    (KeyboardInterrupt, INTERRUPTED),
    (CycloptsError, USAGE),
    (BrokenPipeError, BROKEN_PIPE),
    (DiskError, DISK),
    (OSError, DISK),
    (WeightsError, DATA),
    (DataError, DATA),
    (ConfigError, DATA),
    (TrainingError, FAILED),
    (ImportError, NOT_INSTALLED),
)
"""The first match applies."""


def exit_code(error: BaseException) -> ExitCode:
    """The exit code of an error; anything unexpected is an internal error.

    >>> exit_code(DiskError("no space left")), exit_code(ZeroDivisionError())
    (ExitCode(code=74, name='disk'), ExitCode(code=70, name='internal'))
    """
    if is_out_of_memory(error):
        return FAILED
    return next((code for error_class, code in EXIT_CODES if isinstance(error, error_class)), INTERNAL)


def error_message(error: BaseException) -> str:
    """The message of an error."""
    if isinstance(error, CycloptsError) and (explanation := explain(error)):
        return explanation
    if is_out_of_memory(error):
        return f"out of memory: {str(error) or 'an allocation failed'}. Choose a smaller model or a smaller batch."
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    path: Path
    details: dict[str, Any]
    """Further fields of the JSON object."""
    text: str | None = None
    """Printed instead of the path, unless it is empty."""
    hint: str = ""
    """What to do next: printed to stderr after the result."""


class ConsoleHandler(logging.Handler):
    """Prints softlook's log messages and warnings to stderr, and results to stdout."""

    def __init__(self, *, json: bool = False, quiet: bool = False, debug: bool = False) -> None:
        super().__init__(logging.WARNING if quiet else logging.INFO)
        self.json, self.debug, self.started_at = json, debug, time.monotonic()
        # rich handles NO_COLOR, dumb terminals and redirection.
        self.console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the library's log messages and warnings inside the context."""
        logger = logging.getLogger("softlook")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)  # what is being done now is a message of this level
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
        elif result.text != "":
            self._print_stdout(result.text or _printable(result.path))
        if result.hint and self.level <= logging.INFO:
            self._print(result.hint)

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


def active_console() -> Console | None:
    """The console of the running command; None if it is quiet."""
    handler = active_handler()
    return None if handler is None or handler.level > logging.INFO else handler.console


class OutputStream:
    """Writes answers to stdout as they are computed."""

    def __init__(self) -> None:
        handler = active_handler()
        self.json = handler is not None and handler.json
        self.is_terminal = sys.stdout.isatty()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # characters the terminal cannot show

    def write_line(self, *cells: str) -> None:
        """Write tab-separated cells; line breaks inside cells become spaces."""
        sys.stdout.write("\t".join(self._escape(" ".join(cell.splitlines())) for cell in cells) + "\n")

    def write_object(self, content: dict[str, Any]) -> None:
        """Write one line of JSON."""
        sys.stdout.write(json.dumps(content, ensure_ascii=False) + "\n")

    def write_text(self, text: str) -> None:
        """Write text unchanged and flush."""
        sys.stdout.write("\n".join(map(self._escape, text.split("\n"))))
        self.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def _escape(self, text: str) -> str:
        return escape_control(text) if self.is_terminal else text


@contextmanager
def counter(output: OutputStream, unit: str = "texts") -> Iterator["Counter"]:
    """Shows the number of answers on the terminal while stdout is redirected."""
    console = active_console()
    if console is None or not console.is_terminal or output.is_terminal:
        yield Counter(unit)
        return
    with console.status("") as status:
        yield Counter(unit, status)


class Counter:
    """Number of answers so far."""

    def __init__(self, unit: str, status: Any = None) -> None:
        self.unit, self.status, self.count, self.start = unit, status, 0, time.monotonic()

    def add(self, count: int) -> None:
        """Count answers, and flush them."""
        sys.stdout.flush()
        self.count += count
        elapsed = time.monotonic() - self.start
        if self.status is not None and elapsed > COUNTER_DELAY:
            self.status.update(f"{self.count:,} {self.unit}, {self.count / elapsed:,.0f} per second")


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

"""Output of inference commands: lines or JSON objects on stdout."""

import io
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softlook.base.errors import DiskError, escape_control
from softlook.cli.console import active_handler

COUNTER_DELAY = 1.0
"""Seconds after which the counter is shown."""


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
        self._write("\t".join(self._escape(" ".join(cell.splitlines())) for cell in cells) + "\n")

    def write_object(self, content: dict[str, Any]) -> None:
        """Write one line of JSON."""
        self._write(json.dumps(content, ensure_ascii=False) + "\n")

    def write_text(self, text: str) -> None:
        """Write text unchanged and flush."""
        self._write("\n".join(map(self._escape, text.split("\n"))))
        self.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def _escape(self, text: str) -> str:
        return escape_control(text) if self.is_terminal else text

    def _write(self, text: str) -> None:
        sys.stdout.write(text)


@contextmanager
def counter(output: OutputStream, unit: str = "texts") -> Iterator["Counter"]:
    """Shows the number of answers on the terminal while stdout is redirected."""
    handler = active_handler()
    hidden = handler is None or handler.level > logging.INFO or output.is_terminal
    console = None if handler is None or hidden else handler.console
    if console is None or not console.is_terminal:
        yield Counter(unit)
        return
    with console.status("") as status:
        yield Counter(unit, status)


class Counter:
    """Number of answers so far."""

    def __init__(self, unit: str, status: Any = None) -> None:
        self.unit, self.status, self.count, self.start = unit, status, 0, time.monotonic()

    def add(self, count: int) -> None:
        self.count += count
        elapsed = time.monotonic() - self.start
        if self.status is not None and elapsed > COUNTER_DELAY:
            self.status.update(f"{self.count:,} {self.unit}, {self.count / elapsed:,.0f} per second")


def output_folder(to: Path | None, source: Path, suffix: str) -> Path:
    """The folder to create: `to`, or the source's name with a suffix in the working directory. It must not exist.

    >>> output_folder(None, Path("models/gpt2"), "-softlook")
    PosixPath('gpt2-softlook')
    """
    resolved = source.resolve()
    stem = resolved.stem if resolved.suffix == ".gguf" else resolved.name
    folder = Path(f"{stem}{suffix}") if to is None else to
    if os.path.lexists(folder):  # checked before a large model is loaded
        raise DiskError(f"{folder} already exists and is not overwritten. Choose another name with --to.")
    return folder


def describe_model(model: Any, log: logging.Logger) -> dict[str, Any]:
    """Log and return a model's class, parameter count and dtype."""
    count = sum(parameter.numel() for parameter in model.parameters())
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    log.info("%s with %s parameters in %s", type(model).__name__, f"{count:,}", dtype)
    return {"model": type(model).__name__, "parameters": count, "dtype": dtype}

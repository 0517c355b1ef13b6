"""Runs commands in the process of the test."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Completed(NamedTuple):
    """Exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


RunCommand = Callable[..., Completed]


@pytest.fixture
def command(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Run a command on the CPU in an empty folder, with the content of its stdin."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has installed the shape checks)

    monkeypatch.chdir(tmp_path)

    def call(*args: str | Path, stdin: str | bytes = b"") -> Completed:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(SystemExit) as exited:
            main([*map(str, args), "--device", "cpu"])
        assert isinstance(exited.value.code, int)
        return Completed(exited.value.code, *capsys.readouterr())

    return call

"""`softlook studio`: mistakes are reported before anything is served."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import RunCommand


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "a token is required"),
        (("--token", "short"), "at least 16"),
        (("--port", "99999"), "below 65,536"),
        (("no/such/run",), "no/such/run"),
        (("--token-file", "no/such/file"), "cannot be read"),
    ],
)
def test_mistakes_are_reported_before_anything_is_served(
    command: RunCommand, arguments: tuple[str, ...], message: str
) -> None:
    result = command("studio", *arguments)
    assert message in result.err
    assert result.code not in (0, 70)


def test_a_link_is_printed_and_opened(command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def run(api: Any, listener: Any, sessions: Any, on_ready: Callable[[str], None], recording: str) -> None:
        assert json.loads(recording)["info"]["id"] == "date"
        on_ready("http://127.0.0.1:1/?token=x")
        listener.close()

    monkeypatch.setattr("softlook.studio.server.run", run)
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = command("studio")
    assert "http://127.0.0.1:1/?token=x" in result.err
    assert opened == ["http://127.0.0.1:1/?token=x"]
    assert command("studio", "--no-browser").code == 0
    assert len(opened) == 1

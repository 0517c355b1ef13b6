"""The command `softlook serve`."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from softlook.base.errors import ConfigError, DiskError
from softlook.cli.commands.serve import serve
from softlook.serve.server import listen
from softlook.weights import save
from tests.serve.tiny_models import decoder, words

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    words().tokenizer.save(str(tmp_path / "words.json"))
    return save(decoder(), tmp_path / "poems", tokenizer=tmp_path / "words.json")


def command(*args: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "softlook", "serve", *args]
    return subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_the_server_runs_until_a_signal(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    server = command(str(folder), "--port", "0", "--token-file", str(tmp_path / "token"))
    assert server.stderr is not None
    try:
        lines = [server.stderr.readline()]
        while "Listening on " not in lines[-1]:
            assert lines[-1], "".join(lines)
            lines.append(server.stderr.readline())
        address = lines[-1].split("Listening on ")[1].split()[0]
        assert any("poems: GPT, for completions" in line for line in lines)
        body = {"model": "poems", "prompt": "sea", "max_tokens": 3, "temperature": 0}  # samples might be shorter
        url = f"{address}/v1/completions"
        assert httpx.post(url, json=body, timeout=30).status_code == 401
        response = httpx.post(url, json=body, timeout=30, headers={"authorization": f"Bearer {TOKEN}"})
        assert response.status_code == 200 and response.json()["usage"]["completion_tokens"] == 3
        server.send_signal(number)
        _, stderr = server.communicate(timeout=30)
        assert server.returncode == 0 and "Traceback" not in stderr and TOKEN not in "".join(lines) + stderr
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "is reachable from other machines"),
        ({"token": "short"}, "a token must have at least 16 ASCII characters"),
        ({"max_queue": 0}, "limits must be above 0"),
        ({"port": 70_000}, "the port below 65,536"),
        ({"token_file": Path("no/such/file")}, "the token file no/such/file cannot be read"),
    ],
    ids=["no token", "short token", "no queue", "no port", "no file"],
)
def test_unsafe_options_are_rejected_before_a_model_is_loaded(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DiskError), match=message):
        serve("no/such/model", **options)


def test_a_missing_model_is_reported() -> None:
    with pytest.raises(ConfigError, match="no model given"):
        serve()


def test_an_address_in_use_is_reported(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)

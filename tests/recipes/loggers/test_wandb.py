"""The Weights & Biases logger."""

import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from softlook.recipes.loggers.backends import select_mode
from tests.recipes.loggers.fake_run import CHANGED, CRASHED, RESUMED, SETTINGS, log_run

BLOCK = 32768
"""Bytes of a block in W&B's files, which are LevelDB logs."""


class Run:
    """A fake W&B run."""

    url = "https://localhost/run"

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.summary, self.exit_code = options, dict[str, Any](), -1
        self.calls: list[tuple[dict[str, Any], int]] = []

    def log(self, values: dict[str, Any], step: int) -> None:
        self.calls.append((values, step))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    runs: list[Run] = []
    module = ModuleType("wandb")

    def init(**options: Any) -> Run:
        runs.append(Run(options))
        return runs[-1]

    class Settings(SimpleNamespace):
        model_fields = {"init_timeout": None}

    module.__dict__.update(init=init, Settings=Settings, Table=lambda columns, data: (columns, data))
    monkeypatch.setitem(sys.modules, "wandb", module)
    return runs


@pytest.fixture(autouse=True)
def without_api_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "IDENTITY_TOKEN_FILE", "MODE", "PROJECT", "BASE_URL", "ERROR_REPORTING"):
        monkeypatch.setenv(f"WANDB_{name}", "")  # so that monkeypatch restores it
        monkeypatch.delenv(f"WANDB_{name}")
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def test_a_resumed_run_is_one_run(runs: list[Run], tmp_path: Path) -> None:
    log_run("wandb", tmp_path, CRASHED)
    log_run("wandb", tmp_path, RESUMED, CHANGED)
    first, second = runs
    assert first.options["id"] == second.options["id"]
    expected = {
        "project": "softlook",
        "name": tmp_path.name,
        "dir": str(tmp_path),
        "mode": "offline",
        "config": SETTINGS,
    }
    assert expected.items() <= first.options.items()
    assert vars(first.options["settings"]) == {"silent": True, "console": "off", "init_timeout": 20.0}
    losses = [(step, values["train/loss"]) for values, step in first.calls + second.calls if "train/loss" in values]
    assert losses == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert ({"samples": (["prediction", "label"], [["words 4", "w"]])}, 4) in second.calls
    assert second.summary == {"final/loss": 0.5, "final/test.bleu": 40.0}
    assert (first.exit_code, second.exit_code) == (1, 0)


def test_without_an_api_key_it_is_offline_and_logs_so(
    runs: list[Run], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "softlook")
    log_run("wandb", tmp_path, CRASHED)
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    assert (
        f"Logging to W&B in {tmp_path / 'wandb'} (offline); upload it with `wandb sync` and an API key."
        in caplog.messages
    )


def test_an_api_key_enables_online_mode_and_an_explicit_mode_is_kept(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    log_run("wandb", tmp_path, CRASHED)
    assert [runs[0].options[name] for name in ("mode", "resume", "project")] == ["online", "allow", "mine"]
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert select_mode() == "disabled"


def test_a_key_is_found_in_the_netrc_file_of_the_right_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "no-netrc"
    path.write_text("machine api.wandb.ai login user password 123\n", encoding="utf-8")
    path.chmod(0o600)
    assert select_mode() == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    monkeypatch.setenv("WANDB_MODE", "online")
    assert select_mode() == "offline"  # online mode would prompt for a key
    path.write_text("machine", encoding="utf-8")
    assert select_mode() == "offline"


def records(path: Path) -> Iterator[Any]:
    """The records of a W&B file, as protobuf messages."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    content, offset, record = path.read_bytes(), 7, b""
    while offset + 7 <= len(content):
        if BLOCK - offset % BLOCK < 7:
            offset += BLOCK - offset % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", content, offset + 4)
        record += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(record)
            record = b""


@pytest.mark.filterwarnings("ignore")
def test_wandb_itself_writes_each_step_once(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    log_run("wandb", tmp_path, CRASHED)
    log_run("wandb", tmp_path, RESUMED, CHANGED)
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    found = [record for path in files for record in records(path)]
    names = {
        (record.run.run_id, record.run.display_name, record.run.project) for record in found if record.HasField("run")
    }
    assert len(files) == 2
    assert len(names) == 1
    assert next(iter(names))[1:] == (tmp_path.name, "softlook")
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in found
        if record.HasField("history")
    ]
    assert [(row["_step"], row["train/loss"]) for row in rows if "train/loss" in row] == [
        (1, 9.0),
        (2, 8.0),
        (3, 7.0),
        (4, 6.0),
    ]
    assert [row["_step"] for row in rows if "validation/loss" in row] == [2, 4]
    tables = [path.read_text(encoding="utf-8") for path in (tmp_path / "wandb").rglob("*.table.json")]
    assert any("words 4" in table for table in tables)

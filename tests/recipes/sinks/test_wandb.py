"""Weights & Biases hears what a run tells; without a key it stays at home, and nobody is asked for one."""

import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from softlook.recipes.sinks.wandb import mode_of
from tests.recipes.sinks.story import BROKEN_OFF, CHANGED, GOING_ON, SETTINGS, tell

BLOCK = 32768
"""Bytes of a block in W&B's files, which are LevelDB logs."""


class Run:
    """Stands in for W&B's."""

    url = "https://localhost/run"

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.summary, self.ended = given, dict[str, Any](), -1
        self.said: list[tuple[dict[str, Any], int]] = []

    def log(self, values: dict[str, Any], step: int) -> None:
        self.said.append((values, step))

    def finish(self, exit_code: int) -> None:
        self.ended = exit_code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    made: list[Run] = []
    module = ModuleType("wandb")

    def init(**given: Any) -> Run:
        made.append(Run(given))
        return made[-1]

    class Settings(SimpleNamespace):
        model_fields = {"init_timeout": None}

    module.__dict__.update(init=init, Settings=Settings, Table=lambda columns, data: (columns, data))
    monkeypatch.setitem(sys.modules, "wandb", module)
    return made


@pytest.fixture(autouse=True)
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "IDENTITY_TOKEN_FILE", "MODE", "PROJECT", "BASE_URL", "ERROR_REPORTING"):
        monkeypatch.setenv(f"WANDB_{name}", "")  # so that it is put back whatever happens to it
        monkeypatch.delenv(f"WANDB_{name}")
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def test_one_run_holds_what_two_processes_told(runs: list[Run], tmp_path: Path) -> None:
    tell("wandb", tmp_path, BROKEN_OFF)
    tell("wandb", tmp_path, GOING_ON, CHANGED)
    first, second = runs
    assert first.given["id"] == second.given["id"]
    told = {"project": "softlook", "name": tmp_path.name, "dir": str(tmp_path), "mode": "offline", "config": SETTINGS}
    assert told.items() <= first.given.items()
    assert vars(first.given["settings"]) == {"silent": True, "console": "off", "init_timeout": 20.0}
    losses = [(step, values["train/loss"]) for values, step in first.said + second.said if "train/loss" in values]
    assert losses == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert ({"samples": (["said", "wanted"], [["words 4", "w"]])}, 4) in second.said
    assert second.summary == {"final/loss": 0.5, "final/test.bleu": 40.0}
    assert (first.ended, second.ended) == (1, 0)


def test_without_a_key_it_stays_offline_and_says_so(
    runs: list[Run], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "softlook")
    tell("wandb", tmp_path, BROKEN_OFF)
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    assert f"W&B writes to {tmp_path / 'wandb'} alone (offline); `wandb sync` sends it, with a key." in caplog.messages


def test_a_key_takes_it_online_and_the_mode_that_is_told_stays(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    tell("wandb", tmp_path, BROKEN_OFF)
    assert [runs[0].given[name] for name in ("mode", "resume", "project")] == ["online", "allow", "mine"]
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert mode_of() == "disabled"


def test_a_key_is_found_in_the_netrc_file_of_the_right_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "no-netrc"
    path.write_text("machine api.wandb.ai login user password 123\n", encoding="utf-8")
    path.chmod(0o600)
    assert mode_of() == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    monkeypatch.setenv("WANDB_MODE", "online")
    assert mode_of() == "offline"  # it would ask at the keyboard
    path.write_text("machine", encoding="utf-8")
    assert mode_of() == "offline"


def records(path: Path) -> Iterator[Any]:
    """What lies in one of W&B's files, as its own messages."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    content, place, held = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        held += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(held)
            held = b""


@pytest.mark.filterwarnings("ignore")
def test_wandb_itself_writes_each_step_once_at_home(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    tell("wandb", tmp_path, BROKEN_OFF)
    tell("wandb", tmp_path, GOING_ON, CHANGED)
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
    assert [row["_step"] for row in rows if "held_out/loss" in row] == [2, 4]
    tables = [path.read_text(encoding="utf-8") for path in (tmp_path / "wandb").rglob("*.table.json")]
    assert any("words 4" in table for table in tables)

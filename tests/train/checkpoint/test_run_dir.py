"""A run directory stores its config, resumes only with the same settings and data, and overwrites nothing."""

import json
from pathlib import Path

import pytest

from softlook.base.errors import DiskError, TrainingError, WeightsError
from softlook.train.checkpoint.run_dir import RunDir, diff_settings, write_json

CONFIG = {"optim": {"lr": 0.1}, "sizes": (1, 2)}


def test_a_run_resumes_with_the_same_config_and_data(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "run")
    assert not folder.exists()
    assert not folder.open(CONFIG, "digest")
    assert folder.exists()
    assert folder.open(CONFIG, "digest")
    assert folder.config() == {"optim": {"lr": 0.1}, "sizes": [1, 2]}
    assert folder.metadata()["data"] == "digest"
    assert folder.metadata()["versions"].keys() == {"softlook", "torch", "python"}


def test_changed_settings_are_listed_and_raise(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    folder.open(CONFIG, "digest")
    with pytest.raises(
        TrainingError, match=r"(?s)was started with different settings:\n  optim.lr: was 0.1, now 0.2\nUse the old"
    ):
        folder.open({**CONFIG, "optim": {"lr": 0.2}}, "digest")
    with pytest.raises(TrainingError, match=r"  the data have changed"):
        folder.open(CONFIG, "other")
    assert folder.open(CONFIG, "digest"), "the rejected calls must not change the run"


def test_a_folder_with_other_files_raises(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(TrainingError, match=r"is not empty and not a run. Choose another name with --run-dir"):
        RunDir(tmp_path).open(CONFIG, "digest")
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_run_dir_that_cannot_be_created_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(DiskError, match=r"cannot create the run directory .*\. Choose another one with --run-dir\.$"):
            RunDir(path).lock().__enter__()


def test_files_left_before_the_start_are_accepted(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    with folder.lock():
        (tmp_path / "metadata.json").write_text("{", encoding="utf-8")
        (tmp_path / ".config.json.partial").touch()
        assert not folder.open(CONFIG, "digest")


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    RunDir(tmp_path).open(CONFIG, "digest")
    (tmp_path / "config.json").write_text('{"optim": ', encoding="utf-8")
    with pytest.raises(WeightsError, match=r"config.json is not JSON"):
        RunDir(tmp_path).open(CONFIG, "digest")


def test_diff_settings_is_recursive_and_symmetric() -> None:
    old = {"a": {"b": {"c": 1}}, "gone": 1, "same": [1]}
    new = {"a": {"b": {"c": 2}}, "new": {"x": 1}, "same": [1]}
    assert diff_settings(old, new) == ["a.b.c: was 1, now 2", "gone: was 1, now None", "new: was None, now {'x': 1}"]


def test_write_json_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    monkeypatch.setattr(Path, "replace", lambda *args: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(WeightsError, match=r"cannot write .*a.json: Input/output error"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

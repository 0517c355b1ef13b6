"""A run's folder explains itself, goes on with what it was begun with, and never overwrites anything."""

import json
from pathlib import Path

import pytest

from softlook.base.errors import DiskError, TrainingError, WeightsError
from softlook.train.folder import RunFolder, differences, write_json

CONFIG = {"optim": {"lr": 0.1}, "sizes": (1, 2)}


def test_a_run_is_begun_once_and_goes_on_with_the_same_config_and_data(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not folder.exists()
    assert not folder.open(CONFIG, "digest")
    assert folder.exists()
    assert folder.open(CONFIG, "digest")
    assert folder.config() == {"optim": {"lr": 0.1}, "sizes": [1, 2]}
    assert folder.story()["data"] == "digest"
    assert folder.story()["versions"].keys() == {"softlook", "torch", "python"}


def test_what_changed_is_shown_and_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(CONFIG, "digest")
    with pytest.raises(TrainingError, match=r"(?s)was begun otherwise:\n  optim.lr: 0.1 then, 0.2 now\nGive the old"):
        folder.open({**CONFIG, "optim": {"lr": 0.2}}, "digest")
    with pytest.raises(TrainingError, match=r"  the data are not the same as when it began"):
        folder.open(CONFIG, "other")
    assert folder.open(CONFIG, "digest"), "refusing changed nothing"


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(TrainingError, match=r"holds something else than a run. Choose another name with --run"):
        RunFolder(tmp_path).open(CONFIG, "digest")
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_folder_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(DiskError, match=r"cannot make the folder .*\. Choose another place with --run\.$"):
            RunFolder(place).mine().__enter__()


def test_a_folder_that_is_held_or_was_left_before_the_run_began_is_taken(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.mine():
        (tmp_path / "run.json").write_text("{", encoding="utf-8")
        (tmp_path / ".config.json.partial").touch()
        assert not folder.open(CONFIG, "digest")


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    RunFolder(tmp_path).open(CONFIG, "digest")
    (tmp_path / "config.json").write_text('{"optim": ', encoding="utf-8")
    with pytest.raises(WeightsError, match=r"config.json is not JSON"):
        RunFolder(tmp_path).open(CONFIG, "digest")


def test_differences_are_found_at_any_depth_and_on_either_side() -> None:
    old = {"a": {"b": {"c": 1}}, "gone": 1, "same": [1]}
    new = {"a": {"b": {"c": 2}}, "new": {"x": 1}, "same": [1]}
    assert differences(old, new) == ["a.b.c: 1 then, 2 now", "gone: 1 then, None now", "new: None then, {'x': 1} now"]


def test_a_small_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    monkeypatch.setattr(Path, "replace", lambda *args: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(WeightsError, match=r"cannot write .*a.json: Input/output error"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

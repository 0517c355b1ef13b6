"""What a run logs beside its checkpoints stays one story, however often it is killed."""

import json
from pathlib import Path

import pytest

from softlook.recipes import keeping
from softlook.recipes.keeping import METRICS, SAMPLES, Keeper
from softlook.train.events import Sampled, Started, Trained


def started(step: int) -> Started:
    return Started(step, 10, "cpu", "float32", 1)


def logged(step: int) -> Trained:
    return Trained(step, loss=float(step), lr=0.1, gradient=1.0, tokens_per_second=5.0, seconds=1.0)


def test_steps_that_are_made_again_after_a_kill_are_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "write_report", lambda *_: None)
    keeper = Keeper(tmp_path, [])
    for event in (started(0), logged(2), logged(4), Sampled(4, []), logged(6), Sampled(6, [])):
        keeper(event)
    with (tmp_path / METRICS).open("a") as file:
        file.write("8,1.0,3")  # the kill came in the middle of a line
    keeper = Keeper(tmp_path, [])
    for event in (started(4), logged(6), Sampled(6, []), logged(8)):
        keeper(event)
    rows = (tmp_path / METRICS).read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "2", "4", "6", "8"]
    lines = (tmp_path / SAMPLES).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4, 6]

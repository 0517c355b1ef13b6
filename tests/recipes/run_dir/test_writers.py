"""Metrics and samples of a run that was killed."""

import json
from pathlib import Path

import pytest

from softlook.recipes.run_dir import layout
from softlook.recipes.run_dir.layout import METRICS_FILE, SAMPLES_FILE, RunWriter
from softlook.train.events import Sampled, Started, StepLogged


def started(step: int) -> Started:
    return Started(step, 10, "cpu", "float32", 1)


def logged(step: int) -> StepLogged:
    return StepLogged(step, loss=float(step), lr=0.1, grad_norm=1.0, tokens_per_second=5.0, seconds=1.0)


def test_repeated_steps_are_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "write_report", lambda *_: None)
    writer = RunWriter(tmp_path, [])
    for event in (started(0), logged(2), logged(4), Sampled(4, []), logged(6), Sampled(6, [])):
        writer(event)
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write("8,1.0,3")  # killed in the middle of a line
    writer = RunWriter(tmp_path, [])
    for event in (started(4), logged(6), Sampled(6, []), logged(8)):
        writer(event)
    rows = (tmp_path / METRICS_FILE).read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "2", "4", "6", "8"]
    lines = (tmp_path / SAMPLES_FILE).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4, 6]

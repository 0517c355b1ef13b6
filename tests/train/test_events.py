"""The event log of a run: one JSON line per event, readable after a crash."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.train.events import Evaluated, EventLog, Finished, Saved, Started, Warned, read_events
from tests.train.tiny import make_evaluator, run_training


def test_logged_events_are_read_back(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    events = [Warned(0, 'a "word"\n'), Evaluated(3, {"loss": 0.5}, True), Finished(4, "done", 1.0)]
    for event in events:
        log(event)
    read = read_events(log.path)
    assert [event["event"] for event in read] == ["warned", "evaluated", "finished"]
    for line, event in zip(read, events, strict=True):
        assert asdict(event).items() <= line.items()


def test_a_truncated_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(path)(Saved(1, "a"))
    EventLog(path)(Saved(2, "b"))
    path.write_bytes(path.read_bytes()[:-9])
    EventLog(path)(Saved(3, "c"))
    assert [event["step"] for event in read_events(path)] == [1, 3]


def test_repeated_steps_are_read_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for event in (Started(0, 9, "cpu", "", 1), Saved(1, ""), Saved(2, ""), Started(1, 9, "cpu", "", 1), Saved(2, "")):
        log(event)
    assert [(event["event"], event["step"]) for event in read_events(log.path)] == [
        ("started", 0),
        ("saved", 1),
        ("started", 1),
        ("saved", 2),
    ]


def test_a_run_emits_its_events_in_order(tmp_path: Path) -> None:
    events: list[Any] = []
    run_training(tmp_path, events, max_steps=4, evaluate=make_evaluator(), evaluate_every=2, save_every=4, log_every=2)
    assert [(type(event).__name__, event.step) for event in events] == [
        ("Started", 0),
        ("StepLogged", 2),
        ("Evaluated", 2),
        ("Saved", 2),
        ("StepLogged", 4),
        ("Evaluated", 4),
        ("Saved", 4),
        ("Finished", 4),
    ]
    started, finished = events[0], events[-1]
    assert (started.device, started.precision, started.steps) == ("cpu", "float32", 4)
    assert (finished.reason, finished.complete, finished.signal) == ("max_steps reached", True, None)
    assert finished.checkpoint == str(tmp_path / "checkpoints" / "step-000000004")
    assert all(event.tokens_per_second > 0 for event in events if hasattr(event, "tokens_per_second"))


def test_an_unwritable_log_raises(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"cannot write .*events.jsonl: "):
        EventLog(tmp_path / "no" / "events.jsonl")(Saved(1, ""))

"""A callback may stop a run of any recipe, which then ends with its scores."""

from pathlib import Path

import pytest

from softlook.recipes import train_classification, train_table
from softlook.train import StopTraining
from softlook.train.events import Evaluated, Event, Sampled, Started, StepLogged
from tests.recipes.small import classification_config, events_of, tabular_config


class StopOnce:
    """Records all events, and asks to stop at the first event of a kind from a step on."""

    def __init__(self, kind: type[Event], step: int) -> None:
        self.kind, self.step, self.events = kind, step, list[Event]()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, self.kind) and event.step >= self.step:
            raise StopTraining


def test_a_text_run_that_a_callback_stops_has_scores_and_resumes(tmp_path: Path) -> None:
    config = classification_config(tmp_path, 6, train={"evaluate_every": 2})
    stop, seen = StopOnce(Evaluated, 2), list[Event]()
    result = train_classification(config, [stop, seen.append])
    assert result.finished.reason == "stopped by a callback" and result.finished.step == 2
    assert result.scores["accuracy"] >= 0 and (result.run_dir / "report.html").is_file()
    assert events_of(seen, Sampled) and seen == stop.events
    resumed = train_classification(config, [seen.append])
    assert resumed.finished.step == 6 and events_of(seen, Started)[-1].step == 2


@pytest.mark.parametrize(("kind", "step", "last"), [(StepLogged, 3, 4), (Evaluated, 18, 19), (Started, 0, 1)])
def test_a_table_run_that_a_callback_stops_has_scores_and_resumes(
    kind: type[Event], step: int, last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.tabular.checkpointing.LOG_SECONDS", 0.0)
    config, stop = tabular_config(tmp_path), StopOnce(kind, step)
    result = train_table(config, [stop])
    assert result.finished.reason == "stopped by a callback" and step <= result.finished.step <= last
    assert events_of(stop.events, Evaluated)[-1].step == result.finished.step
    assert result.finished.complete and result.estimator is not None and result.scores["accuracy"] >= 0
    resumed = train_table(config)
    assert resumed.finished.step > last and resumed.finished.reason != result.finished.reason

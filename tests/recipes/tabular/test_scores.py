"""What a table's run says it is worth, and at which price."""

import logging
import signal
from pathlib import Path

import pytest

from softlook.recipes.tabular.run import train_table
from softlook.train.events import Evaluated, Event
from tests.recipes.small import tabular_config


def test_ours_is_told_with_all_the_time_it_took_and_with_what_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("softlook.tabular.training.retrieval.FEW_JUDGES", 20)
    caplog.set_level(logging.INFO, "softlook")
    fitted = train_table(tabular_config(tmp_path, epochs=3, no_baseline=False))
    assert fitted.estimator is not None and (memory := fitted.estimator.retrieval_) is not None
    ours = fitted.scores["compared"][0]
    assert ours["model"] == "softlook" and ours["seconds"] == fitted.finished.seconds
    assert ours["seconds"] > fitted.estimator.history_[-1]["seconds"]  # remembering rows comes after the last epoch
    said = f"192 rows are remembered; those nearest to a row make up {100 * memory.share:.0f} % of its answer."
    assert said in caplog.text


def test_where_nothing_is_remembered_nothing_is_said_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "softlook")
    train_table(tabular_config(tmp_path, epochs=1))
    assert "On the 48 held-out rows" in caplog.text and "remembered" not in caplog.text


def test_who_asks_for_the_end_in_the_last_epoch_need_not_wait_for_other_models(tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, epochs=2)

    def impatient(event: Event) -> None:
        if isinstance(event, Evaluated) and event.step == 12:
            signal.raise_signal(signal.SIGINT)

    stopped = train_table(settings, [impatient])
    assert not stopped.finished.complete and stopped.finished.signal == "SIGINT" and not stopped.scores
    again = train_table(settings)
    assert again.finished.complete and again.finished.step == stopped.finished.step == 12 and again.scores

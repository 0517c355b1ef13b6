"""The scores of a table run, and the time that they took."""

import logging
import signal
from pathlib import Path

import pytest

from softlook.recipes.tabular.run import train_table
from softlook.train.events import Evaluated, Event
from tests.recipes.small import tabular_config


def test_the_model_is_compared_with_its_total_time_and_its_retrieval_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("softlook.tabular.training.retrieval.MIN_VALIDATION_ROWS", 20)
    caplog.set_level(logging.INFO, "softlook")
    result = train_table(tabular_config(tmp_path, epochs=3, no_baseline=False))
    assert result.estimator is not None and (retrieval := result.estimator.retrieval_) is not None
    own = result.scores["compared"][0]
    assert own["model"] == "softlook" and own["seconds"] == result.finished.seconds
    assert own["seconds"] > result.estimator.history_[-1]["seconds"]  # retrieval is prepared after the last epoch
    contribution = f"contribute {100 * retrieval.mix:.0f} % of a prediction"
    assert f"Retrieval: 192 training rows; the nearest ones {contribution}" in caplog.text


def test_without_retrieval_none_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "softlook")
    train_table(tabular_config(tmp_path, epochs=1))
    assert "Scores on 48 validation rows" in caplog.text and "Retrieval" not in caplog.text


def test_a_signal_in_the_last_epoch_stops_before_the_scores_and_resuming_computes_them(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, epochs=2)

    def interrupt_at_the_end(event: Event) -> None:
        if isinstance(event, Evaluated) and event.step == 12:
            signal.raise_signal(signal.SIGINT)

    stopped = train_table(config, [interrupt_at_the_end])
    assert not stopped.finished.complete and stopped.finished.signal == "SIGINT" and not stopped.scores
    resumed = train_table(config)
    assert resumed.finished.complete and resumed.finished.step == stopped.finished.step == 12 and resumed.scores

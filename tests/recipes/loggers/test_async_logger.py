"""Asynchronous loggers cannot harm a run."""

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import ConfigError
from softlook.recipes import train_causal_lm
from softlook.recipes.loggers import async_logger
from softlook.recipes.loggers.async_logger import AsyncLogger, select_loggers
from softlook.recipes.loggers.backends import RunInfo
from softlook.train.events import Event, Started, Warned
from tests.recipes.loggers.fake_run import CRASHED, RESUMED, SCORES, step_logged
from tests.recipes.small import causal_lm_config


class RecordingLogger:
    """A logger that records its calls."""

    message, rewinds = "", False

    def __init__(self, info: RunInfo, calls: list[Any], *, fails_at: str = "", rewinds: bool = False) -> None:
        self.id, self.calls, self.fails_at = info.run_id or "mine", calls, fails_at
        self.rewinds = rewinds
        self._record("open", info.step, info.run_id)

    def _record(self, *call: Any) -> None:
        if call[0] == self.fails_at:
            raise OSError("the network is gone\nand more")
        self.calls.append(call)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        self._record("metrics", step, dict(metrics))

    def log_samples(self, step: int, samples: Sequence[Mapping[str, str]]) -> None:
        self._record("samples", step, samples)

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        self._record("finish", step, dict(scores), complete)


def log_run(folder: Path, events: Sequence[Event], scores: Mapping[str, Any], **more: Any) -> list[Any]:
    calls: list[Any] = []
    logger = AsyncLogger("recording", lambda info: RecordingLogger(info, calls, **more), RunInfo(folder, {}))
    for event in events:
        logger(event)
    logger.finish(events[-1].step, scores, complete=bool(scores))
    return calls


def steps(calls: list[Any], kind: str) -> list[int]:
    return [call[1] for call in calls if call[0] == "metrics" and f"{kind}/loss" in call[2]]


def test_metrics_samples_and_scores_are_logged_in_order(tmp_path: Path) -> None:
    calls = log_run(tmp_path, RESUMED, SCORES)
    names = ["open", "metrics", "metrics", "samples", "metrics", "metrics", "metrics", "samples", "finish"]
    assert [call[0] for call in calls] == names
    assert calls[1][2] == {"train/loss": 8.0, "train/lr": 0.1, "train/grad_norm": 1.0, "train/tokens_per_second": 9.0}
    assert calls[2][2] == {"validation/loss": 3.0}
    assert calls[-1] == ("finish", 4, {"final/loss": 0.5, "final/test.bleu": 40.0}, True)


def test_steps_repeated_after_a_crash_are_logged_once(tmp_path: Path) -> None:
    before = log_run(tmp_path, CRASHED, {})
    after = log_run(tmp_path, RESUMED, SCORES)
    assert (before[0], after[0]) == (("open", 0, ""), ("open", 1, "mine"))
    assert steps(before + after, "train") == [1, 2, 3, 4]
    assert steps(before + after, "validation") == [2, 4]
    again = log_run(tmp_path, [Started(4, 4, "cpu", "float32", 10)], SCORES)
    assert again[-1] == ("finish", 4, {}, True)


def test_what_was_not_logged_before_a_crash_is_logged_after_it(tmp_path: Path) -> None:
    before = log_run(tmp_path, CRASHED[:3], {})  # killed between a step and its evaluation
    after = log_run(tmp_path, RESUMED, SCORES)
    assert steps(before + after, "train") == [1, 2, 3, 4]
    assert steps(before + after, "validation") == [2, 4]


def test_a_rewinding_logger_gets_repeated_metrics_again(tmp_path: Path) -> None:
    log_run(tmp_path, CRASHED, {}, rewinds=True)
    after = log_run(tmp_path, RESUMED, SCORES, rewinds=True)
    assert steps(after, "train") == [2, 3, 4]
    assert [call[1] for call in after if call[0] == "samples"] == [4]


@pytest.mark.parametrize("method", ["open", "metrics", "samples", "finish"])
def test_a_failing_logger_is_disabled_with_one_warning(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = log_run(tmp_path, CRASHED + RESUMED[1:], SCORES, fails_at=method)
    assert [record.getMessage() for record in caplog.records] == [
        f"Logging to recording is disabled: OSError: the network is gone. All metrics are in {tmp_path}."
    ]
    assert method not in [call[0] for call in calls]


def test_a_hanging_logger_does_not_block_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(async_logger, "FINISH_TIMEOUT", 0.05)
    monkeypatch.setattr(async_logger, "MAX_QUEUE", 5)
    for count, reason in ((2, "did not finish within 0.05 s"), (9, "5 events behind")):
        released = threading.Event()

        def open_blocked(info: RunInfo, released: threading.Event = released) -> RecordingLogger:
            released.wait()
            return RecordingLogger(info, [])

        logger = AsyncLogger("slow", open_blocked, RunInfo(tmp_path, {}))
        logger(Started(0, 9, "cpu", "float32", 1))
        for step in range(count):
            logger(step_logged(step))
        logger.finish(count, {}, complete=True)
        assert reason in caplog.records[-1].getMessage()
        released.set()
        logger.thread.join(5)
        assert not logger.thread.is_alive()
    assert len(caplog.records) == 2


def test_a_run_that_never_starts_opens_no_logger(tmp_path: Path) -> None:
    assert log_run(tmp_path, [Warned(0, "a checkpoint is damaged")], {}) == []


def test_a_run_completes_with_broken_loggers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(info: RunInfo) -> RecordingLogger:
        raise RuntimeError("no")

    monkeypatch.setattr(async_logger, "LOGGERS", {"mlflow": broken, "wandb": broken})
    monkeypatch.setattr(async_logger, "missing_packages", lambda name: [])
    (tmp_path / "plain").mkdir()
    trained = train_causal_lm(causal_lm_config(tmp_path, loggers=("mlflow", "wandb")))
    plain = train_causal_lm(causal_lm_config(tmp_path / "plain", loggers=("none",)))
    assert trained.finished.complete
    assert trained.scores["loss"] == plain.scores["loss"]
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    disabled = [message.split()[2] for message in messages if "disabled" in message]
    assert sorted(disabled) == ["mlflow", "wandb"]


def test_a_run_resumes_with_other_loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(async_logger, "LOGGERS", {"trackio": lambda info: RecordingLogger(info, calls)})
    monkeypatch.setattr(async_logger, "missing_packages", lambda name: [])
    train_causal_lm(causal_lm_config(tmp_path, loggers=("none",)))
    assert calls == []
    train_causal_lm(causal_lm_config(tmp_path, steps=6, train={"evaluate_every": 4}, loggers=("trackio",)))
    assert calls[0][:2] == ("open", 4)
    assert steps(calls, "train") == [5, 6]
    assert calls[-1][2]["final/validation.perplexity"] > 1


def test_tensorboard_is_the_default_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_logger, "missing_packages", lambda name: [])
    assert select_loggers([]) == ("tensorboard",)
    assert select_loggers(["none"]) == ()
    assert select_loggers(["wandb", "mlflow", "wandb"]) == ("wandb", "mlflow")
    with pytest.raises(ConfigError, match="none cannot be combined with others; got none, mlflow"):
        select_loggers(["none", "mlflow"])


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_a_logger_that_is_not_installed_is_an_error_before_the_run_starts(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(async_logger, "find_spec", lambda package: None)
    assert select_loggers([]) == ()
    with pytest.raises(ConfigError, match=rf"not installed: {name}.* pip install 'softlook\[{name}\]'"):
        train_causal_lm(causal_lm_config(tmp_path, loggers=(name,)))
    assert not (tmp_path / "run").exists()


def test_mlflow_skinny_needs_no_database_with_a_tracking_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        async_logger, "find_spec", lambda package: None if package in ("sqlalchemy", "alembic") else object()
    )
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert async_logger.missing_packages("mlflow") == ["sqlalchemy", "alembic"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    assert async_logger.missing_packages("mlflow") == []

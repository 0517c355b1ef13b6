"""Training runs: files, resuming, changed settings, limits, baselines."""

import csv
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import DataError, TrainingError
from softlook.recipes import (
    TranslationConfig,
    train_causal_lm,
    train_classification,
    train_masked_lm,
    train_translation,
)
from softlook.recipes.config.resolve import explicit_overrides
from softlook.recipes.config.schema import TranslationModelConfig
from softlook.recipes.text.classification_scores import ClassificationEvaluator
from softlook.recipes.text.prepare import MIN_EVAL_FRACTION, dry_run, select_eval_fraction
from softlook.recipes.text.run import compare
from softlook.recipes.text.task import TrainingPlan, TrainResult
from softlook.recipes.text.translation import TranslationTask
from softlook.train.config import OptimizerConfig, TrainingConfig
from softlook.train.events import Event, Sampled, Started, StepLogged
from tests.recipes.small import (
    causal_lm_config,
    classification_config,
    digits,
    events_of,
    masked_lm_config,
    reviews,
    training_config,
    translation_config,
)

BASELINES: dict[str, tuple[Callable[..., TrainResult], Callable[..., Any], list[str]]] = {
    "classify": (
        train_classification,
        classification_config,
        ["most common class", "TF-IDF + logistic regression"],
    ),
    "lm": (train_causal_lm, causal_lm_config, ["8-gram (modified Kneser-Ney)"]),
    "mlm": (train_masked_lm, masked_lm_config, ["unigram", "left and right neighbor"]),
    "translate": (
        train_translation,
        translation_config,
        ["copy of the source", "most frequent target", "translation memory (TF-IDF)"],
    ),
}
"""The function, the config and the baselines of tasks."""


def run_until(config: TranslationConfig, step: int) -> TrainResult:
    """A run interrupted by Ctrl-C."""

    def interrupt(event: Event) -> None:
        if isinstance(event, StepLogged) and event.step == step:
            signal.raise_signal(signal.SIGINT)

    return train_translation(config, [interrupt])


def weights(trained: TrainResult) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}


def test_the_run_directory_is_complete(tmp_path: Path) -> None:
    events: list[Event] = []
    trained = train_translation(translation_config(tmp_path, steps=4), [events.append])
    names = {path.name for path in trained.run_dir.iterdir()}
    assert names >= {
        "config.json", "settings.json", "metadata.json", "events.jsonl", "metrics.csv", "samples.jsonl", "scores.json",
        "loss.svg", "report.html", "checkpoints", "best.json", "tokenizer.json",
    }  # fmt: skip
    with (trained.run_dir / "metrics.csv").open(encoding="utf-8") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]
    settings = json.loads((trained.run_dir / "settings.json").read_text(encoding="utf-8"))
    assert settings["task"] == "translate"
    assert settings["origins"]["model.dim"] == "argument"
    assert settings["origins"]["batch.max_tokens"] == "auto"
    assert events_of(events, Sampled)[0].samples[0].keys() == {"source", "prediction", "reference"}


def test_an_interrupted_run_resumes_exactly(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    uninterrupted = train_translation(translation_config(tmp_path / "a", steps=6))
    config = translation_config(tmp_path / "b", steps=6)
    interrupted = run_until(config, 3)
    assert not interrupted.finished.complete
    assert not (interrupted.run_dir / "scores.json").exists()
    events: list[Event] = []
    resumed = train_translation(config, [events.append])
    assert events_of(events, Started)[0].step == 3
    for name, tensor in weights(uninterrupted).items():
        assert torch.equal(tensor, weights(resumed)[name]), name


def test_resuming_with_a_changed_setting_is_an_error(tmp_path: Path) -> None:
    train_translation(translation_config(tmp_path))
    expected = r"was started with different settings:\n  optim\.lr: was 0\.005, now 0\.1\n"
    with pytest.raises(TrainingError, match=expected):
        train_translation(translation_config(tmp_path, optim=OptimizerConfig(lr=0.1)))


def test_resuming_without_an_explicit_setting_is_an_error(tmp_path: Path) -> None:
    train_translation(translation_config(tmp_path, optim=OptimizerConfig(lr=0.005, beta1=0.5)))
    with pytest.raises(TrainingError, match=r"optim\.beta1: was 0\.5, now 0\.9"):
        train_translation(translation_config(tmp_path))


def test_resuming_with_changed_data_is_an_error(tmp_path: Path) -> None:
    config = translation_config(tmp_path)
    train_translation(config)
    digits(tmp_path / "digits.tsv", 401)
    with pytest.raises(TrainingError, match="the data have changed"):
        train_translation(config)


def test_a_run_can_be_extended(tmp_path: Path) -> None:
    train_translation(translation_config(tmp_path, steps=3, train={"evaluate_every": 3}))
    longer = train_translation(translation_config(tmp_path, steps=6, train={"evaluate_every": 3}))
    assert longer.progress.step == 6


def test_automatic_values_are_kept_when_a_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A faster measurement would select another size, and the run could not resume."""
    config = translation_config(tmp_path, steps=6).model_copy(update={"model": TranslationModelConfig()})
    config = TranslationConfig.model_validate({**config.model_dump(exclude_unset=True)})
    first = run_until(config, 2)
    monkeypatch.setattr("softlook.recipes.config.autosize._measure_flops", lambda device, dtype: 1e15)
    resumed = train_translation(config)
    assert resumed.resolved.config.model == first.resolved.config.model
    assert resumed.progress.step == 6


def test_fresh_starts_a_new_run_next_to_the_old_one(tmp_path: Path) -> None:
    first = train_translation(translation_config(tmp_path))
    second = train_translation(translation_config(tmp_path, fresh=True))
    third = train_translation(translation_config(tmp_path, fresh=True))
    assert [run.run_dir.name for run in (first, second, third)] == ["run", "run-2", "run-3"]


def test_the_default_run_directory_is_named_after_task_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = causal_lm_config(tmp_path, steps=2).model_copy(update={"run_dir": None})
    assert train_causal_lm(config).run_dir == Path("runs/lm-words")


def test_a_dry_run_resolves_everything_and_starts_nothing(tmp_path: Path) -> None:
    resolved = dry_run(TranslationTask(), explicit_overrides(translation_config(tmp_path))).resolved
    assert resolved.config.batch.max_tokens
    assert not (tmp_path / "run").exists()


def test_max_minutes_limits_a_run(tmp_path: Path) -> None:
    config = translation_config(tmp_path, steps=1_000_000, train={"max_minutes": 0.02, "evaluate_every": 1_000_000})
    result = train_translation(config)
    assert result.finished.reason == "time limit reached"
    assert result.progress.seconds < 10


@pytest.mark.parametrize("data", [(), (Path("no/such/file.tsv"),)], ids=str)
def test_missing_data_is_an_error_before_the_run_directory_is_created(data: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"got no data|there is no such file"):
        train_translation(TranslationConfig(data=data, run_dir=tmp_path / "run", training=training_config(1)))
    assert not (tmp_path / "run").exists()


def test_a_given_tokenizer_is_used(tmp_path: Path) -> None:
    first = train_translation(translation_config(tmp_path))
    second = train_translation(
        translation_config(tmp_path, run_dir=tmp_path / "other", tokenizer={"file": first.run_dir / "tokenizer.json"})
    )
    assert second.tokenizer.vocab_size == first.tokenizer.vocab_size


def test_a_run_can_be_initialized_from_another(tmp_path: Path) -> None:
    first = train_translation(translation_config(tmp_path, steps=30))
    second = train_translation(
        translation_config(tmp_path, steps=1, run_dir=tmp_path / "other", init_from=first.run_dir)
    )
    assert second.scores["loss"] == pytest.approx(first.scores["loss"], abs=0.3)
    assert (
        second.scores["loss"]
        < train_translation(translation_config(tmp_path, steps=1, run_dir=tmp_path / "new")).scores["loss"] - 0.3
    )


def minutes_config(folder: Path, minutes: float) -> Any:
    """A text classifier with a time limit and no other."""
    return classification_config(folder).model_copy(
        update={"training": TrainingConfig(max_minutes=minutes, device="cpu", log_every=1)}
    )


def test_a_time_limit_covers_the_whole_run_and_a_larger_one_continues_it(tmp_path: Path) -> None:
    began = time.monotonic()
    first = train_classification(minutes_config(tmp_path, 0.15))
    assert time.monotonic() - began < 9 + 5  # on a busy machine
    assert first.finished.reason == "time limit reached"
    assert first.progress.step > 10
    events: list[Event] = []
    longer = train_classification(minutes_config(tmp_path, 0.25), [events.append])
    rates = [event.lr for event in events_of(events, StepLogged)]
    assert longer.progress.phase_step == first.progress.step < longer.progress.step
    assert rates[-1] < 0.5 * max(rates) > 0.9 * rates[0]  # it warms up and decays once more
    assert longer.scores["loss"] <= first.scores["loss"] + 1e-6


def test_epochs_are_passes_over_the_training_data(tmp_path: Path) -> None:
    training = TrainingConfig(device="cpu", evaluate_every=1000)
    config = classification_config(tmp_path, epochs=2.0).model_copy(update={"training": training})
    reviews(tmp_path / "reviews.csv", 2000)
    first = train_classification(config)
    cursor, step = first.progress.cursor, first.progress.step
    assert first.finished.reason == "max_steps reached"
    assert cursor.epoch == 1
    assert 0.85 < cursor.offset / (step - cursor.offset) < 1  # not quite two: batches have some padding
    longer = train_classification(config.model_copy(update={"epochs": 3.0}))
    assert longer.progress.step == pytest.approx(1.5 * step, abs=1)


def test_the_last_evaluation_uses_all_validation_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    predict = ClassificationEvaluator.predict

    def record(self: ClassificationEvaluator, model: nn.Module, count: int) -> Tensor:
        counts.append(count)
        return predict(self, model, count)

    monkeypatch.setattr(ClassificationEvaluator, "predict", record)
    config = classification_config(tmp_path, eval_fraction=0.25, train={"evaluate_every": 2})
    scores = train_classification(config).scores
    held_out = 40  # a fifth of 200 reviews
    assert counts == [held_out // 4, held_out // 4, held_out]
    assert round(held_out * scores["accuracy"], 6) % 1 == 0


@pytest.mark.parametrize("task", BASELINES)
def test_the_model_is_compared_with_baselines(task: str, tmp_path: Path) -> None:
    train, make_config, names = BASELINES[task]
    compared = train(make_config(tmp_path)).scores["compared"]
    assert [row["model"] for row in compared] == ["softlook", *names]
    assert all(len(row) > 1 and row.keys() == compared[0].keys() for row in compared)


def test_no_baseline_leaves_the_comparison_out(tmp_path: Path) -> None:
    scores = train_classification(classification_config(tmp_path, no_baseline=True)).scores
    assert "compared" not in scores


@pytest.mark.parametrize(
    ("model", "baseline", "expected"),
    [
        ({"loss": 2.0}, {"loss": 1.0}, True),
        ({"loss": 1.0}, {"loss": 2.0}, False),
        ({"bleu": 10.0}, {"bleu": 20.0}, True),
        ({"bleu": 20.0}, {"bleu": 10.0}, False),
        ({"loss": 0.5, "validation": {"loss": 2.0}}, {"loss": 1.0}, True),
    ],
    ids=str,
)
def test_a_model_that_is_worse_than_a_baseline_is_a_warning(
    model: dict[str, Any], baseline: dict[str, float], expected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rows = compare(model, [{"model": "simple", **baseline}])["compared"]
    assert [row["model"] for row in rows] == ["softlook", "simple"]
    assert ("no better than a baseline: simple" in caplog.text) == expected


class Clock:
    """A clock that only an evaluation moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "minutes", "expected"),
    [(0.1, 10.0, 1.0), (42.0, 10.0, 0.1), (1e6, 10.0, MIN_EVAL_FRACTION), (1e6, None, 0.3)],
    ids=str,
)
def test_an_evaluation_takes_a_small_share_of_the_time_limit(
    seconds: float, minutes: float | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`seconds` are those of an evaluation on all validation data; without a time limit the task decides."""
    clock = Clock()
    monkeypatch.setattr("softlook.recipes.text.prepare.time", clock)

    def evaluate(model: nn.Module, share: float = 1.0) -> dict[str, float]:
        clock.now += share * seconds
        return {"loss": 0.0}

    fields: Any = {"batches": [], "objective": None, "sample": lambda model: [], "epoch_tokens": 1, "batch_tokens": 1}
    plan = TrainingPlan(model=nn.Linear(1, 1), evaluate=evaluate, eval_share=0.3, **fields)
    assert select_eval_fraction(plan, minutes, torch.device("cpu")) == pytest.approx(expected, rel=0.05)

"""`fit` trains any model on any source of batches, and leaves the right weights."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, TrainingError
from softlook.train import Loss, OptimizerConfig, TrainingConfig, fit
from softlook.train.events import Evaluated, Finished, StepLogged, Warned
from softlook.weights import load
from tests.train.tiny import Line, assert_same, distance, events_of, make_evaluator, model, run_training, weights

NUMBERS = [torch.tensor([1.0, 2.0]), torch.tensor([6.0])]


def train_line(source: Any, folder: Path | None = None, events: list[Any] | None = None, **settings: Any) -> Tensor:
    line, _ = run_training(
        folder, events, model=Line(), source=source, objective=distance, **{"max_steps": 4, **settings}
    )
    return weights(line)["value"]


def test_fit_learns_the_mean_of_its_targets() -> None:
    value = train_line(
        NUMBERS,
        max_steps=400,
        gradient_accumulation_steps=2,
        optim=OptimizerConfig(lr=0.1, warmup=1, schedule="cosine", weight_decay=0),
    )
    assert value.item() == pytest.approx(3.0, abs=0.02)


def test_all_batch_sources_give_the_same_result() -> None:
    class Reiterable:
        """Can be iterated repeatedly, and nothing else."""

        def __iter__(self) -> Iterator[Tensor]:
            return iter(NUMBERS)

    sources = [NUMBERS, tuple(NUMBERS), Reiterable(), (batch for batch in NUMBERS * 2), iter(NUMBERS * 2)]
    assert len({train_line(source).item() for source in sources}) == 1


def test_a_run_ends_with_its_iterator_after_an_evaluation() -> None:
    events: list[Any] = []
    _, progress = run_training(
        None,
        events,
        model=Line(),
        source=iter(NUMBERS),
        objective=distance,
        max_steps=9,
        evaluate=lambda m: {"loss": 1.0},
    )
    assert progress.step == 2
    assert [event.step for event in events_of(events, Evaluated)] == [2]
    assert events[-1].reason == "no more batches"


def test_an_incomplete_accumulation_group_is_used() -> None:
    _, progress = run_training(
        model=Line(), source=iter(NUMBERS * 2), objective=distance, max_steps=9, gradient_accumulation_steps=3
    )
    assert progress.step == 2


def test_resuming_batches_that_cannot_seek_warns(tmp_path: Path) -> None:
    source = [torch.tensor([float(i)]) for i in range(5)]
    events: list[Any] = []
    expected = train_line(source, max_steps=8)
    train_line(source, tmp_path / "list", events, max_steps=8, stop_at=3)
    assert train_line(source, tmp_path / "list", events, max_steps=8) == expected
    assert not events_of(events, Warned)
    for name, make in (("iterator", lambda: iter(source * 2)), ("skipped", lambda: dict.fromkeys(source).keys())):
        train_line(make(), tmp_path / name, events, max_steps=8, stop_at=3)
        assert not events_of(events, Warned)
        value = train_line(make(), tmp_path / name, events, max_steps=8)
        assert name in events_of(events, Warned)[0].message
        assert (value == expected) == (name == "skipped")
        events.clear()


@pytest.mark.parametrize("source", [[], iter([]), set()], ids=["a list", "an iterator", "a set"])
def test_no_batches_raise(source: Any) -> None:
    if isinstance(source, Iterator):
        assert run_training(model=Line(), source=source, objective=distance, max_steps=3)[1].step == 0
        return
    with pytest.raises(TrainingError, match=r"there is nothing to train on: got no batches"):
        train_line(source)


def test_a_source_that_is_not_iterable_raises() -> None:
    with pytest.raises(TrainingError, match=r"expected batches, as a list or any iterable; got int"):
        train_line(3)


def test_batches_may_be_tuples_dicts_and_named_tuples() -> None:
    class Batch(NamedTuple):
        expected: Tensor
        name: str

    for batch, take in (
        ((NUMBERS[0], "x"), lambda batch: batch[0]),
        ({"expected": NUMBERS[0]}, lambda batch: batch["expected"]),
        (Batch(NUMBERS[0], "x"), lambda batch: batch.expected),
    ):
        line, _ = run_training(
            model=Line(), source=[batch], objective=lambda m, b, take=take: distance(m, take(b)), max_steps=2
        )
        assert weights(line)["value"] == train_line([NUMBERS[0]], max_steps=2)


def test_a_frozen_model_raises() -> None:
    line = Line()
    line.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"this model has nothing to train"):
        fit(line, NUMBERS, distance)


def test_frozen_weights_do_not_change(tmp_path: Path) -> None:
    frozen = model()
    frozen.token_embedding.requires_grad_(False)
    before = weights(frozen)
    run_training(tmp_path, model=frozen, max_steps=3, ema_decay=0.9)
    changed = {name for name, tensor in weights(frozen).items() if not torch.equal(tensor, before[name])}
    assert "token_embedding.weight" not in changed
    assert "final_norm.weight" in changed
    assert_same(frozen, load(tmp_path / "checkpoints" / "step-000000003"))


def test_max_minutes_stops_the_run() -> None:
    events: list[Any] = []

    def slow(line: nn.Module, batch: Tensor) -> Loss:
        time.sleep(0.05)
        return distance(line, batch)

    settings: dict[str, Any] = {"evaluate": lambda model: {"loss": 1.0}, "max_minutes": 0.2 / 60}
    _, progress = run_training(None, events, model=Line(), source=NUMBERS, objective=slow, max_steps=1000, **settings)
    assert 2 <= progress.step <= 6
    assert events[-1].reason == "time limit reached"
    assert events_of(events, Evaluated)[-1].step == progress.step, "the last weights are evaluated too"


def test_early_stopping_leaves_the_best_weights() -> None:
    losses = iter([5.0, 4.0, 4.5, float("nan"), 4.0, 3.0])
    events: list[Any] = []
    values: list[Tensor] = []

    def evaluate(line: nn.Module) -> dict[str, float]:
        values.append(weights(line)["value"])
        return {"loss": next(losses), "other": 0.0}

    value = train_line(NUMBERS, None, events, max_steps=99, evaluate=evaluate, evaluate_every=2, patience=3)
    assert events[-1].reason == "early stopping: no improvement in 3 evaluations"
    assert [event.is_best for event in events_of(events, Evaluated)] == [True, True, False, False, False]
    assert value == values[1]


def test_the_model_is_left_with_its_ema_weights() -> None:
    plain, averaged = train_line(NUMBERS, max_steps=9), train_line(NUMBERS, max_steps=9, ema_decay=0.8)
    assert 0 < averaged < plain


def test_the_logged_loss_is_the_mean_over_targets() -> None:
    events: list[Any] = []
    train_line(NUMBERS, None, events, max_steps=2, log_every=2, optim=OptimizerConfig(lr=1e-12))
    (logged,) = events_of(events, StepLogged)
    assert logged.loss == pytest.approx((1 + 4 + 36) / 3)


def test_an_unknown_setting_raises() -> None:
    with pytest.raises(ValueError, match=r"stepps"):
        TrainingConfig(stepps=3)  # pyright: ignore[reportCallIssue]


def test_a_finished_run_with_fewer_steps_ends_at_once(tmp_path: Path) -> None:
    def never_called(model: nn.Module, batch: Any) -> Loss:
        pytest.fail("no step should be trained")

    run_training(tmp_path, max_steps=3)
    events: list[Any] = []
    run_training(tmp_path, events, max_steps=2, objective=never_called, evaluate=make_evaluator())
    assert isinstance(events[-1], Finished)

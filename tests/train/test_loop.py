"""fit: any model, anything that gives batches, and a good end."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, TrainingError
from softlook.train import Loss, Optim, Training, fit
from softlook.train.events import Evaluated, Finished, Trained, Warned
from softlook.weights import load
from tests.train.tiny import Line, assert_same, distance, look, model, said, trained, weights

NUMBERS = [torch.tensor([1.0, 2.0]), torch.tensor([6.0])]


def learn(source: Any, folder: Path | None = None, heard: list[Any] | None = None, **settings: Any) -> Tensor:
    line, _ = trained(folder, heard, model=Line(), source=source, objective=distance, **{"steps": 4, **settings})
    return weights(line)["value"]


def test_a_line_learns_the_mean_of_all_its_targets() -> None:
    value = learn(NUMBERS, steps=400, accumulate=2, optim=Optim(lr=0.1, warmup=1, schedule="cosine", weight_decay=0))
    assert value.item() == pytest.approx(3.0, abs=0.02)


def test_a_list_a_tuple_a_loader_and_a_generator_give_the_same() -> None:
    class Again:
        """Can be gone through again and again, and nothing else."""

        def __iter__(self) -> Iterator[Tensor]:
            return iter(NUMBERS)

    sources = [NUMBERS, tuple(NUMBERS), Again(), (batch for batch in NUMBERS * 2), iter(NUMBERS * 2)]
    assert len({learn(source).item() for source in sources}) == 1


def test_where_the_batches_end_the_run_ends_with_a_last_look() -> None:
    heard: list[Any] = []
    _, progress = trained(
        None, heard, model=Line(), source=iter(NUMBERS), objective=distance, steps=9, evaluate=lambda m: {"loss": 1.0}
    )
    assert progress.step == 2
    assert [event.step for event in said(heard, Evaluated)] == [2]
    assert heard[-1].reason == "the batches are used up"


def test_a_group_that_is_not_full_at_the_end_is_used_all_the_same() -> None:
    _, progress = trained(model=Line(), source=iter(NUMBERS * 2), objective=distance, steps=9, accumulate=3)
    assert progress.step == 2


def test_a_list_is_gone_on_with_exactly_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    source = [torch.tensor([float(i)]) for i in range(5)]
    heard: list[Any] = []
    whole = learn(source, steps=8)
    learn(source, tmp_path / "list", heard, steps=8, stop_at=3)
    assert learn(source, tmp_path / "list", heard, steps=8) == whole
    assert not said(heard, Warned)
    for name, make in (("iterator", lambda: iter(source * 2)), ("passed over", lambda: dict.fromkeys(source).keys())):
        learn(make(), tmp_path / name, heard, steps=8, stop_at=3)
        assert not said(heard, Warned)
        value = learn(make(), tmp_path / name, heard, steps=8)
        assert name in said(heard, Warned)[0].message
        assert (value == whole) == (name == "passed over")
        heard.clear()


@pytest.mark.parametrize("source", [[], iter([]), set()], ids=["a list", "an iterator", "a set"])
def test_nothing_to_learn_from_is_told(source: Any) -> None:
    if isinstance(source, Iterator):
        assert trained(model=Line(), source=source, objective=distance, steps=3)[1].step == 0
        return
    with pytest.raises(TrainingError, match=r"there is nothing to learn from: no batches came"):
        learn(source)


def test_what_gives_no_batches_is_told() -> None:
    with pytest.raises(
        TrainingError, match=r"fit wants batches: a list of them, or anything that gives them; int came"
    ):
        learn(3)


def test_batches_may_be_tuples_dicts_and_named_tuples() -> None:
    class Two(NamedTuple):
        wanted: Tensor
        name: str

    for batch, take in (
        ((NUMBERS[0], "x"), lambda batch: batch[0]),
        ({"wanted": NUMBERS[0]}, lambda batch: batch["wanted"]),
        (Two(NUMBERS[0], "x"), lambda batch: batch.wanted),
    ):
        line, _ = trained(model=Line(), source=[batch], objective=lambda m, b, take=take: distance(m, take(b)), steps=2)
        assert weights(line)["value"] == learn([NUMBERS[0]], steps=2)


def test_a_model_with_nothing_to_learn_is_told() -> None:
    line = Line()
    line.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"this model has nothing to learn"):
        fit(line, NUMBERS, distance)


def test_frozen_weights_stay_as_they_are(tmp_path: Path) -> None:
    frozen = model()
    frozen.tokens.requires_grad_(False)
    before = weights(frozen)
    trained(tmp_path, model=frozen, steps=3, average=0.9)
    changed = {name for name, tensor in weights(frozen).items() if not torch.equal(tensor, before[name])}
    assert "tokens.table.weight" not in changed
    assert "norm.weight" in changed
    assert_same(frozen, load(tmp_path / "checkpoints" / "step-000000003"))


def test_the_time_is_up_when_it_is_up() -> None:
    heard: list[Any] = []

    def slow(line: nn.Module, batch: Tensor) -> Loss:
        time.sleep(0.05)
        return distance(line, batch)

    settings: dict[str, Any] = {"evaluate": lambda model: {"loss": 1.0}, "minutes": 0.2 / 60}
    _, progress = trained(None, heard, model=Line(), source=NUMBERS, objective=slow, steps=1000, **settings)
    assert 2 <= progress.step <= 6
    assert heard[-1].reason == "the time is up"
    assert said(heard, Evaluated)[-1].step == progress.step, "the last weights are looked at too"


def test_no_better_for_long_is_the_end_and_the_best_weights_are_left() -> None:
    losses = iter([5.0, 4.0, 4.5, float("nan"), 4.0, 3.0])
    heard: list[Any] = []
    kept: list[Tensor] = []

    def evaluate(line: nn.Module) -> dict[str, float]:
        kept.append(weights(line)["value"])
        return {"loss": next(losses), "other": 0.0}

    value = learn(NUMBERS, None, heard, steps=99, evaluate=evaluate, evaluate_every=2, patience=3)
    assert heard[-1].reason == "no better for 3 looks"
    assert [event.is_best for event in said(heard, Evaluated)] == [True, True, False, False, False]
    assert value == kept[1]


def test_the_average_follows_the_weights_and_is_what_is_left() -> None:
    plain, averaged = learn(NUMBERS, steps=9), learn(NUMBERS, steps=9, average=0.8)
    assert 0 < averaged < plain


def test_the_loss_that_is_told_is_the_mean_over_targets() -> None:
    heard: list[Any] = []
    learn(NUMBERS, None, heard, steps=2, report_every=2, optim=Optim(lr=1e-12))
    (told,) = said(heard, Trained)
    assert told.loss == pytest.approx((1 + 4 + 36) / 3)


def test_one_setting_too_many_is_told() -> None:
    with pytest.raises(ValueError, match=r"stepps"):
        Training(stepps=3)  # pyright: ignore[reportCallIssue]


def test_a_run_of_no_time_saves_and_ends(tmp_path: Path) -> None:
    def at_once(model: nn.Module, batch: Any) -> Loss:
        pytest.fail("nothing should be learned")

    trained(tmp_path, steps=3)
    heard: list[Any] = []
    trained(tmp_path, heard, steps=2, objective=at_once, evaluate=look())
    assert isinstance(heard[-1], Finished)

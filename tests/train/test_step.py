"""One update: pieces equal the whole, what is no number is left out, and a full memory halves the pieces."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import TrainingError
from softlook.train import Loss
from softlook.train.events import Finished, Halved, Skipped
from softlook.train.examples import Rows
from softlook.train.objectives import language
from softlook.train.optimizer import make_optimizer
from softlook.train.snapshots import Snapshots
from softlook.train.step import Objective, Stepped, Stepper
from softlook.weights.schema import read_json
from tests.train.tiny import (
    CALM,
    FAST,
    Line,
    assert_same,
    distance,
    look,
    model,
    rows,
    said,
    sentences,
    trained,
    weights,
)


def stepper(objective: Objective | None = None, clip: float = 1e9, **more: Any) -> Stepper:
    learner = model(CALM).double()
    return Stepper(learner, objective or language(), make_optimizer(learner, FAST), clip=clip, **more)


def gradients(of: Stepper) -> list[Tensor]:
    return [p.grad for p in of.parameters if p.grad is not None]


def uneven() -> list[Rows]:
    """Batches with very different numbers of targets."""
    long = sorted(sentences(), key=len)
    return [rows(long[:1]), rows(long[1:3]), rows(long[-12:])]


def test_batches_added_up_give_what_one_large_batch_gives() -> None:
    apart, together = stepper(), stepper()
    one = apart.step(uneven(), lr=0.1)
    everything = sorted(sentences(), key=len)
    other = together.step([rows([*everything[:3], *everything[-12:]])], lr=0.1)
    assert one.targets == other.targets == sum(len(s) - 1 for s in [*everything[:3], *everything[-12:]])
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(one.gradient, other.gradient, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(apart), gradients(together), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(weights(apart.model), weights(together.model), rtol=1e-6, atol=1e-6)


def test_a_mean_of_means_would_not_have_passed() -> None:
    """The counts differ so much that weighing each batch alike would show."""
    losses = [stepper().step([batch], lr=0.0).loss for batch in uneven()]
    assert abs(sum(losses) / 3 - stepper().step(uneven(), lr=0.0).loss) > 1e-3


def test_the_gradient_is_that_of_the_mean_over_targets() -> None:
    ours = stepper()
    batch = uneven()[2]
    loss = language()(ours.model, batch)
    wanted = torch.autograd.grad(loss.total / loss.count, [p for p in ours.parameters if p.numel()])
    ours.step([batch], lr=0.0)
    torch.testing.assert_close(gradients(ours), list(wanted), rtol=1e-9, atol=1e-12)


def test_what_is_clipped_is_the_gradient_of_all_batches_together() -> None:
    free, clipped = stepper(), stepper(clip=0.01)
    one, other = free.step(uneven(), lr=0.0), clipped.step(uneven(), lr=0.0)
    assert one.gradient == other.gradient > 0.01
    for long, short in zip(gradients(free), gradients(clipped), strict=True):
        torch.testing.assert_close(short, long * 0.01 / one.gradient, rtol=1e-4, atol=1e-12)
    length = torch.cat([gradient.flatten() for gradient in gradients(clipped)]).norm().item()
    assert length == pytest.approx(0.01, rel=1e-3)


def test_a_gradient_that_is_short_enough_stays_as_it_is() -> None:
    free, clipped = stepper(), stepper(clip=100.0)
    free.step(uneven(), lr=0.0)
    clipped.step(uneven(), lr=0.0)
    torch.testing.assert_close(gradients(free), gradients(clipped), rtol=1e-12, atol=0)


def test_a_batch_with_nothing_to_say_changes_nothing() -> None:
    ours, other = stepper(), stepper()
    silent = Rows(*(tensor[:2] for tensor in vars(uneven()[2]).values()))
    silent.wanted.fill_(-100)
    assert ours.step([silent], lr=0.0) == Stepped(loss=0.0, targets=0, gradient=0.0, taken=True)
    one, two = ours.step([silent, *uneven()], lr=0.1), other.step(uneven(), lr=0.1)
    assert (one.targets, one.loss) == (two.targets, pytest.approx(two.loss, rel=1e-12))


# --- what is no number -----------------------------------------------------------------------------------------------


def spoiling(steps: set[int], value: float = torch.nan, *, only_gradient: bool = False) -> Objective:
    """Learns a number; at these steps what comes out is none."""
    made = 0

    def objective(line: nn.Module, batch: Tensor) -> Loss:
        nonlocal made
        made += 1
        loss = distance(line, batch)
        if made not in steps:
            return loss
        if only_gradient:
            loss.total.register_hook(lambda gradient: gradient * value)
            return loss
        return Loss(loss.total * value, loss.count)

    return objective


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("only_gradient", [False, True])
def test_a_step_that_gives_no_number_is_left_out_and_told(value: float, only_gradient: bool) -> None:
    heard: list[Any] = []
    objective = spoiling({2, 4}, value, only_gradient=only_gradient)
    line, progress = trained(None, heard, model=Line(), source=[torch.ones(3)], objective=objective, steps=6)
    assert torch.isfinite(weights(line)["value"]).all()
    assert [event.step for event in said(heard, Skipped)] == [2, 4]
    assert [event.place for event in said(heard, Skipped)] == [(1, 0), (3, 0)]
    assert progress.step == 6
    assert progress.skipped == 0


def test_a_step_that_is_left_out_leaves_the_optimizer_alone(tmp_path: Path) -> None:
    """Two steps with one that is left out between them do what two steps do, at the same rate."""
    ours, other = stepper(), stepper()
    batch = uneven()[2]
    ours.step([batch], lr=0.1)
    ours.objective = lambda model, batch: Loss(language()(model, batch).total * torch.nan, 3)
    assert not ours.step([batch], lr=0.1).taken
    ours.objective = language()
    for either, times in ((ours, 1), (other, 2)):
        for _ in range(times):
            either.step([batch], lr=0.1)
    assert_same(ours.model, other.model)


def test_many_steps_without_numbers_end_the_run_and_name_step_batch_and_checkpoint(tmp_path: Path) -> None:
    heard: list[Any] = []
    source = [torch.ones(2), torch.ones(3)]
    settings: dict[str, Any] = {"source": source, "steps": 20, "save_every": 1, "bad_steps": 3}
    message = (
        r"^4 steps in a row gave no numbers, the last of them step 9 with batch 0 of epoch 4: loss nan, gradient nan. "
        r"The weights were left as they were. The last good checkpoint is .*step-000000005. Try a smaller optim.lr"
    )
    with pytest.raises(TrainingError, match=message):
        trained(tmp_path, heard, model=Line(), objective=spoiling(set(range(6, 99))), **settings)
    assert not said(heard, Finished)
    assert Snapshots(tmp_path).all()[0].name == "step-000000005"


def test_three_bad_steps_in_a_row_are_borne_where_three_may_be() -> None:
    _, progress = trained(
        model=Line(), source=[torch.ones(2)], objective=spoiling({2, 3, 4, 6, 7, 8}), steps=10, bad_steps=3
    )
    assert progress.step == 10


# --- a full memory ---------------------------------------------------------------------------------------------------


def cramped(room: int, fault: type[Exception] = torch.OutOfMemoryError) -> tuple[Objective, list[int]]:
    """There is room for so many rows; what fits is written down."""
    worked: list[int] = []

    def objective(model: nn.Module, batch: Rows) -> Loss:
        if len(batch.ids) > room:
            raise fault("CUDA out of memory. Tried to allocate 20.00 MiB")
        worked.append(len(batch.ids))
        return language()(model, batch)

    return objective, worked


@pytest.mark.parametrize("fault", [torch.OutOfMemoryError, RuntimeError])
def test_where_memory_is_full_the_pieces_are_halved_and_the_batch_stays(fault: type[Exception]) -> None:
    batch = rows(sorted(sentences(), key=len)[-13:])
    objective, worked = cramped(4, fault)
    ours, other = stepper(objective), stepper()
    one, two = ours.step([batch], lr=0.1), other.step([batch], lr=0.1)
    assert (ours.parts, worked) == (4, [3, 3, 3, 4])
    assert one.targets == two.targets
    torch.testing.assert_close(gradients(ours), gradients(other), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(weights(ours.model), weights(other.model), rtol=1e-6, atol=1e-6)
    worked.clear()
    ours.step([batch], lr=0.1)
    assert worked == [3, 3, 3, 4], "it is remembered"


def test_a_memory_that_fills_up_half_way_spoils_no_gradient() -> None:
    """The first batch fits, the second does not: what the first had added is forgotten before all is done again."""
    few, many = rows(sentences()[:2]), rows(sentences()[2:12])
    ours, other = stepper(cramped(5)[0]), stepper()
    ours.step([few, many], lr=0.1)
    other.step([few, many], lr=0.1)
    torch.testing.assert_close(gradients(ours), gradients(other), rtol=1e-9, atol=1e-12)


def test_halving_is_told_and_remembered_when_the_run_goes_on(tmp_path: Path) -> None:
    heard: list[Any] = []
    objective, worked = cramped(2)
    settings: dict[str, Any] = {"steps": 8, "objective": objective}
    whole, _ = trained(tmp_path / "whole", heard, **settings)
    halved = [(event.step, event.parts) for event in said(heard, Halved)]
    assert [parts for _, parts in halved] == [2, 4]
    worked.clear()
    heard.clear()
    trained(tmp_path / "run", heard, stop_at=4, **settings)
    again, progress = trained(tmp_path / "run", heard, **settings)
    assert [(event.step, event.parts) for event in said(heard, Halved)] == halved
    assert progress.parts == 4
    assert_same(again, whole)


def test_a_single_row_that_does_not_fit_is_told() -> None:
    ours = stepper(cramped(0)[0])
    with pytest.raises(
        TrainingError, match=r"^the memory of cpu is full, and the batch cannot be made smaller: CUDA out"
    ):
        ours.step([rows(sentences()[:3])], lr=0.1)


def test_other_errors_are_not_taken_for_a_full_memory() -> None:
    def broken(model: nn.Module, batch: Rows) -> Loss:
        raise RuntimeError("expected scalar type Long")

    with pytest.raises(RuntimeError, match="expected scalar type Long"):
        stepper(broken).step([rows(sentences()[:3])], lr=0.1)


# --- other numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_the_bits_learn_nearly_the_same_and_keep_whole_weights(precision: str) -> None:
    full, _ = trained(steps=12)
    half, _ = trained(steps=12, precision=precision)
    before, one, other = (look()(either)["loss"] for either in (model().eval(), full, half))
    assert one == pytest.approx(other, rel=0.01)
    assert one != other
    assert one < before - 0.05
    assert {tensor.dtype for tensor in weights(half).values()} == {torch.float32}


def test_half_precision_goes_down_with_its_scale_until_nothing_overflows_and_keeps_it(tmp_path: Path) -> None:
    def steep(line: nn.Module, batch: Tensor) -> Loss:
        """A slope of 10, which half precision holds, but not 65,536 times as steep."""
        return Loss((line.value.half() * 10 * batch.half()).float().sum(), batch.numel())  # pyright: ignore

    heard: list[Any] = []
    settings: dict[str, Any] = {"source": [torch.ones(1)], "objective": steep, "precision": "float16"}
    trained(tmp_path, heard, model=Line(), steps=9, **settings)
    skipped = len(said(heard, Skipped))
    assert 0 < skipped < 9
    assert scale(tmp_path, 9) == 65536.0 / 2**skipped
    heard.clear()
    trained(tmp_path, heard, model=Line(), steps=12, **settings)
    assert not said(heard, Skipped), "the scale was forgotten"
    assert scale(tmp_path, 12) == scale(tmp_path, 9)


def scale(run: Path, step: int) -> float:
    return read_json(Snapshots(run).path(step) / "progress.json")["scaler"]["scale"]

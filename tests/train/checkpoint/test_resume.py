"""Stopped anywhere and started again, a run ends as if it had never stopped: bit for bit."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import TrainingError
from softlook.train import Loss, OptimizerConfig
from softlook.train.batching.collate import PackedBatch
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.events import Evaluated, Finished, Started, StepLogged
from softlook.train.objectives import causal_lm
from softlook.weights.schema import read_json
from softlook.weights.tensor_files import read_safetensors
from tests.train.tiny import (
    Line,
    assert_same,
    assert_same_progress,
    batches,
    distance,
    events_of,
    make_evaluator,
    run_training,
    sentences,
)

STEPS, EPOCH = 16, len(batches().epoch(0))
EDGES = [EPOCH - 1, EPOCH, EPOCH + 1, 2 * EPOCH]
"""Steps at which an epoch ends, or is about to, where each takes one batch."""
FILES = ("model.safetensors", "optimizer.safetensors", "rng_state.safetensors")
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (3, {}),
    "averaged, with looks": (10, {"ema_decay": 0.9, "evaluate_every": 3, "evaluate": make_evaluator()}),
    "accumulated, in bfloat16": (10, {"gradient_accumulation_steps": 3, "precision": "bfloat16", "ema_decay": 0.5}),
    "in float16": (3, {"precision": "float16"}),
    "made ready ahead": (3, {"prefetch": 3, "gradient_accumulation_steps": 2}),
}
"""How often to stop, and the settings."""


def points(count: int) -> list[int]:
    """Places to stop at: about the edges of epochs first, then anywhere."""
    generator = torch.Generator().manual_seed(count)
    anywhere = [n + 1 for n in torch.randperm(STEPS - 1, generator=generator).tolist() if n + 1 not in EDGES]
    return [n for n in (*EDGES, *anywhere) if n < STEPS][:count]


def kept(run: Path) -> dict[str, torch.Tensor]:
    """All that the last checkpoint of a run holds."""
    path = CheckpointManager(run).path(STEPS)
    scaler = read_json(path / "trainer_state.json")["scaler"]
    tensors = {f"{file}/{name}": tensor for file in FILES for name, tensor in read_safetensors(path / file).items()}
    return tensors | {f"scaler/{name}": torch.tensor(value) for name, value in scaler.items()}


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_equals_an_uninterrupted_one(way: str, tmp_path: Path) -> None:
    count, settings = WAYS[way]
    settings = {"max_steps": STEPS, "save_every": 100, **settings}
    whole, uninterrupted = run_training(tmp_path / "whole", **settings)
    assert len(points(count)) == count
    for stop in points(count):
        run = tmp_path / f"stopped at {stop}"
        _, progress = run_training(run, stop_at=stop, **settings)
        assert progress.step == stop
        again, progress = run_training(run, **settings)
        assert_same(again, whole)
        assert_same_progress(progress, uninterrupted)
        assert_same(kept(run), kept(tmp_path / "whole"))


def test_a_run_can_be_resumed_after_every_step(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "max_steps": 10,
        "gradient_accumulation_steps": 2,
        "ema_decay": 0.9,
        "evaluate_every": 3,
        "evaluate": make_evaluator(),
    }
    events: list[Any] = []
    whole, uninterrupted = run_training(tmp_path / "whole", **settings)
    for step in range(1, 10):
        run_training(tmp_path / "pieces", events, stop_at=step, **settings)
    pieced, progress = run_training(tmp_path / "pieces", events, **settings)
    assert_same(pieced, whole)
    assert_same_progress(progress, uninterrupted)
    assert [event.step for event in events_of(events, Evaluated)] == [3, 6, 9, 10]
    assert [event.step for event in events_of(events, Started)] == [0, *range(1, 10)]


def test_resuming_repeats_and_skips_no_example(tmp_path: Path) -> None:
    seen: Counter[tuple[int, ...]] = Counter()

    def objective(model: nn.Module, batch: PackedBatch) -> Loss:
        for ids, expected in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True):
            length = sum(id >= 0 for id in expected)
            seen[(*ids[:length], expected[length - 1])] += 1
        return causal_lm()(model, batch)

    for stop in (1, EPOCH - 1, EPOCH, EPOCH + 2, 2 * EPOCH, None):
        run_training(tmp_path, max_steps=3 * EPOCH, objective=objective, stop_at=stop)
    assert seen == Counter({tuple(sentence): 3 for sentence in sentences()})


def test_losses_and_learning_rates_continue_after_resuming(tmp_path: Path) -> None:
    whole: list[Any] = []
    pieces: list[Any] = []
    run_training(tmp_path / "whole", whole, max_steps=9)
    run_training(tmp_path / "pieces", pieces, max_steps=9, stop_at=4)
    run_training(tmp_path / "pieces", pieces, max_steps=9)
    story = [[(e.step, e.loss, e.lr, e.grad_norm) for e in events_of(events, StepLogged)] for events in (whole, pieces)]
    assert story[0] == story[1]


@pytest.mark.parametrize("stop", [1, 3, 5, 7])
def test_logged_window_losses_do_not_depend_on_resuming(stop: int, tmp_path: Path) -> None:
    whole: list[Any] = []
    pieces: list[Any] = []
    run_training(tmp_path / "whole", whole, max_steps=9, log_every=4)
    run_training(tmp_path / "pieces", pieces, max_steps=9, log_every=4, stop_at=stop)
    run_training(tmp_path / "pieces", pieces, max_steps=9, log_every=4)
    logged = [[(e.step, e.loss, e.lr) for e in events_of(events, StepLogged)] for events in (whole, pieces)]
    assert logged[0] == logged[1] and [step for step, _, _ in logged[0]] == [4, 8, 9]


def test_evaluation_does_not_change_training() -> None:
    looks: list[float] = []

    def chancy(model: nn.Module) -> dict[str, float]:
        looks.append(torch.rand(()).item())
        return {"loss": -float(len(looks))}  # each better than the one before, so that the last weights are kept

    blind, _ = run_training(max_steps=9)
    looking, _ = run_training(max_steps=9, evaluate=chancy, evaluate_every=2)
    assert len(set(looks)) == 5
    assert_same(blind, looking)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    def files() -> list[tuple[Path, int]]:
        return sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "checkpoints").rglob("*"))

    events: list[Any] = []
    first, _ = run_training(tmp_path, max_steps=6, evaluate=make_evaluator(), evaluate_every=3)
    before = files()
    second, _ = run_training(tmp_path, events, max_steps=6, evaluate=make_evaluator(), evaluate_every=3)
    assert_same(first, second)
    assert files() == before
    assert [type(event) for event in events] == [Started, Finished]


@pytest.mark.parametrize("stops", [(), (3,), (2, 5, 7)], ids=str)
def test_patience_is_restored(stops: tuple[int, ...], tmp_path: Path) -> None:
    """Every look is worse than the first: the run ends after three of them, however it is cut into pieces."""
    losses = iter(range(100))
    settings: dict[str, Any] = {"max_steps": 100, "evaluate": lambda model: {"loss": float(next(losses))}}
    for stop in stops:
        run_training(tmp_path, patience=3, evaluate_every=2, stop_at=stop, **settings)
    events: list[Any] = []
    _, progress = run_training(tmp_path, events, patience=3, evaluate_every=2, **settings)
    assert (progress.step, progress.best_step, progress.evals_since_best) == (8, 2, 3)
    assert events[-1].reason == "early stopping: no improvement in 3 evaluations"


def test_fixed_settings_must_match_when_resuming(tmp_path: Path) -> None:
    run_training(tmp_path, max_steps=2)
    with pytest.raises(
        TrainingError, match=r"was saved with different settings:\n  training.seed: was 0, now 1\nUse the"
    ):
        run_training(tmp_path, max_steps=2, seed=1)
    with pytest.raises(TrainingError, match=r"optim.lr: was 0.01, now 0.5"):
        run_training(tmp_path, max_steps=2, optim=OptimizerConfig(lr=0.5, warmup=3))
    _, progress = run_training(tmp_path, max_steps=3, save_every=7, keep_checkpoints=3, max_minutes=5)
    assert progress.step == 3


def test_weights_of_another_model_raise(tmp_path: Path) -> None:
    run_training(tmp_path, max_steps=2)
    with pytest.raises(
        ValueError, match=r"step-000000002/model.safetensors does not match the model: missing 'value'; unexpected"
    ):
        run_training(tmp_path, max_steps=2, model=Line(), objective=distance, source=[torch.ones(2)])

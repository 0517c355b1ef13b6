"""Checkpoints are atomic and verified, the best one is kept, and partial ones are removed."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import TrainingError, WeightsError
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.train_state import Progress, TrainState
from softlook.train.distributed.world import World
from softlook.train.ema import EMA
from softlook.train.events import Saved, Warned
from softlook.train.optimizer import build_optimizer
from softlook.weights import load
from softlook.weights.atomic_folder import DiskError
from softlook.weights.manifest import read_checksummed, with_checksum
from tests.train.tiny import CPU, FAST, Line, assert_same, distance, events_of, make_evaluator, run_training, weights

FLIPS, CUTS = 2_000, 500


def make_state(model: nn.Module | None = None) -> TrainState:
    """The state of a model with one parameter after one step."""
    model = model or Line(1.0)
    optimizer = build_optimizer(model, FAST)
    model.value.grad = torch.ones(1)  # pyright: ignore[reportAttributeAccessIssue]
    optimizer.step()
    return TrainState(model, optimizer, torch.amp.GradScaler("cpu", enabled=False), EMA(model, 0.9), CPU, World())


@pytest.fixture
def manager(tmp_path: Path) -> CheckpointManager:
    """A run with two checkpoints."""
    manager = CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(make_state(), Progress(step=step))
    return manager


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def corruptions(folder: Path, generator: random.Random) -> Iterator[tuple[Path, bytes]]:
    """Files of a folder with corrupted content: single bits flipped, then truncated."""
    files = sorted(folder.iterdir())
    for number in range(FLIPS + CUTS):
        path = files[number % len(files)]
        content = path.read_bytes()
        if number < FLIPS:
            yield path, flipped(content, generator.randrange(8 * len(content)))
        else:
            yield path, content[: generator.randrange(len(content))]


def test_flipped_bits_and_truncated_files_are_detected(manager: CheckpointManager) -> None:
    """Each is reported with the file's name, and the previous checkpoint is used."""
    newest, older = manager.list_checkpoints()
    state, detected = make_state(), 0
    for path, content in corruptions(newest, random.Random(3)):
        original, messages = path.read_bytes(), list[str]()
        path.write_bytes(content)
        progress = manager.restore(state, messages.append)
        assert progress == Progress(step=1), (path, messages)
        assert len(messages) == 1
        assert path.name in messages[0]
        assert messages[0].endswith("Using the previous checkpoint.")
        moved = newest.with_name(f"{newest.name}.damaged")
        moved.rename(newest)
        path.write_bytes(original)
        detected += 1
    assert detected == FLIPS + CUTS
    assert manager.restore(state, pytest.fail) == Progress(step=2)
    assert older.exists()


def test_a_damaged_checkpoint_is_skipped_and_the_run_ends_the_same(tmp_path: Path) -> None:
    expected, _ = run_training(tmp_path / "uninterrupted", max_steps=9)
    run_training(tmp_path / "run", max_steps=9, save_every=2, stop_at=6)
    newest = CheckpointManager(tmp_path / "run").path(6)
    (newest / "optimizer.safetensors").write_bytes(flipped((newest / "optimizer.safetensors").read_bytes(), 4321))
    events: list[Any] = []
    resumed, _ = run_training(tmp_path / "run", events, max_steps=9, save_every=2)
    assert_same(resumed, expected)
    (warned,) = events_of(events, Warned)
    assert "step-000000006/optimizer.safetensors is not what was saved" in warned.message
    assert "Using the previous checkpoint" in warned.message
    assert [event.step for event in events_of(events, Saved)] == [6, 8, 9]
    assert newest.with_name(f"{newest.name}.damaged").is_dir()


def test_no_intact_checkpoint_raises_instead_of_restarting(manager: CheckpointManager) -> None:
    for path in manager.list_checkpoints():
        (path / "model.safetensors").unlink()
    warnings: list[str] = []
    with pytest.raises(
        TrainingError, match=r"no checkpoint in .*checkpoints is intact. Start a new run under another name"
    ):
        manager.restore(make_state(), warnings.append)
    assert len(warnings) == len(manager.list_checkpoints()) == 2


def test_a_disk_error_does_not_skip_a_checkpoint(manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **more: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", broken)
    monkeypatch.setattr(Path, "read_text", broken)
    with pytest.raises(DiskError, match=r"cannot read .*step-000000002: Input/output error"):
        manager.restore(make_state(), pytest.fail)


def test_the_newest_and_the_best_checkpoints_are_kept(tmp_path: Path) -> None:
    losses = iter([3.0, 1.0, 2.0, 4.0, 5.0, 6.0])
    run_training(
        tmp_path,
        max_steps=6,
        save_every=1,
        keep_checkpoints=2,
        evaluate=lambda model: {"loss": next(losses)},
        evaluate_every=1,
    )
    assert [path.name for path in CheckpointManager(tmp_path).list_checkpoints()] == [
        "step-000000006",
        "step-000000005",
        "step-000000002",
    ]
    assert CheckpointManager(tmp_path).best() == CheckpointManager(tmp_path).path(2)
    pointer = json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))
    assert (pointer["checkpoint"], pointer["loss"]) == ("checkpoints/step-000000002", 1.0)


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_the_model_is_left_with_the_best_checkpoint(ema_decay: float, tmp_path: Path) -> None:
    scores = iter([3.0, 1.0, 2.0])
    trained, _ = run_training(
        tmp_path, max_steps=6, ema_decay=ema_decay, evaluate=lambda model: {"loss": next(scores)}, evaluate_every=2
    )
    best = CheckpointManager(tmp_path).best()
    assert best is not None
    assert best.name == "step-000000004"
    assert_same(trained, load(best))
    assert_same(trained, load(tmp_path))
    assert not trained.training


def test_without_a_run_dir_the_best_weights_are_the_same(tmp_path: Path) -> None:
    for ema_decay in (0.0, 0.9):
        for losses in ([3.0, 1.0, 2.0], [3.0, 2.0, 1.0]):
            trained = [
                run_training(
                    folder, max_steps=6, ema_decay=ema_decay, evaluate=evaluate_with(losses), evaluate_every=2
                )[0]
                for folder in (None, tmp_path / f"{ema_decay} {losses}")
            ]
            assert_same(*trained)


def evaluate_with(losses: list[float]) -> Any:
    remaining = iter(losses)
    return lambda model: {"loss": next(remaining)}


def test_evaluation_and_checkpoint_use_the_ema_weights(tmp_path: Path) -> None:
    evaluated: list[dict[str, torch.Tensor]] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        evaluated.append(weights(model))
        return {"loss": 1.0}

    run_training(tmp_path, max_steps=4, ema_decay=0.9, evaluate=evaluate, evaluate_every=4)
    plain, _ = run_training(max_steps=4)
    assert_same(evaluated[0], load(CheckpointManager(tmp_path).path(4)))
    with pytest.raises(AssertionError):
        assert_same(evaluated[0], plain)


def test_partial_checkpoints_are_removed(manager: CheckpointManager) -> None:
    partial = manager.folder / ".step-000000003.0a1b2c3d.partial"
    partial.mkdir()
    (partial / "model.safetensors").write_bytes(b"half")
    (manager.run_dir / ".best.json.partial").write_text("{", encoding="utf-8")
    run_training(manager.run_dir / "other", max_steps=1)
    manager.remove_partial()
    assert not list(manager.run_dir.glob(".*.partial")) + list(manager.folder.glob(".*.partial"))
    assert len(manager.list_checkpoints()) == 2


def test_fit_removes_partial_checkpoints(tmp_path: Path) -> None:
    run_training(tmp_path, max_steps=1)
    (tmp_path / "checkpoints" / ".step-000000002.aaaaaaaa.partial").mkdir()
    run_training(tmp_path, max_steps=2)
    assert not list(tmp_path.rglob("*.partial"))


def test_an_unregistered_model_resumes(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"source": [torch.ones(2), 3 * torch.ones(4)], "objective": distance, "max_steps": 6}
    expected, _ = run_training(model=Line(), **settings)
    run_training(tmp_path, model=Line(), stop_at=3, **settings)
    resumed, _ = run_training(tmp_path, model=Line(), **settings)
    assert_same(resumed, expected)
    with pytest.raises(WeightsError, match=r"holds no softlook.json"):
        load(CheckpointManager(tmp_path).path(6))


def test_nonfinite_weights_are_never_saved(tmp_path: Path) -> None:
    broken = make_state()
    broken.model.value.data.fill_(torch.nan)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    with pytest.raises(WeightsError, match=r"'value' contains NaN or infinity"):
        CheckpointManager(tmp_path).save(broken, Progress(step=1))
    assert not CheckpointManager(tmp_path).list_checkpoints()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small tmpfs file system."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.name == "posix" and os.geteuid() == 0 and shutil.which("mount") is not None
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("free_bytes", range(0, 200_000, 20_000))
def test_a_full_disk_loses_only_the_new_checkpoint(free_bytes: int, small_disk: Path) -> None:
    run = small_disk / "run"
    model, progress = run_training(run, max_steps=2, ema_decay=0.9)
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(bytes(max(free - free_bytes, 0)))
    free = shutil.disk_usage(small_disk).free
    try:
        run_training(run, max_steps=4, ema_decay=0.9)
    except DiskError as error:
        assert "step-000000004" in str(error)
        assert "This checkpoint needs about " in str(error)
        assert f"bytes, and {free:,} are free" in str(error)
        assert "The last good checkpoint is " in str(error)
        assert "step-000000002" in str(error)
    else:
        assert free_bytes > 50_000
    assert not list(run.rglob("*.partial"))
    resumed, progress_after = run_training(run, max_steps=2, ema_decay=0.9)
    assert progress_after.step in (2, 4)
    if progress_after.step == 2:
        assert_same(resumed, model)


def test_a_failing_fsync_raises_with_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_training(tmp_path, max_steps=2)

    def full(*args: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = (
        r"(?s)cannot write .*step-000000003: No space left on device.*needs about [\d,]+ bytes, and [\d,]+ are free"
    )
    with pytest.raises(DiskError, match=message):
        run_training(tmp_path, max_steps=3)
    assert [path.name for path in CheckpointManager(tmp_path).list_checkpoints()] == ["step-000000002"]
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint": "../../elsewhere"}, r"best.json names '../../elsewhere', which is not a checkpoint of a run"),
        ({"checkpoint": "checkpoints/step-000000009"}, r"which is missing. Copy the whole run"),
        ({"checkpoint": "checkpoints/step-000000001"}, r"which has changed since"),
        ({"manifest": "0" * 64}, r"which has changed since"),
    ],
)
def test_a_wrong_best_pointer_raises(change: dict[str, str], message: str, tmp_path: Path) -> None:
    run_training(tmp_path, max_steps=2, save_every=1)
    path = tmp_path / "best.json"
    path.write_text(
        json.dumps(read_checksummed(path) | change), encoding="utf-8"
    )  # without a checksum, as in earlier versions
    with pytest.raises(WeightsError, match=message):
        load(tmp_path)
    path.write_text(json.dumps(with_checksum({"step": 1}) | change), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"best.json is not what was saved"):
        load(tmp_path)


def test_evaluations_are_in_the_trainer_state(tmp_path: Path) -> None:
    run_training(tmp_path, max_steps=4, evaluate=make_evaluator(), evaluate_every=2)
    state = json.loads((CheckpointManager(tmp_path).path(4) / "trainer_state.json").read_text(encoding="utf-8"))
    assert state["progress"]["best_step"] == state["progress"]["last_eval_step"] == 4

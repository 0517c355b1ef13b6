"""Checkpoints of a run: whole or absent, verified, the best one kept, and nothing half-done left lying about."""

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
from softlook.train.average import Average
from softlook.train.distributed import World
from softlook.train.events import Saved, Warned
from softlook.train.learner import Learner
from softlook.train.optimizer import make_optimizer
from softlook.train.progress import Progress
from softlook.train.snapshots import Snapshots
from softlook.weights import load
from softlook.weights.folders import DiskError
from softlook.weights.runs import read_sealed, sealed
from tests.train.tiny import CPU, FAST, Line, assert_same, distance, look, said, trained, weights

FLIPS, CUTS = 2_000, 500
FILES = {"model", "raw", "optimizer", "dice"}


def learner(model: nn.Module | None = None) -> Learner:
    """Somebody who learns one number, and has learned it for a step."""
    model = model or Line(1.0)
    optimizer = make_optimizer(model, FAST)
    model.value.grad = torch.ones(1)  # pyright: ignore[reportAttributeAccessIssue]
    optimizer.step()
    return Learner(model, optimizer, torch.amp.GradScaler("cpu", enabled=False), Average(model, 0.9), CPU, World())


@pytest.fixture
def two(tmp_path: Path) -> Snapshots:
    """A run with two checkpoints."""
    snapshots = Snapshots(tmp_path)
    for step in (1, 2):
        snapshots.save(learner(), Progress(step=step))
    return snapshots


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def spoilt(folder: Path, dice: random.Random) -> Iterator[tuple[Path, bytes]]:
    """Files of a folder and what becomes of them: single bits flipped, then ends cut off."""
    files = sorted(folder.iterdir())
    for number in range(FLIPS + CUTS):
        path = files[number % len(files)]
        content = path.read_bytes()
        if number < FLIPS:
            yield path, flipped(content, dice.randrange(8 * len(content)))
        else:
            yield path, content[: dice.randrange(len(content))]


def test_of_two_thousand_flipped_bits_and_five_hundred_cuts_none_goes_unnoticed(two: Snapshots) -> None:
    """Each is refused with the file's name, and the checkpoint before it is taken instead."""
    newest, older = two.all()
    known, refused = learner(), 0
    for path, content in spoilt(newest, random.Random(3)):
        whole, said = path.read_bytes(), list[str]()
        path.write_bytes(content)
        progress = two.restore(known, said.append)
        assert progress == Progress(step=1), (path, said)
        assert len(said) == 1
        assert path.name in said[0]
        assert said[0].endswith("Going back to the checkpoint before it.")
        aside = newest.with_name(f"{newest.name}.damaged")
        aside.rename(newest)
        path.write_bytes(whole)
        refused += 1
    assert refused == FLIPS + CUTS
    assert two.restore(known, pytest.fail) == Progress(step=2)
    assert older.exists()


def test_a_run_whose_newest_checkpoint_is_damaged_goes_back_and_ends_as_it_would_have(tmp_path: Path) -> None:
    whole, _ = trained(tmp_path / "whole", steps=9)
    trained(tmp_path / "run", steps=9, save_every=2, stop_at=6)
    newest = Snapshots(tmp_path / "run").path(6)
    (newest / "optimizer.safetensors").write_bytes(flipped((newest / "optimizer.safetensors").read_bytes(), 4321))
    heard: list[Any] = []
    again, _ = trained(tmp_path / "run", heard, steps=9, save_every=2)
    assert_same(again, whole)
    (warned,) = said(heard, Warned)
    assert "step-000000006/optimizer.safetensors is not what was saved" in warned.message
    assert "Going back to the checkpoint before it" in warned.message
    assert [event.step for event in said(heard, Saved)] == [6, 8, 9]
    assert newest.with_name(f"{newest.name}.damaged").is_dir()


def test_where_no_checkpoint_is_whole_nothing_is_begun_anew_behind_ones_back(two: Snapshots) -> None:
    for path in two.all():
        (path / "model.safetensors").unlink()
    told: list[str] = []
    with pytest.raises(TrainingError, match=r"no checkpoint in .*checkpoints is whole. Begin anew under another name"):
        two.restore(learner(), told.append)
    assert len(told) == len(two.all()) == 2


def test_a_disk_that_cannot_be_read_is_no_reason_to_go_back(two: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **more: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", broken)
    monkeypatch.setattr(Path, "read_text", broken)
    with pytest.raises(DiskError, match=r"cannot read .*step-000000002: Input/output error"):
        two.restore(learner(), pytest.fail)


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    losses = iter([3.0, 1.0, 2.0, 4.0, 5.0, 6.0])
    trained(tmp_path, steps=6, save_every=1, keep=2, evaluate=lambda model: {"loss": next(losses)}, evaluate_every=1)
    assert [path.name for path in Snapshots(tmp_path).all()] == ["step-000000006", "step-000000005", "step-000000002"]
    assert Snapshots(tmp_path).best() == Snapshots(tmp_path).path(2)
    pointer = json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))
    assert (pointer["checkpoint"], pointer["loss"]) == ("checkpoints/step-000000002", 1.0)


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_the_model_in_memory_is_the_best_one_on_disk(average: float, tmp_path: Path) -> None:
    scores = iter([3.0, 1.0, 2.0])
    left, _ = trained(
        tmp_path, steps=6, average=average, evaluate=lambda model: {"loss": next(scores)}, evaluate_every=2
    )
    best = Snapshots(tmp_path).best()
    assert best is not None
    assert best.name == "step-000000004"
    assert_same(left, load(best))
    assert_same(left, load(tmp_path))
    assert not left.training


def test_without_a_folder_the_model_is_left_with_the_same_weights(tmp_path: Path) -> None:
    for average in (0.0, 0.9):
        for losses in ([3.0, 1.0, 2.0], [3.0, 2.0, 1.0]):
            left = [
                trained(folder, steps=6, average=average, evaluate=iterated(losses), evaluate_every=2)[0]
                for folder in (None, tmp_path / f"{average} {losses}")
            ]
            assert_same(*left)


def iterated(losses: list[float]) -> Any:
    left = iter(losses)
    return lambda model: {"loss": next(left)}


def test_a_look_sees_the_averaged_weights_and_so_does_whoever_loads_the_checkpoint(tmp_path: Path) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        seen.append(weights(model))
        return {"loss": 1.0}

    trained(tmp_path, steps=4, average=0.9, evaluate=evaluate, evaluate_every=4)
    plain, _ = trained(steps=4)
    assert_same(seen[0], load(Snapshots(tmp_path).path(4)))
    with pytest.raises(AssertionError):
        assert_same(seen[0], plain)


def test_what_a_killed_process_left_half_done_is_swept_away(two: Snapshots) -> None:
    half = two.folder / ".step-000000003.0a1b2c3d.partial"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (two.run / ".best.json.partial").write_text("{", encoding="utf-8")
    trained(two.run / "other", steps=1)
    two.sweep()
    assert not list(two.run.glob(".*.partial")) + list(two.folder.glob(".*.partial"))
    assert len(two.all()) == 2


def test_fit_sweeps_before_it_begins(tmp_path: Path) -> None:
    trained(tmp_path, steps=1)
    (tmp_path / "checkpoints" / ".step-000000002.aaaaaaaa.partial").mkdir()
    trained(tmp_path, steps=2)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_model_that_softlook_does_not_know_goes_on_all_the_same(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"source": [torch.ones(2), 3 * torch.ones(4)], "objective": distance, "steps": 6}
    whole, _ = trained(model=Line(), **settings)
    trained(tmp_path, model=Line(), stop_at=3, **settings)
    again, _ = trained(tmp_path, model=Line(), **settings)
    assert_same(again, whole)
    with pytest.raises(WeightsError, match=r"holds no softlook.json"):
        load(Snapshots(tmp_path).path(6))


def test_nothing_that_is_no_number_is_ever_written(tmp_path: Path) -> None:
    broken = learner()
    broken.model.value.data.fill_(torch.nan)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    with pytest.raises(WeightsError, match=r"'value' holds NaN or infinity"):
        Snapshots(tmp_path).save(broken, Progress(step=1))
    assert not Snapshots(tmp_path).all()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few pages."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.name == "posix" and os.geteuid() == 0 and shutil.which("mount") is not None
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], check=False).returncode:
        pytest.skip("only root may make a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("left", range(0, 200_000, 20_000))
def test_a_full_disk_is_told_with_bytes_and_costs_nothing_but_the_new_checkpoint(left: int, small_disk: Path) -> None:
    run = small_disk / "run"
    model, progress = trained(run, steps=2, average=0.9)
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(bytes(max(free - left, 0)))
    free = shutil.disk_usage(small_disk).free
    try:
        trained(run, steps=4, average=0.9)
    except DiskError as fault:
        assert "step-000000004" in str(fault)
        assert "This checkpoint needs about " in str(fault)
        assert f"bytes, and {free:,} are free" in str(fault)
        assert "The last good checkpoint is " in str(fault)
        assert "step-000000002" in str(fault)
    else:
        assert left > 50_000
    assert not list(run.rglob("*.partial"))
    again, at = trained(run, steps=2, average=0.9)
    assert at.step in (2, 4)
    if at.step == 2:
        assert_same(again, model)


def test_a_disk_that_fills_up_is_told_by_whoever_may_not_make_small_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path, steps=2)

    def full(*args: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = (
        r"(?s)cannot write .*step-000000003: No space left on device.*needs about [\d,]+ bytes, and [\d,]+ are free"
    )
    with pytest.raises(DiskError, match=message):
        trained(tmp_path, steps=3)
    assert [path.name for path in Snapshots(tmp_path).all()] == ["step-000000002"]
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint": "../../elsewhere"}, r"best.json names '../../elsewhere', which is no checkpoint of a run"),
        ({"checkpoint": "checkpoints/step-000000009"}, r"which is missing. Was the whole run copied"),
        ({"checkpoint": "checkpoints/step-000000001"}, r"which is not the one that was best then"),
        ({"manifest": "0" * 64}, r"which is not the one that was best then"),
    ],
)
def test_a_pointer_to_another_checkpoint_is_refused(change: dict[str, str], message: str, tmp_path: Path) -> None:
    trained(tmp_path, steps=2, save_every=1)
    path = tmp_path / "best.json"
    path.write_text(json.dumps(read_sealed(path) | change), encoding="utf-8")  # as earlier versions wrote it, unsealed
    with pytest.raises(WeightsError, match=message):
        load(tmp_path)
    path.write_text(json.dumps(sealed({"step": 1}) | change), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"best.json is not what was saved"):
        load(tmp_path)


def test_looks_are_kept_with_their_checkpoint(tmp_path: Path) -> None:
    trained(tmp_path, steps=4, evaluate=look(), evaluate_every=2)
    kept = json.loads((Snapshots(tmp_path).path(4) / "progress.json").read_text(encoding="utf-8"))
    assert kept["progress"]["best_step"] == kept["progress"]["looked"] == 4

"""Sharded checkpoints: each rank writes its shard, any number of ranks can read them, and saves are atomic."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from softlook.models import GPT
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.distributed.world import World
from softlook.train.ema import average_checkpoints
from softlook.weights import load
from softlook.weights.manifest import verify_manifest
from softlook.weights.meta import unique_tensors
from softlook.weights.tensor_files import SINGLE_FILE, read_safetensors, read_shards, read_tensors
from tests.train.checkpoint.test_checkpoint_manager import flipped
from tests.train.distributed_cases import (
    HALF,
    RESUMING_GROUPS,
    STEPS,
    make_state,
    train_deterministic,
    worsening_evaluator,
)
from tests.train.tiny import assert_same, weights

ROOT = Path(__file__).parents[3]
FILES = (SINGLE_FILE, "model_non_ema.safetensors", "optimizer.safetensors", "rng_state.safetensors")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each rank is a fork")


def run(path: Path, *jobs: str) -> Path:
    command = [sys.executable, "-m", "tests.train.distributed_cases", str(path), *jobs]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert not result.returncode, result.stderr[-3000:]
    return path


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interrupted run of three processes, and the state that two processes read from it."""
    return run(tmp_path_factory.mktemp("started"), "started")


def content(checkpoint: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, unsharded."""
    files = verify_manifest(checkpoint)
    return {
        f"{file}/{name}": stored.full()
        for file in FILES
        for name, stored in read_shards(checkpoint, file, files).items()
    }


@pytest.mark.slow
def test_a_resumed_fsdp_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    run(tmp_path, "resumed")
    expected = content(CheckpointManager(tmp_path / "uninterrupted").path(STEPS))
    for stop in (3, HALF):
        assert_same(content(CheckpointManager(tmp_path / f"stopped at {stop}").path(STEPS)), expected)


def test_each_rank_writes_its_rows_and_full_model_tensors(started: Path) -> None:
    newest = CheckpointManager(started / "three").list_checkpoints()[0]
    files = verify_manifest(newest)
    for file in ("model", "model_non_ema", "optimizer"):
        assert f"{file}.safetensors" not in files
        parts = [f"{file}-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
        assert all(files[part]["bytes"] < sum(files[part]["bytes"] for part in parts) / 2 for part in parts)
    index = json.loads((newest / "model.safetensors.index.json").read_text(encoding="utf-8"))
    for name, part in index["weight_map"].items():
        assert name in read_safetensors(newest / part)
    assert len(set(index["weight_map"].values())) == 3
    assert_same(
        read_tensors(newest), {name: stored.full() for name, stored in read_shards(newest, SINGLE_FILE, files).items()}
    )
    slices = files["model_non_ema-00002-of-00003.safetensors"]["slices"]
    rows = read_safetensors(newest / "model_non_ema-00002-of-00003.safetensors")
    assert {name: end - begin for name, (begin, end) in slices.items()} == {name: len(rows[name]) for name in rows}


def test_two_ranks_read_what_three_wrote(started: Path) -> None:
    expected = content(CheckpointManager(started / "three").list_checkpoints()[0])
    assert_same(
        read_safetensors(started / "read 2 fsdp"),
        {name: t for name, t in expected.items() if not name.startswith("rng_state")},
    )


@pytest.mark.slow
def test_any_number_of_ranks_resumes_a_sharded_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, "resized")
    expected = content(CheckpointManager(tmp_path / "three").list_checkpoints()[0])
    expected = {name: tensor for name, tensor in expected.items() if not name.startswith("rng_state")}
    single = dict(unique_tensors(train_deterministic(None)))
    for size, parallel in RESUMING_GROUPS:
        assert_same(read_safetensors(tmp_path / f"read {size} {parallel}"), expected)
        finished = dict(unique_tensors(load(tmp_path / f"{size} {parallel}")))
        torch.testing.assert_close(finished, single, rtol=1e-6, atol=1e-6)


def test_one_process_reads_a_sharded_checkpoint(started: Path) -> None:
    newest = CheckpointManager(started / "three").list_checkpoints()[0]
    state = make_state(World())
    settings = json.loads((newest / "trainer_state.json").read_text(encoding="utf-8"))["settings"]
    assert CheckpointManager(started / "three", settings=settings).restore(state, pytest.fail).step == HALF  # pyright: ignore
    flat = {
        f"{file}/{name}": t.detach() for file, tensors in state.state_files().items() for name, t in tensors.items()
    }
    assert_same(flat, {name: t for name, t in content(newest).items() if not name.startswith("rng_state")})


def test_one_process_resumes_and_loads_a_sharded_checkpoint(started: Path, tmp_path: Path) -> None:
    shutil.copytree(started / "three", tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert isinstance(loaded, GPT)
    newest = CheckpointManager(tmp_path / "run").list_checkpoints()[0]
    assert_same(unique_tensors(loaded), read_tensors(newest))
    assert_same(average_checkpoints([newest, newest]), read_tensors(newest))
    torch.testing.assert_close(
        weights(train_deterministic(tmp_path / "run")), weights(train_deterministic(None)), rtol=1e-6, atol=1e-6
    )
    assert (CheckpointManager(tmp_path / "run").path(STEPS) / SINGLE_FILE).is_file()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def replace_with_previous(path: Path) -> None:
    """Replace a shard with that of the previous checkpoint."""
    shutil.copyfile(CheckpointManager(path.parents[2]).list_checkpoints()[1] / path.name, path)


def flip_bit(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(flipped(content, random.Random(path.name).randrange(8 * len(content))))


@pytest.mark.parametrize(
    "damage", [flip_bit, truncate, replace_with_previous, Path.unlink], ids=lambda damage: damage.__name__
)
def test_a_damaged_shard_falls_back_to_the_previous_checkpoint(
    damage: Callable[[Path], None], started: Path, tmp_path: Path
) -> None:
    shutil.copytree(started / "three", tmp_path / "run")
    names = [path.name for path in CheckpointManager(tmp_path / "run").list_checkpoints()[0].glob("*-of-*")]
    assert len(names) == 9
    for name in names:
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(started / "three", tmp_path / "run")
        newest, before = CheckpointManager(tmp_path / "run").list_checkpoints()
        damage(newest / name)
        messages: list[str] = []
        settings = json.loads((before / "trainer_state.json").read_text(encoding="utf-8"))["settings"]
        progress = CheckpointManager(tmp_path / "run", settings=settings).restore(make_state(World()), messages.append)
        assert progress is not None
        assert progress.step == HALF - 1
        assert name in messages[0]
        assert messages[0].endswith("Using the previous checkpoint.")


@pytest.mark.slow
def test_evaluation_with_fsdp_leaves_the_weights_unchanged(tmp_path: Path) -> None:
    run(tmp_path, "evaluated")
    single = train_deterministic(None, evaluate=worsening_evaluator(), evaluate_every=2)
    torch.testing.assert_close(
        read_safetensors(tmp_path / "evaluated"), dict(unique_tensors(single)), rtol=1e-6, atol=1e-6
    )


@pytest.mark.slow
def test_a_kill_during_a_sharded_save_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, "resumed", "killed")
    report = json.loads((tmp_path / "killed.json").read_text(encoding="utf-8"))
    assert (report["kills"], report["corrupt"], report["left"]) == (6, 0, 0)
    assert report["during_save"], "no kill hit a save: the test is meaningless"
    paths = [CheckpointManager(tmp_path / name).path(STEPS) for name in ("killed", "uninterrupted")]
    assert_same(*map(content, paths))


@pytest.mark.slow
def test_a_full_disk_on_one_rank_raises_on_all(tmp_path: Path) -> None:
    run(tmp_path, "full")
    for after in (1, 2):
        folder = tmp_path / f"full {after}"
        messages = [(folder / f"error {rank}").read_text() for rank in range(3)]
        assert all(text.startswith("DiskError: cannot write ") for text in messages), messages
        assert all("No space left on device" in text and "The last good checkpoint is " in text for text in messages)
        assert [path.name for path in CheckpointManager(folder).list_checkpoints()] == [
            "step-000000002",
            "step-000000001",
        ]
        assert not list(folder.rglob("*.partial"))


@pytest.mark.slow
def test_heartbeat_names_a_stopped_rank_and_ignores_a_busy_one(tmp_path: Path) -> None:
    run(tmp_path, "silent", "busy")
    for rank in (1, 2):
        log = (tmp_path / f"silent {rank}").read_text(encoding="utf-8")
        assert "rank 0 of 3 (process " in log
        assert "sent no heartbeat for 1.5 seconds; the run has ended." in log
    assert (tmp_path / "busy.json").exists()

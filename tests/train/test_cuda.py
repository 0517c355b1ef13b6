"""The same on a GPU: half the bits by themselves, going on from where one was, and a world of one over NCCL."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import nn

from softlook.train import Loss
from softlook.train.batching.collate import PackedBatch
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.events import BatchSplit, Started, StepLogged
from softlook.train.objectives import causal_lm, make_loss_evaluator
from softlook.weights import load
from softlook.weights.manifest import verify_manifest
from softlook.weights.tensor_files import read_safetensors
from tests.train.multiprocess import world_of_one
from tests.train.test_train_step import limit_memory
from tests.train.tiny import (
    NO_DROPOUT,
    assert_same,
    assert_same_progress,
    events_of,
    model,
    rows,
    run_training,
    sentences,
    weights,
)

pytestmark = pytest.mark.cuda
GPU = torch.device("cuda")


def near(one: nn.Module, other: nn.Module) -> None:
    """What a GPU adds up in another order each time differs a little."""
    torch.testing.assert_close(weights(one), weights(other), rtol=1e-3, atol=1e-4, check_device=False)


@pytest.fixture
def orderly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU that adds up in the same order each time."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def long(**more: Any) -> dict[str, Any]:
    evaluate = make_loss_evaluator([rows(sentences()[:5])], causal_lm(), GPU)
    settings: dict[str, Any] = {
        "device": "auto",
        "max_steps": 12,
        "ema_decay": 0.9,
        "gradient_accumulation_steps": 2,
        "save_every": 100,
    }
    return settings | {"evaluate": evaluate, "evaluate_every": 3} | more


def test_a_gpu_is_chosen_with_bfloat16() -> None:
    events: list[Any] = []
    left, _ = run_training(None, events, **long())
    (started,) = events_of(events, Started)
    assert (started.device, started.precision) == ("cuda:0", "bfloat16")
    assert {tensor.dtype for tensor in left.parameters()} == {torch.float32}
    losses = [event.loss for event in events_of(events, StepLogged)]
    assert sum(losses[-3:]) < sum(losses[:3])


@pytest.mark.parametrize("stop", [3, 7])
def test_a_resumed_gpu_run_equals_an_uninterrupted_one(stop: int, tmp_path: Path) -> None:
    whole, uninterrupted = run_training(tmp_path / "whole", **long())
    run_training(tmp_path / "run", stop_at=stop, **long())
    again, progress = run_training(tmp_path / "run", **long())
    assert (progress.step, progress.cursor) == (uninterrupted.step, uninterrupted.cursor)
    near(again, whole)
    generator = [
        read_safetensors(CheckpointManager(tmp_path / run).path(12) / "rng_state.safetensors")
        for run in ("whole", "run")
    ]
    assert generator[0].keys() == {"cpu.0", "cuda.0"}
    assert_same(*generator)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_deterministic_gpu_resumes_bit_for_bit(precision: str, tmp_path: Path, orderly: None) -> None:
    whole, at = run_training(tmp_path / "whole", **long(precision=precision))
    run_training(tmp_path / "run", stop_at=7, **long(precision=precision))
    again, progress = run_training(tmp_path / "run", **long(precision=precision))
    assert_same_progress(progress, at)
    assert_same(again, whole)


def test_float16_trains_on_a_gpu(tmp_path: Path) -> None:
    one, at = run_training(device="cuda", max_steps=9, precision="float16")
    run_training(tmp_path, device="cuda", max_steps=9, precision="float16", stop_at=4)
    other, progress = run_training(tmp_path, device="cuda", max_steps=9, precision="float16")
    assert_same_progress(progress, at)
    near(other, one)


def test_gpu_and_cpu_losses_match() -> None:
    losses: dict[str, list[float]] = {}
    for device in ("cpu", "cuda"):
        events: list[Any] = []
        run_training(None, events, model=model(NO_DROPOUT), device=device, precision="float32", max_steps=8)
        losses[device] = [event.loss for event in events_of(events, StepLogged)]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-4)


def test_out_of_memory_splits_batches_on_a_gpu() -> None:
    events: list[Any] = []
    run_training(None, events, device="cuda", max_steps=3, objective=limit_memory(2)[0])
    assert events_of(events, BatchSplit)


def test_real_out_of_memory_splits_batches() -> None:
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]

    def greedy(model: nn.Module, batch: PackedBatch) -> Loss:
        """There is room for two rows, and no more than two."""
        taken = torch.empty(len(batch.ids) * (free * 3 // 8), dtype=torch.uint8, device=GPU)
        loss = causal_lm()(model, batch)
        return Loss(loss.total + 0 * taken[0], loss.count)

    events: list[Any] = []
    full, _ = run_training(
        None, events, model=model(NO_DROPOUT), device="cuda", precision="float32", max_steps=3, objective=greedy
    )
    assert events_of(events, BatchSplit)
    torch.cuda.empty_cache()
    easy, _ = run_training(None, model=model(NO_DROPOUT), device="cuda", precision="float32", max_steps=3)
    near(full, easy)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_nccl_group_of_one_equals_a_single_process(
    parallel: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = long(precision=precision)
    alone, _ = run_training(None, **settings)
    with world_of_one(monkeypatch):
        run_training(tmp_path, stop_at=7, parallel=parallel, **settings)
        assert dist.get_backend() == "nccl"
        run_training(tmp_path, parallel=parallel, **settings)
    near(load(tmp_path), alone)


def test_a_cpu_reads_sharded_gpu_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"precision": "float32", "ema_decay": 0.9}
    alone, _ = run_training(None, model=model(NO_DROPOUT), device="cuda", max_steps=8, **settings)
    with world_of_one(monkeypatch):
        run_training(tmp_path, model=model(NO_DROPOUT), device="cuda", max_steps=4, parallel="fsdp", **settings)
    assert "optimizer-00001-of-00001.safetensors" in verify_manifest(CheckpointManager(tmp_path).path(4))
    again, progress = run_training(tmp_path, model=model(NO_DROPOUT), device="cpu", max_steps=8, **settings)
    assert progress.step == 8
    near(again, alone)


def test_fsdp_on_a_deterministic_gpu_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orderly: None
) -> None:
    with world_of_one(monkeypatch):
        run_training(tmp_path / "whole", parallel="fsdp", **long())
        run_training(tmp_path / "run", stop_at=7, parallel="fsdp", **long())
        run_training(tmp_path / "run", parallel="fsdp", **long())
    files = [CheckpointManager(tmp_path / run).path(12) for run in ("whole", "run")]
    for name in ("model", "model_non_ema", "optimizer"):
        assert_same(*(read_safetensors(path / f"{name}-00001-of-00001.safetensors") for path in files))
    assert "LOCAL_RANK" not in os.environ

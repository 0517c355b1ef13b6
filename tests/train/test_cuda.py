"""Training on a GPU: bfloat16 by default, exact resuming, and an NCCL process group of one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import nn

from softlook.train import Loss, objectives
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


def assert_close(one: nn.Module, other: nn.Module) -> None:
    """Equal up to the nondeterministic summation order of a GPU."""
    torch.testing.assert_close(weights(one), weights(other), rtol=1e-3, atol=1e-4, check_device=False)


def assert_close_where_determined(one: nn.Module, other: nn.Module) -> None:
    """`assert_close`, without the bias of keys: a vector added to all keys changes no weight, its gradient is noise."""
    one_weights, other_weights = (
        {name: tensor for name, tensor in weights(each).items() if not name.endswith("to_key.bias")}
        for each in (one, other)
    )
    torch.testing.assert_close(one_weights, other_weights, rtol=1e-3, atol=1e-4, check_device=False)


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Deterministic algorithms on the GPU."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def train_settings(**more: Any) -> dict[str, Any]:
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
    trained, _ = run_training(None, events, **train_settings())
    (started,) = events_of(events, Started)
    assert (started.device, started.precision) == ("cuda:0", "bfloat16")
    assert {tensor.dtype for tensor in trained.parameters()} == {torch.float32}
    losses = [event.loss for event in events_of(events, StepLogged)]
    assert sum(losses[-3:]) < sum(losses[:3])


@pytest.mark.parametrize("stop", [3, 7])
def test_a_resumed_gpu_run_equals_an_uninterrupted_one(stop: int, tmp_path: Path) -> None:
    expected, uninterrupted = run_training(tmp_path / "uninterrupted", **train_settings())
    run_training(tmp_path / "run", stop_at=stop, **train_settings())
    resumed, progress = run_training(tmp_path / "run", **train_settings())
    assert (progress.step, progress.cursor) == (uninterrupted.step, uninterrupted.cursor)
    assert_close(resumed, expected)
    rng_states = [
        read_safetensors(CheckpointManager(tmp_path / run).path(12) / "rng_state.safetensors")
        for run in ("uninterrupted", "run")
    ]
    assert rng_states[0].keys() == {"cpu.0", "cuda.0"}
    assert_same(*rng_states)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_deterministic_gpu_resumes_bit_for_bit(precision: str, tmp_path: Path, deterministic: None) -> None:
    expected, expected_progress = run_training(tmp_path / "uninterrupted", **train_settings(precision=precision))
    run_training(tmp_path / "run", stop_at=7, **train_settings(precision=precision))
    resumed, progress = run_training(tmp_path / "run", **train_settings(precision=precision))
    assert_same_progress(progress, expected_progress)
    assert_same(resumed, expected)


def test_float16_trains_on_a_gpu(tmp_path: Path) -> None:
    one, expected_progress = run_training(device="cuda", max_steps=9, precision="float16")
    run_training(tmp_path, device="cuda", max_steps=9, precision="float16", stop_at=4)
    other, progress = run_training(tmp_path, device="cuda", max_steps=9, precision="float16")
    assert_same_progress(progress, expected_progress)
    assert_close(other, one)


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

    def allocate_much(model: nn.Module, batch: PackedBatch) -> Loss:
        """Memory suffices for two rows and not for three."""
        allocated = torch.empty(len(batch.ids) * (free * 3 // 8), dtype=torch.uint8, device=GPU)
        loss = causal_lm()(model, batch)
        return Loss(loss.total + 0 * allocated[0], loss.count)

    events: list[Any] = []
    split, _ = run_training(
        None, events, model=model(NO_DROPOUT), device="cuda", precision="float32", max_steps=3, objective=allocate_much
    )
    assert events_of(events, BatchSplit)
    torch.cuda.empty_cache()
    unsplit, _ = run_training(None, model=model(NO_DROPOUT), device="cuda", precision="float32", max_steps=3)
    assert_close(split, unsplit)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_nccl_group_of_one_equals_a_single_process(
    parallel: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A wrapped or sharded model has no fused head: both compute the same loss, or Adam amplifies its rounding errors.
    monkeypatch.setattr(objectives, "can_fuse_head", lambda model, labels: False)
    settings = train_settings(precision=precision)
    single, _ = run_training(None, **settings)
    with world_of_one(monkeypatch):
        run_training(tmp_path, stop_at=7, parallel=parallel, **settings)
        assert dist.get_backend() == "nccl"
        run_training(tmp_path, parallel=parallel, **settings)
    assert_close_where_determined(load(tmp_path), single)


def test_a_cpu_reads_sharded_gpu_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"precision": "float32", "ema_decay": 0.9}
    single, _ = run_training(None, model=model(NO_DROPOUT), device="cuda", max_steps=8, **settings)
    with world_of_one(monkeypatch):
        run_training(tmp_path, model=model(NO_DROPOUT), device="cuda", max_steps=4, parallel="fsdp", **settings)
    assert "optimizer-00001-of-00001.safetensors" in verify_manifest(CheckpointManager(tmp_path).path(4))
    resumed, progress = run_training(tmp_path, model=model(NO_DROPOUT), device="cpu", max_steps=8, **settings)
    assert progress.step == 8
    assert_close(resumed, single)


def test_fsdp_on_a_deterministic_gpu_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deterministic: None
) -> None:
    with world_of_one(monkeypatch):
        run_training(tmp_path / "uninterrupted", parallel="fsdp", **train_settings())
        run_training(tmp_path / "run", stop_at=7, parallel="fsdp", **train_settings())
        run_training(tmp_path / "run", parallel="fsdp", **train_settings())
    files = [CheckpointManager(tmp_path / run).path(12) for run in ("uninterrupted", "run")]
    for name in ("model", "model_non_ema", "optimizer"):
        assert_same(*(read_safetensors(path / f"{name}-00001-of-00001.safetensors") for path in files))
    assert "LOCAL_RANK" not in os.environ

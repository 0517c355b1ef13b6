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
from softlook.train.events import Halved, Started, Trained
from softlook.train.examples import Rows
from softlook.train.objectives import held_out, language
from softlook.train.snapshots import Snapshots
from softlook.weights import load
from softlook.weights.files import read_file
from softlook.weights.manifest import verify
from tests.train.test_step import cramped
from tests.train.tiny import CALM, assert_same, assert_same_place, model, rows, said, sentences, trained, weights
from tests.train.together import world_of_one

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
    look = held_out([rows(sentences()[:5])], language(), GPU)
    settings: dict[str, Any] = {"device": "auto", "steps": 12, "average": 0.9, "accumulate": 2, "save_every": 100}
    return settings | {"evaluate": look, "evaluate_every": 3} | more


def test_a_gpu_is_found_and_works_with_half_the_bits() -> None:
    heard: list[Any] = []
    left, _ = trained(None, heard, **long())
    (started,) = said(heard, Started)
    assert (started.device, started.precision) == ("cuda:0", "bfloat16")
    assert {tensor.dtype for tensor in left.parameters()} == {torch.float32}
    losses = [event.loss for event in said(heard, Trained)]
    assert sum(losses[-3:]) < sum(losses[:3])


@pytest.mark.parametrize("stop", [3, 7])
def test_a_run_on_a_gpu_that_is_stopped_ends_as_one_that_is_not(stop: int, tmp_path: Path) -> None:
    whole, unbroken = trained(tmp_path / "whole", **long())
    trained(tmp_path / "run", stop_at=stop, **long())
    again, progress = trained(tmp_path / "run", **long())
    assert (progress.step, progress.place) == (unbroken.step, unbroken.place)
    near(again, whole)
    dice = [read_file(Snapshots(tmp_path / run).path(12) / "dice.safetensors") for run in ("whole", "run")]
    assert dice[0].keys() == {"cpu.0", "cuda.0"}
    assert_same(*dice)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_on_an_orderly_gpu_it_ends_so_to_the_last_bit(precision: str, tmp_path: Path, orderly: None) -> None:
    whole, at = trained(tmp_path / "whole", **long(precision=precision))
    trained(tmp_path / "run", stop_at=7, **long(precision=precision))
    again, progress = trained(tmp_path / "run", **long(precision=precision))
    assert_same_place(progress, at)
    assert_same(again, whole)


def test_half_precision_learns_on_a_gpu(tmp_path: Path) -> None:
    one, at = trained(device="cuda", steps=9, precision="float16")
    trained(tmp_path, device="cuda", steps=9, precision="float16", stop_at=4)
    other, progress = trained(tmp_path, device="cuda", steps=9, precision="float16")
    assert_same_place(progress, at)
    near(other, one)


def test_a_gpu_and_a_cpu_see_the_same_losses() -> None:
    losses: dict[str, list[float]] = {}
    for device in ("cpu", "cuda"):
        heard: list[Any] = []
        trained(None, heard, model=model(CALM), device=device, precision="float32", steps=8)
        losses[device] = [event.loss for event in said(heard, Trained)]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-4)


def test_a_full_memory_is_borne_on_a_gpu() -> None:
    heard: list[Any] = []
    trained(None, heard, device="cuda", steps=3, objective=cramped(2)[0])
    assert said(heard, Halved)


def test_a_memory_that_is_really_full_is_borne_too() -> None:
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]

    def greedy(model: nn.Module, batch: Rows) -> Loss:
        """There is room for two rows, and no more than two."""
        taken = torch.empty(len(batch.ids) * (free * 3 // 8), dtype=torch.uint8, device=GPU)
        loss = language()(model, batch)
        return Loss(loss.total + 0 * taken[0], loss.count)

    heard: list[Any] = []
    full, _ = trained(None, heard, model=model(CALM), device="cuda", precision="float32", steps=3, objective=greedy)
    assert said(heard, Halved)
    torch.cuda.empty_cache()
    easy, _ = trained(None, model=model(CALM), device="cuda", precision="float32", steps=3)
    near(full, easy)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_world_of_one_over_nccl_learns_what_somebody_alone_learns(
    parallel: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = long(precision=precision)
    alone, _ = trained(None, **settings)
    with world_of_one(monkeypatch):
        trained(tmp_path, stop_at=7, parallel=parallel, **settings)
        assert dist.get_backend() == "nccl"
        trained(tmp_path, parallel=parallel, **settings)
    near(load(tmp_path), alone)


def test_weights_in_parts_on_a_gpu_are_read_by_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"precision": "float32", "average": 0.9}
    alone, _ = trained(None, model=model(CALM), device="cuda", steps=8, **settings)
    with world_of_one(monkeypatch):
        trained(tmp_path, model=model(CALM), device="cuda", steps=4, parallel="fsdp", **settings)
    assert "optimizer-00001-of-00001.safetensors" in verify(Snapshots(tmp_path).path(4))
    again, progress = trained(tmp_path, model=model(CALM), device="cpu", steps=8, **settings)
    assert progress.step == 8
    near(again, alone)


def test_a_run_in_parts_on_an_orderly_gpu_goes_on_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orderly: None
) -> None:
    with world_of_one(monkeypatch):
        trained(tmp_path / "whole", parallel="fsdp", **long())
        trained(tmp_path / "run", stop_at=7, parallel="fsdp", **long())
        trained(tmp_path / "run", parallel="fsdp", **long())
    files = [Snapshots(tmp_path / run).path(12) for run in ("whole", "run")]
    for name in ("model", "raw", "optimizer"):
        assert_same(*(read_file(path / f"{name}-00001-of-00001.safetensors") for path in files))
    assert "LOCAL_RANK" not in os.environ

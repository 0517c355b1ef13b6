"""The same on a GPU: half the bits by themselves, and going on from where one was."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.train.events import Halved, Started
from softlook.train.objectives import held_out, language
from softlook.train.snapshots import Snapshots
from softlook.weights.files import read_file
from tests.train.test_step import cramped
from tests.train.tiny import assert_same, assert_same_place, rows, said, sentences, trained, weights

pytestmark = pytest.mark.cuda
GPU = torch.device("cuda")


def test_a_run_on_a_gpu_that_is_stopped_ends_as_one_that_is_not(tmp_path: Path) -> None:
    heard: list[Any] = []
    look = held_out([rows(sentences()[:5])], language(), GPU)
    settings: dict[str, Any] = {"device": "auto", "steps": 12, "average": 0.9, "accumulate": 2, "save_every": 100}
    settings |= {"evaluate": look, "evaluate_every": 3}
    whole, unbroken = trained(tmp_path / "whole", heard, **settings)
    (started,) = said(heard, Started)
    assert (started.device, started.precision) == ("cuda:0", "bfloat16")
    for stop in (3, 7):
        trained(tmp_path / str(stop), stop_at=stop, **settings)
        again, progress = trained(tmp_path / str(stop), **settings)
        assert (progress.step, progress.place) == (unbroken.step, unbroken.place)
        torch.testing.assert_close(weights(again), weights(whole), rtol=1e-3, atol=1e-4)
        dice = [read_file(Snapshots(tmp_path / run).path(12) / "dice.safetensors") for run in ("whole", str(stop))]
        assert dice[0].keys() == {"cpu.0", "cuda.0"}
        assert_same(*dice)


def test_a_full_memory_is_borne_on_a_gpu() -> None:
    heard: list[Any] = []
    trained(None, heard, device="cuda", steps=3, objective=cramped(2)[0])
    assert said(heard, Halved)


def test_half_precision_learns_on_a_gpu(tmp_path: Path) -> None:
    one, at = trained(device="cuda", steps=9, precision="float16")
    trained(tmp_path, device="cuda", steps=9, precision="float16", stop_at=4)
    other, progress = trained(tmp_path, device="cuda", steps=9, precision="float16")
    assert_same_place(progress, at)
    torch.testing.assert_close(weights(other), weights(one), rtol=1e-3, atol=1e-4)

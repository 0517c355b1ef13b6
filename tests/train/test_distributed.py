"""Two processes learn what one learns; where one dies the job ends, says which, and goes on when it is run again."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError, TrainingError
from softlook.models import GPT
from softlook.train.distributed import World
from softlook.train.snapshots import Snapshots
from softlook.weights import load
from softlook.weights.files import read_file
from tests.train.test_step import cramped, stepper
from tests.train.tiny import assert_same, rows, sentences, trained, weights
from tests.train.together import HALF, WAYS, calm, kept, world_of_one

ROOT = Path(__file__).parents[2]


def together(
    folder: Path, step: int = 0, signal: str = "SIGKILL", by: Sequence[str] = (sys.executable,)
) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    command = [*by, "-m", "tests.train.together", str(folder), str(step), signal]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    return ended, time.monotonic() - began


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch cannot")
def test_two_processes_learn_what_one_learns_also_after_one_of_them_was_killed(tmp_path: Path) -> None:
    killed, seconds = together(tmp_path, 5, "SIGKILL")
    assert killed.returncode
    assert re.search(r"told: process \d+, rank 1 of 2, ended with SIGKILL, and the others with it.", killed.stderr)
    assert seconds < 60
    assert (tmp_path / "run" / "checkpoints" / "step-000000004").is_dir()
    parts = WAYS["weights in parts"]
    calm(parts, tmp_path / "begun by one", stop_at=HALF)
    ended, _ = together(tmp_path)
    assert not ended.returncode, ended.stderr
    done = read_file(tmp_path / "done")
    for way, settings in {**WAYS, "begun by one": parts}.items():
        alone = {f"{way}/{name}": tensor for name, tensor in kept(calm(settings, None)).items()}
        torch.testing.assert_close({name: done[name] for name in alone}, alone, rtol=1e-6, atol=1e-6)
    assert Snapshots(tmp_path / "begun by two").all()[0].name == f"step-{HALF:09}"
    assert isinstance(load(tmp_path / "begun by two"), GPT)
    ended_by_one = kept(calm(parts, tmp_path / "begun by two"))
    torch.testing.assert_close(ended_by_one, kept(calm(parts, None)), rtol=1e-6, atol=1e-6)


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nobody can be stopped here")
@pytest.mark.parametrize("by", [(sys.executable,), TORCHRUN], ids=["launch", "torchrun"])
def test_whoever_is_stopped_is_named_within_a_minute_and_the_run_goes_on(by: Sequence[str], tmp_path: Path) -> None:
    stopped, seconds = together(tmp_path, 5, "SIGSTOP", by)
    assert stopped.returncode
    assert re.search(rf"rank 1 of 2, process \d+ on {re.escape(socket.gethostname())}, gave no sign of", stopped.stderr)
    assert "The same command goes on from the last checkpoint." in stopped.stderr
    assert seconds < 60
    assert (tmp_path / "run" / "checkpoints" / "step-000000004").is_dir()
    calm({}, tmp_path / "run")  # one process alone may end it


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_world_of_one_learns_what_somebody_alone_learns(
    parallel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = weights(trained(None, steps=6)[0])
    with world_of_one(monkeypatch):
        first, _ = trained(tmp_path, steps=3, parallel=parallel)
        assert torch.distributed.get_backend() == "gloo"
        assert any("DTensor" in type(p).__name__ for p in first.parameters()) == (parallel == "fsdp")
    again, progress = trained(tmp_path, steps=6)
    assert progress.step == 6
    assert_same(again, alone)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_everything_is_dealt_out_once(count: int, size: int) -> None:
    batches = [torch.arange(5) + 10 * number for number in range(count)]
    dealt = [World(rank, size).share(batches) for rank in range(size)]
    assert sorted(int(n) for share in dealt for piece in share for n in piece) == [int(n) for b in batches for n in b]
    sizes = [sum(map(len, share)) for share in dealt]
    assert max(sizes) - min(sizes) <= count


def test_half_precision_and_weights_in_parts_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match=r"float16 and weights in parts do not go together. Take bfloat16"):
        stepper(kind=torch.float16, world=World(0, 2, is_parted=True))


def test_a_full_memory_is_told_with_the_rank_where_several_learn_as_one() -> None:
    ours = stepper(cramped(4)[0])
    ours.world = World(1, 2)
    with pytest.raises(TrainingError, match=r"rank 1 of 2 cannot change its pieces while the others wait for it: CUDA"):
        ours.step([rows(sentences()[:12])], lr=0.1)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_where_weights_are_in_parts_everybody_works_through_as_many_pieces(size: int) -> None:
    batches = [rows(sentences()[:2]), rows(sentences()[2:9])]
    ours = stepper()
    counts = set()
    for rank in range(size):
        ours.world = World(rank, size, is_parted=True)
        pieces = ours._pieces(batches)
        counts.add(len(pieces))
    assert len(counts) == 1


def test_whoever_is_alone_does_nothing_special() -> None:
    world, cpu = World(), torch.device("cpu")
    assert world.first
    assert world.most(2, cpu) == 2
    assert world.same(0.5, cpu) == 0.5
    assert world.gathered(torch.ones(1), cpu) == [torch.ones(1)]
    assert world.heard("a word") == ["a word"]
    world.together()

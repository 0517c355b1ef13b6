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
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.distributed.world import World
from softlook.weights import load
from softlook.weights.tensor_files import read_safetensors
from tests.train.multiprocess import HALF, WAYS, calm, kept, world_of_one
from tests.train.test_train_step import limit_memory, make_train_step
from tests.train.tiny import assert_same, rows, run_training, sentences, weights

ROOT = Path(__file__).parents[3]


def together(
    folder: Path, step: int = 0, signal: str = "SIGKILL", by: Sequence[str] = (sys.executable,)
) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    command = [*by, "-m", "tests.train.multiprocess", str(folder), str(step), signal]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    return ended, time.monotonic() - began


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch cannot")
def test_two_processes_equal_one_also_after_a_kill(tmp_path: Path) -> None:
    killed, seconds = together(tmp_path, 5, "SIGKILL")
    assert killed.returncode
    assert re.search(
        r"told: process \d+, rank 1 of 2, ended with SIGKILL, and the others were ended with it.", killed.stderr
    )
    assert seconds < 60
    assert (tmp_path / "run" / "checkpoints" / "step-000000004").is_dir()
    parts = WAYS["weights in parts"]
    calm(parts, tmp_path / "begun by one", stop_at=HALF)
    ended, _ = together(tmp_path)
    assert not ended.returncode, ended.stderr
    done = read_safetensors(tmp_path / "done")
    for way, settings in {**WAYS, "begun by one": parts}.items():
        alone = {f"{way}/{name}": tensor for name, tensor in kept(calm(settings, None)).items()}
        torch.testing.assert_close({name: done[name] for name in alone}, alone, rtol=1e-6, atol=1e-6)
    assert CheckpointManager(tmp_path / "begun by two").list_checkpoints()[0].name == f"step-{HALF:09}"
    assert isinstance(load(tmp_path / "begun by two"), GPT)
    ended_by_one = kept(calm(parts, tmp_path / "begun by two"))
    torch.testing.assert_close(ended_by_one, kept(calm(parts, None)), rtol=1e-6, atol=1e-6)


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nobody can be stopped here")
@pytest.mark.parametrize("by", [(sys.executable,), TORCHRUN], ids=["launch", "torchrun"])
def test_a_stopped_rank_is_named_and_the_run_resumes(by: Sequence[str], tmp_path: Path) -> None:
    stopped, seconds = together(tmp_path, 5, "SIGSTOP", by)
    assert stopped.returncode
    assert re.search(
        rf"rank 1 of 2 \(process \d+ on {re.escape(socket.gethostname())}\) sent no heartbeat", stopped.stderr
    )
    assert "The same command resumes from the last checkpoint." in stopped.stderr
    assert seconds < 60
    assert (tmp_path / "run" / "checkpoints" / "step-000000004").is_dir()
    calm({}, tmp_path / "run")  # one process alone may end it


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_process_group_of_one_equals_a_single_process(
    parallel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = weights(run_training(None, max_steps=6)[0])
    with world_of_one(monkeypatch):
        first, _ = run_training(tmp_path, max_steps=3, parallel=parallel)
        assert torch.distributed.get_backend() == "gloo"
        assert any("DTensor" in type(p).__name__ for p in first.parameters()) == (parallel == "fsdp")
    again, progress = run_training(tmp_path, max_steps=6)
    assert progress.step == 6
    assert_same(again, alone)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_row_is_assigned_to_one_rank(count: int, size: int) -> None:
    batches = [torch.arange(5) + 10 * number for number in range(count)]
    dealt = [World(rank, size).local_batches(batches) for rank in range(size)]
    assert sorted(int(n) for share in dealt for piece in share for n in piece) == [int(n) for b in batches for n in b]
    sizes = [sum(map(len, share)) for share in dealt]
    assert max(sizes) - min(sizes) <= count


def test_float16_with_fsdp_raises() -> None:
    with pytest.raises(ConfigError, match=r"precision=float16 does not work with parallel=fsdp. Use bfloat16"):
        make_train_step(dtype=torch.float16, world=World(0, 2, is_sharded=True))


def test_out_of_memory_with_several_ranks_raises() -> None:
    ours = make_train_step(limit_memory(4)[0])
    ours.world = World(1, 2)
    with pytest.raises(TrainingError, match=r"rank 1 of 2 cannot split its batch while the others wait for it: CUDA"):
        ours.step([rows(sentences()[:12])], lr=0.1)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_fsdp_ranks_compute_equally_many_micro_batches(size: int) -> None:
    batches = [rows(sentences()[:2]), rows(sentences()[2:9])]
    ours = make_train_step()
    counts = set()
    for rank in range(size):
        ours.world = World(rank, size, is_sharded=True)
        pieces = ours._micro_batches(batches)
        counts.add(len(pieces))
    assert len(counts) == 1


def test_collectives_of_one_process_are_no_ops() -> None:
    world, cpu = World(), torch.device("cpu")
    assert world.is_rank_zero
    assert world.all_reduce_max(2, cpu) == 2
    assert world.broadcast(0.5, cpu) == 0.5
    assert world.all_gather(torch.ones(1), cpu) == [torch.ones(1)]
    assert world.all_gather_text("a word") == ["a word"]
    world.barrier()

"""Two processes train like one; if one dies, the job ends, names it and can be resumed."""

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
from tests.train.multiprocess import CONFIGS, HALF, full_weights, train_deterministic, world_of_one
from tests.train.test_train_step import limit_memory, make_train_step
from tests.train.tiny import assert_same, rows, run_training, sentences, weights

ROOT = Path(__file__).parents[3]


def run_two_processes(
    folder: Path, step: int = 0, signal: str = "SIGKILL", launcher: Sequence[str] = (sys.executable,)
) -> tuple[subprocess.CompletedProcess[str], float]:
    start = time.monotonic()
    command = [*launcher, "-m", "tests.train.multiprocess", str(folder), str(step), signal]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    return result, time.monotonic() - start


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch has no distributed package")
def test_two_processes_equal_one_also_after_a_kill(tmp_path: Path) -> None:
    killed, seconds = run_two_processes(tmp_path, 5, "SIGKILL")
    assert killed.returncode
    assert re.search(
        r"error: process \d+, rank 1 of 2, ended with SIGKILL, and the others were ended with it.", killed.stderr
    )
    assert seconds < 60
    assert (tmp_path / "run" / "checkpoints" / "step-000000004").is_dir()
    parts = CONFIGS["sharded weights"]
    train_deterministic(parts, tmp_path / "started by one", stop_at=HALF)
    result, _ = run_two_processes(tmp_path)
    assert not result.returncode, result.stderr
    results = read_safetensors(tmp_path / "results")
    for name, settings in {**CONFIGS, "started by one": parts}.items():
        single = {f"{name}/{key}": tensor for key, tensor in full_weights(train_deterministic(settings, None)).items()}
        torch.testing.assert_close({key: results[key] for key in single}, single, rtol=1e-6, atol=1e-6)
    assert CheckpointManager(tmp_path / "started by two").list_checkpoints()[0].name == f"step-{HALF:09}"
    assert isinstance(load(tmp_path / "started by two"), GPT)
    finished_by_one = full_weights(train_deterministic(parts, tmp_path / "started by two"))
    torch.testing.assert_close(finished_by_one, full_weights(train_deterministic(parts, None)), rtol=1e-6, atol=1e-6)


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be stopped here")
@pytest.mark.parametrize("launcher", [(sys.executable,), TORCHRUN], ids=["launch", "torchrun"])
def test_a_stopped_rank_is_named_and_the_run_resumes(launcher: Sequence[str], tmp_path: Path) -> None:
    stopped, seconds = run_two_processes(tmp_path, 5, "SIGSTOP", launcher)
    assert stopped.returncode
    assert re.search(
        rf"rank 1 of 2 \(process \d+ on {re.escape(socket.gethostname())}\) sent no heartbeat", stopped.stderr
    )
    assert "The same command resumes from the last checkpoint." in stopped.stderr
    assert seconds < 60
    assert (tmp_path / "run" / "checkpoints" / "step-000000004").is_dir()
    train_deterministic({}, tmp_path / "run")  # a single process can finish it


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_process_group_of_one_equals_a_single_process(
    parallel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = weights(run_training(None, max_steps=6)[0])
    with world_of_one(monkeypatch):
        first, _ = run_training(tmp_path, max_steps=3, parallel=parallel)
        assert torch.distributed.get_backend() == "gloo"
        assert any("DTensor" in type(p).__name__ for p in first.parameters()) == (parallel == "fsdp")
    resumed, progress = run_training(tmp_path, max_steps=6)
    assert progress.step == 6
    assert_same(resumed, single)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_row_is_assigned_to_one_rank(count: int, size: int) -> None:
    batches = [torch.arange(5) + 10 * number for number in range(count)]
    local = [World(rank, size).local_batches(batches) for rank in range(size)]
    assert sorted(int(n) for rank_batches in local for batch in rank_batches for n in batch) == [
        int(n) for b in batches for n in b
    ]
    sizes = [sum(map(len, rank_batches)) for rank_batches in local]
    assert max(sizes) - min(sizes) <= count


def test_float16_with_fsdp_raises() -> None:
    with pytest.raises(ConfigError, match=r"precision=float16 does not work with parallel=fsdp. Use bfloat16"):
        make_train_step(dtype=torch.float16, world=World(0, 2, is_sharded=True))


def test_out_of_memory_with_several_ranks_raises() -> None:
    train_step = make_train_step(limit_memory(4)[0])
    train_step.world = World(1, 2)
    with pytest.raises(TrainingError, match=r"rank 1 of 2 cannot split its batch while the others wait for it: CUDA"):
        train_step.step([rows(sentences()[:12])], lr=0.1)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_fsdp_ranks_compute_equally_many_micro_batches(size: int) -> None:
    batches = [rows(sentences()[:2]), rows(sentences()[2:9])]
    train_step = make_train_step()
    counts = set()
    for rank in range(size):
        train_step.world = World(rank, size, is_sharded=True)
        micro_batches = train_step._micro_batches(batches)
        counts.add(len(micro_batches))
    assert len(counts) == 1


def test_collectives_of_one_process_are_no_ops() -> None:
    world, cpu = World(), torch.device("cpu")
    assert world.is_rank_zero
    assert world.all_reduce_max(2, cpu) == 2
    assert world.broadcast(0.5, cpu) == 0.5
    assert world.all_gather(torch.ones(1), cpu) == [torch.ones(1)]
    assert world.all_gather_text("a word") == ["a word"]
    world.barrier()

"""Distributed training in two processes, to be launched by tests.

    python -m tests.train.multiprocess FOLDER STEP SIGNAL

Two processes train; at this STEP the second one gets the SIGNAL, which kills or stops it. With STEP 0 there is no
signal, and they also train with other settings. Results are written to FOLDER. Under torchrun it is one of the two.
"""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist

from softlook.base.errors import TrainingError
from softlook.train import Loss
from softlook.train.distributed import is_rank_zero
from softlook.train.distributed.fsdp import full_tensor
from softlook.train.distributed.world import launch
from softlook.train.objectives import causal_lm
from softlook.train.train_step import Objective
from softlook.weights.meta import unique_tensors
from softlook.weights.tensor_files import write_safetensors
from tests.train.tiny import NO_DROPOUT, batches, make_evaluator, model, run_training

STEPS, HALF = 10, 5
HEARTBEAT_TIMEOUT = 4.0
"""Seconds after which a stopped rank ends the run."""
CONFIGS: dict[str, dict[str, Any]] = {
    "rows of each batch": {},
    "whole batches": {
        "gradient_accumulation_steps": 2,
        "ema_decay": 0.9,
        "evaluate": make_evaluator(),
        "evaluate_every": 4,
    },
    "three batches": {"gradient_accumulation_steps": 3},
    "more processes than rows": {"source": batches(max_tokens=9)},
    "sharded weights": {
        "gradient_accumulation_steps": 2,
        "ema_decay": 0.9,
        "evaluate": make_evaluator(),
        "evaluate_every": 4,
        "parallel": "fsdp",
    },
}


def train_deterministic(config: dict[str, Any], folder: Path | None, **more: Any) -> nn.Module:
    """Train without dropout, in float64, so that only the order of summation differs."""
    return run_training(
        folder, model=model(NO_DROPOUT).double(), **{"max_steps": STEPS, "save_every": 2, **config, **more}
    )[0]


def signal_at(step: int, number: int) -> Objective:
    """An objective that sends a signal to the second process at this step."""
    calls = 0

    def objective(model: nn.Module, batch: Any) -> Loss:
        nonlocal calls
        calls += 1
        if calls == step and dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        return causal_lm()(model, batch)

    return objective


def main(folder: str, step: int, number: int) -> None:
    torch.set_num_threads(1)
    config, path = CONFIGS["rows of each batch"], Path(folder)
    results: dict[str, dict[str, Tensor]] = {}
    results["rows of each batch"] = full_weights(
        train_deterministic(
            config, path / "run", objective=signal_at(step, number), heartbeat_timeout=HEARTBEAT_TIMEOUT
        )
    )
    for name, other in CONFIGS.items():
        if other is not config:
            results[name] = full_weights(train_deterministic(other, None))
    results["started by one"] = full_weights(train_deterministic(CONFIGS["sharded weights"], path / "started by one"))
    train_deterministic(CONFIGS["sharded weights"], path / "started by two", stop_at=HALF)
    if is_rank_zero():
        flat = {f"{config}/{name}": tensor for config, tensors in results.items() for name, tensor in tensors.items()}
        write_safetensors(flat, path / "results")


def full_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights, unsharded. All processes must call it together."""
    return {name: full_tensor(tensor.detach()) for name, tensor in unique_tensors(model).items()}


@contextmanager
def world_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group with this process only, as torchrun would start it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    names = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with monkeypatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, str(value))
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


if __name__ == "__main__":
    arguments = sys.argv[1], int(sys.argv[2]), signal.Signals[sys.argv[3]]
    try:
        main(*arguments) if "LOCAL_RANK" in os.environ else launch(main, 2, *arguments)
    except TrainingError as error:
        sys.exit(f"error: {error}")

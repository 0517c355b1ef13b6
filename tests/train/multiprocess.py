"""Several processes that learn as one, to be launched by tests.

    python -m tests.train.multiprocess FOLDER STEP SIGNAL

Two processes train; at this STEP the second one gets the SIGNAL that kills or stops it. Where STEP is 0 nobody does,
and they train in other ways too. What came of it is left in FOLDER. Under torchrun it is one of two processes itself.
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
SILENCE = 4.0
"""Seconds until somebody who is stopped is given up."""
WAYS: dict[str, dict[str, Any]] = {
    "rows of each batch": {},
    "whole batches": {
        "gradient_accumulation_steps": 2,
        "ema_decay": 0.9,
        "evaluate": make_evaluator(),
        "evaluate_every": 4,
    },
    "three batches": {"gradient_accumulation_steps": 3},
    "more processes than rows": {"source": batches(max_tokens=9)},
    "weights in parts": {
        "gradient_accumulation_steps": 2,
        "ema_decay": 0.9,
        "evaluate": make_evaluator(),
        "evaluate_every": 4,
        "parallel": "fsdp",
    },
}


def calm(way: dict[str, Any], folder: Path | None, **more: Any) -> nn.Module:
    """A run without dropout, in double precision, so that nothing but the order of additions differs."""
    return run_training(
        folder, model=model(NO_DROPOUT).double(), **{"max_steps": STEPS, "save_every": 2, **way, **more}
    )[0]


def dying(step: int, number: int) -> Objective:
    """The second process gets a signal at this step."""
    made = 0

    def objective(model: nn.Module, batch: Any) -> Loss:
        nonlocal made
        made += 1
        if made == step and dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        return causal_lm()(model, batch)

    return objective


def main(folder: str, step: int, number: int) -> None:
    torch.set_num_threads(1)
    way, where = WAYS["rows of each batch"], Path(folder)
    done: dict[str, dict[str, Tensor]] = {}
    done["rows of each batch"] = kept(
        calm(way, where / "run", objective=dying(step, number), heartbeat_timeout=SILENCE)
    )
    for name, other in WAYS.items():
        if other is not way:
            done[name] = kept(calm(other, None))
    done["begun by one"] = kept(calm(WAYS["weights in parts"], where / "begun by one"))
    calm(WAYS["weights in parts"], where / "begun by two", stop_at=HALF)
    if is_rank_zero():
        flat = {f"{way}/{name}": tensor for way, tensors in done.items() for name, tensor in tensors.items()}
        write_safetensors(flat, where / "done")


def kept(model: nn.Module) -> dict[str, Tensor]:
    """All weights, whole. All processes ask for them at once."""
    return {name: full_tensor(tensor.detach()) for name, tensor in unique_tensors(model).items()}


@contextmanager
def world_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if torchrun had started one process: this one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
        sys.exit(f"told: {error}")

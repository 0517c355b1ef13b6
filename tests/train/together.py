"""Several processes that learn as one, to be launched by tests.

    python -m tests.train.together FOLDER KILLED_AT

Two processes train; where KILLED_AT is a step, the second one is killed there. Afterwards, and where nobody is killed,
they train in other ways too. What came of it is left in FOLDER.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from softlook.base.errors import TrainingError
from softlook.train import Loss
from softlook.train.distributed import launch
from softlook.train.objectives import language
from softlook.train.ranks import is_first
from softlook.train.sharding import whole
from softlook.train.step import Objective
from softlook.weights.files import write_file
from softlook.weights.hollow import own_tensors
from tests.train.tiny import CALM, batches, look, model, trained

STEPS, HALF = 10, 5
WAYS: dict[str, dict[str, Any]] = {
    "rows of each batch": {},
    "whole batches": {"accumulate": 2, "average": 0.9, "evaluate": look(), "evaluate_every": 4},
    "three batches": {"accumulate": 3},
    "more processes than rows": {"source": batches(most=9)},
    "weights in parts": {"accumulate": 2, "average": 0.9, "evaluate": look(), "evaluate_every": 4, "parallel": "fsdp"},
}


def calm(way: dict[str, Any], folder: Path | None, **more: Any) -> nn.Module:
    """A run without dropout, in double precision, so that nothing but the order of additions differs."""
    return trained(folder, model=model(CALM).double(), **{"steps": STEPS, "save_every": 2, **way, **more})[0]


def dying(step: int | None) -> Objective:
    """The second process is killed at this step."""
    made = 0

    def objective(model: nn.Module, batch: Any) -> Loss:
        nonlocal made
        made += 1
        if made == step and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return language()(model, batch)

    return objective


def main(folder: str, killed_at: int) -> None:
    torch.set_num_threads(1)
    way, where = WAYS["rows of each batch"], Path(folder)
    done: dict[str, dict[str, Tensor]] = {}
    done["rows of each batch"] = kept(calm(way, where / "run", objective=dying(killed_at or None)))
    for name, other in WAYS.items():
        if other is not way:
            done[name] = kept(calm(other, None))
    done["begun by one"] = kept(calm(WAYS["weights in parts"], where / "begun by one"))
    calm(WAYS["weights in parts"], where / "begun by two", stop_at=HALF)
    if is_first():
        flat = {f"{way}/{name}": tensor for way, tensors in done.items() for name, tensor in tensors.items()}
        write_file(flat, where / "done")


def kept(model: nn.Module) -> dict[str, Tensor]:
    """All weights, whole. All processes ask for them at once."""
    return {name: whole(tensor.detach()) for name, tensor in own_tensors(model).items()}


if __name__ == "__main__":
    try:
        launch(main, 2, sys.argv[1], int(sys.argv[2]))
    except TrainingError as fault:
        sys.exit(f"told: {fault}")

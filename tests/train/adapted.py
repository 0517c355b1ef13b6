"""A small model with adapters, for tests; run as a program, two processes teach it as one.

python -m tests.train.adapted FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softlook.blocks.lora import add_lora
from softlook.models import GPT
from softlook.train.distributed import launch
from tests.train.tiny import CALM, look, model, trained

STEPS = 12
TOGETHER: dict[str, Any] = {"steps": 8, "accumulate": 2, "average": 0.9, "evaluate": look(), "evaluate_every": 4}
"""A run whose updates can be dealt out to two."""


def adapted(base: GPT | None = None, *, seed: int = 0, **settings: Any) -> GPT:
    """The same model each time; the seed says where adapters, and the last norm, which learns whole, begin."""
    made = base or model()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        add_lora(made, **{"rank": 2, "dropout": 0.1, "whole": ["norm"], **settings})
        nn.init.uniform_(made.norm.weight, 0.5, 1.5)  # pyright: ignore
    return made


def run(folder: Path | None, **settings: Any) -> tuple[nn.Module, Any]:
    """A run. One that goes on is given other adapters than it began with: nobody keeps those but the run."""
    seed = 1 if folder is not None and folder.exists() else 0
    return trained(folder, **{"model": adapted(seed=seed), "steps": STEPS, "save_every": 100, **settings})


def calm(folder: Path, **more: Any) -> None:
    """A run without dropout, in double precision, so that nothing but the order of additions differs."""
    run(folder, model=adapted(model(CALM).double(), dropout=0.0), **TOGETHER, **more)


def main(folder: str) -> None:
    torch.set_num_threads(1)
    calm(Path(folder) / "ddp")
    calm(Path(folder) / "fsdp", parallel="fsdp", stop_at=4)
    calm(Path(folder) / "fsdp", parallel="fsdp")


if __name__ == "__main__":
    launch(main, 2, sys.argv[1])

"""A small model with adapters, for tests; run as a program, two processes teach it as one.

python -m tests.train.lora_runs FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softlook.blocks.lora import add_lora
from softlook.models import GPT
from softlook.train.distributed.world import launch
from tests.train.tiny import NO_DROPOUT, make_evaluator, model, run_training

STEPS = 12
TOGETHER: dict[str, Any] = {
    "max_steps": 8,
    "gradient_accumulation_steps": 2,
    "ema_decay": 0.9,
    "evaluate": make_evaluator(),
    "evaluate_every": 4,
}
"""A run whose updates can be dealt out to two."""


def adapted(base: GPT | None = None, *, seed: int = 0, **settings: Any) -> GPT:
    """The same model each time; the seed says where adapters, and the last norm, which learns whole, begin."""
    made = base or model()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        add_lora(made, **{"rank": 2, "dropout": 0.1, "modules_to_save": ["final_norm"], **settings})
        nn.init.uniform_(made.final_norm.weight, 0.5, 1.5)  # pyright: ignore
    return made


def run(folder: Path | None, **settings: Any) -> tuple[nn.Module, Any]:
    """A run. One that goes on is given other adapters than it began with: nobody keeps those but the run."""
    seed = 1 if folder is not None and folder.exists() else 0
    return run_training(folder, **{"model": adapted(seed=seed), "max_steps": STEPS, "save_every": 100, **settings})


def calm(folder: Path, **more: Any) -> None:
    """A run without dropout, in double precision, so that nothing but the order of additions differs."""
    run(folder, model=adapted(model(NO_DROPOUT).double(), dropout=0.0), **TOGETHER, **more)


def main(folder: str) -> None:
    torch.set_num_threads(1)
    calm(Path(folder) / "ddp")
    calm(Path(folder) / "fsdp", parallel="fsdp", stop_at=4)
    calm(Path(folder) / "fsdp", parallel="fsdp")


if __name__ == "__main__":
    launch(main, 2, sys.argv[1])

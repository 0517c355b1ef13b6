"""A small model with LoRA adapters, for tests. Run as a program, two processes train it.

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
DISTRIBUTED: dict[str, Any] = {
    "max_steps": 8,
    "gradient_accumulation_steps": 2,
    "ema_decay": 0.9,
    "evaluate": make_evaluator(),
    "evaluate_every": 4,
}
"""A run whose batches can be split between two processes."""


def lora_model(base: GPT | None = None, *, seed: int = 0, **settings: Any) -> GPT:
    """The same base model each time; the seed determines the adapters and the final norm, which is trained in full."""
    result = base or model()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        add_lora(result, **{"rank": 2, "dropout": 0.1, "modules_to_save": ["final_norm"], **settings})
        nn.init.uniform_(result.final_norm.weight, 0.5, 1.5)  # pyright: ignore
    return result


def run(folder: Path | None, **settings: Any) -> tuple[nn.Module, Any]:
    """Train. A resumed run starts with other adapters than at first: the right ones must come from its checkpoint."""
    seed = 1 if folder is not None and folder.exists() else 0
    return run_training(folder, **{"model": lora_model(seed=seed), "max_steps": STEPS, "save_every": 100, **settings})


def run_deterministic(folder: Path, **more: Any) -> None:
    """Train without dropout, in float64, so that only the order of summation differs."""
    run(folder, model=lora_model(model(NO_DROPOUT).double(), dropout=0.0), **DISTRIBUTED, **more)


def main(folder: str) -> None:
    torch.set_num_threads(1)
    run_deterministic(Path(folder) / "ddp")
    run_deterministic(Path(folder) / "fsdp", parallel="fsdp", stop_at=4)
    run_deterministic(Path(folder) / "fsdp", parallel="fsdp")


if __name__ == "__main__":
    launch(main, 2, sys.argv[1])

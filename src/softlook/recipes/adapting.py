"""LoRA in a run: who may ask for it, which weights it leaves to learn, and what it leaves behind."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from softlook.base.errors import ConfigError, DiskError, WeightsError
from softlook.blocks.lora import add_lora, lora_layers
from softlook.recipes.settings import Lora
from softlook.recipes.told import Told
from softlook.weights.hugging_face import CONFIG
from softlook.weights.peft import to_peft

log = logging.getLogger("softlook.recipes")
ADAPTER = "adapter"
"""The folder of a run that holds what was learned alone, for PEFT."""
ALL_LEARN, ADAPTERS_LEARN = 5e-5, 5e-4
"""Learning rates from trained weights: adapters begin at nothing, and want steps about ten times as large."""


def check_lora(asked: Told[Any]) -> None:
    """Adapters want weights to be added to, and a rank."""
    told = [name for name in asked.values if name.startswith("lora.")]
    if told and "lora.rank" not in told:
        raise ConfigError(f"{told[0]} does nothing by itself. Say how wide the adapters are: --lora.rank 8")
    if asked.get("lora.rank") and not asked.get("from"):
        raise ConfigError(
            "LoRA adapts weights that are there already, and there are none. "
            "Say which with --from: a run, a checkpoint or a folder of Hugging Face's."
        )


def tuning_rate(asked: Told[Any]) -> float:
    """The learning rate to go on with from trained weights."""
    return ADAPTERS_LEARN if asked.get("lora.rank") else ALL_LEARN


def adapted(model: Any, lora: Lora, *, before: nn.Module | None = None, whole: Sequence[str] = ()) -> Any:
    """The model itself; with LoRA, frozen but for adapters, what `before` did not have, and the parts in `whole`."""
    if lora.rank:
        known = {name: p.shape for name, p in (model if before is None else before).named_parameters()}
        new = [name for name, p in model.named_parameters() if known.get(name) != p.shape]
        add_lora(model, lora.rank, alpha=lora.alpha, dropout=lora.dropout, targets=lora.targets, whole=[*new, *whole])
    return model


def leave_adapters(model: nn.Module, run: Path, base: Path | None) -> None:
    """Keep the adapters alone in the run's folder, in place of older ones, where PEFT knows such a model."""
    if not lora_layers(model):
        return
    shutil.rmtree(run / ADAPTER, ignore_errors=True)
    try:
        to_peft(model, run / ADAPTER, base=base if base is not None and (base / CONFIG).is_file() else None)
    except DiskError:
        raise
    except WeightsError as fault:
        log.debug(f"The adapters are not kept alone: {fault}")

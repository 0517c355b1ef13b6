"""Pretrained weights and LoRA: loading, new heads, adapters."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any

from torch import nn

from softlook.base.errors import ConfigError, DiskError, WeightsError
from softlook.blocks.lora import add_lora, lora_layers
from softlook.recipes.config.autosize import training_tokens
from softlook.recipes.config.resolve import ConfigOverrides
from softlook.recipes.config.schema import LoraConfig
from softlook.recipes.inference.pipeline import replace_head as replace_head
from softlook.weights.block_quantized import dequantize_layers
from softlook.weights.checkpoint import load_auto as load_auto
from softlook.weights.hugging_face import CONFIG_FILE, to_peft

log = logging.getLogger("softlook.recipes")
ADAPTER_DIR = "adapter"
"""The subfolder of a run directory that holds the LoRA adapters in PEFT's format."""
FINE_TUNING_LR, SHORT_FINE_TUNING_LR, LORA_LR = 5e-5, 1.5e-4, 5e-4
"""Learning rates from pretrained weights: for thousands of steps, for hundreds, and for LoRA, which starts at zero."""

FINE_TUNING_EPOCHS, MAX_FINE_TUNING_EPOCHS, FINE_TUNING_TOKENS = 4, 10, 2e6
"""Epochs from pretrained weights, of an encoder with a new head; more while the total stays below so many tokens."""


def load_pretrained(folder: Path, allowed: type | UnionType, task: str, *, vocab_size: int | None = None) -> Any:
    """Load a model in float32, dequantized; raise an error if it is not of an allowed class."""
    model = dequantize_layers(load_auto(folder)).float()
    if not isinstance(model, allowed):
        raise WeightsError(
            f"{folder} contains a {type(model).__name__}, which cannot be trained to {task}. "
            "Initialize from another model, or none."
        )
    own = getattr(model.config, "vocab_size", vocab_size)
    if vocab_size is not None and own is not None and own < vocab_size:
        raise WeightsError(
            f"{folder} has {own:,} tokens in its vocabulary, the tokenizer {vocab_size:,}. Use the model's tokenizer."
        )
    return model


def fine_tuning_lr(overrides: ConfigOverrides[Any], *, is_short: bool = False) -> float:
    """The default learning rate from pretrained weights."""
    if overrides.get("lora.rank"):
        return LORA_LR
    return SHORT_FINE_TUNING_LR if is_short else FINE_TUNING_LR


def fine_tuning_tokens(tokens: float) -> float:
    """Training tokens over all epochs from pretrained weights."""
    return training_tokens(tokens, FINE_TUNING_TOKENS, min_epochs=FINE_TUNING_EPOCHS, max_epochs=MAX_FINE_TUNING_EPOCHS)


def check_lora(overrides: ConfigOverrides[Any]) -> None:
    """Raise an error if LoRA is configured without a rank or without pretrained weights."""
    given = [name for name in overrides.values if name.startswith("lora.")]
    if given and "lora.rank" not in given:
        raise ConfigError(f"{given[0]} has no effect without a rank. Set one: --lora.rank 8")
    if overrides.get("lora.rank") and not overrides.get("init_from"):
        raise ConfigError(
            "LoRA needs pretrained weights. Set --init-from to a run, a checkpoint or a Hugging Face folder."
        )


def apply_lora(
    model: Any, lora: LoraConfig, *, pretrained: nn.Module | None = None, trainable: Sequence[str] = ()
) -> Any:
    """Add LoRA adapters, if configured, and freeze the rest.

    Parameters that `pretrained` does not have, and modules in `trainable`, are trained in full.
    """
    if lora.rank:
        known = {name: p.shape for name, p in (model if pretrained is None else pretrained).named_parameters()}
        new = [name for name, p in model.named_parameters() if known.get(name) != p.shape]
        add_lora(
            model,
            lora.rank,
            alpha=lora.alpha,
            dropout=lora.dropout,
            target_modules=lora.target_modules,
            modules_to_save=[*new, *trainable],
        )
    return model


def export_adapters(model: nn.Module, run_dir: Path, base: Path | None) -> None:
    """Write the LoRA adapters to the run directory in PEFT's format, if PEFT supports the model."""
    if not lora_layers(model):
        return
    shutil.rmtree(run_dir / ADAPTER_DIR, ignore_errors=True)
    is_folder = base is not None and (base / CONFIG_FILE).is_file()
    try:
        to_peft(model, run_dir / ADAPTER_DIR, base=base if is_folder else None)
    except DiskError:
        raise
    except WeightsError as error:
        log.debug(f"The adapters are not exported: {error}")

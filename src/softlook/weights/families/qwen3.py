"""Qwen3: Llama with queries and keys normalised per head, and a window in some layers."""

from typing import Any, Literal

from pydantic import PositiveInt
from torch import nn

from softlook.models.llama import Llama
from softlook.weights.families.llama import (
    HARMLESS,
    architectures,
    bare,
    config_of,
    describe_like,
    has_only,
    ignored,
    rules,
    settle,
)
from softlook.weights.families.qwen2 import QwenLike, describe_windows, windows
from softlook.weights.family import Family


class Qwen3(QwenLike):
    """Hugging Face's Qwen3Config, as far as it changes the numbers."""

    head_dim: PositiveInt | None = 128
    attention_bias: Literal[False] = False
    is_causal: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)


def build(theirs: Qwen3, head: str) -> Llama:
    return Llama(config_of(theirs, head, qk_norm=True, **windows(theirs)))


def describe(model: Llama) -> dict[str, Any]:
    return describe_like(model, "Qwen3") | {"attention_bias": False} | describe_windows(model)


def writes(model: nn.Module) -> bool:
    return has_only(model, "qk_norm") and model.config.qk_norm


FAMILY = Family(
    name="Qwen3",
    model_type="qwen3",
    schema=Qwen3,
    harmless=HARMLESS,
    architectures=architectures("Qwen3"),
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)

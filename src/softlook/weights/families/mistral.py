"""Mistral: Llama, where every layer looks back through a window."""

from typing import Any

from pydantic import PositiveInt
from torch import nn

from softlook.models.llama import Llama
from softlook.weights.families.llama import (
    HARMLESS,
    LlamaLike,
    architectures,
    bare,
    config_of,
    describe_like,
    has_only,
    has_window,
    ignored,
    is_even,
    rules,
    settle,
)
from softlook.weights.family import Family


class Mistral(LlamaLike):
    """Hugging Face's MistralConfig, as far as it changes the numbers."""

    intermediate_size: PositiveInt = 14336
    num_key_value_heads: PositiveInt | None = 8
    max_position_embeddings: PositiveInt = 131072
    sliding_window: PositiveInt | None = 4096


def build(theirs: Mistral, head: str) -> Llama:
    return Llama(config_of(theirs, head, window=theirs.sliding_window))


def describe(model: Llama) -> dict[str, Any]:
    return describe_like(model, "Mistral") | {"sliding_window": model.config.window if has_window(model) else None}


def writes(model: nn.Module) -> bool:
    if not has_only(model, "causal"):
        return False
    return len(set(model.reaches)) == 1 if has_window(model) else not is_even(model)


FAMILY = Family(
    name="Mistral",
    model_type="mistral",
    schema=Mistral,
    harmless=HARMLESS,
    architectures=architectures("Mistral"),
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)

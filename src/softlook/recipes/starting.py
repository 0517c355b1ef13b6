"""Weights to start from: a run, a checkpoint of softlook's, or a folder of Hugging Face's."""

from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Any

import torch

from softlook.base.errors import WeightsError
from softlook.weights.anything import load_any as load_any
from softlook.weights.hollow import own_tensors


def started(folder: Path, kinds: type | UnionType, task: str, *, vocab: int | None = None) -> Any:
    """A model to go on with, in single precision; one of another kind is refused."""
    model = load_any(folder).float()
    if not isinstance(model, kinds):
        raise WeightsError(
            f"{folder} holds a {type(model).__name__}, which cannot {task}. Start from another, or none."
        )
    own = getattr(model.config, "vocab", vocab)
    if vocab is not None and own != vocab and own is not None and own < vocab:
        raise WeightsError(
            f"{folder} knows {own:,} tokens, and the tokenizer has {vocab:,}. Take the one it came with."
        )
    return model


def with_head(model: Any, **changes: Any) -> Any:
    """The same weights under another head, which starts from nothing."""
    made = type(model)(replace(model.config, **changes))
    known, places = own_tensors(model), own_tensors(made)
    with torch.no_grad():
        for name, place in places.items():
            if name in known and known[name].shape == place.shape:
                place.copy_(known[name])
    return made

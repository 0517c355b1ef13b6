"""Folders with one thing wrong: a field of a config, or a tensor."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softlook.weights import to_hugging_face
from softlook.weights.architectures import ARCHITECTURES
from softlook.weights.architectures.base import HFArchitecture
from tests.models.tiny import TINY

VALUES: tuple[Any, ...] = (0, -1, 1, 2, 3, 7, 0.5, True, False, "relu", None, [], {}, 10**12)
NAMES = ("GPT", "GPT untied", "Llama", "Bert", "Bert without segments", "Transformer pre-norm", "T5", "T5 v1.1", "ViT")


def families() -> dict[str, tuple[str, HFArchitecture]]:
    """Models that are written for Hugging Face -> how."""
    found: dict[str, tuple[str, HFArchitecture]] = {}
    for name in NAMES:
        model = TINY[name].build()
        family = next((family for family in ARCHITECTURES if family.can_export(model)), None)
        if family is not None:
            found[name] = (name, family)
    return found


def written(name: str, folder: Path) -> Path:
    return to_hugging_face(TINY[name].build(), folder)


def configs(folder: Path, family: HFArchitecture) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(field, value, the whole config): each field that changes numbers, set to values that may make no sense."""
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for field in sorted(family.config_class.model_fields):
        for value in VALUES:
            if content.get(field, ...) != value or type(content.get(field)) is not type(value):
                yield field, value, {**content, field: value}


def tensors(kept: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """(what was done, the tensors): each tensor spoilt in turn, so that nobody could use it."""
    for name, tensor in kept.items():
        rest = {other: value for other, value in kept.items() if other != name}
        yield f"{name} is missing", rest
        yield f"{name} has another name", {**rest, f"{name}.old": tensor}
        yield f"{name} has one row more", {**kept, name: torch.cat([tensor, tensor[:1]])}
        yield f"{name} holds integers", {**kept, name: tensor.long()}
        yield f"{name} holds NaN", {**kept, name: torch.full_like(tensor, torch.nan)}
        if tensor.ndim > 1 and tensor.shape[0] != tensor.shape[1]:
            yield f"{name} is transposed", {**kept, name: tensor.transpose(0, 1).contiguous()}
    yield "one tensor more", {**kept, "stranger": torch.ones(2)}

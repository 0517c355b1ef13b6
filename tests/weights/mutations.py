"""Mutations of a folder: one changed field of a config, or one changed tensor."""

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


def exportable() -> dict[str, tuple[str, HFArchitecture]]:
    """The models that can be exported to Hugging Face, with their architectures."""
    found: dict[str, tuple[str, HFArchitecture]] = {}
    for name in NAMES:
        model = TINY[name].build()
        architecture = next((architecture for architecture in ARCHITECTURES if architecture.can_export(model)), None)
        if architecture is not None:
            found[name] = (name, architecture)
    return found


def export(name: str, folder: Path) -> Path:
    return to_hugging_face(TINY[name].build(), folder)


def mutated_configs(folder: Path, architecture: HFArchitecture) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(field, value, the whole config): each field of the architecture, set to values that may be invalid."""
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for field in sorted(architecture.config_class.model_fields):
        for value in VALUES:
            if content.get(field, ...) != value or type(content.get(field)) is not type(value):
                yield field, value, {**content, field: value}


def mutated_tensors(tensors: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """(description, tensors): each tensor made invalid in turn."""
    for name, tensor in tensors.items():
        rest = {other: value for other, value in tensors.items() if other != name}
        yield f"{name} is missing", rest
        yield f"{name} has another name", {**rest, f"{name}.old": tensor}
        yield f"{name} has one row more", {**tensors, name: torch.cat([tensor, tensor[:1]])}
        yield f"{name} holds integers", {**tensors, name: tensor.long()}
        yield f"{name} holds NaN", {**tensors, name: torch.full_like(tensor, torch.nan)}
        if tensor.ndim > 1 and tensor.shape[0] != tensor.shape[1]:
            yield f"{name} is transposed", {**tensors, name: tensor.transpose(0, 1).contiguous()}
    yield "an extra tensor", {**tensors, "unknown": torch.ones(2)}

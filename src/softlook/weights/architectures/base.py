"""HFArchitecture: how an architecture is imported and exported."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softlook.base.errors import WeightsError
from softlook.blocks.feed_forward import ActivationName
from softlook.weights.schema import HFConfigBase
from softlook.weights.tensor_map import TensorRule, Tensors


@dataclass(frozen=True, kw_only=True)
class HFArchitecture:
    """A supported Hugging Face architecture: data and pure functions, used by `hugging_face.py`.

    To support another one, define an HFArchitecture in a file of this package and add it to `ARCHITECTURES`.
    """

    name: str
    """Display name, such as "GPT-2"."""
    model_type: str
    """`model_type` in config.json, such as "gpt2"."""
    config_class: type[HFConfigBase]
    """The fields of config.json that change what the model computes."""
    ignored_fields: frozenset[str] = frozenset()
    """Other fields of config.json, which may be ignored."""
    head_by_class: Mapping[str, str]
    """Hugging Face class -> softlook's name of its head."""
    base_model_prefix: str = ""
    """Prefix of tensor names; absent if the base model was saved."""
    rename_legacy: Callable[[str], str] = field(default=lambda name: name)
    """Legacy tensor name -> current name."""
    detect_head: Callable[[str, Path, Collection[str]], str] = field(default=lambda head, folder, names: head)
    """(head of the class, folder, tensor names) -> actual head."""
    resolve_tying: Callable[[Any, Tensors], tuple[Any, Tensors]] = field(
        default=lambda config, tensors: (config, tensors)
    )
    """(HF config, HF tensors) -> both, with tied tensors resolved and missing defaults filled in."""
    build: Callable[[Any, str], nn.Module]
    """(HF config, head) -> softlook model."""
    tensor_map: Callable[[Any], list[TensorRule]]
    """softlook model -> rules between its tensors and Hugging Face's."""
    ignored_tensors: Callable[[Any], tuple[str, ...]] = field(default=lambda model: ())
    """softlook model -> patterns of tensor names to ignore: masks, position ids, copies."""
    can_export: Callable[[nn.Module], bool]
    """Whether a softlook model is exported as this architecture."""
    is_base_model: Callable[[Any], bool] = field(default=lambda model: False)
    """Whether a softlook model has no head, so that tensor names are written without the prefix."""
    to_config: Callable[[Any], dict[str, Any]]
    """softlook model -> content of config.json."""
    extra_files: Callable[[Any], dict[str, Any]] = field(default=lambda model: {})
    """softlook model -> other JSON files of the folder: path -> content."""


FROM_HF: dict[str, ActivationName] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
TO_HF: dict[ActivationName, str] = {"gelu_tanh": "gelu_new"}


def from_hf_activation(name: str) -> ActivationName:
    """softlook's name of a Hugging Face activation."""
    if name not in FROM_HF:
        raise WeightsError(f"activation {name!r:.40} is not supported. Supported: {', '.join(FROM_HF)}.")
    return FROM_HF[name]


def to_hf_activation(name: ActivationName) -> str:
    """Hugging Face's name of an activation."""
    return TO_HF.get(name, name)


@dataclass(frozen=True)
class EmbeddingNames:
    """Tensor names of the embeddings and the LM head of an encoder-decoder."""

    shared: str
    source: str
    target: str
    head: str

    def strip_prefix(self, prefix: str) -> "EmbeddingNames":
        names = (self.shared, self.source, self.target, self.head)
        return EmbeddingNames(*(name.removeprefix(prefix) for name in names))


def fill_shared(tensors: Tensors, *names: str) -> Tensors:
    """Fill in missing tensors of a tied group from the first one present.

    >>> fill_shared({"b": torch.ones(1)}, "a", "b")
    {'a': tensor([1.]), 'b': tensor([1.])}
    """
    kept = next((tensors[name] for name in names if name in tensors), None)
    return tensors if kept is None else dict.fromkeys(names, kept) | tensors


def same_tensor(tensors: Tensors, one: str, other: str) -> bool:
    """Whether both tensors exist and are bitwise equal."""
    if one not in tensors or other not in tensors:
        return False
    a, b = tensors[one], tensors[other]
    return a is b or (a.dtype == b.dtype and torch.equal(a, b))


def detect_tying(embedding: str, head: str) -> Callable[[Any, Tensors], tuple[Any, Tensors]]:
    """A `resolve_tying` that unties an LM head which differs from the embedding, as Hugging Face does.

    A config with `tie_word_embeddings: false` requires the head to be in the file.
    """

    def resolve_tying(config: Any, tensors: Tensors) -> tuple[Any, Tensors]:
        both = embedding in tensors and head in tensors
        if config.tie_word_embeddings and both and not same_tensor(tensors, embedding, head):
            config = config.model_copy(update={"tie_word_embeddings": False})
        return config, tensors

    return resolve_tying

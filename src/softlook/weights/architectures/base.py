"""HFArchitecture: how an architecture is imported and exported. Config fields, labels and tied tensors."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.blocks.feed_forward import ActivationName
from softlook.heads.classification import Problem
from softlook.weights.schema import HFConfigBase
from softlook.weights.tensor_map import TensorRule, Tensors, rename_layer


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
    to_config: Callable[[Any], dict[str, Any]]
    """softlook model -> fields of config.json, without model type, class and labels."""
    extra_tensors: Callable[[Any], Tensors] = field(default=lambda model: {})
    """softlook model -> tensors that Hugging Face stores and softlook computes: written, and not read."""
    extra_files: Callable[[Any], dict[str, Any]] = field(default=lambda model: {})
    """softlook model -> other JSON files of the folder: path -> content."""

    def is_base_model(self, model: Any) -> bool:
        """Whether a softlook model has no head, so that tensor names are written without the prefix."""
        return bool(self.base_model_prefix) and getattr(model.config, "head", None) in BASE_HEADS

    def hf_class(self, model: Any) -> str:
        """The Hugging Face class of a softlook model: by its head, else the base model."""
        head, classes = getattr(model.config, "head", None), list(self.head_by_class)
        exact = [name for name in classes if self.head_by_class[name] == head]
        base = [name for name in classes if head in BASE_HEADS and self.head_by_class[name] in BASE_HEADS]
        return (exact + base + classes)[0]

    def config_json(self, model: Any, labels: Sequence[str] = ()) -> dict[str, Any]:
        """The content of config.json for a softlook model; `labels` are the names of its classes."""
        named = {"model_type": self.model_type, "architectures": [self.hf_class(model)]}
        return named | hf_label_fields(model.config, labels) | self.to_config(model)


BASE_HEADS = ("hidden_states", "pooled", "embedding")
"""Heads of Hugging Face's base models."""


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


HF_SIZES = {
    "dim": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "intermediate_size",
}
"""softlook's names of sizes -> the names that most Hugging Face configs use."""
HF_TEXT_SIZES = {"vocab_size": "vocab_size", "context": "max_position_embeddings", **HF_SIZES}


def from_hf_fields(hf_config: HFConfigBase, fields: Mapping[str, str]) -> dict[str, Any]:
    """Fields of a softlook config from a Hugging Face config; `fields` maps softlook's names to Hugging Face's."""
    values = {name: getattr(hf_config, hf_name) for name, hf_name in fields.items()}
    return {name: from_hf_activation(v) if name.endswith("activation") else v for name, v in values.items()}


def to_hf_fields(config: Any, fields: Mapping[str, str]) -> dict[str, Any]:
    """The inverse of `from_hf_fields`; `hidden` is 4 * dim by default."""
    values = {name: getattr(config, name) for name in fields}
    if values.get("hidden", 0) is None:
        values["hidden"] = 4 * config.dim
    return {fields[name]: to_hf_activation(v) if name.endswith("activation") else v for name, v in values.items()}


PROBLEM_TYPES: dict[str | None, Problem | None] = {
    None: None,
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
"""Hugging Face's problem_type -> softlook's."""


class HFLabelConfig(HFConfigBase):
    """Label fields of config.json."""

    id2label: dict[str, Any] | None = None
    num_labels: PositiveInt = 2
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None

    @property
    def classes(self) -> int:
        """Number of classes: that of their names, if given."""
        return len(self.id2label) if self.id2label else self.num_labels


def label_fields(hf_config: HFLabelConfig, head: str) -> dict[str, Any]:
    """Number of classes and problem type, if the head has classes."""
    if head not in ("classification", "token_classification"):
        return {}
    problem = {"problem": PROBLEM_TYPES[hf_config.problem_type]} if head == "classification" else {}
    return {"classes": hf_config.classes, **problem}


def hf_label_fields(config: Any, labels: Sequence[str] = ()) -> dict[str, Any]:
    """Label fields of config.json; default labels: LABEL_0, LABEL_1, ..."""
    count = config.classes if getattr(config, "head", None) in ("classification", "token_classification") else 0
    if labels and (len(labels) != count or len(set(labels)) != count):
        raise WeightsError(f"expected {count} different labels, got {list(labels)!r:.80}")
    if not count:
        return {}
    labels = labels or [f"LABEL_{i}" for i in range(count)]
    problem = next(name for name, own in PROBLEM_TYPES.items() if own == getattr(config, "problem", None))
    return {
        **({} if problem is None else {"problem_type": problem}),
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


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


class HFDecoderConfig(HFLabelConfig):
    """Head fields of config.json shared by all decoders."""

    pad_token_id: int | None = None
    tie_word_embeddings: bool = True


def decoder_heads(name: str) -> dict[str, str]:
    """Hugging Face classes of a decoder -> head."""
    return {
        f"{name}ForCausalLM": "causal_lm",
        f"{name}Model": "hidden_states",
        f"{name}ForSequenceClassification": "classification",
    }


def decoder_head_fields(hf_config: HFDecoderConfig, head: str) -> dict[str, Any]:
    """Head fields of a decoder's config."""
    padding = {"pad_id": hf_config.pad_token_id} if head == "classification" else {}
    return {"head": head, "tie_embeddings": hf_config.tie_word_embeddings, **padding, **label_fields(hf_config, head)}


def hf_decoder_fields(config: Any) -> dict[str, Any]:
    """Head fields of config.json for a decoder."""
    padding = {"pad_token_id": config.pad_id} if config.head == "classification" else {}
    return {"tie_word_embeddings": config.tie_embeddings, **padding}


def decoder_head_rules(config: Any) -> list[TensorRule]:
    """Tensor rules of the head of a decoder."""
    if config.head == "causal_lm" and not config.tie_embeddings:
        return rename_layer("lm_head", "lm_head", "weight")
    return rename_layer("lm_head.to_classes", "score", "weight") if config.head == "classification" else []


def unused_lm_head(model: Any) -> tuple[str, ...]:
    """Pattern of the LM head of a decoder, if it is tied or not used."""
    return (r"lm_head\.weight",) if model.config.tie_embeddings or model.config.head != "causal_lm" else ()

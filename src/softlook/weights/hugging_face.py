"""Import and export of Hugging Face folders."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import merged_tensors
from softlook.weights.architectures import ARCHITECTURES
from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.atomic_folder import atomic_folder, disk_errors
from softlook.weights.meta import build_on_meta, check_depth, fill_computed_buffers, unique_tensors
from softlook.weights.schema import read_json, validate_config
from softlook.weights.sentence_transformers import MODULES_FILE, SentenceConfig
from softlook.weights.structure import check_structure
from softlook.weights.tensor_files import PICKLE_HELP, PICKLE_SUFFIXES, SINGLE_FILE, read_tensors, write_safetensors
from softlook.weights.tensor_map import TensorRule, load_mapped
from softlook.weights.tokenizer_files import copy_tokenizer, export_tokenizer

log = logging.getLogger("softlook.weights")
CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"


@dataclass(frozen=True)
class ImportedModel:
    """A model and its Hugging Face architecture."""

    model: nn.Module
    architecture: str
    """Display name, such as "GPT-2"."""
    head: str
    """softlook's name of the head."""


def from_hugging_face(folder: str | Path) -> nn.Module:
    """Load a folder written by `save_pretrained` as a softlook model, in eval mode.

    The architecture is detected from config.json and logged. Weights keep their dtype.

    >>> from_hugging_face("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder. Expected a folder with config.json ...
    """
    return read_hugging_face(folder).model


def read_hugging_face(folder: str | Path) -> ImportedModel:
    """Like `from_hugging_face`, with the names of architecture and head."""
    folder = Path(folder)
    with disk_errors("read", folder):
        _check_folder(folder)
        config_json = read_json(folder / CONFIG_FILE)
        architecture, class_head = detect_architecture(config_json, folder)
        config = validate_config(
            architecture.config_class, config_json, architecture.ignored_fields, folder / CONFIG_FILE
        )
        check_depth(config.model_dump(), folder / CONFIG_FILE)
        tensors = _rename_legacy(read_tensors(folder), architecture, folder)
        config, tensors = architecture.resolve_tying(config, tensors)
        head = architecture.detect_head(class_head, folder, tensors.keys())
        factory = partial(architecture.build, config, head)
        model = build_on_meta(factory, folder / CONFIG_FILE)
        rules = architecture.tensor_map(model)
        if architecture.base_model_prefix and not any(
            name.startswith(architecture.base_model_prefix) for name in tensors
        ):
            rules = _strip_prefix(architecture.base_model_prefix, rules)  # the base model was saved without a head
        load_mapped(model, tensors, rules, architecture.ignored_tensors(model), folder)
    log.info("%s: %s (%s), loaded as %s", folder, architecture.name, head, type(model).__name__)
    return ImportedModel(fill_computed_buffers(model, factory).eval(), architecture.name, head)


def to_hugging_face(
    model: nn.Module,
    folder: str | Path,
    *,
    tokenizer: str | Path | None = None,
    sentence_config: SentenceConfig | None = None,
    labels: Sequence[str] = (),
    generation_config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model as a new folder for Hugging Face's `from_pretrained`.

    - `tokenizer`: a tokenizer.json to copy into it.
    - `sentence_config`: settings of a sentence-transformers folder.
    - `labels`: class names; default: LABEL_0, LABEL_1, ...
    - `generation_config`: the content of generation_config.json.
    """
    architecture = next((architecture for architecture in ARCHITECTURES if architecture.can_export(model)), None)
    if architecture is None:
        raise WeightsError(
            f"Hugging Face has no architecture for this {type(model).__name__}. "
            f"Supported: {', '.join(architecture.name for architecture in ARCHITECTURES)}."
        )
    check_structure(model)
    rules = architecture.tensor_map(model)
    if architecture.is_base_model(model):
        rules = _strip_prefix(architecture.base_model_prefix, rules)
    tensors, exported = merged_tensors(model, unique_tensors(model)), {}
    for rule in rules:
        exported |= rule.write(tensors)
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    config = {"model_type": architecture.model_type, "dtype": dtype, **architecture.to_config(model)}
    config |= _label_names(labels, config)
    extra_files = architecture.extra_files(model) | (
        {GENERATION_FILE: dict(generation_config)} if generation_config else {}
    )
    if sentence_config is not None and MODULES_FILE in extra_files:
        extra_files |= sentence_config.to_files(model.config.context)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    with atomic_folder(Path(folder)) as partial_folder:
        write_safetensors(exported, partial_folder / SINGLE_FILE)
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), partial_folder)
            config |= export_tokenizer(partial_folder, getattr(model, "mode", ""))
        for name, content in {CONFIG_FILE: config, **extra_files}.items():
            if not (partial_folder / name).parent.is_dir():
                (partial_folder / name).parent.mkdir()
            (partial_folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def _label_names(labels: Sequence[str], config: dict[str, Any]) -> dict[str, Any]:
    if not labels:
        return {}
    if len(labels) != len(config.get("id2label", ())) or len(set(labels)) != len(labels):
        raise WeightsError(f"expected {len(config.get('id2label', ()))} different labels, got {list(labels)!r:.80}")
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def detect_architecture(content: dict[str, Any], folder: Path) -> tuple[HFArchitecture, str]:
    """The architecture that config.json names, and the head of its class."""
    model_type, named = content.get("model_type"), content.get("architectures")
    architecture = next((architecture for architecture in ARCHITECTURES if architecture.model_type == model_type), None)
    if architecture is None:
        supported = ", ".join(f"{architecture.model_type} ({architecture.name})" for architecture in ARCHITECTURES)
        raise WeightsError(
            f"{folder} has model_type {model_type!r:.40}, which is not supported. Supported: {supported}."
        )
    named = named[0] if isinstance(named, list) and named else next(iter(architecture.head_by_class))
    if not isinstance(named, str) or named not in architecture.head_by_class:
        supported = ", ".join(architecture.head_by_class)
        raise WeightsError(f"{folder} holds a {named!r:.60}; supported classes of {architecture.name}: {supported}.")
    return architecture, architecture.head_by_class[named]


def _check_folder(folder: Path) -> None:
    if (folder / "softlook.json").is_file():
        raise WeightsError(f"{folder} is a softlook checkpoint. Use weights.load.")
    if folder.is_dir():
        return
    hint = f"Expected a folder with {CONFIG_FILE} and {SINGLE_FILE}."
    if folder.suffix in PICKLE_SUFFIXES:
        hint = f"It looks like {PICKLE_HELP}."
    if folder.suffix == ".gguf":
        hint = "Load a GGUF file with softlook.weights.from_gguf or `softlook import`."
    raise WeightsError(f"{folder} is not a folder. {hint}")


def _rename_legacy(tensors: dict[str, Tensor], architecture: HFArchitecture, folder: Path) -> dict[str, Tensor]:
    """Rename tensors from legacy names to current ones."""
    names = {name: architecture.rename_legacy(name) for name in tensors}
    twice = [name for name, times in Counter(names.values()).items() if times > 1]
    if twice:
        raise WeightsError(f"{folder} holds {twice[0]!r:.200} twice, under its legacy and its current name")
    return {names[name]: tensor for name, tensor in tensors.items()}


def _strip_prefix(prefix: str, rules: list[TensorRule]) -> list[TensorRule]:
    return [replace(rule, source=rule.source.removeprefix(prefix)) for rule in rules]

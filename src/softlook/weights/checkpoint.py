"""Checkpoints: saving and loading models with checksums.

A checkpoint is a folder with the config, the weights and a manifest with the SHA-256 of each file, checked on load.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import nn

from softlook.base.errors import WeightsError
from softlook.base.version import VERSION
from softlook.blocks.lora import merged_tensors
from softlook.blocks.scaled_linear import folded_tensors
from softlook.weights.atomic_folder import atomic_folder, disk_errors
from softlook.weights.block_quantized import quantized_layers, replace_with_quantized
from softlook.weights.hugging_face import from_hugging_face
from softlook.weights.manifest import (
    BEST_FILE,
    FORMAT_VERSION,
    best_checkpoint,
    unsupported_format,
    verify_manifest,
    write_manifest,
)
from softlook.weights.meta import build_on_meta, check_depth, fill_computed_buffers, load_checked, unique_tensors
from softlook.weights.schema import format_validation_error, read_json, write_json
from softlook.weights.structure import MODELS, check_structure
from softlook.weights.tensor_files import PICKLE_HELP, PICKLE_SUFFIXES, SINGLE_FILE, read_shards, write_safetensors
from softlook.weights.tokenizer_files import copy_tokenizer

CONFIG_FILE = "softlook.json"
QUANTIZED_KEY = "quantized"
"""Key of softlook.json: names of quantized layers -> their block formats."""


def save(
    model: nn.Module,
    path: str | Path,
    *,
    tokenizer: str | Path | None = None,
    extra_files: Mapping[str, Any] | None = None,
) -> Path:
    """Save a model as a new folder. Nothing is overwritten.

    - `tokenizer`: a tokenizer.json to copy into it.
    - `extra_files`: other files: name -> JSON content.

    >>> import tempfile
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(save(model, Path(folder) / "gpt"))
    >>> again.config == model.config
    True
    """
    with atomic_folder(Path(path)) as partial:
        write_config(model, partial)
        tensors = folded_tensors(model, merged_tensors(model, unique_tensors(model)))
        entry = write_safetensors(tensors, partial / SINGLE_FILE)
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), partial)
        for name, content in (extra_files or {}).items():
            write_json(partial / name, content)
        write_manifest(partial, {SINGLE_FILE: entry})
    return Path(path)


def load(path: str | Path) -> nn.Module:
    """Load a model that `save` wrote, in eval mode, after checking every file against its SHA-256.

    For a run directory, loads the best checkpoint.
    """
    folder = Path(path)
    with disk_errors("read", folder):
        folder = best_checkpoint(folder)
        _check_folder(folder)
        stored = read_shards(folder, SINGLE_FILE, verify_manifest(folder, CONFIG_FILE))
        content = read_json(folder / CONFIG_FILE)
        factory = _model_factory(content, folder / CONFIG_FILE)
        model = build_on_meta(factory, folder / CONFIG_FILE)
        replace_with_quantized(model, _quantized_formats(content, folder / CONFIG_FILE))
        load_checked(model, {name: tensor.full() for name, tensor in stored.items()}, folder)
    return fill_computed_buffers(model, factory).eval()


def load_auto(folder: Path) -> nn.Module:
    """Load a model from a run directory (best checkpoint), a checkpoint or a Hugging Face folder.

    >>> load_auto(Path("no/such/folder"))
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder. ...
    """
    if (folder / BEST_FILE).is_file():
        return load(best_checkpoint(folder))
    return load(folder) if (folder / CONFIG_FILE).is_file() else from_hugging_face(folder)


def write_config(model: nn.Module, folder: Path) -> None:
    """Write softlook.json: the class and the config of a model."""
    name = check_structure(model)
    content = {"format": FORMAT_VERSION, "softlook": VERSION, "model": name, "config": asdict(model.config)}  # pyright: ignore[reportArgumentType]
    formats = {name: layer.block_format for name, layer in quantized_layers(model).items()}
    content |= {QUANTIZED_KEY: formats} if formats else {}
    write_json(folder / CONFIG_FILE, content)


def _quantized_formats(content: dict[str, Any], path: Path) -> dict[str, str]:
    """Names of quantized layers -> their block formats."""
    formats = content.get(QUANTIZED_KEY, {})
    if not isinstance(formats, dict) or not all(isinstance(value, str) for value in formats.values()):
        raise WeightsError(f"{path}: {QUANTIZED_KEY} must hold the block formats of layers by name")
    return formats


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        hint = f" It looks like {PICKLE_HELP}." if folder.suffix in PICKLE_SUFFIXES else ""
        raise WeightsError(f"{folder} is not a folder. Expected a folder written by weights.save.{hint}")
    if (folder / CONFIG_FILE).is_file():
        return
    if (folder / "config.json").is_file():
        raise WeightsError(
            f"{folder} is a Hugging Face folder, not a softlook checkpoint. "
            "Use weights.from_hugging_face, or convert it with `softlook import`."
        )
    raise WeightsError(f"{folder} holds no {CONFIG_FILE}. Expected a folder written by weights.save.")


def _model_factory(content: dict[str, Any], path: Path) -> Callable[[], nn.Module]:
    """A function that builds the model described by softlook.json."""
    name, fields = content.get("model"), content.get("config")
    if content.get("format") != FORMAT_VERSION:
        raise WeightsError(unsupported_format(path, content.get("format")))
    if not isinstance(name, str) or name not in MODELS or not isinstance(fields, dict):
        raise WeightsError(f"{path} has model {name!r:.40}; supported: {', '.join(MODELS)}")
    model_class, config_class = MODELS[name]
    unknown = sorted(fields.keys() - set(config_class.__dataclass_fields__))
    if unknown:
        raise WeightsError(f"{path}: unknown fields of {name}: {', '.join(unknown):.200}")
    check_depth(fields, path)
    try:
        config = TypeAdapter(config_class).validate_json(json.dumps(fields, allow_nan=False), strict=True)
    except ValidationError as error:
        raise WeightsError(f"{path}: {format_validation_error(error)}") from None
    except ValueError as error:
        raise WeightsError(f"{path}: {error}") from None
    return lambda: model_class(config)

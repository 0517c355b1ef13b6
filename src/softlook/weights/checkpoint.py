"""softlook's own checkpoints: a folder with the config, the weights, and a digest of each file, checked on load."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import nn

from softlook.base.errors import WeightsError
from softlook.base.version import VERSION
from softlook.blocks.lora import plain_tensors
from softlook.weights.files import HOW_TO_CONVERT, PICKLES, SINGLE, write_file
from softlook.weights.folders import new_folder, told
from softlook.weights.hollow import check_depth, complete, fill, hollow, own_tensors
from softlook.weights.known import MODELS
from softlook.weights.manifest import FORMAT, verify, write_manifest
from softlook.weights.parts import read_parts
from softlook.weights.runs import best_of
from softlook.weights.schema import first_fault, read_json
from softlook.weights.structure import check_structure
from softlook.weights.tokenizer import copy_tokenizer

CONFIG = "softlook.json"


def save(
    model: nn.Module,
    path: str | Path,
    *,
    tokenizer: str | Path | None = None,
    beside: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model as a new folder. Nothing is overwritten.

    - `tokenizer`: a tokenizer.json to keep beside it.
    - `beside`: what else to keep, as JSON: file name -> content.

    >>> import tempfile
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(save(model, Path(folder) / "gpt"))
    >>> again.config == model.config
    True
    """
    with new_folder(Path(path)) as made:
        describe(model, made)
        write_file(plain_tensors(model, own_tensors(model)), made / SINGLE)
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), made)
        for name, content in (beside or {}).items():
            (made / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        write_manifest(made)
    return Path(path)


def load(path: str | Path) -> nn.Module:
    """The model in a folder that `save` wrote, ready to answer, after every byte was checked against its digest.

    Of a run that `softlook.train` made, it is the best one.
    """
    folder = Path(path)
    with told("read", folder):
        folder = best_of(folder)
        _check_folder(folder)
        kept = read_parts(folder, SINGLE, verify(folder, CONFIG))
        make = _maker(read_json(folder / CONFIG), folder / CONFIG)
        model = hollow(make, folder / CONFIG)
        fill(model, {name: stored.whole() for name, stored in kept.items()}, folder)
    return complete(model, make).eval()


def describe(model: nn.Module, folder: Path) -> None:
    """Write down which model this is, and its config."""
    name = check_structure(model)
    content = {"format": FORMAT, "softlook": VERSION, "model": name, "config": asdict(model.config)}  # pyright: ignore[reportArgumentType]
    (folder / CONFIG).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        hint = f" It looks like {HOW_TO_CONVERT}." if folder.suffix in PICKLES else ""
        raise WeightsError(f"{folder} is not a folder. Give the folder that weights.save wrote.{hint}")
    if (folder / CONFIG).is_file():
        return
    if (folder / "config.json").is_file():
        raise WeightsError(
            f"{folder} is not a checkpoint of softlook's but a folder of Hugging Face's. "
            "Use weights.from_hugging_face, or `softlook import` once."
        )
    raise WeightsError(f"{folder} holds no {CONFIG}. Give the folder that weights.save wrote.")


def _maker(content: dict[str, Any], where: Path) -> Callable[[], nn.Module]:
    """What makes the model that a file describes."""
    name, fields = content.get("model"), content.get("config")
    if content.get("format") != FORMAT:
        raise WeightsError(f"{where} has format {content.get('format')!r:.20}; this softlook reads format {FORMAT}")
    if not isinstance(name, str) or name not in MODELS or not isinstance(fields, dict):
        raise WeightsError(f"{where} names the model {name!r:.40}; known are {', '.join(MODELS)}")
    known = MODELS[name]
    unknown = sorted(fields.keys() - set(known.config.__dataclass_fields__))
    if unknown:
        raise WeightsError(f"{where}: {name} has no such fields: {', '.join(unknown):.200}")
    check_depth(fields, where)
    try:
        config = TypeAdapter(known.config).validate_json(json.dumps(fields, allow_nan=False), strict=True)
    except ValidationError as fault:
        raise WeightsError(f"{where}: {first_fault(fault)}") from None
    except ValueError as fault:
        raise WeightsError(f"{where}: {fault}") from None
    return lambda: known.model(config)

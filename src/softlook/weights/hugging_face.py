"""Folders as Hugging Face's `save_pretrained` writes them, read and written."""

import json
import logging
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import plain_tensors
from softlook.weights.families import FAMILIES
from softlook.weights.family import Family
from softlook.weights.files import HOW_TO_CONVERT, PICKLES, SINGLE, read_tensors, write_file
from softlook.weights.folders import new_folder, told
from softlook.weights.hollow import check_depth, complete, hollow, own_tensors
from softlook.weights.renaming import Rule, read_into
from softlook.weights.schema import read_json, validated
from softlook.weights.sentence import MODULES
from softlook.weights.sentence_settings import SentenceSettings
from softlook.weights.structure import check_structure
from softlook.weights.tokenizer import copy_tokenizer
from softlook.weights.wrapping import wrap

log = logging.getLogger("softlook.weights")
CONFIG = "config.json"


@dataclass(frozen=True)
class Read:
    """A model, and what it was called where it came from."""

    model: nn.Module
    architecture: str
    """As people say it: "GPT-2"."""
    head: str
    """What it says, in our words."""


def from_hugging_face(folder: str | Path) -> nn.Module:
    """The model in a folder that `save_pretrained` wrote, as one of softlook's, ready to answer.

    The architecture is recognised from config.json, and said in the log. Weights keep their precision.

    >>> from_hugging_face("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder. Give the folder that holds config.json ...
    """
    return read_folder(folder).model


def read_folder(folder: str | Path) -> Read:
    """As `from_hugging_face`, with the names that go with the model."""
    folder = Path(folder)
    with told("read", folder):
        _check_folder(folder)
        content = read_json(folder / CONFIG)
        family, named = recognised(content, folder)
        config = validated(family.schema, content, family.harmless, folder / CONFIG)
        check_depth(config.model_dump(), folder / CONFIG)
        theirs = _modern(read_tensors(folder), family, folder)
        config, theirs = family.settle(config, theirs)
        head = family.head(named, folder, theirs.keys())
        make = partial(family.build, config, head)
        model = hollow(make, folder / CONFIG)
        rules = family.rules(model)
        if family.prefix and not any(name.startswith(family.prefix) for name in theirs):
            rules = _without(family.prefix, rules)  # the bare model was saved, without its head
        read_into(model, theirs, rules, family.ignored(model), folder)
    log.info("%s: %s (%s), read as softlook's %s", folder, family.name, head, type(model).__name__)
    return Read(complete(model, make).eval(), family.name, head)


def to_hugging_face(
    model: nn.Module,
    folder: str | Path,
    *,
    tokenizer: str | Path | None = None,
    sentence: SentenceSettings | None = None,
) -> Path:
    """Write a model as a new folder that Hugging Face's `from_pretrained` reads.

    - `tokenizer`: a tokenizer.json to put beside it.
    - `sentence`: how texts become vectors, where the folder becomes one of sentence-transformers'.
    """
    family = next((family for family in FAMILIES if family.writes(model)), None)
    if family is None:
        raise WeightsError(
            f"Hugging Face has no architecture for this {type(model).__name__}. "
            f"It has for {', '.join(family.name for family in FAMILIES)}."
        )
    check_structure(model)
    rules = family.rules(model)
    if family.bare(model):
        rules = _without(family.prefix, rules)
    ours, theirs = plain_tensors(model, own_tensors(model)), {}
    for rule in rules:
        theirs |= rule.write(ours)
    kind = str(next(model.parameters()).dtype).removeprefix("torch.")
    config = {"model_type": family.model_type, "dtype": kind, **family.describe(model)}
    beside = family.beside(model)
    if sentence is not None and MODULES in beside:
        beside |= sentence.files(model.config.context)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    with new_folder(Path(folder)) as made:
        write_file(theirs, made / SINGLE)
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), made)
            config |= wrap(made, getattr(model, "mode", ""))
        for name, content in {CONFIG: config, **beside}.items():
            if not (made / name).parent.is_dir():
                (made / name).parent.mkdir()
            (made / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def recognised(content: dict[str, Any], folder: Path) -> tuple[Family, str]:
    """The family that config.json names, and the head its class puts on."""
    model_type, named = content.get("model_type"), content.get("architectures")
    family = next((family for family in FAMILIES if family.model_type == model_type), None)
    if family is None:
        known = ", ".join(f"{family.model_type} ({family.name})" for family in FAMILIES)
        raise WeightsError(f"{folder} says it is {model_type!r:.40}, which softlook does not know. Known are: {known}.")
    named = named[0] if isinstance(named, list) and named else next(iter(family.architectures))
    if not isinstance(named, str) or named not in family.architectures:
        known = ", ".join(family.architectures)
        raise WeightsError(f"{folder} holds a {named!r:.60}; of {family.name}, softlook knows {known}.")
    return family, family.architectures[named]


def _check_folder(folder: Path) -> None:
    if (folder / "softlook.json").is_file():
        raise WeightsError(f"{folder} is a checkpoint of softlook's. Use weights.load.")
    if folder.is_dir():
        return
    hint = f"Give the folder that holds {CONFIG} and {SINGLE}."
    if folder.suffix in PICKLES:
        hint = f"It looks like {HOW_TO_CONVERT}."
    if folder.suffix == ".gguf":
        hint = "A GGUF file is read by softlook.weights.gguf.from_gguf, and by `softlook import`."
    raise WeightsError(f"{folder} is not a folder. {hint}")


def _modern(tensors: dict[str, Tensor], family: Family, folder: Path) -> dict[str, Tensor]:
    """The same tensors under the names that are used today."""
    names = {name: family.modern(name) for name in tensors}
    twice = [name for name, times in Counter(names.values()).items() if times > 1]
    if twice:
        raise WeightsError(f"{folder} holds {twice[0]!r:.200} twice, under its old name and its new one")
    return {names[name]: tensor for name, tensor in tensors.items()}


def _without(prefix: str, rules: list[Rule]) -> list[Rule]:
    return [replace(rule, theirs=rule.theirs.removeprefix(prefix)) for rule in rules]

"""Folders as Hugging Face's `save_pretrained` writes them, read and written."""

import json
import logging
from pathlib import Path
from typing import Any

from torch import nn

from softlook.base.errors import WeightsError
from softlook.weights.families import FAMILIES
from softlook.weights.family import Family
from softlook.weights.files import SINGLE, check_finite, read_tensors, write_file
from softlook.weights.folders import new_folder
from softlook.weights.renaming import Rule, Same, Stacked, own_tensors, read_into
from softlook.weights.schema import read_json, validated
from softlook.weights.tokenizer import copy_tokenizer

log = logging.getLogger("softlook.weights")


def from_hugging_face(folder: str | Path) -> nn.Module:
    """The model in a folder that `save_pretrained` wrote, as one of softlook's, ready to answer.

    The architecture is recognised from config.json, and said in the log. Weights keep their precision.

    >>> from_hugging_face("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such holds no folder...
    """
    folder = Path(folder)
    content = read_json(folder / "config.json")
    family, head = recognised(content, folder)
    model = family.build(validated(family.schema, content, family.harmless, folder / "config.json"), head)
    theirs = read_tensors(folder)
    check_finite(theirs, folder)
    rules = family.rules(model)
    if family.prefix and not any(name.startswith(family.prefix) for name in theirs):
        rules = [_without(family.prefix, rule) for rule in rules]  # the bare model was saved, without its head
    read_into(model, theirs, rules, family.ignored(model), folder)
    log.info("%s: %s (%s), read as softlook's %s", folder, family.name, head, type(model).__name__)
    return model.eval()


def to_hugging_face(model: nn.Module, folder: str | Path, *, tokenizer: str | Path | None = None) -> Path:
    """Write a model as a new folder that Hugging Face's `from_pretrained` reads; `tokenizer` is a tokenizer.json."""
    family = next((family for family in FAMILIES if family.writes(model)), None)
    if family is None:
        raise WeightsError(
            f"Hugging Face has no architecture for this {type(model).__name__}. "
            f"It has for {', '.join(family.name for family in FAMILIES)}."
        )
    ours, theirs = own_tensors(model), {}
    for rule in family.rules(model):
        theirs |= rule.write(ours)
    kind = str(next(model.parameters()).dtype).removeprefix("torch.")
    config = {"model_type": family.model_type, "dtype": kind, **family.describe(model)}
    with new_folder(Path(folder)) as made:
        write_file(theirs, made / SINGLE)
        (made / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), made)
    return Path(folder)


def recognised(content: dict[str, Any], folder: Path) -> tuple[Family, str]:
    """The family that config.json names, and the head its class puts on."""
    model_type, named = content.get("model_type"), content.get("architectures")
    family = next((family for family in FAMILIES if family.model_type == model_type), None)
    if family is None:
        known = ", ".join(f"{family.model_type} ({family.name})" for family in FAMILIES)
        raise WeightsError(f"{folder} says it is {model_type!r:.40}, which softlook does not know. Known are: {known}.")
    if not isinstance(named, list) or not named:
        named = [next(iter(family.architectures))]
    if named[0] not in family.architectures:
        known = ", ".join(family.architectures)
        raise WeightsError(f"{folder} holds a {named[0]!r:.60}; of {family.name}, softlook knows {known}.")
    return family, family.architectures[named[0]]


def _without(prefix: str, rule: Rule) -> Rule:
    theirs = rule.theirs.removeprefix(prefix)
    if isinstance(rule, Stacked):
        return Stacked(rule.ours, theirs, rule.on_its_side)
    return Same(rule.ours, theirs, rule.on_its_side)

"""One architecture of Hugging Face's: its config, its names, and which of our models it is."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from softlook.weights.renaming import Rule, Tensors
from softlook.weights.schema import Closed


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture, both ways. Everything here is data or a pure function; `hugging_face.py` does the work."""

    name: str
    """As people say it: "GPT-2"."""
    model_type: str
    """As config.json says it: "gpt2"."""
    schema: type[Closed]
    """The fields of config.json that change what the model computes."""
    harmless: frozenset[str] = frozenset()
    """Fields of config.json that do not: how it was trained, or how it is to be decoded."""
    architectures: Mapping[str, str]
    """Hugging Face's class -> the head it puts on, in our words."""
    prefix: str = ""
    """What the names begin with, unless the bare model was saved."""
    modern: Callable[[str], str] = field(default=lambda name: name)
    """A tensor's name as it may once have been written -> as it is written today."""
    head: Callable[[str, Path, Collection[str]], str] = field(default=lambda named, folder, names: named)
    """(the head that the class puts on, the folder, the names of its tensors) -> the head that is there."""
    settle: Callable[[Any, Tensors], tuple[Any, Tensors]] = field(default=lambda config, tensors: (config, tensors))
    """(their config, their tensors) -> both, where the file itself tells which tables are one, or leaves out zeros."""
    build: Callable[[Any, str], nn.Module]
    """(their config, head) -> our model, still to be filled."""
    rules: Callable[[Any], list[Rule]]
    """Our model -> which of our tensors is which of theirs."""
    ignored: Callable[[Any], tuple[str, ...]] = field(default=lambda model: ())
    """Our model -> patterns of their names that hold nothing to learn: masks, position numbers, copies."""
    writes: Callable[[nn.Module], bool]
    """Is this how our model is to be written?"""
    bare: Callable[[Any], bool] = field(default=lambda model: False)
    """Has our model no head of its own, so that its names are written without the prefix?"""
    describe: Callable[[Any], dict[str, Any]]
    """Our model -> their config.json."""
    beside: Callable[[Any], dict[str, Any]] = field(default=lambda model: {})
    """Our model -> what else is to lie beside config.json: path -> content, written as JSON."""

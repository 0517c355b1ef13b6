"""Which tables of an encoder-decoder are one. A file keeps a shared table once, and under any of its names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from softlook.weights.renaming import Tensors


@dataclass(frozen=True)
class Tables:
    """What the tables of an encoder-decoder are called."""

    shared: str
    source: str
    target: str
    head: str

    def without(self, prefix: str) -> "Tables":
        names = (self.shared, self.source, self.target, self.head)
        return Tables(*(name.removeprefix(prefix) for name in names))


def filled(tensors: Tensors, *names: str) -> Tensors:
    """What the file leaves out of these, it holds for another of them: the first, where it holds several.

    >>> filled({"b": torch.ones(1)}, "a", "b")
    {'a': tensor([1.]), 'b': tensor([1.])}
    """
    kept = next((tensors[name] for name in names if name in tensors), None)
    return tensors if kept is None else dict.fromkeys(names, kept) | tensors


def same(tensors: Tensors, one: str, other: str) -> bool:
    """Are both there, and equal to the last bit?"""
    if one not in tensors or other not in tensors:
        return False
    a, b = tensors[one], tensors[other]
    return a is b or (a.dtype == b.dtype and torch.equal(a, b))


def tied_as_in_the_file(table: str, head: str) -> Callable[[Any, Tensors], tuple[Any, Tensors]]:
    """Settles whether words are tied: a head in the file that differs from the table is a head of its own, whatever the
    config says. So Hugging Face has it."""

    def settle(config: Any, tensors: Tensors) -> tuple[Any, Tensors]:
        if config.tie_word_embeddings and head in tensors and table in tensors and not same(tensors, table, head):
            config = config.model_copy(update={"tie_word_embeddings": False})
        return config, tensors

    return settle

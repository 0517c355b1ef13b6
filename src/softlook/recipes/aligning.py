"""Where each word of a translation looked while it was said."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.blocks.attention import Mixing
from softlook.models import RNNSearch
from softlook.ops.operation import attention_weights
from softlook.recipes.opened import Opened
from softlook.train.examples import padded, there

TOGETHER = 32
"""Translations that are looked at together."""
Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Alignment:
    """How much each token of a translation looked at each token of its source: the mean over heads, last block."""

    source: list[str]
    """The text of each token of the source."""
    target: list[str]
    weights: Float[Tensor, "T S"]

    def tokens(self) -> Pairs:
        """(source, target): for each token of the translation the one it looked at most."""
        if not self.source:
            return []
        return sorted((at, number) for number, at in enumerate(self.weights.argmax(1).tolist()))

    def words(self) -> Pairs:
        """The same for words, as spaces part them: what a word looked at is added up over its tokens."""
        ones, others = _members(self.source), _members(self.target)
        if not ones or not others:
            return []
        by_word = torch.stack([self.weights[:, member].sum(1) for member in ones], 1)
        best = [int(by_word[member].sum(0).argmax()) for member in others]
        return sorted((at, number) for number, at in enumerate(best))


def pharaoh(pairs: Pairs) -> str:
    """Pairs as programs for alignments read them, counted from 0.

    >>> pharaoh([(0, 1), (2, 0)])
    '0-1 2-0'
    """
    return " ".join(f"{one}-{other}" for one, other in pairs)


def alignments(run: Opened, sources: Sequence[Sequence[int]], said: Sequence[Sequence[int]]) -> list[Alignment]:
    """For sources, as they were read with their signs, and what was said of each."""
    found: list[Alignment] = []
    for start in range(0, len(sources), TOGETHER):
        some = slice(start, start + TOGETHER)
        maps = _maps(run, sources[some], said[some])
        for weights, source, target in zip(maps, sources[some], said[some], strict=True):
            found.append(_without_signs(run, weights[: len(target), : len(source)], source, target))
    return found


@torch.no_grad()
def _maps(run: Opened, sources: Sequence[Sequence[int]], said: Sequence[Sequence[int]]) -> Float[Tensor, "B T S"]:
    begun = [[*run.signs.begin, *target] for target in said]
    ids, present, begun = padded(sources).to(run.device), there(sources).to(run.device), padded(begun).to(run.device)
    with _watched(run.model) as kept:
        run.model(ids, begun, source_present=present)
    return torch.cat(kept, 2).mean(1).float().cpu()


@contextmanager
def _watched(model: Any) -> Iterator[list[Tensor]]:
    """The maps of the look across: all rows at once, or one after the other where a decoder takes steps."""
    mix: Mixing = model.decoder.align.mix if isinstance(model, RNNSearch) else model.decoder.blocks[-1].cross.mix
    kept: list[Tensor] = []

    def watch(module: Mixing, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, mask, *bias = args
        more = {"scale": module.scale, "softcap": module.softcap, "sink": module.sink, "score": module.score}
        kept.append(attention_weights(query, key, mask=mask, bias=bias[0] if bias else None, **more))

    hook = mix.register_forward_hook(watch)
    try:
        yield kept
    finally:
        hook.remove()


def _without_signs(run: Opened, weights: Tensor, source: Sequence[int], target: Sequence[int]) -> Alignment:
    """What is looked at in signs, the end above all, is nothing to be seen."""
    special = frozenset(run.tokenizer.special) | {*run.signs.before, *run.signs.after}
    ones = [place for place, id in enumerate(source) if id not in special]
    others = [place for place, id in enumerate(target) if id not in special]
    pieces = [run.pieces([ids[place] for place in places]) for ids, places in ((source, ones), (target, others))]
    return Alignment(pieces[0], pieces[1], weights[others][:, ones])


def _members(pieces: Sequence[str]) -> list[list[int]]:
    """Which tokens each word is made of; a space belongs to none."""
    words: list[list[int]] = []
    begins = True
    for place, piece in enumerate(pieces):
        parted = begins or piece[:1].isspace()
        if piece.strip():
            words = [*words, [place]] if parted or not words else [*words[:-1], [*words[-1], place]]
        begins = piece[-1:].isspace() if piece.strip() or not piece else True
    return words

"""Where each word of a translation looked while it was said."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.blocks.attention import Mixing
from softlook.decode.rows import filled
from softlook.decode.speaking import device_of
from softlook.decode.text import TextStream
from softlook.models import RNNSearch
from softlook.tokens import TextTokenizer
from softlook.weights.beside import Signs

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


@torch.no_grad()
def looks(model: Any, sources: Sequence[Sequence[int]], begun: Sequence[Sequence[int]]) -> list[Float[Tensor, "T S"]]:
    """For sources, as they were read, and answers with what they begin with: the looks before each word was said.

    All is read at once, so memory grows with the product of both lengths.
    """
    device = device_of(model)
    (ids, present), (rows, _) = filled(sources, device), filled(begun, device)
    with _watched(model) as kept:
        model(ids, rows, source_present=present)
    whole = torch.cat(kept, 2).mean(1).float().cpu()
    return [one[: len(said), : len(read)] for one, said, read in zip(whole, begun, sources, strict=True)]


def aligned(
    tokenizer: TextTokenizer, signs: Signs, weights: Float[Tensor, "T S"], source: Sequence[int], target: Sequence[int]
) -> Alignment:
    """Looks of a source and a target, as they were read. Of signs, the end above all, there is nothing to be seen."""
    special = frozenset(tokenizer.special) | {*signs.before, *signs.after}
    ones = [place for place, id in enumerate(source) if id not in special]
    others = [place for place, id in enumerate(target) if id not in special]
    texts = [pieces(tokenizer, [ids[place] for place in places]) for ids, places in ((source, ones), (target, others))]
    return Alignment(texts[0], texts[1], weights[others][:, ones])


def pieces(tokenizer: TextTokenizer, ids: Sequence[int], after: Sequence[int] = ()) -> list[str]:
    """The text that each token adds to those before it; one that ends a character adds all of it."""
    stream = TextStream(tokenizer, after)
    found = [stream.push(id) for id in ids]
    return [*found[:-1], found[-1] + stream.finish()] if found else []


@contextmanager
def _watched(model: Any) -> Iterator[list[Tensor]]:
    """The maps of the look across: all rows at once, or one after the other where a decoder takes steps."""
    mix: Mixing = model.decoder.align.mix if isinstance(model, RNNSearch) else model.decoder.blocks[-1].cross.mix
    kept: list[Tensor] = []

    def watch(module: Mixing, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        kept.append(module.weights(query, key, *rest))

    hook = mix.register_forward_hook(watch)
    try:
        yield kept
    finally:
        hook.remove()


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

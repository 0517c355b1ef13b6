"""Speakers whose sequences go on in several ways, side by side: what they share is shared, what leaves is let go."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import CrossAttention, Mixing
from softlook.blocks.branches import Branches
from softlook.blocks.memory import Growing, Memory
from softlook.decode.lean import LeanCross, LeanSelf
from softlook.decode.speaking import Continuing, Speaker, Translating


class Branching:
    """Some sequences, each in so many ways. Rows are numbered way by way within each sequence."""

    def __init__(self, speaker: Speaker, ways: int) -> None:
        self.speaker, self.ways = speaker, ways
        self.inner: Any = speaker if type(speaker) in (Translating, Continuing) else None
        """One whose parts are known, and can be led one by one."""
        if self.inner is not None and getattr(self.inner, "label", None) is not None:
            self.inner = None
        self.lean = self.inner is not None and _is_lean(self.inner.model)
        """Is the model a copy for decoding?"""
        if self.inner is not None and self.lean and _is_fresh(self.inner.memory):
            self.inner.memory = Branches()

    def begin(self, start: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        """Take in what all ways begin with, and score what may come after it."""
        scores = self.speaker.next(start) if lengths is None else self.speaker.next(start, lengths)
        rows = torch.arange(len(start), device=start.device).repeat_interleave(self.ways)
        if self.inner is None:
            self.speaker.select(rows)
        else:
            self.inner.memory.branch(rows, self.ways)
            self.inner.filling.select(rows)
        return scores

    def follow(self, rows: Int[Tensor, " NK"], sequences: Int[Tensor, " N"] | None) -> None:
        """Go on with these ways; where not all sequences go on, with these of them."""
        if self.inner is None:
            self.speaker.select(rows)
            return
        self.inner.memory.follow(rows, sequences)
        self.inner.filling.select(rows)
        if sequences is not None and isinstance(self.inner, Translating):
            self.inner.encoded = self.inner.encoded.index_select(0, sequences)
            present = self.inner.present
            self.inner.present = None if present is None else present.index_select(0, sequences)

    def next(self, words: Int[Tensor, "NK 1"]) -> Float[Tensor, "NK V"]:
        return self.speaker.next(words)


class Looks:
    """Where the last look across went: the mean over the heads of the last block that looks at another sequence."""

    def __init__(self, mix: Mixing) -> None:
        self.mix, self.last = mix, torch.empty(0)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        self.last = self.mix.weights(query, key, *rest).mean(1)  # (N, KT, S)

    def of(self, sequences: int, ways: int) -> Float[Tensor, "N K S"]:
        """Of the last word of each way; folded or not, rows stand way by way."""
        return self.last.reshape(sequences, ways, -1, self.last.shape[-1])[:, :, -1]


@contextmanager
def watching(speaker: Speaker) -> Iterator[Looks]:
    """While it speaks, see where it looks in its source."""
    model = getattr(speaker, "model", None)
    looking = (
        [] if model is None else [part for part in model.modules() if isinstance(part, CrossAttention | LeanCross)]
    )
    mix = looking[-1].mix if looking else None
    if not isinstance(mix, Mixing) or not isinstance(speaker, Translating):
        raise ConfigError(
            f"where a {type(model).__name__} looks cannot be seen: only a Transformer with an encoder looks across"
        )
    looks = Looks(mix)
    hook = mix.register_forward_hook(looks)
    try:
        yield looks
    finally:
        hook.remove()


def _is_lean(model: nn.Module) -> bool:
    return any(isinstance(part, LeanSelf) for part in model.modules())


def _is_fresh(memory: Memory) -> bool:
    return type(memory) is Memory and memory.make is Growing and memory.length == 0

"""The speakers of models that remember in a way of their own, and which model speaks how."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.recurrent import RecurrentMemory
from softlook.blocks.segments import SegmentMemory
from softlook.decode.speaking import Continuing, Filling, Speaker, Translating, device_of
from softlook.models import ConvolutionalLM, RNNSearch, TransformerXL

EVERYTHING = 1 << 40
"""A memory so long that nothing is forgotten."""


class Recurring:
    """A Transformer-XL that goes on with what it is given, and remembers the states of the last so many words."""

    def __init__(self, model: TransformerXL, remembered: int = EVERYTHING) -> None:
        self.model, self.memory, self.filling, self.heard = model, SegmentMemory(remembered), Filling(), 0
        self.device, self.context = device_of(model), None

    def next(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        if self.heard == 0:
            self.filling.begin(ids, lengths)
        new, seen = ids.shape[1], self.memory.held + ids.shape[1]
        told = self.filling.arguments(self.heard, new, positions=False, keys=seen)
        self.heard += new
        return self.model(ids, memory=self.memory, **told)[:, -1]

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.memory.select(rows)
        self.filling.select(rows)


class Searching:
    """A recurrent translator that says what it has read in other words. The source is read once."""

    def __init__(
        self, model: RNNSearch, source: Int[Tensor, "N S"], present: Bool[Tensor, "N S"] | None = None
    ) -> None:
        self.model, self.source, self.present, self.memory = model, source, present, RecurrentMemory()
        self.device, self.context = device_of(model), None

    def next(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        if lengths is not None:
            raise ShapeError("a recurrent decoder takes steps together: begin all its answers with as many words")
        return self.model(self.source, ids, source_present=self.present, memory=self.memory)[:, -1]

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.memory.select(rows)
        self.source = self.source.index_select(0, rows)
        self.present = None if self.present is None else self.present.index_select(0, rows)


class Rereading:
    """A decoder-only model without a memory of keys and values: it reads the last `window` words again at every word.

    Exact where no score depends on more of them than that.
    """

    def __init__(self, model: Any, window: int) -> None:
        self.model, self.window, self.heard = model, window, list[list[int]]()
        self.device, self.context = device_of(model), None

    def next(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        self._hear(ids, lengths)
        return self._scores(1)[:, 0]

    def read(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        self._hear(ids, lengths)
        return self._scores(ids.shape[1])

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.heard = [list(self.heard[row]) for row in rows.tolist()]

    def forget(self, count: int) -> None:
        self.heard = [row[: len(row) - count] for row in self.heard]

    def _hear(self, ids: Tensor, lengths: Tensor | None) -> None:
        rows: list[list[int]] = ids.tolist()
        if lengths is not None:
            rows = [row[-length:] for row, length in zip(rows, lengths.tolist(), strict=True)]
        self.heard = [[*old, *new] for old, new in zip(self.heard or [[] for _ in rows], rows, strict=True)]

    def _scores(self, count: int) -> Tensor:
        """Of what comes after each of the last `count` words. Rows are filled up on the right, where nobody looks."""
        rows = [row[-(self.window + count - 1) :] for row in self.heard]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=self.device)
        last = torch.tensor([[len(row) - count + i for i in range(count)] for row in rows], device=self.device)
        scores = self.model(ids)
        return scores.gather(1, last.clamp(min=0)[..., None].expand(-1, -1, scores.shape[-1]))


def speaker_for(
    model: nn.Module,
    source: Int[Tensor, "N S"] | None = None,
    present: Bool[Tensor, "N S"] | None = None,
) -> Speaker:
    """How a model is asked for one word after the other; an encoder-decoder is told the source.

    >>> from softlook.models import GPT, GPTConfig
    >>> type(speaker_for(GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)))).__name__
    'Continuing'
    """
    mode = getattr(model, "mode", None)
    if mode not in ("decoder-only", "encoder-decoder"):
        raise ConfigError(f"a {type(model).__name__} does not say one word after the other; a decoder does")
    head = getattr(getattr(model, "config", None), "head", "words")
    if head != "words":
        raise ConfigError(
            f"this {type(model).__name__} answers with {head}; only a model with a head for words generates"
        )
    if (mode == "encoder-decoder") != (source is not None):
        wanted = "wants a source to say in other words" if source is None else "reads no source: put it in the prompt"
        raise ConfigError(f"a {type(model).__name__} {wanted}")
    if source is not None:
        return (Searching if isinstance(model, RNNSearch) else Translating)(model, source, present)  # pyright: ignore[reportArgumentType]
    if isinstance(model, TransformerXL):
        return Recurring(model)
    return Rereading(model, model.reach) if isinstance(model, ConvolutionalLM) else Continuing(model)

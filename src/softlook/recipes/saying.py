"""Texts in, translations out: many at once, the longest first."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.blocks.recurrent import RecurrentMemory
from softlook.decode import Speaker, Translating, beam, greedy
from softlook.models import RNNSearch
from softlook.tokens import TextTokenizer
from softlook.train.examples import padded, there

COOL = 0.8
"""The temperature that samples are drawn at."""
ROOM = 8192
"""Tokens that are worked on at once, over all beams."""


class Searching:
    """A recurrent translator that says what it has read in other words. The source is read once."""

    def __init__(self, model: RNNSearch, source: Int[Tensor, "N S"], present: Bool[Tensor, "N S"]) -> None:
        self.model, self.source, self.present, self.memory = model, source, present, RecurrentMemory()

    def next(self, ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
        return self.model(self.source, ids, source_present=self.present, memory=self.memory)[:, -1]

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.memory.select(rows)
        self.source, self.present = self.source.index_select(0, rows), self.present.index_select(0, rows)


def translated(
    model: nn.Module, tokenizer: TextTokenizer, texts: Sequence[str], *, beams: int = 1, penalty: float = 1.0
) -> list[str]:
    """Each text in the other language: the likeliest word after the other, or by beam search."""
    device = next(model.parameters()).device
    ids = tokenizer.encode(texts)
    said: list[str] = [""] * len(texts)
    for numbers in _batches([len(row) + 1 for row in ids], beams):
        rows = [[*ids[number], tokenizer.end] for number in numbers]
        speaker = _speaker(model, padded(rows, tokenizer.pad).to(device), there(rows).to(device))
        start = torch.full((len(rows), 1), tokenizer.begin, device=device)
        longest = _longest(len(rows[0]))
        if beams == 1:
            found = greedy(speaker, start, end=tokenizer.end, longest=longest)
        else:
            every = beam(speaker, start, end=tokenizer.end, longest=longest, beams=beams, penalty=penalty)
            found = [hypotheses[0].ids for hypotheses in every]
        for number, words in zip(numbers, found, strict=True):
            said[number] = tokenizer.decode(words)
    return said


class Rereading:
    """A decoder-only model without a memory of keys and values: it reads all it has heard again at every word."""

    def __init__(self, model: Any, context: int) -> None:
        self.model, self.context, self.heard = model, context, None

    def next(self, ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
        heard = ids if self.heard is None else torch.cat([self.heard, ids], 1)
        self.heard = heard[:, -self.context :]
        return self.model(self.heard)[:, -1]

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.heard = None if self.heard is None else self.heard.index_select(0, rows)


def continued(speaker: Speaker, ids: Sequence[int], *, end: int, longest: int, device: torch.device) -> list[int]:
    """What comes after some ids, drawn word by word by how likely each is, the unlikely ones a little less."""
    new, said = torch.tensor([list(ids)], device=device), list[int]()
    for _ in range(longest):
        chances = (speaker.next(new)[0].float() / COOL).softmax(-1)
        word = int(torch.multinomial(chances, 1))
        if word == end:
            break
        said.append(word)
        new = torch.tensor([[word]], device=device)
    return said


def _speaker(model: Any, source: Tensor, present: Tensor) -> Speaker:
    return Searching(model, source, present) if isinstance(model, RNNSearch) else Translating(model, source, present)


def _longest(length: int) -> int:
    """Words that an answer may have. It depends on its own text alone, so that neighbours do not change it."""
    return 12 + 12 * -(-length // 8)


def _batches(lengths: Sequence[int], beams: int) -> Iterator[list[int]]:
    """Numbers of texts that are alike in length, their answers too, as many as there is room for."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        is_full = batch and (len(batch) + 1) * lengths[batch[0]] * beams > ROOM
        if is_full or (batch and _longest(lengths[number]) != _longest(lengths[batch[0]])):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch

"""Documents from a file larger than memory, packed into rows: read where they lie, in an order that is worked out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from softlook.losses import NOTHING
from softlook.train.batches import Place, turns
from softlook.train.chance import seed_of
from softlook.train.examples import Ids, Rows
from softlook.train.permuted import Permuted
from softlook.train.store import Store, write_store

APART = -1
"""The document of places where there is nothing."""


def write_tokens(documents: Iterable[Ids], folder: Path, *, vocab: int) -> Path:
    """Write documents, one at a time, as a new folder: their ids one behind the other, and where each one starts."""
    return write_store(((document,) for document in documents if len(document)), folder, vocab=vocab)


@dataclass(frozen=True)
class Tokens:
    """The ids of all documents, and where each one starts. On disk, only what is asked for is read."""

    ids: Tensor
    starts: Tensor

    @staticmethod
    def open(folder: Path) -> "Tokens":
        """What `write_tokens` wrote."""
        return Tokens.of(Store.open(folder))

    @staticmethod
    def of(store: Store) -> "Tokens":
        """Every row of a store as a document."""
        return Tokens(*store.tensors())

    def rows(self, begins: list[int], context: int) -> Rows:
        """Rows of `context` ids from each of these places on; what is before the first id or behind the last is empty.

        >>> Tokens(torch.tensor([5, 6, 7, 8]), torch.tensor([0, 3])).rows([0], 4)
        Rows(ids=tensor([[5, 6, 7, 8]]), wanted=tensor([[   6,    7, -100, -100]]),
             documents=tensor([[0, 0, 0, 1]]), positions=tensor([[0, 1, 2, 0]]))
        """
        count = len(self.ids)
        start_B1 = torch.tensor(begins)[:, None]
        place_BT = start_B1 + torch.arange(context + 1)  # one more: what comes after the last
        there_BT = (place_BT >= 0) & (place_BT < count)
        ids_BT = torch.stack([self._read(begin, context + 1) for begin in begins])
        document_BT = torch.searchsorted(self.starts, place_BT.clamp(0, count - 1), right=True) - 1
        begin_BT = self.starts[document_BT].maximum(start_B1)  # a document that was cut counts from the cut
        document_BT = document_BT.masked_fill(~there_BT, APART)
        follows_BT = (document_BT[:, 1:] == document_BT[:, :-1]) & there_BT[:, 1:]
        return Rows(
            ids_BT[:, :-1],
            ids_BT[:, 1:].masked_fill(~follows_BT, NOTHING),
            document_BT[:, :-1],
            (place_BT - begin_BT).masked_fill(~there_BT, 0)[:, :-1],
        )

    def _read(self, begin: int, length: int) -> Tensor:
        row = torch.zeros(length, dtype=torch.long)
        first, last = max(begin, 0), min(begin + length, len(self.ids))
        row[first - begin : last - begin] = self.ids[first:last].long()
        return row


class Stream:
    """Batches of packed rows without end. Every id is read once each time through; where rows are cut changes."""

    def __init__(self, tokens: Tokens, *, context: int, rows: int, seed: int) -> None:
        self.tokens, self.context, self.rows, self.seed = tokens, context, rows, seed

    def epoch(self, number: int) -> "Epoch":
        """One time through."""
        return Epoch(self, number)

    def start(self, place: Place) -> Iterator[tuple[Place, Rows]]:
        return turns(self.epoch, place)

    def in_order(self) -> Iterator[Rows]:
        """Once through from the beginning to the end, for a look at held-out documents."""
        begins = range(0, len(self.tokens.ids), self.context)
        for i in range(0, len(begins), self.rows):
            yield self.tokens.rows(list(begins[i : i + self.rows]), self.context)


class Epoch:
    """One time through a stream, as batches that are read when they are asked for."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.stream = stream
        self.shift = seed_of(stream.seed, number) % stream.context
        count = -(-(len(stream.tokens.ids) + self.shift) // stream.context)
        self.order = Permuted(count, stream.seed, number)

    def __len__(self) -> int:
        return -(-len(self.order) // self.stream.rows)

    def __getitem__(self, number: int) -> Rows:
        first = number * self.stream.rows
        chosen = range(first, min(first + self.stream.rows, len(self.order)))
        begins = [self.order[i] * self.stream.context - self.shift for i in chosen]
        return self.stream.tokens.rows(begins, self.stream.context)

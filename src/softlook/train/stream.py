"""Documents from a file larger than memory, packed into rows: read where they lie, in an order that is worked out."""

import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from softlook.base.errors import TrainingError
from softlook.losses import NOTHING
from softlook.train.batches import Place, seed_of, turns
from softlook.train.examples import Ids, Rows
from softlook.train.permuted import Permuted
from softlook.weights.folders import new_folder
from softlook.weights.schema import read_json

IDS, STARTS, ABOUT = "ids.bin", "starts.bin", "tokens.json"
KINDS = {"uint16": ("H", torch.uint16), "uint32": ("I", torch.uint32)}
APART = -1
"""The document of places where there is nothing."""


def write_tokens(documents: Iterable[Ids], folder: Path, *, vocab: int) -> Path:
    """Write documents, one at a time, as a new folder: their ids one behind the other, and where each one starts."""
    kind = "uint16" if vocab <= 1 << 16 else "uint32"
    tokens = count = 0
    with new_folder(folder) as made:
        with (made / IDS).open("wb") as ids, (made / STARTS).open("wb") as starts:
            for document in documents:
                if len(document):
                    array("q", [tokens]).tofile(starts)
                    _append(document, kind, vocab, ids)
                    tokens, count = tokens + len(document), count + 1
        if not tokens:
            raise TrainingError("there is nothing to learn from: no documents came")
        about = {"format": 1, "kind": kind, "vocab": vocab, "tokens": tokens, "documents": count}
        (made / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return folder


def _append(document: Ids, kind: str, vocab: int, file: BinaryIO) -> None:
    if min(document) < 0 or max(document) >= vocab:
        raise TrainingError(f"ids go from 0 to {vocab - 1}; {min(document)} to {max(document)} came")
    array(KINDS[kind][0], document).tofile(file)


@dataclass(frozen=True)
class Tokens:
    """The ids of all documents, and where each one starts. Both stay on disk; only what is asked for is read."""

    ids: Tensor
    starts: Tensor

    @staticmethod
    def open(folder: Path) -> "Tokens":
        """What `write_tokens` wrote."""
        about = read_json(folder / ABOUT)
        width, dtype = KINDS[about["kind"]]
        sizes = {IDS: about["tokens"] * array(width).itemsize, STARTS: about["documents"] * 8}
        for name, size in sizes.items():
            if not (folder / name).is_file() or (folder / name).stat().st_size != size:
                raise TrainingError(f"{folder / name} is not what was written: it should have {size:,} bytes")
        ids = torch.from_file(str(folder / IDS), shared=False, size=about["tokens"], dtype=dtype)
        starts = torch.from_file(str(folder / STARTS), shared=False, size=about["documents"], dtype=torch.int64)
        return Tokens(ids, starts)

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

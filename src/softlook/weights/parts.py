"""Tensors that lie in several files: whole ones dealt out among them, or each one cut along its first axis."""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.weights.files import read_file
from softlook.weights.manifest import MANIFEST, Listed

SLICES = "slices"
"""Where a manifest says which rows of which tensor a file holds."""


def part_name(file: str, number: int, count: int) -> str:
    """The name of one of several files that stand for one, as Hugging Face names them too.

    >>> part_name("model.safetensors", 0, 4)
    'model-00001-of-00004.safetensors'
    """
    return f"{file.removesuffix('.safetensors')}-{number + 1:05}-of-{count:05}.safetensors"


@dataclass(frozen=True)
class Stored:
    """A tensor as it lies on disk, in one piece or in several: the first row of each, and the rows from there on.

    >>> stored = Stored(((0, torch.tensor([5, 6])), (2, torch.tensor([7]))))
    >>> stored.shape, stored.rows(1, 3)
    (torch.Size([3]), tensor([6, 7]))
    """

    pieces: tuple[tuple[int, Tensor], ...]

    @staticmethod
    def of(tensor: Tensor) -> "Stored":
        """A tensor in one piece."""
        return Stored(((0, tensor),))

    @property
    def shape(self) -> torch.Size:
        begin, last = self.pieces[-1]
        return torch.Size((begin + len(last), *last.shape[1:])) if last.ndim else last.shape

    def hollow(self) -> Tensor:
        """A tensor of this shape and kind without numbers."""
        return torch.empty(self.shape, dtype=self.pieces[0][1].dtype, device="meta")

    def whole(self) -> Tensor:
        return self.pieces[0][1] if len(self.pieces) == 1 else torch.cat([rows for _, rows in self.pieces])

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows. Of what was read from a file, no others are fetched from the disk."""
        cut = [rows[max(begin - at, 0) : max(end - at, 0)] for at, rows in self.pieces]
        found = [rows for rows in cut if len(rows)]
        return torch.cat(found) if len(found) > 1 else (found or cut)[0]


def read_parts(folder: Path, file: str, files: Listed) -> dict[str, Stored]:
    """The tensors of a file, or of the parts that stand for it, by what the manifest lists. Numbers are read later."""
    found: dict[str, list[tuple[int, Tensor]]] = {}
    for part in parts_of(folder, file, files):
        slices = files[part].get(SLICES, {})
        for name, tensor in read_file(folder / part).items():
            begin, end = slices.get(name, (0, len(tensor) if tensor.ndim else 0))
            if tensor.ndim and end - begin != len(tensor):
                raise WeightsError(
                    f"{folder / part} holds {len(tensor)} rows of {name!r:.200}; {end - begin} belong there"
                )
            found.setdefault(name, []).append((begin, tensor))
    return {name: _joined(name, pieces, folder / file) for name, pieces in found.items()}


def parts_of(folder: Path, file: str, files: Listed) -> list[str]:
    """The names under which a manifest lists a file: its own, or those of its parts, none of which may lack."""
    if file in files:
        return [file]
    pattern = re.compile(re.escape(file.removesuffix(".safetensors")) + r"-\d{5}-of-(\d{5})\.safetensors")
    counts = [int(match[1]) for name in files if (match := pattern.fullmatch(name))]
    if not counts:
        raise WeightsError(f"{folder / MANIFEST} does not list {file}: it is not that of a checkpoint")
    wanted = [part_name(file, number, counts[0]) for number in range(counts[0])]
    for name in wanted:
        if name not in files:
            raise WeightsError(f"{folder / MANIFEST} does not list {name}, one of {counts[0]} parts of {file}")
    return wanted


def _joined(name: str, pieces: list[tuple[int, Tensor]], where: Path) -> Stored:
    """Pieces in their order, between which nothing may lack, and nothing be there twice."""
    pieces = sorted((piece for piece in pieces if len(pieces) == 1 or piece[1].numel()), key=lambda piece: piece[0])
    ends = [(0, 0), *((begin, begin + len(rows) if rows.ndim else 0) for begin, rows in pieces)]
    if any(before[1] != after[0] for before, after in pairwise(ends)):
        raise WeightsError(f"{where}: the parts of {name!r:.200} do not fit together")
    return Stored(tuple(pieces))

"""Rows that lie on disk: dealt out over files by chance once, and read a few files at a time ever after."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from softlook.tabular.encoding.rows import Rows, together

MEMORY = 1 << 30
"""Bytes that a table may take up where nothing is told."""


@dataclass(frozen=True)
class Room:
    """How many bytes a table may take up: as it came, as rows for a model, and of rows on disk those in use.

    >>> Room.of(1e9).window
    125000000
    """

    raw: int
    rows: int
    window: int

    @staticmethod
    def of(limit: float | None) -> "Room":
        """Shares of a limit, as each is held together with what is made of it."""
        limit = int(MEMORY if limit is None else limit)
        return Room(limit // 4, limit // 2, limit // 8)


class Shelf:
    """Takes rows in, and gives them back as tensors where there is room, else as files of a folder."""

    def __init__(self, folder: Path, *, expected: int, room: Room, codes: int, seed: int) -> None:
        self.folder, self.expected, self.room = folder, expected, room
        self.codes = np.min_scalar_type(codes)
        self.random = np.random.default_rng(seed)
        self.held: list[Rows] = []
        self.record: np.dtype | None = None
        self.counts = np.zeros(0, np.int64)
        self.weight = 0.0

    def add(self, rows: Rows) -> None:
        """A piece more."""
        if not len(rows):
            return
        if self.record is None and not self.held and self.expected * _bytes(rows) > self.room.rows:
            self._open(rows)
        if self.record is None:
            self.held.append(rows)
        else:
            self._deal(_records(rows, self.record))

    def rows(self) -> "Rows | StoredRows | None":
        """All that came; None where that was nothing."""
        if self.record is not None:
            counts = tuple(self.counts.tolist())
            return StoredRows(self.folder, self.record, counts, self.room.window, self.weight / sum(counts))
        return together(self.held) if self.held else None

    def _open(self, rows: Rows) -> None:
        self.record = _record(rows, self.codes)
        size = self.expected * self.record.itemsize
        self.counts = np.zeros(max(2, -(-size // max(1, self.room.window // 4))), np.int64)

    def _deal(self, records: np.ndarray) -> None:
        """Each row to a file by chance: whatever order they came in, every file is like the whole table."""
        where = self.random.integers(len(self.counts), size=len(records))
        dealt = records[np.argsort(where, kind="stable")]
        counts = np.bincount(where, minlength=len(self.counts))
        ends = np.cumsum(counts)
        for place in np.flatnonzero(counts).tolist():
            with _file(self.folder, place).open("ab") as file:
                file.write(dealt[ends[place] - counts[place] : ends[place]].tobytes())
        self.counts += counts
        self.weight += float(records["weight"].sum(dtype=np.float64))


@dataclass(frozen=True)
class StoredRows:
    """Rows in files, each file a draw of them all. An epoch goes through the files in an order of chance.

    So many files as fit the window are mixed at a time, anew each time: what lies together in a file may meet, and no
    file is read from more than one place.
    """

    folder: Path
    record: np.dtype
    counts: tuple[int, ...]
    """How many rows each file holds."""
    window: int
    """Bytes that are held at a time."""
    weight: float
    """What a row weighs on average."""
    device: torch.device = torch.device("cpu")

    def __len__(self) -> int:
        return sum(self.counts)

    def to(self, device: torch.device) -> "StoredRows":
        """Rows that go to a device as they are asked for."""
        return replace(self, device=device)

    def evened(self) -> "StoredRows":
        """Weights of 1 on average, which they have on their way out."""
        return self

    def batches(self, size: int, dice: torch.Generator, start: int = 0) -> Iterator[Rows]:
        """All rows once, so many at a time, in an order of chance, from behind the first `start` of them."""
        return map(self._rows, islice(self._drawn(size, dice), start // size, None))

    def _drawn(self, size: int, dice: torch.Generator) -> Iterator[np.ndarray]:
        left = np.zeros(0, self.record)
        for places in self._windows(torch.randperm(len(self.counts), generator=dice).tolist()):
            records = np.concatenate([left, *map(self._read, places)])
            order = torch.randperm(len(records), generator=dice).numpy()
            full = len(records) // size * size
            for at in range(0, full, size):
                yield records[order[at : at + size]]
            left = records[order[full:]]
        if len(left):
            yield left

    def _windows(self, order: list[int]) -> Iterator[list[int]]:
        found: list[int] = []
        taken = 0
        for place in order:
            if found and taken + self.counts[place] * self.record.itemsize > self.window:
                yield found
                found, taken = [], 0
            found.append(place)
            taken += self.counts[place] * self.record.itemsize
        yield found

    def _read(self, place: int) -> np.ndarray:
        return np.fromfile(_file(self.folder, place), self.record) if self.counts[place] else np.zeros(0, self.record)

    def _rows(self, records: np.ndarray) -> Rows:
        numbers, codes, wanted = (np.ascontiguousarray(records[part]) for part in ("numbers", "codes", "wanted"))
        weight = torch.from_numpy(records["weight"] / np.float32(self.weight))
        categories = torch.from_numpy(codes.astype(np.int64))
        return Rows(torch.from_numpy(numbers), categories, torch.from_numpy(wanted), weight).to(self.device)


def _bytes(rows: Rows) -> float:
    """Of one row."""
    return sum(part.element_size() * part.numel() for part in rows.parts() if part is not None) / len(rows)


def _record(rows: Rows, codes: np.dtype) -> np.dtype:
    """All of a row side by side, so that a row is read from one place."""
    assert rows.wanted is not None
    wanted = rows.wanted.numpy()
    return np.dtype(
        [
            ("numbers", np.float32, (rows.numbers.shape[1],)),
            ("codes", codes, (rows.categories.shape[1],)),
            ("wanted", wanted.dtype, wanted.shape[1:]),
            ("weight", np.float32),
        ]
    )


def _records(rows: Rows, record: np.dtype) -> np.ndarray:
    found = np.empty(len(rows), record)
    for name, part in zip(("numbers", "codes", "wanted", "weight"), rows.parts(), strict=True):
        assert part is not None
        found[name] = part.numpy()
    return found


def _file(folder: Path, place: int) -> Path:
    return folder / f"rows-{place}"

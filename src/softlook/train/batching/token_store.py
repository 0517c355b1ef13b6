"""Token store: tokenized examples in memory or memory-mapped."""

import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, overload

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from softlook.base.errors import DiskError, TrainingError
from softlook.train.batching.collate import Ids
from softlook.weights.atomic_folder import atomic_folder
from softlook.weights.manifest import HashingWriter, verify_manifest, write_manifest
from softlook.weights.schema import read_json

IDS, OFFSETS, INDEX = "ids.bin", "offsets.bin", "store.json"
DtypeName = Literal["uint16", "uint32"]
DTYPES: dict[DtypeName, tuple[Literal["H", "I"], torch.dtype]] = {
    "uint16": ("H", torch.uint16),
    "uint32": ("I", torch.uint32),
}
"""The array type code and the torch dtype of ids."""
CHUNK = 1 << 18
"""Numbers written or processed at once."""
StoredExample = tuple[list[int], ...]


class StoreIndex(BaseModel):
    """The index file of a store."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal[4] = 4
    dtype: DtypeName
    vocab_size: int
    rows: int
    """Per example."""


class TokenStore(Sequence[StoredExample]):
    """Examples of one or several rows of ids each, read on access.

    >>> store = store_in_memory([([5, 6], [7]), ([8], [])], vocab_size=10, rows=2)
    >>> store[0], store[-1], store.lengths(0)
    (([5, 6], [7]), ([8], []), tensor([2, 1], dtype=torch.int32))
    """

    def __init__(self, ids: memoryview, offsets: memoryview, rows: int) -> None:
        self.ids, self.offsets, self.rows = ids, offsets, rows

    @staticmethod
    def open(folder: Path) -> "TokenStore":
        """Open a store written by `write_store`, after verifying its digests."""
        try:
            verify_manifest(folder, IDS, OFFSETS, INDEX)
            index = StoreIndex.model_validate(read_json(folder / INDEX))
        except DiskError:
            raise
        except ValueError as error:
            raise TrainingError(f"{folder} is not a token store, or damaged: {error}") from None
        code, _ = DTYPES[index.dtype]
        return TokenStore(_map_file(folder / IDS).cast(code), _map_file(folder / OFFSETS).cast("q"), index.rows)

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.rows

    @overload
    def __getitem__(self, index: int, /) -> StoredExample: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[StoredExample]: ...
    def __getitem__(self, index: int | slice, /) -> StoredExample | list[StoredExample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        first = range(len(self))[index] * self.rows  # raises IndexError
        offsets = self.offsets[first : first + self.rows + 1].tolist()
        return tuple(self.ids[begin:end].tolist() for begin, end in zip(offsets, offsets[1:], strict=False))

    def lengths(self, row: int = 0) -> Tensor:
        """The length of this row in every example."""
        offsets = as_tensor(self.offsets, torch.int64)
        begins, ends = offsets[row : -1 : self.rows], offsets[row + 1 :: self.rows]
        lengths = torch.empty(len(self), dtype=torch.int32)
        for start in range(0, len(self), CHUNK):
            chunk = slice(start, start + CHUNK)
            lengths[chunk] = ends[chunk] - begins[chunk]
        return lengths

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All ids, and the start of each row, without a copy."""
        dtype = next(dtype for code, dtype in DTYPES.values() if code == self.ids.format)
        return as_tensor(self.ids, dtype), as_tensor(self.offsets, torch.int64)[:-1]


def store_in_memory(examples: Iterable[Sequence[Ids]], *, vocab_size: int, rows: int = 1) -> TokenStore:
    """A store in memory."""
    ids, offsets = array(DTYPES[_dtype_name(vocab_size)][0]), array("q", [0])
    for chunk, ends in _chunks(examples, vocab_size, rows):
        ids.extend(chunk)
        offsets.extend(ends)
    return TokenStore(memoryview(ids), memoryview(offsets), rows)


def write_store(examples: Iterable[Sequence[Ids]], folder: Path, *, vocab_size: int, rows: int = 1) -> Path:
    """Write examples, one at a time, to a new folder, atomically."""
    with atomic_folder(folder) as partial:
        with (partial / IDS).open("wb") as ids_file, (partial / OFFSETS).open("wb") as offsets_file:
            ids, offsets = HashingWriter(ids_file), HashingWriter(offsets_file)
            offsets.write(array("q", [0]))
            for chunk, ends in _chunks(examples, vocab_size, rows):
                ids.write(chunk)
                offsets.write(ends)
        if not ids.bytes:
            raise TrainingError("there is nothing to train on: got no examples")
        index = StoreIndex(dtype=_dtype_name(vocab_size), vocab_size=vocab_size, rows=rows)
        (partial / INDEX).write_text(index.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_manifest(partial, {IDS: ids.manifest_entry(), OFFSETS: offsets.manifest_entry()})
    return folder


def as_tensor(numbers: memoryview, dtype: torch.dtype) -> Tensor:
    """A tensor that shares memory with `numbers`."""
    return torch.frombuffer(numbers, dtype=dtype) if len(numbers) else torch.empty(0, dtype=dtype)


def _chunks(
    examples: Iterable[Sequence[Ids]], vocab_size: int, rows: int
) -> Iterator[tuple["array[int]", "array[int]"]]:
    """Chunks of ids, and of the row ends among all ids."""
    code, _ = DTYPES[_dtype_name(vocab_size)]
    ids, ends, total = array(code), array("q"), 0
    for example in examples:
        if len(example) != rows:
            raise TrainingError(f"every example of this store has {rows} rows; got one with {len(example)}")
        for row in example:
            ids.extend(_checked(row, code, vocab_size))
            total += len(row)
            ends.append(total)
        if len(ids) + len(ends) > CHUNK:
            yield ids, ends
            ids, ends = array(code), array("q")
    yield ids, ends


def _checked(row: Ids, code: str, vocab_size: int) -> "array[int]":
    if len(row) and (min(row) < 0 or max(row) >= vocab_size):
        raise TrainingError(f"expected ids from 0 to {vocab_size - 1}, got {min(row)} to {max(row)}")
    return array(code, row)


def _dtype_name(vocab_size: int) -> DtypeName:
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def _map_file(path: Path) -> memoryview:
    """A memory map of a file."""
    with path.open("rb") as file:
        # Private and writable, though nothing writes: torch warns about memory that is read-only.
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))

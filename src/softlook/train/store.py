"""Examples as rows of ids, one behind the other: in memory, or on disk, where they are read as they lie."""

import hashlib
import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, overload

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from softlook.base.errors import TrainingError
from softlook.train.examples import Ids
from softlook.weights.folders import new_folder
from softlook.weights.schema import read_json

IDS, EDGES, ABOUT = "ids.bin", "edges.bin", "store.json"
KINDS: dict[str, tuple[Literal["H", "I"], torch.dtype]] = {"uint16": ("H", torch.uint16), "uint32": ("I", torch.uint32)}
PORTION = 1 << 18
"""Numbers that are written, or looked at, at once."""
Example = tuple[list[int], ...]


class Kept(BaseModel):
    """One file of a store."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bytes: int
    sha256: str


class About(BaseModel):
    """What lies in a store's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal[2] = 2
    kind: Literal["uint16", "uint32"]
    vocab: int
    rows: int
    """Of each example."""
    files: dict[str, Kept]
    seal: str = ""
    """A digest of all the others."""

    def sealed(self) -> "About":
        content = self.model_dump_json(exclude={"seal"}).encode()
        return self.model_copy(update={"seal": hashlib.sha256(content).hexdigest()})


class Store(Sequence[Example]):
    """Examples of one or several rows of ids each. Only what is asked for is read.

    >>> store = gathered([([5, 6], [7]), ([8], [])], vocab=10, rows=2)
    >>> store[0], store[-1], store.lengths(0)
    (([5, 6], [7]), ([8], []), tensor([2, 1], dtype=torch.int32))
    """

    def __init__(self, ids: memoryview, edges: memoryview, rows: int) -> None:
        self.ids, self.edges, self.rows = ids, edges, rows

    @staticmethod
    def open(folder: Path) -> "Store":
        """What `write_store` wrote, if every byte of it is still the same."""
        about = _about(folder)
        for name in (IDS, EDGES):
            _verify(folder / name, about.files.get(name))
        code, _ = KINDS[about.kind]
        return Store(_mapped(folder / IDS).cast(code), _mapped(folder / EDGES).cast("q"), about.rows)

    def __len__(self) -> int:
        return (len(self.edges) - 1) // self.rows

    @overload
    def __getitem__(self, number: int, /) -> Example: ...
    @overload
    def __getitem__(self, number: slice, /) -> list[Example]: ...
    def __getitem__(self, number: int | slice, /) -> Example | list[Example]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        first = range(len(self))[number] * self.rows  # a number that is not there is an IndexError
        edges = self.edges[first : first + self.rows + 1].tolist()
        return tuple(self.ids[begin:end].tolist() for begin, end in zip(edges, edges[1:], strict=False))

    def lengths(self, row: int = 0) -> Tensor:
        """How long this row of each example is, for all of them."""
        edges = tensor_of(self.edges, torch.int64)
        begins, ends = edges[row : -1 : self.rows], edges[row + 1 :: self.rows]
        made = torch.empty(len(self), dtype=torch.int32)
        for start in range(0, len(self), PORTION):
            some = slice(start, start + PORTION)
            made[some] = ends[some] - begins[some]
        return made

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All ids as they lie, and where each row begins."""
        dtype = next(dtype for code, dtype in KINDS.values() if code == self.ids.format)
        return tensor_of(self.ids, dtype), tensor_of(self.edges, torch.int64)[:-1]


def gathered(examples: Iterable[Sequence[Ids]], *, vocab: int, rows: int = 1) -> Store:
    """A store in memory."""
    ids, edges = array(KINDS[_kind(vocab)][0]), array("q", [0])
    for some, ends in _portions(examples, vocab, rows):
        ids.extend(some)
        edges.extend(ends)
    return Store(memoryview(ids), memoryview(edges), rows)


def write_store(examples: Iterable[Sequence[Ids]], folder: Path, *, vocab: int, rows: int = 1) -> Path:
    """Write examples, as they come, as a new folder; it is there as a whole or not at all."""
    with new_folder(folder) as made:
        with _Writing(made / IDS) as ids, _Writing(made / EDGES) as edges:
            edges.put(array("q", [0]))
            for some, ends in _portions(examples, vocab, rows):
                ids.put(some)
                edges.put(ends)
        if not ids.size:
            raise TrainingError("there is nothing to learn from: no examples came")
        files = {IDS: ids.kept(), EDGES: edges.kept()}
        about = About(kind=_kind(vocab), vocab=vocab, rows=rows, files=files).sealed()
        (made / ABOUT).write_text(about.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return folder


def tensor_of(numbers: memoryview, dtype: torch.dtype) -> Tensor:
    """Numbers in memory or on disk as a tensor, without a copy."""
    return torch.frombuffer(numbers, dtype=dtype) if len(numbers) else torch.empty(0, dtype=dtype)


class _Writing:
    """A file on its way to the disk, and its digest."""

    def __init__(self, path: Path) -> None:
        self.path, self.digest, self.size = path, hashlib.sha256(), 0

    def __enter__(self) -> "_Writing":
        self.file = self.path.open("wb")
        return self

    def __exit__(self, *fault: object) -> None:
        self.file.close()

    def put(self, numbers: "array[int]") -> None:
        content = memoryview(numbers).cast("B")
        self.file.write(content)
        self.digest.update(content)
        self.size += len(content)

    def kept(self) -> Kept:
        return Kept(bytes=self.size, sha256=self.digest.hexdigest())


def _portions(examples: Iterable[Sequence[Ids]], vocab: int, rows: int) -> Iterator[tuple["array[int]", "array[int]"]]:
    """Ids, and where rows end among all of them, so many at a time."""
    code, _ = KINDS[_kind(vocab)]
    ids, ends, total = array(code), array("q"), 0
    for example in examples:
        if len(example) != rows:
            raise TrainingError(f"every example of this store has {rows} rows; one of {len(example)} came")
        for row in example:
            ids.extend(_checked(row, code, vocab))
            total += len(row)
            ends.append(total)
        if len(ids) + len(ends) > PORTION:
            yield ids, ends
            ids, ends = array(code), array("q")
    yield ids, ends


def _checked(row: Ids, code: str, vocab: int) -> "array[int]":
    if len(row) and (min(row) < 0 or max(row) >= vocab):
        raise TrainingError(f"ids go from 0 to {vocab - 1}; {min(row)} to {max(row)} came")
    return array(code, row)


def _kind(vocab: int) -> Literal["uint16", "uint32"]:
    return "uint16" if vocab <= 1 << 16 else "uint32"


def _about(folder: Path) -> About:
    try:
        about = About.model_validate(read_json(folder / ABOUT))
    except ValidationError as fault:
        what = fault.errors()[0]
        raise TrainingError(f"{folder / ABOUT} is not what was written: {what['loc']}: {what['msg']}") from None
    except ValueError as fault:  # not there, or no JSON
        raise TrainingError(str(fault)) from None
    if about != about.sealed():
        raise TrainingError(f"{folder / ABOUT} is not what was written: its digest is another one")
    return about


def _verify(path: Path, kept: Kept | None) -> None:
    if kept is None or not path.is_file():
        raise TrainingError(f"{path} is not there, or not known to {ABOUT}")
    if path.stat().st_size != kept.bytes:
        raise TrainingError(
            f"{path} is not what was written: it should have {kept.bytes:,} bytes and has {path.stat().st_size:,}"
        )
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != kept.sha256:
            raise TrainingError(f"{path} is not what was written: its digest is another one")


def _mapped(path: Path) -> memoryview:
    """The bytes of a file, read when they are looked at."""
    with path.open("rb") as file:
        # Private and writable, though nobody writes: torch warns of memory that it could not write to.
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))

"""Vectors to a file: .npy, .parquet or .jsonl, written as they come and there only once it is whole."""

import json
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.cli.whole_files import new_file
from softlook.data.opening import arrow_for

HEAD = 128
"""Bytes before the numbers of a .npy file: enough for any shape, which is known only at the end."""


class Writer(Protocol):
    """What takes vectors."""

    def add(self, texts: Sequence[str], vectors: Tensor) -> None:
        """Some more."""
        ...

    def close(self) -> None:
        """There are no more."""
        ...


def vector_file(path: Path) -> AbstractContextManager[Writer]:
    """A new file of the kind that its ending says. Nothing is overwritten, and half a file is not left behind."""
    kinds: dict[str, Callable[[Path], Writer]] = {".npy": NumpyFile, ".parquet": ParquetFile, ".jsonl": LinesFile}
    return new_file(path, kinds, "vectors")


class NumpyFile:
    """Rows of floats, as numpy's `load` reads them, also where they do not fit into memory."""

    def __init__(self, path: Path) -> None:
        self.file, self.rows, self.width = path.open("wb"), 0, 0
        self.file.write(bytes(HEAD))

    def add(self, texts: Sequence[str], vectors: Tensor) -> None:
        self.rows, self.width = self.rows + len(vectors), vectors.shape[1]
        self.file.write(_floats(vectors))

    def close(self) -> None:
        words = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({self.rows}, {self.width}), }}"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", HEAD - 10) + words.ljust(HEAD - 11).encode() + b"\n")
        self.file.close()


class ParquetFile:
    """A table of texts and vectors."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, None

    def add(self, texts: Sequence[str], vectors: Tensor) -> None:
        if self.file is None:
            self.file = arrow_for(self.path).VectorFile(self.path, vectors.shape[1])
        self.file.add(list(texts), _floats(vectors))

    def close(self) -> None:
        if self.file is None:
            raise ConfigError("there were no texts, and a table of none has no width")
        self.file.close()


class LinesFile:
    """An object of JSON a line."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")

    def add(self, texts: Sequence[str], vectors: Tensor) -> None:
        for text, vector in zip(texts, vectors, strict=True):
            self.file.write(json.dumps(as_object(text, vector), ensure_ascii=False) + "\n")

    def close(self) -> None:
        self.file.close()


def as_object(text: str, vector: Tensor) -> dict[str, object]:
    """One text and its vector, as JSON has it; seven digits are all that a float of four bytes knows."""
    return {"text": text, "vector": [float(f"{number:.7g}") for number in vector.tolist()]}


def _floats(vectors: Tensor) -> bytes:
    """The numbers as they lie in memory: of four bytes, the lowest first on all machines there are wheels for."""
    numbers = vectors.float().contiguous()
    return bytes(numbers.untyped_storage())[numbers.storage_offset() * 4 :][: numbers.numel() * 4]

"""Tensors into several files, one after the other, so that nobody has to hold more than one beside those there are."""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.weights.files import INDEX, SINGLE, check_usable
from softlook.weights.parts import part_name

KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Writer:
    """One safetensors file, tensor by tensor in the order of `names`. Size and digest are known when all are there."""

    def __init__(self, file: BinaryIO, path: Path, kinds: Mapping[str, Tensor]) -> None:
        self.path, self.names, self._file, self._digest, self.bytes = path, in_order(kinds), file, sha256(), 0
        written = _header(kinds, self.names, path)
        self._write(struct.pack("<Q", len(written)) + written)

    def add(self, name: str, tensor: Tensor) -> None:
        """The next one."""
        check_usable({name: tensor}, Path(self.path.name))
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        self._write(flat.view(torch.uint8).numpy().data)

    def entry(self) -> dict[str, Any]:
        """What a manifest says of the file."""
        return {"bytes": self.bytes, "sha256": self._digest.hexdigest()}

    def _write(self, content: bytes | memoryview) -> None:
        self._file.write(content)
        self._digest.update(content)
        self.bytes += len(content)


def _header(kinds: Mapping[str, Tensor], names: list[str], path: Path) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        tensor = kinds[name]
        if tensor.dtype not in KINDS:
            raise WeightsError(f"{path.name}: {name!r:.200} holds {tensor.dtype} numbers, which no file can hold")
        begin, end = end, end + _bytes(tensor)
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    written = json.dumps(header, separators=(",", ":")).encode()
    return written + b" " * (-len(written) % 8)  # so that every number lies where it can be read in one go


@contextmanager
def writing(path: Path, kinds: Mapping[str, Tensor]) -> Iterator[Writer]:
    """A new file for tensors of these shapes and kinds. It is on disk when the block ends."""
    with path.open("xb") as file:
        yield Writer(file, path, kinds)
        file.flush()
        os.fsync(file.fileno())


def in_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """The order of tensors in a file: large kinds first, so that none lies askew; then by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def dealt(tensors: Mapping[str, Tensor], count: int) -> dict[str, int]:
    """Which of `count` files each whole tensor goes to, so that they become about equally large.

    >>> dealt({"a": torch.zeros(3), "b": torch.zeros(2), "c": torch.zeros(2)}, 2)
    {'a': 0, 'b': 1, 'c': 1}
    """
    loads = [0] * count
    homes: dict[str, int] = {}
    for name in sorted(tensors, key=lambda name: (-_bytes(tensors[name]), name)):
        homes[name] = min(range(count), key=lambda number: loads[number])
        loads[homes[name]] += _bytes(tensors[name])
    return homes


def write_index(folder: Path, homes: Mapping[str, int], count: int, size: int) -> None:
    """Which of `count` parts holds which whole tensor, as Hugging Face's readers want to know it."""
    places = {name: part_name(SINGLE, home, count) for name, home in sorted(homes.items())}
    content = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of all of them together."""
    return sum(map(_bytes, tensors.values()))


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

"""Reading and writing safetensors files, whole or sharded. Pickles are never loaded."""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.weights.atomic_folder import disk_errors, fsync
from softlook.weights.manifest import MANIFEST_FILE, FileEntries, HashingWriter
from softlook.weights.schema import read_json, write_json

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
MAX_INDEX_BYTES = 64 << 20
MAX_HEADER_BYTES = 16 << 20
"""The header lists name, dtype and shape of each tensor: about 1 MB for the largest published models."""
FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read every tensor of a folder, from its single file or from the shards its index lists."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        for name, tensor in read_safetensors(path).items():
            if name in tensors:
                raise WeightsError(f"{folder} holds {name!r:.200} twice, again in {path.name}")
            tensors[name] = tensor
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder."""
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    if (folder / INDEX_FILE).is_file():
        return _indexed_files(folder / INDEX_FILE)
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLE_SUFFIXES)
    if pickled:
        raise WeightsError(f"{folder} holds its weights as {pickled[0]}, {PICKLE_HELP}")
    raise WeightsError(f"{folder} holds no {SINGLE_FILE} and no {INDEX_FILE}")


PICKLE_HELP = (
    "a pickle, which can run arbitrary code when loaded; softlook loads none. If you trust it, convert it once with "
    "transformers: AutoModel.from_pretrained(folder).save_pretrained(new_folder)"
)


def _indexed_files(index: Path) -> list[Path]:
    weight_map = read_json(index, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{index} is not a safetensors index: it has no weight_map")
    for name in weight_map.values():
        # An index may not point outside its folder.
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise WeightsError(f"{index} lists {name!r:.200}, which is not a safetensors file in the same folder")
        if not (index.parent / name).is_file():
            raise WeightsError(f"{index} lists {name}, which is missing. Copy the whole model.")
    return [index.parent / name for name in sorted(set(weight_map.values()))]


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file."""
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path} is damaged or not a safetensors file: {str(error):.200}") from None


def _check_header(path: Path) -> None:
    """Check the size of the header before the file is parsed."""
    with disk_errors("read", path), path.open("rb") as file:
        header, size = int.from_bytes(file.read(8), "little"), path.stat().st_size
    if size < 8 + header:
        raise WeightsError(f"{path} is truncated or not a safetensors file: it ends before its header does")
    if header > MAX_HEADER_BYTES:
        raise WeightsError(f"{path} has a header of {header:,} bytes; the maximum is {MAX_HEADER_BYTES:,}")


DTYPE_NAMES = {
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


class SafetensorsWriter(HashingWriter):
    """Writes one safetensors file tensor by tensor, in the order of `names`."""

    def __init__(self, file: BinaryIO, path: Path, layout: Mapping[str, Tensor]) -> None:
        super().__init__(file)
        self.path, self.names = path, storage_order(layout)
        header = _header(layout, self.names, path)
        self.write(struct.pack("<Q", len(header)) + header)

    def add(self, name: str, tensor: Tensor) -> None:
        """Write the next tensor."""
        check_values({name: tensor}, Path(self.path.name))
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        self.write(flat.view(torch.uint8).numpy().data)


def _header(layout: Mapping[str, Tensor], names: list[str], path: Path) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        tensor = layout[name]
        if tensor.dtype not in DTYPE_NAMES:
            raise WeightsError(
                f"{path.name}: {name!r:.200} has dtype {tensor.dtype}, which safetensors does not support"
            )
        begin, end = end, end + nbytes(tensor)
        header[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    return encoded + b" " * (-len(encoded) % 8)  # aligned to 8 bytes


@contextmanager
def open_writer(path: Path, layout: Mapping[str, Tensor]) -> Iterator[SafetensorsWriter]:
    """Open a new file for tensors with the shapes and dtypes of `layout`; flushed to disk on exit."""
    with path.open("xb") as file:
        yield SafetensorsWriter(file, path, layout)
    fsync(path)


def storage_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """The order of tensors in a file: by descending item size, for alignment, then by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def write_safetensors(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Write tensors to a safetensors file. Returns its manifest entry."""
    path.unlink(missing_ok=True)  # not overwritten: its tensors may be mapped into memory
    with open_writer(path, tensors) as writer:
        for name in writer.names:
            writer.add(name, tensors[name])
        return writer.manifest_entry()


def nbytes(tensor: Tensor) -> int:
    """Size of a tensor in bytes; also of a sharded one, of which this process holds only a part."""
    return tensor.numel() * tensor.element_size()


def check_values(tensors: dict[str, Tensor], path: Path) -> None:
    """Raise WeightsError for quantized dtypes, NaN and infinity."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.dtype not in FLOAT_DTYPES:
            raise WeightsError(
                f"{path}: {name!r:.200} has dtype {tensor.dtype}, which is quantized; softlook reads 16, 32 and "
                "64 bit floats. Use unquantized weights, or import a GGUF file."
            )
        if tensor.is_floating_point() and tensor.numel() and not all(map(torch.isfinite, tensor.detach().aminmax())):
            raise WeightsError(
                f"{path}: {name!r:.200} contains NaN or infinity. The file is damaged, or training diverged."
            )


SLICES_KEY = "slices"
"""Key of a manifest entry: tensor name -> (first row, last row + 1) in this file."""


def shard_name(file: str, number: int, count: int) -> str:
    """The file name of a shard, as Hugging Face names them.

    >>> shard_name("model.safetensors", 0, 4)
    'model-00001-of-00004.safetensors'
    """
    return f"{file.removesuffix('.safetensors')}-{number + 1:05}-of-{count:05}.safetensors"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor stored as one or several row slices: (first row, rows).

    >>> stored = StoredTensor(((0, torch.tensor([5, 6])), (2, torch.tensor([7]))))
    >>> stored.shape, stored.rows(1, 3)
    (torch.Size([3]), tensor([6, 7]))
    """

    slices: tuple[tuple[int, Tensor], ...]

    @staticmethod
    def from_tensor(tensor: Tensor) -> "StoredTensor":
        """A tensor stored as one slice."""
        return StoredTensor(((0, tensor),))

    @property
    def shape(self) -> torch.Size:
        begin, last = self.slices[-1]
        return torch.Size((begin + len(last), *last.shape[1:])) if last.ndim else last.shape

    def meta(self) -> Tensor:
        """A meta tensor of this shape and dtype."""
        return torch.empty(self.shape, dtype=self.slices[0][1].dtype, device="meta")

    def full(self) -> Tensor:
        return self.slices[0][1] if len(self.slices) == 1 else torch.cat([rows for _, rows in self.slices])

    def rows(self, begin: int, end: int) -> Tensor:
        """Some rows; only these are read from disk."""
        cut = [rows[max(begin - at, 0) : max(end - at, 0)] for at, rows in self.slices]
        found = [rows for rows in cut if len(rows)]
        return torch.cat(found) if len(found) > 1 else (found or cut)[0]


def read_shards(folder: Path, file: str, files: FileEntries) -> dict[str, StoredTensor]:
    """Open the tensors of a file or of its shards, as listed in the manifest. Data is read lazily."""
    found: dict[str, list[tuple[int, Tensor]]] = {}
    for part in shard_files(folder, file, files):
        slices = files[part].get(SLICES_KEY, {})
        for name, tensor in read_safetensors(folder / part).items():
            begin, end = slices.get(name, (0, len(tensor) if tensor.ndim else 0))
            if tensor.ndim and end - begin != len(tensor):
                raise WeightsError(f"{folder / part} holds {len(tensor)} rows of {name!r:.200}, expected {end - begin}")
            found.setdefault(name, []).append((begin, tensor))
    return {name: _join_slices(name, slices, folder / file) for name, slices in found.items()}


def shard_files(folder: Path, file: str, files: FileEntries) -> list[str]:
    """The names under which a manifest lists a file: its own, or those of all its shards."""
    if file in files:
        return [file]
    pattern = re.compile(re.escape(file.removesuffix(".safetensors")) + r"-\d{5}-of-(\d{5})\.safetensors")
    counts = [int(match[1]) for name in files if (match := pattern.fullmatch(name))]
    if not counts:
        raise WeightsError(f"{folder / MANIFEST_FILE} does not list {file}: this is not a checkpoint")
    expected = [shard_name(file, number, counts[0]) for number in range(counts[0])]
    for name in expected:
        if name not in files:
            raise WeightsError(f"{folder / MANIFEST_FILE} does not list {name}, one of {counts[0]} shards of {file}")
    return expected


def _join_slices(name: str, slices: list[tuple[int, Tensor]], where: Path) -> StoredTensor:
    """Join row slices, which must be contiguous and must not overlap."""
    slices = sorted((part for part in slices if len(slices) == 1 or part[1].numel()), key=lambda part: part[0])
    ends = [(0, 0), *((begin, begin + len(rows) if rows.ndim else 0) for begin, rows in slices)]
    if any(before[1] != after[0] for before, after in pairwise(ends)):
        raise WeightsError(f"{where}: the slices of {name!r:.200} are not contiguous")
    return StoredTensor(tuple(slices))


def assign_shards(tensors: Mapping[str, Tensor], count: int) -> dict[str, int]:
    """Assign each tensor to one of `count` shards of about equal size.

    >>> assign_shards({"a": torch.zeros(3), "b": torch.zeros(2), "c": torch.zeros(2)}, 2)
    {'a': 0, 'b': 1, 'c': 1}
    """
    loads = [0] * count
    shards: dict[str, int] = {}
    for name in sorted(tensors, key=lambda name: (-nbytes(tensors[name]), name)):
        shards[name] = min(range(count), key=lambda number: loads[number])
        loads[shards[name]] += nbytes(tensors[name])
    return shards


def write_index(folder: Path, shards: Mapping[str, int], count: int, size: int) -> None:
    """Write the index of a sharded checkpoint in Hugging Face's format."""
    weight_map = {name: shard_name(SINGLE_FILE, shard, count) for name, shard in sorted(shards.items())}
    content = {"metadata": {"total_size": size}, "weight_map": weight_map}
    write_json(folder / INDEX_FILE, content)


def total_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Total size of all tensors in bytes."""
    return sum(map(nbytes, tensors.values()))

"""Reading and writing safetensors files. Pickles are never loaded."""

import os
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.weights.atomic_folder import disk_errors
from softlook.weights.schema import read_json

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


def write_safetensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to one safetensors file, sorted by name."""
    check_values(tensors, Path(path.name))
    contiguous = {name: tensor.detach().to("cpu").contiguous() for name, tensor in sorted(tensors.items())}
    path.touch()
    mode = path.stat().st_mode  # by the user's umask; safetensors creates files with mode 600
    try:
        save_file(contiguous, path, metadata={"format": "pt"})
    except SafetensorError as error:  # the OS error is part of its message
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from error
    path.chmod(mode)


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

"""Tensors from and to files. safetensors only: nothing is ever unpickled."""

import os
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.weights.folders import told
from softlook.weights.schema import read_json

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
LARGEST_INDEX = 64 << 20
LARGEST_HEADER = 16 << 20
"""Bytes. A header says a name, a kind and a shape for each tensor; the largest models there are need one megabyte."""
KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor in a folder's one file, or in the parts its index names."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        for name, tensor in read_file(path).items():
            if name in tensors:
                raise WeightsError(f"{folder} holds {name!r:.200} twice, the second time in {path.name}")
            tensors[name] = tensor
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _parts(folder / INDEX)
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickled:
        raise WeightsError(f"{folder} holds its weights as {pickled[0]}, {HOW_TO_CONVERT}")
    raise WeightsError(f"{folder} holds no {SINGLE} and no {INDEX}")


HOW_TO_CONVERT = (
    "a pickle, which can run any code when it is opened; softlook opens none. Where you trust it, convert it once, in "
    "an environment with transformers: AutoModel.from_pretrained(folder).save_pretrained(new_folder)"
)


def _parts(index: Path) -> list[Path]:
    listed = read_json(index, LARGEST_INDEX).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise WeightsError(f"{index} is not an index of safetensors files: it has no weight_map")
    for name in listed.values():
        # An index may not lead out of its folder.
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise WeightsError(f"{index} names {name!r:.200}, which is not a safetensors file beside it")
        if not (index.parent / name).is_file():
            raise WeightsError(f"{index} names {name}, which is missing. Was the whole model copied?")
    return [index.parent / name for name in sorted(set(listed.values()))]


def read_file(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file."""
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (it is no dict)
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, AttributeError) as fault:
        raise WeightsError(f"{path} is damaged or no safetensors file: {str(fault):.200}") from None


def _check_header(path: Path) -> None:
    """A header larger than a header can be is not worth reading."""
    with told("read", path), path.open("rb") as file:
        header, size = int.from_bytes(file.read(8), "little"), path.stat().st_size
    if size < 8 + header:
        raise WeightsError(f"{path} is damaged or no safetensors file: it ends before its header does, or is truncated")
    if header > LARGEST_HEADER:
        raise WeightsError(
            f"{path} has a header of {header:,} bytes; the largest softlook reads has {LARGEST_HEADER:,}"
        )


def write_file(tensors: dict[str, Tensor], path: Path) -> None:
    """Tensors into one file, in the order of their names."""
    check_usable(tensors, Path(path.name))
    owned = {name: tensor.detach().to("cpu").contiguous() for name, tensor in sorted(tensors.items())}
    path.touch()
    mode = path.stat().st_mode  # as the user wants files made; safetensors makes them for their owner's eyes only
    try:
        save_file(owned, path, metadata={"format": "pt"})
    except SafetensorError as fault:  # what the system said is in its message
        number = re.search(r"os error (\d+)", str(fault))
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(fault)) from fault
    path.chmod(mode)


def check_usable(tensors: dict[str, Tensor], where: Path) -> None:
    """A weight that is no number, or of a kind nothing is worked out in, would only be noticed much later."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.dtype not in KINDS:
            raise WeightsError(
                f"{where}: {name!r:.200} holds {tensor.dtype} numbers, which are quantised weights; softlook reads "
                "16, 32 and 64 bits. Take the weights that are not quantised, or import a GGUF file."
            )
        if tensor.is_floating_point() and tensor.numel() and not all(map(torch.isfinite, tensor.detach().aminmax())):
            raise WeightsError(
                f"{where}: {name!r:.200} holds NaN or infinity. The weights were damaged, or training failed."
            )

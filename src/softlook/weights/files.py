"""Tensors from and to files. safetensors only: nothing is ever unpickled."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from softlook.base.errors import WeightsError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor in a folder's one file, or in the parts its index names."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        for name, tensor in read_file(path).items():
            if name in tensors:
                raise WeightsError(f"{folder} holds {name!r} twice, the second time in {path.name}")
            tensors[name] = tensor
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights."""
    if not folder.is_dir():
        raise WeightsError(f"{folder} is not a folder. Give the folder that holds config.json and {SINGLE}.")
    if (folder / INDEX).is_file():
        return _parts(folder / INDEX)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickled:
        raise WeightsError(
            f"{folder} holds its weights as {pickled[0]}, a pickle, which can run any code when it is opened; softlook "
            "opens none. Where you trust it, convert it once, in an environment with transformers: "
            "AutoModel.from_pretrained(folder).save_pretrained(new_folder)"
        )
    raise WeightsError(f"{folder} holds no {SINGLE} and no {INDEX}")


def _parts(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise WeightsError(f"{index} is not an index of safetensors files: {fault}") from None
    for name in names:
        # An index may not lead out of its folder.
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise WeightsError(f"{index} names {name!r}, which is not a safetensors file beside it")
        if not (index.parent / name).is_file():
            raise WeightsError(f"{index} names {name}, which is missing. Was the whole model copied?")
    return [index.parent / name for name in sorted(names)]


def read_file(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file."""
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (it is no dict)
    except (SafetensorError, OSError, ValueError, RuntimeError) as fault:
        raise WeightsError(f"{path} is damaged or no safetensors file: {fault}") from None


def write_file(tensors: dict[str, Tensor], path: Path) -> None:
    """Tensors into one file, in the order of their names."""
    owned = {name: tensor.detach().to("cpu").contiguous() for name, tensor in sorted(tensors.items())}
    save_file(owned, path, metadata={"format": "pt"})


def check_finite(tensors: dict[str, Tensor], where: Path) -> None:
    """A weight that is no number would only be noticed much later."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WeightsError(
                f"{where}: {name!r} holds NaN or infinity. The weights were damaged, or training failed."
            )

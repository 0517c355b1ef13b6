"""What softlook runs on, for people who ask and for bug reports; and whether all of it works."""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from softlook.base.version import VERSION
from softlook.models import GPT, GPTConfig
from softlook.recipes.sizing import room_of
from softlook.train.device import choose_device
from softlook.weights import load, save

NEEDED = ("torch", "safetensors", "tokenizers", "pydantic", "cyclopts", "rich")
EXTRAS = (
    *("sacrebleu", "pyarrow", "zstandard", "babel", "onnx", "gguf", "ctranslate2"),
    *("tensorboard", "mlflow-skinny", "wandb", "trackio", "llguidance", "fastapi", "granian"),
)


def info() -> dict[str, str]:
    """Versions, devices and room, by name."""
    device = choose_device()
    facts = {
        "softlook": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "device": f"{device.type}{f' ({torch.cuda.get_device_name()})' if device.type == 'cuda' else ''}",
        "free disk": f"{shutil.disk_usage('.').free / 1e9:.1f} GB",
    }
    return facts | {name: _version(name) for name in (*NEEDED, *EXTRAS)}


@dataclass(frozen=True)
class Checked:
    """One thing that was tried."""

    name: str
    works: bool
    said: str


def doctor() -> list[Checked]:
    """Try what a run needs."""
    return [
        _tried("a device to compute on", lambda: str(choose_device())),
        _tried(
            "its speed", lambda: f"about {room_of(choose_device(), None).speed / 1e9:,.0f} GFLOP/s for small models"
        ),
        _tried("a small model learns", _learns),
        _tried("weights go to disk and back", _keeps),
        _tried("this folder can be written to", _writes),
        *(Checked(f"extra {name}", True, _version(name)) for name in EXTRAS),
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _tried(name: str, attempt: Callable[[], str]) -> Checked:
    try:
        return Checked(name, True, attempt())
    except Exception as fault:  # whatever it is, that is what was to be found out
        return Checked(name, False, f"{type(fault).__name__}: {fault}")


def _model() -> GPT:
    return GPT(GPTConfig(vocab=16, context=8, dim=16, depth=1, heads=2))


def _learns() -> str:
    device = choose_device()
    model, ids = _model().to(device), torch.arange(8, device=device)[None]
    loss = model(ids).square().mean()
    loss.backward()
    return f"a step on {device}"


def _keeps() -> str:
    with tempfile.TemporaryDirectory() as folder:
        load(save(_model(), Path(folder) / "model"))
    return "every byte as it was"


def _writes() -> str:
    with tempfile.NamedTemporaryFile(dir=".", prefix=".softlook-"):
        return str(Path.cwd())

"""Environment report (`softlook info`) and self-test (`softlook doctor`)."""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from softlook.base.device import choose_device
from softlook.base.version import VERSION
from softlook.models import GPT, GPTConfig
from softlook.recipes.config.autosize import measure_budget
from softlook.weights import load, save

REQUIRED = ("torch", "safetensors", "tokenizers", "pydantic", "cyclopts", "rich")
EXTRAS = (
    *("sacrebleu", "pyarrow", "zstandard", "babel", "onnx", "gguf", "ctranslate2"),
    *("tensorboard", "mlflow-skinny", "wandb", "trackio", "llguidance", "fastapi", "granian"),
)


def info() -> dict[str, str]:
    """Versions, devices and free disk space."""
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
    return facts | {name: _version(name) for name in (*REQUIRED, *EXTRAS)}


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    ok: bool
    message: str


def doctor() -> list[CheckResult]:
    """Check everything a training run needs."""
    return [
        _check("compute device", lambda: str(choose_device())),
        _check(
            "speed",
            lambda: (
                f"about {measure_budget(choose_device(), None).flops_per_second / 1e9:,.0f} GFLOP/s for small models"
            ),
        ),
        _check("training step", _train_step),
        _check("saving and loading weights", _save_and_load),
        _check("write access to the working directory", _write_file),
        *(CheckResult(f"extra {name}", True, _version(name)) for name in EXTRAS),
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _check(name: str, attempt: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(name, True, attempt())
    except Exception as error:
        return CheckResult(name, False, f"{type(error).__name__}: {error}")


def _small_model() -> GPT:
    return GPT(GPTConfig(vocab_size=16, context=8, dim=16, depth=1, heads=2))


def _train_step() -> str:
    device = choose_device()
    model, ids = _small_model().to(device), torch.arange(8, device=device)[None]
    loss = model(ids).square().mean()
    loss.backward()
    return f"a step on {device}"


def _save_and_load() -> str:
    with tempfile.TemporaryDirectory() as folder:
        load(save(_small_model(), Path(folder) / "model"))
    return "identical after a round trip"


def _write_file() -> str:
    with tempfile.NamedTemporaryFile(dir=".", prefix=".softlook-"):
        return str(Path.cwd())

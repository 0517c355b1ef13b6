"""Weights & Biases logger; offline without an API key."""

import netrc
import os
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from softlook.recipes.loggers.base import DEFAULT_PROJECT, RunInfo, Sample

ONLINE_MODES = ("online", "shared")
"""Modes that need an API key."""
TIMEOUT = 20.0
"""Seconds W&B gets to start, and to finish."""


class WandbLogger:
    """Logs settings as config, samples as tables and final scores as summary."""

    rewinds = False

    def __init__(self, info: RunInfo) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # sent even in offline mode otherwise
        self.wandb: Any = import_module("wandb")
        self.id, mode = info.run_id or uuid.uuid4().hex[:8], select_mode()
        limits = {
            name: TIMEOUT for name in ("init_timeout", "finish_timeout") if name in self.wandb.Settings.model_fields
        }
        self.run = self.wandb.init(
            project=os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT,
            name=info.name,
            id=self.id,
            resume="allow" if mode in ONLINE_MODES else None,
            dir=str(info.folder),
            mode=mode,
            config=info.settings,
            allow_val_change=True,
            settings=self.wandb.Settings(silent=True, console="off", **limits),
        )
        home = info.folder / "wandb"
        self.message = (
            f"Logging to W&B: {self.run.url}"
            if mode in ONLINE_MODES
            else f"Logging to W&B in {home} ({mode}); upload it with `wandb sync` and an API key."
        )

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None:
        if samples:
            columns = list(samples[0])
            rows = [[sample.get(name, "") for name in columns] for sample in samples]
            self.run.log({"samples": self.wandb.Table(columns=columns, data=rows)}, step=step)

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        self.run.summary.update(dict(scores))
        self.run.finish(exit_code=0 if complete else 1)


def select_mode() -> str:
    """WANDB_MODE; offline without an API key."""
    mode = os.environ.get("WANDB_MODE") or "online"
    return "offline" if mode in ONLINE_MODES and not has_api_key() else mode


def has_api_key() -> bool:
    """Whether an API key is in the environment or in the .netrc file."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    given = os.environ.get("NETRC")
    for path in [Path(given)] if given else [Path.home() / name for name in (".netrc", "_netrc")]:
        try:
            if netrc.netrc(str(path)).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False

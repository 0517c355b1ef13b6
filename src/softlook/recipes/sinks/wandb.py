"""A run's numbers for Weights & Biases. Without a key they stay in the run's folder, and nobody is asked for one."""

import netrc
import os
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from softlook.recipes.sinks.sink import PROJECT, About, Sample

AFIELD = ("online", "shared")
"""Modes that want a key."""
WAIT = 20.0
"""Seconds that W&B may take to be reached, and to send the last of it."""


class WeightsAndBiases:
    """One run of one project; settings are its config, samples a table, the last scores its summary."""

    forgets = False

    def __init__(self, about: About) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would call home even where it is offline
        self.wandb: Any = import_module("wandb")
        self.id, mode = about.known or uuid.uuid4().hex[:8], mode_of()
        limits = {name: WAIT for name in ("init_timeout", "finish_timeout") if name in self.wandb.Settings.model_fields}
        self.run = self.wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=about.name,
            id=self.id,
            resume="allow" if mode in AFIELD else None,
            dir=str(about.folder),
            mode=mode,
            config=about.settings,
            allow_val_change=True,
            settings=self.wandb.Settings(silent=True, console="off", **limits),
        )
        home = about.folder / "wandb"
        self.said = (
            f"W&B hears of it too: {self.run.url}"
            if mode in AFIELD
            else f"W&B writes to {home} alone ({mode}); `wandb sync` sends it, with a key."
        )

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        if samples:
            columns = list(samples[0])
            rows = [[sample.get(name, "") for name in columns] for sample in samples]
            self.run.log({"samples": self.wandb.Table(columns=columns, data=rows)}, step=step)

    def close(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        self.run.summary.update(dict(scores))
        self.run.finish(exit_code=0 if complete else 1)


def mode_of() -> str:
    """What WANDB_MODE says; but nothing goes online without a key."""
    mode = os.environ.get("WANDB_MODE") or "online"
    return "offline" if mode in AFIELD and not has_key() else mode


def has_key() -> bool:
    """Is there a key where W&B itself looks for one: in the environment, or in the .netrc file?"""
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

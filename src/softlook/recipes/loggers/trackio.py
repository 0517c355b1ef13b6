"""trackio logger: local, or TRACKIO_SPACE_ID or TRACKIO_SERVER_URL."""

import os
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from softlook.recipes.loggers.base import DEFAULT_PROJECT, RunInfo, Sample, discard_stdout, format_sample


class TrackioLogger:
    """Logs to one run of a project; trackio identifies runs by name."""

    rewinds = False

    def __init__(self, info: RunInfo) -> None:
        self.trackio: Any = import_module("trackio")
        project = os.environ.get("TRACKIO_PROJECT") or DEFAULT_PROJECT
        self.id = info.run_id or self._free_name(project, info.name)
        with discard_stdout():
            self.run = self.trackio.init(
                project=project,
                name=self.id,
                resume="allow" if info.run_id else "never",
                config=info.settings,
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        self.message = f"Logging to trackio: trackio show --project {project}"

    def _free_name(self, project: str, name: str) -> str:
        """The run's name, with a suffix if another run has it."""
        try:
            taken = {run.name for run in self.trackio.Api().runs(project)}
        except ValueError:  # a new project
            return name
        return f"{name}-{uuid.uuid4().hex[:4]}" if name in taken else name

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None:
        if samples:
            text = "\n\n".join(format_sample(sample, "  \n") for sample in samples)
            self.run.log({"samples": self.trackio.Markdown(text)}, step=step)

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        if scores:
            self.run.log(dict(scores), step=step)
        with discard_stdout():
            self.run.finish()

"""A run's numbers for trackio: on this machine, or wherever TRACKIO_SPACE_ID or TRACKIO_SERVER_URL say."""

import os
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from softlook.recipes.sinks.aside import printing_aside
from softlook.recipes.sinks.sink import PROJECT, About, Sample, in_lines


class Trackio:
    """One run of one project; trackio knows it by its name."""

    forgets = False

    def __init__(self, about: About) -> None:
        self.trackio: Any = import_module("trackio")
        project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        self.id = about.known or self._free(project, about.name)
        with printing_aside():
            self.run = self.trackio.init(
                project=project,
                name=self.id,
                resume="allow" if about.known else "never",
                config=about.settings,
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        self.said = f"trackio hears of it too: trackio show --project {project}"

    def _free(self, project: str, name: str) -> str:
        """The run's name; with something behind it where a run of another folder is called so."""
        try:
            taken = {run.name for run in self.trackio.Api().runs(project)}
        except ValueError:  # nothing was ever told under this project
            return name
        return f"{name}-{uuid.uuid4().hex[:4]}" if name in taken else name

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        if samples:
            words = "\n\n".join(in_lines(sample, "  \n") for sample in samples)
            self.run.log({"samples": self.trackio.Markdown(words)}, step=step)

    def close(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        if scores:
            self.run.log(dict(scores), step=step)
        with printing_aside():
            self.run.finish()

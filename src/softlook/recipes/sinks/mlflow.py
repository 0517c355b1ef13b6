"""A run's numbers for MLflow: in a database in the run's folder, or wherever MLFLOW_TRACKING_URI says."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from softlook.recipes.sinks.sink import PROJECT, About, Sample, in_lines

LONGEST = 500
"""Characters of a setting that are kept: more is more than every version of MLflow takes."""


class MLflow:
    """One run of one experiment; settings are its parameters, samples its artifacts."""

    forgets = False

    def __init__(self, about: About) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nobody asked for numbers to go anywhere else
        import_module("mlflow")
        logging.getLogger("mlflow.store").setLevel(logging.WARNING)  # making a database is not news
        self.entities: Any = import_module("mlflow.entities")
        home = about.folder.resolve() / "mlflow"
        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(home / 'mlflow.db').as_posix()}"
        is_ours = "MLFLOW_TRACKING_URI" not in os.environ
        if is_ours:
            home.mkdir(exist_ok=True)
        self.client: Any = import_module("mlflow.tracking").MlflowClient(tracking_uri=where)
        self.id = about.known or self._begin(about, str((home / "artifacts").as_uri()) if is_ours else None)
        self._settle(about)
        self.said = f"MLflow hears of it too: mlflow ui --backend-store-uri {where}"

    def _begin(self, about: About, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        found = self.client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self.client.create_experiment(name, artifact_location=artifacts)
        return self.client.create_run(experiment, run_name=about.name).info.run_id

    def _settle(self, about: About) -> None:
        """Parameters cannot be changed: what was changed since is a tag."""
        self.client.update_run(self.id, status="RUNNING")
        known = self.client.get_run(self.id).data.params
        given = {name: value[:LONGEST] for name, value in about.settings.items()}
        new = [self.entities.Param(name, value) for name, value in given.items() if name not in known]
        changed = [
            self.entities.RunTag(name, value) for name, value in given.items() if known.get(name, value) != value
        ]
        self.client.log_batch(self.id, params=new, tags=changed)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self.client.log_batch(
            self.id, metrics=[self.entities.Metric(name, value, now, step) for name, value in values.items()]
        )

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        if samples:
            self.client.log_text(self.id, "\n\n".join(map(in_lines, samples)) + "\n", f"samples/{step:08}.txt")

    def close(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        if scores:
            self.numbers(step, scores)
        self.client.set_terminated(self.id, status="FINISHED" if complete else "KILLED")

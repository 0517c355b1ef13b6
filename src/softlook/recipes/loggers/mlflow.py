"""MLflow logger: a local database in the run directory, or MLFLOW_TRACKING_URI."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from softlook.recipes.loggers.base import DEFAULT_PROJECT, RunInfo, Sample, format_sample

MAX_PARAM_CHARS = 500
"""Characters of a parameter value that every version of MLflow accepts."""


class MLflowLogger:
    """Logs settings as parameters, scores as metrics and samples as artifacts."""

    rewinds = False

    def __init__(self, info: RunInfo) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import_module("mlflow")
        logging.getLogger("mlflow.store").setLevel(logging.WARNING)
        self.entities: Any = import_module("mlflow.entities")
        home = info.folder.resolve() / "mlflow"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(home / 'mlflow.db').as_posix()}"
        is_local = "MLFLOW_TRACKING_URI" not in os.environ
        if is_local:
            home.mkdir(exist_ok=True)
        self.client: Any = import_module("mlflow.tracking").MlflowClient(tracking_uri=uri)
        self.id = info.run_id or self._create_run(info, str((home / "artifacts").as_uri()) if is_local else None)
        self._log_params(info)
        self.message = f"Logging to MLflow: mlflow ui --backend-store-uri {uri}"

    def _create_run(self, info: RunInfo, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_PROJECT
        found = self.client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self.client.create_experiment(name, artifact_location=artifacts)
        return self.client.create_run(experiment, run_name=info.name).info.run_id

    def _log_params(self, info: RunInfo) -> None:
        """Log new parameters; changed ones become tags, since MLflow parameters are immutable."""
        self.client.update_run(self.id, status="RUNNING")
        known = self.client.get_run(self.id).data.params
        given = {name: value[:MAX_PARAM_CHARS] for name, value in info.settings.items()}
        new = [self.entities.Param(name, value) for name, value in given.items() if name not in known]
        changed = [
            self.entities.RunTag(name, value) for name, value in given.items() if known.get(name, value) != value
        ]
        self.client.log_batch(self.id, params=new, tags=changed)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self.client.log_batch(
            self.id, metrics=[self.entities.Metric(name, value, now, step) for name, value in metrics.items()]
        )

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None:
        if samples:
            self.client.log_text(self.id, "\n\n".join(map(format_sample, samples)) + "\n", f"samples/{step:08}.txt")

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        if scores:
            self.log_metrics(step, scores)
        self.client.set_terminated(self.id, status="FINISHED" if complete else "KILLED")

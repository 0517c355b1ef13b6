"""Experiment loggers: TensorBoard, trackio, MLflow and Weights & Biases behind one interface."""

import logging
import netrc
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

Sample = Mapping[str, str]
DEFAULT_PROJECT = "softlook"
"""Project or experiment name, if the environment sets none."""
MAX_PARAM_CHARS = 500
"""Characters of a parameter value that every version of MLflow accepts."""
ONLINE_MODES = ("online", "shared")
"""Modes that need an API key."""
TIMEOUT = 20.0
"""Seconds W&B gets to start, and to finish."""


@dataclass(frozen=True)
class RunInfo:
    """The run that is logged."""

    folder: Path
    settings: dict[str, str]
    """By dotted name."""
    step: int = 0
    """The step a run is resumed from."""
    run_id: str = ""
    """The logger's id of a run that is resumed; empty for a new run."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name


class Logger(Protocol):
    """Logs the metrics of a run. If it raises an error, it is disabled and the run continues."""

    id: str
    """The logger's id of the run, for resuming."""
    message: str
    """Where the metrics go; empty if there is nothing to report."""
    rewinds: bool
    """Whether it drops metrics of repeated steps by itself. To other loggers each step is logged once."""

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None: ...

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None: ...


LoggerFactory = Callable[[RunInfo], Logger]


def format_sample(sample: Sample, separator: str = "\n") -> str:
    """A sample as text.

    >>> format_sample({"source": "one", "prediction": "eins"})
    'source: one\\nprediction: eins'
    """
    return separator.join(f"{name}: {text}" for name, text in sample.items())


class _ThreadFilter:
    """A stream that discards what one thread writes."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def discard_stdout() -> Iterator[None]:
    """Discard what this thread prints to stdout, which carries the result of a command."""
    before = sys.stdout
    sys.stdout = filtered = _ThreadFilter(before)
    try:
        yield
    finally:
        if sys.stdout is filtered:
            sys.stdout = before


class TensorBoardLogger:
    """Writes event files to the run directory: `tensorboard --logdir runs`."""

    id, message, rewinds = "tensorboard", "", True

    def __init__(self, info: RunInfo) -> None:
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        # Metrics that a killed process logged after its last checkpoint are purged and logged again.
        purge = {"purge_step": info.step + 1} if info.step else {}
        self.writer = writer(str(info.folder / "tensorboard"), **purge)
        rows = "\n".join(f"| {name} | {value} |" for name, value in info.settings.items())
        self.writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", info.step)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None:
        for number, sample in enumerate(samples):
            self.writer.add_text(f"sample/{number}", format_sample(sample, "\n\n"), step)
        self.writer.flush()

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        self.log_metrics(step, scores)
        self.writer.close()


class TrackioLogger:
    """Logs to a run locally, or to TRACKIO_SPACE_ID or TRACKIO_SERVER_URL; trackio identifies runs by name."""

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


class MLflowLogger:
    """Logs settings as parameters, scores as metrics and samples as artifacts.

    They go to a local database in the run directory, or to MLFLOW_TRACKING_URI.
    """

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


class WandbLogger:
    """Logs settings as config, samples as tables and final scores as summary; offline without an API key."""

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


LOGGERS: dict[str, LoggerFactory] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
    "trackio": TrackioLogger,
}
"""The loggers by name; each imports its package when it is opened."""

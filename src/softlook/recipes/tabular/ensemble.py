"""Ensemble of a table run: fitted after the attention model, and saved in the run directory."""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from softlook.base.activity import report_activity
from softlook.base.errors import DataError
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.run_dir.report.formatting import Cell, Row, card, number_cell, section, table
from softlook.recipes.tabular.data import TableData
from softlook.recipes.tabular.estimator import build_estimator
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.presets import MIN_ROWS_TO_SPLIT
from softlook.tabular.serialization import load
from softlook.tabular.training.metrics import compute_metrics
from softlook.train.checkpoint.run_dir import write_json
from softlook.weights.manifest import ENSEMBLE_FOLDER
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")
ENSEMBLE_FILE = "ensemble.json"
"""Settings and validation scores of the ensemble of a run."""
ATTENTION_SHARE = 0.2
"""Fraction of a time limit for the run's own attention model; the rest is the ensemble's."""
UNUSED_SETTINGS = {"device", "save_every", "keep_checkpoints"}
"""Training settings that do not change the ensemble."""
LEADERBOARD = "leaderboard"


@dataclass(frozen=True)
class RunEnsemble:
    """The ensemble of a run."""

    estimator: TableEstimator
    scores: dict[str, float]
    """Metrics of out-of-fold predictions for the run's validation rows; empty if none of these was predicted."""
    rows: int
    """The validation rows that were predicted: fewer than all, if there was no time for all folds."""

    @property
    def seconds(self) -> float:
        """Duration of the fit."""
        return next(entry["seconds"] for entry in self.estimator.leaderboard_ if entry["kind"] == "ensemble")

    def leaderboard(self) -> list[dict[str, Any]]:
        """The models that were tried, the best one first: name, weight, validation loss and seconds."""
        return [
            {
                "model": entry["name"],
                "weight": entry["weight"],
                "validation_loss": entry["loss"],
                "seconds": entry["seconds"],
            }
            for entry in self.estimator.leaderboard_
        ]


def no_ensemble_reason(config: TabularConfig, data: TableData) -> str | None:
    """Why a run has a single model; None if it has an ensemble."""
    if config.ensemble == "single":
        return "--ensemble single"
    if config.estimator != "table":
        return f"--estimator {config.estimator} is a single model"
    if not isinstance(data.train.X, pa.Table):
        return "the table is read from disk"
    if data.shape[0] < MIN_ROWS_TO_SPLIT or not config.training.validation_fraction:
        return f"it requires validation rows, and at least {MIN_ROWS_TO_SPLIT} rows"
    is_constant = data.target.problem == "classification" and len(data.target.labels) < 2
    return "there is one class only" if is_constant else None


def attention_seconds(config: TabularConfig, data: TableData) -> float | None:
    """The time limit of the run's own attention model."""
    minutes = config.training.max_minutes
    if minutes is None:
        return None
    return 60 * minutes * (1.0 if no_ensemble_reason(config, data) else ATTENTION_SHARE)


def find_or_fit_ensemble(folder: Path, config: TabularConfig, data: TableData) -> RunEnsemble | None:
    """The ensemble of a run, fitted unless it was before with the same settings; None if there is none."""
    reason = no_ensemble_reason(config, data)
    if reason is not None:
        remove_ensemble(folder)
        log.info(f"A single attention model, no ensemble: {reason}.")
        return None
    settings = _settings(config)
    file = folder / ENSEMBLE_FILE
    if file.is_file() and (saved := read_json(file))["settings"] == settings:
        return RunEnsemble(load(folder).set_params(device=config.training.device), saved["scores"], saved["rows"])
    ensemble = _fit(config, data)
    if ensemble is not None:
        remove_ensemble(folder)
        ensemble.estimator.save(folder / ENSEMBLE_FOLDER)
        write_json(file, {"settings": settings, "scores": ensemble.scores, "rows": ensemble.rows})
    return ensemble


def remove_ensemble(folder: Path) -> None:
    """Remove the ensemble of a run, if there is one."""
    (folder / ENSEMBLE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / ENSEMBLE_FOLDER, ignore_errors=True)


def render_leaderboard(leaderboard: Sequence[Mapping[str, Any]]) -> str:
    """The models of an ensemble as an HTML table; empty without any.

    >>> render_leaderboard([])
    ''
    """
    if not leaderboard:
        return ""
    rows: list[Row] = [
        [Cell(str(entry["model"]), "name"), *(number_cell(entry[name], name) for name in list(entry)[1:])]
        for entry in leaderboard
    ]
    head = ["model", *(Cell(name, "num") for name in ("weight", "validation loss", "seconds"))]
    note = "The models that were cross-fitted, with the loss of their out-of-fold predictions. Weight 0: not used."
    return section("Ensemble", card(table(rows, head=head)), note=note)


def _fit(config: TabularConfig, data: TableData) -> RunEnsemble | None:
    estimator = build_estimator(config, data)
    if estimator.time_limit is not None:
        estimator.time_limit *= 1 - ATTENTION_SHARE
    log.info("Fitting an ensemble, which may take several times as long; --ensemble single leaves it out.")
    report_activity("fitting the ensemble")
    try:
        estimator._fit(*data.train, None, data.valid)
    except DataError as error:
        log.warning(f"There is no ensemble: {error}")
        return None
    except KeyboardInterrupt:
        log.info("The attention model is trained and saved. Run the same command again to fit the ensemble.")
        raise
    ensemble = estimator.ensemble_
    assert ensemble is not None and ensemble.predictions is not None and ensemble.targets is not None
    count = len(ensemble.targets)
    predictions, targets = ensemble.predictions.numpy(), ensemble.targets.numpy()
    return RunEnsemble(estimator, compute_metrics(estimator.target_, predictions, targets) if count else {}, count)


def _settings(config: TabularConfig) -> dict[str, Any]:
    """What may change when a run is resumed, and changes its ensemble."""
    training = config.training.model_dump(mode="json", exclude=UNUSED_SETTINGS)
    return json.loads(json.dumps({"ensemble": config.ensemble, "training": training}))

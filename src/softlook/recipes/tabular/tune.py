"""Hyperparameter search in a run directory.

Trials survive the process, and the best config is a file: `softlook train table --config runs/tune-adult/best.toml`.
Test rows are never used.
"""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from softlook.base.activity import report_activity
from softlook.recipes.config.resolve import ConfigLike, as_overrides, resolve_config, unflatten
from softlook.recipes.config.schema import FILE_FIELDS
from softlook.recipes.config.tabular_schema import TuneConfig
from softlook.recipes.run_dir.layout import TRIALS_FILE, run_dir_path
from softlook.recipes.tabular.data import locate_data_errors
from softlook.recipes.tabular.estimator import FIELDS, build_estimator
from softlook.recipes.tabular.run import load_data
from softlook.tabular.tuning import HyperparameterSearch, TrialResult
from softlook.train.checkpoint.run_dir import RunDir
from softlook.weights.atomic_folder import atomic_write_text

log = logging.getLogger("softlook.recipes")
JOURNAL_FILE, BEST_CONFIG_FILE = "trials.journal", "best.toml"
SEARCH_FIELDS = {"trials", "max_minutes", "run_dir", "fresh", "loggers"}
"""Fields of the search, which are not written to the best config."""
MUTABLE_SEARCH_FIELDS = SEARCH_FIELDS | FILE_FIELDS | {"no_baseline", "ensemble"}
"""Fields that may change when a search is resumed, or that are compared by content."""


@dataclass(frozen=True)
class TuneResult:
    """The result of a search."""

    folder: Path
    best: Path
    """The best config, a file for `--config`."""
    params: dict[str, Any]
    trials: list[TrialResult]


def tune(config: ConfigLike[TuneConfig], callback: Callable[[TrialResult], None] | None = None) -> TuneResult:
    """Search for hyperparameters: `softlook tune --data people.csv --target income --trials 20`.

    >>> from softlook.recipes.config.tabular_schema import TabularModelConfig, TabularTrainingConfig
    >>> rows = "".join(f"{n % 7},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\\n" for n in range(80))
    >>> _ = Path("people.csv").write_text(f"age,city,buys\\n{rows}")
    >>> small, short = TabularModelConfig(dim=8, depth=1, heads=2, n_members=1), TabularTrainingConfig(epochs=2)
    >>> config = TuneConfig(data=(Path("people.csv"),), target=("buys",), model=small, training=short, trials=2)
    >>> result = tune(config)
    >>> result.best.as_posix(), len(result.trials), result.params["optim.lr"] > 0
    ('runs/tune-people/best.toml', 2, True)
    """
    overrides = as_overrides(config)
    config = resolve_config(overrides, {}).config.model_copy(update={"test": ()})
    data = load_data(config)
    resolved = resolve_config(overrides, {"problem": data.target.problem})
    folder = RunDir(run_dir_path("tune", overrides))
    with folder.lock(), locate_data_errors(config):
        estimator = build_estimator(resolved.config, data)
        fixed = {name: value for name, value in resolved.values().items() if name not in MUTABLE_SEARCH_FIELDS}
        resumes = folder.open({"task": "tune", **unflatten(fixed)}, data.digest)
        search = HyperparameterSearch(estimator, journal=folder.path / JOURNAL_FILE)
        log.info(f"{'Resuming' if resumes else 'Starting'} {folder.path}")
        base = {**overrides.values, "problem": data.target.problem}
        options = {"trials": config.trials, "max_minutes": config.max_minutes}
        log.info("Each trial trains a single model, no ensemble.")
        report_activity("training the trials")
        for result in search.run(*data.train, eval_set=data.valid, **options):
            _write_results(search, folder.path, base)
            if callback is not None:
                callback(result)
        return _write_results(search, folder.path, base)


def _write_results(search: HyperparameterSearch, folder: Path, base: dict[str, Any]) -> TuneResult:
    """Write all trials and the best config, each file atomically."""
    trials = search.results()
    best = max((one for one in trials if one.value is not None), key=lambda one: one.value or 0.0, default=None)
    trials = [replace(one, is_best=one is best) for one in trials]
    atomic_write_text(folder / TRIALS_FILE, "".join(json.dumps(asdict(one)) + "\n" for one in trials))
    params = {} if best is None else {FIELDS[name]: value for name, value in search.best_params().items()}
    if best is not None:
        head = f"# Best of {len(trials)} trials, number {best.number + 1}: validation loss {best.loss:.6g}.\n"
        head += "# Use it with: softlook train table --config\n"
        values = {name: value for name, value in base.items() if name not in SEARCH_FIELDS} | params
        atomic_write_text(folder / BEST_CONFIG_FILE, head + to_toml(unflatten(_relative_paths(folder, values))))
    return TuneResult(folder, folder / BEST_CONFIG_FILE, params, trials)


def _relative_paths(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Paths relative to the folder of the config file, as they are resolved when it is read."""

    def relative(path: Any) -> str:
        return Path(os.path.relpath(Path(path).absolute(), folder.absolute())).as_posix()

    return {
        name: [relative(path) for path in value] if name in FILE_FIELDS else value for name, value in values.items()
    }


def to_toml(values: dict[str, Any]) -> str:
    """A config as TOML, groups last.

    >>> print(to_toml({"model": {"dim": 8}, "target": ("a", "b"), "fresh": True}))
    target = ["a", "b"]
    fresh = true
    <BLANKLINE>
    [model]
    dim = 8
    <BLANKLINE>
    """
    plain = [f"{name} = {_to_toml_value(value)}\n" for name, value in values.items() if not isinstance(value, dict)]
    groups = [f"\n[{name}]\n{to_toml(value)}" for name, value in values.items() if isinstance(value, dict)]
    return "".join(plain + groups)


def _to_toml_value(value: Any) -> str:
    """Strings, numbers, booleans and lists are written in TOML as in JSON."""
    return json.dumps(value, default=str).replace("\x7f", "\\u007f")

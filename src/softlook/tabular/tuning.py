"""Hyperparameter search with optuna: TPE sampler, median pruner.

It requires optuna: `pip install softlook[tune]`.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from sklearn.base import clone, is_classifier

from softlook.base.errors import ConfigError, TrainingError
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.presets import ARCHITECTURE, AUTO_SIZES, Hyperparameters, select_hyperparameters
from softlook.tabular.pretraining.pretrain import FEW_LABELS, FINETUNE_LR_FACTOR
from softlook.tabular.search_spaces import FACTOR, Space, default_params, restrict_space, sample_params, space_for
from softlook.tabular.training.autosize import SMALL_TABLE_ROWS, TrainingContext, resolve_hyperparameters
from softlook.tabular.training.runtime import Epoch, TimeBudget, seed_from_random_state
from softlook.tabular.training.trainer import TableTrainer
from softlook.train.rng import derive_seed

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, Trial, TrialState
except ImportError as error:
    raise ImportError("hyperparameter search requires optuna: pip install softlook[tune]") from error

STARTUP_TRIALS = 5
"""Trials that are never pruned."""
WARMUP_EPOCHS = 5
"""Epochs before a trial may be pruned."""
MAX_TIME_FRACTION = 0.25
"""Fraction of the remaining time that one trial may take, unless fewer trials are left."""
STUDY_NAME = "hyperparameters"
TrialOutcome = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial."""

    number: int
    params: dict[str, Any]
    state: TrialOutcome
    value: float | None
    """Minus the validation loss, or the validation score, whichever is monitored: higher is better."""
    loss: float | None
    score: float | None
    epochs: int
    seconds: float
    error: str = ""
    """Of a failed trial."""
    is_best: bool = False


@dataclass
class HyperparameterSearch:
    """Trials of an estimator. With a `journal` file, a later search resumes this one."""

    estimator: TableEstimator
    space: Space | None = None
    journal: Path | None = None
    best: TableEstimator | None = field(default=None, init=False)
    """The best estimator, if it was fitted by this object."""

    def __post_init__(self) -> None:
        given = self.estimator.get_params(deep=False)
        self.hparams = select_hyperparameters(self.estimator.family, self.estimator.preset, given)
        self.pretrained = self.estimator._get_pretrained()
        self.space = restrict_space(self.space or _default_space(self.estimator, self.hparams), given, self.hparams)
        if not self.space:
            raise ConfigError("all hyperparameters are given: there is nothing to search for")
        self.study = _create_study(self.journal)
        if "seed" not in self.study.user_attrs:
            own = self.estimator.random_state
            self.study.set_user_attr("seed", own if isinstance(own, int) else seed_from_random_state(own))
        self.seed: int = self.study.user_attrs["seed"]
        """The same in all trials, so that all have the same validation rows."""
        self._requeue_interrupted()

    def run(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any] | None = None,
        trials: int = 20,
        max_minutes: float | None = None,
    ) -> Iterator[TrialResult]:
        """Run trials until there are `trials` of them, or time is up; yields each result."""
        if not self.study.trials:  # the preset itself is the first trial
            self.study.enqueue_trial(default_params(self.space or {}, self._default_hyperparameters(y)))
        while (finished := len(self._finished())) < trials and (left := self._seconds_left(max_minutes)) > 0:
            self.study.sampler = optuna.samplers.TPESampler(seed=derive_seed(self.seed, len(self.study.trials)))
            trial = self.study.ask()
            left *= max(1 / (trials - finished), MAX_TIME_FRACTION)
            yield self._run_trial(trial, left, lambda model, loop: model._fit(X, y, sample_weight, eval_set, loop))

    def best_params(self) -> dict[str, Any]:
        """The parameters of the best trial so far."""
        return self._best_trial().user_attrs["params"]

    def best_estimator(self, X: Any, y: Any, *, sample_weight: Any = None, eval_set: Any = None) -> TableEstimator:
        """The best estimator; fitted again if another search found it."""
        if self.best is None:
            self.best = self._candidate(self.best_params())
            self.best._fit(X, y, sample_weight, eval_set)
        return self.best

    def results(self) -> list[TrialResult]:
        """All finished trials."""
        return [_to_result(trial) for trial in self._finished()]

    def _default_hyperparameters(self, y: Any) -> Hyperparameters:
        """The hyperparameters without a search."""
        if self.pretrained is not None:
            return self.estimator._finetuning_hyperparameters(self.pretrained, self.hparams)
        rows = len(y) if hasattr(y, "__len__") and not isinstance(y, str) else SMALL_TABLE_ROWS
        is_regression = not is_classifier(self.estimator)
        context = TrainingContext(rows=rows, tokens=1, device="any", is_regression=is_regression)
        return resolve_hyperparameters(self.hparams, context)

    def _run_trial(self, trial: Trial, seconds: float, fit: Callable[[TableEstimator, Any], None]) -> TrialResult:
        params = sample_params(self.space or {}, trial, self.hparams)
        trial.set_user_attr("params", params)
        model, started, monitor = self._candidate(params), time.monotonic(), _TrialMonitor(trial)
        own = self.estimator.time_limit
        model.time_limit = None if math.isinf(seconds) and own is None else min(seconds, own or math.inf)
        state, message = TrialState.COMPLETE, ""
        try:
            fit(model, monitor)
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except (TrainingError, torch.OutOfMemoryError) as error:
            state, message = TrialState.FAIL, str(error)
        best = max(monitor.evaluations, key=monitor.value, default={})
        facts = {"loss": best.get("val_loss"), "score": best.get("val_score"), "error": message[:200]}
        for name, value in (facts | {"epochs": monitor.epochs, "seconds": time.monotonic() - started}).items():
            trial.set_user_attr(name, value)
        is_complete = state == TrialState.COMPLETE
        self.study.tell(trial, monitor.value(best) if is_complete else None, state=state)
        is_best = is_complete and self._best_trial().number == trial.number
        if is_best:
            model.time_limit = own
            self.best = model
        return _to_result(self.study.trials[trial.number], is_best=is_best)

    def _candidate(self, params: dict[str, Any]) -> TableEstimator:
        candidate: Any = clone(self.estimator)
        self.estimator._copy_pretrained(candidate)
        return candidate.set_params(**params, random_state=self.seed)

    def _best_trial(self) -> FrozenTrial:
        if not any(trial.state == TrialState.COMPLETE for trial in self.study.trials):
            raise TrainingError("no trial was completed. Give the search more time, or smaller models.")
        return self.study.best_trial

    def _finished(self) -> list[FrozenTrial]:
        return [trial for trial in self.study.trials if trial.state.is_finished() and "seconds" in trial.user_attrs]

    def _seconds_left(self, max_minutes: float | None) -> float:
        spent = sum(trial.user_attrs["seconds"] for trial in self._finished())
        return math.inf if max_minutes is None else 60 * max_minutes - spent

    def _requeue_interrupted(self) -> None:
        """Repeat trials that were interrupted."""
        for trial in self.study.trials:
            if trial.state == TrialState.RUNNING:
                self.study.tell(trial.number, state=TrialState.FAIL)
                self.study.enqueue_trial(trial.params or trial.system_attrs.get("fixed_params", {}))


def tune(
    estimator: TableEstimator,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    eval_set: tuple[Any, Any] | None = None,
    trials: int = 20,
    max_minutes: float | None = None,
    space: Space | None = None,
    callback: Callable[[TrialResult], None] | None = None,
) -> Any:
    """Search for hyperparameters; returns a fitted copy of the estimator with the best ones.

    Parameters that are set stay; the others are searched for in the space of the model
    (`softlook.tabular.search_spaces`), the preset's own values first. The best trial is that of the best validation
    metric: a test set must be separate.

    After `pretrain` all trials start from the pretrained weights. Their sizes are fixed, and learning rates are lower.

    >>> from softlook.tabular import TableTransformerClassifier
    >>> X, y = [[0.1, "a"], [0.9, "b"]] * 30, ["low", "high"] * 30
    >>> small = TableTransformerClassifier(ensemble="single", dim=16, depth=1, heads=2, epochs=8, random_state=0)
    >>> best = tune(small, X, y, trials=2)
    >>> best.dim, best.lr is None, best.predict(X).shape
    (16, False, (60,))
    """
    if trials < 1:
        raise ConfigError(f"trials: expected an integer >= 1; got {trials!r}")
    search = HyperparameterSearch(estimator, space)
    rows = {"sample_weight": sample_weight, "eval_set": eval_set}
    for result in search.run(X, y, **rows, trials=trials, max_minutes=max_minutes):
        if callback is not None:
            callback(result)
    return search.best_estimator(X, y, **rows)


class _TrialMonitor:
    """Runs a trainer, reports to optuna, and raises optuna.TrialPruned."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.epochs, self.evaluations = trial, 0, list[Epoch]()

    def __call__(self, trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
        if not trainer.has_validation:
            raise ConfigError(
                f"there are no validation rows to choose by. Give more rows (after pretrain, {FEW_LABELS:,} or more), "
                "validation_fraction, or eval_set=(X, y)"
            )
        self.by_score = trainer.monitors_score()
        if trainer.best_state:
            self._evaluate_probe(trainer)
        return trainer.train(budget, self._report)

    def _evaluate_probe(self, trainer: TableTrainer) -> None:
        """After `pretrain` the linear probe was fitted first: it stays if nothing is better."""
        epoch, bad_evals = Epoch(epoch=0), trainer.bad_evals
        trainer.evaluate(epoch)
        trainer.bad_evals = bad_evals  # it was evaluated once already
        self.evaluations.append(epoch)

    def value(self, epoch: Epoch) -> float:
        """Higher is better."""
        return epoch["val_score"] if self.by_score else -epoch["val_loss"]

    def _report(self, epoch: Epoch) -> None:
        self.epochs = epoch["epoch"]
        if "val_loss" in epoch:
            self.evaluations.append(epoch)
            self.trial.report(self.value(epoch), epoch["epoch"])
            if self.trial.should_prune():
                raise optuna.TrialPruned


def _create_study(journal: Path | None) -> optuna.Study:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            storage=None if journal is None else JournalStorage(JournalFileBackend(str(journal))),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=WARMUP_EPOCHS),
            study_name=STUDY_NAME,
            direction="maximize",
            load_if_exists=True,
        )
    finally:
        optuna.logging.set_verbosity(before)


def _default_space(estimator: TableEstimator, hparams: Hyperparameters) -> Space:
    space = space_for(hparams)
    if estimator._get_pretrained() is None:
        return space
    lr: Any = space["lr"]
    lower = replace(lr, low=lr.low * FINETUNE_LR_FACTOR, high=lr.high * FINETUNE_LR_FACTOR)
    return {name: one for name, one in space.items() if name not in (*ARCHITECTURE, *AUTO_SIZES, FACTOR)} | {
        "lr": lower
    }


def _to_result(trial: FrozenTrial, *, is_best: bool = False) -> TrialResult:
    states: dict[TrialState, TrialOutcome] = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}
    is_complete = trial.state == TrialState.COMPLETE
    return TrialResult(
        number=trial.number,
        state=states.get(trial.state, "failed"),
        value=trial.value if is_complete else None,
        is_best=is_best,
        **trial.user_attrs,
    )

"""Searching for better settings: many models are tried, and what is held out says which is the best.

It needs optuna: `pip install softlook[tune]`. Trials are drawn by its TPE, and those that fall behind the median of the
others are broken off.
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
from softlook.tabular.defaults import OPEN, Recipe, chosen
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.learning.fitting import Epoch, Learner, Limits, seed_from
from softlook.tabular.learning.settling import SMALL_TABLE, Setting, settled
from softlook.tabular.search_spaces import FACTOR, SPACES, Space, drawn, fitting, usual
from softlook.tabular.unlabelled.pretraining import FEW_LABELS, SLOWER
from softlook.tabular.unlabelled.pretraining_loop import SHAPE
from softlook.train.chance import seed_of

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, Trial, TrialState
except ImportError as fault:
    raise ImportError("to search for settings, install optuna: pip install softlook[tune]") from fault

AT_FIRST = 5
"""Trials that are never broken off: there is no median yet."""
GRACE = 5
"""Epochs that every trial is given."""
MOST_OF_IT = 0.25
"""The share of the time that is left which a trial may take, unless there are fewer to come."""
NAME = "settings"


@dataclass(frozen=True)
class Tried:
    """What came of a trial."""

    number: int
    settings: dict[str, Any]
    state: Literal["complete", "broken off", "failed"]
    worth: float | None
    """Minus the loss of what is held out, or its score, whichever is watched: more is better."""
    loss: float | None
    score: float | None
    epochs: int
    seconds: float
    why: str = ""
    """What went wrong, of one that failed."""
    is_best: bool = False


class BrokenOff(Exception):  # noqa: N818  (it is no error)
    """A trial fell behind."""


@dataclass
class Search:
    """Trials over one estimator and one table. With a `journal`, a later one goes on where this one stopped."""

    estimator: TableEstimator
    space: Space | None = None
    journal: Path | None = None
    best: TableEstimator | None = field(default=None, init=False)
    """The best one, fitted, where it was fitted here."""

    def __post_init__(self) -> None:
        self.recipe = chosen(
            self.estimator.family, self.estimator.recipe, told := self.estimator.get_params(deep=False)
        )
        self.begun = self.estimator._begun()
        self.space = fitting(self.space or _space_of(self.estimator, self.recipe), told, self.recipe)
        if not self.space:
            raise ConfigError("every setting is told already: there is nothing to search for")
        self.study = _study(self.journal)
        if "seed" not in self.study.user_attrs:
            own = self.estimator.random_state
            seed = own if isinstance(own, int) else seed_from(own)
            self.study.set_user_attr("seed", seed)
        self.seed: int = self.study.user_attrs["seed"]
        """All trials have the same, so that all hold out the same rows."""
        self._pick_up()

    def go(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        validation: tuple[Any, Any] | None = None,
        trials: int = 20,
        minutes: float | None = None,
    ) -> Iterator[Tried]:
        """Trials until there are so many, or time is up; each is told of when it has ended."""
        if not self.study.trials:  # the recipe as it is comes first
            self.study.enqueue_trial(usual(self.space or {}, self._settled(y)))
        while (ended := len(self._ended())) < trials and (left := self._left(minutes)) > 0:
            sampler = optuna.samplers.TPESampler(seed=seed_of(self.seed, len(self.study.trials)))
            self.study.sampler = sampler
            trial = self.study.ask()
            left *= max(1 / (trials - ended), MOST_OF_IT)
            yield self._try(trial, left, lambda model, watch: model._fit(X, y, sample_weight, validation, watch))

    def _settled(self, y: Any) -> Recipe:
        """The recipe as it would be without a search."""
        if self.begun is not None:
            return self.estimator._after(self.begun, self.recipe)
        rows = len(y) if hasattr(y, "__len__") and not isinstance(y, str) else SMALL_TABLE
        setting = Setting(rows=rows, tokens=1, device="any", amounts=not is_classifier(self.estimator))
        return settled(self.recipe, setting)

    def settings(self) -> dict[str, Any]:
        """Of the best trial so far."""
        return self._best_trial().user_attrs["settings"]

    def fitted(self, X: Any, y: Any, **more: Any) -> TableEstimator:
        """The best one; it is fitted again, where that was done by another search."""
        if self.best is None:
            self.best = self._candidate(self.settings())
            self.best._fit(X, y, more.get("sample_weight"), more.get("validation"))
        return self.best

    def tried(self) -> list[Tried]:
        """All trials that have ended."""
        return [_told(trial) for trial in self._ended()]

    def _try(self, trial: Trial, left: float, fit: Callable[[TableEstimator, Any], None]) -> Tried:
        settings = drawn(self.space or {}, trial, self.recipe)
        trial.set_user_attr("settings", settings)
        model, began, watching = self._candidate(settings), time.monotonic(), _Watching(trial)
        own = self.estimator.time_limit
        model.time_limit = None if math.isinf(left) and own is None else min(left, own or math.inf)
        state, why = TrialState.COMPLETE, ""
        try:
            fit(model, watching)
        except BrokenOff:
            state = TrialState.PRUNED
        except (TrainingError, torch.OutOfMemoryError) as fault:
            state, why = TrialState.FAIL, str(fault)
        best = max(watching.looks, key=watching.worth, default={})
        facts = {"loss": best.get("held_out_loss"), "score": best.get("held_out_score"), "why": why[:200]}
        for name, value in (facts | {"epochs": watching.epochs, "seconds": time.monotonic() - began}).items():
            trial.set_user_attr(name, value)
        is_done = state == TrialState.COMPLETE
        self.study.tell(trial, watching.worth(best) if is_done else None, state=state)
        is_best = is_done and self._best_trial().number == trial.number
        if is_best:
            model.time_limit = own
            self.best = model
        return _told(self.study.trials[trial.number], is_best=is_best)

    def _candidate(self, settings: dict[str, Any]) -> TableEstimator:
        made: Any = clone(self.estimator)
        self.estimator._carry(made)
        return made.set_params(**settings, random_state=self.seed)

    def _best_trial(self) -> FrozenTrial:
        if not any(trial.state == TrialState.COMPLETE for trial in self.study.trials):
            raise TrainingError("not one trial came to an end. Give the search more time, or smaller models.")
        return self.study.best_trial

    def _ended(self) -> list[FrozenTrial]:
        return [trial for trial in self.study.trials if trial.state.is_finished() and "seconds" in trial.user_attrs]

    def _left(self, minutes: float | None) -> float:
        spent = sum(trial.user_attrs["seconds"] for trial in self._ended())
        return math.inf if minutes is None else 60 * minutes - spent

    def _pick_up(self) -> None:
        """A trial that was cut off comes again."""
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
    validation: tuple[Any, Any] | None = None,
    trials: int = 20,
    minutes: float | None = None,
    space: Space | None = None,
    tell: Callable[[Tried], None] | None = None,
) -> Any:
    """The estimator fitted with the best settings of so many trials; the one that came stays as it is.

    What the estimator was told stays; the rest is searched for in the space of its recipe
    (`softlook.tabular.search_spaces`), the recipe's own settings first. The best is the best on what is held out: rows
    for a test must be other ones.

    After `pretrain` all trials begin with what that learned. Its sizes stay, and learning rates are lower.

    >>> from softlook.tabular import FTTransformerClassifier
    >>> X, y = [[0.1, "a"], [0.9, "b"]] * 30, ["low", "high"] * 30
    >>> small = FTTransformerClassifier(dim=16, depth=1, heads=2, members=1, epochs=8, random_state=0)
    >>> best = tune(small, X, y, trials=2)
    >>> best.dim, best.lr is None, best.predict(X).shape
    (16, False, (60,))
    """
    if trials < 1:
        raise ConfigError(f"trials is a whole number from 1 up; {trials!r} came")
    search = Search(estimator, space)
    rows = {"sample_weight": sample_weight, "validation": validation}
    for tried in search.go(X, y, **rows, trials=trials, minutes=minutes):
        if tell is not None:
            tell(tried)
    return search.fitted(X, y, **rows)


class _Watching:
    """Has a learner learn, and breaks it off where it falls behind."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.epochs, self.looks = trial, 0, list[Epoch]()

    def __call__(self, learner: Learner, limits: Limits) -> list[Epoch]:
        if learner.held is None:
            raise ConfigError(
                f"nothing is held out to choose by. Give more rows (after pretrain, {FEW_LABELS:,} or more), "
                "validation_share, or validation=(X, y)"
            )
        self.by_score = learner.watches_score()
        if learner.kept:
            self._look_back(learner)
        return learner.learn(limits, self._look)

    def _look_back(self, learner: Learner) -> None:
        """After `pretrain` straight lines were learned first: where nothing is better, it is they that stay."""
        look, waited = Epoch(epoch=0), learner.waited
        learner.look(look)
        learner.waited = waited  # it was looked at once already
        self.looks.append(look)

    def worth(self, look: Epoch) -> float:
        """More is better."""
        return look["held_out_score"] if self.by_score else -look["held_out_loss"]

    def _look(self, epoch: Epoch) -> None:
        self.epochs = epoch["epoch"]
        if "held_out_loss" in epoch:
            self.looks.append(epoch)
            self.trial.report(self.worth(epoch), epoch["epoch"])
            if self.trial.should_prune():
                raise BrokenOff


def _study(journal: Path | None) -> optuna.Study:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            storage=None if journal is None else JournalStorage(JournalFileBackend(str(journal))),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=AT_FIRST, n_warmup_steps=GRACE),
            study_name=NAME,
            direction="maximize",
            load_if_exists=True,
        )
    finally:
        optuna.logging.set_verbosity(before)


def _space_of(estimator: TableEstimator, recipe: Recipe) -> Space:
    is_ours = recipe.model == "TableTransformer" or not recipe.normed
    space = SPACES[estimator.family]["ours" if is_ours else "paper"]
    if estimator._begun() is None:
        return space
    rate: Any = space["lr"]
    slower = replace(rate, low=rate.low * SLOWER, high=rate.high * SLOWER)
    return {name: chosen for name, chosen in space.items() if name not in (*SHAPE, *OPEN, FACTOR)} | {"lr": slower}


def _told(trial: FrozenTrial, *, is_best: bool = False) -> Tried:
    states: dict[TrialState, Literal["complete", "broken off"]]
    states = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "broken off"}
    facts = trial.user_attrs
    return Tried(
        trial.number,
        facts["settings"],
        states.get(trial.state, "failed"),
        trial.value if trial.state == TrialState.COMPLETE else None,
        facts["loss"],
        facts["score"],
        facts["epochs"],
        facts["seconds"],
        facts["why"],
        is_best,
    )

"""What all four estimators share: from a frame to a fitted model, and from a model to answers."""

import copy
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted
from torch import nn

from softlook.base.errors import DataError
from softlook.tabular.checking import check_parameters, check_validation, checked_frame, checked_weight
from softlook.tabular.defaults import FEW_ROWS, OPEN, Family, Recipe, chosen
from softlook.tabular.encoding.columns import Columns
from softlook.tabular.encoding.kinds import Said
from softlook.tabular.encoding.reading import Reading
from softlook.tabular.encoding.reservoir import Reservoir
from softlook.tabular.encoding.rows import Rows, together
from softlook.tabular.encoding.tallying import Tally
from softlook.tabular.encoding.targets import Amounts, Classes
from softlook.tabular.importance import Explaining
from softlook.tabular.learning.cores import threads
from softlook.tabular.learning.fitting import Epoch, Learner, Limits, answers, dice, seed_from
from softlook.tabular.learning.making import make_model
from softlook.tabular.learning.row_memory import Memory
from softlook.tabular.learning.settling import Setting, settled
from softlook.tabular.learning.splitting import held_out
from softlook.tabular.learning.stored_rows import Room, Shelf, StoredRows
from softlook.tabular.learning.two_passes import TwoPasses
from softlook.tabular.learning.wide_tables import narrowed
from softlook.tabular.progress import telling
from softlook.tabular.sources.bad_cells import told_by_file
from softlook.tabular.sources.pieces import Pieces, Roles, is_pieces
from softlook.tabular.streaming import Streaming
from softlook.tabular.unlabelled.pretraining import FEW_LABELS, Pretraining
from softlook.tabular.unlabelled.pretraining_loop import Pretrained
from softlook.tabular.warm_starts import check_same_kinds, check_same_model
from softlook.train.device import choose_device

Learning = Callable[[Learner, Limits], list[Epoch]]
FEW_ANSWERS = 4096
"""Up to so many rows are answered in double precision, which costs little."""


@dataclass(frozen=True)
class Start:
    """When a fit begins, from where, and how."""

    began: float
    is_warm: bool
    """Whether the model that there is goes on."""
    begun: Pretrained | None
    """What rows without labels taught before."""
    recipe: Recipe
    """It may leave sizes open."""
    seed: int
    device: torch.device

    @property
    def is_new(self) -> bool:
        """Whether nothing is known of the columns yet."""
        return not self.is_warm and self.begun is None


class TableEstimator(Explaining, Pretraining, Streaming, BaseEstimator, ABC):
    """A table in, a model out, and answers from it. Subclasses say what is predicted, and by which family of models."""

    family: ClassVar[Family]

    recipe: str | Recipe
    validation_share: float
    time_limit: float | None
    memory_limit: float | None
    kinds: Mapping[str, str] | None
    ordinal: Mapping[str, list[Any]] | None
    device: str
    n_jobs: int | None
    random_state: Any
    warm_start: bool
    verbose: bool | int

    model_: nn.Module
    reading_: Reading
    targets_: Classes | Amounts
    recipe_: Recipe
    memory_: Memory | None
    history_: list[Epoch]
    n_iter_: int
    n_features_in_: int
    feature_names_in_: np.ndarray

    def _keep(self, told: Mapping[str, Any]) -> None:
        """Every parameter under its own name, untouched: scikit-learn wants no more of a constructor."""
        for name in self._get_param_names():
            setattr(self, name, told[name])

    @property
    def columns_(self) -> Columns:
        """What was learned about the columns of the table."""
        check_is_fitted(self, "reading_")
        return self.reading_.columns

    # --- what subclasses say -----------------------------------------------------------------------------------------

    @abstractmethod
    def _checked_y(self, X: Any, y: Any) -> np.ndarray:
        """What is wanted, after it was seen that it can be."""

    @abstractmethod
    def _targets(self, y: np.ndarray, learned: np.ndarray) -> Classes | Amounts:
        """What is to be predicted, from all of y and a mask of the rows that are learned from."""

    @abstractmethod
    def _tally(self) -> Tally:
        """The same, from pieces of y that pass by."""

    def _class_weights(self, y: np.ndarray) -> np.ndarray | None:
        """What each class weighs, where classes weigh differently."""
        return None

    def _tallied_weights(self, tally: Tally) -> np.ndarray | None:
        """The same, from pieces of y that have passed by."""
        return None

    @abstractmethod
    def _score_of(self, answers: np.ndarray, y: np.ndarray) -> float:
        """What answers are worth: more is better."""

    # --- fitting -----------------------------------------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        validation: tuple[Any, Any] | None,
        learning: Learning | None = None,
    ) -> None:
        """`learning` is who has the learner learn, where it is not simply told to."""
        check_validation(validation)
        if is_pieces(X):
            self._fit_pieces(X, Roles.of(y, sample_weight), validation, learning)
            return
        start = self._start()
        if start.begun is not None:
            self._check_columns(X)
        X = checked_frame(self, X, reset=start.is_new)
        y = self._checked_y(X, y)
        weight = checked_weight(sample_weight, X)
        if not weight.all():  # a row that weighs nothing is not there
            X, y, weight = _safe_indexing(X, np.flatnonzero(weight)), y[weight > 0], weight[weight > 0]
        with dice(start.seed, start.device), threads(self.n_jobs):
            held = self._held(y, validation, start.seed)
            train = _safe_indexing(X, np.flatnonzero(~held)) if held.any() else X
            if not start.is_warm:
                self.targets_ = self._targets(y, ~held)
                self._read(train, start.recipe, start.seed, start.begun)
            each = self._class_weights(y)
            rows = self._rows(train, y[~held], weight[~held], each)
            if validation is not None:
                others = self._validation_rows(*validation, each)
            else:
                others = self._rows(_safe_indexing(X, np.flatnonzero(held)), y[held], weight[held], each)
            self._learn(self._learner(rows, others, rows, start), start, learning)

    def _start(self) -> Start:
        """A model that is not to go on is forgotten."""
        is_warm = bool(self.warm_start) and hasattr(self, "model_")
        if not is_warm:
            vars(self).pop("model_", None)
        begun, seed = None if is_warm else self._begun(), seed_from(self.random_state)
        return Start(time.monotonic(), is_warm, begun, self._chosen_recipe(), seed, choose_device(self.device))

    def _learner(
        self, rows: Rows | StoredRows | None, others: Rows | None, sample: Rows | None, start: Start
    ) -> Learner:
        """All on the device: a model, whose bins are cut by a sample, what it learns from, and what it is judged by."""
        if rows is None or sample is None:
            raise DataError("every row weighs nothing: nothing would be learned. Look at the class weights.")
        recipe, device = self._settled(start, len(rows)), start.device
        model = self.model_ if start.is_warm else self._model(recipe, sample.numbers, start.begun)
        held = None if others is None else others.to(device)
        return Learner(model.to(device), rows.to(device), held, targets=self.targets_, recipe=recipe, seed=start.seed)

    def _learn(self, learner: Learner, start: Start, learning: Learning | None) -> None:
        begun, limits = start.begun, Limits(self.time_limit, start.began)
        probed = None if begun is None else self._probe(begun, learner, limits)
        if learning is not None:
            self.history_ = learning(learner, limits)
        elif probed is not None:
            self.history_ = probed
        else:
            with telling(self.verbose) as tell:
                self.history_ = learner.learn(limits, tell)
        # Last of all, so that whoever stopped on the way is not taken for fitted.
        self.model_, self.recipe_, self.n_iter_ = learner.model, learner.recipe, len(self.history_)
        self.memory_ = learner.memory

    def _fit_pieces(self, X: Any, roles: Roles, validation: tuple[Any, Any] | None, learning: Learning | None) -> None:
        """A table in pieces: as one, where there is room for all of it."""
        check_parameters(self)
        with TemporaryDirectory(prefix="softlook-") as folder, told_by_file(X):
            pieces, room = Pieces.of(X, Path(folder)), Room.of(self.memory_limit)
            whole = pieces.whole(room.raw)
            if whole is None:
                passes = TwoPasses(pieces, roles, self._checked_piece, 0.0 if validation else self.validation_share)
                self._fit_in_two_passes(passes, Path(folder), validation, learning)
            else:
                self._fit(*roles.apart(whole, is_text=pieces.is_text), validation, learning)

    def _fit_in_two_passes(
        self, passes: TwoPasses, folder: Path, validation: tuple[Any, Any] | None, learning: Learning | None
    ) -> None:
        """A table too large to be held: its rows go by way of a folder."""
        start = self._start()
        if start.is_new:
            vars(self).pop("n_features_in_", None)
        recipe, seed = start.recipe, start.seed
        with dice(seed, start.device), threads(self.n_jobs):
            tally = self._tally()
            reservoir = Reservoir(self.kinds, self.ordinal, seed=seed)  # pyright: ignore[reportArgumentType]
            count = passes.survey(reservoir, tally, seed=seed)
            if not start.is_warm:
                self.targets_ = tally.targets()
            if start.begun is not None:
                self.reading_ = start.begun.reading
            elif start.is_new:
                self._keep_reading(reservoir.sample(), Columns(reservoir.learned(), reservoir.has_names), recipe, seed)
            each = self._tallied_weights(tally)
            codes, room = max(self.reading_.sizes, default=1), Room.of(self.memory_limit)
            shelf = Shelf(folder, expected=count, room=room, codes=codes, seed=seed)
            others = passes.shelve(lambda X, y, weight: self._rows(X, y, weight, each), shelf, rows=count, seed=seed)
            others = others if validation is None else self._validation_rows(*validation, each)
            sample = self.reading_.read(reservoir.sample())
            self._learn(self._learner(shelf.rows(), others, sample, start), start, learning)

    def _checked_piece(self, X: Any, y: Any, weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        X = checked_frame(self, X, reset=not hasattr(self, "n_features_in_"))
        return X, self._checked_y(X, y), checked_weight(weight, X)

    def _chosen_recipe(self) -> Recipe:
        check_parameters(self)
        return chosen(self.family, self.recipe, self.get_params(deep=False))

    def _settled(self, start: Start, rows: int) -> Recipe:
        """The recipe in sizes for so many rows; those of the model that goes on, where one does."""
        recipe = start.recipe
        if start.begun is not None:
            return self._after(start.begun, recipe)
        if start.is_warm:
            self._check_warm(recipe)
            recipe = replace(recipe, **{name: getattr(self.recipe_, name) for name in OPEN})
        setting = Setting(
            rows,
            tokens=1 + len(self.reading_.shares),
            device=start.device.type,
            amounts=not is_classifier(self),
            seconds=self.time_limit,
        )
        tokens = setting.tokens if self.family == "ft" else 1 + len(self.reading_.sizes)  # categories alone look there
        seen, is_open = replace(setting, tokens=tokens), recipe.attention_dropout is None
        return narrowed(settled(recipe, setting), seen, may_drop_less=is_open)

    def _check_warm(self, recipe: Recipe) -> None:
        """That nothing was told anew which a model that goes on cannot heed."""
        if self._begun() is None:  # which had its own say in sizes
            check_same_model(self.recipe_, recipe)
        said = Said.of(self.columns_.names, self.kinds, self.ordinal)  # pyright: ignore[reportArgumentType]
        check_same_kinds(self.columns_.kinds, said.kinds)

    def _model(self, recipe: Recipe, numbers: torch.Tensor, begun: Pretrained | None) -> nn.Module:
        if begun is not None:
            return begun.model(recipe, self.targets_.outputs)
        return make_model(recipe, self.reading_, numbers, self.targets_.outputs)

    def _held(self, y: np.ndarray, validation: Any, seed: int) -> np.ndarray:
        """True for the rows that are held out: none where others came for that, or where there are few."""
        few = FEW_ROWS if self._begun() is None else FEW_LABELS
        if validation is not None or not self.validation_share or len(y) < few:
            return np.zeros(len(y), dtype=bool)
        codes = np.unique(y, return_inverse=True)[1] if is_classifier(self) else None
        return held_out(len(y), self.validation_share, seed=seed, codes=codes)

    def _read(self, X: Any, recipe: Recipe, seed: int, begun: Pretrained | None = None) -> None:
        if begun is not None:
            self.reading_ = begun.reading
            return
        columns = Columns.fit(X, kinds=self.kinds, ordinal=self.ordinal, seed=seed)  # pyright: ignore[reportArgumentType]
        self._keep_reading(X, columns, recipe, seed)

    def _keep_reading(self, X: Any, columns: Columns, recipe: Recipe, seed: int) -> None:
        self.reading_ = Reading.learned(X, columns, recipe, seed=seed)
        if self.verbose:
            sys.stderr.write("".join(f"{line}\n" for line in self.reading_.told()))

    def _rows(self, X: Any, y: np.ndarray, weight: np.ndarray, each: np.ndarray | None) -> Rows | None:
        """Rows to learn from or to judge by; None where there are none that weigh anything."""
        if not len(y):
            return None
        codes = self.targets_.encode(y)
        weight = weight if each is None else weight * each[codes]
        if not weight.any():
            return None
        rows = self.reading_.read(X)
        return Rows(rows.numbers, rows.categories, torch.from_numpy(codes), torch.tensor(weight, dtype=torch.float))

    def _validation_rows(self, X: Any, y: Any, each: np.ndarray | None) -> Rows | None:
        if is_pieces(X):
            parts = Pieces.of(X).apart(Roles.of(y, None))
            found = [self._validation_rows(self._own(X), y, each) for X, y, _ in parts]
            return together([rows for rows in found if rows is not None])
        X = checked_frame(self, X, reset=False)
        y = self._checked_y(X, y)
        return self._rows(X, y, np.ones(len(y)), each)

    # --- answering ---------------------------------------------------------------------------------------------------

    def _given(self, X: Any) -> Rows:
        """New rows, checked and on the device."""
        check_is_fitted(self, "model_")
        if is_pieces(X):
            with told_by_file(X):
                return together([self._given(piece) for piece in self._pieces(X)])
        rows = self.reading_.read(checked_frame(self, X, reset=False))
        device = choose_device(self.device)
        self.model_.to(device)
        return rows.to(device)

    def _answers(self, X: Any) -> np.ndarray:
        """(N, C): probabilities, or numbers in units of learning."""
        if is_pieces(X):
            with told_by_file(X):
                return np.concatenate([self._answers(piece) for piece in self._pieces(X)])
        rows = self._given(X)
        with threads(self.n_jobs):
            return self._answers_to(rows)

    def _answers_to(self, rows: Rows, exact: nn.Module | None = None) -> np.ndarray:
        """`exact`: the model in double precision, where somebody keeps a copy."""
        model, device = self.model_, rows.numbers.device
        if (self.family == "tab" or len(rows) <= FEW_ANSWERS) and device.type != "mps":
            # In single precision the last bit of an answer depends on a row's place among the others, and a
            # TabTransformer's last layers are so narrow that it would be more than that.
            model = copy.deepcopy(model).double() if exact is None else exact
            rows = replace(rows, numbers=rows.numbers.double())
        return self._answers_by(model, rows)

    def _answers_by(self, model: nn.Module, rows: Rows) -> np.ndarray:
        """The same in the precision of a model, its own or a copy of it."""
        memory = None if self.memory_ is None else self.memory_.to(rows.numbers.device)
        return answers(model, rows, self.targets_, memory).cpu().numpy()

    # --- keeping -----------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = cast(Any, super()).__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Weights in memory that every machine has."""
        state = dict(cast(dict[str, Any], super().__getstate__()))
        if "model_" in state and next(state["model_"].parameters()).device.type != "cpu":
            state["model_"] = copy.deepcopy(state["model_"]).cpu()
        return state

    def save(self, folder: str | Path) -> Path:
        """Write all of it as a new folder: JSON, safetensors, and a digest of each file. Nothing is pickled."""
        from softlook.tabular.saving import save  # noqa: PLC0415  (it knows all estimators, and they know it)

        check_is_fitted(self, ["model_", "pretrained_"], all_or_any=any)
        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Any:
        """The estimator in a folder that `save` wrote, after every byte was compared with its digest."""
        from softlook.tabular.saving import load  # noqa: PLC0415  (it knows all estimators, and they know it)

        return load(Path(folder), cls)

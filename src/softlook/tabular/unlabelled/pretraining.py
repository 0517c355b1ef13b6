"""What an estimator makes of rows without labels, and how it goes on from there when labels come."""

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.checking import checked_frame
from softlook.tabular.defaults import Family, Recipe
from softlook.tabular.encoding.kinds import Said
from softlook.tabular.encoding.reading import Reading
from softlook.tabular.encoding.reservoir import ROWS
from softlook.tabular.learning.cores import threads
from softlook.tabular.learning.fitting import Epoch, Learner, Limits, dice, seed_from
from softlook.tabular.learning.stored_rows import Room
from softlook.tabular.progress import telling
from softlook.tabular.sources.pieces import Pieces, is_pieces, joined
from softlook.tabular.unlabelled.pretext_tasks import Task
from softlook.tabular.unlabelled.pretraining_loop import Pretrained, Wish, pretrained, sizes_for
from softlook.tabular.unlabelled.probing import probe
from softlook.tabular.wording import named
from softlook.train.chance import chance
from softlook.train.device import choose_device

FEW_LABELS = 1000
"""With fewer labels than this none are held out after `pretrain`: there straight lines alone are learned."""
RATE, SLOWER = 1e-3, 0.1
"""The learning rate of `pretrain`, and that of `fit` behind it in rates of one without."""
MOST_PROBED = 10_000
"""Labelled rows that straight lines are learned from first."""


class Pretraining:
    """Learning from rows without labels, first."""

    family: ClassVar[Family]
    reading_: Reading
    pretrained_: Pretrained

    def pretrain(self: Any, X: Any, *, task: Task = "mlm", share: float = 0.3, epochs: int | None = None) -> Any:
        """Learn how columns hang together from rows without labels; a `fit` that follows begins there.

        task: "mlm" hides cells and has the model fill them in: which category, or in which bin a number lies. "rtd"
        puts another row's value into cells, and has it find them. `share` of the cells is touched. A TabTransformer,
        whose blocks see no numbers, learns of its categories alone.

        `fit` wants the same columns, and reads them as they were read here: a category that X did not have is unseen.
        With fewer than 1,000 labels it learns straight lines alone, from each column and from each cell as it is
        understood beside the others; with more, or where rows to stop by are given, it goes on from there, slowly, with
        all layers. However often `fit` is called, it begins with what was learned here, and so do the trials of `tune`.
        `clone` forgets it, as it forgets everything learned, and with it whatever clones: cross_validate, searches and
        ensembles of scikit-learn. `save`, joblib and copy.deepcopy keep it, before `fit` and after.

        >>> from softlook.tabular import FTTransformerClassifier
        >>> X = [[place % 7, "odd" if place % 2 else "even"] for place in range(80)]
        >>> model = FTTransformerClassifier(dim=16, heads=2, random_state=0).pretrain(X, epochs=2)
        >>> model.fit(X[:20], [word for _, word in X[:20]]).predict(X[40:42])
        array(['even', 'odd'], dtype='<U4')
        """
        wish, limits = Wish(task, share, epochs), Limits(self.time_limit, time.monotonic())
        for name in ("pretrained_", "model_"):
            vars(self).pop(name, None)
        recipe, device = sizes_for(self._chosen_recipe()), choose_device(self.device)
        recipe = recipe if self.lr is not None else replace(recipe, lr=RATE)
        seed = seed_from(self.random_state)
        if is_pieces(X):
            X = _drawn(X, self.memory_limit, seed)
        X = checked_frame(self, X, reset=True)
        with dice(seed, device), threads(self.n_jobs):
            self._read(X, recipe, seed)
            rows, said = self.reading_.read(X).to(device), Said.of(self.columns_.names, self.kinds, self.ordinal)
            with telling(self.verbose) as tell:
                self.pretrained_ = pretrained(
                    rows, self.reading_, recipe, wish, said=said, seed=seed, limits=limits, tell=tell
                )
        return self

    def _check_columns(self: Any, X: Any) -> None:
        """That these are the columns of `pretrain`."""
        known = getattr(self, "feature_names_in_", None)
        if known is None or not nw.dependencies.is_into_dataframe(X):
            return  # scikit-learn compares how many there are
        known, names = known.tolist(), list(nw.from_native(X, eager_only=True).columns)
        absent, more = [n for n in known if n not in names], [n for n in names if n not in known]
        if absent or more or known != names:
            told = [f"{named(some)} {word}" for some, word in ((absent, "missing"), (more, "new")) if some]
            raise DataError(f"the columns are not those of pretrain: {'; '.join(told) or 'their order is another'}")

    def _begun(self) -> Pretrained | None:
        return getattr(self, "pretrained_", None)

    def _carry(self, other: "Pretraining") -> None:
        """Have another estimator begin where this one does."""
        for name in ("pretrained_", "n_features_in_", "feature_names_in_"):
            if self._begun() is not None and hasattr(self, name):
                setattr(other, name, getattr(self, name))

    def _after(self: Any, begun: Pretrained, recipe: Recipe) -> Recipe:
        """The recipe for learning from labels after rows without."""
        begun.check_said(self.kinds, self.ordinal)
        recipe = replace(begun.fitting(recipe), schedule="falling")
        return recipe if self.lr is not None else replace(recipe, lr=recipe.lr * SLOWER)

    def _probe(self: Any, begun: Pretrained, learner: Learner, limits: Limits) -> list[Epoch] | None:
        """Learn straight lines; gives the history where that is all, None where the whole model is to go on."""
        rows = next(iter(learner.train.batches(MOST_PROBED, chance(learner.seed, 0))))
        loss = probe(learner.model, rows, learner.targets, begun.scale)
        epoch: Epoch = {"epoch": 1, "loss": loss}
        if learner.held is not None:
            learner.save_time(limits)
            learner.look(epoch)  # from here on it can only become better
        if learner.held is not None or learner.recipe.epochs is not None:
            return None
        return [epoch | {"seconds": time.monotonic() - limits.began}]


def _drawn(X: Any, limit: float | None, seed: int) -> pa.Table:
    """A table in pieces as one; where it is too large to be held, so many rows by chance."""
    with TemporaryDirectory(prefix="softlook-") as folder:
        pieces = Pieces.of(X, Path(folder))
        whole = pieces.whole(Room.of(limit).raw)
        if whole is not None:
            return whole
        share = ROWS / sum(table.num_rows for table in pieces.tables())
        random = np.random.default_rng(seed)
        return joined([table.filter(pa.array(random.random(len(table)) < share)) for table in pieces.tables()])

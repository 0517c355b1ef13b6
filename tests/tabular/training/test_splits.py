"""Validation splits."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from softlook.base.errors import ConfigError
from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor
from softlook.tabular.training.splits import NEVER, SplitKeys, assign_folds, group_mask, latest_mask
from tests.tabular.estimators import mixed_table, small

GROUPS = np.random.RandomState(0).randint(12, size=200)


def test_every_fold_has_the_classes_in_proportion() -> None:
    codes = np.repeat([0, 1, 2], [100, 40, 10])
    assigned = assign_folds(150, 5, seed=0, codes=codes)
    counts = np.array([np.bincount(codes[assigned == fold], minlength=3) for fold in range(5)])
    assert np.ptp(counts, axis=0).max() <= 1
    assert counts.sum() == 150


def test_a_class_of_one_row_stays_in_training() -> None:
    assert assign_folds(11, 5, seed=0, codes=np.repeat([0, 1], [10, 1]))[10] == NEVER


def test_a_group_is_never_divided() -> None:
    assigned = assign_folds(200, 5, seed=0, groups=GROUPS)
    assert all(len(set(assigned[group == GROUPS])) == 1 for group in range(12))
    mask = group_mask(GROUPS, 0.2, seed=0)
    assert not set(GROUPS[mask]) & set(GROUPS[~mask])
    assert 0.1 < mask.mean() < 0.3


def test_no_training_row_is_later_than_a_validation_row() -> None:
    times = np.random.RandomState(0).randint(20, size=100)
    mask = latest_mask(times, 0.2)
    assert times[~mask].max() < times[mask].min()
    assert latest_mask(np.array([1, 2, 2, 2]), 0.2).tolist() == [False, True, True, True]


@pytest.mark.parametrize("ensemble", ["single", "attention"])
def test_groups_and_times_determine_the_validation_rows_of_a_fit(ensemble: str, monkeypatch: Any) -> None:
    X, y = mixed_table(200)
    seen = list[np.ndarray]()
    original = SplitKeys.mask

    def spy(self: SplitKeys, rows: int, fraction: float, seed: int) -> np.ndarray:
        seen.append(original(self, rows, fraction, seed))
        return seen[-1]

    monkeypatch.setattr(SplitKeys, "mask", spy)
    model = small(TableTransformerClassifier, ensemble=ensemble, n_cv=1, epochs=1)
    model.fit(X, y, groups=GROUPS)
    assert not set(GROUPS[seen[-1]]) & set(GROUPS[~seen[-1]])
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=200)[::-1], "x": X[:, 0].astype(float)})
    small(TableTransformerRegressor, ensemble=ensemble, time_column="when", epochs=1).fit(frame, y)
    assert seen[-1].nonzero()[0].tolist() == list(range(40))


def test_unusable_groups_and_times_are_rejected() -> None:
    X, y = mixed_table(60)
    with pytest.raises(ConfigError, match="at least 2 groups"):
        small(TableTransformerClassifier).fit(X, y, groups=np.zeros(60))
    with pytest.raises(ConfigError, match="there is no column 'day'. Columns: 'x0', 'x1', 'x2'"):
        small(TableTransformerClassifier, time_column="day").fit(X, y)
    with pytest.raises(ConfigError, match="expected dates or numbers in 'x2'"):
        small(TableTransformerClassifier, time_column="x2").fit(X, y)
    with pytest.raises(ConfigError, match="groups or time_column, got both"):
        small(TableTransformerClassifier, time_column="x0").fit(X, y, groups=np.arange(60))


def test_a_callback_sees_every_epoch_and_may_end_the_training() -> None:
    X, y = mixed_table(60)
    numbers = list[int]()

    def stop_at_2(epoch: dict[str, Any]) -> bool:
        numbers.append(epoch["epoch"])
        return epoch["epoch"] == 2

    model = small(TableTransformerClassifier, epochs=5).fit(X, y, callbacks=[stop_at_2])
    assert numbers == [1, 2] == [epoch["epoch"] for epoch in model.history_]

"""Conformal intervals, importances after the fit, and sparse tables."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from softlook.base.errors import ConfigError, DataError
from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor, load
from tests.tabular.estimators import mixed_table, small

RNG = np.random.RandomState(0)
X = RNG.randn(400, 3)
Y = 2 * X[:, 1] + RNG.randn(400)


@pytest.fixture(scope="module")
def model() -> TableTransformerRegressor:
    return small(TableTransformerRegressor, epochs=8, batch_size=32, n_members=1).fit(X[:300], Y[:300])


def test_an_interval_contains_about_the_requested_fraction_of_new_targets(model: TableTransformerRegressor) -> None:
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(X[300:], coverage=coverage).T
        assert abs(((low <= Y[300:]) & (Y[300:] <= high)).mean() - coverage) < 0.15


def test_a_larger_coverage_has_a_wider_interval_around_the_prediction(model: TableTransformerRegressor) -> None:
    narrow, wide = (np.diff(model.predict_interval(X, coverage=one)).ravel() for one in (0.5, 0.9))
    assert (narrow < wide).all()
    np.testing.assert_allclose(model.predict_interval(X).mean(1), model.predict(X))


def test_intervals_and_importances_are_saved(model: TableTransformerRegressor, tmp_path: Path) -> None:
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)


def test_an_ensemble_has_intervals_from_out_of_fold_residuals() -> None:
    quick = {"ensemble": "auto", "n_cv": 2, "epochs": 2, "n_members": 1}
    fitted = small(TableTransformerRegressor, **quick).fit(X[:300], np.stack([Y[:300], -Y[:300]], 1))
    intervals = fitted.predict_interval(X[300:], coverage=0.9)
    assert intervals.shape == (100, 2, 2)
    inside = (intervals[:, 0, 0] <= Y[300:]) & (Y[300:] <= intervals[:, 0, 1])
    assert 0.75 < inside.mean() < 1


def test_too_few_residuals_are_named() -> None:
    few = small(TableTransformerRegressor, epochs=1).fit(X[:60], Y[:60])
    with pytest.raises(ConfigError, match="coverage=0.95 requires 19 validation rows or more; there were 12"):
        few.predict_interval(X, coverage=0.95)
    with pytest.raises(ConfigError, match="requires validation rows"):
        small(TableTransformerRegressor, epochs=1).fit(X[:40], Y[:40]).predict_interval(X)
    with pytest.raises(ConfigError, match="coverage: expected a number between 0 and 1; got 1"):
        few.predict_interval(X, coverage=1)


def test_feature_importances_sum_to_1() -> None:
    model = small(TableTransformerClassifier).fit(*mixed_table())
    assert model.feature_importances_.shape == (3,)
    assert model.feature_importances_.sum() == pytest.approx(1)


def test_a_sparse_table_is_the_same_as_a_dense_one() -> None:
    dense = np.where(RNG.rand(80, 4) < 0.5, 0.0, RNG.randn(80, 4))
    y = dense[:, 0] > 0
    model, sparse = (small(TableTransformerClassifier).fit(table, y) for table in (dense, csr_matrix(dense)))
    np.testing.assert_array_equal(sparse.predict_proba(csr_matrix(dense)), model.predict_proba(dense))
    with pytest.raises(DataError, match="expected a sparse X of at most 4 GiB"):
        small(TableTransformerClassifier).fit(csr_matrix((1_000_000, 1_000_000)), y)

"""scikit-learn's own checks, and the tools of its that people put estimators into."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor
from tests.tabular.estimators import ALL, CLASSIFIERS, REGRESSORS, mixed_table, small

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "rows are drawn into batches and held out one by one, so a row "
    "that weighs 2 meets other chance than two rows; without chance both give the same gradient (see test_fitting)"
}
QUICK = {"dim": 16, "heads": 2, "depth": 1, "epochs": 200, "lr": 3e-3, "random_state": 0}
CHECKED = [kind(**QUICK) for kind in ALL]


def checks(estimators: list[Any]) -> list[Any]:
    found: list[Any] = [pair for estimator in estimators for pair in estimator_checks_generator(estimator)]
    return [
        pytest.param(one, check, id=f"{type(one).__name__}-{check.func.__name__}-{number}")
        for number, (one, check) in enumerate(found)
    ]


def run_check(estimator: Any, check: Any) -> None:
    name = check.func.__name__
    if name in EXPECTED:
        with pytest.raises(AssertionError, match="sample_weight"):
            check(estimator)
        return
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks(CHECKED))
def test_it_is_an_estimator_as_scikit_learn_wants_it(estimator: Any, check: Any) -> None:
    run_check(estimator, check)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks([kind() for kind in ALL]))
def test_it_is_one_with_its_defaults_too(estimator: Any, check: Any) -> None:
    run_check(estimator, check)


@pytest.mark.parametrize("kind", ALL)
def test_a_clone_has_the_same_parameters_and_has_learned_nothing(kind: type) -> None:
    model = small(kind, column_types={"x0": "number"})
    copied: Any = clone(model.fit(*mixed_table()))
    assert copied.get_params() == model.get_params()
    assert not hasattr(copied, "model_")


def test_it_stands_at_the_end_of_a_pipeline() -> None:
    X, y = np.random.RandomState(0).randn(60, 3), np.arange(60) % 2
    model = make_pipeline(StandardScaler(), small(TableTransformerClassifier)).fit(X, y)
    assert model.predict_proba(X).shape == (60, 2)


@pytest.mark.parametrize("kind", [CLASSIFIERS[0], REGRESSORS[1]])
def test_a_grid_search_tries_its_parameters(kind: type) -> None:
    X, y = mixed_table()
    search = GridSearchCV(small(kind, epochs=1), {"depth": [1, 2]}, cv=2).fit(X, y)
    assert set(search.cv_results_["param_depth"]) == {1, 2}
    assert len(search.predict(X)) == len(X)


@pytest.mark.slow
def test_folds_in_processes_give_what_folds_one_after_the_other_give() -> None:
    X, y = mixed_table()
    alone = cross_validate(small(TableTransformerClassifier), X, y, cv=2)
    concat_rows = cross_validate(small(TableTransformerClassifier), X, y, cv=2, n_jobs=2)
    np.testing.assert_array_equal(alone["test_score"], concat_rows["test_score"])


def test_folds_in_threads_give_what_folds_one_after_the_other_give() -> None:
    from joblib import parallel_backend  # noqa: PLC0415  (scikit-learn brings it)

    X, y = mixed_table()
    alone = cross_validate(small(TableTransformerClassifier), X, y, cv=2, return_estimator=True)
    with parallel_backend("threading"):
        concat_rows = cross_validate(small(TableTransformerClassifier), X, y, cv=2, n_jobs=2, return_estimator=True)
    for one, other in zip(alone["estimator"], concat_rows["estimator"], strict=True):
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_it_can_be_calibrated() -> None:
    X, y = mixed_table()
    model = CalibratedClassifierCV(small(TableTransformerClassifier), cv=2).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_scikit_learn_can_shuffle_its_columns() -> None:
    dice = np.random.RandomState(0)
    X = dice.randn(120, 3)
    model = small(TableTransformerRegressor, epochs=60, lr=1e-2).fit(X, 3 * X[:, 1])
    found = permutation_importance(model, X, 3 * X[:, 1], n_repeats=2, random_state=0)
    assert found["importances_mean"].argmax() == 1


@pytest.mark.parametrize("kind", ALL)
def test_it_shows_itself_as_a_page_and_as_text(kind: type) -> None:
    model = small(kind).fit(*mixed_table())
    assert kind.__name__ in model._repr_html_()
    assert "dim=16" in repr(model)

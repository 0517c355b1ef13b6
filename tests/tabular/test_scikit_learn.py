"""scikit-learn's estimator checks, and its tools applied to the estimators."""

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

SAMPLED = (
    "rows are sampled into batches and validation splits one by one, so a row of weight 2 is sampled differently from "
    "two rows; without sampling, both give the same gradient (see test_trainer)"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": SAMPLED,
    "check_sample_weight_equivalence_on_sparse_data": SAMPLED,
}
QUICK = {"dim": 16, "heads": 2, "depth": 1, "epochs": 200, "lr": 3e-3, "random_state": 0}


def with_defaults(estimator_class: Any) -> Any:
    """An estimator with default parameters; the paper's TabTransformer learns too slowly for scikit-learn's checks."""
    return estimator_class(preset="improved") if estimator_class.family == "tab" else estimator_class()


def checks(estimators: list[Any]) -> list[Any]:
    pairs: list[Any] = [pair for estimator in estimators for pair in estimator_checks_generator(estimator)]
    return [
        pytest.param(estimator, check, id=f"{type(estimator).__name__}-{check.func.__name__}-{number}")
        for number, (estimator, check) in enumerate(pairs)
    ]


def run_check(estimator: Any, check: Any) -> None:
    name = check.func.__name__
    if name in EXPECTED_FAILURES:
        with pytest.raises(AssertionError, match="sample_weight"):
            check(estimator)
        return
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks([small(estimator_class, **QUICK) for estimator_class in ALL]))
def test_estimators_pass_scikit_learns_checks(estimator: Any, check: Any) -> None:
    run_check(estimator, check)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks([with_defaults(estimator_class) for estimator_class in ALL]))
def test_estimators_with_default_parameters_pass_scikit_learns_checks(estimator: Any, check: Any) -> None:
    run_check(estimator, check)


@pytest.mark.parametrize("estimator_class", ALL)
def test_a_clone_has_the_same_parameters_and_is_not_fitted(estimator_class: type) -> None:
    model = small(estimator_class, column_types={"x0": "number"})
    cloned: Any = clone(model.fit(*mixed_table()))
    assert cloned.get_params() == model.get_params()
    assert not hasattr(cloned, "model_")


def test_an_estimator_can_be_the_last_step_of_a_pipeline() -> None:
    X, y = np.random.RandomState(0).randn(60, 3), np.arange(60) % 2
    model = make_pipeline(StandardScaler(), small(TableTransformerClassifier)).fit(X, y)
    assert model.predict_proba(X).shape == (60, 2)


@pytest.mark.parametrize("estimator_class", [CLASSIFIERS[0], REGRESSORS[1]])
def test_a_grid_search_tries_its_parameters(estimator_class: type) -> None:
    X, y = mixed_table()
    search = GridSearchCV(small(estimator_class, epochs=1), {"depth": [1, 2]}, cv=2).fit(X, y)
    assert set(search.cv_results_["param_depth"]) == {1, 2}
    assert len(search.predict(X)) == len(X)


@pytest.mark.slow
def test_cross_validation_in_processes_gives_the_same_scores_as_sequentially() -> None:
    X, y = mixed_table()
    sequential = cross_validate(small(TableTransformerClassifier), X, y, cv=2)
    parallel = cross_validate(small(TableTransformerClassifier), X, y, cv=2, n_jobs=2)
    np.testing.assert_array_equal(sequential["test_score"], parallel["test_score"])


def test_cross_validation_in_threads_gives_the_same_predictions_as_sequentially() -> None:
    from joblib import parallel_backend  # noqa: PLC0415  (a dependency of scikit-learn)

    X, y = mixed_table()
    sequential = cross_validate(small(TableTransformerClassifier), X, y, cv=2, return_estimator=True)
    with parallel_backend("threading"):
        parallel = cross_validate(small(TableTransformerClassifier), X, y, cv=2, n_jobs=2, return_estimator=True)
    for one, other in zip(sequential["estimator"], parallel["estimator"], strict=True):
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_a_classifier_can_be_calibrated() -> None:
    X, y = mixed_table()
    model = CalibratedClassifierCV(small(TableTransformerClassifier), cv=2).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_scikit_learns_permutation_importance_finds_the_relevant_column() -> None:
    rng = np.random.RandomState(0)
    X = rng.randn(120, 3)
    model = small(TableTransformerRegressor, epochs=60, lr=1e-2).fit(X, 3 * X[:, 1])
    importances = permutation_importance(model, X, 3 * X[:, 1], n_repeats=2, random_state=0)
    assert importances["importances_mean"].argmax() == 1


@pytest.mark.parametrize("estimator_class", ALL)
def test_estimators_have_an_html_and_a_text_representation(estimator_class: type) -> None:
    model = small(estimator_class).fit(*mixed_table())
    assert estimator_class.__name__ in model._repr_html_()
    assert "dim=16" in repr(model)

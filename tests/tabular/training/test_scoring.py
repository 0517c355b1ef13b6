"""Validation scores by the name of a scikit-learn scorer."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, mean_absolute_error, roc_auc_score

from softlook.base.errors import ConfigError
from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget
from softlook.tabular.training.scoring import scorer_score
from tests.tabular.estimators import mixed_table, small

RNG = np.random.RandomState(0)
PROBABILITIES = RNG.dirichlet(np.ones(3), 60)
CLASSES = RNG.randint(3, size=60)
WEIGHT = RNG.rand(60)


def test_scores_are_those_of_scikit_learn() -> None:
    target = ClassTarget(np.array(["a", "b", "c"]))
    f1 = f1_score(CLASSES, PROBABILITIES.argmax(1), average="macro", sample_weight=WEIGHT)
    assert scorer_score("f1_macro", target, PROBABILITIES, CLASSES, WEIGHT) == pytest.approx(f1)
    auc = roc_auc_score(CLASSES, PROBABILITIES, multi_class="ovr", sample_weight=WEIGHT)
    assert scorer_score("roc_auc_ovr", target, PROBABILITIES, CLASSES, WEIGHT) == pytest.approx(auc)


def test_errors_of_numbers_are_in_the_units_of_the_target() -> None:
    y = 10 * RNG.randn(60)
    target = RegressionTarget.fit(y)
    predictions, targets = RNG.randn(60, 1), target.encode(y)
    error = mean_absolute_error(y, target.inverse_transform(predictions), sample_weight=WEIGHT)
    score = scorer_score("neg_mean_absolute_error", target, predictions, targets, WEIGHT)
    assert score == pytest.approx(-error, rel=1e-5)


def test_the_best_epoch_is_that_of_the_best_score() -> None:
    X, y = mixed_table()
    model = small(TableTransformerClassifier, early_stopping_metric="roc_auc", epochs=6, batch_size=4).fit(X, y)
    scores = [epoch["val_score"] for epoch in model.history_]
    assert model.history_[int(np.argmax(scores))]["is_best"]
    y = X[:, 0].astype(float)
    errors = small(TableTransformerRegressor, early_stopping_metric="neg_mean_absolute_error", batch_size=4)
    assert all(epoch["val_score"] < 0 for epoch in errors.fit(X, y).history_)


def test_a_metric_that_cannot_score_the_target_is_named() -> None:
    X, y = mixed_table()
    with pytest.raises(ConfigError, match="'r2' cannot score this target|early_stopping_metric"):
        small(TableTransformerClassifier, early_stopping_metric="no_such_score").fit(X, y)
    with pytest.raises(ConfigError, match="'roc_auc' cannot score this target"):
        small(TableTransformerRegressor, early_stopping_metric="roc_auc").fit(X, X[:, 0].astype(float))

"""Several labels per row."""

from pathlib import Path

import numpy as np
import pytest

from softlook.base.errors import ConfigError, DataError
from softlook.tabular import TableTransformerClassifier, load
from tests.tabular.estimators import mixed_table, small

X, FIRST = mixed_table(200)
Y = np.stack([FIRST, X[:, 1].astype(float) > 0, np.zeros(200), np.ones(200)], 1).astype(int)
PARAMS = {"ensemble": "auto", "n_cv": 2, "depth": 1, "epochs": 20, "lr": 1e-2}


@pytest.fixture(scope="module")
def model() -> TableTransformerClassifier:
    return small(TableTransformerClassifier, **PARAMS).fit(X, Y)


def test_every_label_has_a_probability_of_its_own(model: TableTransformerClassifier) -> None:
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (200, 4)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    np.testing.assert_array_equal(model.predict(X), probabilities >= 0.5)
    assert model.classes_.tolist() == [0, 1, 2, 3]


def test_labels_are_learned(model: TableTransformerClassifier) -> None:
    assert (model.predict(X) == Y).mean(0).min() > 0.85
    assert model.score(X, Y) == (model.predict(X) == Y).all(1).mean()


def test_labels_that_never_or_always_occur_are_predicted(model: TableTransformerClassifier) -> None:
    never, always = model.predict_proba(X)[:, 2:].T
    assert never.max() < 0.2 and always.min() > 0.8


def test_a_loaded_model_predicts_the_same_labels(model: TableTransformerClassifier, tmp_path: Path) -> None:
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_scorers_of_scikit_learn_stop_early() -> None:
    model = small(TableTransformerClassifier, early_stopping_metric="f1_micro").fit(X, Y)
    assert 0 <= model.history_[-1]["val_score"] <= 1


def test_indicators_other_than_0_and_1_are_rejected() -> None:
    with pytest.raises(DataError, match=r"expected 0 or 1 for each of 4 labels per row, got \[0, 3\]"):
        small(TableTransformerClassifier).fit(X, Y * 3)


def test_class_weights_are_rejected() -> None:
    with pytest.raises(ConfigError, match="class_weight: expected None for several labels per row"):
        small(TableTransformerClassifier, class_weight="balanced").fit(X, Y)

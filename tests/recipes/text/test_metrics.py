"""Metrics of classifiers."""

import random

import pytest

from softlook.recipes.text.metrics import classification_scores, matthews_correlation, per_class_scores


def test_perfect_predictions_score_one() -> None:
    assert classification_scores([0, 1, 2], [0, 1, 2], 3) == {"accuracy": 1.0, "f1": 1.0, "mcc": 1.0}


def test_a_constant_prediction_has_zero_correlation() -> None:
    assert classification_scores([1] * 10, [1] * 9 + [0], 2)["mcc"] == 0.0


def test_matthews_correlation_of_two_classes_is_the_textbook_formula() -> None:
    rng = random.Random(0)
    predicted, labels = ([rng.randint(0, 1) for _ in range(200)] for _ in range(2))
    tp, tn, fp, fn = (
        sum(pair == case for pair in zip(predicted, labels, strict=True)) for case in ((1, 1), (0, 0), (1, 0), (0, 1))
    )
    textbook = (tp * tn - fp * fn) / ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    assert matthews_correlation(predicted, labels) == pytest.approx(textbook)
    assert classification_scores(predicted, labels, 2)["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn))


def test_per_class_scores() -> None:
    assert per_class_scores([0, 0, 1], [0, 1, 1], ["a", "b"]) == {
        "a": {"examples": 1, "f1": 0.6667},
        "b": {"examples": 2, "f1": 0.6667},
    }

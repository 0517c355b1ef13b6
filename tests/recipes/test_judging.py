"""Scores of classifiers."""

import random

import pytest

from softlook.recipes.judging import by_class, correlation, judged


def test_who_is_always_right_gets_full_marks() -> None:
    assert judged([0, 1, 2], [0, 1, 2], "abc") == {"accuracy": 1.0, "f1": 1.0, "mcc": 1.0}


def test_who_always_says_the_same_knows_nothing() -> None:
    assert judged([1] * 10, [1] * 9 + [0], ["no", "yes"])["mcc"] == 0.0


def test_two_classes_give_the_textbook_formula() -> None:
    dice = random.Random(0)
    said, wanted = ([dice.randint(0, 1) for _ in range(200)] for _ in range(2))
    tp, tn, fp, fn = (
        sum(pair == case for pair in zip(said, wanted, strict=True)) for case in ((1, 1), (0, 0), (1, 0), (0, 1))
    )
    textbook = (tp * tn - fp * fn) / ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    assert correlation(said, wanted) == pytest.approx(textbook)
    assert judged(said, wanted, ["no", "yes"])["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn))


def test_each_class_is_counted() -> None:
    assert by_class([0, 0, 1], [0, 1, 1], ["a", "b"]) == {
        "a": {"examples": 1, "f1": 0.6667},
        "b": {"examples": 2, "f1": 0.6667},
    }

"""Labels and numbers as tensors, and back."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from softlook.base.errors import DataError
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget, target_from_state

LABELS = {
    "words": np.array(["b", "a", "b"]),
    "objects": np.array(["b", "a", "b"], dtype=object),
    "truth": np.array([True, False, True]),
    "whole": np.array([7, -2, 7]),
    "broken": np.array([1.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS.keys())
def test_labels_of_any_kind_come_back_as_they_were(y: np.ndarray) -> None:
    classes = target_from_state(json.loads(json.dumps(ClassTarget.fit(y).state())))
    assert isinstance(classes, ClassTarget)
    assert classes.values.dtype == y.dtype
    np.testing.assert_array_equal(classes.values[classes.encode(y)], y)


def test_a_label_that_was_not_there_before_is_named() -> None:
    with pytest.raises(DataError, match="'c' is none of the 2 classes"):
        ClassTarget.fit(np.array(["a", "b"])).encode(np.array(["a", "c"], dtype=object))


def test_each_member_has_its_own_loss() -> None:
    classes, scores, targets = ClassTarget(np.arange(3)), torch.randn(5, 4, 3), torch.tensor([0, 1, 2, 0, 1])
    for member in range(4):
        alone = F.cross_entropy(scores[:, member], targets, reduction="none")
        torch.testing.assert_close(classes.loss(scores, targets)[:, member], alone)


def test_members_answer_by_the_mean_of_their_probabilities_and_not_of_their_scores() -> None:
    classes, scores = ClassTarget(np.arange(3)), torch.randn(5, 4, 3, dtype=torch.double)
    torch.testing.assert_close(classes.predict(scores), scores.softmax(2).mean(1))


def test_one_score_says_what_two_would() -> None:
    classes, scores, targets = ClassTarget(np.arange(2)), torch.randn(6, 3, 1), torch.tensor([0, 1, 1, 0, 1, 0])
    both = torch.cat([torch.zeros_like(scores), scores], 2)
    torch.testing.assert_close(classes.predict(scores), both.double().softmax(2).mean(1))
    alone = F.cross_entropy(both.flatten(0, 1), targets.repeat_interleave(3), reduction="none").view(6, 3)
    torch.testing.assert_close(classes.loss(scores, targets), alone)


def test_a_single_class_is_certain() -> None:
    classes = ClassTarget(np.array(["only"]))
    assert classes.predict(torch.randn(3, 2, 1)).tolist() == [[1.0]] * 3
    assert classes.loss(torch.randn(3, 2, 1), torch.zeros(3).long()).abs().sum() == 0


def test_the_loss_of_an_answer_is_its_negative_log_probability() -> None:
    answer, targets = torch.tensor([[0.25, 0.75], [1.0, 0.0]]).double(), torch.tensor([1, 1])
    loss, score = ClassTarget(np.arange(2)).evaluate(answer, targets)
    assert loss[0].item() == pytest.approx(-np.log(0.75))
    assert np.isfinite(loss[1].item()), "a certain mistake is bad, and still a number"
    assert score.tolist() == [1.0, 0.0]


@given(st.lists(st.floats(-1e300, 1e300, width=64), min_size=1, max_size=20), st.booleans())
def test_numbers_come_back_in_their_own_units(values: list[float], wide: bool) -> None:
    y: Any = np.array(values)
    y = np.stack([y, y[::-1]], 1) if wide else y
    is_regression = target_from_state(json.loads(json.dumps(RegressionTarget.fit(y).state())))
    assert isinstance(is_regression, RegressionTarget)
    encoded = is_regression.encode(y)
    assert np.isfinite(encoded).all()
    again = is_regression.inverse_transform(encoded.astype(np.float64))
    assert again.shape == y.shape
    np.testing.assert_allclose(again, y, rtol=1e-5, atol=1e-5 * np.abs(y).max() + 1e-300)


def test_numbers_are_brought_to_mean_0_and_deviation_1() -> None:
    y = np.random.RandomState(0).randn(500, 2) * [3, 1e6] + [-5, 1e7]
    encoded = RegressionTarget.fit(y).encode(y)
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(0), 1, atol=1e-5)


def test_a_constant_comes_back_to_the_bit_whatever_is_answered() -> None:
    is_regression = RegressionTarget.fit(np.full(7, 0.1))
    assert (is_regression.inverse_transform(np.array([[-3.0], [5.0]])) == 0.1).all()


def test_another_number_of_targets_is_refused() -> None:
    with pytest.raises(DataError, match=r"a row has 2 targets of shape \(2,\); \(3,\) came"):
        RegressionTarget.fit(np.ones((4, 2))).encode(np.ones((4, 3)))


def test_labels_of_a_kind_that_no_file_may_name_are_refused() -> None:
    with pytest.raises(DataError, match="labels are words, numbers, truth values or times"):
        target_from_state({"kind": "classes", "type": "V8", "values": []})

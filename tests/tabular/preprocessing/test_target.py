"""Class and regression targets as tensors and back."""

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
    "strings": np.array(["b", "a", "b"]),
    "objects": np.array(["b", "a", "b"], dtype=object),
    "booleans": np.array([True, False, True]),
    "integers": np.array([7, -2, 7]),
    "floats": np.array([1.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS.keys())
def test_labels_of_any_dtype_round_trip(y: np.ndarray) -> None:
    target = target_from_state(json.loads(json.dumps(ClassTarget.fit(y).state())))
    assert isinstance(target, ClassTarget)
    assert target.values.dtype == y.dtype
    np.testing.assert_array_equal(target.values[target.encode(y)], y)


def test_an_unknown_label_is_named_in_the_error() -> None:
    with pytest.raises(DataError, match="'c' is not one of the 2 classes"):
        ClassTarget.fit(np.array(["a", "b"])).encode(np.array(["a", "c"], dtype=object))


def test_each_ensemble_member_has_its_own_loss() -> None:
    target, logits, targets = ClassTarget(np.arange(3)), torch.randn(5, 4, 3), torch.tensor([0, 1, 2, 0, 1])
    for member in range(4):
        expected = F.cross_entropy(logits[:, member], targets, reduction="none")
        torch.testing.assert_close(target.loss(logits, targets)[:, member], expected)


def test_the_ensemble_predicts_the_mean_of_probabilities_and_not_of_logits() -> None:
    target, logits = ClassTarget(np.arange(3)), torch.randn(5, 4, 3, dtype=torch.double)
    torch.testing.assert_close(target.predict(logits), logits.softmax(2).mean(1))


def test_one_logit_is_equivalent_to_two() -> None:
    target, logits, targets = ClassTarget(np.arange(2)), torch.randn(6, 3, 1), torch.tensor([0, 1, 1, 0, 1, 0])
    both = torch.cat([torch.zeros_like(logits), logits], 2)
    torch.testing.assert_close(target.predict(logits), both.double().softmax(2).mean(1))
    expected = F.cross_entropy(both.flatten(0, 1), targets.repeat_interleave(3), reduction="none").view(6, 3)
    torch.testing.assert_close(target.loss(logits, targets), expected)


def test_a_single_class_has_probability_1_and_no_loss() -> None:
    target = ClassTarget(np.array(["only"]))
    assert target.predict(torch.randn(3, 2, 1)).tolist() == [[1.0]] * 3
    assert target.loss(torch.randn(3, 2, 1), torch.zeros(3).long()).abs().sum() == 0


def test_the_loss_of_a_prediction_is_its_negative_log_probability() -> None:
    prediction, targets = torch.tensor([[0.25, 0.75], [1.0, 0.0]]).double(), torch.tensor([1, 1])
    loss, score = ClassTarget(np.arange(2)).evaluate(prediction, targets)
    assert loss[0].item() == pytest.approx(-np.log(0.75))
    assert np.isfinite(loss[1].item()), "a certain mistake has a finite loss"
    assert score.tolist() == [1.0, 0.0]


@given(st.lists(st.floats(-1e300, 1e300, width=64), min_size=1, max_size=20), st.booleans())
def test_regression_targets_round_trip_in_their_own_units(values: list[float], wide: bool) -> None:
    y: Any = np.array(values)
    y = np.stack([y, y[::-1]], 1) if wide else y
    target = target_from_state(json.loads(json.dumps(RegressionTarget.fit(y).state())))
    assert isinstance(target, RegressionTarget)
    encoded = target.encode(y)
    assert np.isfinite(encoded).all()
    decoded = target.inverse_transform(encoded.astype(np.float64))
    assert decoded.shape == y.shape
    np.testing.assert_allclose(decoded, y, rtol=1e-5, atol=1e-5 * np.abs(y).max() + 1e-300)


def test_regression_targets_are_standardized() -> None:
    y = np.random.RandomState(0).randn(500, 2) * [3, 1e6] + [-5, 1e7]
    encoded = RegressionTarget.fit(y).encode(y)
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(0), 1, atol=1e-5)


def test_a_constant_target_is_predicted_exactly_whatever_the_output() -> None:
    target = RegressionTarget.fit(np.full(7, 0.1))
    assert (target.inverse_transform(np.array([[-3.0], [5.0]])) == 0.1).all()


def test_a_different_number_of_targets_is_rejected() -> None:
    with pytest.raises(DataError, match=r"expected 2 targets per row, of shape \(2,\); got \(3,\)"):
        RegressionTarget.fit(np.ones((4, 2))).encode(np.ones((4, 3)))


def test_labels_of_an_unsupported_dtype_are_rejected_on_loading() -> None:
    with pytest.raises(DataError, match="labels must be strings, numbers, booleans or times"):
        target_from_state({"problem": "classification", "dtype": "V8", "values": []})

"""Metrics of classifiers."""

import json
import random

import pytest
import torch

from softlook.base.errors import ShapeError
from softlook.recipes.text.metrics import (
    MAX_CONFUSION_CLASSES,
    calibration_bins,
    classification_report,
    classification_scores,
    expected_calibration_error,
    log_loss,
    matthews_correlation,
    per_class_scores,
)

NAMES = ["a", "b", "c", "rare"]


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


def random_predictions(count: int = 300) -> tuple[torch.Tensor, list[int]]:
    """Probabilities and labels; the last class is never a label."""
    generator = torch.Generator().manual_seed(0)
    probabilities = (2 * torch.randn(count, len(NAMES), generator=generator)).softmax(-1)
    return probabilities, torch.randint(0, len(NAMES) - 1, (count,), generator=generator).tolist()


def test_the_report_agrees_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    probabilities, labels = random_predictions()
    predicted, classes = probabilities.argmax(-1).tolist(), range(len(NAMES))
    report = classification_report(probabilities, labels, NAMES)
    expected = metrics.precision_recall_fscore_support(labels, predicted, labels=classes, zero_division=0)
    for number, name in enumerate(NAMES):
        found = report["classes"][name]
        assert list(found) == ["precision", "recall", "f1", "support"]
        assert list(found.values()) == pytest.approx([column[number] for column in expected])
    assert report["f1"] == pytest.approx(expected[2].mean())
    assert report["mcc"] == pytest.approx(metrics.matthews_corrcoef(labels, predicted))
    assert report["confusion_matrix"]["counts"] == metrics.confusion_matrix(labels, predicted, labels=classes).tolist()
    assert report["log_loss"] == pytest.approx(metrics.log_loss(labels, probabilities.numpy(), labels=classes))


def test_a_probability_of_zero_for_the_label_gives_a_finite_log_loss() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    probabilities = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert log_loss(probabilities, [1, 0]) == pytest.approx(metrics.log_loss([1, 0], probabilities.numpy()), rel=1e-6)


def test_the_calibration_error_is_zero_if_confidence_equals_accuracy() -> None:
    probabilities = torch.tensor([[0.75, 0.25]] * 4)
    assert expected_calibration_error(calibration_bins(probabilities, [0, 0, 0, 1])) == 0
    assert expected_calibration_error(calibration_bins(probabilities, [1, 1, 1, 1])) == 0.75


def test_every_example_is_in_one_bin_and_certainty_is_in_the_last() -> None:
    probabilities, labels = random_predictions()
    assert sum(one["examples"] for one in calibration_bins(probabilities, labels)) == len(labels)
    (last,) = calibration_bins(torch.tensor([[1.0, 0.0]]), [0])
    assert (last["low"], last["high"], last["accuracy"]) == (0.9, 1.0, 1.0)


def test_wrong_examples_are_listed_by_confidence() -> None:
    probabilities, labels = random_predictions(100)
    texts = [f"text {number} " + "x" * 500 for number in range(100)]
    wrong = classification_report(probabilities, labels, NAMES, texts)["wrong_examples"]
    confidences = [one["confidence"] for one in wrong]
    assert len(wrong) == 10 and confidences == sorted(confidences, reverse=True)
    is_wrong = probabilities.argmax(-1) != torch.tensor(labels)
    assert confidences[0] == pytest.approx(probabilities.max(-1).values[is_wrong].max().item(), abs=1e-4)
    for one in wrong:
        assert one["label"] != one["prediction"]
        assert NAMES.index(one["label"]) == labels[int(one["text"].split()[1])] and len(one["text"]) == 400


def test_confusions_are_counted_in_the_matrix() -> None:
    probabilities, labels = random_predictions()
    report = classification_report(probabilities, labels, NAMES)
    matrix = report["confusion_matrix"]
    for one in report["confusions"]:
        row, column = matrix["names"].index(one["label"]), matrix["names"].index(one["prediction"])
        assert row != column and matrix["counts"][row][column] == one["examples"]
    assert report["confusions"][0]["examples"] >= report["confusions"][-1]["examples"]


def test_many_classes_have_no_confusion_matrix() -> None:
    count = MAX_CONFUSION_CLASSES + 1
    report = classification_report(torch.eye(count), [*range(1, count), 0], [f"class {n}" for n in range(count)])
    assert "confusion_matrix" not in report and len(report["confusions"]) == 10 and "wrong_examples" not in report


def test_the_report_is_json() -> None:
    probabilities, labels = random_predictions(20)
    report = classification_report(probabilities.half(), labels, NAMES, ["text"] * 20)
    assert json.loads(json.dumps(report)) == report


def test_logits_and_unequal_lengths_are_errors() -> None:
    probabilities, labels = random_predictions(20)
    with pytest.raises(ValueError, match="Apply softmax to logits"):
        classification_report(probabilities.log(), labels, NAMES)
    with pytest.raises(ValueError, match="labels must be from 0 to 3; got labels from 0 to 4"):
        classification_report(probabilities, [4, *labels[1:]], NAMES)
    with pytest.raises(ShapeError, match=r"for each of 3 classes; got probabilities of shape \(20, 4\)"):
        classification_report(probabilities, labels, NAMES[:3])
    with pytest.raises(ShapeError, match="one text for each of 20 labels.* and 1 texts"):
        classification_report(probabilities, labels, NAMES, ["text"])


def test_per_class_scores_of_a_class_without_predictions_are_zero() -> None:
    scores = per_class_scores([0, 0], [0, 1], ["a", "b"])
    assert scores["b"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}

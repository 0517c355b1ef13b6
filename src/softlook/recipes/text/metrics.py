"""Metrics: BLEU and chrF (sacreBLEU); accuracy, F1, Matthews correlation and calibration of classifiers."""

import math
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError

MAX_CONFUSION_CLASSES = 40
"""Classes up to which a report contains the confusion matrix; with more, only the most frequent confusions."""
MAX_CONFUSIONS, MAX_WRONG_EXAMPLES, MAX_WRONG_CHARS = 10, 10, 400
CALIBRATION_BINS = 10


def _sacrebleu() -> Any:
    if find_spec("sacrebleu") is None:
        raise ModuleNotFoundError("translations are scored with sacreBLEU: pip install sacrebleu")
    return import_module("sacrebleu.metrics")


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, 0 to 100.

    >>> round(corpus_bleu(["a b c d e"], ["a b c d e"]))
    100
    """
    return _sacrebleu().BLEU().corpus_score(list(hypotheses), [list(references)]).score


def translation_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU, lower-cased BLEU, BLEU of pre-tokenized text, and chrF, with their signatures."""
    sacrebleu = _sacrebleu()
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    metrics = {
        "bleu": bleu,
        "bleu_lowercase": sacrebleu.BLEU(lowercase=True),
        "bleu_pretokenized": sacrebleu.BLEU(tokenize="none", force=True),
        "chrf": chrf,
    }
    scores = {name: metric.corpus_score(list(hypotheses), [list(references)]).score for name, metric in metrics.items()}
    return {
        **{name: round(score, 2) for name, score in scores.items()},
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def classification_report(
    probabilities: Float[Tensor, "N C"], labels: Sequence[int], names: Sequence[str], texts: Sequence[str] = ()
) -> dict[str, Any]:
    """All metrics of a classifier as JSON types: numbers first, then tables.

    `labels` are class indices, `names` the classes, and `texts` the examples, of which the most confidently wrong ones
    are listed.

    >>> probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    >>> report = classification_report(probabilities, [0, 1, 1], ["bad", "good"], ["dull", "fun", "not bad"])
    >>> report["accuracy"], report["confusion_matrix"]["counts"], report["wrong_examples"][0]["text"]
    (0.666..., [[1, 0], [1, 1]], 'not bad')
    """
    _check_report_inputs(probabilities, labels, names, texts)
    predicted = probabilities.argmax(-1).tolist()
    bins = calibration_bins(probabilities, labels)
    report: dict[str, Any] = {
        "examples": len(labels),
        **classification_scores(predicted, labels, len(names)),
        "log_loss": log_loss(probabilities, labels),
        "ece": expected_calibration_error(bins),
        "classes": per_class_scores(predicted, labels, names),
    }
    if len(names) <= MAX_CONFUSION_CLASSES:
        report["confusion_matrix"] = {"names": list(names), "counts": confusion_matrix(predicted, labels, len(names))}
    report["confusions"] = most_frequent_confusions(predicted, labels, names)
    report["calibration"] = bins
    if texts:
        report["wrong_examples"] = most_confidently_wrong(probabilities, labels, names, texts)
    return report


def _check_report_inputs(
    probabilities: Tensor, labels: Sequence[int], names: Sequence[str], texts: Sequence[str]
) -> None:
    expected = (len(labels), len(names))
    if tuple(probabilities.shape) != expected or not labels or len(texts) not in (0, len(labels)):
        raise ShapeError(
            f"expected one row of probabilities and, if given, one text for each of {len(labels)} labels, and one "
            f"column for each of {len(names)} classes; got probabilities of shape {tuple(probabilities.shape)} and "
            f"{len(texts)} texts"
        )
    if min(labels) < 0 or max(labels) >= len(names):
        raise ValueError(f"labels must be from 0 to {len(names) - 1}; got labels from {min(labels)} to {max(labels)}")
    if not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
        low, high = probabilities.min().item(), probabilities.max().item()
        raise ValueError(f"probabilities must be from 0 to 1; got {low:.3g} to {high:.3g}. Apply softmax to logits.")


def log_loss(probabilities: Float[Tensor, "N C"], labels: Sequence[int]) -> float:
    """Mean negative log probability of the labels; as in scikit-learn, probabilities are at least the dtype's epsilon.

    >>> log_loss(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), [0, 0])
    0.346...
    """
    likelihood = probabilities.gather(-1, torch.tensor(labels, device=probabilities.device)[:, None])
    return -likelihood.clamp(min=torch.finfo(probabilities.dtype).eps).double().log().mean().item()


def confusion_matrix(predicted: Sequence[int], labels: Sequence[int], num_classes: int) -> list[list[int]]:
    """Number of examples of each label (row) and prediction (column).

    >>> confusion_matrix([0, 1, 1], [0, 0, 1], 2)
    [[1, 1], [0, 1]]
    """
    counts = Counter(zip(labels, predicted, strict=True))
    return [[counts[label, prediction] for prediction in range(num_classes)] for label in range(num_classes)]


def most_frequent_confusions(
    predicted: Sequence[int], labels: Sequence[int], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Pairs of a label and a wrong prediction, the most frequent first.

    >>> most_frequent_confusions([0, 0, 1], [1, 1, 1], ["a", "b"])
    [{'label': 'b', 'prediction': 'a', 'examples': 2}]
    """
    wrong = Counter(pair for pair in zip(labels, predicted, strict=True) if pair[0] != pair[1])
    return [
        {"label": names[label], "prediction": names[prediction], "examples": count}
        for (label, prediction), count in wrong.most_common(MAX_CONFUSIONS)
    ]


def calibration_bins(probabilities: Float[Tensor, "N C"], labels: Sequence[int]) -> list[dict[str, float]]:
    """Mean confidence and accuracy of the examples in each of ten intervals of confidence, without empty intervals.

    The confidence is the probability of the predicted class.

    >>> calibration_bins(torch.tensor([[0.72, 0.28], [0.24, 0.76]]), [0, 0])
    [{'low': 0.7, 'high': 0.8, 'examples': 2, 'confidence': 0.74, 'accuracy': 0.5}]
    """
    confidence, predicted = probabilities.double().max(-1)
    correct = predicted == torch.tensor(labels, device=predicted.device)
    numbers = (confidence * CALIBRATION_BINS).floor().clamp(max=CALIBRATION_BINS - 1).long()
    bins = []
    for number in numbers.unique().tolist():
        inside = numbers == number
        bins.append(
            {
                "low": number / CALIBRATION_BINS,
                "high": (number + 1) / CALIBRATION_BINS,
                "examples": int(inside.sum()),
                "confidence": round(confidence[inside].mean().item(), 6),
                "accuracy": round(correct[inside].double().mean().item(), 6),
            }
        )
    return bins


def expected_calibration_error(bins: Sequence[dict[str, float]]) -> float:
    """Expected calibration error (Guo et al., 2017): mean difference of confidence and accuracy over the examples.

    >>> expected_calibration_error(calibration_bins(torch.tensor([[0.75, 0.25], [0.25, 0.75]]), [0, 0]))
    0.25
    """
    total = sum(one["examples"] for one in bins)
    return sum(one["examples"] * abs(one["confidence"] - one["accuracy"]) for one in bins) / total


def most_confidently_wrong(
    probabilities: Float[Tensor, "N C"], labels: Sequence[int], names: Sequence[str], texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Wrong predictions with the highest confidence: label errors in the data are often among them."""
    confidences, predicted = (values.tolist() for values in probabilities.max(-1))
    wrong = [number for number, label in enumerate(labels) if predicted[number] != label]
    wrong.sort(key=lambda number: -confidences[number])
    return [
        {
            "text": shorten(texts[number]),
            "label": names[labels[number]],
            "prediction": names[predicted[number]],
            "confidence": round(confidences[number], 4),
        }
        for number in wrong[:MAX_WRONG_EXAMPLES]
    ]


def shorten(text: str) -> str:
    """The first characters of a long text."""
    return text if len(text) <= MAX_WRONG_CHARS else text[: MAX_WRONG_CHARS - 1] + "…"


def classification_scores(predicted: Sequence[int], labels: Sequence[int], num_classes: int) -> dict[str, Any]:
    """Accuracy, F1 and Matthews correlation. F1 is that of the second class of two, else the macro average.

    >>> classification_scores([1, 0, 1, 1], [1, 0, 0, 1], 2)
    {'accuracy': 0.75, 'f1': 0.8, 'mcc': 0.577...}
    """
    correct = sum(one == other for one, other in zip(predicted, labels, strict=True))
    f1s = [scores["f1"] for scores in _class_scores(predicted, labels, num_classes)]
    f1 = f1s[1] if num_classes == 2 else sum(f1s) / max(len(f1s), 1)
    accuracy = correct / max(len(labels), 1)
    return {"accuracy": accuracy, "f1": f1, "mcc": matthews_correlation(predicted, labels)}


def matthews_correlation(predicted: Sequence[int], labels: Sequence[int]) -> float:
    """Matthews correlation for any number of classes (Gorodkin, 2004): 1 is perfect, 0 no better than chance."""
    correct = sum(one == other for one, other in zip(predicted, labels, strict=True))
    count, predicted_counts, label_counts = len(labels), Counter(predicted), Counter(labels)
    expected = sum(predicted_counts[name] * label_counts[name] for name in label_counts)
    variances = [count**2 - sum(n * n for n in counts.values()) for counts in (predicted_counts, label_counts)]
    spread = variances[0] * variances[1]
    return (correct * count - expected) / math.sqrt(spread) if spread else 0.0


def per_class_scores(
    predicted: Sequence[int], labels: Sequence[int], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and support of each class; as in scikit-learn, 0 / 0 is 0.

    >>> per_class_scores([0, 0, 1], [0, 1, 1], ["a", "b"])["a"]
    {'precision': 0.5, 'recall': 1.0, 'f1': 0.666..., 'support': 1}
    """
    return dict(zip(names, _class_scores(predicted, labels, len(names)), strict=True))


def _class_scores(predicted: Sequence[int], labels: Sequence[int], num_classes: int) -> list[dict[str, float]]:
    predictions, support = Counter(predicted), Counter(labels)
    hits = Counter(one for one, other in zip(predicted, labels, strict=True) if one == other)
    return [
        {
            "precision": hits[number] / max(predictions[number], 1),
            "recall": hits[number] / max(support[number], 1),
            "f1": 2 * hits[number] / max(predictions[number] + support[number], 1),
            "support": support[number],
        }
        for number in range(num_classes)
    ]

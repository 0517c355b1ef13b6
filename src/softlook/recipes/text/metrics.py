"""Metrics: BLEU and chrF (sacreBLEU), accuracy, F1 and Matthews correlation."""

import math
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any


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


def classification_scores(predicted: Sequence[int], labels: Sequence[int], num_classes: int) -> dict[str, Any]:
    """Accuracy, F1 and Matthews correlation. F1 is that of the second class of two, else the macro average.

    >>> classification_scores([1, 0, 1, 1], [1, 0, 0, 1], 2)
    {'accuracy': 0.75, 'f1': 0.8, 'mcc': 0.577...}
    """
    correct = sum(one == other for one, other in zip(predicted, labels, strict=True))
    f1s = [_f1(predicted, labels, number) for number in range(num_classes)]
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
    """Number of examples and F1 of each class."""
    counts = Counter(labels)
    return {name: {"examples": counts[i], "f1": round(_f1(predicted, labels, i), 4)} for i, name in enumerate(names)}


def _f1(predicted: Sequence[int], labels: Sequence[int], number: int) -> float:
    hits = sum(one == other == number for one, other in zip(predicted, labels, strict=True))
    return 2 * hits / max(sum(one == number for one in predicted) + sum(other == number for other in labels), 1)

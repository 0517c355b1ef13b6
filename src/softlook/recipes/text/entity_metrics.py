"""Entity metrics: precision, recall and F1 of whole entities, and the accuracy of tags."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from softlook.data.tags import find_entities

Tags = Sequence[Sequence[str]]
"""The tags of each sentence."""


def tagging_scores(predicted: Tags, labels: Tags) -> dict[str, float]:
    """Micro-averaged precision, recall and F1 of entities, and the accuracy of tags.

    An entity is correct if its label, its first and its last word are. These are the scores of conlleval, and of
    seqeval by default.

    >>> tagging_scores([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]])
    {'f1': 0.0, 'precision': 0.0, 'recall': 0.0, 'accuracy': 0.666...}
    """
    counts = _count(predicted, labels)
    pairs = [pair for one, other in zip(predicted, labels, strict=True) for pair in zip(one, other, strict=True)]
    accuracy = sum(one == other for one, other in pairs) / max(len(pairs), 1)
    return {**_f1(*(count.total() for count in counts)), "accuracy": accuracy}


def per_label_scores(predicted: Tags, labels: Tags) -> dict[str, dict[str, Any]]:
    """Number of entities, precision, recall and F1 of each label.

    >>> per_label_scores([["B-PER", "O"]], [["B-PER", "B-LOC"]])["LOC"]
    {'entities': 1, 'f1': 0.0, 'precision': 0.0, 'recall': 0.0}
    """
    correct, found, expected = _count(predicted, labels)
    names = sorted(found.keys() | expected.keys())
    rounded = {
        name: {key: round(score, 4) for key, score in _f1(correct[name], found[name], expected[name]).items()}
        for name in names
    }
    return {name: {"entities": expected[name], **rounded[name]} for name in names}


def _count(predicted: Tags, labels: Tags) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Correct, predicted and expected entities of each label."""
    correct, found, expected = Counter[str](), Counter[str](), Counter[str]()
    for row, label_row in zip(predicted, labels, strict=True):
        entities, label_entities = set(find_entities(row)), set(find_entities(label_row))
        correct.update(entity.label for entity in entities & label_entities)
        found.update(entity.label for entity in entities)
        expected.update(entity.label for entity in label_entities)
    return correct, found, expected


def _f1(correct: int, found: int, expected: int) -> dict[str, float]:
    return {
        "f1": 2 * correct / max(found + expected, 1),
        "precision": correct / max(found, 1),
        "recall": correct / max(expected, 1),
    }

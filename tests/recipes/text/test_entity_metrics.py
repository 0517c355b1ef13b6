"""Precision, recall and F1 count whole entities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.recipes.text.entity_metrics import per_label_scores, tagging_scores

SENTENCES = st.lists(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), min_size=1), min_size=1)


def test_an_entity_is_correct_if_label_and_both_ends_are() -> None:
    labels = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-LOC"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER", "O", "O"]]
    scores = tagging_scores(predicted, labels)
    assert scores == pytest.approx({"f1": 2 / 5, "precision": 1 / 2, "recall": 1 / 3, "accuracy": 4 / 6})
    assert tagging_scores([["B-PER", "O"]], [["B-PER", "I-PER"]])["f1"] == 0


def test_scores_per_label() -> None:
    labels, predicted = [["B-PER", "O", "B-LOC"]], [["B-PER", "B-LOC", "B-LOC"]]
    assert per_label_scores(predicted, labels) == {
        "LOC": {"entities": 1, "f1": 0.6667, "precision": 0.5, "recall": 1.0},
        "PER": {"entities": 1, "f1": 1.0, "precision": 1.0, "recall": 1.0},
    }


@given(SENTENCES)
def test_labels_score_one_against_themselves(labels: list[list[str]]) -> None:
    has_entities = any(tag != "O" for row in labels for tag in row)
    scores = tagging_scores(labels, labels)
    assert scores["accuracy"] == 1 and scores["f1"] == scores["precision"] == scores["recall"] == float(has_entities)


@given(SENTENCES, st.data())
def test_exchanging_both_exchanges_precision_and_recall(labels: list[list[str]], data: st.DataObject) -> None:
    tags = st.sampled_from(["O", "B-A", "I-A", "B-B"])
    predicted = [data.draw(st.lists(tags, min_size=len(row), max_size=len(row))) for row in labels]
    one, other = tagging_scores(predicted, labels), tagging_scores(labels, predicted)
    assert one["precision"] == other["recall"] and one["f1"] == other["f1"] and one["accuracy"] == other["accuracy"]

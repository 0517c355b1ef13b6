"""Output of `softlook classify` for each problem."""

import pytest

from softlook.cli.commands.classify import FORMATS, ClassFormat
from softlook.recipes.inference.encoding import ClassPrediction

CLASSES = {"red": 0.9, "round": 0.6, "flat": 0.1}
SEVERAL = ClassPrediction("ball", None, "red", 0.9, CLASSES, ("red", "round"))
NONE = ClassPrediction("ball", None, "red", 0.4, {"red": 0.4, "flat": 0.1}, ())
NUMBER = ClassPrediction("ball", None, "value", -2.5, {"value": -2.5}, ("value",))


def test_a_class_is_printed_with_its_probability() -> None:
    one = ClassPrediction("ball", None, "red", 0.9, CLASSES, ("red",))
    assert ClassFormat(False).to_cells(one) == ["red", "0.9000"]
    assert ClassFormat(False).to_object(one) == {"label": "red", "probability": 0.9}
    assert ClassFormat(True).to_object(one)["classes"] == CLASSES


@pytest.mark.parametrize(
    ("prediction", "has_all", "cells"),
    [
        (SEVERAL, False, ["red", "0.9000", "round", "0.6000"]),
        (SEVERAL, True, ["red", "0.9000", "round", "0.6000", "flat", "0.1000"]),
        (NONE, False, []),
    ],
)
def test_all_predicted_labels_are_printed(prediction: ClassPrediction, has_all: bool, cells: list[str]) -> None:
    format = FORMATS["multi_label"](has_all)
    assert format.to_cells(prediction) == cells
    assert format.to_object(prediction) == {"labels": list(prediction.labels), "classes": prediction.classes}


def test_a_number_is_printed_without_a_label() -> None:
    format = FORMATS["regression"](False)
    assert format.to_cells(NUMBER) == ["-2.5000"]
    assert format.to_object(NUMBER) == {"value": -2.5}

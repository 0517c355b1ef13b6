"""Results are readable as text, and as escaped tables in notebooks."""

from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from softlook.recipes import load_pipeline, train_classification, train_table
from softlook.recipes.inference import classify
from softlook.recipes.inference.encoding import ClassPrediction, ClassPredictions
from softlook.recipes.run_dir.run_result import RunResult
from softlook.train.checkpoint.train_state import Progress
from softlook.train.events import Finished
from tests.recipes.small import classification_config, tabular_config

EVIL = "<script>alert(1)</script>\x1b[2J"


@dataclass(repr=False)
class SmallResult(RunResult):
    """A result without a model."""

    run_dir: Path
    finished: Finished
    scores: dict[str, Any]


class Cells(HTMLParser):
    """The tags of a page, and the text of its table cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.cells = list[str](), set[str](), list[str]()
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.cells.append(data)


def result(**scores: Any) -> SmallResult:
    return SmallResult(Path("runs") / "reviews", Finished(1200, "max_steps reached", 150.0), scores)


def test_a_result_shows_steps_time_reason_and_scores() -> None:
    scores = {"loss": 0.5, "accuracy": 0.875, "error": 0.125, "test": {"accuracy": 0.75, "classes": {"a": {}}}}
    assert repr(result(**scores)).splitlines() == [
        f"SmallResult({str(Path('runs/reviews'))!r}): 1,200 steps in 2.5 min, max_steps reached",
        "  validation: loss 0.5000, accuracy 0.8750",
        "  test: accuracy 0.7500",
    ]
    cells = Cells(result(**scores)._repr_html_()).cells
    assert cells[-8:] == ["score", "validation", "test", "loss", "0.5000", "accuracy", "0.8750", "0.7500"]


def test_a_result_shows_its_baselines() -> None:
    rows = [{"model": "softlook", "accuracy": 0.9}, {"model": "most common class", "accuracy": 0.5}]
    shown = result(accuracy=0.9, compared=rows, compared_on="validation data")
    assert "Compared on the validation data:\n    model              accuracy\n    softlook" in repr(shown)
    assert Cells(shown._repr_html_()).cells[-4:] == ["softlook", "0.9000", "most common class", "0.5000"]


def test_a_run_that_was_stopped_before_its_first_evaluation_has_no_scores() -> None:
    assert repr(result()).endswith("max_steps reached")
    assert "score" not in Cells(result()._repr_html_()).cells


@pytest.mark.parametrize(
    "shown",
    [
        SmallResult(
            Path(EVIL), Finished(1, EVIL, 1.0), {EVIL: 1.0, "compared_on": EVIL, "compared": [{"model": EVIL}]}
        ),
        ClassPredictions([ClassPrediction(EVIL, EVIL, EVIL, 1.0, {EVIL: 1.0})]),
        Progress(3, best_loss=0.5),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_all_text_is_escaped(shown: Any) -> None:
    page = shown._repr_html_()
    assert Cells(page).tags <= {"div", "table", "thead", "tbody", "tr", "td", "th", "p"}
    assert "\x1b" not in page and "\x1b" not in repr(shown)


def test_the_results_of_recipes_are_readable(tmp_path: Path) -> None:
    text = train_classification(classification_config(tmp_path))
    assert repr(text).startswith("TrainResult(") and "most common class" in repr(text) and len(repr(text)) < 1000
    assert "accuracy" in Cells(text._repr_html_()).cells and "report.html" in text._repr_html_()
    predictions = classify(load_pipeline(text.run_dir), ["fine", ("dull", "awful")])
    assert Cells(predictions._repr_html_()).cells[:5] == ["text", "pair", "label", "probability", "fine"]
    (tmp_path / "table").mkdir()
    table = train_table(tabular_config(tmp_path / "table"))
    assert repr(table).startswith("TableTrainResult(") and "accuracy" in repr(table) and len(repr(table)) < 1000


def test_long_lists_of_predictions_are_shortened() -> None:
    many = ClassPredictions([ClassPrediction("a" * 500, None, "good", 0.9, {"good": 0.9})] * 150)
    page = many._repr_html_()
    assert page.count("<tr>") == 101 and "and 50 more" in page and len(page) < 40_000
    assert repr(many[0]) == f"ClassPrediction(text='{'a' * 500}', pair=None, label='good', probability=0.9, labels=())"


def test_progress_shows_what_people_want_to_know() -> None:
    progress = Progress(step=1200, seconds=3.5, best_loss=0.25, best_step=150)
    assert repr(progress) == "Progress(step=1200, seconds=3.5, best_loss=0.25, best_step=150)"
    cells = ["steps", "1,200", "seconds", "3.5", "best validation loss", "0.25, at step 150"]
    assert Cells(progress._repr_html_()).cells == cells
    assert "best" not in Progress(step=3)._repr_html_()

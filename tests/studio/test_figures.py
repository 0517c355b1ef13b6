"""Figures of views have the numbers of the answers that the page gets."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from softlook.lens import ablate, twins
from softlook.lens.figures import Figure
from softlook.recipes.studio import open_studio
from softlook.studio import Studio, StudioTrace, view_figure
from tests.studio.small import TEXT, live_studio

OTHER = "a small test"


@pytest.fixture(scope="module")
def studio() -> Studio:
    return live_studio()


def ids(text: str) -> torch.Tensor:
    return torch.tensor([[ord(one) for one in text]])


def probabilities(studio: Studio, text: str, position: int = -1) -> list[float]:
    with torch.no_grad():
        return studio.require_live().model(ids(text))[0, position].softmax(-1).topk(10).values.tolist()


def test_a_prediction_has_the_probabilities_of_the_model(studio: Studio) -> None:
    figure = view_figure(studio, "http://127.0.0.1:80/?x=1#/view/predict?position=4")
    (shown,) = figure.numbers.values()
    assert_close(list(shown.values()), probabilities(studio, TEXT, 4), rtol=1e-4, atol=1e-6)


def test_an_intervention_has_the_probabilities_before_and_after(studio: Studio) -> None:
    address = "#/view/intervene?attention=blocks.1.attn&heads=0+2&mask=3&amount=0.5&temperature=2"
    assert set(view_figure(studio, address).numbers) == {"before", "after"}
    figure = view_figure(studio, "#/view/intervene?attention=blocks.1.attn&heads=0+2")
    live = studio.require_live()
    with ablate(live.model, "blocks.1.attn", [0, 2]):
        expected = probabilities(studio, TEXT)
    assert max(figure.numbers["before"].values()) == pytest.approx(probabilities(studio, TEXT)[0], rel=1e-4)
    assert max(figure.numbers["after"].values()) == pytest.approx(expected[0], rel=1e-4)


def test_two_texts_have_their_maps_and_the_difference(studio: Studio) -> None:
    address = f"#/view/twins?first={TEXT}&second={OTHER}&attention=blocks.1.attn&head=1"
    figure = view_figure(studio, address)
    with torch.no_grad():
        pair = twins(studio.require_live().model, ids(TEXT), ids(OTHER))
    assert_close(figure.numbers["difference"], pair.difference("blocks.1.attn")[0, 1], rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="has both"):
        view_figure(studio, "#/view/twins")


def test_a_generation_goes_back_to_the_chosen_step(studio: Studio) -> None:
    figure = view_figure(studio, "#/view/generate?prompt=a small text&temperature=0&count=3&step=1")
    (shown,) = figure.numbers.values()
    assert_close(list(shown.values()), probabilities(studio, TEXT)[:8], rtol=1e-4, atol=1e-6)


def test_beams_are_those_of_the_search() -> None:
    dates = open_studio("dates", device="cpu")
    nodes = view_figure(dates, "#/view/beams?text=3 mars 2022&beams=3").numbers["nodes"]
    assert sum(node.status == "dropped" for node in nodes) > 0
    assert max(node.step for node in view_figure(dates, "#/view/beams?step=2").numbers["nodes"]) == 2


class Rows:
    """A table whose prediction is the row that it gets."""

    def __init__(self, recording: StudioTrace) -> None:
        self.recording = recording

    def columns(self) -> dict[str, Any]:
        columns = [{"name": "age", "type": "number"}, {"name": "city", "type": "category", "values": ["Kiel"]}]
        return {"columns": columns, "row": {"age": 1.0, "city": "Kiel"}}

    def predict(self, row: dict[str, Any]) -> tuple[dict[str, Any], StudioTrace]:
        return {"prediction": str(row)}, self.recording

    def importance(self) -> dict[str, Any]:
        return {}


class Curves:
    """Two runs with curves."""

    def all(self) -> list[dict[str, Any]]:
        return [{"id": "a/one", "title": "one"}, {"id": "two", "title": "two"}]

    def curves(self, id: str) -> dict[str, Any]:
        return {"series": {"loss": [[1, 3.0], [2, 2.0]]} if id == "two" else {"loss": [[1, 4.0]], "lr": [[1, 0.1]]}}


def test_a_row_is_drawn_with_its_edits_and_runs_side_by_side(studio: Studio) -> None:
    shown: Any = {"table": Rows(studio.first()), "runs": Curves()}
    other = Studio([studio.first()], **shown)
    figure = view_figure(other, "#/view/table?cells=age%3D2%2C5%26city%3D")
    assert figure.title == "Prediction: {'age': 2.5, 'city': None}"
    assert figure.numbers["weights"].shape == (len(TEXT), len(TEXT))
    curves = view_figure(other, "#/view/runs?runs=a/one two&curve=loss").numbers
    assert curves == {"one": [(1, 4.0)], "two": [(1, 3.0), (2, 2.0)]}
    with pytest.raises(ValueError, match="there are loss, lr"):
        view_figure(other, "#/view/runs?runs=a/one&curve=accuracy")


def test_other_views_and_chapters_are_drawn_from_the_trace(studio: Studio) -> None:
    titles = {view_figure(studio, address).title for address in ("#/view/head?head=1&trace=gone", "#/chapter/dot")}
    assert titles == {"blocks.0.attn, head 1", "blocks.0.attn, head 0"}
    for address in ("#/view/table", "#/view/runs"):
        with pytest.raises(ValueError, match="the studio has no"):
            view_figure(studio, address)


def test_every_figure_is_valid_svg(studio: Studio) -> None:
    figure: Figure = view_figure(studio, "#/view/predict")
    assert figure.svg().startswith("<svg")

"""Every picture of the gallery is well formed and readable, and draws the same numbers each time."""

from functools import cache
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor

from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery import FIGURES
from tests.lens.figures.test_labels import colliding, outside

SMALLEST_FONT = 11


@cache
def figure(name: str) -> Figure:
    return FIGURES[name]()


def flat(numbers: Any) -> list[Any]:
    """All tensors and numbers, in order."""
    if isinstance(numbers, dict):
        return [one for value in numbers.values() for one in flat(value)]
    if isinstance(numbers, list | tuple):
        return [one for value in numbers for one in flat(value)]
    return [numbers]


@pytest.mark.parametrize("name", FIGURES)
def test_labels_do_not_overlap_and_stay_on_the_page(name: str) -> None:
    assert colliding(figure(name)) == [] and outside(figure(name)) == []


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_large_enough(name: str) -> None:
    small = {text.words for text in figure(name).texts if text.size < SMALLEST_FONT}
    assert not {words for words in small if words.strip("−.0123456789")}, "only numbers in squares may be smaller"
    assert min(text.size for text in figure(name).texts) >= 9


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_has_a_title_a_description_and_numbers(name: str) -> None:
    drawn = figure(name)
    root = ElementTree.fromstring(drawn.svg())
    assert root.findtext("{http://www.w3.org/2000/svg}title") == drawn.title
    assert len(drawn.description) > 60 and drawn.numbers
    assert drawn.page.width < 900


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_is_the_same_each_time_and_leaves_the_random_numbers_alone(name: str) -> None:
    expected = figure(name).svg()
    state = torch.get_rng_state()
    assert FIGURES[name]().svg() == expected
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", FIGURES)
def test_all_numbers_are_finite(name: str) -> None:
    for one in flat(figure(name).numbers):
        if isinstance(one, Tensor | float | int):
            assert torch.as_tensor(one).isfinite().all()


@pytest.mark.parametrize("name", FIGURES)
def test_an_svg_is_small_enough_for_a_page(name: str) -> None:
    assert len(figure(name).svg()) < 250_000

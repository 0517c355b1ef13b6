"""The design tokens: the roles have their colors, and text and edges are readable on light and on dark pages."""

import pytest

from softlook.lens.figures.color import contrast, on, role, tint
from softlook.lens.figures.matrix import INK
from softlook.lens.figures.tokens import COLORS

TEXT = ("ink", "soft", *(f"{name}-ink" for name in INK))
EDGES = ("line", "alert", *TEXT)


def test_roles_have_the_colors_of_the_notation() -> None:
    found = [COLORS["light"][name] for name in ("query", "key", "value", "output")]
    assert found == ["#0072b2", "#e69f00", "#009e73", "#cc79a7"]


def test_light_and_dark_have_the_same_names() -> None:
    assert list(COLORS["light"]) == list(COLORS["dark"])


@pytest.mark.parametrize("theme", COLORS)
@pytest.mark.parametrize("name", TEXT)
def test_text_has_a_contrast_of_4_5_on_the_page_and_on_boxes(theme: str, name: str) -> None:
    color = COLORS[theme][name]
    grounds = [COLORS[theme]["paper"], COLORS[theme]["surface"]]
    if name.endswith("-ink"):
        grounds.append(tint(name.removesuffix("-ink"), 0.12).at(theme))  # the box of a graph
    assert min(contrast(color, ground) for ground in grounds) >= 4.5


@pytest.mark.parametrize("theme", COLORS)
@pytest.mark.parametrize("name", EDGES)
def test_edges_have_a_contrast_of_3_on_the_page(theme: str, name: str) -> None:
    assert contrast(COLORS[theme][name], COLORS[theme]["paper"]) >= 3


@pytest.mark.parametrize("name", INK)
@pytest.mark.parametrize("theme", COLORS)
def test_numbers_are_readable_on_every_tint(name: str, theme: str) -> None:
    tints = [tint(name, step / 32) for step in range(33)]
    assert min(contrast(one.at(theme), on(one).at(theme)) for one in tints) >= 4.5


@pytest.mark.parametrize("name", INK)
def test_a_larger_magnitude_has_more_contrast_to_the_page(name: str) -> None:
    for theme, page in COLORS.items():
        steps = [contrast(tint(name, step / 32).at(theme), page["paper"]) for step in range(33)]
        assert all(one <= other + 1e-9 for one, other in zip(steps, steps[1:], strict=False))


def test_colors_of_one_name_are_equal() -> None:
    assert tint("query", 0.5) == tint("query", 0.501) and role("key") == role("key")
    assert tint("query", 0.5).name != tint("query", 0.6).name

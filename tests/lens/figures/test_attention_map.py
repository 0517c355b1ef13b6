"""Figures show the exact weights, are self-contained, and escape their labels."""

import re
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor

from softlook import ShapeError, attention_weights
from softlook.lens import attention_figure, heads_figure
from softlook.lens.figures.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE_LABELS = [
    "<script>alert(1)</script>",
    '"/><image href="x" onerror="alert(1)"/>',
    "' onload='alert(1)",
    "]]><!-- &amp; &lt;",
    "\x00\x01\x1b[31m\x7f\x85",
    "a\u202eb\u200bc\ufeff\ud800\ufffe",
    " \n\t ",
    "",
]


def squares(figure: Figure) -> list[ElementTree.Element]:
    """The squares of maps, which have a tooltip."""
    return [rect for rect in ElementTree.fromstring(figure.svg("light")).iter(f"{SVG}rect") if len(rect)]


def tooltips(figure: Figure) -> list[str]:
    return [square.findtext(f"{SVG}title", "") for square in squares(figure)]


def words(figure: Figure) -> list[str]:
    return [text.words for text in figure.texts]


def random_map(queries: int, keys: int) -> Tensor:
    return attention_weights(torch.randn(1, 1, queries, 4), torch.randn(1, 1, keys, 4))[0, 0]


def numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 5), (16, 16), (17, 2), (60, 49)])
def test_every_tooltip_shows_the_weight_of_its_square(queries: int, keys: int) -> None:
    weights = random_map(queries, keys)
    found = tooltips(attention_figure(weights, queries=numbered("q", queries), keys=numbered("k", keys)))
    assert found == [f"q{i} attends to k{j}: {weights[i, j]:.3f}" for i in range(queries) for j in range(keys)]


def test_a_small_map_shows_its_weights_and_a_large_one_only_in_tooltips() -> None:
    weights = torch.tensor([[0.25, 0.7496, 0.0004, 0.0]])
    figure = attention_figure(weights, queries=["q"], keys=list("abcd"))
    assert [text for text in words(figure) if text[0].isdigit()] == ["0.25", "0.75", "0.00", "0"]
    large = attention_figure(random_map(17, 17), queries=numbered("q", 17), keys=numbered("k", 17))
    assert not [text for text in words(large) if text.startswith("0.") and text != f"{weights.max():.3g}"][1:]


def test_larger_weights_are_darker_and_equal_weights_have_equal_colors() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.2, 0.5]])
    boxes = squares(attention_figure(weights, queries=["q"], keys=list("abcd")))
    reds = [int(box.attrib["fill"][1:3], 16) for box in boxes]
    assert reds[0] > reds[1] == reds[2] > reds[3]


@pytest.mark.parametrize("label", HOSTILE_LABELS)
def test_labels_are_escaped_and_control_characters_are_made_visible(label: str) -> None:
    svg = heads_figure({label: torch.eye(2)}, queries=[label, "q"], keys=["k", label], title=label).svg()
    plain = heads_figure({"x": torch.eye(2)}, queries=["x", "q"], keys=["k", "x"], title="x").svg()
    tags, expected = ([e.tag for e in ElementTree.fromstring(s).iter()] for s in (svg, plain))
    assert set(tags) == set(expected)
    assert all(c.isprintable() or c == "\n" for c in svg)
    names = {name for element in ElementTree.fromstring(svg).iter() for name in element.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]


def test_a_tooltip_shows_the_label_unchanged() -> None:
    figure = attention_figure(torch.eye(1), queries=["<it>"], keys=['R&D "x"'])
    assert tooltips(figure) == ['<it> attends to R&D "x": 1.000']


def test_a_figure_is_self_contained() -> None:
    svg = attention_figure(torch.eye(2), queries=["a", "b"], keys=["a", "b"], title="t").svg()
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in svg
    assert "@import" not in svg


def test_a_figure_is_accessible_to_screen_readers() -> None:
    weights = torch.tensor([[0.25, 0.75], [0.9, 0.1]])
    root = ElementTree.fromstring(
        attention_figure(weights, queries=["it", "road"], keys=["cat", "dog"], title="Two words").svg()
    )
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == root.findtext(f"{SVG}title") == "Two words"
    description = root.findtext(f"{SVG}desc", "")
    assert "it attends most to dog (0.750)." in description
    assert "road attends most to cat (0.900)." in description


def test_several_maps_share_one_color_scale() -> None:
    pale, strong = torch.full((1, 2), 0.5), torch.tensor([[1.0, 0.0]])
    together = squares(heads_figure({"pale": pale, "strong": strong}, queries=["q"], keys=["a", "b"]))
    alone = squares(attention_figure(pale, queries=["q"], keys=["a", "b"]))
    assert len(together) == 4
    fills = [square.attrib["fill"] for square in (alone[0], together[0], together[2])]
    assert fills[0] == fills[2] != fills[1]  # 0.5 is the maximum of one map, and half of the maximum of both


def test_nan_weights_are_shown() -> None:
    figure = attention_figure(torch.tensor([[torch.nan, 1.0]]), queries=["q"], keys=["a", "b"])
    assert "nan" in words(figure) and tooltips(figure)[0] == "q attends to a: nan"


def test_a_map_of_zeros_is_drawn() -> None:
    figure = attention_figure(torch.zeros(2, 2), queries=["a", "b"], keys=["a", "b"])
    assert tooltips(figure)[3] == "b attends to b: 0.000"


def test_invalid_maps_raise_an_error_with_a_solution() -> None:
    with pytest.raises(ShapeError, match=r"dimensions \(queries, keys\), got \(1, 1, 2, 2\). Select one"):
        attention_figure(torch.zeros(1, 1, 2, 2), queries=["a", "b"], keys=["a", "b"])
    with pytest.raises(ShapeError, match=r"2 queries and 3 keys .* got \(2, 2\)"):
        attention_figure(torch.zeros(2, 2), queries=["a", "b"], keys=["a", "b", "c"])
    with pytest.raises(ShapeError, match=r"at least one cell, got \(0, 0\)"):
        attention_figure(torch.zeros(0, 0), queries=[], keys=[])
    with pytest.raises(ShapeError, match="Pool the map first: look"):
        attention_figure(torch.zeros(1, 129), queries=["a"], keys=numbered("k", 129))
    with pytest.raises(ValueError, match="Use attention_weights, not attention_scores"):
        attention_figure(torch.tensor([[-1.0, torch.inf]]), queries=["a"], keys=["a", "b"])
    with pytest.raises(ValueError, match="at least one map, got none"):
        heads_figure({}, queries=["a"], keys=["a"])


def boxes(figure: Figure) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each square."""
    numbers = [[float(box.attrib[name]) for name in ("x", "y", "width", "height")] for box in squares(figure)]
    return [(x, y, x + width, y + height) for x, y, width, height in numbers]


@pytest.mark.parametrize("tokens", [3, 13, 30])
def test_maps_that_do_not_fit_side_by_side_continue_in_the_next_row(tokens: int) -> None:
    labels = numbered("token", tokens)
    maps = {f"head {number}": random_map(tokens, tokens) for number in range(12)}
    figure = heads_figure(maps, queries=labels, keys=labels)
    width, cells = figure.page.width, boxes(figure)
    assert width <= 1200 and max(right for _, _, right, _ in cells) <= width
    assert len(set(cells)) == len(cells) == 12 * tokens**2  # none is drawn over another
    firsts = [cells[number * tokens**2] for number in range(12)]
    assert len({top for _, top, _, _ in firsts}) > 1 and firsts[0][0] == min(left for left, *_ in firsts)


def test_maps_stand_below_one_another_on_a_narrow_page() -> None:
    maps = {f"head {number}": torch.eye(2) for number in range(3)}
    one, three = (
        len({y for _, y, *_ in boxes(heads_figure(maps, queries=["q0", "q1"], keys=["k0", "k1"], max_width=width))})
        for width in (5000, 100)
    )
    assert (one, three) == (2, 6)  # two rows of squares for each row of maps


def test_a_single_map_is_not_wrapped_however_wide() -> None:
    figure = attention_figure(random_map(2, 128), queries=["a", "b"], keys=numbered("k", 128))
    assert len({top for _, top, _, _ in boxes(figure)}) == 2


def test_lanes_beside_a_map_show_a_number_for_each_query() -> None:
    lanes = {"entropy": torch.tensor([0.5, 1.25]), "change": torch.tensor([-0.25, 0.0])}
    figure = attention_figure(torch.eye(2), queries=["a", "b"], keys=["a", "b"], lanes=lanes)
    assert {"entropy", "0.50", "1.25", "change", "−0.25"} <= set(words(figure))
    assert torch.equal(figure.numbers["entropy"], lanes["entropy"])

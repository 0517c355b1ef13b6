"""Plots of the report."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest

from softlook.recipes.run_dir.report.charts import confusion_figure, reliability_figure
from softlook.recipes.run_dir.report.plots import (
    MAX_POINTS,
    SMALL,
    PlotLine,
    downsample,
    line_plot,
    loss_figure,
    standalone,
    ticks,
)

SVG = "{http://www.w3.org/2000/svg}"


def test_the_plot_is_valid_xml_with_a_dot_per_evaluation() -> None:
    svg = loss_figure([(step, 5.0 - step / 30) for step in range(1, 101)], [(50, 3.0), (100, 2.5)], title="a < b & c")
    root = ET.fromstring(svg)
    assert len(root.findall(f".//{SVG}circle")) == 2
    assert "a &lt; b &amp; c" in svg
    assert "step 50, validation: 3<" in svg


def test_the_best_step_is_marked_on_the_validation_loss() -> None:
    svg = loss_figure([(1, 4.0), (200, 2.0)], [(100, 2.5), (200, 3.0)], best_step=100)
    assert "best: step 100" in svg
    marked = [circle for circle in ET.fromstring(svg).findall(f".//{SVG}circle") if circle.attrib["fill"] == "none"]
    assert len(marked) == 1


def test_points_lie_inside_the_plot() -> None:
    svg = ET.fromstring(loss_figure([(1, 1e4), (7, 0.0)], [(7, 1e-9)]))
    circle = svg.find(f".//{SVG}circle")
    assert circle is not None
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    assert 0 < float(circle.attrib["cx"]) < width
    assert 0 < float(circle.attrib["cy"]) < height


def test_nan_is_skipped_and_no_data_gives_no_plot() -> None:
    assert loss_figure([], []) == ""
    assert "nan" not in loss_figure([(1, float("nan")), (2, 2.0)], [(2, float("inf"))])


def test_long_lines_are_downsampled() -> None:
    points = [(step, 1.0) for step in range(10 * MAX_POINTS)]
    assert len(downsample(points)) == MAX_POINTS
    assert all(loss == 1.0 for _, loss in downsample(points))


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-9, 2.5, 1e12])
def test_a_constant_line_is_a_valid_plot(value: float) -> None:
    svg = line_plot("Constant", [PlotLine("", [(0, value), (5, value)])], size=SMALL)
    assert len(ET.fromstring(svg).findall(f".//{SVG}path")) > 1


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.13, 2.2), (-5, 5), (0, 900), (1e-9, 3e-9), (12345.6, 12345.9)])
@pytest.mark.parametrize("count", [3, 4, 5])
def test_ticks_are_round_equidistant_and_inside(low: float, high: float, count: int) -> None:
    found = ticks(low, high, count)
    assert 2 <= len(found) <= 2 * count
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    steps = [after - before for before, after in itertools.pairwise(found)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-3)
    assert f"{steps[0]:.0e}"[0] in "125"


def test_a_plot_of_its_own_has_colors_for_dark_pages_and_one_inside_a_page_has_none() -> None:
    svg = loss_figure([(1, 4.0), (2, 3.0)], [])
    assert "prefers-color-scheme" not in svg
    assert "prefers-color-scheme: dark" in standalone(svg) and ET.fromstring(standalone(svg)) is not None


@pytest.mark.parametrize("count", [2, 6, 15, 40])
def test_the_confusion_matrix_has_a_cell_for_each_pair_inside_the_figure(count: int) -> None:
    names = [f"a <class> with a long name {number}" for number in range(count)]
    svg = ET.fromstring(confusion_figure(names, [[row * column for column in range(count)] for row in range(count)]))
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    cells = svg.findall(f".//{SVG}rect")
    assert len(cells) == count**2
    for cell in cells:
        x, y, *size = (float(cell.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + size[0] <= width and 0 <= y <= y + size[1] <= height
    shown = [text.text or "" for text in svg.findall(f".//{SVG}text")]
    assert any(re.fullmatch(r"[\d,]+", text) for text in shown) == (count <= 15)


def test_the_reliability_diagram_has_a_bar_per_bin() -> None:
    bins = [
        {"low": 0.5, "high": 0.6, "examples": 10, "confidence": 0.55, "accuracy": 0.4},
        {"low": 0.9, "high": 1.0, "examples": 90, "confidence": 0.97, "accuracy": 1.0},
    ]
    svg = reliability_figure(bins)
    assert len(ET.fromstring(svg).findall(f".//{SVG}rect")) == 2 * len(bins)
    assert "confidence 90% to 100%, mean 97.0%: accuracy 100.0% of 90 examples" in svg

"""The loss plot."""

import xml.etree.ElementTree as ET

from softlook.recipes.run_dir.report import MAX_POINTS, downsample, loss_figure


def test_the_plot_is_valid_xml_with_a_dot_per_evaluation() -> None:
    svg = loss_figure([(step, 5.0 - step / 30) for step in range(1, 101)], [(50, 3.0), (100, 2.5)], title="a < b & c")
    root = ET.fromstring(svg)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 2
    assert "a &lt; b &amp; c" in svg
    assert "step 50, validation: 3.000" in svg


def test_points_lie_inside_the_plot() -> None:
    svg = ET.fromstring(loss_figure([(1, 1e4), (7, 0.0)], [(7, 1e-9)]))
    circle = svg.find(".//{http://www.w3.org/2000/svg}circle")
    assert circle is not None
    assert 0 < float(circle.attrib["cx"]) < 720
    assert 0 < float(circle.attrib["cy"]) < 320


def test_nan_is_skipped_and_no_data_gives_no_plot() -> None:
    assert loss_figure([], []) == ""
    assert "nan" not in loss_figure([(1, float("nan")), (2, 2.0)], [(2, float("inf"))])


def test_long_lines_are_downsampled() -> None:
    points = [(step, 1.0) for step in range(10 * MAX_POINTS)]
    assert len(downsample(points)) == MAX_POINTS
    assert all(loss == 1.0 for _, loss in downsample(points))

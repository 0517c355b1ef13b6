"""The plot of a loss says its numbers."""

import xml.etree.ElementTree as ET

from softlook.recipes.plot import MOST, loss_figure, thinned


def test_it_is_sound_xml_with_a_dot_for_every_look() -> None:
    svg = loss_figure([(step, 5.0 - step / 30) for step in range(1, 101)], [(50, 3.0), (100, 2.5)], title="a < b & c")
    root = ET.fromstring(svg)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 2
    assert "a &lt; b &amp; c" in svg
    assert "step 50, held out: 3.000" in svg


def test_everything_lies_inside() -> None:
    svg = ET.fromstring(loss_figure([(1, 1e4), (7, 0.0)], [(7, 1e-9)]))
    circle = svg.find(".//{http://www.w3.org/2000/svg}circle")
    assert circle is not None
    assert 0 < float(circle.attrib["cx"]) < 720
    assert 0 < float(circle.attrib["cy"]) < 320


def test_what_is_no_number_is_left_out_and_nothing_is_no_figure() -> None:
    assert loss_figure([], []) == ""
    assert "nan" not in loss_figure([(1, float("nan")), (2, 2.0)], [(2, float("inf"))])


def test_a_long_line_is_made_thinner_by_means() -> None:
    points = [(step, 1.0) for step in range(10 * MOST)]
    assert len(thinned(points)) == MOST
    assert all(loss == 1.0 for _, loss in thinned(points))

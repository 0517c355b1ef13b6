"""A figure is self-contained, has a text alternative, and is written as SVG, HTML or PNG."""

import builtins
import importlib.util
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.lens.figures import png
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.heatmap import encode_png, heatmap
from softlook.lens.figures.matrix import attention_map, block, matrix
from softlook.lens.figures.picture import row

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\x1b\u202e"


def make_figure(words: str = "Words") -> Figure:
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    picture = row(attention_map(weights, [words, "b"], ["a", words]), block(matrix(-weights, "value"), words, "value"))
    return Figure(words, words, picture, {"weights": weights}, subtitle=words, caption=words)


def test_an_svg_has_its_title_and_a_text_alternative() -> None:
    root = ElementTree.fromstring(make_figure("Two words").svg())
    assert root.attrib["role"] == "img" and root.attrib["aria-label"] == "Two words"
    assert root.findtext(f"{SVG}title") == root.findtext(f"{SVG}desc") == "Two words"


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_an_svg_needs_nothing_from_outside(theme: Any) -> None:
    svg = make_figure().svg(theme)
    assert svg.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert "url(" not in svg and "@import" not in svg and "<script" not in svg


def test_a_figure_follows_the_theme_of_the_reader_or_the_given_one() -> None:
    figure = make_figure()
    assert "prefers-color-scheme: dark" in figure.svg()
    light, dark = figure.svg("light"), figure.svg("dark")
    assert "prefers-color-scheme" not in light + dark and 'class="sl-' not in light + dark
    assert "#ffffff" in light and "#15171c" in dark and "#15171c" not in light


def test_a_hostile_text_is_visible_and_harmless_in_svg_and_html() -> None:
    class Tags(HTMLParser):
        found: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found.append(tag)

    figure = make_figure(HOSTILE)
    ElementTree.fromstring(figure.svg())
    parser = Tags()
    parser.feed(figure.html() + figure._repr_html_())
    assert "script" not in parser.found and "svg" in parser.found
    assert "\x1b" not in figure.html() and "\u202e" not in figure.html() and "\\u202e" in figure.html()


def test_the_suffix_is_the_format(tmp_path: Path) -> None:
    figure = make_figure()
    assert figure.save(tmp_path / "a.svg").read_text().startswith("<svg")
    assert figure.save(tmp_path / "a.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ConfigError, match=r"written as .svg, .png, .html; got a.gif"):
        figure.save(tmp_path / "a.gif")


def test_png_without_its_package_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(png, "import_module", refuse)
    with pytest.raises(ImportError, match=r"pip install 'softlook\[png\]'"):
        make_figure().png()


@pytest.mark.skipif(importlib.util.find_spec("resvg_py") is None, reason="resvg-py is not installed")
def test_a_png_has_twice_the_size_of_the_figure() -> None:
    figure = make_figure()
    data = figure.png()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width = int.from_bytes(data[16:20], "big")
    assert abs(width - 2 * figure.page.width) <= 2


def test_notebooks_show_the_figure() -> None:
    figure = make_figure()
    assert figure._repr_svg_() == figure.svg()
    assert figure._repr_html_().startswith('<img alt="Words. Words"')


def test_a_matrix_prints_its_scale_unless_its_numbers_are_printed() -> None:
    values = torch.tensor([[2.5, -1.0]])
    texts = [text.words for text in Figure("t", "d", block(matrix(values, "query"), "Q", "query"), {}).texts]
    assert "strongest color:" in texts and "2.5" in texts
    texts = [text.words for text in Figure("t", "d", matrix(values, "query", digits=1), {}).texts]
    assert "strongest color:" not in texts and {"2.5", "−1.0"} <= set(texts)


def test_negative_entries_are_hollow_and_positive_ones_filled() -> None:
    positive, negative = matrix(torch.tensor([[1.0, -1.0]]), "query").marks
    surface = matrix(torch.tensor([[0.0, 1.0]]), "query").marks[0].fill
    assert positive.stroke is None and positive.fill != surface
    assert negative.stroke is not None and negative.fill == surface


def test_a_heat_map_is_an_image_with_a_pixel_for_each_weight() -> None:
    picture = heatmap(torch.rand(5, 7), maximum=1.0, width=70, height=50)
    (image,) = picture.marks
    assert image.svg("light").count("<image") == 1 and image.svg("auto").count("<image") == 2
    data = encode_png(torch.zeros(5, 7, dtype=torch.uint8), ["#000000"])
    assert int.from_bytes(data[16:20], "big") == 7 and int.from_bytes(data[20:24], "big") == 5


def test_drawing_imports_no_plotting_library(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def check(name: str, *args: Any, **kwargs: Any) -> Any:
        assert not name.startswith(("matplotlib", "numpy", "plotly")), name
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", check)
    make_figure().svg()

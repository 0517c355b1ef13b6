"""Pages of figures are self-contained and escape their titles."""

from html.parser import HTMLParser

import torch

from softlook.lens import heads_figure
from softlook.lens.figures.page import figures_page


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_a_page_shows_its_figures_under_their_headings_in_order() -> None:
    svg = heads_figure({"head 0": torch.eye(2)}, queries=["a", "b"], keys=["a", "b"]).svg()
    page = figures_page("Text", {"layer 0": svg, "layer 1": svg}, note="rows are queries")
    assert page.index("layer 0") < page.index("<svg") < page.index("layer 1")
    assert page.count("<svg") == 2 and "rows are queries" in page


def test_titles_are_escaped() -> None:
    hostile = "<script>alert(1)</script>\x1b"
    parser = Tags()
    parser.feed(figures_page(hostile, {hostile: "<svg></svg>"}, note=hostile))
    assert "script" not in parser.tags and parser.tags.count("svg") == 1

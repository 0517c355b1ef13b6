"""Labels from outside cannot act on a page or a terminal: markup, control and right-to-left characters are visible."""

import pytest
import torch

from softlook.lens import attention_figure
from softlook.lens.figures.page import figures_page
from softlook.lens.figures.text import visible_label
from softlook.lens.terminal import terminal_maps

HOSTILE = ["<script>alert(1)</script>", "\x1b[31m\x07", "\u202eevil\u2066", "\u200b\ufeff", "[bold]x[/bold]", "\x00\r"]


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("label", HOSTILE)
@pytest.mark.parametrize("color", [True, False])
def test_labels_in_a_terminal_are_escaped(label: str, color: bool) -> None:
    text = terminal_maps({label: torch.eye(2)}, queries=[label, "b"], keys=["a", label], color=color)
    assert is_harmless(text.plain)
    assert visible_label(label)[:4] in text.plain  # rich's markup is not parsed


@pytest.mark.parametrize("label", HOSTILE)
def test_labels_in_an_svg_and_on_a_page_are_escaped(label: str) -> None:
    svg = attention_figure(torch.eye(2), queries=[label, "b"], keys=["a", label], title=label).svg()
    page = figures_page(label, {label: svg}, note=label)
    assert is_harmless(svg) and is_harmless(page)
    assert "<script" not in svg + page

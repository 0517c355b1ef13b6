"""Figures: a picture with a title, a text alternative and the numbers it was drawn from."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from softlook.base.errors import ConfigError
from softlook.lens.figures.color import Color, role
from softlook.lens.figures.matrix import scale_legend
from softlook.lens.figures.picture import Picture, column, label, paragraph, space
from softlook.lens.figures.png import rasterize
from softlook.lens.figures.shapes import Image, Rect, Text, Theme, number
from softlook.lens.figures.text import text_width, visible_text
from softlook.lens.figures.tokens import FONT, SIZES

MARGIN, WIDTH = SIZES["margin"], SIZES["width"]
FORMATS = (".svg", ".png", ".html")


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure. Notebooks show it; `save` writes it as .svg, .png or .html.

    >>> import torch
    >>> from softlook.lens.figures.matrix import matrix
    >>> figure = Figure("A matrix", "Two rows of two numbers.", matrix(torch.eye(2)), {"matrix": torch.eye(2)})
    >>> figure.svg().startswith("<svg"), figure.numbers["matrix"].sum()
    (True, tensor(2.))
    """

    title: str
    description: str
    """What one sees, in words: the text alternative."""
    picture: Picture
    """The drawing, without title and margin."""
    numbers: Mapping[str, Any]
    """Everything that was drawn, as tensors, lists and numbers."""
    subtitle: str = field(default="", kw_only=True)
    caption: str = field(default="", kw_only=True)

    @property
    def page(self) -> Picture:
        """The drawing with its title above, its caption below, and a margin."""
        inner = max(self.picture.width, WIDTH - 2 * MARGIN, text_width(self.title, SIZES["title"], bold=True))
        parts = [label(self.title, size=SIZES["title"], bold=True)]
        if self.subtitle:
            parts.append(paragraph(self.subtitle, inner))
        head = column(*parts, gap=2)
        body = [head, space(0, 18 - 6 * (not self.subtitle)), _centered(self.picture, inner)]
        if self.picture.scales:
            body += [space(0, 14), scale_legend(self.picture.scales, inner)]
        if self.caption:
            body += [space(0, 8 if self.picture.scales else 16), paragraph(self.caption, inner, size=SIZES["small"])]
        return column(*body, gap=0).pad(MARGIN, MARGIN - 6, MARGIN, MARGIN - 6)

    @property
    def texts(self) -> list[Text]:
        """Every text at its place on the page."""
        return self.page.texts

    def svg(self, theme: Theme = "auto") -> str:
        """The figure as SVG. With "auto" it follows the colors that the reader's system prefers."""
        page, name = self.page, escape(visible_text(self.title))
        paper = Rect(x=0, y=0, width=page.width, height=page.height, fill=role("paper"))
        marks = (paper, *page.marks)
        size = f'viewBox="0 0 {number(page.width)} {number(page.height)}" width="{page.width:.0f}"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{name}" {size} '
            f'height="{page.height:.0f}" font-family="{FONT}">',
            f"<title>{name}</title>",
            f"<desc>{escape(visible_text(self.description))}</desc>",
            *([_style(marks)] if theme == "auto" else []),
            *(mark.svg(theme) for mark in marks),
            "</svg>\n",
        ]
        return "\n".join(parts)

    def html(self) -> str:
        """The figure as an HTML page in one file."""
        name = escape(visible_text(self.title))
        return (
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width">\n'
            f"<title>{name}</title>\n<style>:root{{color-scheme:light dark}}body{{margin:1rem}}"
            f"svg{{max-width:100%;height:auto}}</style>\n{self.svg()}</html>\n"
        )

    def png(self, theme: Theme = "light", *, zoom: float = 2.0) -> bytes:
        """The figure as PNG. Requires the package resvg-py: `pip install 'softlook[png]'`."""
        return rasterize(self.svg("light" if theme == "auto" else theme), zoom)

    def save(self, path: str | PathLike[str], *, theme: Theme = "auto") -> Path:
        """Write the figure; the suffix of the path is its format: .svg, .png or .html."""
        path = Path(path)
        if path.suffix not in FORMATS:
            raise ConfigError(f"a figure is written as {', '.join(FORMATS)}; got {path.name}")
        if path.suffix == ".png":
            path.write_bytes(self.png(theme))
        else:
            path.write_text(self.html() if path.suffix == ".html" else self.svg(theme), encoding="utf-8")
        return path

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        """An image, so that the styles of one figure do not reach another."""
        data = b64encode(self.svg().encode()).decode()
        alternative = escape(f"{visible_text(self.title)}. {visible_text(self.description)}")
        return f'<img alt="{alternative}" src="data:image/svg+xml;base64,{data}" style="max-width:100%">'

    def __repr__(self) -> str:
        return f"Figure({self.title!r}, {self.page.width:.0f} x {self.page.height:.0f})"


def _centered(picture: Picture, width: float) -> Picture:
    margin = max(0.0, (width - picture.width) / 2)
    return picture.pad(left=margin, right=margin)


def _style(marks: tuple[object, ...]) -> str:
    """The style sheet of a dark page: a class for each color."""
    found: dict[str, Color] = {}
    for mark in marks:
        found |= {color.name: color for color in getattr(mark, "colors", ())}
    rules = (
        f".softlook .sl-f-{one.name}{{fill:{one.dark}}}.softlook .sl-s-{one.name}{{stroke:{one.dark}}}"
        for one in found.values()
    )
    images = ".softlook .sl-only-light{display:none}.softlook .sl-only-dark{display:inline!important}"
    images = images if any(isinstance(mark, Image) for mark in marks) else ""
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}{images}}}</style>"

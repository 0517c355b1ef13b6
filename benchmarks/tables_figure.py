"""Curves side by side as one SVG that stands by itself, for light pages and for dark ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from softlook.lens.color import DARK, LIGHT
from softlook.lens.figure import FONT

Point = tuple[float, float]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 400, 300, 56, 64, 48, 28
HUES = ("query", "key", "soft", "ink")
"""One for each curve, in their order."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes."""

    title: str
    curves: Mapping[str, Sequence[Point]]


def figure(panels: Sequence[Panel], *, title: str, across: str, columns: int = 2) -> str:
    """Panels in rows of so many; every curve has its hue and its dashes, the same in all of them.

    >>> svg = figure([Panel("one", {"ours": [(0, 0.9), (0.5, 0.8)]})], title="Noise", across="share")
    >>> svg.count("<svg"), "ours, 50 %: 0.800" in svg
    (1, True)
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    height = TOP + HEIGHT * -(-len(panels) // columns)
    width = WIDTH * min(columns, len(panels)) + GAP
    dark = "".join(f".softlook .sl-{name}{{fill:{colour}}}" for name, colour in DARK.items())
    dark += "".join(f".softlook .sl-{name}-line{{stroke:{colour}}}" for name, colour in DARK.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="{FONT}">',
        f"<title>{escape(title)}</title><style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
        f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        _text(LEFT, 26, title, "ink", 'font-size="15" font-weight="600"'),
        *(_legend(LEFT + 130 * place, name, place) for place, name in enumerate(names)),
    ]
    for place, panel in enumerate(panels):
        x, y = WIDTH * (place % columns), TOP + HEIGHT * (place // columns)
        parts.append(f'<g transform="translate({x} {y})">{_panel(panel, names, across)}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axes:
    """From numbers to places; a little more room than the numbers need."""

    def __init__(self, points: Sequence[Point]) -> None:
        low, high = min(y for _, y in points), max(y for _, y in points)
        room = max(high - low, 0.01) * 0.06
        self.most, self.low, self.high = max(x for x, _ in points) or 1.0, low - room, high + room

    def x(self, share: float) -> float:
        return LEFT + (WIDTH - LEFT - GAP) * share / self.most

    def y(self, score: float) -> float:
        return GAP + (HEIGHT - GAP - BOTTOM) * (self.high - score) / (self.high - self.low)


def _panel(panel: Panel, names: Sequence[str], across: str) -> str:
    axes = _Axes([point for points in panel.curves.values() for point in points])
    parts = [_text(LEFT, 16, panel.title, "ink", 'font-size="13"')]
    for part in range(5):
        score = axes.low + (axes.high - axes.low) * part / 4
        y = axes.y(score)
        parts.append(f'<path class="sl-edge-line" d="M{LEFT} {y:.1f}H{WIDTH - GAP}" stroke="{LIGHT["edge"]}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{score:.3f}", "soft", 'font-size="11" text-anchor="end"'))
    for share in sorted({share for points in panel.curves.values() for share, _ in points}):
        below = HEIGHT - BOTTOM + 16
        parts.append(_text(axes.x(share), below, f"{share:.0%}", "soft", 'font-size="11" text-anchor="middle"'))
    parts.append(_text(WIDTH - GAP, HEIGHT - 14, across, "soft", 'font-size="11" text-anchor="end"'))
    parts += [_curve(axes, name, points, names.index(name)) for name, points in panel.curves.items()]
    return "".join(parts)


def _curve(axes: _Axes, name: str, points: Sequence[Point], place: int) -> str:
    hue = HUES[place % len(HUES)]
    path = "L".join(f"{axes.x(share):.1f} {axes.y(score):.1f}" for share, score in points)
    dots = "".join(
        f'<circle class="sl-{hue}" cx="{axes.x(share):.1f}" cy="{axes.y(score):.1f}" r="3" fill="{LIGHT[hue]}">'
        f"<title>{escape(name)}, {100 * share:.0f} %: {score:.3f}</title></circle>"
        for share, score in points
    )
    return f'<path class="sl-{hue}-line" d="M{path}" {_stroke(place)}/>{dots}'


def _stroke(place: int) -> str:
    dashes = f' stroke-dasharray="{DASHES[place % len(DASHES)]}"' if place % len(DASHES) else ""
    return f'fill="none" stroke="{LIGHT[HUES[place % len(HUES)]]}" stroke-width="1.8"{dashes}'


def _legend(x: float, name: str, place: int) -> str:
    hue = HUES[place % len(HUES)]
    line = f'<path class="sl-{hue}-line" d="M{x} 46H{x + 28}" {_stroke(place)}/>'
    return line + _text(x + 36, 50, name, hue, 'font-size="12"')


def _text(x: float, y: float, words: str, colour: str, more: str) -> str:
    return f'<text class="sl-{colour}" x="{x:.1f}" y="{y:.1f}" fill="{LIGHT[colour]}" {more}>{escape(words)}</text>'

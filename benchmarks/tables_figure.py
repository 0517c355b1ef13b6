"""Line plots side by side in one self-contained SVG, for light and dark pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from softlook.lens.figures.color import DARK, LIGHT
from softlook.lens.figures.tokens import MONO as FONT

Point = tuple[float, float]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, MARGIN = 400, 300, 56, 64, 48, 28
LEGEND_WIDTH = 180
COLORS = ("query", "key", "soft", "ink")
"""By index of the curve."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes; x is a fraction, y a score."""

    title: str
    curves: Mapping[str, Sequence[Point]]


def figure(panels: Sequence[Panel], *, title: str, x_label: str, columns: int = 2) -> str:
    """A grid of panels; a curve has the same color and dashes in all of them.

    >>> svg = figure([Panel("one", {"linear": [(0, 0.9), (0.5, 0.8)]})], title="Noise", x_label="fraction")
    >>> svg.count("<svg"), "linear, 50 %: 0.800" in svg
    (1, True)
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    height = TOP + HEIGHT * -(-len(panels) // columns)
    width = WIDTH * min(columns, len(panels)) + MARGIN
    dark = "".join(f".softlook .sl-{name}{{fill:{color}}}" for name, color in DARK.items())
    dark += "".join(f".softlook .sl-{name}-line{{stroke:{color}}}" for name, color in DARK.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="{FONT}">',
        f"<title>{escape(title)}</title><style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
        f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        _text(LEFT, 26, title, "ink", 'font-size="15" font-weight="600"'),
        *(_legend(LEFT + LEGEND_WIDTH * index, name, index) for index, name in enumerate(names)),
    ]
    for index, panel in enumerate(panels):
        x, y = WIDTH * (index % columns), TOP + HEIGHT * (index // columns)
        parts.append(f'<g transform="translate({x} {y})">{_panel(panel, names, x_label)}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axes:
    """Data coordinates to pixels, with a margin above and below the curves."""

    def __init__(self, points: Sequence[Point]) -> None:
        low, high = min(y for _, y in points), max(y for _, y in points)
        margin = max(high - low, 0.01) * 0.06
        self.x_max, self.low, self.high = max(x for x, _ in points) or 1.0, low - margin, high + margin

    def x(self, fraction: float) -> float:
        return LEFT + (WIDTH - LEFT - MARGIN) * fraction / self.x_max

    def y(self, score: float) -> float:
        return MARGIN + (HEIGHT - MARGIN - BOTTOM) * (self.high - score) / (self.high - self.low)


def _panel(panel: Panel, names: Sequence[str], x_label: str) -> str:
    axes = _Axes([point for points in panel.curves.values() for point in points])
    parts = [_text(LEFT, 16, panel.title, "ink", 'font-size="13"')]
    for tick in range(5):
        score = axes.low + (axes.high - axes.low) * tick / 4
        y = axes.y(score)
        parts.append(f'<path class="sl-edge-line" d="M{LEFT} {y:.1f}H{WIDTH - MARGIN}" stroke="{LIGHT["edge"]}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{score:.3f}", "soft", 'font-size="11" text-anchor="end"'))
    for fraction in sorted({fraction for points in panel.curves.values() for fraction, _ in points}):
        below = HEIGHT - BOTTOM + 16
        parts.append(_text(axes.x(fraction), below, f"{fraction:.0%}", "soft", 'font-size="11" text-anchor="middle"'))
    parts.append(_text(WIDTH - MARGIN, HEIGHT - 14, x_label, "soft", 'font-size="11" text-anchor="end"'))
    parts += [_curve(axes, name, points, names.index(name)) for name, points in panel.curves.items()]
    return "".join(parts)


def _curve(axes: _Axes, name: str, points: Sequence[Point], index: int) -> str:
    color = COLORS[index % len(COLORS)]
    path = "L".join(f"{axes.x(fraction):.1f} {axes.y(score):.1f}" for fraction, score in points)
    dots = "".join(
        f'<circle class="sl-{color}" cx="{axes.x(fraction):.1f}" cy="{axes.y(score):.1f}" r="3" fill="{LIGHT[color]}">'
        f"<title>{escape(name)}, {100 * fraction:.0f} %: {score:.3f}</title></circle>"
        for fraction, score in points
    )
    return f'<path class="sl-{color}-line" d="M{path}" {_stroke(index)}/>{dots}'


def _stroke(index: int) -> str:
    dashes = f' stroke-dasharray="{DASHES[index % len(DASHES)]}"' if index % len(DASHES) else ""
    return f'fill="none" stroke="{LIGHT[COLORS[index % len(COLORS)]]}" stroke-width="1.8"{dashes}'


def _legend(x: float, name: str, index: int) -> str:
    color = COLORS[index % len(COLORS)]
    line = f'<path class="sl-{color}-line" d="M{x} 46H{x + 28}" {_stroke(index)}/>'
    return line + _text(x + 36, 50, name, color, 'font-size="12"')


def _text(x: float, y: float, text: str, color: str, attributes: str) -> str:
    return f'<text class="sl-{color}" x="{x:.1f}" y="{y:.1f}" fill="{LIGHT[color]}" {attributes}>{escape(text)}</text>'

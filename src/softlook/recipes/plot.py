"""How a loss went, as one SVG that stands by itself, for light pages and for dark ones."""

import math
from collections.abc import Sequence
from html import escape

from softlook.lens.colour import DARK, LIGHT
from softlook.lens.figure import FONT

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 320, 64, 44, 24, 44
MOST = 400
"""Points of a line: more than this cannot be told apart."""
Point = tuple[float, float]


def loss_figure(train: Sequence[Point], held: Sequence[Point], *, title: str = "Loss") -> str:
    """Losses by step: those of training as a line, held-out ones as dots on another.

    >>> svg = loss_figure([(1, 4.0), (100, 2.0)], [(100, 2.5)])
    >>> "step 100, held out: 2.500" in svg
    True
    """
    train, held = ([(step, loss) for step, loss in points if math.isfinite(loss)] for points in (train, held))
    every = [*train, *held]
    if not every:
        return ""
    frame = _Frame(max(step for step, _ in every), *_round(min(y for _, y in every), max(y for _, y in every)))
    dark = "".join(f".softlook .sl-{name}{{fill:{colour}}}" for name, colour in DARK.items())
    dark += "".join(f".softlook .sl-{name}-line{{stroke:{colour}}}" for name, colour in DARK.items())
    told = f"{title}: from {every[0][1]:.3f} to {train[-1][1] if train else held[-1][1]:.3f}."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}">',
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>",
        f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
        f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        _text(LEFT, 26, title, "ink", 'font-size="15" font-weight="600"'),
        _text(WIDTH - RIGHT, 26, "training", "query", 'font-size="12" text-anchor="end"'),
        _text(WIDTH - RIGHT - 80, 26, "held out", "key", 'font-size="12" text-anchor="end"'),
        *_axes(frame),
        _line(frame, thinned(train), "query"),
        _line(frame, held, "key"),
        *(_dot(frame, step, loss) for step, loss in held),
        "</svg>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


class _Frame:
    """From numbers to places."""

    def __init__(self, steps: float, low: float, high: float) -> None:
        self.steps, self.low, self.high = max(steps, 1.0), low, high

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.steps

    def y(self, loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - loss) / (self.high - self.low)


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most so many points: each the mean of those it stands for.

    >>> thinned([(1, 2.0), (2, 4.0)])
    [(1, 2.0), (2, 4.0)]
    """
    size = -(-len(points) // MOST)
    if size <= 1:
        return list(points)
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


def _round(low: float, high: float) -> tuple[float, float]:
    """A little more than the numbers need."""
    room = max(high - low, 0.1) * 0.05
    return max(low - room, 0.0), high + room


def _axes(frame: _Frame) -> list[str]:
    lines = []
    for part in range(5):
        loss = frame.low + (frame.high - frame.low) * part / 4
        y = frame.y(loss)
        lines.append(f'<path class="sl-edge-line" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{LIGHT["edge"]}"/>')
        lines.append(_text(LEFT - 8, y + 4, f"{loss:.3g}", "soft", 'font-size="12" text-anchor="end"'))
        step = frame.steps * part / 4
        lines.append(_text(frame.x(step), HEIGHT - 20, f"{step:,.0f}", "soft", 'font-size="12" text-anchor="middle"'))
    return lines


def _line(frame: _Frame, points: Sequence[Point], colour: str) -> str:
    if len(points) < 2:
        return ""
    path = "L".join(f"{frame.x(step):.1f} {frame.y(loss):.1f}" for step, loss in points)
    return f'<path class="sl-{colour}-line" d="M{path}" fill="none" stroke="{LIGHT[colour]}" stroke-width="1.5"/>'


def _dot(frame: _Frame, step: float, loss: float) -> str:
    told = f"<title>step {step:,.0f}, held out: {loss:.3f}</title>"
    place = f'cx="{frame.x(step):.1f}" cy="{frame.y(loss):.1f}"'
    return f'<circle class="sl-key" {place} r="3" fill="{LIGHT["key"]}">{told}</circle>'


def _text(x: float, y: float, words: str, colour: str, more: str) -> str:
    return f'<text class="sl-{colour}" x="{x:.1f}" y="{y:.1f}" fill="{LIGHT[colour]}" {more}>{escape(words)}</text>'

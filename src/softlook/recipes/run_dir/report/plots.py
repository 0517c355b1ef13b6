"""PlotLine plots over steps as SVG, readable on light and dark pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from softlook.lens.figures.color import DARK, LIGHT
from softlook.recipes.run_dir.report.formatting import format_count

Point = tuple[float, float]
WIDTH, HEIGHT = 520, 280
SMALL = (360, 190)
"""Width and height of a secondary plot."""
LEFT, TOP, RIGHT, BOTTOM = 48, 52, 16, 30
MAX_POINTS = 400
"""Points of a line in the plot."""
MAX_DOTS = 60
"""Points up to which each is marked with a dot."""
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,sans-serif"


@dataclass(frozen=True)
class PlotLine:
    """A line of a plot."""

    name: str
    points: Sequence[Point]
    color: str = "query"
    """A name of `softlook.lens.figures.color.LIGHT`."""
    has_dots: bool = False

    @property
    def finite(self) -> list[Point]:
        """The points without NaN and infinity."""
        return [(step, value) for step, value in self.points if math.isfinite(value)]


def loss_figure(
    train: Sequence[Point], valid: Sequence[Point], *, title: str = "Loss", best_step: float | None = None
) -> str:
    """SVG of the training loss and the validation loss by step.

    >>> svg = loss_figure([(1, 4.0), (100, 2.0)], [(100, 2.5)])
    >>> "step 100, validation: 2.5" in svg
    True
    """
    lines = [PlotLine("training", train), PlotLine("validation", valid, "key", has_dots=True)]
    return line_plot(title, lines, best_step=best_step)


def line_plot(
    title: str,
    lines: Sequence[PlotLine],
    *,
    best_step: float | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> str:
    """SVG of values by step; `best_step` is marked on the last line. Empty without points."""
    lines = [line for line in lines if line.finite]
    points = [point for line in lines for point in line.finite]
    if not points:
        return ""
    values = [value for _, value in points]
    frame = PlotFrame(*size, max(step for step, _ in points), *limits(min(values), max(values)))
    summary = ", ".join(f"{line.name} from {line.finite[0][1]:.4g} to {line.finite[-1][1]:.4g}" for line in lines)
    parts = [
        svg_start(title, f"{title}: {summary}.", *size),
        text(16, 24, title, "ink", 'font-size="14" font-weight="600"'),
        _legend(lines, size[0]),
        *_axes(frame),
        *(_best(frame, best_step) if best_step is not None else []),
        *(part for line in lines for part in _draw(frame, line, best_step if line is lines[-1] else None)),
        "</svg>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def standalone(svg: str) -> str:
    """A figure as a file of its own, with its background and its colors for dark pages."""
    start = svg.index("<title>")
    paper = f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>'
    return f"{svg[:start]}<style>{dark_style()}</style>\n{paper}\n{svg[start:]}"


def dark_style() -> str:
    """The style sheet of figures on dark pages."""
    rules = [
        f".softlook .sl-{name}{{fill:{color}}}.softlook .sl-{name}-line{{stroke:{color}}}"
        for name, color in DARK.items()
    ]
    return f"@media screen and (prefers-color-scheme: dark){{{''.join(rules)}}}"


def svg_start(title: str, description: str, width: float, height: float) -> str:
    """The beginning of a figure that scales to the width of its box."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" font-family="{FONT}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    )


def text(x: float, y: float, content: str, color: str, attributes: str = "") -> str:
    """A text in a figure."""
    fill = f'class="sl-{color}" fill="{LIGHT[color]}"'
    return f'<text {fill} x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(content)}</text>'


@dataclass(frozen=True)
class PlotFrame:
    """Coordinates of a plot."""

    width: float
    height: float
    steps: float
    low: float
    high: float

    def x(self, step: float) -> float:
        return LEFT + (self.width - LEFT - RIGHT) * step / max(self.steps, 1.0)

    def y(self, value: float) -> float:
        return TOP + (self.height - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)


def limits(low: float, high: float) -> tuple[float, float]:
    """The limits of the y axis, with a margin; values that are not negative have no negative limit."""
    margin = 0.06 * (high - low) or abs(high) / 10 or 0.1
    return (max(low - margin, 0.0) if low >= 0 else low - margin), high + margin


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers between two limits.

    >>> ticks(0.13, 2.2, 5), ticks(0, 900, 4)
    ([0.5, 1.0, 1.5, 2.0], [0.0, 200.0, 400.0, 600.0, 800.0])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda size: abs((high - low) / size - count))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def format_number(value: float) -> str:
    """A number of a plot.

    >>> format_number(0.12345), format_number(3279.6), format_number(120_000), format_number(0.00002)
    ('0.1235', '3,280', '120K', '2e-05')
    """
    return format_count(value) if abs(value) >= 10_000 else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def tick_labels(values: Sequence[float]) -> list[str]:
    """The labels of ticks, with as many digits as they have.

    >>> tick_labels([0.5, 1.0]), tick_labels([0.26885, 0.2689, 0.26895])
    (['0.5', '1'], ['0.26885', '0.2689', '0.26895'])
    """
    is_short = all(abs(value) >= 1000 or float(f"{value:.4g}") == value for value in values)
    return [format_number(value) if is_short else f"{value:.7g}" for value in values]


def downsample(points: Sequence[Point]) -> list[Point]:
    """At most `MAX_POINTS` points, each the mean of a group.

    >>> downsample([(1, 2.0), (2, 4.0)])
    [(1, 2.0), (2, 4.0)]
    """
    size = -(-len(points) // MAX_POINTS)
    if size <= 1:
        return list(points)
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _legend(lines: Sequence[PlotLine], width: float) -> str:
    """The name and the last value of each line, right-aligned."""
    parts = []
    for line in lines:
        dot = f'<tspan class="sl-{line.color}" fill="{LIGHT[line.color]}">●</tspan> ' if len(lines) > 1 else ""
        parts.append(f"{dot}{escape(f'{line.name} {format_number(line.finite[-1][1])}'.strip())}")
    fill = f'class="sl-soft" fill="{LIGHT["soft"]}"'
    return f'<text {fill} x="{width - 16}" y="24" font-size="12" text-anchor="end">{"&#160;&#160; ".join(parts)}</text>'


def _axes(frame: PlotFrame) -> list[str]:
    parts, small = [], 'font-size="11" text-anchor="{}"'
    values = ticks(frame.low, frame.high, 5 if frame.height > 200 else 4)
    for value, label in zip(values, tick_labels(values), strict=True):
        y = frame.y(value)
        path = f"M{LEFT} {y:.1f}H{frame.width - RIGHT}"
        parts.append(f'<path class="sl-edge-line" d="{path}" stroke="{LIGHT["edge"]}"/>')
        parts.append(text(LEFT - 8, y + 4, label, "soft", small.format("end")))
    for step in ticks(0, max(frame.steps, 1.0), 5 if frame.width > 400 else 4):
        if step.is_integer():
            label = format_number(step)
            parts.append(text(frame.x(step), frame.height - 10, label, "soft", small.format("middle")))
    return parts


def _best(frame: PlotFrame, step: float) -> list[str]:
    """A vertical line at the best step."""
    x = frame.x(step)
    path = f'd="M{x:.1f} {TOP - 4}V{frame.height - BOTTOM}" stroke-dasharray="3 4"'
    anchor = "end" if x > frame.width - 60 else "start" if x < LEFT + 40 else "middle"
    label = text(x, TOP - 9, f"best: step {step:,.0f}", "soft", f'font-size="11" text-anchor="{anchor}"')
    return [f'<path class="sl-soft-line" {path} stroke="{LIGHT["soft"]}"/>', label]


def _draw(frame: PlotFrame, line: PlotLine, best_step: float | None) -> list[str]:
    points = line.finite
    parts = [_path(frame, downsample(points), line.color)]
    has_dots = len(points) == 1 or (line.has_dots and len(points) <= MAX_DOTS)
    for step, value in points:
        is_best = step == best_step
        if has_dots or is_best:
            parts.append(_dot(frame, step, value, line, is_best=is_best))
    return parts


def _path(frame: PlotFrame, points: Sequence[Point], color: str) -> str:
    if len(points) < 2:
        return ""
    path = "L".join(f"{frame.x(step):.1f} {frame.y(value):.1f}" for step, value in points)
    stroke = f'stroke="{LIGHT[color]}" stroke-width="2" stroke-linejoin="round" stroke-linecap="round"'
    return f'<path class="sl-{color}-line" d="M{path}" fill="none" {stroke}/>'


def _dot(frame: PlotFrame, step: float, value: float, line: PlotLine, *, is_best: bool) -> str:
    label = f"<title>step {step:,.0f}, {escape(line.name)}: {value:.4g}</title>"
    center = f'cx="{frame.x(step):.1f}" cy="{frame.y(value):.1f}"'
    fill = f'class="sl-{line.color}" fill="{LIGHT[line.color]}"'
    dot = f'<circle {fill} {center} r="{4 if is_best else 3}">{label}</circle>'
    if not is_best:
        return dot
    ring = f'class="sl-{line.color}-line" fill="none" stroke="{LIGHT[line.color]}" stroke-width="1.5"'
    return f'{dot}<circle {ring} {center} r="8"/>'

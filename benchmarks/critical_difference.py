"""Critical difference diagram (Demsar 2006) as a self-contained SVG, for light and dark pages."""

from collections.abc import Mapping
from html import escape

from softlook.lens.figures.color import DARK, LIGHT
from softlook.lens.figures.tokens import MONO as FONT

WIDTH, SIDE, AXIS, ROW = 760, 190, 84, 24


def diagram(ranks: Mapping[str, float], difference: float, *, title: str) -> str:
    """Models on an axis of mean ranks, the best on the left; a bar joins models that do not differ significantly.

    >>> svg = diagram({"a": 1.2, "b": 1.8, "c": 3.0}, 1.0, title="Mean ranks over 9 tables")
    >>> svg.count("<svg"), svg.count('class="sl-key-line"')  # one bar, of a and b
    (1, 1)
    """
    ordered = sorted(ranks, key=ranks.__getitem__)
    bars = groups([ranks[name] for name in ordered], difference)
    first_label = AXIS + 20 + 10 * len(bars)
    height = first_label + ROW * (-(-len(ordered) // 2)) + 16
    dark = "".join(f".softlook .sl-{name}{{fill:{color}}}" for name, color in DARK.items())
    dark += "".join(f".softlook .sl-{name}-line{{stroke:{color}}}" for name, color in DARK.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="{FONT}">',
        f"<title>{escape(title)}</title><style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
        f'<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        _text(16, 26, title, 'font-size="15" font-weight="600"'),
        _text(16, 46, f"bars join models that differ by less than {difference:.2f}", 'font-size="11"', "soft"),
        _line("ink", f"M{SIDE} {AXIS}H{WIDTH - SIDE}"),
    ]
    for tick in range(1, len(ordered) + 1):
        x = _x(tick, len(ordered))
        parts += [
            _line("ink", f"M{x:.1f} {AXIS}v-6"),
            _text(x, AXIS - 10, str(tick), 'font-size="11" text-anchor="middle"'),
        ]
    for number, (start, end) in enumerate(bars):
        y = AXIS + 12 + 10 * number
        left, right = (_x(ranks[ordered[index]], len(ordered)) for index in (start, end))
        parts.append(_line("key", f"M{left - 4:.1f} {y}H{right + 4:.1f}", 4))
    for position, name in enumerate(ordered):
        parts.append(_label(name, ranks[name], position, len(ordered), first_label))
    return "\n".join([*parts, "</svg>"]) + "\n"


def groups(ranks: list[float], difference: float) -> list[tuple[int, int]]:
    """First and last index of each maximal group of sorted ranks within the difference.

    >>> groups([1.0, 1.5, 2.4, 5.0], 1.0)
    [(0, 1), (1, 2)]
    """
    ends = [max(index for index, rank in enumerate(ranks) if rank - first <= difference) for first in ranks]
    return [(start, end) for start, end in enumerate(ends) if end > start and (not start or end > ends[start - 1])]


def _x(rank: float, models: int) -> float:
    return SIDE + (WIDTH - 2 * SIDE) * (rank - 1) / max(1, models - 1)


def _label(name: str, rank: float, position: int, models: int, top: int) -> str:
    """The better half is named on the left, the others on the right."""
    is_left = position < -(-models // 2)
    y = top + ROW * (position if is_left else models - 1 - position) + 8
    x, side, anchor = _x(rank, models), SIDE - 12 if is_left else WIDTH - SIDE + 12, "end" if is_left else "start"
    text = _text(side, y + 4, f"{name} {rank:.2f}", f'font-size="12" text-anchor="{anchor}"')
    return _line("soft", f"M{x:.1f} {AXIS}V{y}H{side + (4 if is_left else -4)}") + text


def _line(color: str, path: str, width: float = 1.2) -> str:
    return f'<path class="sl-{color}-line" d="{path}" fill="none" stroke="{LIGHT[color]}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, attributes: str, color: str = "ink") -> str:
    return f'<text class="sl-{color}" x="{x:.1f}" y="{y:.1f}" fill="{LIGHT[color]}" {attributes}>{escape(text)}</text>'

"""Colors of figures, for light and dark pages."""

import math
from dataclasses import dataclass

from softlook.lens.figures.tokens import COLORS, TINTS

STEPS = 64
"""Steps of the colormap between 0 and the largest weight."""
Lab = tuple[float, float, float]
"""Lightness and two axes of color in OKLab, in which equal steps look equal."""


def _page_colors(theme: dict[str, str]) -> dict[str, str]:
    names = ("paper", "ink", "soft", "edge")
    return {name: theme[name] for name in names} | {name: theme[f"{name}-ink"] for name in ("query", "key")}


LIGHT, DARK = _page_colors(COLORS["light"]), _page_colors(COLORS["dark"])
"""Colors of a page. Queries are blue and keys are orange, readable on their background."""
NAN_COLOR = COLORS["light"]["alert"]
"""The color of a NaN weight."""


@dataclass(frozen=True)
class Color:
    """A color on light and on dark pages. Its name is its CSS class: equal names are equal colors."""

    name: str
    light: str
    dark: str

    def at(self, theme: str) -> str:
        return self.dark if theme == "dark" else self.light


def role(name: str) -> Color:
    """A color of tokens.json, such as "ink", "query" or "query-ink".

    >>> role("query").light
    '#0072b2'
    """
    return Color(name, COLORS["light"][name], COLORS["dark"][name])


def tint(name: str, fraction: float) -> Color:
    """The color of a magnitude, from 0 (nothing) to 1 (the largest), in the hue of a role.

    >>> tint("query", 0).light, tint("query", 1).light
    ('#f3f5f8', '#006ca9')
    """
    step = round(TINTS * min(max(fraction, 0.0), 1.0))
    if name == "weight":
        scaled = step * STEPS // TINTS
        return Color(f"weight-{step}", colormap(scaled), colormap(scaled, dark=True))
    light, dark = (_ramp(COLORS[theme], name, step / TINTS) for theme in ("light", "dark"))
    return Color(f"{name}-{step}", light, dark)


def on(color: Color) -> Color:
    """The color of text on a color: black or white.

    >>> on(role("query")).light
    '#ffffff'
    """
    return Color(f"on-{color.name}", text_color(color.light), text_color(color.dark))


def colormap(step: int, *, dark: bool = False) -> str:
    """Return the color of a step, from 0 (weight 0) to STEPS (the largest weight).

    >>> colormap(0), colormap(STEPS)
    ('#f3f4fc', '#2c1f81')
    """
    fraction = step / STEPS
    if dark:
        return _oklch(0.26 + 0.60 * fraction, 0.02 + 0.28 * fraction * (1 - fraction) + 0.04 * fraction)
    return _oklch(0.97 - 0.64 * fraction, 0.01 + 0.20 * fraction - 0.055 * fraction**2)


def text_color(color: str) -> str:
    """Return black or white, whichever has more contrast on this color.

    >>> text_color("#ffffff"), text_color("#30287d")
    ('#000000', '#ffffff')
    """
    return "#000000" if contrast(color, "#000000") > contrast(color, "#ffffff") else "#ffffff"


def contrast(one: str, other: str) -> float:
    """Return the WCAG contrast ratio of two colors: from 1 to 21; 4.5 is enough for text.

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    dark, light = sorted(_luminance(color) for color in (one, other))
    return (light + 0.05) / (dark + 0.05)


def style() -> str:
    """Return the style sheet for dark pages."""
    names = [f".softlook .sl-{name}{{fill:{color}}}" for name, color in DARK.items()]
    steps = [
        f".softlook .sl-zero{{fill:{DARK['paper']};stroke:{DARK['edge']}}}.softlook .sl-on-zero{{fill:{DARK['soft']}}}"
    ]
    for step in range(STEPS + 1):
        fill = colormap(step, dark=True)
        steps.append(f".softlook .sl-{step}{{fill:{fill}}}.softlook .sl-on-{step}{{fill:{text_color(fill)}}}")
    return "@media (prefers-color-scheme: dark){" + "".join(names + steps) + "}"


def _ramp(theme: dict[str, str], name: str, fraction: float) -> str:
    """From the surface over the color of a role, halfway to that of its text."""
    surface, middle, ink = (
        _lab(color) for color in (theme["surface"], theme[name], theme.get(f"{name}-ink", theme[name]))
    )
    turn = 0.75
    if fraction <= turn:
        return _hex(_mix(surface, middle, fraction / turn))
    return _hex(_mix(middle, ink, 0.5 * (fraction - turn) / (1 - turn)))


def _mix(one: Lab, other: Lab, share: float) -> Lab:
    lightness, a, b = (x + share * (y - x) for x, y in zip(one, other, strict=True))
    return lightness, a, b


def _oklch(lightness: float, chroma: float, hue: float = math.radians(280)) -> str:
    """An OKLCH color, whose equal steps of lightness look equal, as #rrggbb."""
    return _hex((lightness, chroma * math.cos(hue), chroma * math.sin(hue)))


def _hex(lab: Lab) -> str:
    """An OKLab color as #rrggbb."""
    lightness, a, b = lab
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    return "#" + "".join(f"{round(255 * _encoded(part)):02x}" for part in (red, green, blue))


def _lab(color: str) -> Lab:
    """#rrggbb in OKLab."""
    red, green, blue = _linear(color)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _encoded(part: float) -> float:
    part = min(max(part, 0.0), 1.0)
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055


def _linear(color: str) -> Lab:
    parts = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return red, green, blue


def _luminance(color: str) -> float:
    red, green, blue = _linear(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

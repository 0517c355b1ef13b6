"""Colors of figures, for light and dark pages."""

import math

STEPS = 64
"""Steps of the colormap between 0 and the largest weight."""

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "soft": "#59636e",
    "edge": "#dde3ea",
    "query": "#0066a1",
    "key": "#8a5a00",
}
DARK = {
    "paper": "#15171c",
    "ink": "#e8eaed",
    "soft": "#a3abb5",
    "edge": "#2d323b",
    "query": "#6cb8ec",
    "key": "#e8a93a",
}
"""Queries are blue and keys are orange, readable on their background."""
NAN_COLOR = "#b3261e"
"""The color of a NaN weight."""


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


def _oklch(lightness: float, chroma: float, hue: float = math.radians(280)) -> str:
    """An OKLCH color, whose equal steps of lightness look equal, as #rrggbb."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    return "#" + "".join(f"{round(255 * _encoded(part)):02x}" for part in (red, green, blue))


def _encoded(part: float) -> float:
    part = min(max(part, 0.0), 1.0)
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055


def _luminance(color: str) -> float:
    parts = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

"""Colours of figures: one hue in even steps of lightness, for light pages and for dark ones."""

import math

STEPS = 64
"""How many steps lie between nothing and the largest weight."""

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
"""Queries are blue and keys are orange, on paper of their own; each of them can be read on it."""
WRONG = "#b3261e"
"""Of a weight that is not a number."""


def ramp(step: int, *, dark: bool = False) -> str:
    """The colour of a step, from 0 for nothing to STEPS for the largest weight.

    >>> ramp(0), ramp(STEPS)
    ('#f3f4fc', '#2c1f81')
    """
    share = step / STEPS
    if dark:
        return _oklch(0.26 + 0.60 * share, 0.02 + 0.28 * share * (1 - share) + 0.04 * share)
    return _oklch(0.97 - 0.64 * share, 0.01 + 0.20 * share - 0.055 * share**2)


def readable(colour: str) -> str:
    """Black or white, whichever stands out more on this colour.

    >>> readable("#ffffff"), readable("#30287d")
    ('#000000', '#ffffff')
    """
    return "#000000" if contrast(colour, "#000000") > contrast(colour, "#ffffff") else "#ffffff"


def contrast(one: str, other: str) -> float:
    """How far two colours stand apart, as WCAG counts it: 1 is not at all, 4.5 enough for text, 21 the most.

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    dark, light = sorted(_luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def style() -> str:
    """The style sheet that turns a figure dark where the reader's page is dark."""
    names = [f".softlook .sl-{name}{{fill:{colour}}}" for name, colour in DARK.items()]
    steps = [
        f".softlook .sl-zero{{fill:{DARK['paper']};stroke:{DARK['edge']}}}.softlook .sl-on-zero{{fill:{DARK['soft']}}}"
    ]
    for step in range(STEPS + 1):
        fill = ramp(step, dark=True)
        steps.append(f".softlook .sl-{step}{{fill:{fill}}}.softlook .sl-on-{step}{{fill:{readable(fill)}}}")
    return "@media (prefers-color-scheme: dark){" + "".join(names + steps) + "}"


def _oklch(lightness: float, chroma: float, hue: float = math.radians(280)) -> str:
    """A colour of the OKLCH space, where equal steps of lightness look equal, as #rrggbb."""
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


def _luminance(colour: str) -> float:
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

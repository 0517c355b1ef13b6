"""The colormap is perceptually uniform, and text on it is readable."""

import pytest

from softlook.lens.figures.color import DARK, LIGHT, NAN_COLOR, STEPS, colormap, contrast, text_color

TEXT = ("ink", "soft", "query", "key")


def lightness(color: str) -> float:
    """The L of OKLab, from its published definition."""
    parts = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    long = 0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue
    medium = 0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue
    short = 0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue
    return 0.2104542553 * long ** (1 / 3) + 0.7936177850 * medium ** (1 / 3) - 0.0040720468 * short ** (1 / 3)


@pytest.mark.parametrize("dark", [False, True])
def test_equal_steps_of_weight_are_equal_steps_of_lightness(dark: bool) -> None:
    first, last = lightness(colormap(0, dark=dark)), lightness(colormap(STEPS, dark=dark))
    for step in range(STEPS + 1):
        expected = first + (last - first) * step / STEPS
        assert abs(lightness(colormap(step, dark=dark)) - expected) < 0.005


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_are_readable_on_every_color_of_the_map(dark: bool) -> None:
    for color in (NAN_COLOR, *(colormap(step, dark=dark) for step in range(STEPS + 1))):
        assert contrast(color, text_color(color)) >= 4.5


@pytest.mark.parametrize("page", [LIGHT, DARK])
def test_text_is_readable_on_the_page(page: dict[str, str]) -> None:
    assert all(contrast(page[name], page["paper"]) >= 4.5 for name in TEXT)

"""Text in figures: invisible characters made visible, widths without a font, line breaks."""

import unicodedata

WIDTHS = {
    0.28: "'ijl",
    0.31: "IJ ,.",
    0.35: "/:;\\|f-",
    0.40: "()[]t!",
    0.45: 'r"',
    0.52: "*_`sz?",
    0.59: "cLFkvxy",
    0.64: "PTYaoeESbdghnpqu$0123456789{}",
    0.69: "KAVBRXZC",
    0.78: "UHNDG&",
    0.85: "OQw#+<=>^~M",
    1.00: "%mW@",
}
"""Characters by their width in DejaVu Sans, one of the widest fonts, as a fraction of the font size."""
WIDTH = {character: width for width, characters in WIDTHS.items() for character in characters}
OTHER, MONO_WIDTH, BOLD = 0.66, 0.61, 1.12
"""Width of other narrow characters, of monospaced ones, and the factor of bold text."""


def visible_label(label: str) -> str:
    """Make control characters, outer spaces and invisible marks of a label visible.

    >>> print(visible_label(" to\\n"), visible_label("a\\u202eb"))
    ␣to\\n a\\u202eb
    """
    start, stop = len(label) - len(label.lstrip(" ")), len(label.rstrip(" "))
    seen = [c if start <= n < stop or c != " " else "␣" for n, c in enumerate(label)]
    return "".join(map(_visible, seen))


def visible_text(text: str) -> str:
    """Make control characters and invisible marks of a text visible.

    >>> print(visible_text("a b\\u200b"))
    a b\\u200b
    """
    return "".join(map(_visible, text))


def shorten_label(label: str, cells: int = 16) -> str:
    """Truncate a label to as many narrow characters; wide ones count twice.

    >>> shorten_label("incomprehensibilities"), shorten_label("注意力機制的視覺化圖")
    ('incomprehensibi…', '注意力機制的視…')
    """
    if _cells(label) <= cells:
        return label
    shown = ""
    for character in label:
        if _cells(shown + character) >= cells:
            break
        shown += character
    return shown + "…"


def text_width(text: str, size: float, *, mono: bool = False, bold: bool = False) -> float:
    """The width of a text in pixels: an upper bound for common fonts.

    >>> text_width("注意", 10), text_width("it", 10, mono=True)
    (20.0, 12.2)
    """
    return size * (BOLD if bold and not mono else 1) * sum(_character_width(c, mono) for c in text)


def wrap(text: str, width: float, size: float) -> list[str]:
    """The lines of a text that are at most `width` pixels wide, unless a single word is wider.

    >>> wrap("Rows are queries, columns are keys.", 120, 12)
    ['Rows are queries,', 'columns are keys.']
    """
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _visible(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def _cells(label: str) -> int:
    return sum(2 if _is_wide(c) else 0 if _is_combining(c) else 1 for c in label)


def _character_width(character: str, mono: bool) -> float:
    if _is_combining(character):
        return 0.0
    if _is_wide(character):
        return 1.0 if ord(character) < 0x1F000 else 1.4  # emoji are wider than the font size
    return MONO_WIDTH if mono else WIDTH.get(character, OTHER)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _is_combining(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me")

"""Text that came from outside, shown so that nothing in it can act on a terminal."""

from unicodedata import category, east_asian_width

WIDTH = 72


def escaped(text: str) -> str:
    """The text with every character that is not seen, or that moves others about, written out.

    >>> print(escaped("red \\x1b[31m, backwards \\u202e, half \\ud800, and a byte \\udcff"))
    red \\x1b[31m, backwards \\u202e, half \\ud800, and a byte \\xff
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def pointed(line: str, column: int | None = None) -> str:
    """The part of a line around a column, counted from 1, and a caret below it.

    >>> print(pointed('4,"fine', column=3))
    4,"fine
      ^
    """
    if column is None:
        return _cut(line, 0)
    start = max(0, min(column - 1 - WIDTH // 2, len(line) - WIDTH))
    before = "..." * (start > 0) + escaped(line[start : column - 1])
    return f"{_cut(line, start)}\n{' ' * sum(map(_cells, before))}^"


def _cut(line: str, start: int) -> str:
    return "..." * (start > 0) + escaped(line[start : start + WIDTH]) + "..." * (start + WIDTH < len(line))


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python keeps a byte that it could not read
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character if character.isprintable() else ascii(character)[1:-1]


def _cells(character: str) -> int:
    """How many places of a terminal a character takes."""
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1

"""Characters that are seldom meant: traces of damage, of another program, or of a web page."""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple


class Oddity(NamedTuple):
    """A kind of character, or of characters together, that text should not hold."""

    name: str
    pattern: re.Pattern[str]
    help: str


ODDITIES = (
    Oddity("control characters", re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"), "remove them"),
    Oddity("carriage returns inside", re.compile(r"\r"), "write line ends as one line feed"),
    Oddity("lost characters (U+FFFD)", re.compile("\ufffd"), "convert the file anew from where it still was whole"),
    Oddity(
        "unseen marks",  # not those that join and part letters in Persian, in Hindi and in emoji
        re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"),
        "remove them",
    ),
    Oddity("private characters", re.compile("[\ue000-\uf8ff]"), "they mean something in one font only: replace them"),
    Oddity(
        "UTF-8 that was read as Latin-1",
        re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac[\u0090-\u2122]"),
        "it was converted twice: convert it back, or try the package ftfy",
    ),
    Oddity(
        "HTML",
        re.compile(r"&(?:amp|lt|gt|quot|nbsp|#\d+);|</?(?:br|p|div|span|a|b|i|em)\b[^<>]*>", re.I),
        "take it out",
    ),
    Oddity("loose accents", re.compile("\\w[\u0300-\u036f]"), "write each with its letter: Unicode's form NFC"),
    Oddity(
        "a missing value in words", re.compile(r"\A\s*(?:nan|null|none|n/a|#n/a)\s*\Z", re.I), "leave such rows out"
    ),
    Oddity(
        "CSV quotes in a TSV", re.compile(r'\A"(?:[^"]|"")*""(?:[^"]|"")*"\Z'), "name the file .csv: tabs are found"
    ),
)
TRIGGER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u00c2\u00c3\u00e2&<\u0300-\u036f\u200b-\u2069\ue000-\uf8ff\ufeff\ufffd]"
)
"""A character that one of the patterns needs, other than those that look at a whole text: quick to look for."""
START = tuple('"nN#')


def oddities(text: str) -> list[str]:
    """The kinds of odd characters in a text.

    >>> oddities("Grüße"), oddities("GrÃ¼Ã\\x9fe<br>")
    ([], ['control characters', 'UTF-8 that was read as Latin-1', 'HTML'])
    """
    if not TRIGGER.search(text) and not text.lstrip().startswith(START):
        return []
    return [kind.name for kind in ODDITIES if kind.pattern.search(text)]


def script_of(text: str) -> str:
    """The script of a text's first letter.

    >>> script_of("(Привет)"), script_of("42")
    ('Cyrillic', 'none')
    """
    return next((_script(character) for character in text if character.isalpha()), "none")


@lru_cache(maxsize=1 << 12)
def _script(letter: str) -> str:
    first = unicodedata.name(letter, "unknown").split()[0]
    return {"CJK": "Han"}.get(first, first.capitalize())

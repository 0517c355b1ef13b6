"""Text quality issues: control characters, mojibake, HTML."""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple


class QualityIssue(NamedTuple):
    """Characters that text should not have."""

    name: str
    pattern: re.Pattern[str]
    help: str


QUALITY_ISSUES = (
    QualityIssue("control characters", re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"), "remove them"),
    QualityIssue("carriage returns inside", re.compile(r"\r"), "write line ends as one line feed"),
    QualityIssue("replacement characters (U+FFFD)", re.compile("\ufffd"), "convert the file again from an intact copy"),
    QualityIssue(
        "invisible characters",  # not the joiners of Persian, Hindi and emoji
        re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"),
        "remove them",
    ),
    QualityIssue("private-use characters", re.compile("[\ue000-\uf8ff]"), "they depend on a font: replace them"),
    QualityIssue(
        "UTF-8 decoded as Latin-1 (mojibake)",
        re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac[\u0090-\u2122]"),
        "it was converted twice: convert it back, or try the package ftfy",
    ),
    QualityIssue(
        "HTML",
        re.compile(r"&(?:amp|lt|gt|quot|nbsp|#\d+);|</?(?:br|p|div|span|a|b|i|em)\b[^<>]*>", re.I),
        "remove it",
    ),
    QualityIssue("combining accents", re.compile("\\w[\u0300-\u036f]"), "normalize to Unicode NFC"),
    QualityIssue(
        "a missing value in words", re.compile(r"\A\s*(?:nan|null|none|n/a|#n/a)\s*\Z", re.I), "remove such rows"
    ),
    QualityIssue(
        "CSV quotes in a TSV",
        re.compile(r'\A"(?:[^"]|"")*""(?:[^"]|"")*"\Z'),
        "name the file .csv: tabs are detected",
    ),
)
TRIGGER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u00c2\u00c3\u00e2&<\u0300-\u036f\u200b-\u2069\ue000-\uf8ff\ufeff\ufffd]"
)
"""Characters that any of the patterns needs, except those on whole texts: a fast first check."""
START = tuple('"nN#')


def quality_issues(text: str) -> list[str]:
    """The names of the quality issues of a text.

    >>> quality_issues("Grüße"), quality_issues("GrÃ¼Ã\\x9fe<br>")
    ([], ['control characters', 'UTF-8 decoded as Latin-1 (mojibake)', 'HTML'])
    """
    if not TRIGGER.search(text) and not text.lstrip().startswith(START):
        return []
    return [issue.name for issue in QUALITY_ISSUES if issue.pattern.search(text)]


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

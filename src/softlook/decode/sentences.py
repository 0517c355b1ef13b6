"""Sentence splitting by punctuation, for models that translate single sentences."""

import re
import unicodedata
from collections.abc import Callable, Sequence

CLOSING = "\"'”’»›)\\]}」』）】》〉"
"""Quotes and brackets that belong to the sentence before them."""
BOUNDARY = re.compile(
    rf"(?<![.!?…])(?P<mark>[.!?…؟۔।॥]+)[{CLOSING}]*\s+"  # a new sentence needs a space after these
    rf"|[。！？｡]+[{CLOSING}]*\s*"
    r"|\n[^\S\n]*\n\s*"  # a blank line
)
CLAUSE = re.compile(r"[,;:،؛—–]+\s+|[，、；：]+\s*")
SPACE = re.compile(r"\s+")
ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|rev|gen|col|sgt|capt|st|mt|sr|jr|vs|nos?|fig|vol|pp|eds?|approx|ca|cf|dept"
    r"|mme|mlle|sra|srta|nr|hr|fr|str|bzw|vgl|sog",
    re.IGNORECASE,
)
"""Abbreviations that are followed by a name or a number rather than by a new sentence."""
LAST_WORD = re.compile(r"[^\s\"'“‘«(\[]*$")
MAX_ORDINAL_DIGITS = 2
MAX_ABBREVIATED = 3
"""Letters between the periods of an abbreviation, as in "Ph.D."; more are a name such as "example.com"."""
MIN_FRACTION, MAX_FRACTION = 0.25, 0.75
"""Where a long sentence may be split, as fractions of its length."""


def split_sentences(text: str) -> list[str]:
    """Sentences with the whitespace after them: joined, they are the text.

    A period does not end a sentence before a lower-case letter, nor after an initial ("J."), an abbreviation with
    inner periods ("U.S."), a common one ("Dr.") or a number of one or two digits ("3. März").

    >>> split_sentences("Dr. Who left. Why?  Nobody knows. 你好。再见！")
    ['Dr. Who left. ', 'Why?  ', 'Nobody knows. ', '你好。', '再见！']
    """
    ends = [match.end() for match in BOUNDARY.finditer(text) if _ends_sentence(text, match)]
    starts = [0, *(end for end in ends if end < len(text))]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    mark = match["mark"]
    if mark is None:
        return True
    if text[match.end() : match.end() + 1].islower():
        return False
    if mark != ".":
        return True
    found = LAST_WORD.search(text, max(match.start() - 24, 0), match.start())
    word = found[0] if found else ""
    is_initial, is_ordinal = len(word) == 1 and word.isalpha(), word.isdecimal() and len(word) <= MAX_ORDINAL_DIGITS
    inner = word.split(".")
    has_inner_periods = len(inner) > 1 and all(one.isalpha() and len(one) <= MAX_ABBREVIATED for one in inner)
    return not (is_initial or is_ordinal or has_inner_periods or ABBREVIATION.fullmatch(word))


def split_to_fit(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The text as it is if it fits, else its sentences; one that does not fit is halved until its parts do.

    It is halved after a comma or other punctuation near the middle, else at a space, else anywhere. Joined, the parts
    are the text. `fits` gets parts without whitespace around them.

    >>> split_to_fit("One, two, three, four. Five.", lambda part: len(part) <= 12)
    ['One, two, ', 'three, four. ', 'Five.']
    """
    if fits(text.strip()):
        return [text]
    return [part for sentence in split_sentences(text) for part in halve_to_fit(sentence, fits)]


def halve_to_fit(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The text in parts that fit, without regard to sentences."""
    length = len(text.rstrip())
    if length < 2 or fits(text.strip()):
        return [text]
    middle = _middle_boundary(text, length)
    return [*halve_to_fit(text[:middle], fits), *halve_to_fit(text[middle:], fits)]


def _middle_boundary(text: str, length: int) -> int:
    for boundary in (CLAUSE, SPACE):
        ends = [match.end() for match in boundary.finditer(text, 0, length)]
        inner = [end for end in ends if MIN_FRACTION * length <= end <= MAX_FRACTION * length]
        if inner:
            return min(inner, key=lambda end: abs(end - length / 2))
    middle = length // 2
    while middle < length - 1 and unicodedata.combining(text[middle]):
        middle += 1
    return middle


def join_translations(parts: Sequence[str], translations: Sequence[str]) -> str:
    """The translations of the parts of a text, with the whitespace between the parts.

    >>> join_translations(["Hello.  ", "You!"], ["Bonjour.", "Toi !"])
    'Bonjour.  Toi !'
    >>> join_translations(["你好。", "再见。"], ["Hello.", "Goodbye."])
    'Hello. Goodbye.'
    """
    separators = part_separators(parts, translations)
    return "".join(a + b for a, b in zip(separators, translations, strict=True))


def part_separators(parts: Sequence[str], translations: Sequence[str]) -> list[str]:
    """The whitespace before each translation: none before the first.

    A script without spaces may be translated to one with spaces: then there is one after each sentence.
    """
    separators = [""]
    for part, before in zip(parts[:-1], translations[:-1], strict=True):
        space = part[len(part.rstrip()) :]
        separators.append(space or " " * bool(before and before[-1] in ".!?…;:,"))
    return separators

"""What a column is: recognised by its type and its values, and said."""

import re
from typing import Literal, NamedTuple, get_args

import numpy as np

from softlook.tabular.cells import Cells, Words
from softlook.tabular.parsing import POINTED, moments_in, numbers_in

Kind = Literal["number", "boolean", "category", "ordinal", "date", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)

FEW = 20
"""So many distinct values may be categories even if each of them reads as a number."""


class Guess(NamedTuple):
    """A kind, and by what it was recognised where that is worth saying."""

    kind: Kind
    how: str = ""


def guess(cells: Cells) -> Guess:
    """What a column is.

    Numbers, truths and dates are known by their type, and what the table declares to be categories is taken at its
    word. Strings are numbers or dates if all of them read so; texts if they are many, mostly distinct and of several
    words; else categories.

    >>> import pyarrow as pa
    >>> guess(Cells("day", pa.array(["2024-02-28", "2024-02-29", None])))
    Guess(kind='date', how='written as text')
    """
    if cells.sort == "nothing":
        return Guess("number")
    if cells.is_declared:
        return Guess("category")
    if cells.sort == "words":
        return _guess_words(cells.words())
    return Guess(cells.sort)


def _guess_words(words: Words) -> Guess:
    if _may_be_numbers(words) and numbers_in(words.values) is not None:
        return Guess("number", "written as text")
    if _may_be_dates(words) and moments_in(words.values) is not None:
        return Guess("date", "written as text")
    return Guess("text" if _are_texts(words) else "category")


def _may_be_numbers(words: Words) -> bool:
    """Few numbers may be codes, and so may those with zeros in front."""
    if len(words.values) <= FEW:
        return False
    return not any(word.startswith("0") and word[1:2].isdigit() for word in words.values.to_pylist())


def _may_be_dates(words: Words) -> bool:
    first = next((word for word in words.values.to_pylist() if word.strip()), "")
    is_pointed = re.match(POINTED[0][0], first.strip()) is not None
    return is_pointed or (len(first) >= len("2024-02-29") and first[:4].isdigit())


def _are_texts(words: Words) -> bool:
    distinct, present = len(words.values), int((words.codes >= 0).sum())
    if distinct < FEW or distinct < 0.3 * present:
        return False
    texts = words.values.to_pylist()
    if np.mean([text.count(" ") for text in texts]) >= 1.5:
        return True
    foreign = np.mean([sum(letter > "\u2e80" for letter in text) for text in texts])  # written without spaces
    return bool(foreign >= 8)

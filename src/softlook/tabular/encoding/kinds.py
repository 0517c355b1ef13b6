"""What a column is: recognised by its type and its values, or said; and learned as that."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from softlook.base.errors import ConfigError
from softlook.tabular.encoding.categories import CategoryColumn
from softlook.tabular.encoding.dates import DateColumn
from softlook.tabular.encoding.numbers import NumberColumn, OrdinalColumn
from softlook.tabular.encoding.texts import TextColumn
from softlook.tabular.sources.cells import Cells, Words
from softlook.tabular.sources.frames import Frame
from softlook.tabular.sources.parsing import NUMBER, POINTED, moments_in, numbers_in
from softlook.tabular.wording import named

Kind = Literal["number", "boolean", "category", "ordinal", "date", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Learned = NumberColumn | OrdinalColumn | CategoryColumn | DateColumn | TextColumn
FORMS: dict[str, Any] = {
    "number": NumberColumn,
    "ordinal": OrdinalColumn,
    "category": CategoryColumn,
    "boolean": CategoryColumn,
    "date": DateColumn,
    "text": TextColumn,
}
FEW = 20
"""So many distinct values may be categories even if each of them reads as a number; and more have no order that says
something of each, whatever a table declares."""
IN_DIGITS = re.compile(r"[\d\W]*\d[\d\W]*")
"""Without letters: 1,000 or 5 % or 3/14/2020."""


class Guess(NamedTuple):
    """A kind, and by what it was recognised where that is worth saying."""

    kind: Kind
    how: str = ""


def guess(cells: Cells) -> Guess:
    """What a column is.

    Numbers, truths and dates are known by their type, and what the table declares to be categories is taken at its
    word, and so is their order, if they are few. Strings are numbers or dates if all of them read so; texts if they are
    many, mostly distinct and of several words; else categories.

    >>> import pyarrow as pa
    >>> guess(Cells("day", pa.array(["2024-02-28", "2024-02-29", None])))
    Guess(kind='date', how='written as text')
    """
    if cells.sort == "nothing":
        return Guess("number")
    if cells.is_declared:
        return Guess("ordinal" if cells.order is not None and len(cells.order) <= FEW else "category")
    if cells.sort == "words":
        return _guess_words(cells.words())
    return Guess(cells.sort)


@dataclass(frozen=True)
class Said:
    """What a person said about columns, by name."""

    kinds: dict[str, Kind]
    orders: dict[str, list[Any] | None]
    """None: the table's own."""

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        kinds: Mapping[Any, Kind] | None,
        ordinal: Mapping[Any, Sequence[Any]] | None,
    ) -> "Said":
        """Names and kinds that there are; a column may also go by its place."""
        orders = {name: _listed(name, order) for name, order in _by_name(names, ordinal or {}, "ordinal").items()}
        found = _by_name(names, kinds or {}, "kinds")
        for name, kind in found.items():
            if kind not in KINDS:
                raise ConfigError(f"kinds: {name!r} is {kind!r}. It may be {', '.join(map(repr, KINDS))}")
        for name in orders:
            found[name] = "ordinal"
        return cls(found, orders)


def learn_frame(frame: Frame, said: Said, *, seed: int) -> tuple[Learned, ...]:
    """All columns of a frame."""
    return tuple(learn_cells(frame.cells(place), said, seed=seed) for place in range(len(frame.names)))


def learn_cells(cells: Cells, said: Said, *, seed: int) -> Learned:
    """One column."""
    kind, how = (said.kinds[cells.name], "") if cells.name in said.kinds else guess(cells)
    if kind == "number":
        return NumberColumn.learn(cells, how=how)
    if kind == "ordinal":
        return OrdinalColumn.learn(cells, said.orders.get(cells.name))
    if kind == "date":
        return DateColumn.learn(cells, how=how)
    if kind == "text":
        return TextColumn.learn(cells, seed=seed)
    if kind == "boolean":
        return CategoryColumn.learn_boolean(cells)
    return replace(CategoryColumn.learn(cells), how=how)


def _guess_words(words: Words) -> Guess:
    if _may_be_numbers(words) and numbers_in(words.values) is not None:
        return Guess("number", "written as text")
    if _may_be_dates(words) and moments_in(words.values) is not None:
        return Guess("date", "written as text")
    return Guess("text") if _are_texts(words) else Guess("category", _nearly_numbers(words))


def _may_be_numbers(words: Words) -> bool:
    """Few numbers may be codes, and so may those with zeros in front."""
    if len(words.values) <= FEW:
        return False
    return not any(word.startswith("0") and word[1:2].isdigit() for word in words.values.to_pylist())


def _nearly_numbers(words: Words) -> str:
    """What keeps a column from being numbers or dates, where nearly all of its values are written in digits."""
    present = [word for word in words.values.to_pylist() if word.strip()]
    odd = next((word for word in present if not NUMBER.fullmatch(word)), None)
    if len(present) <= FEW or odd is None or np.mean([IN_DIGITS.fullmatch(word) is not None for word in present]) < 0.8:
        return ""
    return f"neither numbers nor dates because of {odd!r:.40}"


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


def _listed(name: str, order: Any) -> list[Any] | None:
    if order is not None and (isinstance(order, str) or not isinstance(order, Iterable)):
        raise ConfigError(
            f"ordinal: the order of {name!r:.80} is a list of its values, lowest first; {order!r:.80} came"
        )
    return None if order is None else list(order)


def _by_name(names: tuple[str, ...], given: Mapping[Any, Any], argument: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{argument} goes by the names of columns, as {{{names[0]!r:.80}: ...}}; {given!r:.80} came")
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = names[int(key)] if isinstance(key, int | np.integer) and -1 < key < len(names) else key
        if name not in names:
            close = get_close_matches(str(key), names, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"They are {named(names)}"
            raise ConfigError(f"{argument}: there is no column {key!r}. {meant}")
        found[str(name)] = value
    return found

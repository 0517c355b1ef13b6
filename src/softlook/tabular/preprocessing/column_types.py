"""Column types: inferred from dtype and values, or given."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from softlook.base.errors import ConfigError
from softlook.tabular.formatting import join_names
from softlook.tabular.io.arrow import DOTTED_DATE, NUMBER, parse_floats, parse_timestamps
from softlook.tabular.io.column import Column, StringCodes
from softlook.tabular.io.frames import Frame
from softlook.tabular.preprocessing.categorical import CategoricalEncoder
from softlook.tabular.preprocessing.dates import DateEncoder
from softlook.tabular.preprocessing.numeric import NumericEncoder, OrdinalEncoder
from softlook.tabular.preprocessing.text import TextEncoder

ColumnType = Literal["number", "boolean", "category", "ordinal", "date", "text"]
COLUMN_TYPES: tuple[ColumnType, ...] = get_args(ColumnType)
ColumnEncoder = NumericEncoder | OrdinalEncoder | CategoricalEncoder | DateEncoder | TextEncoder
ENCODERS: dict[str, Any] = {
    "number": NumericEncoder,
    "ordinal": OrdinalEncoder,
    "category": CategoricalEncoder,
    "boolean": CategoricalEncoder,
    "date": DateEncoder,
    "text": TextEncoder,
}
LOW_CARDINALITY = 20
"""Up to so many distinct values, strings that all parse as numbers are still categories, and a declared order of
categories is used."""
DIGITS_ONLY = re.compile(r"[\d\W]*\d[\d\W]*")
"""No letters: 1,000 or 5 % or 3/14/2020."""


class InferredType(NamedTuple):
    """A column type, and how it was inferred if that is worth reporting."""

    column_type: ColumnType
    note: str = ""


def infer_column_type(column: Column) -> InferredType:
    """Infer the type of a column.

    Numbers, booleans and dates are recognised by dtype. Declared categories stay categories; their order is used if
    they are few. Strings are numbers or dates if all of them parse; text if they are many, mostly distinct and have
    several words; otherwise categories.

    >>> import pyarrow as pa
    >>> infer_column_type(Column("day", pa.array(["2024-02-28", "2024-02-29", None])))
    InferredType(column_type='date', note='parsed from strings')
    """
    if column.value_type == "empty":
        return InferredType("number")
    if column.is_categorical:
        order = column.category_order
        return InferredType("ordinal" if order is not None and len(order) <= LOW_CARDINALITY else "category")
    if column.value_type == "string":
        return _infer_from_strings(column.strings())
    return InferredType(column.value_type)


@dataclass(frozen=True)
class ColumnOverrides:
    """Column types and category orders given by the user, by column name."""

    column_types: dict[str, ColumnType]
    orders: dict[str, list[Any] | None]
    """None: the table's own order."""

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        column_types: Mapping[Any, ColumnType] | None,
        ordinal_categories: Mapping[Any, Sequence[Any]] | None,
    ) -> "ColumnOverrides":
        """Check names and types; a column may also be given by its index."""
        by_name = _by_name(names, ordinal_categories or {}, "ordinal_categories")
        orders = {name: _check_order(name, order) for name, order in by_name.items()}
        types = _by_name(names, column_types or {}, "column_types")
        for name, column_type in types.items():
            if column_type not in COLUMN_TYPES:
                raise ConfigError(
                    f"column_types: expected one of {', '.join(map(repr, COLUMN_TYPES))} for {name!r}; "
                    f"got {column_type!r}"
                )
        for name in orders:
            types[name] = "ordinal"
        return cls(types, orders)


def fit_columns(frame: Frame, overrides: ColumnOverrides, *, seed: int) -> tuple[ColumnEncoder, ...]:
    """Encoders of all columns of a frame."""
    return tuple(fit_column(frame.column(index), overrides, seed=seed) for index in range(len(frame.names)))


def fit_column(column: Column, overrides: ColumnOverrides, *, seed: int) -> ColumnEncoder:
    """The encoder of a column."""
    given = overrides.column_types.get(column.name)
    column_type, note = infer_column_type(column) if given is None else (given, "")
    if column_type == "number":
        return NumericEncoder.fit(column, note=note)
    if column_type == "ordinal":
        return OrdinalEncoder.fit(column, overrides.orders.get(column.name))
    if column_type == "date":
        return DateEncoder.fit(column, note=note)
    if column_type == "text":
        return TextEncoder.fit(column, seed=seed)
    if column_type == "boolean":
        return CategoricalEncoder.fit_boolean(column)
    return replace(CategoricalEncoder.fit(column), note=note)


def _infer_from_strings(strings: StringCodes) -> InferredType:
    if _may_be_numbers(strings) and parse_floats(strings.values) is not None:
        return InferredType("number", "parsed from strings")
    if _may_be_dates(strings) and parse_timestamps(strings.values) is not None:
        return InferredType("date", "parsed from strings")
    return InferredType("text") if _is_text(strings) else InferredType("category", _almost_numbers(strings))


def _may_be_numbers(strings: StringCodes) -> bool:
    """Few distinct numbers may be codes, and so may numbers with leading zeros."""
    if len(strings.values) <= LOW_CARDINALITY:
        return False
    return not any(string.startswith("0") and string[1:2].isdigit() for string in strings.values.to_pylist())


def _almost_numbers(strings: StringCodes) -> str:
    """Which value keeps a column from being numeric or dates, if nearly all values are digits."""
    present = [string for string in strings.values.to_pylist() if string.strip()]
    first = next((string for string in present if not NUMBER.fullmatch(string)), None)
    if len(present) <= LOW_CARDINALITY or first is None:
        return ""
    if np.mean([DIGITS_ONLY.fullmatch(string) is not None for string in present]) < 0.8:
        return ""
    return f"neither numbers nor dates because of {first!r:.40}"


def _may_be_dates(strings: StringCodes) -> bool:
    first = next((string for string in strings.values.to_pylist() if string.strip()), "")
    is_dotted = re.match(DOTTED_DATE[0][0], first.strip()) is not None
    return is_dotted or (len(first) >= len("2024-02-29") and first[:4].isdigit())


def _is_text(strings: StringCodes) -> bool:
    distinct, present = len(strings.values), int((strings.codes >= 0).sum())
    if distinct < LOW_CARDINALITY or distinct < 0.3 * present:
        return False
    texts = strings.values.to_pylist()
    if np.mean([text.count(" ") for text in texts]) >= 1.5:
        return True
    cjk = np.mean([sum(character > "\u2e80" for character in text) for text in texts])  # written without spaces
    return bool(cjk >= 8)


def _check_order(name: str, order: Any) -> list[Any] | None:
    if order is not None and (isinstance(order, str) or not isinstance(order, Iterable)):
        raise ConfigError(
            f"ordinal_categories: expected a list of values for {name!r:.80}, lowest first; got {order!r:.80}"
        )
    return None if order is None else list(order)


def _by_name(names: tuple[str, ...], given: Mapping[Any, Any], argument: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{argument}: expected a dict by column name, {{{names[0]!r:.80}: ...}}; got {given!r:.80}")
    named: dict[str, Any] = {}
    for key, value in given.items():
        name = names[int(key)] if isinstance(key, int | np.integer) and -1 < key < len(names) else key
        if name not in names:
            close = get_close_matches(str(key), names, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Columns: {join_names(names)}"
            raise ConfigError(f"{argument}: there is no column {key!r}. {hint}")
        named[str(name)] = value
    return named

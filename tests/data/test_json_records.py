"""JSON Lines round-trip, and any other line raises an error with its location."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import DataError
from softlook.data.json_records import parse_json_object
from softlook.data.lines import Line

PATH = Path("a.jsonl")
VALID_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))
VALUE = VALID_TEXT | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(VALID_TEXT, VALUE | st.lists(VALUE, max_size=3), max_size=5), st.booleans())
def test_json_objects_round_trip(values: dict[str, Any], ascii_only: bool) -> None:
    assert parse_json_object(Line(1, json.dumps(values, ensure_ascii=ascii_only)), PATH) == values


@given(VALID_TEXT, st.dictionaries(VALID_TEXT, VALUE, max_size=3))
def test_nested_objects_are_flattened(name: str, inner: dict[str, Any]) -> None:
    found = parse_json_object(Line(1, json.dumps({name: inner})), PATH)
    assert found == {name: inner} | {f"{name}.{key}": value for key, value in inner.items()}


@given(st.text(max_size=30))
def test_any_line_is_an_object_or_a_located_error(text: str) -> None:
    try:
        assert isinstance(parse_json_object(Line(7, text), PATH), dict)
    except DataError as error:
        assert error.location.startswith("a.jsonl:7")
        assert all(row.isprintable() for row in str(error).split("\n"))


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": null}'])
def test_nan_and_infinity_are_missing(text: str) -> None:
    assert parse_json_object(Line(1, text), PATH) == {"a": None}

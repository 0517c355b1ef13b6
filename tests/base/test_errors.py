"""A data error has a message, a location, a reason and help."""

import pickle
from pathlib import Path

import pytest

from softlook.base.errors import DataError

FULL = DataError(
    "not a number",
    file=Path("a.csv"),
    line=3,
    column=2,
    excerpt="abc",
    why="the column is numeric",
    help="correct the cell",
)


def test_the_parts_of_the_message_are_in_order() -> None:
    assert str(FULL).split("\n") == [
        "a.csv:3:2: not a number",
        "    abc",
        "     ^",
        "why: the column is numeric",
        "help: correct the cell",
    ]


def test_every_part_but_the_message_is_optional() -> None:
    assert str(DataError("not a number")) == "not a number"
    assert DataError("not a number").location == ""


@pytest.mark.parametrize(
    ("line", "column", "location"), [(None, None, "a"), (1, None, "a:1"), (1, 2, "a:1:2"), (None, 2, "a")]
)
def test_the_location_contains_what_is_known(line: int | None, column: int | None, location: str) -> None:
    assert DataError("what", file="a", line=line, column=column).location == location


def test_an_error_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(FULL))
    assert str(copy) == str(FULL) and copy.line == 3


@pytest.mark.parametrize("hostile", ["\x1b]52;c;eA==\x07", "\x1b[2J", "a\rb", "\u202eevil", "\x9b31m", "\x08\x08"])
def test_control_characters_are_escaped_in_every_part(hostile: str) -> None:
    error = DataError(hostile, file=hostile, line=1, column=2, excerpt=hostile, why=hostile, help=hostile)
    assert all(row.isprintable() for row in str(error).split("\n"))

"""An error in the data says what, where, why, and what to do."""

import pickle
from pathlib import Path

import pytest

from softlook.base.errors import DataError

FULL = DataError("too bad", file=Path("a.csv"), line=3, column=2, excerpt="abc", why="it matters", help="mend it")


def test_every_part_is_told_in_its_order() -> None:
    assert str(FULL).split("\n") == [
        "a.csv:3:2: too bad",
        "    abc",
        "     ^",
        "why: it matters",
        "help: mend it",
    ]


def test_words_alone_are_an_error_too() -> None:
    assert str(DataError("too bad")) == "too bad"
    assert DataError("too bad").location == ""


@pytest.mark.parametrize(
    ("line", "column", "place"), [(None, None, "a"), (1, None, "a:1"), (1, 2, "a:1:2"), (None, 2, "a")]
)
def test_the_place_is_as_exact_as_is_known(line: int | None, column: int | None, place: str) -> None:
    assert DataError("what", file="a", line=line, column=column).location == place


def test_it_arrives_whole_from_another_process() -> None:
    again = pickle.loads(pickle.dumps(FULL))
    assert str(again) == str(FULL) and again.line == 3


@pytest.mark.parametrize("hostile", ["\x1b]52;c;eA==\x07", "\x1b[2J", "a\rb", "\u202eevil", "\x9b31m", "\x08\x08"])
def test_no_part_can_act_on_a_terminal(hostile: str) -> None:
    error = DataError(hostile, file=hostile, line=1, column=2, excerpt=hostile, why=hostile, help=hostile)
    assert all(row.isprintable() for row in str(error).split("\n"))

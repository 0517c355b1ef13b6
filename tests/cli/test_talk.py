"""How words are laid out on a terminal, and elsewhere."""

import io

import pytest
from rich.console import Console

from softlook.cli.progress import Spoken
from softlook.cli.talk import laid_out
from softlook.train.events import Evaluated

LONG = "error: there is no such column. There are " + ", ".join(f"column_{number}" for number in range(40))


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, soft_wrap=True, highlight=False)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_no_word_is_broken_and_none_is_lost(width: int) -> None:
    lines = laid_out(LONG, terminal(width)).split("\n")
    assert max(map(len, lines)) <= width
    assert " ".join(lines) == LONG


def test_a_row_of_cells_and_a_long_word_stay_whole() -> None:
    row, word = "  softlook predict runs/a --data FILE  answers", "/a-long-path/" * 9
    assert laid_out(row, terminal(20)) == row
    assert laid_out(f"Beginning {word}", terminal(20)) == f"Beginning\n{word}"


def test_what_is_indented_stays_so() -> None:
    assert laid_out("  id: every value is another one", terminal(20)).split("\n") == [
        "  id: every value is",
        "    another one",
    ]


def test_for_a_file_a_line_is_a_line() -> None:
    assert laid_out(LONG, Console(file=io.StringIO(), width=40)) == LONG


def test_scores_are_spelled_as_in_the_table_of_scores() -> None:
    console = terminal(80)
    Spoken(console)(Evaluated(6, {"loss": 0.424, "rmse": 101266.4}, is_best=False))
    assert console.file.getvalue() == "step 6: held-out loss 0.4240, RMSE 101,266\n"  # pyright: ignore[reportAttributeAccessIssue]

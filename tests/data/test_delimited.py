"""CSV is parsed as Python's csv module parses it, and a bad row loses no other row."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.data.delimited import delimited_rows, guess_delimiter
from softlook.data.lines import Line

PATH = Path("a.csv")
CELL = st.text(st.sampled_from('ab ,;"\n\t|é'), max_size=8)
TABLE = st.lists(st.lists(CELL, min_size=2, max_size=4), min_size=1, max_size=6)


def lines(text: str) -> list[Line]:
    rows = text.split("\n")
    return [Line(number, row) for number, row in enumerate(rows[:-1] if rows[-1] == "" else rows, 1)]


def cells(text: str, delimiter: str = ",") -> list[list[str] | str]:
    return [row.error.location if row.error else row.cells for row in delimited_rows(lines(text), delimiter, PATH)]


@given(TABLE, st.sampled_from(",;\t|"), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
def test_csv_written_by_python_is_read_back(table: list[list[str]], delimiter: str, quoting: int) -> None:
    written = io.StringIO()
    csv.writer(written, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows(table)  # type: ignore[arg-type]
    assert cells(written.getvalue(), delimiter) == table


@given(st.text(st.sampled_from('ab,"\n'), max_size=30))
def test_csv_is_read_as_python_reads_it(text: str) -> None:
    found = cells(text)
    try:
        expected = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        assert any(isinstance(row, str) for row in found)
    else:
        assert found == expected


@given(st.lists(st.text(st.sampled_from('ab,"'), max_size=8), max_size=8))
def test_bad_rows_lose_no_good_rows(rows: list[str]) -> None:
    found = cells("".join(f"{row}\n" for row in [*rows, "last,row"]))
    assert found[-1] == ["last", "row"] or any(str(row).startswith("a.csv:") for row in found)
    errors = [row for row in found if isinstance(row, str)]
    assert len(errors) <= len(rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a,1\nb,2\nc,3\n', ["a.csv:1:1", ["b", "2"], ["c", "3"]]),
        ('x,"a"b\nc,3\n', ["a.csv:1:6", ["c", "3"]]),
        ('"a,1\nb,2\n"c",3\n', ["a.csv:3:2", ["b", "2"], ["c", "3"]]),
        ('1,"two\nlines" x\nc,3\n', ["a.csv:2:7", ['lines" x'], ["c", "3"]]),
    ],
)
def test_reading_continues_after_a_stray_quote(text: str, expected: list[object]) -> None:
    assert cells(text) == expected


def test_a_row_over_several_lines_has_its_first_line_number() -> None:
    assert [row.line for row in delimited_rows(lines('"a\nb\nc",1\nd,2\n'), ",", PATH)] == [1, 4]


def test_an_unclosed_quote_ends_at_max_chars() -> None:
    drawn = 0

    def endless() -> Iterator[Line]:
        nonlocal drawn
        yield Line(1, '"open')
        while True:
            drawn += 1
            yield Line(drawn + 1, "x" * 9)

    first = next(delimited_rows(endless(), ",", PATH, max_chars=100))
    assert first.error is not None and first.error.location == "a.csv:1:1"
    assert drawn < 12


def test_tsv_ignores_quotes_and_blank_lines() -> None:
    rows = list(delimited_rows(lines('"a\tb"\n\n\tc\n'), "\t", PATH, has_quotes=False))
    assert [row.cells for row in rows] == [['"a', 'b"'], ["", "c"]]
    assert [row.line for row in rows] == [1, 3]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2\n1;2,5\n", ";"),
        ("a\tb\nx, y\tz\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("text\nno delimiter here\n", ","),
        ('"a;b",c\n"d;e",f\n', ","),
        ("", ","),
    ],
)
def test_the_delimiter_gives_rows_of_equal_length(text: str, delimiter: str) -> None:
    assert guess_delimiter(lines(text), PATH) == delimiter

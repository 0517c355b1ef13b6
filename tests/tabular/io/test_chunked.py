"""Errors about cells name the file and the line."""

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import DataError
from softlook.tabular.io.chunked import locate_cell_errors
from softlook.tabular.io.column import CellError

ERROR = CellError("column 'age': expected numbers, got 'old'", name="age", cell="old", row=1, help="correct the cell")
ROWS = [{"note": "two\nlines", "age": "31"}, {"note": "fine", "age": "old"}]


def write_table(path: Path) -> Path:
    """Write rows of which the second is invalid; in text files, after an empty line."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n\n".join(map(json.dumps, ROWS)))
    else:
        text = 'note,age\r\n"two\nlines",31\r\n\r\nfine,old\r\n'.encode("utf-8-sig")
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize(("name", "line"), [("a.csv", 5), ("a.csv.gz", 5), ("a.jsonl", 3)])
def test_an_error_names_the_file_and_line_of_the_cell(name: str, line: int, tmp_path: Path) -> None:
    path = write_table(tmp_path / name)
    with pytest.raises(DataError) as error, locate_cell_errors([path]):
        raise ERROR
    assert str(error.value) == f"{path}:{line}: column 'age': expected numbers, got 'old'\nhelp: correct the cell"


def test_an_error_in_a_binary_file_names_the_row(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet")
    with (
        pytest.raises(DataError, match=r"a\.parquet: .*got 'old' in row 2, counted from 1"),
        locate_cell_errors([path]),
    ):
        raise ERROR


def test_all_files_of_a_directory_are_searched(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("note,age\nfine,31\n")
    write_table(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"b\.csv:5: "), locate_cell_errors([tmp_path]):
        raise ERROR


def test_infinity_is_located_in_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n3\n-Infinity\n")
    with (
        pytest.raises(DataError, match=r"a\.csv:3: column 'age' holds -inf$"),
        locate_cell_errors([tmp_path / "a.csv"]),
    ):
        raise CellError("column 'age' holds -inf", name="age", cell="-inf", row=1)


def test_an_error_that_cannot_be_located_is_raised_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n" + "9" * (csv.field_size_limit() + 1) + "\n")  # beyond csv's field limit
    with pytest.raises(CellError, match="got 'old' in row 1"), locate_cell_errors([tmp_path / "a.csv"]):
        raise ERROR

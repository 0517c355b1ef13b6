"""What is wrong with a cell is said where somebody finds it: in a file, on a line."""

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import DataError
from softlook.tabular.io.cell_errors import locate_cell_errors
from softlook.tabular.io.column import CellError

OLD = CellError("column 'age' is to hold numbers; 'old' came", name="age", cell="old", row=1, help="mend it")
PARQUET_ROWS = [{"note": "two\nlines", "age": "31"}, {"note": "fine", "age": "old"}]


def written(path: Path) -> Path:
    """The same rows, of which the second is odd, after an empty line where there are lines."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(PARQUET_ROWS), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n\n".join(map(json.dumps, PARQUET_ROWS)))
    else:
        text = 'note,age\r\n"two\nlines",31\r\n\r\nfine,old\r\n'.encode("utf-8-sig")
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize(("name", "line"), [("a.csv", 5), ("a.csv.gz", 5), ("a.jsonl", 3)])
def test_a_cell_is_told_by_its_file_and_line(name: str, line: int, tmp_path: Path) -> None:
    path = written(tmp_path / name)
    with pytest.raises(DataError) as told, locate_cell_errors([path]):
        raise OLD
    assert str(told.value) == f"{path}:{line}: column 'age' is to hold numbers; 'old' came\nhelp: mend it"


def test_where_a_file_has_no_lines_it_is_told_by_its_row(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet")
    with (
        pytest.raises(DataError, match=r"a\.parquet: .*'old' came in row 2, counted from 1"),
        locate_cell_errors([path]),
    ):
        raise OLD


def test_the_file_that_holds_it_is_told_and_a_folder_is_gone_through(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("note,age\nfine,31\n")
    written(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"b\.csv:5: "), locate_cell_errors([tmp_path]):
        raise OLD


def test_infinity_is_found_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n3\n-Infinity\n")
    with (
        pytest.raises(DataError, match=r"a\.csv:3: column 'age' holds -inf$"),
        locate_cell_errors([tmp_path / "a.csv"]),
    ):
        raise CellError("column 'age' holds -inf", name="age", cell="-inf", row=1)


def test_what_is_found_nowhere_is_told_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n" + "9" * (csv.field_size_limit() + 1) + "\n")  # more than csv takes
    with pytest.raises(CellError, match="'old' came in row 1"), locate_cell_errors([tmp_path / "a.csv"]):
        raise OLD

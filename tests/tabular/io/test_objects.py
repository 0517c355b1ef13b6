"""Excel sheets and JSON lists are tables like any other."""

import json
from datetime import datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from softlook.base.errors import DataError
from softlook.tabular.io.chunked import ChunkedTable, TargetColumns, locate_cell_errors
from softlook.tabular.io.column import CellError
from softlook.tabular.io.files import read_table

FRAME = pd.DataFrame(
    {
        "name": ["Ann", "Bob", None],
        "age": [31, None, 40],
        "label": [0, 1, 1],
        "size": [38, "L", "M"],
        "born": [datetime(1993, 1, 2), datetime(2000, 5, 6), None],
    }
)


def write(folder: Path) -> tuple[Path, Path]:
    FRAME.to_excel(folder / "people.xlsx", index=False)
    FRAME.to_json(folder / "people.json", orient="records", date_format="iso")
    return folder / "people.xlsx", folder / "people.json"


def test_values_keep_their_types(tmp_path: Path) -> None:
    excel, document = (pa.concat_tables(read_table(path)) for path in write(tmp_path))
    for table in (excel, document):
        assert table.column("name").to_pylist() == ["Ann", "Bob", None]
        assert table.column("age").to_pylist() == [31.0, None, 40.0]
        assert table.column("size").to_pylist() == ["38", "L", "M"]
    assert excel.schema.field("born").type == pa.timestamp("us")


def test_string_columns_are_strings(tmp_path: Path) -> None:
    for path in write(tmp_path):
        [table] = read_table(path, string_columns=["age"])
        assert table.column("age").to_pylist() == ["31", None, "40"]


def test_integers_of_the_target_stay_integers(tmp_path: Path) -> None:
    for path in write(tmp_path):
        [(_, target, _)] = ChunkedTable.of(path).split(TargetColumns("label"))
        assert target.to_pylist() == [0, 1, 1] and pa.types.is_integer(target.type)


def test_columns_without_a_name_are_left_out(tmp_path: Path) -> None:
    pd.DataFrame([["a", None, "b"], [1, 2, 3], [4, 5, 6]]).to_excel(tmp_path / "a.xlsx", index=False, header=False)
    [table] = read_table(tmp_path / "a.xlsx")
    assert table.to_pydict() == {"a": [1.0, 4.0], "b": [3.0, 6.0]}


def test_a_cell_error_has_its_row(tmp_path: Path) -> None:
    for path in write(tmp_path):
        with pytest.raises(DataError, match="in row 2, counted from 1"), locate_cell_errors([path]):
            raise CellError("column 'size': expected numbers, got 'L'", name="size", cell="L", row=1)


def test_objects_may_lack_keys_and_lists_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"a": 1}, {"b": "x", "c": {"d": 2}}]}))
    [table] = read_table(path)
    assert table.to_pydict() == {"a": [1.0, None], "b": [None, "x"], "c.d": [None, 2.0]}
    for values in ([[1], [2]], ["x", [2]]):
        path.write_text(json.dumps([{"a": value} for value in values]))
        with pytest.raises(DataError, match=r"a\.json: column 'a'"):
            list(read_table(path))


def test_a_file_without_rows_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    FRAME.iloc[:0].to_excel(tmp_path / "a.xlsx", index=False)
    for name in ("a.json", "a.xlsx"):
        with pytest.raises(DataError, match="empty"):
            list(read_table(tmp_path / name))

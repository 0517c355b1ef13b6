"""Tables of Python values: the rows of Excel sheets and of JSON lists."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from softlook.base.errors import DataError
from softlook.data.json_records import is_json_document, read_json_document
from softlook.data.streams import load_excel
from softlook.tabular.io.arrow import to_arrow, to_strings
from softlook.tabular.io.frames import check_unique_names, from_python_values
from softlook.tabular.io.text_files import file_extension

EXCEL = (".xlsx",)


def holds_objects(path: Path) -> bool:
    """Whether a file is an Excel sheet or a JSON list, whose cells are Python values and have no line each."""
    extension = file_extension(path)
    return extension in EXCEL or (extension == ".json" and is_json_document(path))


def read_objects(path: Path, string_columns: frozenset[str]) -> pa.Table:
    """All rows of a file; cells of `string_columns` become strings."""
    names, rows = _excel(path) if file_extension(path) in EXCEL else _json(path)
    if not rows:
        raise DataError("the file is empty", file=path)
    check_unique_names(names, path)
    columns = [_column(path, name, [row[index] for row in rows]) for index, name in enumerate(names)]
    strings = [to_strings(one) if name in string_columns else one for name, one in zip(names, columns, strict=True)]
    return pa.table([_narrow(column) for column in strings], names=names)


def _excel(path: Path) -> tuple[list[str], list[list[Any]]]:
    """The first row has the names; columns without a name are left out, as are cells beyond the last name."""
    rows: Iterator[tuple[int, list[Any]]] = load_excel(path).excel_rows(path)
    _, header = next(rows, (1, []))
    kept = [index for index, name in enumerate(header) if name is not None]
    cells = [[row[index] if index < len(row) else None for index in kept] for _, row in rows]
    return [str(header[index]).strip() for index in kept], cells


def _json(path: Path) -> tuple[list[str], list[list[Any]]]:
    objects: list[dict[str, Any]] = []
    for _, values, error in read_json_document(path):
        if error is not None:
            raise error
        objects.append({name: value for name, value in values.items() if not isinstance(value, dict)})
    names = list(dict.fromkeys(name for one in objects for name in one))
    return names, [[one.get(name) for name in names] for one in objects]


def _column(path: Path, name: str, values: list[Any]) -> pa.Array:
    try:
        array = to_arrow(from_python_values(name, values))
    except TypeError as error:  # texts and lists, for example
        raise DataError(str(error), file=path) from None
    if pa.types.is_nested(array.type):
        raise DataError(f"column {name!r:.80}: expected texts, numbers or dates, got {array.type}", file=path)
    return array


def _narrow(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column

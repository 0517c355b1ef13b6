"""The same table in every form that there is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from softlook.tabular.preprocessing.table_encoder import EncodedTable, TableEncoder

Table = dict[str, list[Any]]


def as_pandas(table: Table) -> pd.DataFrame:
    return pd.DataFrame(table)


def as_pandas_objects(table: Table) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in table.items()})


def as_pandas_nullable(table: Table) -> pd.DataFrame:
    return pd.DataFrame(table).convert_dtypes()


def as_pandas_arrow(table: Table) -> pd.DataFrame:
    arrays = pa.table(table)
    return arrays.to_pandas(types_mapper=pd.ArrowDtype)


def as_polars(table: Table) -> pl.DataFrame:
    return pl.DataFrame(table, strict=False)


def as_pyarrow(table: Table) -> pa.Table:
    return pa.table(table)


def as_pieces(table: Table) -> pa.Table:
    """In chunks."""
    whole = pa.table(table)
    return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])


def as_objects(table: Table) -> np.ndarray:
    found = np.empty((len(next(iter(table.values()))), len(table)), dtype=object)
    for place, values in enumerate(table.values()):
        found[:, place] = values
    return found


def as_rows(table: Table) -> list[list[Any]]:
    return [list(row) for row in zip(*table.values(), strict=True)]


ENCODERS: dict[str, Callable[[Table], Any]] = {
    "pandas": as_pandas,
    "pandas of objects": as_pandas_objects,
    "pandas of nullable types": as_pandas_nullable,
    "pandas of arrow types": as_pandas_arrow,
    "polars": as_polars,
    "pyarrow": as_pyarrow,
    "pyarrow in chunks": as_pieces,
    "numpy of objects": as_objects,
    "a list of rows": as_rows,
}


def same(one: EncodedTable, other: EncodedTable) -> bool:
    """To the bit, NaN included."""
    return one.numbers.tobytes() == other.numbers.tobytes() and one.categories.tobytes() == other.categories.tobytes()


def without_names(columns: TableEncoder) -> list[Any]:
    """What was learned, apart from what the columns are called."""
    facts, arrays = columns.state()
    plain = [{key: value for key, value in column.items() if key != "name"} for column in facts["columns"]]
    return [plain, {name: array.tobytes() for name, array in arrays.items()}]

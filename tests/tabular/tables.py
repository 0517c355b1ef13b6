"""One table in every supported format."""

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


def as_chunked_pyarrow(table: Table) -> pa.Table:
    whole = pa.table(table)
    return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])


def as_objects(table: Table) -> np.ndarray:
    array = np.empty((len(next(iter(table.values()))), len(table)), dtype=object)
    for index, values in enumerate(table.values()):
        array[:, index] = values
    return array


def as_rows(table: Table) -> list[list[Any]]:
    return [list(row) for row in zip(*table.values(), strict=True)]


TABLE_FORMATS: dict[str, Callable[[Table], Any]] = {
    "pandas": as_pandas,
    "pandas object columns": as_pandas_objects,
    "pandas nullable types": as_pandas_nullable,
    "pandas arrow types": as_pandas_arrow,
    "polars": as_polars,
    "pyarrow": as_pyarrow,
    "pyarrow in chunks": as_chunked_pyarrow,
    "numpy object array": as_objects,
    "list of rows": as_rows,
}


def bitwise_equal(one: EncodedTable, other: EncodedTable) -> bool:
    """Whether two encoded tables are equal bit for bit, NaN included."""
    return one.numbers.tobytes() == other.numbers.tobytes() and one.categories.tobytes() == other.categories.tobytes()


def state_without_names(encoder: TableEncoder) -> list[Any]:
    """The fitted state of an encoder apart from the column names."""
    values, arrays = encoder.state()
    columns = [{key: value for key, value in column.items() if key != "name"} for column in values["columns"]]
    return [columns, {name: array.tobytes() for name, array in arrays.items()}]

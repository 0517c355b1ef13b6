"""pyarrow's functions over whole arrays, and arrays for them."""

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

pc: Any = compute
"""They are made when it is imported, so no type checker sees them."""


def as_arrow(column: Any) -> Any:
    """A column of numpy's as one of pyarrow's, in which NaN is missing; pyarrow's own as it is."""
    return pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column


def whole(column: pa.ChunkedArray) -> pa.Array:
    """All of a column as one array."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())  # all of them together may be more than 2 GB
    found = column.unify_dictionaries().combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def in_order(values: pa.Array, order: pa.Array) -> pa.Array:
    """Values as categories that have an order, lowest first."""
    order = order.cast(values.type)
    return pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=order), order, ordered=True)

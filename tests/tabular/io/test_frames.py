"""A table reads the same in every format, and invalid tables are rejected."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import DataError
from softlook.tabular.io.arrow import to_ordered_categories
from softlook.tabular.io.frames import to_frame
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from tests.tabular.tables import TABLE_FORMATS, Table, as_polars, as_pyarrow, bitwise_equal, state_without_names

NUMBER = st.floats(allow_nan=False, allow_infinity=False)
DATETIME = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
COLUMN = st.sampled_from(
    [NUMBER, st.integers(-(2**53), 2**53), st.booleans(), st.sampled_from(["S", "M", "L", ""]), DATETIME, st.dates()]
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    rows = draw(st.integers(1, 12))
    columns = draw(st.lists(COLUMN, min_size=1, max_size=4))
    return {f"c{index}": draw(_column(values, rows)) for index, values in enumerate(columns)}


def _column(values: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, min_size=rows, max_size=rows)


@settings(max_examples=25)
@given(tables())
def test_a_table_is_encoded_bitwise_equal_in_every_format(table: Table) -> None:
    frames = {name: convert(table) for name, convert in TABLE_FORMATS.items()}
    reference = TableEncoder.fit(frames["pyarrow"])
    for name, frame in frames.items():
        encoder = TableEncoder.fit(frame)
        assert state_without_names(encoder) == state_without_names(reference), name
        for other in frames.values():
            assert bitwise_equal(encoder.encode(other), reference.encode(frames["pyarrow"])), name


@settings(max_examples=40)
@given(st.lists(st.lists(NUMBER | st.just(float("nan")), min_size=3, max_size=3), min_size=1, max_size=9))
def test_a_float_matrix_reads_like_its_columns(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    table = {f"c{index}": [None if cell != cell else cell for cell in matrix[:, index].tolist()] for index in range(3)}
    one, other = TableEncoder.fit(matrix), TableEncoder.fit(as_polars(table))
    assert state_without_names(one) == state_without_names(other)
    assert bitwise_equal(one.encode(matrix), other.encode(as_pyarrow(table)))
    assert bitwise_equal(one.encode(np.asfortranarray(matrix)), one.encode(pd.DataFrame(matrix)))


STRINGS = ["b", "a", None, "b", "c"]
CATEGORIES = [
    pd.DataFrame({"c": pd.Categorical(STRINGS)}),
    pd.DataFrame({"c": pd.Series(STRINGS, dtype="string")}),
    pd.DataFrame({"c": pd.Series([*STRINGS[:2], float("nan"), *STRINGS[3:]], dtype=object)}),
    pd.DataFrame({"c": pd.Series([*STRINGS[:2], pd.NA, *STRINGS[3:]], dtype=object)}),
    pl.DataFrame({"c": pl.Series(STRINGS, dtype=pl.Categorical)}),
    pa.table({"c": pa.array(STRINGS).dictionary_encode()}),
    pa.table(
        {"c": pa.chunked_array([pa.array(STRINGS[:2]).dictionary_encode(), pa.array(STRINGS[2:]).dictionary_encode()])}
    ),
    pa.table({"c": pa.array(STRINGS, pa.string_view())}),
    pa.record_batch({"c": STRINGS}),
]


@pytest.mark.parametrize("frame", CATEGORIES, ids=range(len(CATEGORIES)))
def test_categories_read_like_the_strings_they_represent(frame: Any) -> None:
    plain = pa.table({"c": STRINGS})
    assert TableEncoder.fit(frame).state() == TableEncoder.fit(plain).state()
    assert bitwise_equal(TableEncoder.fit(frame).encode(plain), TableEncoder.fit(plain).encode(frame))


ORDER = ["c", "b", "unused", "a"]
ORDERED = [
    pd.DataFrame({"c": pd.Categorical(STRINGS, categories=ORDER, ordered=True)}),
    pl.DataFrame({"c": pl.Series(STRINGS, dtype=pl.Enum(ORDER))}),
    pa.table({"c": to_ordered_categories(pa.array(STRINGS), pa.array(ORDER))}),
]


@pytest.mark.parametrize("frame", ORDERED, ids=range(len(ORDERED)))
def test_a_declared_category_order_is_recognised_and_can_be_overridden(frame: Any) -> None:
    encoder = TableEncoder.fit(frame)
    assert encoder.describe() == ["c: ordinal, c < b < unused < a, 20 % missing"]
    ranks = encoder.encode(pa.table({"c": STRINGS})).numbers[:, 0]
    assert np.array_equal(ranks, np.array([1, 3, np.nan, 1, 0], np.float32), equal_nan=True)
    one, other = (TableEncoder.fit(each, column_types={"c": "category"}) for each in (frame, pa.table({"c": STRINGS})))
    assert one.state() == other.state()


def test_many_ordered_values_are_categories() -> None:
    cities = [f"city {index}" for index in range(30)]
    frame = pl.DataFrame({"c": pl.Series(cities, dtype=pl.Enum(cities))})
    assert TableEncoder.fit(frame).column_types == {"c": "category"}


NUMBERS = [1.0, None, 2.5, -0.0]
NUMERIC_FRAMES = [
    pd.DataFrame({"n": [1.0, float("nan"), 2.5, -0.0]}),
    pd.DataFrame({"n": pd.Series(NUMBERS, dtype="Float64")}),
    pd.DataFrame({"n": pd.Series([1, None, 2.5, -0.0], dtype=object)}),
    pd.DataFrame({"n": pd.arrays.SparseArray([1.0, float("nan"), 2.5, -0.0])}),
    pl.DataFrame({"n": [1.0, float("nan"), 2.5, -0.0]}),
    pl.DataFrame({"n": NUMBERS}),
    pa.table({"n": pa.array([1.0, None, 2.5, -0.0], pa.float32())}),
    pl.DataFrame({"n": [Decimal("1.0"), None, Decimal("2.5"), Decimal("-0.0")]}),
]


@pytest.mark.parametrize("frame", NUMERIC_FRAMES, ids=range(len(NUMERIC_FRAMES)))
def test_missing_numbers_are_recognised_in_every_representation(frame: Any) -> None:
    numbers = TableEncoder.fit(frame).encode(frame).numbers[:, 0]
    assert np.array_equal(numbers, np.array([1, np.nan, 2.5, 0], np.float32), equal_nan=True)


def test_a_decimal_becomes_the_nearest_float() -> None:
    decimals = [Decimal(number) / 1000 for number in range(-3000, 3000, 7)]
    column = to_frame(pa.table({"n": decimals})).column(0)
    assert column.floats().tolist() == [float(decimal) for decimal in decimals]


def test_time_zones_read_the_same_in_every_library() -> None:
    times = pd.to_datetime(["2024-03-30 12:00", None, "2024-03-31 12:00"]).tz_localize("Europe/Berlin")
    frame = pd.DataFrame({"t": times})
    others = [pl.from_pandas(frame), pa.Table.from_pandas(frame), pd.DataFrame({"t": frame["t"].astype(object)})]
    encoder = TableEncoder.fit(frame)
    assert all(TableEncoder.fit(other).state() == encoder.state() for other in others)
    assert all(bitwise_equal(encoder.encode(other), encoder.encode(frame)) for other in others)
    assert bitwise_equal(encoder.encode(frame.assign(t=times.tz_convert("UTC"))), encoder.encode(frame))


def test_column_names_are_used_only_if_all_are_strings() -> None:
    assert to_frame(pd.DataFrame([[1, 2]])).names == ("x0", "x1")
    assert not to_frame(pd.DataFrame([[1, 2]], columns=["a", 2])).has_names
    assert to_frame(pl.DataFrame({"b": [1], "a": [2]})).names == ("b", "a")


def test_mixed_cells_become_strings_and_mixed_numbers_become_numbers() -> None:
    mixed = TableEncoder.fit(
        [[1, True, dt.date(2024, 1, 1)], ["one", 2.5, dt.datetime(2024, 1, 1, 12)], [1.0, None, None]]
    )
    assert mixed.column_types == {"x0": "category", "x1": "number", "x2": "date"}
    assert (
        mixed.encode([[1, 1, None]]).categories.tolist() == mixed.encode([["1", 1, None]]).categories.tolist() == [[2]]
    )
    assert mixed.encode([[1, 1, dt.datetime(2024, 1, 2)]]).numbers[0, :2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((0, 3)), r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1"),
        (np.zeros((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1"),
        (pl.DataFrame(), r"0 feature\(s\)"),
        ([], r"0 feature\(s\)"),
        (np.zeros(3), "Expected 2D array, got 1D array instead. Reshape your data"),
        ([1, 2], "Reshape your data"),
        (pd.Series([1.0]), "Reshape your data"),
        (pl.Series([1.0]), "Reshape your data"),
        (np.float64(3), "got scalar array"),
        (np.zeros((2, 2, 2)), "Found array with dim 3"),
        (np.ones((2, 2)) * 1j, "Complex data not supported"),
        ([[1, 2], [3]], "the rows have 1 to 2 cells"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column is named 'a'"),
        (pd.DataFrame([[1, 2]], columns=[0, 0]), "more than one column is named '0'"),
        (pa.table([[1], [2]], names=["a", "a"]), "more than one column is named 'a'"),
    ],
    ids=range(15),
)
def test_invalid_tables_are_rejected(table: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_frame(table)


@pytest.mark.parametrize(
    "cell", [{"a": 1}, [1], b"bytes", object(), 1j], ids=["dict", "list", "bytes", "object", "complex"]
)
def test_unsupported_cells_are_rejected_with_scikit_learns_message(cell: Any) -> None:
    array = np.empty((2, 1), dtype=object)
    array[0, 0], array[1, 0] = cell, "string"
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        to_frame(array).column(0)


def test_sparse_matrices_and_lazy_frames_are_rejected() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="Sparse data was passed"):
        to_frame(sparse.csr_matrix(np.eye(3)))
    with pytest.raises(TypeError, match="collect"):
        to_frame(pl.DataFrame({"a": [1]}).lazy())


def test_intervals_of_pandas_cut_are_ordinal_and_encode_the_same_without_missing_rows() -> None:
    ages = pd.DataFrame({"age": pd.cut(pd.Series([3.0, 20.0, None, 15.0]), [0, 10, 30])})
    encoder = TableEncoder.fit(ages)
    assert encoder.describe() == ["age: ordinal, (0, 10] < (10, 30], 25 % missing"]
    assert encoder.encode(ages.dropna()).numbers[:, 0].tolist() == [0, 1, 1]


def test_intervals_without_an_order_are_categories() -> None:
    ages = pd.DataFrame({"age": pd.arrays.IntervalArray.from_tuples([(0, 10), (10, 30), None, (10, 30)])})
    encoder = TableEncoder.fit(ages)
    assert encoder.describe() == ["age: category, 2 values, 25 % missing"]
    assert encoder.encode(ages).categories[:, 0].tolist() == [2, 3, 0, 3]


def test_tensors_and_narwhals_frames_are_accepted() -> None:
    matrix = np.arange(6.0).reshape(3, 2)
    frames = [torch.from_numpy(matrix), nw.from_native(pl.DataFrame(matrix)), matrix.tolist()]
    assert all(
        bitwise_equal(TableEncoder.fit(frame).encode(frame), TableEncoder.fit(matrix).encode(matrix))
        for frame in frames
    )


def test_a_missing_dependency_is_reported_with_the_command_to_install_it() -> None:
    code = (
        "import sys\nsys.modules['narwhals'] = None\nimport softlook.tabular\n"
        "try:\n    softlook.tabular.TableTransformerClassifier\nexcept ImportError as error:\n    print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install softlook[tables]" in printed

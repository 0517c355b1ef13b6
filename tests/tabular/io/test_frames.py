"""A table reads the same whatever it came in, and what is no table is refused in one line."""

import datetime as dt
import runpy
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

import softlook.tabular
from softlook.base.errors import DataError
from softlook.tabular.io.arrow import to_ordered_categories
from softlook.tabular.io.frames import to_frame
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from tests.tabular.tables import ENCODERS, Table, as_polars, as_pyarrow, same, without_names

NUMBER = st.floats(allow_nan=False, allow_infinity=False)
MOMENT = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
COLUMN = st.sampled_from(
    [NUMBER, st.integers(-(2**53), 2**53), st.booleans(), st.sampled_from(["S", "M", "L", ""]), MOMENT, st.dates()]
)


@st.composite
def tables(sample_corruption: st.DrawFn) -> Table:
    rows = sample_corruption(st.integers(1, 12))
    column_types = sample_corruption(st.lists(COLUMN, min_size=1, max_size=4))
    return {f"c{place}": sample_corruption(_column(kind, rows)) for place, kind in enumerate(column_types)}


def _column(kind: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | kind, min_size=rows, max_size=rows)


@settings(max_examples=25)
@given(tables())
def test_a_table_reads_the_same_to_the_bit_in_every_form(table: Table) -> None:
    frames = {form: make(table) for form, make in ENCODERS.items()}
    first = TableEncoder.fit(frames["pyarrow"])
    for form, frame in frames.items():
        columns = TableEncoder.fit(frame)
        assert without_names(columns) == without_names(first), form
        for other in frames.values():
            assert same(columns.encode(other), first.encode(frames["pyarrow"])), form


@settings(max_examples=40)
@given(st.lists(st.lists(NUMBER | st.just(float("nan")), min_size=3, max_size=3), min_size=1, max_size=9))
def test_a_matrix_of_floats_reads_as_its_columns_do(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    table = {f"c{place}": [None if cell != cell else cell for cell in matrix[:, place].tolist()] for place in range(3)}
    one, other = TableEncoder.fit(matrix), TableEncoder.fit(as_polars(table))
    assert without_names(one) == without_names(other)
    assert same(one.encode(matrix), other.encode(as_pyarrow(table)))
    assert same(one.encode(np.asfortranarray(matrix)), one.encode(pd.DataFrame(matrix)))


WORDS = ["b", "a", None, "b", "c"]
CATEGORIES = [
    pd.DataFrame({"c": pd.Categorical(WORDS)}),
    pd.DataFrame({"c": pd.Series(WORDS, dtype="string")}),
    pd.DataFrame({"c": pd.Series([*WORDS[:2], float("nan"), *WORDS[3:]], dtype=object)}),
    pd.DataFrame({"c": pd.Series([*WORDS[:2], pd.NA, *WORDS[3:]], dtype=object)}),
    pl.DataFrame({"c": pl.Series(WORDS, dtype=pl.Categorical)}),
    pa.table({"c": pa.array(WORDS).dictionary_encode()}),
    pa.table(
        {"c": pa.chunked_array([pa.array(WORDS[:2]).dictionary_encode(), pa.array(WORDS[2:]).dictionary_encode()])}
    ),
    pa.table({"c": pa.array(WORDS, pa.string_view())}),
    pa.record_batch({"c": WORDS}),
]


@pytest.mark.parametrize("frame", CATEGORIES, ids=range(len(CATEGORIES)))
def test_categories_read_as_the_strings_they_stand_for(frame: Any) -> None:
    plain = pa.table({"c": WORDS})
    assert TableEncoder.fit(frame).state() == TableEncoder.fit(plain).state()
    assert same(TableEncoder.fit(frame).encode(plain), TableEncoder.fit(plain).encode(frame))


ORDER = ["c", "b", "unused", "a"]
ORDERED = [
    pd.DataFrame({"c": pd.Categorical(WORDS, categories=ORDER, ordered=True)}),
    pl.DataFrame({"c": pl.Series(WORDS, dtype=pl.Enum(ORDER))}),
    pa.table({"c": to_ordered_categories(pa.array(WORDS), pa.array(ORDER))}),
]


@pytest.mark.parametrize("frame", ORDERED, ids=range(len(ORDERED)))
def test_an_order_that_a_table_declares_is_recognised_and_may_be_overruled(frame: Any) -> None:
    columns = TableEncoder.fit(frame)
    assert columns.describe() == ["c: ordinal, c < b < unused < a, 20 % missing"]
    found = columns.encode(pa.table({"c": WORDS})).numbers[:, 0]
    assert np.array_equal(found, np.array([1, 3, np.nan, 1, 0], np.float32), equal_nan=True)
    one, other = (TableEncoder.fit(each, column_types={"c": "category"}) for each in (frame, pa.table({"c": WORDS})))
    assert one.state() == other.state()


def test_many_ordered_values_are_categories() -> None:
    string_columns = [f"city {place}" for place in range(30)]
    assert TableEncoder.fit(
        pl.DataFrame({"c": pl.Series(string_columns, dtype=pl.Enum(string_columns))})
    ).column_types == {"c": "category"}


NUMBERS = [1.0, None, 2.5, -0.0]
MANY_NUMBERS = [
    pd.DataFrame({"n": [1.0, float("nan"), 2.5, -0.0]}),
    pd.DataFrame({"n": pd.Series(NUMBERS, dtype="Float64")}),
    pd.DataFrame({"n": pd.Series([1, None, 2.5, -0.0], dtype=object)}),
    pd.DataFrame({"n": pd.arrays.SparseArray([1.0, float("nan"), 2.5, -0.0])}),
    pl.DataFrame({"n": [1.0, float("nan"), 2.5, -0.0]}),
    pl.DataFrame({"n": NUMBERS}),
    pa.table({"n": pa.array([1.0, None, 2.5, -0.0], pa.float32())}),
    pl.DataFrame({"n": [Decimal("1.0"), None, Decimal("2.5"), Decimal("-0.0")]}),
]


@pytest.mark.parametrize("frame", MANY_NUMBERS, ids=range(len(MANY_NUMBERS)))
def test_missing_numbers_are_missing_however_that_is_written(frame: Any) -> None:
    found = TableEncoder.fit(frame).encode(frame).numbers[:, 0]
    assert np.array_equal(found, np.array([1, np.nan, 2.5, 0], np.float32), equal_nan=True)


def test_a_decimal_is_the_nearest_float() -> None:
    digits = [Decimal(number) / 1000 for number in range(-3000, 3000, 7)]
    cells = to_frame(pa.table({"n": digits})).column(0)
    assert cells.numbers().tolist() == [float(digit) for digit in digits]


def test_a_time_zone_is_the_same_in_every_library() -> None:
    moments = pd.to_datetime(["2024-03-30 12:00", None, "2024-03-31 12:00"]).tz_localize("Europe/Berlin")
    frame = pd.DataFrame({"t": moments})
    others = [pl.from_pandas(frame), pa.Table.from_pandas(frame), pd.DataFrame({"t": frame["t"].astype(object)})]
    columns = TableEncoder.fit(frame)
    assert all(TableEncoder.fit(other).state() == columns.state() for other in others)
    assert all(same(columns.encode(other), columns.encode(frame)) for other in others)
    assert same(columns.encode(frame.assign(t=moments.tz_convert("UTC"))), columns.encode(frame))


def test_only_names_that_are_all_strings_count_as_names() -> None:
    assert to_frame(pd.DataFrame([[1, 2]])).names == ("x0", "x1")
    assert not to_frame(pd.DataFrame([[1, 2]], columns=["a", 2])).has_names
    assert to_frame(pl.DataFrame({"b": [1], "a": [2]})).names == ("b", "a")


def test_mixed_cells_are_words_and_mixed_numbers_are_numbers() -> None:
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
def test_what_is_no_table_is_refused(table: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_frame(table)


@pytest.mark.parametrize(
    "cell", [{"a": 1}, [1], b"bytes", object(), 1j], ids=["dict", "list", "bytes", "object", "complex"]
)
def test_cells_that_are_no_values_are_refused_in_the_words_of_scikit_learn(cell: Any) -> None:
    array = np.empty((2, 1), dtype=object)
    array[0, 0], array[1, 0] = cell, "word"
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        to_frame(array).column(0)


def test_sparse_matrices_and_unread_tables_are_refused() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="Sparse data was passed"):
        to_frame(sparse.csr_matrix(np.eye(3)))
    with pytest.raises(TypeError, match="collect"):
        to_frame(pl.DataFrame({"a": [1]}).lazy())


def test_what_numbers_are_cut_into_has_their_order_and_is_known_again_without_gaps() -> None:
    ages = pd.DataFrame({"age": pd.cut(pd.Series([3.0, 20.0, None, 15.0]), [0, 10, 30])})
    columns = TableEncoder.fit(ages)
    assert columns.describe() == ["age: ordinal, (0, 10] < (10, 30], 25 % missing"]
    assert columns.encode(ages.dropna()).numbers[:, 0].tolist() == [0, 1, 1]


def test_intervals_without_an_order_are_categories() -> None:
    ages = pd.DataFrame({"age": pd.arrays.IntervalArray.from_tuples([(0, 10), (10, 30), None, (10, 30)])})
    columns = TableEncoder.fit(ages)
    assert columns.describe() == ["age: category, 2 values, 25 % missing"]
    assert columns.encode(ages).categories[:, 0].tolist() == [2, 3, 0, 3]


def test_tensors_and_frames_of_narwhals_are_tables_too() -> None:
    matrix = np.arange(6.0).reshape(3, 2)
    frames = [torch.from_numpy(matrix), nw.from_native(pl.DataFrame(matrix)), matrix.tolist()]
    assert all(same(TableEncoder.fit(frame).encode(frame), TableEncoder.fit(matrix).encode(matrix)) for frame in frames)


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(ImportError, match=r"pip install softlook\[tables\]"):
        runpy.run_path(str(softlook.tabular.__file__))

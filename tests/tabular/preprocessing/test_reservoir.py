"""Fitting on chunks gives the same encoders as fitting on the whole table."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from softlook.base.errors import DataError
from softlook.tabular.io.frames import to_frame
from softlook.tabular.preprocessing.reservoir import Reservoir
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from tests.tabular.tables import as_pyarrow, state_without_names


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "n": np.where(rng.random(500) < 0.2, np.nan, rng.normal(size=500)),
            "c": rng.choice(["a", "b", "c"], 500),
            "z": pd.Categorical(rng.integers(0, 9, 500)),
            "o": pd.Categorical(rng.choice(["S", "M", "L"], 500), categories=["S", "M", "L"], ordered=True),
            "d": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, 500), unit="D"),
        }
    )


@pytest.mark.parametrize("size", [1, 7, 500])
def test_fitting_on_chunks_equals_fitting_on_the_whole_table(size: int) -> None:
    chunks = (table().iloc[start : start + size] for start in range(0, 500, size))
    assert TableEncoder.fit_chunks(chunks).state() == TableEncoder.fit(table()).state()


def test_column_types_may_differ_between_chunks() -> None:
    chunks = [{"a": [1, 2], "b": [None, None]}, {"a": [2.5, None], "b": ["x", "y"]}]
    whole = {"a": [1, 2, 2.5, None], "b": [None, None, "x", "y"]}
    encoder = TableEncoder.fit_chunks(map(as_pyarrow, chunks))
    assert state_without_names(encoder) == state_without_names(TableEncoder.fit(as_pyarrow(whole)))
    mixed = TableEncoder.fit_chunks([pa.table({"a": [1.5, None]}), pa.table({"a": ["word", "1.5"]})])
    assert mixed.column_types == {"a": "category"}


def test_an_order_that_changes_between_chunks_is_ignored() -> None:
    chunks = [pd.DataFrame({"c": pd.Categorical(list("ab"), list(order), ordered=True)}) for order in ("ab", "ba")]
    assert TableEncoder.fit_chunks(chunks).column_types == {"c": "category"}


def test_counts_cover_all_rows_and_not_only_the_sample() -> None:
    reservoir = Reservoir(seed=0, capacity=100)
    for start in range(0, 500, 30):
        reservoir.add(to_frame(table().iloc[start : start + 30]))
    number, category, *_ = reservoir.fit_columns()
    assert number.missing == table()["n"].isna().mean()
    assert (category.missing, category.describe()) == (0.0, "c: category, 3 values")


def test_the_sample_is_bounded_and_uniform() -> None:
    counts = np.zeros(500)
    for seed in range(40):
        reservoir = Reservoir(seed=seed, capacity=100)
        for start in range(0, 500, 30):
            reservoir.add(to_frame(np.arange(500.0)[start : start + 30, None]))
            assert len(reservoir.keys) <= 230
        reservoir.fit_columns()
        (sample,) = reservoir.columns[0]
        assert len(sample) == 100
        counts[sample.to_numpy().astype(int)] += 1
    assert abs(counts[:250].mean() - counts[250:].mean()) < 1.0


def test_chunks_must_have_equal_columns_and_some_rows() -> None:
    with pytest.raises(DataError, match="a chunk has the columns b; the first had a"):
        TableEncoder.fit_chunks([pa.table({"a": [1]}), pa.table({"b": [1]})])
    with pytest.raises(DataError, match="got no rows"):
        TableEncoder.fit_chunks([])

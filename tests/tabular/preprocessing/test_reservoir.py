"""A table in pieces teaches what the whole table would."""

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
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "n": np.where(random.random(500) < 0.2, np.nan, random.normal(size=500)),
            "c": random.choice(["a", "b", "c"], 500),
            "z": pd.Categorical(random.integers(0, 9, 500)),
            "o": pd.Categorical(random.choice(["S", "M", "L"], 500), categories=["S", "M", "L"], ordered=True),
            "d": pd.to_datetime("2024-01-01") + pd.to_timedelta(random.integers(0, 99, 500), unit="D"),
        }
    )


@pytest.mark.parametrize("size", [1, 7, 500])
def test_a_table_in_pieces_teaches_what_the_whole_one_does(size: int) -> None:
    pieces = (table().iloc[start : start + size] for start in range(0, 500, size))
    assert TableEncoder.fit_chunks(pieces).state() == TableEncoder.fit(table()).state()


def test_types_may_differ_from_piece_to_piece() -> None:
    pieces = [{"a": [1, 2], "b": [None, None]}, {"a": [2.5, None], "b": ["x", "y"]}]
    whole = {"a": [1, 2, 2.5, None], "b": [None, None, "x", "y"]}
    found = TableEncoder.fit_chunks(map(as_pyarrow, pieces))
    assert state_without_names(found) == state_without_names(TableEncoder.fit(as_pyarrow(whole)))
    mixed = TableEncoder.fit_chunks([pa.table({"a": [1.5, None]}), pa.table({"a": ["word", "1.5"]})])
    assert mixed.column_types == {"a": "category"}


def test_an_order_that_changes_from_piece_to_piece_is_none() -> None:
    pieces = [pd.DataFrame({"c": pd.Categorical(list("ab"), list(order), ordered=True)}) for order in ("ab", "ba")]
    assert TableEncoder.fit_chunks(pieces).column_types == {"c": "category"}


def filled(seed: int = 0) -> Reservoir:
    found = Reservoir(seed=seed, capacity=100)
    for start in range(0, 500, 30):
        found.add(to_frame(table().iloc[start : start + 30]))
    return found


def test_beyond_what_is_kept_counts_are_over_all_rows() -> None:
    number, category, *_ = filled().fit_columns()
    assert number.is_missing == table()["n"].isna().mean()
    assert (category.is_missing, category.describe()) == (0.0, "c: category, 3 values")


def test_kept_rows_are_bounded_and_any_row_is_as_likely_as_any_other() -> None:
    found = np.zeros(500)
    for seed in range(40):
        drawn = Reservoir(seed=seed, capacity=100)
        for start in range(0, 500, 30):
            drawn.add(to_frame(np.arange(500.0)[start : start + 30, None]))
            assert len(drawn.keys) <= 230
        drawn.fit_columns()
        (kept,) = drawn.best_state[0]
        assert len(kept) == 100
        found[kept.to_numpy().astype(int)] += 1
    assert abs(found[:250].mean() - found[250:].mean()) < 1.0


def test_pieces_must_fit_together_and_there_must_be_some() -> None:
    with pytest.raises(DataError, match="a piece has the columns b; the first had a"):
        TableEncoder.fit_chunks([pa.table({"a": [1]}), pa.table({"b": [1]})])
    with pytest.raises(DataError, match="no rows came"):
        TableEncoder.fit_chunks([])

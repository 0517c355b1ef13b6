"""One-hot columns are detected and collapsed into one categorical feature."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from softlook.tabular import FTTransformerClassifier, TableTransformerClassifier, TabTransformerClassifier
from softlook.tabular.preprocessing.categorical import MISSING, RARE
from softlook.tabular.preprocessing.preprocessor import OneHotGroups
from softlook.tabular.preprocessing.table_encoder import TableEncoder

COLORS = ["red", "green", "blue"]


def one_hot_table(rows: int = 60, seed: int = 0, dtype: type = int) -> tuple[pandas.DataFrame, np.ndarray]:
    """A number, a one-hot encoded color and an unrelated flag; the label depends on the color."""
    rng = np.random.default_rng(seed)
    color = np.concatenate([np.arange(3), rng.integers(3, size=rows - 3)])
    frame = pandas.DataFrame({"size": rng.normal(size=rows)})
    for code, name in enumerate(COLORS):
        frame[name] = (color == code).astype(dtype)
    frame["new"] = (rng.random(rows) < 0.5).astype(dtype)
    return frame, np.where(color == 1, "yes", "no")


def find_groups(frame: pandas.DataFrame) -> tuple[TableEncoder, OneHotGroups]:
    encoder = TableEncoder.fit(frame)
    return encoder, OneHotGroups.find(encoder, encoder.encode(frame))


def group_names(frame: pandas.DataFrame) -> list[list[str]]:
    encoder, one_hot = find_groups(frame)
    return [[encoder.features[index].column for index in group] for group in one_hot.groups]


@pytest.mark.parametrize("dtype", [int, float, bool])
def test_columns_with_exactly_one_1_in_every_row_are_a_group(dtype: type) -> None:
    assert group_names(one_hot_table(dtype=dtype)[0]) == [COLORS]


def test_dummies_of_pandas_are_a_group() -> None:
    towns = pandas.DataFrame({"town": ["Ulm", "Bonn", "Ulm", "Jena"] * 4, "age": np.arange(16)})
    assert group_names(pandas.get_dummies(towns)) == [["town_Bonn", "town_Jena", "town_Ulm"]]


@pytest.mark.parametrize("case", ["two are set", "none is set", "one is missing", "one is 2"])
def test_one_row_that_is_not_one_hot_prevents_a_group(case: str) -> None:
    frame = one_hot_table(dtype=float)[0]
    row = {"two are set": [1, 1, 0], "none is set": [0, 0, 0], "one is missing": [1, np.nan, 0], "one is 2": [2, 0, 0]}
    frame.loc[7, COLORS] = row[case]
    assert group_names(frame) == []


def test_two_adjacent_groups_are_separate() -> None:
    one, other = one_hot_table(seed=1)[0][COLORS], one_hot_table(seed=2)[0][COLORS].add_suffix("ish")
    assert group_names(pandas.concat([one, other], axis=1)) == [COLORS, [f"{name}ish" for name in COLORS]]


def test_a_flag_before_a_group_does_not_hide_it() -> None:
    assert group_names(one_hot_table()[0].reindex(columns=["new", *COLORS])) == [COLORS]


def test_codes_are_the_index_of_the_1_and_invalid_rows_are_rare_or_missing() -> None:
    frame = one_hot_table(dtype=float)[0]
    encoder, one_hot = find_groups(frame)
    frame.loc[[3, 4, 5], COLORS] = [[1, 1, 0], [0, 0, 0], [0, np.nan, 1]]
    encoded = one_hot.collapse(encoder.encode(frame))
    assert encoded.numbers.shape[1] == 2
    assert encoded.categories[:, 0].tolist()[:6] == [2, 3, 4, RARE, RARE, MISSING]


def token_counts(*estimators: Any) -> list[int]:
    frame, targets = one_hot_table()
    return [len(estimator.fit(frame, targets).preprocessor_.token_columns) for estimator in estimators]


def test_one_hot_columns_become_one_token_except_in_the_papers_models() -> None:
    sizes: dict[str, Any] = {"dim": 8, "depth": 1, "heads": 2, "epochs": 1}
    collapsed = (
        TableTransformerClassifier(ensemble="single", **sizes),
        TabTransformerClassifier(preset="improved", **sizes),
    )
    papers = FTTransformerClassifier(**sizes), TabTransformerClassifier(preset="paper", **sizes)
    assert token_counts(*collapsed) == [3, 3]
    assert token_counts(*papers) == [5, 5]


def test_columns_of_a_given_type_are_not_grouped() -> None:
    frame, targets = one_hot_table()
    model = TableTransformerClassifier(
        ensemble="single", dim=8, depth=1, heads=2, epochs=1, column_types=dict.fromkeys(COLORS, "category")
    )
    assert model.fit(frame, targets).preprocessor_.one_hot.groups == ()


def test_the_columns_of_a_group_share_its_importance() -> None:
    frame, targets = one_hot_table()
    model = TableTransformerClassifier(
        ensemble="single", dim=8, depth=2, heads=2, epochs=30, lr=1e-2, random_state=0
    ).fit(frame, targets)
    importances = model.importances(frame, targets)
    own = [importances.names.index(name) for name in COLORS]
    assert np.ptp(importances.attention[own]) == pytest.approx(0)
    assert importances.attention.sum() <= 1
    assert importances.permutation[own].min() > importances.permutation[importances.names.index("new")]
    maps = model.attention_maps(frame)
    assert maps.shape == (5, 5) and np.ptp(maps[own][:, own]) == pytest.approx(0)


def test_groups_are_saved_and_loaded(tmp_path: Path) -> None:
    frame, targets = one_hot_table()
    model = TableTransformerClassifier(ensemble="single", dim=8, depth=1, heads=2, epochs=2, random_state=0).fit(
        frame, targets
    )
    loaded = TableTransformerClassifier.load(model.save(tmp_path / "model"))
    assert loaded.preprocessor_.one_hot == model.preprocessor_.one_hot
    assert (loaded.predict_proba(frame) == model.predict_proba(frame)).all()


def test_groups_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    frame, targets = one_hot_table()
    TableTransformerClassifier(ensemble="single", dim=8, depth=1, heads=2, epochs=1, verbose=True).fit(frame, targets)
    assert "red … blue: one-hot category in 3 columns" in capsys.readouterr().err

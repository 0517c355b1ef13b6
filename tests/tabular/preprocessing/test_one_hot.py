"""Laws of choices that are told in several columns."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from softlook.tabular import TableTransformerClassifier, TabTransformerClassifier
from softlook.tabular.preprocessing.categorical import MISSING, RARE
from softlook.tabular.preprocessing.one_hot import OneHotGroups
from softlook.tabular.preprocessing.table_encoder import TableEncoder

COLOURS = ["red", "green", "blue"]


def told_apart(rows: int = 60, seed: int = 0, dtype: type = int) -> tuple[pandas.DataFrame, np.ndarray]:
    """A number, a colour told in three columns and a flag beside; the colour decides."""
    dice = np.random.default_rng(seed)
    colour = np.concatenate([np.arange(3), dice.integers(3, size=rows - 3)])
    frame = pandas.DataFrame({"model": dice.normal(size=rows)})
    for code, name in enumerate(COLOURS):
        frame[name] = (colour == code).astype(dtype)
    frame["new"] = (dice.random(rows) < 0.5).astype(dtype)
    return frame, np.where(colour == 1, "yes", "no")


def found(frame: pandas.DataFrame) -> tuple[TableEncoder, OneHotGroups]:
    columns = TableEncoder.fit(frame)
    return columns, OneHotGroups.found(columns, columns.encode(frame))


def names(frame: pandas.DataFrame) -> list[list[str]]:
    columns, choices = found(frame)
    return [[columns.features[place].column for place in group] for group in choices.groups]


@pytest.mark.parametrize("dtype", [int, float, bool])
def test_columns_of_which_one_is_set_in_every_row_are_one_choice(dtype: type) -> None:
    assert names(told_apart(dtype=dtype)[0]) == [COLOURS]


def test_dummies_of_pandas_are_one_choice() -> None:
    words = pandas.DataFrame({"town": ["Ulm", "Bonn", "Ulm", "Jena"] * 4, "age": np.arange(16)})
    assert names(pandas.get_dummies(words)) == [["town_Bonn", "town_Jena", "town_Ulm"]]


@pytest.mark.parametrize("harm", ["two are set", "none is set", "one is missing", "one is 2"])
def test_one_row_that_tells_no_choice_leaves_all_columns_as_they_are(harm: str) -> None:
    frame = told_apart(dtype=float)[0]
    row = {"two are set": [1, 1, 0], "none is set": [0, 0, 0], "one is missing": [1, np.nan, 0], "one is 2": [2, 0, 0]}
    frame.loc[7, COLOURS] = row[harm]
    assert names(frame) == []


def test_two_choices_one_after_the_other_are_told_apart() -> None:
    one, other = told_apart(seed=1)[0][COLOURS], told_apart(seed=2)[0][COLOURS].add_suffix("ish")
    assert names(pandas.concat([one, other], axis=1)) == [COLOURS, [f"{name}ish" for name in COLOURS]]


def test_a_flag_before_a_choice_does_not_hide_it() -> None:
    assert names(told_apart()[0].reindex(columns=["new", *COLOURS])) == [COLOURS]


def test_codes_say_which_one_is_set_and_what_is_no_choice() -> None:
    frame = told_apart(dtype=float)[0]
    columns, choices = found(frame)
    frame.loc[[3, 4, 5], COLOURS] = [[1, 1, 0], [0, 0, 0], [0, np.nan, 1]]
    encoded = choices.collapse(columns.encode(frame))
    assert encoded.numbers.shape[1] == 2
    assert encoded.categories[:, 0].tolist()[:6] == [2, 3, 4, RARE, RARE, MISSING]


@pytest.mark.parametrize("kind", [TableTransformerClassifier, TabTransformerClassifier])
def test_ours_read_a_choice_as_one_token_and_the_papers_models_each_column(kind: type) -> None:
    frame, targets = told_apart()
    ours, paper = (kind(preset=preset, dim=8, depth=1, heads=2, epochs=1) for preset in ("ours", "paper"))
    assert len(ours.fit(frame, targets).preprocessor_.token_columns) == 3
    assert len(paper.fit(frame, targets).preprocessor_.token_columns) == 5


def test_who_says_what_a_column_is_has_it_so() -> None:
    frame, targets = told_apart()
    model = TableTransformerClassifier(
        dim=8, depth=1, heads=2, epochs=1, column_types=dict.fromkeys(COLOURS, "category")
    )
    assert model.fit(frame, targets).preprocessor_.one_hot.groups == ()


def test_importance_is_shared_by_the_columns_of_a_choice_and_adds_up() -> None:
    frame, targets = told_apart()
    model = TableTransformerClassifier(dim=8, depth=2, heads=2, epochs=30, lr=1e-2, random_state=0).fit(frame, targets)
    told = model.importances(frame, targets)
    own = [told.names.index(name) for name in COLOURS]
    assert np.ptp(told.attention[own]) == pytest.approx(0)
    assert told.attention.sum() <= 1
    assert told.permutation[own].min() > told.permutation[told.names.index("new")]
    maps = model.attention_maps(frame)
    assert maps.shape == (5, 5) and np.ptp(maps[own][:, own]) == pytest.approx(0)


def test_a_choice_is_kept_with_the_rest(tmp_path: Path) -> None:
    frame, targets = told_apart()
    model = TableTransformerClassifier(dim=8, depth=1, heads=2, epochs=2, random_state=0).fit(frame, targets)
    back = TableTransformerClassifier.load(model.save(tmp_path / "kept"))
    assert back.preprocessor_.one_hot == model.preprocessor_.one_hot
    assert (back.predict_proba(frame) == model.predict_proba(frame)).all()


def test_a_choice_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    frame, targets = told_apart()
    TableTransformerClassifier(dim=8, depth=1, heads=2, epochs=1, verbose=True).fit(frame, targets)
    assert "red … blue: one choice, told in 3 columns" in capsys.readouterr().err

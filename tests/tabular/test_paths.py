"""Estimators over tables in pieces: paths and frames one after another."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq
import pytest
import torch

from softlook.base.errors import ConfigError, DataError
from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor, TabTransformerRegressor
from tests.tabular.estimators import ALL, small

ROWS = 300


def table(rows: int = ROWS) -> pd.DataFrame:
    dice = np.random.default_rng(0)
    age, city = dice.integers(18, 80, rows), dice.choice(["Oslo", "Rome", "Paris"], rows)
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(dice.random(rows) < 0.1, np.nan, dice.lognormal(10, 1, rows)),
            "city": city,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(dice.integers(0, 2000, rows), unit="D"),
            "buys": ((age > 45) & (city != "Rome")).astype(int),
            "spends": age * 2.5 + (city == "Oslo") * 30,
            "weight": dice.integers(0, 3, rows),
        }
    )


def features(frame: Any) -> Any:
    return frame[["age", "income", "city", "since"]]


def without(frame: Any, *names: str) -> Any:
    return frame.drop(columns=list(names))


def target(kind: type) -> str:
    return "buys" if kind.__name__.endswith("Classifier") else "spends"


def same_model(one: Any, other: Any) -> bool:
    mine, theirs = one.model_.state_dict(), other.model_.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def forms(folder: Path, frame: pd.DataFrame) -> dict[str, Any]:
    """One table in pieces of every sort."""
    frame.to_csv(folder / "all.csv", index=False)
    frame.to_csv(folder / "all.csv.gz", index=False)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "all.parquet", row_group_size=70)
    parts = [frame.iloc[at : at + 90] for at in range(0, len(frame), 90)]
    for place, part in enumerate(parts):
        part.to_csv(folder / f"part-{place}.csv", index=False)
    return {
        "CSV": str(folder / "all.csv"),
        "packed CSV": folder / "all.csv.gz",
        "Parquet": folder / "all.parquet",
        "files": [folder / f"part-{place}.csv" for place in range(len(parts))],
        "a list of pandas": parts,
        "a function that gives polars": lambda: (pl.from_pandas(part) for part in parts),
        "once only": (pa.Table.from_pandas(part, preserve_index=False) for part in parts),
        "a data set of pyarrow": arrow_dataset.dataset(folder / "all.parquet"),
    }


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_path_teaches_what_its_frame_does_bit_for_bit(kind: type, tmp_path: Path) -> None:
    name = target(kind)
    frame = table()[["age", "income", "city", "since", name]]
    frame.to_csv(tmp_path / "all.csv", index=False)
    whole = small(kind).fit(features(frame), frame[name])
    by_path = small(kind).fit(tmp_path / "all.csv", name)
    assert same_model(whole, by_path)
    assert (whole.predict(features(frame)) == by_path.predict(str(tmp_path / "all.csv"))).all()
    assert by_path.score(tmp_path / "all.csv", name) == whole.score(features(frame), frame[name])


def test_every_sort_of_pieces_teaches_the_same(tmp_path: Path) -> None:
    frame = without(table(), "spends", "weight")
    whole = small(TableTransformerClassifier).fit(features(frame), frame["buys"])
    asked = forms(tmp_path, features(frame))
    for name, X in forms(tmp_path, frame).items():
        model = small(TableTransformerClassifier).fit(X, "buys")
        assert same_model(whole, model), name
        assert model.classes_.tolist() == [0, 1] and model.classes_.dtype.kind == "i", name
        found, targets = model.predict_proba(asked[name]), whole.predict_proba(features(frame))
        np.testing.assert_allclose(found, targets, rtol=1e-12, err_msg=name)  # last bits know how many were asked


def test_weights_and_several_targets_are_columns(tmp_path: Path) -> None:
    frame = table()
    frame.to_parquet(tmp_path / "all.parquet")
    kept = without(frame, "buys", "weight", "spends", "income")
    whole = small(TabTransformerRegressor).fit(kept, frame[["spends", "income"]].fillna(0.0), frame["weight"])
    filled = frame.fillna({"income": 0.0})[[*kept.columns, "spends", "income", "weight"]]
    model = small(TabTransformerRegressor).fit([filled], ["spends", "income"], "weight")
    assert same_model(whole, model)
    assert model.predict([filled]).shape == (ROWS, 2)


def test_answers_come_piece_by_piece_and_other_columns_are_left_aside() -> None:
    frame = table()
    model = small(TableTransformerClassifier).fit(features(frame), frame["buys"])
    parts = [frame.iloc[:100], frame.iloc[100:100], frame.iloc[100:]]
    found = list(model.predict_chunks(iter(parts), method="predict_proba"))
    assert [len(part) for part in found] == [100, 200]
    np.testing.assert_allclose(np.concatenate(found), model.predict_proba(features(frame)), rtol=1e-12)
    assert (np.concatenate(list(model.predict_chunks(parts))) == model.predict(features(frame))).all()
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict([frame[["age", "city"]]])


def test_validation_may_be_a_path_too(tmp_path: Path) -> None:
    frame = without(table(), "spends", "weight")
    frame[:200].to_csv(tmp_path / "train.csv", index=False)
    frame[200:].to_csv(tmp_path / "valid.csv", index=False)
    own = features(frame)
    held = (own[200:], frame["buys"][200:])
    whole = small(TableTransformerClassifier).fit(own[:200], frame["buys"][:200], eval_set=held)
    model = small(TableTransformerClassifier).fit(
        tmp_path / "train.csv", "buys", eval_set=(tmp_path / "valid.csv", "buys")
    )
    assert same_model(whole, model) and "val_loss" in model.history_[-1]


# --- tables that do not fit ------------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.mark.parametrize("room", [140_000, 20_000], ids=["rows in memory", "rows on disk"])
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_table_without_room_is_learned_as_well(kind: type, room: int, folders: Path) -> None:
    frame = table(1000)[["age", "income", "city", "since", target(kind)]]
    pieces = [frame.iloc[at : at + 150] for at in range(0, 1000, 150)]
    told = {"memory_limit": room, "epochs": 12, "lr": 5e-3, "batch_size": 64}
    model = small(kind, **told).fit(pieces, target(kind))
    assert model.encoder_.column_types == {"age": "number", "income": "number", "city": "category", "since": "date"}
    assert model.feature_names_in_.tolist() == ["age", "income", "city", "since"]
    assert model.score(pieces, target(kind)) > 0.75
    once = small(kind, **told, time_limit=1e-9).fit((piece for piece in pieces), target(kind))
    twice = small(kind, **told, time_limit=1e-9).fit(lambda: pieces, target(kind))
    assert same_model(once, twice)
    assert not list(folders.iterdir())


def test_rows_that_weigh_nothing_are_not_there(folders: Path) -> None:
    frame = without(table(600), "spends")
    frame["city"] = frame["city"].where(frame["weight"] == 0, "Oslo")
    pieces = [frame.iloc[at : at + 150] for at in range(0, 600, 150)]
    model = small(TableTransformerClassifier, memory_limit=9000, class_weight="balanced").fit(pieces, "buys", "weight")
    assert model.encoder_.describe()[2] == "city: category, always 'Oslo'"


def test_classes_may_weigh_the_same_in_pieces(folders: Path) -> None:
    frame = without(table(600), "spends", "weight")
    pieces = [frame.iloc[at : at + 150] for at in range(0, 600, 150)]
    found = {}
    for weight in (None, "balanced", {1: 50.0}):
        model = small(TableTransformerClassifier, memory_limit=9000, class_weight=weight, epochs=6)
        found[str(weight)] = model.fit(pieces, "buys").predict_proba(pieces)[:, 1].mean()
    assert found["None"] < found["balanced"] < found["{1: 50.0}"]


def test_what_was_learned_may_go_on(folders: Path) -> None:
    frame = without(table(600), "spends", "weight")
    pieces = [frame.iloc[at : at + 150] for at in range(0, 600, 150)]
    model = small(TableTransformerClassifier, memory_limit=9000, warm_start=True).fit(pieces, "buys")
    first, columns = model.history_[-1]["loss"], model.encoder_
    model.fit(pieces, "buys")
    assert model.history_[0]["loss"] < first and model.encoder_ is columns


def test_a_fault_on_the_way_leaves_nothing_behind(folders: Path) -> None:
    frame = without(table(600), "spends", "weight")

    def pieces() -> Iterator[pd.DataFrame]:
        yield frame.iloc[:300]
        assert list(folders.iterdir())
        yield frame.iloc[300:].rename(columns={"city": "town"})

    model = small(TableTransformerClassifier, memory_limit=9000)
    with pytest.raises(ValueError, match="feature names"):
        model.fit(pieces(), "buys")
    assert not list(folders.iterdir()) and not hasattr(model, "model_")


@pytest.mark.parametrize(
    ("X", "y", "weight", "message"),
    [
        ("people.csv", np.zeros(3), None, "y must be the name of its target column"),
        ("people.csv", "b", np.ones(3), "sample_weight must be the name"),
        ("people.csv", "income", None, "there is no column 'income'; there are 'a', 'b'"),
        ("peple.csv", "b", None, "there is no such file"),
        ([], "b", None, "array"),
        (lambda: iter([]), "b", None, "no rows came"),
        (range(3), "b", None, "Expected 2D array"),
        (lambda: [np.zeros((3, 2))], "b", None, "have no names"),
        ([pa.table({"a": [1], "b": [0]}), pa.table({"a": [1], "c": [0]})], "b", None, "a piece has the columns a, c"),
    ],
    ids=range(9),
)
def test_what_cannot_be_learned_from_is_said(
    X: Any, y: Any, weight: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("a,b\n1,0\n2,1\n3,1\n")
    with pytest.raises((ValueError, TypeError), match=message):
        small(TableTransformerClassifier).fit(X, y, weight)


def test_room_is_a_number_of_bytes() -> None:
    with pytest.raises(ConfigError, match=r"memory_limit is a number of bytes above 0; -1 came"):
        small(TableTransformerClassifier, memory_limit=-1).fit([table()], "buys")


def test_a_column_of_words_and_numbers_is_words_in_pieces_too() -> None:
    pieces = [pa.table({"a": [1.0, 2.0] * 20, "y": [0, 1] * 20}), pa.table({"a": ["x", "y"] * 20, "y": [0, 1] * 20})]
    model = small(TableTransformerClassifier).fit(pieces, "y")
    assert model.encoder_.column_types == {"a": "category"}


def test_a_missing_target_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,0\n2,\n")
    with pytest.raises(ValueError, match="Input y contains NaN"):
        small(TableTransformerClassifier).fit(tmp_path / "a.csv", "b")
    with pytest.raises((DataError, ValueError), match="NaN"):
        small(TableTransformerRegressor).fit(tmp_path / "a.csv", "b")


def test_explanations_take_paths_too(tmp_path: Path) -> None:
    frame = table()
    model = small(TableTransformerClassifier, epochs=1).fit(features(frame), frame["buys"])
    frame.to_csv(path := tmp_path / "people.csv", index=False)
    assert (model.explain_rows(path) == model.explain_rows(features(frame))).all()
    assert (model.attention_maps([frame[:100], frame[100:]]) == model.attention_maps(features(frame))).all()
    found, targets = (model.importances(X, y, repeats=1) for X, y in ((path, "buys"), (features(frame), frame["buys"])))
    assert (found.permutation == targets.permutation).all() and (found.attention == targets.attention).all()


def test_rows_to_stop_by_may_have_other_columns_in_their_file(tmp_path: Path) -> None:
    frame = table()
    frame.to_csv(path := tmp_path / "people.csv", index=False)
    apart = small(TableTransformerClassifier).fit(features(frame), frame["buys"], eval_set=(path, "buys"))
    whole = small(TableTransformerClassifier).fit(
        features(frame), frame["buys"], eval_set=(features(frame), frame["buys"])
    )
    assert same_model(apart, whole)


def test_a_whole_table_is_one_piece() -> None:
    frame = table()
    model = small(TableTransformerClassifier, epochs=1).fit(features(frame), frame["buys"])
    (found,) = model.predict_chunks(features(frame))
    assert (found == model.predict(features(frame))).all()


def test_a_table_without_rows_is_told_so_whatever_is_asked(tmp_path: Path) -> None:
    frame = table()
    model = small(TableTransformerClassifier, epochs=1).fit(features(frame), frame["buys"])
    frame[:0].to_csv(path := tmp_path / "people.csv", index=False)
    asked = (
        lambda: model.predict(path),
        lambda: model.score(path, "buys"),
        lambda: model.explain_rows(path),
        lambda: list(model.predict_chunks(path)),
        lambda: model.fit(features(frame), frame["buys"], eval_set=(path, "buys")),
    )
    for ask in asked:
        with pytest.raises(DataError, match="no rows came: the table is empty"):
            ask()


def test_a_weight_in_words_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sample_weight is a column of numbers; 'city' holds"):
        small(TableTransformerClassifier).fit([table()], "buys", sample_weight="city")


def test_weights_of_a_table_too_large_to_be_held_are_taken_without_a_warning() -> None:
    frame = without(table(), "spends").assign(weight=1.5)
    model = small(TableTransformerClassifier, memory_limit=9000, epochs=1, validation_fraction=0.0)
    model.fit([frame], "buys", sample_weight="weight")
    assert model.n_features_in_ == 4  # a warning would have been an error here


def test_a_cell_that_cannot_be_read_is_told_by_its_file_and_line(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    frame = without(table(), "weight", "spends")
    frame.to_csv(good, index=False)
    frame.astype({"age": object}).assign(age=lambda rows: [*rows["age"][:-1], "old"]).to_csv(bad, index=False)
    model = small(TableTransformerClassifier, epochs=1).fit(good, "buys")
    ways = (
        lambda: model.predict(bad),
        lambda: model.predict_proba([bad]),
        lambda: list(model.predict_chunks(str(bad))),
        lambda: model.score(bad, "buys"),
        lambda: small(TableTransformerClassifier, column_types={"age": "number"}).fit(bad, "buys"),
    )
    for ask in ways:
        with pytest.raises(DataError, match=rf"bad\.csv:{ROWS + 1}: column 'age' is to hold numbers; 'old' came"):
            ask()

"""Estimators on chunked tables: paths, and frames one after another."""

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
    rng = np.random.default_rng(0)
    age, city = rng.integers(18, 80, rows), rng.choice(["Oslo", "Rome", "Paris"], rows)
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(rng.random(rows) < 0.1, np.nan, rng.lognormal(10, 1, rows)),
            "city": city,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 2000, rows), unit="D"),
            "buys": ((age > 45) & (city != "Rome")).astype(int),
            "spends": age * 2.5 + (city == "Oslo") * 30,
            "weight": rng.integers(0, 3, rows),
        }
    )


def features(frame: Any) -> Any:
    return frame[["age", "income", "city", "since"]]


def drop_columns(frame: Any, *names: str) -> Any:
    return frame.drop(columns=list(names))


def target_name(estimator_class: type) -> str:
    return "buys" if estimator_class.__name__.endswith("Classifier") else "spends"


def equal_weights(one: Any, other: Any) -> bool:
    first, second = one.model_.state_dict(), other.model_.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def chunked_formats(folder: Path, frame: pd.DataFrame) -> dict[str, Any]:
    """One table in every supported chunked format."""
    frame.to_csv(folder / "all.csv", index=False)
    frame.to_csv(folder / "all.csv.gz", index=False)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "all.parquet", row_group_size=70)
    parts = [frame.iloc[start : start + 90] for start in range(0, len(frame), 90)]
    for index, part in enumerate(parts):
        part.to_csv(folder / f"part-{index}.csv", index=False)
    return {
        "CSV": str(folder / "all.csv"),
        "compressed CSV": folder / "all.csv.gz",
        "Parquet": folder / "all.parquet",
        "list of files": [folder / f"part-{index}.csv" for index in range(len(parts))],
        "list of pandas frames": parts,
        "function that returns polars frames": lambda: (pl.from_pandas(part) for part in parts),
        "one-shot iterator": (pa.Table.from_pandas(part, preserve_index=False) for part in parts),
        "pyarrow dataset": arrow_dataset.dataset(folder / "all.parquet"),
    }


@pytest.mark.parametrize("estimator_class", ALL, ids=lambda estimator_class: estimator_class.__name__)
def test_a_path_gives_bitwise_the_same_model_as_its_frame(estimator_class: type, tmp_path: Path) -> None:
    name = target_name(estimator_class)
    frame = table()[["age", "income", "city", "since", name]]
    frame.to_csv(tmp_path / "all.csv", index=False)
    whole = small(estimator_class).fit(features(frame), frame[name])
    by_path = small(estimator_class).fit(tmp_path / "all.csv", name)
    assert equal_weights(whole, by_path)
    assert (whole.predict(features(frame)) == by_path.predict(str(tmp_path / "all.csv"))).all()
    assert by_path.score(tmp_path / "all.csv", name) == whole.score(features(frame), frame[name])


def test_every_chunked_format_gives_the_same_model(tmp_path: Path) -> None:
    frame = drop_columns(table(), "spends", "weight")
    whole = small(TableTransformerClassifier).fit(features(frame), frame["buys"])
    tables = chunked_formats(tmp_path, features(frame))
    for name, X in chunked_formats(tmp_path, frame).items():
        model = small(TableTransformerClassifier).fit(X, "buys")
        assert equal_weights(whole, model), name
        assert model.classes_.tolist() == [0, 1] and model.classes_.dtype.kind == "i", name
        actual, expected = model.predict_proba(tables[name]), whole.predict_proba(features(frame))
        # the last bits depend on the number of rows in a chunk
        np.testing.assert_allclose(actual, expected, rtol=1e-12, err_msg=name)


def test_sample_weights_and_several_targets_are_given_by_column_name(tmp_path: Path) -> None:
    frame = table()
    frame.to_parquet(tmp_path / "all.parquet")
    remaining = drop_columns(frame, "buys", "weight", "spends", "income")
    whole = small(TabTransformerRegressor).fit(remaining, frame[["spends", "income"]].fillna(0.0), frame["weight"])
    filled = frame.fillna({"income": 0.0})[[*remaining.columns, "spends", "income", "weight"]]
    model = small(TabTransformerRegressor).fit([filled], ["spends", "income"], "weight")
    assert equal_weights(whole, model)
    assert model.predict([filled]).shape == (ROWS, 2)


def test_predictions_are_returned_by_chunk_and_other_columns_are_ignored() -> None:
    frame = table()
    model = small(TableTransformerClassifier).fit(features(frame), frame["buys"])
    parts = [frame.iloc[:100], frame.iloc[100:100], frame.iloc[100:]]
    chunks = list(model.predict_chunks(iter(parts), method="predict_proba"))
    assert [len(chunk) for chunk in chunks] == [100, 200]
    np.testing.assert_allclose(np.concatenate(chunks), model.predict_proba(features(frame)), rtol=1e-12)
    assert (np.concatenate(list(model.predict_chunks(parts))) == model.predict(features(frame))).all()
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict([frame[["age", "city"]]])


def test_eval_set_can_be_given_by_path(tmp_path: Path) -> None:
    frame = drop_columns(table(), "spends", "weight")
    frame[:200].to_csv(tmp_path / "train.csv", index=False)
    frame[200:].to_csv(tmp_path / "valid.csv", index=False)
    X, y = features(frame), frame["buys"]
    whole = small(TableTransformerClassifier).fit(X[:200], y[:200], eval_set=(X[200:], y[200:]))
    model = small(TableTransformerClassifier).fit(
        tmp_path / "train.csv", "buys", eval_set=(tmp_path / "valid.csv", "buys")
    )
    assert equal_weights(whole, model) and "val_loss" in model.history_[-1]


# --- tables that do not fit in memory ---------------------------------------------------------------------------------


@pytest.fixture
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.mark.parametrize("memory_limit", [140_000, 20_000], ids=["rows in memory", "rows on disk"])
@pytest.mark.parametrize("estimator_class", ALL, ids=lambda estimator_class: estimator_class.__name__)
def test_a_table_larger_than_the_memory_limit_is_learned_as_well(
    estimator_class: type, memory_limit: int, temporary_files: Path
) -> None:
    frame = table(1000)[["age", "income", "city", "since", target_name(estimator_class)]]
    chunks = [frame.iloc[start : start + 150] for start in range(0, 1000, 150)]
    params = {"memory_limit": memory_limit, "epochs": 12, "lr": 5e-3, "batch_size": 64}
    model = small(estimator_class, **params).fit(chunks, target_name(estimator_class))
    assert model.encoder_.column_types == {"age": "number", "income": "number", "city": "category", "since": "date"}
    assert model.feature_names_in_.tolist() == ["age", "income", "city", "since"]
    assert model.score(chunks, target_name(estimator_class)) > 0.75
    one_shot = small(estimator_class, **params, time_limit=1e-9).fit(
        (chunk for chunk in chunks), target_name(estimator_class)
    )
    repeatable = small(estimator_class, **params, time_limit=1e-9).fit(lambda: chunks, target_name(estimator_class))
    assert equal_weights(one_shot, repeatable)
    assert not [path for path in temporary_files.iterdir() if not path.name.startswith("torchinductor")]  # torch's own


def test_rows_of_zero_weight_are_ignored(temporary_files: Path) -> None:
    frame = drop_columns(table(600), "spends")
    frame["city"] = frame["city"].where(frame["weight"] == 0, "Oslo")
    chunks = [frame.iloc[start : start + 150] for start in range(0, 600, 150)]
    model = small(TableTransformerClassifier, memory_limit=9000, class_weight="balanced").fit(chunks, "buys", "weight")
    assert model.encoder_.describe()[2] == "city: category, always 'Oslo'"


def test_class_weights_apply_to_chunked_tables(temporary_files: Path) -> None:
    frame = drop_columns(table(600), "spends", "weight")
    chunks = [frame.iloc[start : start + 150] for start in range(0, 600, 150)]
    mean_probability = {}
    for weight in (None, "balanced", {1: 50.0}):
        model = small(TableTransformerClassifier, memory_limit=9000, class_weight=weight, epochs=6)
        mean_probability[str(weight)] = model.fit(chunks, "buys").predict_proba(chunks)[:, 1].mean()
    assert mean_probability["None"] < mean_probability["balanced"] < mean_probability["{1: 50.0}"]


def test_a_warm_start_continues_on_chunked_tables(temporary_files: Path) -> None:
    frame = drop_columns(table(600), "spends", "weight")
    chunks = [frame.iloc[start : start + 150] for start in range(0, 600, 150)]
    model = small(TableTransformerClassifier, memory_limit=9000, warm_start=True).fit(chunks, "buys")
    first, encoder = model.history_[-1]["loss"], model.encoder_
    model.fit(chunks, "buys")
    assert model.history_[0]["loss"] < first and model.encoder_ is encoder


def test_an_error_during_the_fit_leaves_no_files(temporary_files: Path) -> None:
    frame = drop_columns(table(600), "spends", "weight")

    def chunks() -> Iterator[pd.DataFrame]:
        yield frame.iloc[:300]
        assert list(temporary_files.iterdir())
        yield frame.iloc[300:].rename(columns={"city": "town"})

    model = small(TableTransformerClassifier, memory_limit=9000)
    with pytest.raises(ValueError, match="feature names"):
        model.fit(chunks(), "buys")
    assert not list(temporary_files.iterdir()) and not hasattr(model, "model_")


@pytest.mark.parametrize(
    ("X", "y", "weight", "message"),
    [
        ("people.csv", np.zeros(3), None, "y must be the name of its target column"),
        ("people.csv", "b", np.ones(3), "sample_weight must be the name"),
        ("people.csv", "income", None, "there is no column 'income'; columns: 'a', 'b'"),
        ("peple.csv", "b", None, "there is no such file"),
        ([], "b", None, "array"),
        (lambda: iter([]), "b", None, "got no rows"),
        (range(3), "b", None, "Expected 2D array"),
        (lambda: [np.zeros((3, 2))], "b", None, "have no names"),
        ([pa.table({"a": [1], "b": [0]}), pa.table({"a": [1], "c": [0]})], "b", None, "a chunk has the columns a, c"),
    ],
    ids=range(9),
)
def test_invalid_chunked_tables_are_rejected(
    X: Any, y: Any, weight: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("a,b\n1,0\n2,1\n3,1\n")
    with pytest.raises((ValueError, TypeError), match=message):
        small(TableTransformerClassifier).fit(X, y, weight)


def test_a_negative_memory_limit_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"memory_limit: expected bytes > 0; got -1"):
        small(TableTransformerClassifier, memory_limit=-1).fit([table()], "buys")


def test_a_column_of_numbers_in_one_chunk_and_strings_in_another_is_categorical() -> None:
    chunks = [pa.table({"a": [1.0, 2.0] * 20, "y": [0, 1] * 20}), pa.table({"a": ["x", "y"] * 20, "y": [0, 1] * 20})]
    model = small(TableTransformerClassifier).fit(chunks, "y")
    assert model.encoder_.column_types == {"a": "category"}


def test_a_missing_target_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,0\n2,\n")
    with pytest.raises(ValueError, match="Input y contains NaN"):
        small(TableTransformerClassifier).fit(tmp_path / "a.csv", "b")
    with pytest.raises((DataError, ValueError), match="NaN"):
        small(TableTransformerRegressor).fit(tmp_path / "a.csv", "b")


def test_explanations_accept_paths(tmp_path: Path) -> None:
    frame = table()
    model = small(TableTransformerClassifier, epochs=1).fit(features(frame), frame["buys"])
    frame.to_csv(path := tmp_path / "people.csv", index=False)
    assert (model.explain_rows(path) == model.explain_rows(features(frame))).all()
    assert (model.attention_maps([frame[:100], frame[100:]]) == model.attention_maps(features(frame))).all()
    actual, expected = (
        model.importances(X, y, repeats=1) for X, y in ((path, "buys"), (features(frame), frame["buys"]))
    )
    assert (actual.permutation == expected.permutation).all() and (actual.attention == expected.attention).all()


def test_the_file_of_an_eval_set_may_have_other_columns(tmp_path: Path) -> None:
    frame = table()
    frame.to_csv(path := tmp_path / "people.csv", index=False)
    by_path = small(TableTransformerClassifier).fit(features(frame), frame["buys"], eval_set=(path, "buys"))
    whole = small(TableTransformerClassifier).fit(
        features(frame), frame["buys"], eval_set=(features(frame), frame["buys"])
    )
    assert equal_weights(by_path, whole)


def test_a_table_in_memory_is_one_chunk() -> None:
    frame = table()
    model = small(TableTransformerClassifier, epochs=1).fit(features(frame), frame["buys"])
    (chunk,) = model.predict_chunks(features(frame))
    assert (chunk == model.predict(features(frame))).all()


def test_every_method_rejects_a_table_without_rows(tmp_path: Path) -> None:
    frame = table()
    model = small(TableTransformerClassifier, epochs=1).fit(features(frame), frame["buys"])
    frame[:0].to_csv(path := tmp_path / "people.csv", index=False)
    calls = (
        lambda: model.predict(path),
        lambda: model.score(path, "buys"),
        lambda: model.explain_rows(path),
        lambda: list(model.predict_chunks(path)),
        lambda: model.fit(features(frame), frame["buys"], eval_set=(path, "buys")),
    )
    for call in calls:
        with pytest.raises(DataError, match="the table is empty: got no rows"):
            call()


def test_a_sample_weight_column_of_strings_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sample_weight must be a numeric column; 'city' holds"):
        small(TableTransformerClassifier).fit([table()], "buys", sample_weight="city")


def test_sample_weights_of_a_table_larger_than_the_memory_limit_raise_no_warning() -> None:
    frame = drop_columns(table(), "spends").assign(weight=1.5)
    model = small(TableTransformerClassifier, memory_limit=9000, epochs=1, validation_fraction=0.0)
    model.fit([frame], "buys", sample_weight="weight")
    assert model.n_features_in_ == 4  # pytest turns warnings into errors


def test_an_error_names_the_file_and_line_of_an_invalid_cell(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    frame = drop_columns(table(), "weight", "spends")
    frame.to_csv(good, index=False)
    frame.astype({"age": object}).assign(age=lambda rows: [*rows["age"][:-1], "old"]).to_csv(bad, index=False)
    model = small(TableTransformerClassifier, epochs=1).fit(good, "buys")
    calls = (
        lambda: model.predict(bad),
        lambda: model.predict_proba([bad]),
        lambda: list(model.predict_chunks(str(bad))),
        lambda: model.score(bad, "buys"),
        lambda: small(TableTransformerClassifier, column_types={"age": "number"}).fit(bad, "buys"),
    )
    for call in calls:
        with pytest.raises(DataError, match=rf"bad\.csv:{ROWS + 1}: column 'age': expected numbers, got 'old'"):
            call()

"""Prediction on table files with saved estimators."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from softlook.base.errors import ConfigError
from softlook.recipes.tabular.predict import load_predictor
from softlook.tabular import TableTransformerClassifier
from softlook.tabular.io.files import read_table
from tests.recipes.small import people


def read_people(path: Path) -> tuple[pa.Table, list[str]]:
    """Features and classes."""
    table = pa.concat_tables(read_table(people(path)))
    return table.drop_columns(["id", "buys", "spent"]), table.column("buys").to_pylist()


def test_a_saved_estimator_can_be_loaded_for_prediction(tmp_path: Path) -> None:
    X, y = read_people(tmp_path / "people.csv")
    estimator = TableTransformerClassifier(
        ensemble="single", dim=8, depth=1, heads=2, epochs=2, device="cpu", random_state=0
    )
    estimator.fit(X, y).save(tmp_path / "saved")
    predictor = load_predictor(tmp_path / "saved")
    chunks = predictor.read_chunks(tmp_path / "people.csv")
    predictions = np.concatenate([predictor.predict(chunk).values for chunk in chunks])
    assert predictor.target == ("prediction",) and (predictions == estimator.predict(X)).all()


def test_an_estimator_that_is_only_pretrained_cannot_be_loaded_for_prediction(tmp_path: Path) -> None:
    X, _ = read_people(tmp_path / "people.csv")
    estimator = TableTransformerClassifier(ensemble="single", dim=8, depth=1, heads=2, device="cpu", random_state=0)
    estimator.pretrain(X, epochs=1).save(tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"is pretrained, but not fitted to labels\. .*\.fit\(X, y\)"):
        load_predictor(tmp_path / "saved")


def test_several_labels_per_row_cannot_be_loaded_for_prediction(tmp_path: Path) -> None:
    X, y = read_people(tmp_path / "people.csv")
    estimator = TableTransformerClassifier(ensemble="single", dim=8, depth=1, heads=2, epochs=1, random_state=0)
    estimator.fit(X, np.stack([np.array(y) == y[0]] * 2, 1)).save(tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"predicts several labels per row\. .*load\(.*\)\.predict\(X\)"):
        load_predictor(tmp_path / "saved")

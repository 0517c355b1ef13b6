"""Estimators are restored from folders and pickles bit for bit."""

import io
import json
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest

from softlook import weights
from softlook.base.errors import ConfigError, DiskError, WeightsError
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    Hyperparameters,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
    load,
)
from tests.tabular.estimators import ALL, flip_bit, mixed_table, small

X, Y = mixed_table()
TABLE = pd.DataFrame(
    {
        "number": np.where(np.arange(len(X)) % 7, X[:, 0].astype(float), np.nan),
        "color": X[:, 2].astype(str),
        "date": pd.date_range("2020-01-01", periods=len(X), freq="17D"),
        "flag": Y,
        "text": [f"the {color} one, number {index}, in a few words" for index, color in enumerate(X[:, 2])],
    }
)


def predict(model: Any) -> np.ndarray:
    return model.predict_proba(TABLE) if hasattr(model, "predict_proba") else model.predict(TABLE)


PAPERS = (
    (FTTransformerClassifier, "paper"),
    (FTTransformerRegressor, "paper"),
    (TabTransformerClassifier, "paper"),
    (TabTransformerRegressor, "paper"),
)
IMPROVED = (
    (TableTransformerClassifier, "default"),
    (TableTransformerRegressor, "default"),
    (TabTransformerClassifier, "improved"),
    (TabTransformerRegressor, "improved"),
)


@pytest.mark.parametrize(("estimator_class", "preset"), (*PAPERS, *IMPROVED))
def test_a_loaded_estimator_is_bitwise_equal(estimator_class: Any, preset: str, tmp_path: Path) -> None:
    model = small(estimator_class, preset=preset).fit(TABLE, Y)
    for loaded in (estimator_class.load(model.save(tmp_path / "model")), load(tmp_path / "model")):
        assert type(loaded) is estimator_class
        np.testing.assert_array_equal(predict(loaded), predict(model))
        assert loaded.get_params() == model.get_params()
        assert loaded.history_ == model.history_ and loaded.n_iter_ == model.n_iter_
        assert loaded.feature_names_in_.tolist() == list(TABLE.columns)
        assert loaded.encoder_.describe() == model.encoder_.describe()


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 7]], ids=str)
def test_labels_keep_their_dtype(labels: list[Any], tmp_path: Path) -> None:
    model = small(TableTransformerClassifier).fit(X, np.array(labels)[Y.astype(int)])
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("estimator_class", ALL)
def test_pickled_estimators_predict_bitwise_equal(estimator_class: type) -> None:
    model, file = small(estimator_class).fit(TABLE, Y), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for loaded in (joblib.load(file), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(predict(loaded), predict(model))


def test_a_saved_folder_holds_no_pickle_and_the_model_can_be_loaded_alone(tmp_path: Path) -> None:
    model = small(TableTransformerRegressor).fit(TABLE, Y)
    folder = model.save(tmp_path / "model")
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    assert weights.load(folder).config == model.model_.config  # pyright: ignore[reportAttributeAccessIssue]


def test_parameters_of_unusual_types_are_restored(tmp_path: Path) -> None:
    params = {
        "class_weight": {0: 1.0, 1: 2},
        "column_types": {"x2": "category"},
        "lr": np.float64(0.01),
        "dim": np.int64(8),
    }
    model = small(TableTransformerClassifier, preset=Hyperparameters(model="TableTransformer"), **params)
    loaded = load(model.fit(X, Y.astype(int)).save(tmp_path / "model"))
    assert loaded.class_weight == {0: 1.0, 1: 2} and loaded.column_types == {"x2": "category"}
    assert loaded.preset == Hyperparameters(model="TableTransformer") and loaded.dim == 8
    np.testing.assert_array_equal(loaded.fit(X, Y.astype(int)).predict_proba(X), model.predict_proba(X))


def test_a_numpy_random_state_is_not_saved(tmp_path: Path) -> None:
    model = small(TableTransformerClassifier, random_state=np.random.RandomState(0)).fit(X, Y)
    assert load(model.save(tmp_path / "model")).random_state is None


def test_a_parameter_that_cannot_be_saved_is_named_in_the_error(tmp_path: Path) -> None:
    model = small(TableTransformerClassifier).fit(X, Y).set_params(verbose=object())
    with pytest.raises(ConfigError, match="verbose is a object, which cannot be saved"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_saving_overwrites_nothing(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="already exists, and softlook overwrites nothing"):
        small(TableTransformerClassifier).fit(X, Y).save(tmp_path)


@pytest.mark.parametrize("file", ["estimator.json", "preprocessor.safetensors", "model.safetensors"])
def test_a_flipped_bit_is_detected(file: str, tmp_path: Path) -> None:
    flip_bit(small(TableTransformerClassifier).fit(X, Y).save(tmp_path / "model") / file)
    with pytest.raises(WeightsError, match=f"{file} is not what was saved"):
        load(tmp_path / "model")


def test_a_folder_of_another_content_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"has no estimator\.json"):
        load(tmp_path)
    small(TableTransformerClassifier).fit(X, Y).save(tmp_path / "model")
    with pytest.raises(WeightsError, match="expected a TabTransformerClassifier, got a TableTransformerClassifier"):
        TabTransformerClassifier.load(tmp_path / "model")


def test_a_folder_cannot_name_other_code(tmp_path: Path) -> None:
    from softlook.weights.manifest import write_manifest  # noqa: PLC0415  (only this test forges a folder)

    path = small(TableTransformerClassifier).fit(X, Y).save(tmp_path / "model") / "estimator.json"
    content = json.loads(path.read_text())
    for change, message in (
        ({"estimator": "os.system"}, "got 'os.system'"),
        ({"parameters": {"_fit": 1}}, "_fit"),
        ({"hyperparameters": {"code": 1}}, "code"),
        ({"target": {}}, "problem"),
    ):
        path.write_text(json.dumps(content | change))
        write_manifest(path.parent)
        with pytest.raises(WeightsError, match=message):
            load(tmp_path / "model")


def test_an_estimator_that_is_not_fitted_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        small(TableTransformerClassifier).save(tmp_path / "model")

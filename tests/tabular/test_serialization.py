"""Estimators on disk and in pickles come back as they were."""

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
    Hyperparameters,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    load,
)
from tests.tabular.estimators import ALL, flip_bit, mixed_table, small

X, Y = mixed_table()
TABLE = pd.DataFrame(
    {
        "number": np.where(np.arange(len(X)) % 7, X[:, 0].astype(float), np.nan),
        "word": X[:, 2].astype(str),
        "when": pd.date_range("2020-01-01", periods=len(X), freq="17D"),
        "truth": Y,
        "text": [f"the {word} one, number {place}, says a few words" for place, word in enumerate(X[:, 2])],
    }
)


def predict(model: Any) -> np.ndarray:
    return model.predict_proba(TABLE) if hasattr(model, "predict_proba") else model.predict(TABLE)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("preset", ["ours", "paper"])
def test_a_saved_estimator_comes_back_to_the_bit(kind: type, preset: str, tmp_path: Path) -> None:
    model = small(kind, preset=preset).fit(TABLE, Y)
    for again in (kind.load(model.save(tmp_path / "one")), load(tmp_path / "one")):
        assert type(again) is kind
        np.testing.assert_array_equal(answer(again), answer(model))
        assert again.get_params() == model.get_params()
        assert again.history_ == model.history_ and again.n_iter_ == model.n_iter_
        assert again.feature_names_in_.tolist() == list(TABLE.columns)
        assert again.encoder_.describe() == model.encoder_.describe()


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 7]], ids=str)
def test_labels_keep_their_kind(labels: list[Any], tmp_path: Path) -> None:
    model = small(TableTransformerClassifier).fit(X, np.array(labels)[Y.astype(int)])
    again = load(model.save(tmp_path / "one"))
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("kind", ALL)
def test_pickle_and_joblib_give_back_the_same_bits(kind: type) -> None:
    model, file = small(kind).fit(TABLE, Y), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for again in (joblib.load(file), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(answer(again), answer(model))


def test_nothing_in_the_folder_is_a_pickle_and_the_model_alone_can_be_read(tmp_path: Path) -> None:
    model = small(TableTransformerRegressor).fit(TABLE, Y)
    folder = model.save(tmp_path / "one")
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    assert weights.load(folder).config == model.model_.config  # pyright: ignore[reportAttributeAccessIssue]


def test_odd_parameters_come_back_too(tmp_path: Path) -> None:
    told = {
        "class_weight": {0: 1.0, 1: 2},
        "column_types": {"x2": "category"},
        "lr": np.float64(0.01),
        "dim": np.int64(8),
    }
    model = small(TableTransformerClassifier, preset=Hyperparameters(model="TableTransformer"), **told)
    again = load(model.fit(X, Y.astype(int)).save(tmp_path / "one"))
    assert again.class_weight == {0: 1.0, 1: 2} and again.column_types == {"x2": "category"}
    assert again.hparams == Hyperparameters(model="TableTransformer") and again.dim == 8
    np.testing.assert_array_equal(again.fit(X, Y.astype(int)).predict_proba(X), model.predict_proba(X))


def test_dice_that_stand_somewhere_are_not_kept(tmp_path: Path) -> None:
    model = small(TableTransformerClassifier, random_state=np.random.RandomState(0)).fit(X, Y)
    assert load(model.save(tmp_path / "one")).random_state is None


def test_what_cannot_be_written_down_is_named(tmp_path: Path) -> None:
    model = small(TableTransformerClassifier).fit(X, Y).set_params(verbose=object())
    with pytest.raises(ConfigError, match="verbose is a object, which cannot be written down"):
        model.save(tmp_path / "one")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="exists already"):
        small(TableTransformerClassifier).fit(X, Y).save(tmp_path)


@pytest.mark.parametrize("file", ["estimator.json", "columns.safetensors", "model.safetensors"])
def test_a_changed_byte_is_noticed(file: str, tmp_path: Path) -> None:
    flip_bit(small(TableTransformerClassifier).fit(X, Y).save(tmp_path / "one") / file)
    with pytest.raises(WeightsError, match=f"{file} is not what was saved"):
        load(tmp_path / "one")


def test_a_folder_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"holds no estimator\.json"):
        load(tmp_path)
    small(TableTransformerClassifier).fit(X, Y).save(tmp_path / "one")
    with pytest.raises(WeightsError, match="holds a FTTransformerClassifier, and no TabTransformerClassifier"):
        TabTransformerClassifier.load(tmp_path / "one")


def test_a_folder_can_name_no_other_code(tmp_path: Path) -> None:
    from softlook.weights.manifest import write_manifest  # noqa: PLC0415  (only here is a folder forged)

    path = small(TableTransformerClassifier).fit(X, Y).save(tmp_path / "one") / "estimator.json"
    content = json.loads(path.read_text())
    for change, words in (
        ({"estimator": "os.system"}, "names 'os.system'"),
        ({"parameters": {"_keep": 1}}, "_keep"),
        ({"preset": {"code": 1}}, "code"),
        ({"targets": {}}, "kind"),
    ):
        path.write_text(json.dumps(content | change))
        write_manifest(path.parent)
        with pytest.raises(WeightsError, match=words):
            load(tmp_path / "one")


def test_what_has_learned_nothing_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        small(TableTransformerClassifier).save(tmp_path / "one")

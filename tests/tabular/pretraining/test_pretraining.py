"""Pretraining on unlabelled rows: pretext tasks, the linear probe, fine-tuning and serialization."""

import copy
import io
import json
import math
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from softlook.base.errors import ConfigError, DataError, WeightsError
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
    load,
)
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.pretraining.linear_probe import contextual_cells, embed_cells
from softlook.tabular.pretraining.pretext_tasks import MaskedCells, cells_differ, sample_corruption
from softlook.weights.manifest import write_manifest
from tests.tabular.estimators import ALL, CLASSIFIERS, flip_bit, small


def redundant_table(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """A table whose columns all hold the same information; one has missing cells."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 4, rows)
    number = np.where(rng.random(rows) < 0.1, np.nan, code + 0.1 * rng.standard_normal(rows))
    return pd.DataFrame({"number": number, "group": np.array(list("abcd"))[code], "copy": np.array(list("wxyz"))[code]})


X = redundant_table()
Y = (X["group"].isin(["a", "d"])).to_numpy()


def pretrained(
    estimator_class: type = TableTransformerClassifier, *, task: str = "mlm", epochs: int = 2, **params: Any
) -> Any:
    return small(estimator_class, **({"epochs": None} | params)).pretrain(X, task=task, epochs=epochs)


def predict(model: Any) -> np.ndarray:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def test_masked_cells_are_replaced_by_values_of_the_same_column_and_others_stay() -> None:
    numbers = torch.arange(40.0).view(20, 2)
    numbers[::3, 0] = torch.nan
    rows = TableTensors(numbers, torch.arange(60).view(20, 3))
    corruption = sample_corruption(rows, 0.5, torch.Generator().manual_seed(0))
    corrupted = rows.replace_cells(corruption.mask, corruption.replacements)
    for before, after in zip(rows.categories.T.tolist(), corrupted.categories.T.tolist(), strict=True):
        assert set(after) <= set(before)
    changed = cells_differ(rows, corrupted)
    assert 0.3 < changed.float().mean() < 0.6
    assert not changed[~corruption.mask].any(), "only masked cells may change"
    unchanged = corruption.mask & ~changed
    assert unchanged.sum() > 0 and not cells_differ(rows, rows).any(), "equal values and missing cells do not differ"


def test_the_label_of_a_masked_number_is_its_bin_or_missing() -> None:
    model = pretrained().fit(X, Y).model_
    task = MaskedCells(model, TableTensors(torch.linspace(0, 1, 160)[:, None], torch.zeros(160, 2).long()))
    labels = task.labels(TableTensors(torch.tensor([[0.0], [torch.nan], [0.5], [1.0]]), torch.full((4, 2), 3)))
    assert labels[:, 0].tolist() == [1, 0, 8, 16] or labels[:, 0].tolist() == [1, 0, 9, 16]
    assert labels[:, 1:].tolist() == [[3, 3]] * 4


@pytest.mark.parametrize(
    ("estimator_class", "params"),
    [
        (TableTransformerClassifier, {}),
        (TableTransformerClassifier, {"n_members": 2}),
        (TableTransformerClassifier, {"depth": 1}),
        (FTTransformerClassifier, {}),
    ],
)
def test_the_linear_probe_reads_the_contextual_states_of_the_cells(
    estimator_class: type, params: dict[str, Any]
) -> None:
    model: Any = pretrained(estimator_class, **params).fit(X, Y).model_.eval()
    rows = TableTensors(torch.randn(6, 1), torch.full((6, 2), 2))
    is_paper = estimator_class is FTTransformerClassifier
    if is_paper:  # it has no embedding of missing numbers, and so one more category
        rows = TableTensors(rows.numbers, torch.tensor([[2, 2, 0]] * 6))
    probe = model.linear_skip(rows.numbers, rows.categories, contextual_cells(model, embed_cells(model, rows)))
    bias = model.head.bias if is_paper else model.head_bias
    outputs = model(rows.numbers, rows.categories).view(6, -1, 1)
    torch.testing.assert_close(outputs, (probe + bias).expand_as(outputs))


@pytest.mark.parametrize("estimator_class", CLASSIFIERS)
def test_masked_cells_are_predicted_better_than_by_chance(estimator_class: type) -> None:
    history = pretrained(estimator_class, epochs=12, batch_size=32, lr=5e-3).pretrained_.history
    missing = -0.1 * math.log(0.1) - 0.9 * math.log(0.9)
    # of numbers, the blocks of a TabTransformer see only whether they are missing
    number = missing + 0.9 * math.log(16) if estimator_class is TableTransformerClassifier else missing
    assert min(epoch["val_loss"] for epoch in history) < 0.8 * (2 * math.log(4) + number) / 3


@pytest.mark.parametrize("estimator_class", CLASSIFIERS)
def test_replaced_cells_are_detected_better_than_by_chance(estimator_class: type) -> None:
    history = pretrained(estimator_class, task="rtd", epochs=16, batch_size=32, lr=5e-3).pretrained_.history
    fraction = 0.3 * 3 / 4  # of the replaced cells, those that differ
    chance = -fraction * math.log(fraction) - (1 - fraction) * math.log(1 - fraction)
    assert min(epoch["val_loss"] for epoch in history) < 0.93 * chance


@pytest.mark.parametrize("estimator_class", ALL)
@pytest.mark.parametrize("task", ["mlm", "rtd"])
def test_with_few_labels_fit_keeps_the_pretrained_weights(estimator_class: type, task: str) -> None:
    model = pretrained(estimator_class, task=task).fit(X[:40], Y[:40])
    weights, before = model.model_.state_dict(), model.pretrained_.weights
    assert before and all((weights[name] == tensor).all() for name, tensor in before.items())
    assert predict(model).std() > 0.1


def test_every_fit_starts_from_the_pretrained_weights() -> None:
    model = pretrained()
    first = predict(model.fit(X[:40], Y[:40]))
    again = predict(model.fit(X[40:90], ~Y[40:90]).fit(X[:40], Y[:40]))
    np.testing.assert_array_equal(first, again)


def test_with_an_eval_set_all_layers_are_fine_tuned() -> None:
    model = pretrained().set_params(epochs=3).fit(X[:60], Y[:60], eval_set=(X[60:], Y[60:]))
    weights = model.model_.state_dict()
    assert len(model.history_) == 3 and all("val_loss" in epoch for epoch in model.history_[-1:])
    assert model.score(X, Y) >= pretrained().fit(X[:60], Y[:60]).score(X, Y) - 0.05
    assert set(weights) >= set(model.pretrained_.weights)


@pytest.mark.parametrize("estimator_class", CLASSIFIERS)
def test_the_same_random_state_gives_the_same_predictions(estimator_class: type) -> None:
    one, other = (predict(pretrained(estimator_class).fit(X[:40], Y[:40])) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_fit_uses_the_preprocessing_of_pretrain() -> None:
    few = X[X["group"] != "a"]
    model = small(TableTransformerClassifier, epochs=None).pretrain(few, epochs=1).fit(X, Y)
    assert model.encoder_.column_types == {"number": "number", "group": "category", "copy": "category"}
    encoded = model.encoder_.encode(X).categories
    assert (encoded[X["group"] == "a"] == 1).all(), "a category that only labelled rows have is unseen"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (X.drop(columns="copy"), "the columns are not those of pretrain: 'copy' missing"),
        (X.assign(more=1), "the columns are not those of pretrain: 'more' new"),
        (X[["group", "number", "copy"]], "the columns are not those of pretrain: their order differs"),
    ],
    ids=["one fewer", "one more", "different order"],
)
def test_different_columns_are_rejected_in_one_line(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        pretrained(epochs=1).fit(frame, Y)
    assert "\n" not in str(error.value)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"task: expected 'mlm' \(masked cells\) or 'rtd' .*; got 'gpt'"):
        pretrained(task="gpt")
    with pytest.raises(ConfigError, match=r"corruption_rate: expected a number between 0 and 1; got 1\.5"):
        small(TableTransformerClassifier).pretrain(X, corruption_rate=1.5)
    with pytest.raises(ConfigError, match="epochs: expected an integer >= 1; got 0"):
        pretrained(epochs=0)
    with pytest.raises(ConfigError, match="dim was 16 in pretrain, and is 32 now"):
        pretrained().set_params(dim=32).fit(X, Y)
    with pytest.raises(ConfigError, match="attends to categories only, and this table has none"):
        small(TabTransformerClassifier).pretrain(X[["number"]].dropna())


COLUMN_TYPES, ORDER = {"copy": "category"}, {"group": list("abcd")}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            {},
            {"column_types": {"group": "text"}},
            "column_types was {} in pretrain, and is {'group': 'text'} now. Use the same value",
        ),
        (
            {"column_types": COLUMN_TYPES},
            {"column_types": None},
            "column_types was {'copy': 'category'} in pretrain, and is {} now",
        ),
        (
            {},
            {"ordinal_categories": ORDER},
            r"ordinal_categories was {} in pretrain, and is {'group': \['a', 'b', 'c', 'd'\]} now",
        ),
        ({"ordinal_categories": ORDER}, {"ordinal_categories": {"group": list("dcba")}}, "call pretrain again"),
    ],
    ids=["additional type", "removed type", "additional order", "different order"],
)
def test_column_types_and_orders_must_not_change_after_pretrain(
    before: dict[str, Any], after: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = pretrained(epochs=1, **before).set_params(**after)
    X.assign(target=Y).to_parquet(tmp_path / "rows.parquet")
    for rows, target in ((X, Y), (str(tmp_path / "rows.parquet"), "target")):
        with pytest.raises(ConfigError, match=message):
            model.set_params(memory_limit=1000).fit(rows, target)


def test_columns_may_be_given_by_index_or_name() -> None:
    model = pretrained(epochs=1, column_types={2: "category"}, ordinal_categories={1: tuple("abcd")})
    model.set_params(column_types=COLUMN_TYPES, ordinal_categories=ORDER).fit(X[:40], Y[:40])
    assert model.encoder_.column_types["group"] == "ordinal"


def test_a_pretrained_estimator_is_not_fitted(tmp_path: Path) -> None:
    model = pretrained().fit(X, Y).pretrain(X, epochs=1)
    for one in (model, TableTransformerClassifier.load(model.save(tmp_path / "model"))):
        with pytest.raises(NotFittedError):
            one.predict(X)


def test_a_clone_discards_the_pretrained_weights_and_a_copy_keeps_them() -> None:
    model = pretrained()
    assert not hasattr(clone(model), "pretrained_")
    copied = copy.deepcopy(model)
    np.testing.assert_array_equal(predict(copied.fit(X[:40], Y[:40])), predict(model.fit(X[:40], Y[:40])))


@pytest.mark.parametrize("estimator_class", [TableTransformerRegressor, TabTransformerClassifier])
def test_pickles_and_folders_keep_the_pretrained_weights(estimator_class: Any, tmp_path: Path) -> None:
    model, file = pretrained(estimator_class), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    expected = predict(model.fit(X[:40], Y[:40]))
    for loaded in (joblib.load(file), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(predict(loaded.fit(X[:40], Y[:40])), expected)
    fitted: Any = estimator_class.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(predict(fitted), expected)
    other = predict(model.fit(X[:60], Y[:60]))
    assert (other != expected).any()
    np.testing.assert_array_equal(predict(fitted.fit(X[:60], Y[:60])), other)


PAPERS = (FTTransformerClassifier, TabTransformerClassifier, FTTransformerRegressor, TabTransformerRegressor)


@pytest.mark.parametrize(
    ("estimator_class", "params"),
    [
        *((one, {}) for one in ALL),
        *((one, {"preset": "paper"}) for one in PAPERS),
        *((one, {"column_types": COLUMN_TYPES, "ordinal_categories": ORDER}) for one in ALL),
    ],
)
def test_a_loaded_pretrained_estimator_is_fitted_bitwise_equal(
    estimator_class: Any, params: dict[str, Any], tmp_path: Path
) -> None:
    model = pretrained(estimator_class, task="rtd", **params)
    loaded: Any = estimator_class.load(model.save(tmp_path / "once"))
    assert loaded.get_params() == model.get_params() and loaded.encoder_.describe() == model.encoder_.describe()
    assert loaded.feature_names_in_.tolist() == list(X.columns)
    assert (loaded.pretrained_.task, loaded.pretrained_.history) == ("rtd", model.pretrained_.history)
    twice = estimator_class.load(loaded.save(tmp_path / "twice"))
    for eval_set in ({}, {"eval_set": (X[60:], Y[60:])}):
        expected = predict(model.set_params(epochs=2 if eval_set else None).fit(X[:40], Y[:40], **eval_set))
        for one in (loaded, twice):
            one.set_params(epochs=model.epochs)
            np.testing.assert_array_equal(predict(one.fit(X[:40], Y[:40], **eval_set)), expected)


def test_tables_of_only_numbers_or_only_categories_are_saved_and_loaded(tmp_path: Path) -> None:
    for index, names in enumerate((["number"], ["group", "copy"])):
        model = small(TableTransformerClassifier, epochs=None).pretrain(X[names], epochs=1)
        loaded = load(model.save(tmp_path / str(index)))
        first, second = (one.fit(X[names][:40], Y[:40]).predict_proba(X[names]) for one in (model, loaded))
        np.testing.assert_array_equal(first, second)


def test_a_loaded_estimator_rejects_changed_parameters(tmp_path: Path) -> None:
    loaded = load(pretrained(ordinal_categories=ORDER).save(tmp_path / "model"))
    with pytest.raises(ConfigError, match="depth was 2 in pretrain, and is 1 now"):
        loaded.set_params(depth=1).fit(X, Y)
    with pytest.raises(ConfigError, match="ordinal_categories was .* in pretrain, and is {} now"):
        loaded.set_params(depth=2, ordinal_categories=None).fit(X, Y)


@pytest.mark.parametrize("file", ["estimator.json", "preprocessor.safetensors", "pretrained.safetensors"])
def test_a_flipped_bit_is_detected(file: str, tmp_path: Path) -> None:
    path = pretrained(epochs=1).save(tmp_path / "model") / file
    assert {one.suffix for one in path.parent.iterdir()} == {".json", ".safetensors"}, "nothing is pickled"
    flip_bit(path)
    with pytest.raises(WeightsError, match=f"{file} is not what was saved"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 10**7}, "must have shape .* by the config, got .* Config and weights belong to different models"),
        ({"depth": 3}, "does not match the model: missing 'blocks.2"),
        ({"depth": 10**9}, "depth is 1,000,000,000; the maximum is"),
        ({"heads": -1}, "cannot be built"),
        ({"code": 1}, "code"),
    ],
    ids=str,
)
def test_weights_of_another_model_are_rejected(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = pretrained(epochs=1).save(tmp_path / "model") / "estimator.json"
    content = json.loads(path.read_text())
    content["pretrained"]["hyperparameters"] |= change
    path.write_text(json.dumps(content))
    write_manifest(path.parent)
    with pytest.raises(WeightsError, match=message):
        load(tmp_path / "model")


def test_a_time_limit_allows_at_least_one_step() -> None:
    model = small(TableTransformerClassifier, time_limit=1e-6, epochs=None).pretrain(X)
    assert len(model.pretrained_.history) == 1


def test_progress_is_printed_if_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    pretrained(verbose=True, epochs=1)
    printed = capsys.readouterr().err
    assert "number: number, 9 % missing" in printed and "epoch 1: loss" in printed


def test_a_table_can_be_given_by_path(tmp_path: Path) -> None:
    X.to_parquet(tmp_path / "rows.parquet")
    model = small(TableTransformerClassifier, epochs=None).pretrain(str(tmp_path / "rows.parquet"), epochs=1)
    assert model.encoder_.names == ("number", "group", "copy")
    assert model.fit(X[:40], Y[:40]).score(X, Y) > 0.5

"""Rows without labels: the puzzles they set, what is learned from them, and how fit goes on from there."""

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
from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor, TabTransformerClassifier, load
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.pretraining.linear_probe import contextual_cells, embed_cells
from softlook.tabular.pretraining.pretext_tasks import MaskedCells, cells_differ, sample_corruption
from softlook.weights.manifest import write_manifest
from tests.tabular.estimators import ALL, CLASSIFIERS, flip_bit, small


def alike(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """A table whose columns all tell the same, one with gaps."""
    dice = np.random.default_rng(seed)
    kind = dice.integers(0, 4, rows)
    number = np.where(dice.random(rows) < 0.1, np.nan, kind + 0.1 * dice.standard_normal(rows))
    return pd.DataFrame({"number": number, "kind": np.array(list("abcd"))[kind], "twin": np.array(list("wxyz"))[kind]})


X = alike()
Y = (X["kind"].isin(["a", "d"])).to_numpy()


def begun(kind: type = TableTransformerClassifier, *, task: str = "mlm", epochs: int = 2, **told: Any) -> Any:
    return small(kind, **({"epochs": None} | told)).pretrain(X, task=task, epochs=epochs)


def predict(model: Any) -> np.ndarray:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def sample_rows() -> TableTensors:
    numbers = torch.arange(40.0).view(20, 2)
    numbers[::3, 0] = torch.nan
    return TableTensors(numbers, torch.arange(60).view(20, 3))


def test_replaced_cells_are_other_rows_values_of_the_same_column_and_the_others_stay() -> None:
    rows = sample_rows()
    drawn = sample_corruption(rows, 0.5, torch.Generator().manual_seed(0))
    new = rows.replace_cells(drawn.select_hyperparameters, drawn.others)
    for before, after in zip(rows.categories.T.tolist(), new.categories.T.tolist(), strict=True):
        assert set(after) <= set(before)
    changed = cells_differ(rows, new)
    assert 0.3 < changed.float().mean() < 0.6
    assert not changed[~drawn.select_hyperparameters].any(), "what was not chosen is as it was"
    twice = drawn.select_hyperparameters & ~changed
    assert (twice.sum() > 0) and not cells_differ(rows, rows).any(), (
        "an equal value, or two missing ones, are no change"
    )


def test_a_hidden_number_is_wanted_as_its_bin_and_a_missing_one_as_missing() -> None:
    model = begun().fit(X, Y).model_
    puzzle = MaskedCells(model, TableTensors(torch.linspace(0, 1, 160)[:, None], torch.zeros(160, 2).long()))
    targets = puzzle.target(TableTensors(torch.tensor([[0.0], [torch.nan], [0.5], [1.0]]), torch.full((4, 2), 3)))
    assert targets[:, 0].tolist() == [1, 0, 8, 16] or targets[:, 0].tolist() == [1, 0, 9, 16]
    assert targets[:, 1:].tolist() == [[3, 3]] * 4


@pytest.mark.parametrize("told", [{}, {"preset": "paper"}, {"n_members": 2}, {"depth": 1}], ids=str)
def test_lines_read_what_the_puzzles_were_solved_with(told: dict[str, Any]) -> None:
    model: Any = begun(**told).fit(X, Y).model_.eval()
    rows = TableTensors(torch.randn(6, 1), torch.full((6, 2), 2))
    if told.get("preset") == "paper":  # it has no tokens for missing numbers, and so a category more
        rows = TableTensors(rows.numbers, torch.tensor([[2, 2, 0]] * 6))
    lines = model.beside(rows.numbers, rows.categories, contextual_cells(model, embed_cells(model, rows)))
    bias = model.head.bias if told.get("preset") == "paper" else model.bias
    scores = model(rows.numbers, rows.categories).view(6, -1, 1)
    torch.testing.assert_close(scores, (lines + bias).expand_as(scores))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_hidden_cells_are_filled_in_better_than_by_guessing(kind: type) -> None:
    history = begun(kind, epochs=12, batch_size=32, lr=5e-3).pretrained_.history
    gaps = -0.1 * math.log(0.1) - 0.9 * math.log(0.9)
    number = (
        gaps + 0.9 * math.log(16) if kind is TableTransformerClassifier else gaps
    )  # a TabTransformer sees gaps alone
    assert min(epoch["val_loss"] for epoch in history) < 0.8 * (2 * math.log(4) + number) / 3


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_replaced_cells_are_found_better_than_by_guessing(kind: type) -> None:
    history = begun(kind, task="rtd", epochs=16, batch_size=32, lr=5e-3).pretrained_.history
    share = 0.3 * 3 / 4  # of the replaced ones, those that differ
    infer_column_type = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert min(epoch["val_loss"] for epoch in history) < 0.93 * infer_column_type


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("task", ["mlm", "rtd"])
def test_fit_begins_with_what_was_learned_and_leaves_it_so_from_few_labels(kind: type, task: str) -> None:
    model = begun(kind, task=task).fit(X[:40], Y[:40])
    own = model.model_.state_dict()
    assert model.pretrained_.weights and all((own[name] == w).all() for name, w in model.pretrained_.weights.items())
    assert answer(model).std() > 0.1


def test_fit_again_begins_there_again_and_not_with_what_was_fitted() -> None:
    model = begun()
    first = answer(model.fit(X[:40], Y[:40]))
    again = answer(model.fit(X[40:90], ~Y[40:90]).fit(X[:40], Y[:40]))
    np.testing.assert_array_equal(first, again)


def test_from_many_labels_or_with_rows_to_stop_by_the_whole_model_learns() -> None:
    model = begun().set_params(epochs=3).fit(X[:60], Y[:60], eval_set=(X[60:], Y[60:]))
    own = model.model_.state_dict()
    assert len(model.history_) == 3 and all("val_loss" in epoch for epoch in model.history_[-1:])
    assert model.score(X, Y) >= begun().fit(X[:60], Y[:60]).score(X, Y) - 0.05
    assert set(own) >= set(model.pretrained_.weights)


@pytest.mark.parametrize("kind", [TableTransformerClassifier, TabTransformerClassifier])
def test_the_same_dice_give_the_same_bits(kind: type) -> None:
    one, other = (answer(begun(kind).fit(X[:40], Y[:40])) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_columns_are_read_as_they_were_without_labels() -> None:
    few = X[X["kind"] != "a"]
    model = small(TableTransformerClassifier, epochs=None).pretrain(few, epochs=1).fit(X, Y)
    assert model.encoder_.column_types == {"number": "number", "kind": "category", "twin": "category"}
    encoded = model.encoder_.encode(X).categories
    assert (encoded[X["kind"] == "a"] == 1).all(), "a category that came with the labels only is unseen"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (X.drop(columns="twin"), "the columns are not those of pretrain: 'twin' missing"),
        (X.assign(more=1), "the columns are not those of pretrain: 'more' new"),
        (X[["kind", "number", "twin"]], "the columns are not those of pretrain: their order is another"),
    ],
    ids=["one less", "one more", "another order"],
)
def test_other_columns_are_refused_in_one_line(frame: pd.DataFrame, words: str) -> None:
    with pytest.raises(DataError, match=words) as fault:
        begun(epochs=1).fit(frame, Y)
    assert "\n" not in str(fault.value)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ConfigError, match="task is 'rtd', replaced cells, or 'mlm', hidden ones; 'gpt' came"):
        begun(task="gpt")
    with pytest.raises(ConfigError, match="share is the share of cells that are touched, between 0 and 1; 1.5 came"):
        small(TableTransformerClassifier).pretrain(X, share=1.5)
    with pytest.raises(ConfigError, match="epochs is a whole number from 1 up; 0 came"):
        begun(epochs=0)
    with pytest.raises(ConfigError, match="dim was 16 in pretrain, and is 32 now"):
        begun().set_params(dim=32).fit(X, Y)
    with pytest.raises(ConfigError, match="looks at categories alone, and this table has none"):
        small(TabTransformerClassifier).pretrain(X[["number"]].dropna())


COLUMN_TYPES, ORDER = {"twin": "category"}, {"kind": list("abcd")}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            {},
            {"column_types": {"kind": "text"}},
            "kinds was {} in pretrain, and is {'kind': 'text'} now. Leave it as it was",
        ),
        (
            {"column_types": COLUMN_TYPES},
            {"column_types": None},
            "kinds was {'twin': 'category'} in pretrain, and is {} now",
        ),
        ({}, {"ordinal_categories": ORDER}, r"ordinal was {} in pretrain, and is {'kind': \['a', 'b', 'c', 'd'\]} now"),
        ({"ordinal_categories": ORDER}, {"ordinal_categories": {"kind": list("dcba")}}, "call pretrain again"),
    ],
    ids=["a kind more", "a kind less", "an order more", "another order"],
)
def test_what_is_told_of_columns_may_not_change_after_they_were_read(
    before: dict[str, Any], after: dict[str, Any], words: str, tmp_path: Path
) -> None:
    model = begun(epochs=1, **before).set_params(**after)
    X.assign(targets=Y).to_parquet(tmp_path / "rows.parquet")
    for rows, targets in ((X, Y), (str(tmp_path / "rows.parquet"), "wanted")):
        with pytest.raises(ConfigError, match=words):
            model.set_params(memory_limit=1000).fit(rows, targets)


def test_the_same_may_be_told_of_columns_in_other_words() -> None:
    model = begun(epochs=1, column_types={2: "category"}, ordinal_categories={1: tuple("abcd")})
    assert (
        model.set_params(column_types=COLUMN_TYPES, ordinal_categories=ORDER)
        .fit(X[:40], Y[:40])
        .encoder_.column_types["kind"]
        == "ordinal"
    )


def test_without_labels_it_is_not_fitted_and_says_so(tmp_path: Path) -> None:
    model = begun().fit(X, Y).pretrain(X, epochs=1)
    for one in (model, TableTransformerClassifier.load(model.save(tmp_path / "one"))):
        with pytest.raises(NotFittedError):
            one.predict(X)


def test_a_clone_forgets_and_a_copy_does_not() -> None:
    model = begun()
    assert not hasattr(clone(model), "pretrained_")
    np.testing.assert_array_equal(answer(copy.deepcopy(model).fit(X[:40], Y[:40])), answer(model.fit(X[:40], Y[:40])))


@pytest.mark.parametrize("kind", [TableTransformerRegressor, TabTransformerClassifier])
def test_pickles_and_folders_keep_it(kind: type, tmp_path: Path) -> None:
    model, file = begun(kind), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    targets = answer(model.fit(X[:40], Y[:40]))
    for again in (joblib.load(file), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(answer(again.fit(X[:40], Y[:40])), targets)
    fitted: Any = kind.load(model.save(tmp_path / "one"))
    np.testing.assert_array_equal(answer(fitted), targets)
    other = answer(model.fit(X[:60], Y[:60]))
    assert (other != targets).any()
    np.testing.assert_array_equal(answer(fitted.fit(X[:60], Y[:60])), other)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "told",
    [{}, {"preset": "paper"}, {"column_types": COLUMN_TYPES, "ordinal_categories": ORDER}],
    ids=["ours", "paper", "told"],
)
def test_what_learns_without_labels_today_learns_with_them_tomorrow_to_the_bit(
    kind: type, told: dict[str, Any], tmp_path: Path
) -> None:
    model = begun(kind, task="rtd", **told)
    again: Any = kind.load(model.save(tmp_path / "one"))
    assert again.get_params() == model.get_params() and again.encoder_.describe() == model.encoder_.describe()
    assert again.feature_names_in_.tolist() == list(X.columns)
    assert (again.pretrained_.task, again.pretrained_.history) == ("rtd", model.pretrained_.history)
    twice = kind.load(again.save(tmp_path / "two"))
    for labels in ({}, {"eval_set": (X[60:], Y[60:])}):
        targets = answer(model.set_params(epochs=2 if labels else None).fit(X[:40], Y[:40], **labels))
        for one in (again, twice):
            one.set_params(epochs=model.epochs)
            np.testing.assert_array_equal(answer(one.fit(X[:40], Y[:40], **labels)), targets)


def test_only_numbers_or_only_categories_can_be_kept_too(tmp_path: Path) -> None:
    for place, names in enumerate((["number"], ["kind", "twin"])):
        model = small(TableTransformerClassifier, epochs=None).pretrain(X[names], epochs=1)
        again = load(model.save(tmp_path / str(place)))
        first, second = (one.fit(X[names][:40], Y[:40]).predict_proba(X[names]) for one in (model, again))
        np.testing.assert_array_equal(first, second)


def test_a_changed_setting_is_refused_after_a_night_on_disk_too(tmp_path: Path) -> None:
    again = load(begun(ordinal_categories=ORDER).save(tmp_path / "one"))
    with pytest.raises(ConfigError, match="depth was 2 in pretrain, and is 1 now"):
        again.set_params(depth=1).fit(X, Y)
    with pytest.raises(ConfigError, match="ordinal was .* in pretrain, and is {} now"):
        again.set_params(depth=2, ordinal_categories=None).fit(X, Y)


@pytest.mark.parametrize("file", ["estimator.json", "columns.safetensors", "pretrained.safetensors"])
def test_a_byte_that_changed_overnight_is_noticed(file: str, tmp_path: Path) -> None:
    path = begun(epochs=1).save(tmp_path / "one") / file
    assert {one.suffix for one in path.parent.iterdir()} == {".json", ".safetensors"}, "nothing is pickled"
    flip_bit(path)
    with pytest.raises(WeightsError, match=f"{file} is not what was saved"):
        load(tmp_path / "one")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 10**7}, "should be .* by the config, and is .* Config and weights are not of the same model"),
        ({"depth": 3}, "it lacks 'blocks.2"),
        ({"depth": 10**9}, "depth is 1,000,000,000; the maximum is"),
        ({"heads": -1}, "cannot be built"),
        ({"code": 1}, "code"),
    ],
    ids=str,
)
def test_weights_of_another_model_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = begun(epochs=1).save(tmp_path / "one") / "estimator.json"
    content = json.loads(path.read_text())
    content["pretrained"]["hyperparameters"] |= change
    path.write_text(json.dumps(content))
    write_manifest(path.parent)
    with pytest.raises(WeightsError, match=words):
        load(tmp_path / "one")


def test_a_time_limit_ends_it_after_a_step_at_least() -> None:
    model = small(TableTransformerClassifier, time_limit=1e-6, epochs=None).pretrain(X)
    assert len(model.pretrained_.history) == 1


def test_it_tells_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    begun(verbose=True, epochs=1)
    said = capsys.readouterr().err
    assert "number: number, 9 % missing" in said and "epoch 1: loss" in said


def test_files_are_read_too(tmp_path: Path) -> None:
    X.to_parquet(tmp_path / "rows.parquet")
    model = small(TableTransformerClassifier, epochs=None).pretrain(str(tmp_path / "rows.parquet"), epochs=1)
    assert model.encoder_.names == ("number", "kind", "twin")
    assert model.fit(X[:40], Y[:40]).score(X, Y) > 0.5

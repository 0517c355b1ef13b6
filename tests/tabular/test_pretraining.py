"""Rows without labels: the puzzles they set, what is learned from them, and how fit goes on from there."""

import copy
import io
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

from softlook.base.errors import ConfigError, DataError
from softlook.tabular import FTTransformerClassifier, FTTransformerRegressor, TabTransformerClassifier
from softlook.tabular.inside import seen_by, tokens_of
from softlook.tabular.puzzles import FillIn, draw, is_other, replaced
from softlook.tabular.rows import Rows
from tests.tabular.estimators import ALL, CLASSIFIERS, small


def alike(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """A table whose columns all tell the same, one with gaps."""
    dice = np.random.default_rng(seed)
    kind = dice.integers(0, 4, rows)
    number = np.where(dice.random(rows) < 0.1, np.nan, kind + 0.1 * dice.standard_normal(rows))
    return pd.DataFrame({"number": number, "kind": np.array(list("abcd"))[kind], "twin": np.array(list("wxyz"))[kind]})


X = alike()
Y = (X["kind"].isin(["a", "d"])).to_numpy()


def begun(kind: type = FTTransformerClassifier, *, task: str = "mlm", epochs: int = 2, **told: Any) -> Any:
    return small(kind, **({"epochs": None} | told)).pretrain(X, task=task, epochs=epochs)


def answer(model: Any) -> np.ndarray:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def some_rows() -> Rows:
    numbers = torch.arange(40.0).view(20, 2)
    numbers[::3, 0] = torch.nan
    return Rows(numbers, torch.arange(60).view(20, 3))


def test_replaced_cells_are_other_rows_values_of_the_same_column_and_the_others_stay() -> None:
    rows = some_rows()
    drawn = draw(rows, 0.5, torch.Generator().manual_seed(0))
    new = replaced(rows, drawn)
    for before, after in zip(rows.categories.T.tolist(), new.categories.T.tolist(), strict=True):
        assert set(after) <= set(before)
    changed = is_other(rows, new)
    assert 0.3 < changed.float().mean() < 0.6
    assert not changed[~drawn.chosen].any(), "what was not chosen is as it was"
    twice = drawn.chosen & ~changed
    assert (twice.sum() > 0) and not is_other(rows, rows).any(), "an equal value, or two missing ones, are no change"


def test_a_hidden_number_is_wanted_as_its_bin_and_a_missing_one_as_missing() -> None:
    model = begun().fit(X, Y).model_
    puzzle = FillIn(model, Rows(torch.linspace(0, 1, 160)[:, None], torch.zeros(160, 2).long()))
    wanted = puzzle.wanted(Rows(torch.tensor([[0.0], [torch.nan], [0.5], [1.0]]), torch.full((4, 2), 3)))
    assert wanted[:, 0].tolist() == [1, 0, 8, 16] or wanted[:, 0].tolist() == [1, 0, 9, 16]
    assert wanted[:, 1:].tolist() == [[3, 3]] * 4


@pytest.mark.parametrize("told", [{}, {"recipe": "paper"}, {"members": 2}, {"depth": 1}], ids=str)
def test_lines_read_what_the_puzzles_were_solved_with(told: dict[str, Any]) -> None:
    model: Any = begun(**told).fit(X, Y).model_.eval()
    rows = Rows(torch.randn(6, 1), torch.full((6, 2), 2))
    if told.get("recipe") == "paper":  # it has no tokens for missing numbers, and so a category more
        rows = Rows(rows.numbers, torch.tensor([[2, 2, 0]] * 6))
    lines = model.beside(rows.numbers, rows.categories, seen_by(model, tokens_of(model, rows)))
    bias = model.head.bias if told.get("recipe") == "paper" else model.bias
    scores = model(rows.numbers, rows.categories).view(6, -1, 1)
    torch.testing.assert_close(scores, (lines + bias).expand_as(scores))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_hidden_cells_are_filled_in_better_than_by_guessing(kind: type) -> None:
    history = begun(kind, epochs=12, batch_size=32, lr=5e-3).pretrained_.history
    gaps = -0.1 * math.log(0.1) - 0.9 * math.log(0.9)
    number = gaps + 0.9 * math.log(16) if kind is FTTransformerClassifier else gaps  # a TabTransformer sees gaps alone
    assert min(epoch["held_out_loss"] for epoch in history) < 0.8 * (2 * math.log(4) + number) / 3


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_replaced_cells_are_found_better_than_by_guessing(kind: type) -> None:
    history = begun(kind, task="rtd", epochs=16, batch_size=32, lr=5e-3).pretrained_.history
    share = 0.3 * 3 / 4  # of the replaced ones, those that differ
    guess = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert min(epoch["held_out_loss"] for epoch in history) < 0.93 * guess


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
    model = begun().set_params(epochs=3).fit(X[:60], Y[:60], validation=(X[60:], Y[60:]))
    own = model.model_.state_dict()
    assert len(model.history_) == 3 and all("held_out_loss" in epoch for epoch in model.history_[-1:])
    assert model.score(X, Y) >= begun().fit(X[:60], Y[:60]).score(X, Y) - 0.05
    assert set(own) >= set(model.pretrained_.weights)


@pytest.mark.parametrize("kind", [FTTransformerClassifier, TabTransformerClassifier])
def test_the_same_dice_give_the_same_bits(kind: type) -> None:
    one, other = (answer(begun(kind).fit(X[:40], Y[:40])) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_columns_are_read_as_they_were_without_labels() -> None:
    few = X[X["kind"] != "a"]
    model = small(FTTransformerClassifier, epochs=None).pretrain(few, epochs=1).fit(X, Y)
    assert model.columns_.kinds == {"number": "number", "kind": "category", "twin": "category"}
    encoded = model.columns_.encode(X).categories
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
        small(FTTransformerClassifier).pretrain(X, share=1.5)
    with pytest.raises(ConfigError, match="epochs is a whole number from 1 up; 0 came"):
        begun(epochs=0)
    with pytest.raises(ConfigError, match="dim was 16 in pretrain, and is 32 now"):
        begun().set_params(dim=32).fit(X, Y)
    with pytest.raises(ConfigError, match="looks at categories alone, and this table has none"):
        small(TabTransformerClassifier).pretrain(X[["number"]].dropna())


def test_without_labels_it_is_not_fitted_and_says_so(tmp_path: Path) -> None:
    model = begun().fit(X, Y).pretrain(X, epochs=1)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError, match="rows without labels only, which pickle and joblib keep"):
        model.save(tmp_path / "one")


def test_a_clone_forgets_and_a_copy_does_not() -> None:
    model = begun()
    assert not hasattr(clone(model), "pretrained_")
    np.testing.assert_array_equal(answer(copy.deepcopy(model).fit(X[:40], Y[:40])), answer(model.fit(X[:40], Y[:40])))


@pytest.mark.parametrize("kind", [FTTransformerRegressor, TabTransformerClassifier])
def test_pickles_and_folders_keep_it(kind: type, tmp_path: Path) -> None:
    model, file = begun(kind), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    wanted = answer(model.fit(X[:40], Y[:40]))
    for again in (joblib.load(file), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(answer(again.fit(X[:40], Y[:40])), wanted)
    np.testing.assert_array_equal(answer(kind.load(model.save(tmp_path / "one"))), wanted)


def test_a_time_limit_ends_it_after_a_step_at_least() -> None:
    model = small(FTTransformerClassifier, time_limit=1e-6, epochs=None).pretrain(X)
    assert len(model.pretrained_.history) == 1


def test_it_tells_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    begun(verbose=True, epochs=1)
    said = capsys.readouterr().err
    assert "number: number, 9 % missing" in said and "epoch 1: loss" in said


def test_files_are_read_too(tmp_path: Path) -> None:
    X.to_parquet(tmp_path / "rows.parquet")
    model = small(FTTransformerClassifier, epochs=None).pretrain(str(tmp_path / "rows.parquet"), epochs=1)
    assert model.columns_.names == ("number", "kind", "twin")
    assert model.fit(X[:40], Y[:40]).score(X, Y) > 0.5

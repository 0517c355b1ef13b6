"""Tables of very many columns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from softlook.tabular import (
    RECIPES,
    FTTransformerClassifier,
    Recipe,
    TabTransformerClassifier,
    attention_maps,
)
from softlook.tabular.learning.settling import Setting, rows_a_step, settled
from softlook.tabular.learning.wide_tables import ROOM, bytes_a_row, narrowed
from tests.tabular.estimators import small

OURS, PAPER, TAB = RECIPES["ft"]["ours"], RECIPES["ft"]["paper"], RECIPES["tab"]["ours"]
X = np.random.RandomState(0).randn(80, 12)
Y = X[:, 0] > 0


def bounded(recipe: Recipe, setting: Setting) -> Recipe:
    return narrowed(settled(recipe, setting), setting, may_drop_less=recipe.attention_dropout is None)


@pytest.mark.parametrize("recipe", [OURS, PAPER, TAB], ids=["ours", "paper", "tab"])
@pytest.mark.parametrize("tokens", [9, 300, 1_000, 3_001])
@pytest.mark.parametrize("rows", [100, 5_000, 60_000])
def test_a_step_on_a_cpu_has_room_however_many_columns_there_are(recipe: Recipe, tokens: int, rows: int) -> None:
    found = bounded(recipe, Setting(rows, tokens=tokens, device="cpu"))
    assert min(rows_a_step(found, rows), rows) * bytes_a_row(found, tokens) <= ROOM


def test_a_step_takes_seconds_however_many_columns_there_are() -> None:
    found = [bounded(OURS, Setting(5_000, tokens=tokens, device="cpu")) for tokens in (300, 1_000, 5_000)]
    sizes = [rows_a_step(recipe, 5_000) for recipe in found]
    assert sizes[0] == 256 and sizes == sorted(sizes, reverse=True) and 10 < sizes[-1] < 60


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_changes_for_tables_of_usual_width(device: str) -> None:
    for recipe in (OURS, PAPER, TAB):
        for rows, tokens in ((16_000, 9), (40_000, 15), (400_000, 14), (7_000, 20)):
            setting = Setting(rows, tokens=tokens, device=device)
            assert bounded(recipe, setting) == settled(recipe, setting)


def test_what_was_told_stays_as_it_is() -> None:
    setting = Setting(1_000, tokens=3_001, device="cpu")
    told = replace(OURS, attention_dropout=0.3, batch_size=64)
    assert bounded(told, setting) == settled(told, setting)
    assert bounded(replace(OURS, attention_dropout=0.3), setting).attention_dropout == 0.3
    assert bounded(PAPER, setting).attention_dropout == PAPER.attention_dropout


def test_an_estimator_keeps_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.learning.wide_tables.ROOM", 1_000_000)
    ours = small(FTTransformerClassifier, epochs=1, device="cpu").fit(X, Y).recipe_
    paper = small(FTTransformerClassifier, recipe="paper", epochs=1, device="cpu", dim=64).fit(X, Y).recipe_
    assert ours.attention_dropout == 0.0
    assert paper.attention_dropout == PAPER.attention_dropout
    assert paper.batch_size is not None and 1 <= paper.batch_size < 64


def test_columns_that_are_no_tokens_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.learning.wide_tables.ROOM", 500_000)
    words = np.char.mod("%d", X > 0).astype(object)
    numbers, categories = (
        small(TabTransformerClassifier, epochs=1, device="cpu").fit(table, Y) for table in (X, words)
    )
    assert numbers.recipe_.batch_size is None
    assert categories.recipe_.batch_size is not None


def test_maps_are_the_same_however_few_rows_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(FTTransformerClassifier, epochs=1).fit(X, Y)
    together = model.explain_rows(X), model.attention_maps(X)
    monkeypatch.setattr(attention_maps, "ROOM", 1)
    alone = model.explain_rows(X), model.attention_maps(X)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other))

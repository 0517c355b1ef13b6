"""Tables of very many columns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from softlook.tabular import (
    PRESETS,
    FTTransformerClassifier,
    Hyperparameters,
    TableTransformerClassifier,
    TabTransformerClassifier,
)
from softlook.tabular import importance as attention_maps
from softlook.tabular.training.autosize import (
    MAX_STEP_BYTES,
    TrainingContext,
    batch_size_for,
    bytes_per_row,
    limit_step_cost,
    resolve_hyperparameters,
)
from tests.tabular.estimators import small

OURS, PAPER, TAB = PRESETS["table"]["default"], PRESETS["ft"]["paper"], PRESETS["tab"]["improved"]
X = np.random.RandomState(0).randn(80, 12)
Y = X[:, 0] > 0


def bounded(preset: Hyperparameters, setting: TrainingContext) -> Hyperparameters:
    return limit_step_cost(
        resolve_hyperparameters(preset, setting), setting, may_drop_dropout=preset.attention_dropout is None
    )


@pytest.mark.parametrize("preset", [OURS, PAPER, TAB], ids=["ours", "paper", "tab"])
@pytest.mark.parametrize("tokens", [9, 300, 1_000, 3_001])
@pytest.mark.parametrize("rows", [100, 5_000, 60_000])
def test_a_step_on_a_cpu_has_room_however_many_columns_there_are(
    preset: Hyperparameters, tokens: int, rows: int
) -> None:
    found = bounded(preset, TrainingContext(rows, tokens=tokens, device="cpu"))
    assert min(batch_size_for(found, rows), rows) * bytes_per_row(found, tokens) <= MAX_STEP_BYTES


def test_a_step_takes_seconds_however_many_columns_there_are() -> None:
    found = [bounded(OURS, TrainingContext(5_000, tokens=tokens, device="cpu")) for tokens in (300, 1_000, 5_000)]
    sizes = [batch_size_for(preset, 5_000) for preset in found]
    assert sizes[0] == 256 and sizes == sorted(sizes, reverse=True) and 10 < sizes[-1] < 60


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_changes_for_tables_of_usual_width(device: str) -> None:
    for preset in (OURS, PAPER, TAB):
        for rows, tokens in ((16_000, 9), (40_000, 15), (400_000, 14), (7_000, 20)):
            setting = TrainingContext(rows, tokens=tokens, device=device)
            assert bounded(preset, setting) == resolve_hyperparameters(preset, setting)


def test_what_was_told_stays_as_it_is() -> None:
    setting = TrainingContext(1_000, tokens=3_001, device="cpu")
    told = replace(OURS, attention_dropout=0.3, batch_size=64)
    assert bounded(told, setting) == resolve_hyperparameters(told, setting)
    assert bounded(replace(OURS, attention_dropout=0.3), setting).attention_dropout == 0.3
    assert bounded(PAPER, setting).attention_dropout == PAPER.attention_dropout


def test_an_estimator_keeps_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.training.autosize.MAX_STEP_BYTES", 1_000_000)
    ours = small(TableTransformerClassifier, epochs=1, device="cpu").fit(X, Y).hyperparameters_
    paper = small(FTTransformerClassifier, preset="paper", epochs=1, device="cpu", dim=64).fit(X, Y).hyperparameters_
    assert ours.attention_dropout == 0.0
    assert paper.attention_dropout == PAPER.attention_dropout
    assert paper.batch_size is not None and 1 <= paper.batch_size < 64


def test_columns_that_are_no_tokens_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.training.autosize.MAX_STEP_BYTES", 500_000)
    words = np.char.mod("%d", X > 0).astype(object)
    numbers, categories = (
        small(TabTransformerClassifier, epochs=1, device="cpu").fit(table, Y) for table in (X, words)
    )
    assert numbers.hyperparameters_.batch_size is None
    assert categories.hyperparameters_.batch_size is not None


def test_maps_are_the_same_however_few_rows_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(TableTransformerClassifier, epochs=1).fit(X, Y)
    concat_rows = model.explain_rows(X), model.attention_maps(X)
    monkeypatch.setattr(attention_maps, "MAX_STEP_BYTES", 1)
    alone = model.explain_rows(X), model.attention_maps(X)
    for one, other in zip(concat_rows, alone, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other))

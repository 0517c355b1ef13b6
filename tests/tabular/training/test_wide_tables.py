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
    importance,
)
from softlook.tabular.training.autosize import (
    MAX_STEP_BYTES,
    TrainingContext,
    batch_size_for,
    bytes_per_row,
    limit_step_cost,
    resolve_hyperparameters,
)
from tests.tabular.estimators import small

DEFAULT, PAPER, IMPROVED_TAB = PRESETS["table"]["default"], PRESETS["ft"]["paper"], PRESETS["tab"]["improved"]
X = np.random.RandomState(0).randn(80, 12)
Y = X[:, 0] > 0


def resolve(preset: Hyperparameters, context: TrainingContext) -> Hyperparameters:
    """The hyperparameters of a fit, with the cost of a step limited."""
    is_open = preset.attention_dropout is None
    return limit_step_cost(resolve_hyperparameters(preset, context), context, may_drop_dropout=is_open)


@pytest.mark.parametrize("preset", [DEFAULT, PAPER, IMPROVED_TAB], ids=["default", "paper", "improved tab"])
@pytest.mark.parametrize("tokens", [9, 300, 1_000, 3_001])
@pytest.mark.parametrize("rows", [100, 5_000, 60_000])
def test_the_memory_of_a_step_on_a_cpu_is_bounded_for_any_number_of_columns(
    preset: Hyperparameters, tokens: int, rows: int
) -> None:
    hparams = resolve(preset, TrainingContext(rows, tokens=tokens, device="cpu"))
    assert min(batch_size_for(hparams, rows), rows) * bytes_per_row(hparams, tokens) <= MAX_STEP_BYTES


def test_the_batch_size_decreases_with_the_number_of_columns() -> None:
    resolved = [resolve(DEFAULT, TrainingContext(5_000, tokens=tokens, device="cpu")) for tokens in (300, 1_000, 5_000)]
    sizes = [batch_size_for(hparams, 5_000) for hparams in resolved]
    assert sizes[0] == 256 and sizes == sorted(sizes, reverse=True) and 10 < sizes[-1] < 60


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tables_of_usual_width_are_not_affected(device: str) -> None:
    for preset in (DEFAULT, PAPER, IMPROVED_TAB):
        for rows, tokens in ((16_000, 9), (40_000, 15), (400_000, 14), (7_000, 20)):
            context = TrainingContext(rows, tokens=tokens, device=device)
            assert resolve(preset, context) == resolve_hyperparameters(preset, context)


def test_given_hyperparameters_stay() -> None:
    context = TrainingContext(1_000, tokens=3_001, device="cpu")
    given = replace(DEFAULT, attention_dropout=0.3, batch_size=64)
    assert resolve(given, context) == resolve_hyperparameters(given, context)
    assert resolve(replace(DEFAULT, attention_dropout=0.3), context).attention_dropout == 0.3
    assert resolve(PAPER, context).attention_dropout == PAPER.attention_dropout


def test_estimators_limit_the_cost_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.training.autosize.MAX_STEP_BYTES", 1_000_000)
    default = small(TableTransformerClassifier, epochs=1, device="cpu").fit(X, Y).hyperparameters_
    paper = small(FTTransformerClassifier, preset="paper", epochs=1, device="cpu", dim=64).fit(X, Y).hyperparameters_
    assert default.attention_dropout == 0.0
    assert paper.attention_dropout == PAPER.attention_dropout
    assert paper.batch_size is not None and 1 <= paper.batch_size < 64


def test_numeric_columns_of_a_tab_transformer_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.training.autosize.MAX_STEP_BYTES", 500_000)
    strings = np.char.mod("%d", X > 0).astype(object)
    numbers, categories = (
        small(TabTransformerClassifier, epochs=1, device="cpu").fit(table, Y) for table in (X, strings)
    )
    assert numbers.hyperparameters_.batch_size is None
    assert categories.hyperparameters_.batch_size is not None


def test_attention_maps_do_not_depend_on_the_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(TableTransformerClassifier, epochs=1).fit(X, Y)
    batched = model.explain_rows(X), model.attention_maps(X)
    monkeypatch.setattr(importance, "MAP_VALUES", 1)
    row_by_row = model.explain_rows(X), model.attention_maps(X)
    for expected, actual in zip(batched, row_by_row, strict=True):
        torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected))

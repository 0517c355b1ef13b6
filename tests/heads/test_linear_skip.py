"""Linear skip connection of table models."""

import pytest
import torch
from torch import nn

from softlook.heads import LinearSkip
from softlook.models import (
    FTTransformer,
    FTTransformerConfig,
    TableTransformer,
    TableTransformerConfig,
    TabTransformer,
    TabTransformerConfig,
)

SIZES = {"n_numeric": 2, "cardinalities": (3, 4), "classes": 2, "dim": 8, "heads": 2, "depth": 2}
MODELS = {
    "ft": (FTTransformer, FTTransformerConfig),
    "tab": (TabTransformer, TabTransformerConfig),
    "table": (TableTransformer, TableTransformerConfig),
}


def build(name: str, *, linear_skip: bool) -> nn.Module:
    torch.manual_seed(0)
    model, config = MODELS[name]
    return model(config(**SIZES, linear_skip=linear_skip)).eval()  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_each_part_adds_the_contribution_of_its_column() -> None:
    skip = LinearSkip(1, (2, 2), tokens=3, dim=4, classes=1)
    for index, weights in enumerate(skip.parameters()):
        nn.init.constant_(weights, 10.0**index)
    numbers, categories = torch.tensor([[3.0], [torch.nan]]), torch.tensor([[0, 1], [1, 1]])
    logits = skip(numbers, categories, torch.ones(2, 1, 3, 4))
    assert logits[:, 0, 0].tolist() == [3 + 2 * 10 + 12 * 100, 2 * 10 + 12 * 100]


@pytest.mark.parametrize("name", MODELS)
def test_linear_skip_starts_at_zero_and_leaves_the_output_unchanged(name: str) -> None:
    numbers, categories = torch.randn(5, 2), torch.tensor([[2, 3]] * 5)
    plain, skipped = build(name, linear_skip=False), build(name, linear_skip=True)
    skipped.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(skipped(numbers, categories), plain(numbers, categories))
    assert set(skipped.state_dict()) - set(plain.state_dict()) == {
        f"linear_skip.{name}_weight" for name in ("numeric", "categorical", "state")
    }

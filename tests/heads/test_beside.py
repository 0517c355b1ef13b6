"""Straight lines beside a deep answer."""

import pytest
import torch
from torch import nn

from softlook.heads import Beside
from softlook.models import (
    FTTransformer,
    FTTransformerConfig,
    TableTransformer,
    TableTransformerConfig,
    TabTransformer,
    TabTransformerConfig,
)

SIZES = {"numbers": 2, "categories": (3, 4), "classes": 2, "dim": 8, "heads": 2, "depth": 2}
MODELS = {
    "ft": (FTTransformer, FTTransformerConfig),
    "tab": (TabTransformer, TabTransformerConfig),
    "table": (TableTransformer, TableTransformerConfig),
}


def made(name: str, *, beside: bool) -> nn.Module:
    torch.manual_seed(0)
    model, config = MODELS[name]
    return model(config(**SIZES, beside=beside)).eval()  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_each_part_adds_what_its_column_says() -> None:
    beside = Beside(1, (2, 2), tokens=3, dim=4, classes=1)
    for place, weights in enumerate(beside.parameters()):
        nn.init.constant_(weights, 10.0**place)
    numbers, categories = torch.tensor([[3.0], [torch.nan]]), torch.tensor([[0, 1], [1, 1]])
    scores = beside(numbers, categories, torch.ones(2, 1, 3, 4))
    assert scores[:, 0, 0].tolist() == [3 + 2 * 10 + 12 * 100, 2 * 10 + 12 * 100]


@pytest.mark.parametrize("name", MODELS)
def test_lines_begin_with_nothing_to_say_and_leave_the_rest_as_it_was(name: str) -> None:
    numbers, categories = torch.randn(5, 2), torch.tensor([[2, 3]] * 5)
    plain, lined = made(name, beside=False), made(name, beside=True)
    lined.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(lined(numbers, categories), plain(numbers, categories))
    assert set(lined.state_dict()) - set(plain.state_dict()) == {
        f"beside.{n}" for n in ("numbers", "categories", "cells")
    }

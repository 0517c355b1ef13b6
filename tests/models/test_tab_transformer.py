"""TabTransformer: attention between categories, and an MLP over categories and numbers."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from softlook import DtypeError, ShapeError
from softlook.blocks import PostNormBlock
from softlook.models import TabTransformer, TabTransformerConfig

SIZES = (2, 5, 3)


def small(**changes: Any) -> TabTransformer:
    sizes: dict[str, Any] = {"n_numeric": 4, "cardinalities": SIZES, "classes": 3, "dim": 16, "depth": 2, "heads": 4}
    return TabTransformer(TabTransformerConfig(**{**sizes, **changes})).eval()


def rows(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 4), torch.stack([torch.randint(size, (count,)) for size in SIZES], 1)


def contextual(model: TabTransformer, categories: torch.Tensor) -> torch.Tensor:
    """The contextual embeddings of the categories, after the last block."""
    seen: list[Any] = []
    hook = model.blocks[-1].register_forward_hook(lambda module, args, output: seen.append(output))
    model(torch.zeros(len(categories), 4), categories)
    hook.remove()
    return seen[0]


def test_rows_are_independent() -> None:
    model, (numbers, categories) = small(), rows()
    assert_close(model(numbers, categories)[2:4], model(numbers[2:4], categories[2:4]))


def test_the_contextual_embedding_of_a_category_depends_on_the_others() -> None:
    model = small()
    one, other = contextual(model, torch.tensor([[0, 1, 2], [0, 4, 2]]))
    assert (one[0] != other[0]).any()


def test_numbers_enter_the_mlp_only_and_are_normalized_per_row() -> None:
    model, (numbers, categories) = small(), rows()
    expected = model(numbers, categories)
    assert_close(model(3 * numbers + 1, categories), expected, rtol=1e-3, atol=1e-4)  # a norm over each row
    assert (model(numbers.flip(1), categories) != expected).any(1).all()


def test_a_single_number_is_not_normalized_to_zero() -> None:
    model = small(n_numeric=1)
    categories = torch.zeros(2, 3, dtype=torch.long)
    one, other = model(torch.tensor([[1.0], [2.0]]), categories)
    assert (one != other).any()


def test_a_table_may_have_only_numbers_or_only_categories() -> None:
    numbers, categories = rows()
    assert small(cardinalities=())(numbers).shape == (6, 3)
    assert small(n_numeric=0)(categories=categories).shape == (6, 3)


def test_the_default_architecture_is_that_of_the_paper() -> None:
    model = TabTransformer(TabTransformerConfig(n_numeric=5, cardinalities=(4, 4)))
    assert (len(model.blocks), model.categorical_embedding.columns.shape[1]) == (6, 32 // 8)
    assert all(isinstance(block, PostNormBlock) for block in model.blocks)
    first: Any = model.blocks[0]
    assert first.ffn.to_up.out_features == 4 * 32
    width = 2 * 32 + 5
    widths = [layer.out_features for layer in model.head if isinstance(layer, torch.nn.Linear)]
    assert widths == [4 * width, 2 * width, 1]


def test_a_gradient_reaches_every_parameter() -> None:
    model = small().train()
    model(*rows(64)).square().sum().backward()
    unused = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not [name for name in unused if not name.endswith("to_key.bias")]  # softmax is invariant to it


def test_it_learns_whether_two_categories_agree() -> None:
    model = small(n_numeric=0, cardinalities=(3, 3), classes=1, dropout=0.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        categories = torch.randint(3, (128, 2))
        agree = (categories[:, 0] == categories[:, 1]).float()[:, None]
        scores = model(categories=categories)
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(scores, agree).backward()
        optimizer.step()
    every = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    assert_close(model(categories=every)[:, 0] > 0, every[:, 0] == every[:, 1])


def test_invalid_rows_raise_an_error() -> None:
    model, (numbers, categories) = small(), rows()
    with pytest.raises(
        DtypeError, match=r"numeric column 0 is missing \(NaN\) in 6 of 6 rows\. Impute it first, for example"
    ):
        model(numbers.index_fill(1, torch.tensor([0]), torch.nan), categories)
    with pytest.raises(ShapeError, match="categories of column 2 must be from 0 to 2, got 3 to 3"):
        model(numbers, categories.index_fill(1, torch.tensor([2]), 3))
    with pytest.raises(ShapeError, match="expected 4 numeric columns, got 0"):
        model(categories=categories)

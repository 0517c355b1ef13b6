"""FT-Transformer: a row as a set of column tokens."""

from typing import Any

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.testing import assert_close

from softlook import DtypeError, ShapeError
from softlook.base.errors import ConfigError
from softlook.models import FTTransformer, FTTransformerConfig, optimize_for_cpu

SIZES = (2, 5, 3)


def small(**changes: Any) -> FTTransformer:
    sizes: dict[str, Any] = {"n_numeric": 4, "cardinalities": SIZES, "classes": 3, "dim": 24, "depth": 2, "heads": 4}
    return FTTransformer(FTTransformerConfig(**{**sizes, **changes})).eval()


def rows(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 4), torch.stack([torch.randint(size, (count,)) for size in SIZES], 1)


def test_rows_are_independent() -> None:
    model, (numbers, categories) = small(), rows()
    assert_close(model(numbers, categories)[2:4], model(numbers[2:4], categories[2:4]))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_optimize_for_cpu_changes_no_output(depth: int) -> None:
    model, (numbers, categories) = optimize_for_cpu(small(depth=depth).double()), rows(40)
    numbers, few = numbers.double(), 3
    output = model(numbers, categories)
    assert_close(torch.cat([model(numbers[i : i + few], categories[i : i + few]) for i in range(0, 40, few)]), output)
    tokens = [
        model.cls_token.expand(40, 1, -1),
        model.numeric_embedding(numbers),
        model.categorical_embedding(categories),
    ]
    x = torch.cat(tokens, 1)
    for block in model.blocks:
        x = block(x)
    assert_close(model.head(model.final_norm(x[:, 0]).relu()), output)


def test_permuting_columns_together_with_their_embeddings_does_not_change_the_output() -> None:
    model, (numbers, categories) = small(), rows()
    expected = model(numbers, categories)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        for weight in (model.numeric_embedding.weight, model.numeric_embedding.bias):
            weight.copy_(weight[order])
    assert_close(model(numbers[:, order], categories), expected)


def test_the_output_depends_on_every_column() -> None:
    model, (numbers, categories) = small(), rows()
    expected = model(numbers, categories)
    for column in range(4):
        changed = numbers.clone()
        changed[:, column] += 1
        assert (model(changed, categories) != expected).any(1).all()
    for column, size in enumerate(SIZES):
        changed = categories.clone()
        changed[:, column] = (changed[:, column] + 1) % size
        assert (model(numbers, changed) != expected).any(1).all()


def test_a_table_may_have_only_numbers_or_only_categories() -> None:
    numbers, categories = rows()
    assert small(cardinalities=())(numbers).shape == (6, 3)
    assert small(n_numeric=0)(categories=categories).shape == (6, 3)
    assert small(n_numeric=0).bfloat16()(categories=categories).dtype == torch.bfloat16


def test_only_the_first_norm_is_omitted() -> None:
    first, second = small().blocks
    assert isinstance(first.attn_norm, torch.nn.Identity)
    for norm in (first.ffn_norm, second.attn_norm, second.ffn_norm):
        assert isinstance(norm, torch.nn.LayerNorm)


@pytest.mark.parametrize(("numbers", "categories", "parameters"), [(8, (), 893_179)])
def test_the_number_of_parameters_matches_the_paper(numbers: int, categories: tuple[int, ...], parameters: int) -> None:
    """The authors' logs of California housing: 255 hidden units give their count; 256 would give 1,734 more."""
    model = FTTransformer(FTTransformerConfig(n_numeric=numbers, cardinalities=categories, hidden=255))
    assert sum(weight.numel() for weight in model.parameters()) == parameters


def test_a_gradient_reaches_every_parameter() -> None:
    model = small().train()
    model(*rows()).square().sum().backward()
    unused = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not [name for name in unused if not name.endswith("to_key.bias")]  # softmax is invariant to it


def test_it_learns_an_interaction_of_a_number_with_a_category() -> None:
    model = small(n_numeric=1, cardinalities=(2,), classes=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss = torch.tensor(torch.inf)
    for _ in range(150):
        numbers, categories = torch.randn(128, 1), torch.randint(2, (128, 1))
        loss = mse_loss(model(numbers, categories), numbers * (2 * categories - 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1  # 1 without the interaction: the best prediction is then the mean


def test_invalid_rows_raise_an_error() -> None:
    model, (numbers, categories) = small(), rows()
    with pytest.raises(
        DtypeError, match=r"numeric column 3 is missing \(NaN\) in 6 of 6 rows\. Impute it first, for example"
    ):
        model(torch.cat([numbers[:, :3], torch.full((6, 1), torch.nan)], 1), categories)
    with pytest.raises(ShapeError, match="categories of column 1 must be from 0 to 4, got 5 to 5"):
        model(numbers, torch.full((6, 3), 1) + torch.tensor([0, 4, 0]))
    with pytest.raises(ShapeError, match="expected 3 categorical columns, got 0"):
        model(numbers)


def test_a_depth_of_zero_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="depth must be at least 1, got 0"):
        small(depth=0)

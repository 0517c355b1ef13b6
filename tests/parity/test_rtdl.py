"""FT-Transformer as its authors publish it (rtdl_revisiting_models), weights copied across."""

from typing import Any

import pytest
import torch
from rtdl_revisiting_models import FTTransformer as Theirs
from torch import Tensor
from torch.testing import assert_close

from softlook.models import FTTransformer, FTTransformerConfig

NUMBERS, SIZES, CLASSES = 5, (2, 7, 3), 4
TABLES: dict[str, tuple[int, tuple[int, ...]]] = {
    "numbers and categories": (NUMBERS, SIZES),
    "numbers": (NUMBERS, ()),
    "categories": (0, SIZES),
}


def pair(table: str, depth: int = 3) -> tuple[Any, Any]:
    """Ours and theirs with the authors' default sizes for this depth, and with the same weights."""
    numbers, sizes = TABLES[table]
    defaults = Theirs.get_default_kwargs(depth)
    theirs = Theirs(n_cont_features=numbers, cat_cardinalities=list(sizes), d_out=CLASSES, **defaults)
    config = FTTransformerConfig(
        numbers=numbers,
        categories=sizes,
        classes=CLASSES,
        dim=defaults["d_block"],
        depth=depth,
        attention_dropout=defaults["attention_dropout"],
        hidden_dropout=defaults["ffn_dropout"],
        dropout=defaults["residual_dropout"],
    )
    ours = FTTransformer(config)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # norms and biases that matter
    copy(theirs, ours)
    return ours.eval(), theirs.eval()


def copy(theirs: Any, ours: FTTransformer) -> None:
    fill(ours.summary, theirs.cls_embedding.weight)
    if theirs.cont_embeddings is not None:
        fill(ours.numbers.weight, theirs.cont_embeddings.weight)
        fill(ours.numbers.bias, theirs.cont_embeddings.bias)
    if theirs.cat_embeddings is not None:
        fill(ours.categories.table.weight, torch.cat([part.weight for part in theirs.cat_embeddings.embeddings]))
        fill(ours.categories.bias, theirs.cat_embeddings.bias)
    for block, other in zip(ours.blocks, theirs.backbone.blocks, strict=True):
        copy_block(other, block)
    ours.norm.load_state_dict(theirs.backbone.output.normalization.state_dict())
    ours.head.load_state_dict(theirs.backbone.output.linear.state_dict())


def copy_block(theirs: Any, ours: Any) -> None:
    names = {"to_query": "W_q", "to_key": "W_k", "to_value": "W_v", "to_out": "W_out"}
    for name, other in names.items():
        getattr(ours.attend, name).load_state_dict(getattr(theirs["attention"], other).state_dict())
    if "attention_normalization" in theirs:
        ours.around_attend.norm.load_state_dict(theirs["attention_normalization"].state_dict())
    ours.around_feed.norm.load_state_dict(theirs["ffn_normalization"].state_dict())
    opened, gate = (part.chunk(2) for part in (theirs["ffn"].linear1.weight, theirs["ffn"].linear1.bias))
    for layer, half in ((ours.feed.to_hidden, 0), (ours.feed.to_gate, 1)):
        fill(layer.weight, opened[half])
        fill(layer.bias, gate[half])
    ours.feed.to_out.load_state_dict(theirs["ffn"].linear2.state_dict())


def fill(own: Tensor | None, other: Tensor) -> None:
    assert own is not None and own.shape == other.shape
    with torch.no_grad():
        own.copy_(other)


def rows(table: str, count: int = 9) -> tuple[Tensor | None, Tensor | None]:
    numbers, sizes = TABLES[table]
    drawn = [torch.randint(size, (count,)) for size in sizes]
    return torch.randn(count, numbers) if numbers else None, torch.stack(drawn, 1) if sizes else None


@pytest.mark.parametrize("table", TABLES)
def test_scores_are_those_of_the_authors(table: str) -> None:
    ours, theirs = pair(table)
    row = rows(table)
    assert_close(ours(*row), theirs(*row), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", range(1, 7))
def test_the_authors_sizes_for_each_depth_are_ours(depth: int) -> None:
    ours, theirs = pair("numbers and categories", depth)
    row = rows("numbers and categories")
    assert_close(ours(*row), theirs(*row), rtol=1e-5, atol=1e-5)
    assert sum(weight.numel() for weight in ours.parameters()) == sum(weight.numel() for weight in theirs.parameters())


def test_gradients_are_those_of_the_authors() -> None:
    ours, theirs = pair("numbers and categories")
    row = rows("numbers and categories")
    ours(*row).square().sum().backward()
    theirs(*row).square().sum().backward()
    assert_close(ours.summary.grad, theirs.cls_embedding.weight.grad, rtol=1e-4, atol=1e-4)
    own, first = (model.blocks[0] for model in (ours, theirs.backbone))
    assert_close(own.attend.to_query.weight.grad, first["attention"].W_q.weight.grad, rtol=1e-4, atol=1e-4)


def test_weights_start_as_the_authors_do() -> None:
    config = FTTransformerConfig(numbers=50, categories=(20, 30), classes=40)
    ours, started = FTTransformer(config), FTTransformer(config)
    theirs = Theirs(n_cont_features=50, cat_cardinalities=[20, 30], d_out=40, **Theirs.get_default_kwargs())
    copy(theirs, started)
    for (name, own), (_, other) in zip(ours.named_parameters(), started.named_parameters(), strict=True):
        assert_close(own.mean(), other.mean(), rtol=0, atol=0.03, msg=lambda told, name=name: f"{name}: {told}")
        assert_close(own.std(), other.std(), rtol=0.2, atol=0, msg=lambda told, name=name: f"{name}: {told}")
        largest, other_largest = own.abs().max(), other.abs().max()
        assert_close(largest, other_largest, rtol=0.1, atol=0, msg=lambda told, name=name: f"{name}: {told}")

"""FT-Transformer matches the authors' implementation (rtdl_revisiting_models) with the same weights."""

from typing import Any

import pytest
import torch
from rtdl_revisiting_models import FTTransformer as ReferenceFTTransformer
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
    """softlook's model and the reference, with the authors' default sizes for this depth and the same weights."""
    numbers, sizes = TABLES[table]
    defaults = ReferenceFTTransformer.get_default_kwargs(depth)
    reference = ReferenceFTTransformer(
        n_cont_features=numbers, cat_cardinalities=list(sizes), d_out=CLASSES, **defaults
    )
    config = FTTransformerConfig(
        n_numeric=numbers,
        cardinalities=sizes,
        classes=CLASSES,
        dim=defaults["d_block"],
        depth=depth,
        attention_dropout=defaults["attention_dropout"],
        hidden_dropout=defaults["ffn_dropout"],
        dropout=defaults["residual_dropout"],
    )
    actual = FTTransformer(config)
    with torch.no_grad():
        for weight in reference.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # so that norms and biases matter
    copy(reference, actual)
    return actual.eval(), reference.eval()


def copy(reference: Any, actual: FTTransformer) -> None:
    fill(actual.cls_token, reference.cls_embedding.weight)
    if reference.cont_embeddings is not None:
        fill(actual.numeric_embedding.weight, reference.cont_embeddings.weight)
        fill(actual.numeric_embedding.bias, reference.cont_embeddings.bias)
    if reference.cat_embeddings is not None:
        tables = [table.weight for table in reference.cat_embeddings.embeddings]
        fill(actual.categorical_embedding.weight, torch.cat(tables))
        fill(actual.categorical_embedding.bias, reference.cat_embeddings.bias)
    for block, other in zip(actual.blocks, reference.backbone.blocks, strict=True):
        copy_block(other, block)
    actual.final_norm.load_state_dict(reference.backbone.output.normalization.state_dict())
    actual.head.load_state_dict(reference.backbone.output.linear.state_dict())


def copy_block(reference: Any, actual: Any) -> None:
    names = {"to_query": "W_q", "to_key": "W_k", "to_value": "W_v", "to_out": "W_out"}
    for name, other in names.items():
        getattr(actual.attn, name).load_state_dict(getattr(reference["attention"], other).state_dict())
    if "attention_normalization" in reference:
        actual.attn_norm.load_state_dict(reference["attention_normalization"].state_dict())
    actual.ffn_norm.load_state_dict(reference["ffn_normalization"].state_dict())
    fused = reference["ffn"].linear1
    weights, biases = fused.weight.chunk(2), fused.bias.chunk(2)
    for layer, half in ((actual.ffn.to_up, 0), (actual.ffn.to_gate, 1)):
        fill(layer.weight, weights[half])
        fill(layer.bias, biases[half])
    actual.ffn.to_out.load_state_dict(reference["ffn"].linear2.state_dict())


def fill(own: Tensor | None, other: Tensor) -> None:
    assert own is not None and own.shape == other.shape
    with torch.no_grad():
        own.copy_(other)


def rows(table: str, count: int = 9) -> tuple[Tensor | None, Tensor | None]:
    numbers, sizes = TABLES[table]
    categories = [torch.randint(size, (count,)) for size in sizes]
    return torch.randn(count, numbers) if numbers else None, torch.stack(categories, 1) if sizes else None


@pytest.mark.parametrize("table", TABLES)
def test_outputs_match_the_authors(table: str) -> None:
    actual, reference = pair(table)
    row = rows(table)
    assert_close(actual(*row), reference(*row), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", range(1, 7))
def test_sizes_by_depth_match_the_authors(depth: int) -> None:
    actual, reference = pair("numbers and categories", depth)
    row = rows("numbers and categories")
    assert_close(actual(*row), reference(*row), rtol=1e-5, atol=1e-5)
    assert sum(weight.numel() for weight in actual.parameters()) == sum(
        weight.numel() for weight in reference.parameters()
    )


def test_gradients_match_the_authors() -> None:
    actual, reference = pair("numbers and categories")
    row = rows("numbers and categories")
    actual(*row).square().sum().backward()
    reference(*row).square().sum().backward()
    assert_close(actual.cls_token.grad, reference.cls_embedding.weight.grad, rtol=1e-4, atol=1e-4)
    own, first = (model.blocks[0] for model in (actual, reference.backbone))
    assert_close(own.attn.to_query.weight.grad, first["attention"].W_q.weight.grad, rtol=1e-4, atol=1e-4)


def test_initialization_matches_the_authors() -> None:
    config = FTTransformerConfig(n_numeric=50, cardinalities=(20, 30), classes=40)
    actual, expected = FTTransformer(config), FTTransformer(config)
    reference = ReferenceFTTransformer(
        n_cont_features=50, cat_cardinalities=[20, 30], d_out=40, **ReferenceFTTransformer.get_default_kwargs()
    )
    copy(reference, expected)
    for (name, own), (_, other) in zip(actual.named_parameters(), expected.named_parameters(), strict=True):
        assert_close(own.mean(), other.mean(), rtol=0, atol=0.03, msg=lambda message, name=name: f"{name}: {message}")
        assert_close(own.std(), other.std(), rtol=0.2, atol=0, msg=lambda message, name=name: f"{name}: {message}")
        largest, other_largest = own.abs().max(), other.abs().max()
        assert_close(largest, other_largest, rtol=0.1, atol=0, msg=lambda message, name=name: f"{name}: {message}")

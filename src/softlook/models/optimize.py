"""optimize_for_cpu: faster paths of the table models."""

from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.tensors import can_read
from softlook.blocks.ft_blocks import FTBlock, absorbed_attend_to
from softlook.models.ft_transformer import FTTransformer
from softlook.models.table_transformer import TableTransformer

Model = TypeVar("Model", bound=nn.Module)


def optimize_for_cpu(model: Model) -> Model:
    """Let a table model take fewer products on a CPU, in place; outputs change only by rounding.

    The last block absorbs its key and value projections; the first block of an FT-Transformer projects the tables of
    its embeddings, not every cell. Parameters and state dict stay the same. On other devices nothing changes.

    >>> from softlook.models import FTTransformerConfig
    >>> model = FTTransformer(FTTransformerConfig(n_numeric=3, cardinalities=(2, 5), dim=16, heads=2)).eval()
    >>> rows = torch.randn(100, 3), torch.ones(100, 2, dtype=torch.long)
    >>> before = model(*rows)
    >>> torch.testing.assert_close(optimize_for_cpu(model)(*rows), before)
    """
    if isinstance(model, FTTransformer | TableTransformer):
        for block in model.blocks:
            if isinstance(block, FTBlock):
                block._attend = absorbed_attend_to
    if isinstance(model, FTTransformer):
        model._first_block = first_block_from_tables
    return model


def first_block_from_tables(
    model: FTTransformer, x: Float[Tensor, "N T C"], numbers: Float[Tensor, "N _"], categories: Int[Tensor, "N _"]
) -> Float[Tensor, "N T C"]:
    """The first block, whose queries, keys and values are computed from the embedding tables.

    No norm comes before the first attention, so the projections of the tokens are embeddings themselves, from
    projected tables: cheaper if there are more rows than categories and numeric columns.
    """
    block: Any = model.blocks[0]
    attn, config = block.attn, model.config
    layers = [attn.to_query, attn.to_key, attn.to_value]
    is_plain = all(type(layer) is nn.Linear for layer in layers)
    if not is_plain or not can_read(x) or 2 * config.n_numeric + sum(config.cardinalities) >= x.shape[0]:
        return block(x)
    weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
    projected = [
        F.linear(model.cls_token, weight, bias).expand(x.shape[0], 1, -1),
        project_numeric(model.numeric_embedding, numbers, weight, bias),
        project_categorical(model.categorical_embedding, categories, weight, bias),
    ]
    query, key, value = (attn.split_heads(part) for part in torch.cat(projected, 1).chunk(3, -1))
    x = x + block.dropout(attn.merge_heads(attn.core(query, key, value)))
    return x + block.dropout(block.ffn(block.ffn_norm(x)))


def project_numeric(embedding: Any, numbers: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer of the embedded numbers, from projected weights: x_j (A W_j) + (A b_j + a)."""
    offset, slope = F.linear(embedding.bias, weight, bias), F.linear(embedding.weight, weight)
    return torch.addcmul(offset, numbers[..., None], slope)


def project_categorical(embedding: Any, categories: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer of the embedded categories, from a projected table."""
    vectors = F.embedding(embedding.indices(categories), F.linear(embedding.weight, weight))
    return vectors + (bias if embedding.bias is None else F.linear(embedding.bias, weight, bias))

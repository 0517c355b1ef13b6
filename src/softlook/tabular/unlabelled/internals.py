"""A table's model opened before its end: cells as tokens, what becomes of them, and the layer that answers."""

from typing import Any

import torch
from torch import Tensor, nn

from softlook.models.tab_transformer import TabTransformer
from softlook.models.table_transformer import TableTransformer
from softlook.tabular.encoding.rows import Rows


def tokens_of(model: nn.Module, rows: Rows) -> Tensor:
    """(N, J, C): a token for each cell that blocks look at, numbers first; a TabTransformer has none for numbers."""
    parts: Any = model
    categories = parts.categories(rows.categories)
    return categories if isinstance(model, TabTransformer) else torch.cat([parts.numbers(rows.numbers), categories], 1)


def seen_by(model: nn.Module, tokens: Tensor) -> Tensor:
    """(N, E, J, C): what tokens are after they have looked at one another in all blocks. E: members that have parted.

    A model that answers from [CLS] works its last block out for [CLS] alone; here it is worked out in full.
    """
    parts: Any = model
    if isinstance(model, TabTransformer):
        for block in parts.blocks:
            tokens = block(tokens)
        return tokens[:, None]
    x = torch.cat([parts.summary.expand(len(tokens), 1, -1), tokens], 1)
    parting = parts.shared if isinstance(model, TableTransformer) and parts.members.shape[1] > 1 else None
    for layer, block in enumerate(parts.blocks):
        x = block(parts.apart(x) if layer == parting else x)
    return x[:, 1:].unflatten(0, (len(tokens), -1))


@torch.no_grad()
def cells_of(model: nn.Module, rows: Rows) -> Tensor:
    """(N, J C): the same for many rows, the mean of all members, one cell beside the other."""
    model.eval()
    parts = rows.split(rows.at_once(model))
    return torch.cat([seen_by(model, tokens_of(model, part)).mean(1).flatten(1) for part in parts])


@torch.no_grad()
def silence(model: nn.Module, bias: Tensor) -> None:
    """Have all but the straight lines beside a model answer `bias` (K,), whatever comes."""
    parts: Any = model
    if isinstance(model, TableTransformer):
        parts.head.zero_()
        parts.bias.copy_(bias.expand_as(parts.bias))
        return
    last: Any = parts.head[-1] if isinstance(parts.head, nn.Sequential) else parts.head
    last.weight.zero_()
    last.bias.copy_(bias)


def is_answering(model: nn.Module, name: str) -> bool:
    """Whether a weight, by its name, belongs to what turns states into scores."""
    return name.startswith(("head", "beside")) or (isinstance(model, TableTransformer) and name == "bias")

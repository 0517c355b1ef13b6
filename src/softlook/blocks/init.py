"""Weight initialization."""

import math

from torch import nn


def init_normal(model: nn.Module, std: float = 0.02) -> None:
    """Normal weights with a small standard deviation and zero biases, as in GPT-2 and BERT.

    >>> layer = nn.Linear(1000, 10)
    >>> init_normal(layer)
    >>> round(layer.weight.std().item(), 2), layer.bias.sum().item()
    (0.02, 0.0)
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def init_residual_projections(model: nn.Module, depth: int, std: float = 0.02) -> None:
    """GPT-2's initialization of the `2 * depth` output projections whose results add up on the residual stream."""
    for name, weight in model.named_parameters():
        if name.endswith("to_out.weight"):
            nn.init.normal_(weight, std=std / math.sqrt(2 * depth))


def init_xavier(model: nn.Module) -> None:
    """Xavier uniform weights, zero biases, and normal embeddings of unit length on average, as in tensor2tensor.

    >>> embedding, layer = nn.Embedding(100, 64), nn.Linear(64, 64)
    >>> init_xavier(nn.ModuleList([embedding, layer]))
    >>> round(embedding.weight.square().sum(1).mean().item()), bool(layer.weight.abs().max() <= (6 / 128) ** 0.5)
    (1, True)
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for module in model.modules():  # last, since an LM head may be tied to an embedding
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

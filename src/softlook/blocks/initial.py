"""What weights start from."""

from torch import nn


def start(model: nn.Module, std: float = 0.02) -> None:
    """Small normal weights, no biases, as GPT-2, BERT and most since begin.

    >>> layer = nn.Linear(1000, 10)
    >>> start(layer)
    >>> round(layer.weight.std().item(), 2), layer.bias.sum().item()
    (0.02, 0.0)
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def start_xavier(model: nn.Module) -> None:
    """Weights as the first Transformers begin: even between bounds that keep the variance from layer to layer, no
    biases, and normal embeddings that have length one on average.

    >>> table, layer = nn.Embedding(100, 64), nn.Linear(64, 64)
    >>> start_xavier(nn.ModuleList([table, layer]))
    >>> round(table.weight.square().sum(1).mean().item()), bool(layer.weight.abs().max() <= (6 / 128) ** 0.5)
    (1, True)
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for module in model.modules():  # last, since a head may be an embedding used backwards
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

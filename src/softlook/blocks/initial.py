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

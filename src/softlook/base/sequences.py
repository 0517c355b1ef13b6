"""Token sequences: truncation and token types."""

from collections.abc import Sequence

from torch import Tensor, nn


def truncate_pair(first: Sequence[int], second: Sequence[int], max_length: int) -> tuple[Sequence[int], Sequence[int]]:
    """Truncate two texts to `max_length` tokens in total, the longer one first.

    >>> truncate_pair([1, 2, 3, 4, 5], [6, 7], 5)
    ([1, 2, 3], [6, 7])
    """
    shorter = min(len(first), len(second), max_length // 2)
    first_limit, second_limit = max_length - len(second), max_length - len(first)
    if len(first) >= len(second):
        return first[: max(first_limit, max_length - shorter)], second[: max(second_limit, shorter)]
    return first[: max(first_limit, shorter)], second[: max(second_limit, max_length - shorter)]


def supported_token_types(model: nn.Module, token_types: Tensor) -> Tensor | None:
    """Token types clamped to those the model embeds; None if it has none (DistilBERT)."""
    count = getattr(getattr(getattr(model, "module", model), "config", None), "token_types", 2)
    return token_types.clamp(max=count - 1) if count else None

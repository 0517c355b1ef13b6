"""Scores of how a language model uses its memory: product keys, or persistent vectors."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import fmean

from torch import nn

from softlook.blocks import AllAttention, ProductKeyMemory, watch_persistent, watch_usage


@contextmanager
def memory_scores(model: nn.Module) -> Iterator[dict[str, float]]:
    """Scores of the memories of a model, computed at the end of the `with` block from the model's calls inside it.

    - `memory_usage`: share of the slots with any weight.
    - `memory_kl`: KL divergence of the weight of the slots from uniform, in nats.
    - `memory_attention`: share of the attention that persistent vectors get.

    They are means over the layers that have a memory. A model without a memory has no scores.

    >>> import torch
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2, persistent=4)).eval()
    >>> with memory_scores(model) as scores:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> sorted(scores), scores["memory_usage"]
    (['memory_attention', 'memory_kl', 'memory_usage'], 1.0)
    """
    scores: dict[str, float] = {}
    modules = list(model.modules())
    with ExitStack() as stack:
        keys = [stack.enter_context(watch_usage(one)) for one in modules if isinstance(one, ProductKeyMemory)]
        persistent = [stack.enter_context(watch_persistent(one)) for one in modules if isinstance(one, AllAttention)]
        yield scores
    if memories := [one.usage() for one in keys + persistent]:
        scores["memory_usage"] = fmean(one.fraction_used for one in memories)
        scores["memory_kl"] = fmean(one.divergence for one in memories)
    if persistent:
        scores["memory_attention"] = fmean(one.weight_share for one in persistent)

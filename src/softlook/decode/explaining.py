"""How a model will speak, and why: what a captured step does in one call, or word by word."""

from collections.abc import Sequence

import torch
from torch import nn

from softlook.decode.captured.running import can_run
from softlook.decode.captured.speaker import why_not
from softlook.decode.choosing import Asked
from softlook.decode.picking import Pick, likeliest
from softlook.decode.rules import Rule
from softlook.decode.speakers import speaker_for

LIKELIEST = likeliest()


def explain(model: nn.Module, *, pick: Pick = LIKELIEST, rules: Sequence[Rule] = (), source: bool = False) -> str:
    """Whether `stream`, `generate` and `beam` capture the steps of this model, and if not, why not.

    `source`: is it one that is told a source?

    >>> from softlook.models import GPT, GPTConfig
    >>> explain(GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval())
    'word by word: graphs are for GPUs, and the model lies on cpu'
    """
    device = next(model.parameters()).device
    with torch.no_grad():
        speaker = speaker_for(model, torch.zeros(1, 1, dtype=torch.long, device=device) if source else None)
    reason = why_not(speaker)
    if reason is not None:
        return f"word by word: {reason}"
    if not can_run(Asked(pick, tuple(rules), frozenset(), 0)):
        return "captured, but chosen by Python: rules, and picks of one's own, are asked about every word"
    return "captured: one graph for each word of all rows, chosen on the device"

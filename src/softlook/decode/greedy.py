"""The likeliest word, and then the likeliest after it."""

from jaxtyping import Int
from torch import Tensor

from softlook.decode.speaking import Speaker
from softlook.decode.stream import generate


def greedy(speaker: Speaker, start: Int[Tensor, "N T"], *, end: int, longest: int) -> list[list[int]]:
    """What each sequence goes on with, up to and without `end`, at most `longest` words: the ids that `generate` says.

    >>> import torch
    >>> from softlook.decode import Continuing
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> said = greedy(Continuing(model), torch.tensor([[3, 1]]), end=0, longest=5)
    >>> len(said), len(said[0]) <= 5
    (1, True)
    """
    return [answer.ids for answer in generate(speaker, start.tolist(), end=end, longest=longest)]

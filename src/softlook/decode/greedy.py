"""The likeliest word, and then the likeliest after it."""

import torch
from jaxtyping import Int
from torch import Tensor

from softlook.decode.speaking import Speaker


@torch.no_grad()
def greedy(speaker: Speaker, start: Int[Tensor, "N T"], *, end: int, longest: int) -> list[list[int]]:
    """What each sequence goes on with, up to and without `end`, at most `longest` words.

    >>> from softlook.decode import Continuing
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> said = greedy(Continuing(model), torch.tensor([[3, 1]]), end=0, longest=5)
    >>> len(said), len(said[0]) <= 5
    (1, True)
    """
    said: list[list[int]] = [[] for _ in range(len(start))]
    under_way = torch.arange(len(start), device=start.device)
    new = start
    for _ in range(longest):
        words = speaker.next(new).argmax(-1)
        going = words != end
        for number, word in zip(under_way[going].tolist(), words[going].tolist(), strict=True):
            said[number].append(word)
        if not going.any():
            break
        if not going.all():  # whoever is done leaves the batch
            rows = going.nonzero()[:, 0]
            speaker.select(rows)
            under_way, words = under_way[rows], words[rows]
        new = words[:, None]
    return said

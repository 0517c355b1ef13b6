"""A speaker that needs no model: what it says next is drawn once for every beginning, and then always the same."""

from itertools import product

import torch
from torch import Tensor

END = 0


class Drawn:
    """Scores of the next word, a random row for each beginning of each sequence."""

    def __init__(self, vocab: int, longest: int, sequences: int = 1, seed: int = 0, sharpness: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        beginnings = [words for length in range(longest + 1) for words in product(range(vocab), repeat=length)]
        self.rows = [
            dict(zip(beginnings, sharpness * torch.randn(len(beginnings), vocab, generator=generator), strict=True))
            for _ in range(sequences)
        ]
        self.heard: list[tuple[int, tuple[int, ...]]] = [(number, ()) for number in range(sequences)]
        self.calls = 0
        self.device, self.context = torch.device("cpu"), None

    def next(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        assert lengths is None
        self.calls += 1
        if self.calls > 1:  # the first ids are a start that stands for no word
            self.heard = [(n, (*said, word)) for (n, said), (word,) in zip(self.heard, ids.tolist(), strict=True)]
        assert len(ids) == len(self.heard)
        return torch.stack([self.rows[n][said] for n, said in self.heard])

    def select(self, rows: Tensor) -> None:
        self.heard = [self.heard[row] for row in rows.tolist()]

    def log_probability(self, number: int, words: tuple[int, ...]) -> float:
        """Of saying exactly these words, their end included where there is one."""
        return sum(self.rows[number][words[:i]].log_softmax(-1)[word].item() for i, word in enumerate(words))


def start(sequences: int = 1) -> Tensor:
    return torch.zeros(sequences, 1, dtype=torch.long)


def every_sequence(vocab: int, longest: int) -> list[tuple[int, ...]]:
    """All that can be said: words up to an end, or `longest` words."""
    others = [word for word in range(vocab) if word != END]
    ended = [(*words, END) for length in range(longest) for words in product(others, repeat=length)]
    return ended + list(product(others, repeat=longest))

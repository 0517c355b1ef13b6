"""A decoding session with random logits for every prefix, and helpers."""

from itertools import product
from typing import Any

import torch
from torch import Tensor

from softlook.decode import generate

END = 0


class RandomLogitsSession:
    """Scores of the next word, a random row for each beginning of each sequence."""

    def __init__(self, vocab: int, longest: int, sequences: int = 1, seed: int = 0, sharpness: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        prefixes = [words for length in range(longest + 1) for words in product(range(vocab), repeat=length)]
        self.rows = [
            dict(zip(prefixes, sharpness * torch.randn(len(prefixes), vocab, generator=generator), strict=True))
            for _ in range(sequences)
        ]
        self.heard: list[tuple[int, tuple[int, ...]]] = [(number, ()) for number in range(sequences)]
        self.calls = 0
        self.device, self.max_length = torch.device("cpu"), None

    def step(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        assert lengths is None
        self.calls += 1
        if self.calls > 1:  # the first ids are a start that stands for no word
            self.heard = [
                (n, (*generated, word)) for (n, generated), (word,) in zip(self.heard, ids.tolist(), strict=True)
            ]
        assert len(ids) == len(self.heard)
        return torch.stack([self.rows[n][generated] for n, generated in self.heard])

    def reorder(self, rows: Tensor) -> None:
        self.heard = [self.heard[row] for row in rows.tolist()]

    def logprob(self, number: int, words: tuple[int, ...]) -> float:
        """Of saying exactly these words, their end included where there is one."""
        return sum(self.rows[number][words[:i]].log_softmax(-1)[word].item() for i, word in enumerate(words))


def greedy_ids(session: Any, prompts: Tensor, *, eos_ids: int, max_new_tokens: int) -> list[list[int]]:
    """Greedy continuations, as ids."""
    return [
        output.ids for output in generate(session, prompts.tolist(), eos_ids=eos_ids, max_new_tokens=max_new_tokens)
    ]


def start_ids(sequences: int = 1) -> Tensor:
    return torch.zeros(sequences, 1, dtype=torch.long)


def all_sequences(vocab: int, longest: int) -> list[tuple[int, ...]]:
    """All that can be said: words up to an end, or `longest` words."""
    others = [word for word in range(vocab) if word != END]
    ended = [(*words, END) for length in range(longest) for words in product(others, repeat=length)]
    return ended + list(product(others, repeat=longest))

"""A decoding session with random logits for every prefix, and helpers."""

from itertools import product
from typing import Any

import torch
from torch import Tensor

from softlook.decode import generate

EOS = 0


class RandomLogitsSession:
    """Random logits of the next token, one row for each prefix of each sequence."""

    def __init__(self, vocab: int, max_length: int, sequences: int = 1, seed: int = 0, sharpness: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        every = [tokens for length in range(max_length + 1) for tokens in product(range(vocab), repeat=length)]
        self.rows = [
            dict(zip(every, sharpness * torch.randn(len(every), vocab, generator=generator), strict=True))
            for _ in range(sequences)
        ]
        self.prefixes: list[tuple[int, tuple[int, ...]]] = [(number, ()) for number in range(sequences)]
        self.calls = 0
        self.device, self.max_length = torch.device("cpu"), None

    def step(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        assert lengths is None
        self.calls += 1
        if self.calls > 1:  # the first ids are the start token, which belongs to no prefix
            self.prefixes = [
                (n, (*generated, token)) for (n, generated), (token,) in zip(self.prefixes, ids.tolist(), strict=True)
            ]
        assert len(ids) == len(self.prefixes)
        return torch.stack([self.rows[n][generated] for n, generated in self.prefixes])

    def reorder(self, rows: Tensor) -> None:
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    def logprob(self, number: int, tokens: tuple[int, ...]) -> float:
        """Of exactly these tokens, including the end of sequence if they have one."""
        return sum(self.rows[number][tokens[:i]].log_softmax(-1)[token].item() for i, token in enumerate(tokens))


def greedy_ids(session: Any, prompts: Tensor, *, eos_ids: int, max_new_tokens: int) -> list[list[int]]:
    """Greedy continuations, as ids."""
    return [
        output.ids for output in generate(session, prompts.tolist(), eos_ids=eos_ids, max_new_tokens=max_new_tokens)
    ]


def start_ids(sequences: int = 1) -> Tensor:
    return torch.zeros(sequences, 1, dtype=torch.long)


def all_sequences(vocab: int, max_length: int) -> list[tuple[int, ...]]:
    """All possible outputs: tokens up to an end of sequence, or `max_length` tokens."""
    others = [token for token in range(vocab) if token != EOS]
    ended = [(*tokens, EOS) for length in range(max_length) for tokens in product(others, repeat=length)]
    return ended + list(product(others, repeat=max_length))

"""Token masking for masked language models (BERT).

Every function takes its random generator, so that a data cursor always gives the same masks (see `SeededTransform`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.losses import IGNORE_INDEX
from softlook.train.batching.collate import Ids, JoinFn, MaskedLMBatch, collate_classification


@dataclass(frozen=True)
class MaskingConfig:
    """How tokens are masked."""

    mask_id: int
    """The id of the mask token."""
    vocab_size: int
    special_ids: tuple[int, ...]
    """Special tokens: never masked, never used as a replacement."""
    mask_prob: float = 0.15
    """Share of tokens to predict: 80 % become the mask token, 10 % a random token, 10 % stay."""

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob <= 1:
            raise ConfigError(f"mask_prob: expected more than 0 and at most 1, got {self.mask_prob}")

    def word_ids(self) -> Int[Tensor, " V"]:
        """All ids that are not special tokens."""
        ids = torch.arange(self.vocab_size)
        return ids[~torch.isin(ids, torch.tensor(self.special_ids))]


def mask_tokens(
    ids: Int[Tensor, "B T"], padding_mask: Bool[Tensor, "B T"], config: MaskingConfig, generator: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Masked ids and labels. At least one token is masked in every row that has one.

    >>> ids = torch.tensor([[1, 7, 8, 9]])
    >>> config = MaskingConfig(mask_id=4, vocab_size=10, special_ids=(0, 1, 2, 3, 4), mask_prob=0.5)
    >>> mask_tokens(ids, ids > 0, config, torch.Generator().manual_seed(2))
    (tensor([[1, 4, 8, 4]]), tensor([[-100,    7, -100,    9]]))
    """
    maskable = padding_mask & ~torch.isin(ids, torch.tensor(config.special_ids))
    uniforms = torch.rand(ids.shape, generator=generator).masked_fill(~maskable, torch.inf)
    selected = maskable & ((uniforms < config.mask_prob) | (uniforms == uniforms.amin(1, keepdim=True)))
    action = torch.rand(ids.shape, generator=generator)
    replacements = config.word_ids()
    replacements = replacements[torch.randint(len(replacements), ids.shape, generator=generator)]
    masked = torch.where(selected & (action < 0.8), config.mask_id, ids)
    masked = torch.where(selected & (action >= 0.8) & (action < 0.9), replacements, masked)
    return masked, ids.masked_fill(~selected, IGNORE_INDEX)


def collate_masked_lm(
    examples: Sequence[tuple[Ids, Ids, int]],
    generator: torch.Generator,
    *,
    masking: MaskingConfig,
    join: JoinFn,
    max_length: int,
    pad_id: int = 0,
) -> MaskedLMBatch:
    """Masked batch of (first text, second text, next-sentence label); the label is IGNORE_INDEX without a second text.

    >>> masking = MaskingConfig(mask_id=4, vocab_size=10, special_ids=(0, 1, 2, 3, 4))
    >>> join = lambda first, second: ([1, *first, 2], [0] * (len(first) + 2))
    >>> examples, generator = [([7, 8], [], IGNORE_INDEX)], torch.Generator().manual_seed(0)
    >>> batch = collate_masked_lm(examples, generator, masking=masking, join=join, max_length=8)
    >>> batch.ids, batch.labels
    (tensor([[1, 7, 4, 2]]), tensor([[-100, -100,    8, -100]]))
    """
    texts = collate_classification(examples, join=join, max_length=max_length, pad_id=pad_id)
    ids, labels = mask_tokens(texts.ids, texts.padding_mask, masking, generator)
    return MaskedLMBatch(ids, texts.padding_mask, texts.token_types, labels, texts.labels)

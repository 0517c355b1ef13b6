"""Attention of an encoder on a few texts, for the report of a run."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from softlook.blocks.attention import AttentionCore
from softlook.decode.alignment import token_texts
from softlook.lens.trace import attention_maps
from softlook.tokens import TextTokenizer
from softlook.tokens.template import template_from_tokenizer

MAX_TEXTS, MAX_TOKENS = 3, 24
"""Texts of a report, and tokens of each: more cells would make the figure large."""


def sample_attention(model: nn.Module, tokenizer: TextTokenizer, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Tokens and attention weights of each text as JSON types: last layer, mean over heads; empty without attention.

    The model must be in evaluation mode.
    """
    has_attention = any(isinstance(module, AttentionCore) for module in model.modules())
    template, device = template_from_tokenizer(tokenizer), next(model.parameters()).device
    limit = min(MAX_TOKENS, getattr(getattr(model, "config", None), "context", MAX_TOKENS))
    samples: list[dict[str, Any]] = []
    for row in tokenizer.encode(list(texts[:MAX_TEXTS])) if has_attention else []:
        ids = template.apply(row[: limit - template.num_special_single]).ids
        *_, last = attention_maps(model, torch.tensor([ids], device=device)).values()
        weights = last[0].float().mean(0).cpu().tolist()
        samples.append(
            {"tokens": _tokens(tokenizer, ids), "weights": [[round(one, 4) for one in line] for line in weights]}
        )
    return samples


def _tokens(tokenizer: TextTokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token; special tokens by their names."""
    names = [tokenizer.tokenizer.id_to_token(id) or "" for id in ids]
    return [text.strip() or name for text, name in zip(token_texts(tokenizer, ids), names, strict=True)]

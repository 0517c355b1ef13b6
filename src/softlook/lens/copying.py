"""Copying scores: whether the OV circuit of a head raises the logit of the token it attends to."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import MultiHeadAttention
from softlook.lens.unembedding import find_unembedding, freeze_norm


@torch.no_grad()
def copying_scores(model: nn.Module, tokens: Int[Tensor, " n"]) -> dict[str, Float[Tensor, " H"]]:
    """Copying score of every head of a decoder-only model (Elhage et al. 2021), by the path of the layer.

    The full OV circuit of a head, W_U W_O W_V W_E, says how much attending to one token changes the logit of each
    token. The score is the sum of its eigenvalues, divided by the sum of their absolute values: 1 for a head that
    copies every token, -1 for one that suppresses every token. Only embeddings and norms are applied to a token,
    not the layers before the head.

    - `tokens`: the token ids that the circuit is computed for. All of a large vocabulary are not needed.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> {path: scores.shape for path, scores in copying_scores(model, torch.arange(10)).items()}
    {'blocks.0.attn': torch.Size([4]), 'blocks.1.attn': torch.Size([4])}
    """
    embedded, unembedding = embed_tokens(model, tokens), find_unembedding(model)
    unembedded = freeze_norm(unembedding.norm).pull_back(unembedding.directions(tokens))
    scores: dict[str, Tensor] = {}
    for path, block in model.named_modules():
        attn, norm = getattr(block, "attn", None), getattr(block, "attn_norm", getattr(block, "norm", None))
        if isinstance(attn, MultiHeadAttention) and norm is not None:
            scores[f"{path}.attn"] = _layer_scores(attn, norm(embedded), unembedded)
    if not scores:
        raise ConfigError(f"{type(model).__name__} has no pre-norm blocks with multi-head attention")
    return scores


def embed_tokens(model: Any, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n C"]:
    """The embeddings of tokens as the first block receives them, without positions."""
    x = model.token_embedding(tokens[None])
    for name in ("project_in", "embedding_norm"):
        x = getattr(model, name, nn.Identity())(x)
    return x[0]


def head_weights(attn: MultiHeadAttention) -> tuple[Float[Tensor, "G E C"], Float[Tensor, "H C E"]]:
    """The value projection of each key/value head, and the columns of the output projection of each head."""
    value = attn.to_value.weight.unflatten(0, (-1, attn.head_dim))
    return value, attn.to_out.weight.unflatten(1, (-1, attn.head_dim)).transpose(0, 1)


def _layer_scores(attn: MultiHeadAttention, embedded: Tensor, unembedded: Tensor) -> Tensor:
    """The non-zero eigenvalues of W_U W_O W_V W_E are those of the small matrix W_V (W_E W_U) W_O."""
    value, output = (weight.to(unembedded.dtype) for weight in head_weights(attn))
    value = value.repeat_interleave(len(output) // len(value), 0)
    circuits = (value @ embedded.T.to(value.dtype)) @ (unembedded @ output)  # (H, E, E)
    eigenvalues = torch.linalg.eigvals(circuits.float())
    return eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1)

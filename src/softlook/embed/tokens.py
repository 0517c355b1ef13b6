"""Embeddings of tokens, token types and class labels."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.base.tensors import can_read


class TokenEmbedding(nn.Embedding):
    """Token embedding; with `scale`, multiplied by sqrt(dim) as in Vaswani et al. 2017.

    With `round_scale`, sqrt(dim) is first rounded to the dtype of the weights, as in Gemma.

    >>> TokenEmbedding(10, 4)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, vocab_size: int, dim: int, *, scale: bool = False, round_scale: bool = False) -> None:
        super().__init__(vocab_size, dim)
        self.unrounded_scale, self.round_scale = math.sqrt(dim) if scale else 1.0, round_scale

    @property
    def scale(self) -> float:
        """The factor that the vectors are multiplied by."""
        return self._rounded_scale().item() if self.round_scale else self.unrounded_scale

    def forward(self, input: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        check_range(input, self.num_embeddings, "token ids", "Were they made by the tokenizer of this model?")
        vectors = super().forward(input)
        if self.unrounded_scale == 1.0:
            return vectors
        return vectors * (self._rounded_scale() if self.round_scale else self.unrounded_scale)

    def _rounded_scale(self) -> Tensor:
        return torch.tensor(self.unrounded_scale, dtype=self.weight.dtype, device="cpu")


class TokenTypeEmbedding(nn.Embedding):
    """Token type embedding (BERT's segments): the vector of the sentence of a pair that a token belongs to.

    >>> TokenTypeEmbedding(2, 4)(torch.tensor([[0, 0, 1]])).shape, TokenTypeEmbedding(2, 4)(None).shape
    (torch.Size([1, 3, 4]), torch.Size([4]))
    """

    def forward(self, input: Int[Tensor, "B T"] | None) -> Float[Tensor, "*B C"]:
        """None: all tokens are of type 0."""
        if input is None:
            return self.weight[0]
        check_range(input, self.num_embeddings, "token types")
        return super().forward(input)


class LabelEmbedding(nn.Embedding):
    """Class label embedding, added at every position of the sequence that is conditioned on it.

    >>> LabelEmbedding(3, 4)(torch.tensor([2, 0])).shape
    torch.Size([2, 1, 4])
    """

    def forward(self, input: Int[Tensor, " B"]) -> Float[Tensor, "B 1 C"]:
        check_range(input, self.num_embeddings, "class labels")
        return super().forward(input)[:, None]


def add_token_types(
    x: Float[Tensor, "B T C"], embedding: TokenTypeEmbedding | None, token_types: Int[Tensor, "B T"] | None
) -> Float[Tensor, "B T C"]:
    """Add token type embeddings; a model without them (None) takes no `token_types`."""
    if embedding is None:
        if token_types is not None:
            raise ShapeError("this model has no token types (token_types=0 in its config): leave token_types out")
        return x
    return x + embedding(token_types)


def add_class_label(
    x: Float[Tensor, "B T C"], embedding: LabelEmbedding | None, class_label: Int[Tensor, " B"] | None
) -> Float[Tensor, "B T C"]:
    """Add the embedding of a class label to every position; a model without labels (None) takes no `class_label`."""
    if class_label is None:
        return x
    if embedding is None:
        raise ShapeError("this model has no class labels (num_class_labels=0 in its config): leave class_label out")
    return x + embedding(class_label)


def check_range(ids: Tensor, count: int, name: str, hint: str = "") -> None:
    """Raise an error for ids outside 0 to count - 1. Skipped on a GPU, which would synchronize, and in graphs."""
    if ids.numel() and can_read(ids):
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= count:
            raise ShapeError(f"{name} must be from 0 to {count - 1}, got {low} to {high}. {hint}".rstrip())

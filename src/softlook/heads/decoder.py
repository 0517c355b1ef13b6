"""The heads of a decoder-only model: words, states, or classes."""

from typing import Literal

from torch import nn

from softlook.base.errors import ConfigError
from softlook.heads.classify import ClassHead
from softlook.heads.language import language_head
from softlook.heads.pooling import LastPool

DecoderHead = Literal["words", "states", "classes"]
"""Scores of words, the normed vectors that they would be made from, or scores of classes for the whole."""


def decoder_head(
    head: str,
    dim: int,
    vocab: int,
    *,
    classes: int,
    tied_to: nn.Embedding | None = None,
    softcap: float | None = None,
) -> nn.Module:
    """The head that a config names. Classes are read off the last token, which has seen all the others.

    >>> decoder_head("classes", 4, 10, classes=3).to_classes.out_features
    3
    """
    if head == "words":
        return language_head(dim, vocab, tied_to=tied_to, softcap=softcap)
    if head == "classes":
        return ClassHead(LastPool(), dim, classes, bias=False)
    if head != "states":
        raise ConfigError(f"a decoder has heads for words, states and classes; {head!r} came")
    return nn.Identity()

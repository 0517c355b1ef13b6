"""Texts with hidden words, and sentences with or without their neighbour: what BERT learns from.

Everything here takes the dice it rolls, so that the same place in the data always gives the same question
(`batches.Rolled` hands them in).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.losses import NOTHING
from softlook.train.examples import Gaps, Ids, Join, labelled

FOLLOWS, STRANGER = 0, 1
"""The two answers to: does the second sentence follow the first?"""


@dataclass(frozen=True)
class Hiding:
    """How words are hidden."""

    mask: int
    """The id that stands for a hidden word."""
    vocab: int
    special: tuple[int, ...]
    """Ids that are no words: they are neither hidden nor put in a word's place."""
    share: float = 0.15
    """Of the words, how many are asked for. Of these 8 in 10 are hidden, 1 in 10 is exchanged, 1 in 10 stays."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"share wants more than 0 and at most 1; {self.share} came")

    def words(self) -> Int[Tensor, " V"]:
        """The ids that stand for words."""
        ids = torch.arange(self.vocab)
        return ids[~torch.isin(ids, torch.tensor(self.special))]


def hide(
    ids: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], hiding: Hiding, dice: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """The ids with some words hidden, and what was there. In every row with a word at least one is asked for.

    >>> ids = torch.tensor([[1, 7, 8, 9]])
    >>> hiding = Hiding(mask=4, vocab=10, special=(0, 1, 2, 3, 4), share=0.5)
    >>> hide(ids, ids > 0, hiding, torch.Generator().manual_seed(2))
    (tensor([[1, 4, 8, 4]]), tensor([[-100,    7, -100,    9]]))
    """
    words = present & ~torch.isin(ids, torch.tensor(hiding.special))
    roll = torch.rand(ids.shape, generator=dice).masked_fill(~words, torch.inf)
    asked = words & ((roll < hiding.share) | (roll == roll.amin(1, keepdim=True)))
    fate = torch.rand(ids.shape, generator=dice)
    others = hiding.words()
    others = others[torch.randint(len(others), ids.shape, generator=dice)]
    hidden = torch.where(asked & (fate < 0.8), hiding.mask, ids)
    hidden = torch.where(asked & (fate >= 0.8) & (fate < 0.9), others, hidden)
    return hidden, ids.masked_fill(~asked, NOTHING)


def gaps(
    examples: Sequence[tuple[Ids, Ids, int]],
    dice: torch.Generator,
    *,
    hiding: Hiding,
    join: Join,
    room: int,
    pad: int = 0,
) -> Gaps:
    """One text or two, whether the second follows (NOTHING where it is not asked), and some words hidden.

    >>> hiding = Hiding(mask=4, vocab=10, special=(0, 1, 2, 3, 4))
    >>> join = lambda one, other: ([1, *one, 2], [0] * (len(one) + 2))
    >>> gaps([([7, 8], [], NOTHING)], torch.Generator().manual_seed(0), hiding=hiding, join=join, room=8)
    Gaps(ids=tensor([[1, 7, 4, 2]]), present=..., wanted=tensor([[-100, -100,    8, -100]]), follows=tensor([-100]))
    """
    texts = labelled(examples, join=join, room=room, pad=pad)
    ids, wanted = hide(texts.ids, texts.present, hiding, dice)
    return Gaps(ids, texts.present, texts.segments, wanted, texts.wanted)


def neighbours(documents: Sequence[Sequence[Ids]]) -> list[tuple[int, int]]:
    """Where there is a sentence with another one behind it: (document, sentence).

    >>> neighbours([[[5], [6], [7]], [[8]]])
    [(0, 0), (0, 1)]
    """
    return [(i, j) for i, document in enumerate(documents) for j in range(len(document) - 1)]


def coupled(
    documents: Sequence[Sequence[Ids]],
    places: Sequence[tuple[int, int]],
    dice: torch.Generator,
    *,
    others: Sequence[int] | None = None,
) -> list[tuple[Ids, Ids, int]]:
    """Each of the sentences with the one behind it or, as often, with one of another document.

    `others` are the documents that hold a sentence, where that is known: finding out takes a look at each.

    >>> documents = [[[5], [6]], [[8]]]
    >>> coupled(documents, [(0, 0), (0, 0), (0, 0)], torch.Generator().manual_seed(0))
    [([5], [6], 0), ([5], [8], 1), ([5], [6], 0)]
    """
    others = others or [i for i, document in enumerate(documents) if document]
    if len(others) < 2:
        raise ConfigError("sentence pairs want at least two documents, so that a stranger can be found; one came")
    return [_couple(documents, others, place, dice) for place in places]


def _couple(
    documents: Sequence[Sequence[Ids]], others: Sequence[int], place: tuple[int, int], dice: torch.Generator
) -> tuple[Ids, Ids, int]:
    document, sentence = place
    if torch.rand((), generator=dice) < 0.5:
        return documents[document][sentence], documents[document][sentence + 1], FOLLOWS
    skip = int(torch.randint(1, len(others), (), generator=dice))
    stranger = documents[others[(others.index(document) + skip) % len(others)]]
    return documents[document][sentence], stranger[int(torch.randint(len(stranger), (), generator=dice))], STRANGER

"""What is to be learned from a batch: each objective is a function (model, batch) -> the sum over its targets."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.losses import NOTHING
from softlook.ops import masks
from softlook.train.examples import Gaps, Labels, Pairs, Rows
from softlook.train.run import Evaluate
from softlook.train.step import Loss, Objective
from softlook.train.tensors import each, there


def translation(smoothing: float = 0.1, agree: float = 0.0) -> Objective:
    """Say the target, word by word, with the right words so far as the beginning.

    With `agree` above 0 each batch is read twice, with other units dropped, and that is how much the two are asked to
    say the same: R-Drop (Liang et al., 2021), which gives it 5.
    """

    def scores(model: nn.Module, batch: Pairs) -> Tensor:
        return model(batch.source, batch.said, source_present=unless_all(batch.source_present))

    return asking(scores, smoothing, agree)


def asking(scores: Callable[[nn.Module, Any], Tensor], smoothing: float, agree: float) -> Objective:
    """How surprising what is wanted is, by the scores of each class or word; with `agree`, by two opinions of them."""

    def once(model: nn.Module, batch: Any) -> Loss:
        return surprise(scores(model, batch), batch.wanted, smoothing)

    def twice(model: nn.Module, batch: Any) -> Loss:
        both = scores(model, each(batch, lambda tensor: torch.cat([tensor, tensor])))
        said = surprise(both, torch.cat([batch.wanted, batch.wanted]), smoothing)
        (one, other), asked = both.chunk(2), batch.wanted != NOTHING
        return Loss(said.total / 2 + agree / 2 * disagreement(one, other, asked), asked.sum())

    return twice if agree else once


def disagreement(one: Tensor, other: Tensor, asked: Tensor) -> Tensor:
    """How far two opinions are apart, summed over the places where something is asked: half the sum of both ways'
    Kullback-Leibler divergence.

    >>> opinion = torch.randn(1, 3, 5)
    >>> disagreement(opinion, opinion, torch.ones(1, 3, dtype=torch.bool))
    tensor(0.)
    """
    one, other = (precise(scores)[asked].log_softmax(-1) for scores in (one, other))
    return ((one.exp() - other.exp()) * (one - other)).sum() / 2


def language(smoothing: float = 0.0) -> Objective:
    """Say what comes next. Documents that share a row do not see each other."""

    def loss(model: nn.Module, batch: Rows) -> Loss:
        if getattr(model, "mode", "") == "encoder-only":
            raise ConfigError("this model looks both ways and sees the word it is to predict: make it causal=True")
        apart = masks.documents(batch.documents)
        return surprise(model(batch.ids, mask=apart, positions=batch.positions), batch.wanted, smoothing)

    return loss


def filling(model: nn.Module, batch: Gaps) -> Loss:
    """Say which words are hidden; and, where a model has that head, whether the second sentence followed the first."""
    scores: Any = model(batch.ids, present=unless_all(batch.present), segments=known_segments(model, batch.segments))
    if isinstance(scores, Tensor):
        return surprise(scores, batch.wanted)
    words = surprise(scores.words, batch.wanted)
    # Whether the second sentence followed weighs as much as all the words hidden in its row: both means count alike, as
    # in BERT, and rows add up however they are parted into batches.
    hidden = (batch.wanted != NOTHING).sum(1)
    follows = F.cross_entropy(precise(scores.next), batch.follows, ignore_index=NOTHING, reduction="none")
    return Loss(words.total + (follows * hidden).sum(), words.count)


def classification(smoothing: float = 0.0, agree: float = 0.0) -> Objective:
    """Say which class a text belongs to; `agree` as in `translation`."""

    def scores(model: nn.Module, batch: Labels) -> Tensor:
        return model(batch.ids, present=unless_all(batch.present), segments=known_segments(model, batch.segments))

    return asking(scores, smoothing, agree)


def known_segments(model: nn.Module, segments: Tensor) -> Tensor | None:
    """Which text each token belongs to, as far as a model tells texts apart: a DistilBERT does not, and a RoBERTa has
    one vector for all."""
    known = getattr(getattr(getattr(model, "module", model), "config", None), "segments", 2)
    return segments.clamp(max=known - 1) if known else None


def unless_all(present: Tensor) -> Tensor | None:
    """Where there are tokens; None where they are everywhere, as in most batches of texts alike in length.

    Then no layer has to be told to look past anything. A GPU is not asked: it would have to be waited for.

    >>> unless_all(torch.tensor([[True, True]])), unless_all(torch.tensor([[True, False]]))
    (None, tensor([[ True, False]]))
    """
    return None if present.device.type == "cpu" and bool(present.all()) else present


def surprise(scores: Tensor, wanted: Tensor, smoothing: float = 0.0) -> Loss:
    """The summed cross entropy over the places where something is asked."""
    rows, asked = precise(scores).flatten(0, -2), wanted.flatten()
    total = F.cross_entropy(rows, asked, ignore_index=NOTHING, label_smoothing=smoothing, reduction="sum")
    return Loss(total, (wanted != NOTHING).sum())


def precise(scores: Tensor) -> Tensor:
    """Half precision is not enough to add up thousands of surprises."""
    return scores.float() if scores.dtype.itemsize < 4 else scores


def held_out(batches: Sequence[Any], objective: Objective, device: torch.device) -> Evaluate:
    """A look at held-out batches: the mean loss over all their targets."""

    @torch.no_grad()
    def look(model: nn.Module) -> dict[str, float]:
        losses = [objective(model, there(batch, device)) for batch in batches]
        total, count = sum(loss.total for loss in losses), sum(loss.count for loss in losses)
        return {"loss": float(total) / max(int(count), 1)}

    return look

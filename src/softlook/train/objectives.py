"""Training objectives: functions (model, batch) -> summed loss."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.base.tensors import PLAIN_TYPES, can_read, map_tensors
from softlook.base.tensors import supported_token_types as supported_token_types
from softlook.losses import IGNORE_INDEX
from softlook.models.gpt import GPT
from softlook.models.llama import Llama
from softlook.ops import masks
from softlook.ops.arguments import cast_for_autocast
from softlook.ops.linear_cross_entropy import linear_cross_entropy
from softlook.train.batching.collate import ClassificationBatch, MaskedLMBatch, PackedBatch, Seq2SeqBatch, to_device
from softlook.train.train_step import Loss, Objective


def translation(label_smoothing: float = 0.1, rdrop_alpha: float = 0.0) -> Objective:
    """Cross entropy of the target tokens given the source (teacher forcing).

    `rdrop_alpha` > 0 adds R-Drop (Liang et al., 2021; there 5): each batch is computed twice with different dropout,
    and the symmetric KL divergence of the two outputs is added to the loss with this weight.
    """

    def logits(model: nn.Module, batch: Seq2SeqBatch) -> Tensor:
        return model(batch.source, batch.decoder_input, source_padding_mask=mask_if_padded(batch.source_mask))

    return cross_entropy_objective(logits, label_smoothing, rdrop_alpha)


def cross_entropy_objective(
    logits: Callable[[nn.Module, Any], Tensor], label_smoothing: float, rdrop_alpha: float
) -> Objective:
    """Cross entropy of `batch.labels` under `logits(model, batch)`, with R-Drop if `rdrop_alpha` > 0."""
    loss = partial(cross_entropy_sum, label_smoothing=label_smoothing)

    def divergence(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
        return symmetric_kl(first, second, labels != IGNORE_INDEX)

    return rdrop_objective(logits, loss, divergence, rdrop_alpha)


def rdrop_objective(
    logits: Callable[[nn.Module, Any], Tensor],
    loss: Callable[[Tensor, Tensor], Loss],
    divergence: Callable[[Tensor, Tensor, Tensor], Tensor],
    alpha: float,
) -> Objective:
    """`loss(logits, labels)` and, if `alpha` > 0, R-Drop: the `divergence` of two forward passes with this weight."""

    def plain(model: nn.Module, batch: Any) -> Loss:
        return loss(logits(model, batch), batch.labels)

    def rdrop(model: nn.Module, batch: Any) -> Loss:
        both = logits(model, map_tensors(batch, lambda tensor: torch.cat([tensor, tensor])))
        double = loss(both, torch.cat([batch.labels, batch.labels]))
        first, second = both.chunk(2)
        total = double.total / 2 + alpha / 2 * divergence(first, second, batch.labels)
        reported = (double.total if double.reported is None else double.reported).detach() / 2
        return Loss(total, double.count // 2, reported)

    return rdrop if alpha else plain


def symmetric_kl(first: Tensor, second: Tensor, selected: Tensor) -> Tensor:
    """Half the sum of the KL divergences in both directions, summed over the `selected` positions.

    >>> logits = torch.randn(1, 3, 5)
    >>> symmetric_kl(logits, logits, torch.ones(1, 3, dtype=torch.bool))
    tensor(0.)
    """
    is_readable = can_read(selected)  # elsewhere the number of positions is unknown until the device is waited for
    first, second = (logits[selected] if is_readable else logits for logits in (first, second))
    first, second = (upcast(logits).log_softmax(-1) for logits in (first, second))
    terms = (first.exp() - second.exp()) * (first - second)
    return (terms if is_readable else terms.where(selected[..., None], 0.0)).sum() / 2


def causal_lm(label_smoothing: float = 0.0) -> Objective:
    """Next-token cross entropy on packed rows. Documents of one row do not attend to each other."""

    def loss(model: nn.Module, batch: PackedBatch) -> Loss:
        if getattr(model, "mode", "") == "encoder-only":
            raise ConfigError("this model is bidirectional and sees the token to predict: build it with causal=True")
        mask = masks.documents(batch.document_ids)
        return lm_cross_entropy_sum(
            model, batch.ids, batch.labels, label_smoothing, mask=mask, positions=batch.positions
        )

    return loss


def masked_lm(model: nn.Module, batch: MaskedLMBatch) -> Loss:
    """Cross entropy of the masked tokens, plus next-sentence prediction if the model has that head (BERT)."""
    token_types = supported_token_types(model, batch.token_types)
    return masked_lm_loss(
        model(batch.ids, padding_mask=mask_if_padded(batch.padding_mask), token_types=token_types), batch
    )


def masked_lm_loss(logits: Any, batch: MaskedLMBatch) -> Loss:
    """The loss of logits: of a masked-LM head, or of a pretraining head."""
    if isinstance(logits, Tensor):
        return cross_entropy_sum(logits, batch.labels)
    tokens = cross_entropy_sum(logits.masked_lm, batch.labels)
    # The next-sentence loss of a row weighs as much as all its masked tokens: both means count alike, as in BERT, and
    # the sum does not depend on how rows are split into batches.
    masked = (batch.labels != IGNORE_INDEX).sum(1)
    labels = batch.next_sentence_labels
    next_sentence = F.cross_entropy(upcast(logits.next_sentence), labels, ignore_index=IGNORE_INDEX, reduction="none")
    return Loss(tokens.total + (next_sentence * masked).sum(), tokens.count)


def classification(label_smoothing: float = 0.0, rdrop_alpha: float = 0.0) -> Objective:
    """Cross entropy of the class of each text; `rdrop_alpha` as in `translation`."""
    return cross_entropy_objective(text_logits, label_smoothing, rdrop_alpha)


def multi_label_classification(rdrop_alpha: float = 0.0) -> Objective:
    """Binary cross entropy of every label of each text."""

    def loss(logits: Tensor, labels: Tensor) -> Loss:
        return Loss(F.binary_cross_entropy_with_logits(upcast(logits), labels, reduction="sum"), labels.numel())

    def divergence(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
        first, second = upcast(first), upcast(second)
        return ((first.sigmoid() - second.sigmoid()) * (first - second)).sum() / 2

    return rdrop_objective(text_logits, loss, divergence, rdrop_alpha)


def regression(scale: float = 1.0, rdrop_alpha: float = 0.0) -> Objective:
    """Squared error of the number of each text, in units of `scale`: the standard deviation of the numbers."""

    def loss(predicted: Tensor, labels: Tensor) -> Loss:
        return Loss(((upcast(predicted) - labels) / scale).square().sum(), labels.numel())

    def divergence(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
        return ((upcast(first) - upcast(second)) / scale).square().sum() / 2

    return rdrop_objective(text_logits, loss, divergence, rdrop_alpha)


def text_logits(model: nn.Module, batch: ClassificationBatch) -> Tensor:
    """The output of a model for the texts of a batch."""
    token_types = supported_token_types(model, batch.token_types)
    return model(batch.ids, padding_mask=mask_if_padded(batch.padding_mask), token_types=token_types)


def mask_if_padded(padding_mask: Tensor) -> Tensor | None:
    """The padding mask; None without padding, as in most length-bucketed batches: then no layer has to mask anything.

    On a GPU and in a compiled graph the mask is returned unchecked: reading it would synchronize.

    >>> mask_if_padded(torch.tensor([[True, True]])), mask_if_padded(torch.tensor([[True, False]]))
    (None, tensor([[ True, False]]))
    """
    return None if can_read(padding_mask) and bool(padding_mask.all()) else padding_mask


def cross_entropy_sum(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
    """Cross entropy summed over the positions with a label; without label smoothing in `Loss.reported`."""
    rows, targets = upcast(logits).flatten(0, -2), labels.flatten()
    total = F.cross_entropy(rows, targets, ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing, reduction="sum")
    reported = remove_smoothing(total.detach(), rows.detach(), targets, label_smoothing) if label_smoothing else None
    return Loss(total, (labels != IGNORE_INDEX).sum(), reported)


def lm_cross_entropy_sum(
    model: nn.Module, ids: Tensor, labels: Tensor, label_smoothing: float = 0.0, **inputs: Any
) -> Loss:
    """`cross_entropy_sum` of the logits of a language model, which are not held as a whole where that is faster."""
    if not can_fuse_head(model, labels):
        return cross_entropy_sum(model(ids, **inputs), labels, label_smoothing)
    head, hidden = cast(Any, model).lm_head, model(ids, **inputs, hidden_states=True)
    (hidden,) = cast_for_autocast(hidden)
    total, plain = linear_cross_entropy(hidden, head.weight, head.bias, labels, label_smoothing=label_smoothing)
    return Loss(total, (labels != IGNORE_INDEX).sum(), plain if label_smoothing else None)


def can_fuse_head(model: nn.Module, labels: Tensor) -> bool:
    """Whether `linear_cross_entropy` replaces the head: on a GPU, for a plain linear layer that is not sharded.

    >>> can_fuse_head(nn.Linear(2, 2), torch.zeros(1))
    False
    """
    if not labels.is_cuda or not isinstance(model, GPT | Llama):  # not a model that DDP wraps
        return False
    if model.ngrams is not None and not model.training:  # mixed with the logits
        return False
    return type(model.lm_head) is nn.Linear and type(model.lm_head.weight) in PLAIN_TYPES


def remove_smoothing(total: Tensor, logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    """The plain cross entropy, from the label-smoothed one of the same logits.

    Smoothing by s adds s times the difference of the label's logit and the mean logit: no second softmax is needed.

    >>> logits, labels = torch.randn(5, 7), torch.tensor([3, 0, 6, IGNORE_INDEX, 2])
    >>> smoothed = cross_entropy_sum(logits, labels, 0.2)
    >>> torch.allclose(smoothed.reported, cross_entropy_sum(logits, labels).total)
    True
    """
    has_label = labels != IGNORE_INDEX
    label_logits = logits.gather(-1, labels.where(has_label, 0)[:, None])[:, 0]
    return total - label_smoothing * (label_logits - logits.mean(-1)).where(has_label, 0).sum()


def upcast(logits: Tensor) -> Tensor:
    """Half precision to float32: losses are summed over thousands of tokens."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


def make_loss_evaluator(
    batches: Sequence[Any], objective: Objective, device: torch.device
) -> Callable[..., dict[str, float]]:
    """An evaluation function: the mean loss over all targets of held-out batches, or of a share of the batches."""

    @torch.no_grad()
    def evaluate(model: nn.Module, share: float = 1.0) -> dict[str, float]:
        used = batches[: math.ceil(share * len(batches))]
        losses = [objective(model, to_device(batch, device)) for batch in used]
        total, count = sum(loss.total for loss in losses), sum(loss.count for loss in losses)
        return {"loss": float(total) / max(int(count), 1)}

    return evaluate

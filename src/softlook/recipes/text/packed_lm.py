"""Batches, objective and evaluation of causal language models on packed documents."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from softlook.blocks.segments import SegmentCache
from softlook.models import ConvolutionalLM, FastWeightLM, TransformerXL
from softlook.ops import masks
from softlook.recipes.text.memory_scores import memory_scores
from softlook.recipes.text.ngram_mix import fit_gate, has_ngrams, mix_loss, predict_tokens
from softlook.train.batching.batches import DataCursor
from softlook.train.batching.collate import PackedBatch, to_device
from softlook.train.batching.packed_stream import PackedStream
from softlook.train.objectives import causal_lm, cross_entropy_sum, lm_cross_entropy_sum
from softlook.train.train_step import Loss


@dataclass(frozen=True)
class SingleDocumentBatch:
    """Rows that contain one document each: no document mask is needed."""

    ids: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]


class LanguageModelBatches:
    """Batches of a packed stream; those without document boundaries are simplified, which is faster."""

    def __init__(self, stream: PackedStream) -> None:
        self.stream = stream

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, PackedBatch | SingleDocumentBatch]]:
        return ((after, simplify_batch(batch)) for after, batch in self.stream.iter_from(cursor))


def simplify_batch(batch: PackedBatch) -> PackedBatch | SingleDocumentBatch:
    """The batch without document ids, if each row contains one document from its start."""
    is_single = (batch.document_ids == batch.document_ids[:, :1]).all() and bool((batch.positions[:, 0] == 0).all())
    return SingleDocumentBatch(batch.ids, batch.labels) if is_single else batch


def model_inputs(batch: PackedBatch | SingleDocumentBatch) -> dict[str, Any]:
    """The arguments of a language model beside the ids: attention does not cross documents."""
    if isinstance(batch, SingleDocumentBatch):
        return {}
    return {"mask": masks.documents(batch.document_ids), "positions": batch.positions}


class CausalLMObjective:
    """Next-token cross-entropy. Attention does not cross documents; convolutions and fast weights have no mask, and do.

    Transformer-XL reads a row segment by segment and carries its cache from one to the next; with a `state`, also from
    one batch to the next, whose rows continue those of the batch before.
    """

    def __init__(self, segment_length: int, *, use_cache: bool = True) -> None:
        self.segment_length, self.use_cache, self.packed_loss = segment_length, use_cache, causal_lm()

    def __call__(
        self, model: nn.Module, batch: PackedBatch | SingleDocumentBatch, state: "SegmentState | None" = None
    ) -> Loss:
        module = getattr(model, "module", model)  # unwrap DDP
        if isinstance(module, TransformerXL):
            return self._by_segments(model, batch, state or SegmentState(self.segment_length))
        if isinstance(batch, SingleDocumentBatch) or isinstance(module, ConvolutionalLM | FastWeightLM):
            return lm_cross_entropy_sum(model, batch.ids, batch.labels)
        return self.packed_loss(model, batch)

    def _by_segments(self, model: nn.Module, batch: PackedBatch | SingleDocumentBatch, state: "SegmentState") -> Loss:
        losses = []
        for start in range(0, batch.ids.shape[1], self.segment_length):
            span = slice(start, start + self.segment_length)
            state = state if self.use_cache else SegmentState(self.segment_length)
            mask = None
            if isinstance(batch, PackedBatch):
                mask = masks.causal() & state.document_mask(batch.document_ids[:, span])
            logits = model(batch.ids[:, span], mask=mask, cache=state.cache)
            losses.append(cross_entropy_sum(logits, batch.labels[:, span]))
        return Loss(sum(loss.total for loss in losses), sum(loss.count for loss in losses))  # pyright: ignore[reportArgumentType]


class SegmentState:
    """Transformer-XL's cache: the hidden states of the last segment, and the document of each."""

    def __init__(self, length: int) -> None:
        self.cache, self.document_ids = SegmentCache(length), torch.empty(0)

    def document_mask(self, document_BT: Int[Tensor, "B T"]) -> masks.Mask:
        """The keys, cached and of the next segment, that belong to the same document; then cache that segment's."""
        key_BS = torch.cat([self.document_ids, document_BT], 1) if self.cache.held else document_BT
        self.document_ids = key_BS[:, -self.cache.length :]
        return masks.dense((document_BT[:, :, None] == key_BS[:, None, :])[:, None])


def contiguous_lanes(stream: PackedStream) -> Iterator[PackedBatch]:
    """One pass in which each row continues the same row of the batch before."""
    end = len(stream.tokens.ids)
    length = -(-end // (stream.context * stream.batch_size))
    for number in range(length):
        begins = [(lane * length + number) * stream.context for lane in range(stream.batch_size)]
        yield stream.tokens.pack([min(begin, end) for begin in begins], stream.context)


class PerplexityEvaluator:
    """Loss and perplexity on validation text: on some of it during training, on all of it at the end.

    A model with a cache keeps it across rows. With an n-gram model, each evaluation during training fits its gate. The
    use of a memory is scored as well: see `memory_scores`.
    """

    def __init__(self, stream: PackedStream, objective: CausalLMObjective, device: torch.device) -> None:
        self.stream, self.objective, self.device = stream, objective, device

    def __call__(self, model: nn.Module, share: float = 1.0) -> dict[str, float]:
        tokens = share * len(self.stream.tokens.ids)
        count = max(int(tokens // (self.stream.context * self.stream.batch_size)), 1) if share < 1 else None
        with memory_scores(model) as memory:
            scores = self._fit_gate(model, count) if has_ngrams(model) else self._plain_scores(model, count)
        return scores | memory

    def evaluate_all(self, num_bytes: int, model: nn.Module) -> dict[str, Any]:
        """Perplexity per token and bits per byte, on all of the text."""
        with memory_scores(model) as memory:
            loss, count = self._loss(model, self.objective)
        scores: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 80.0))}
        scores |= {"tokens": count, "bytes": num_bytes}
        scores["bits_per_byte"] = loss * count / max(num_bytes, 1) / math.log(2)
        scores |= memory
        if isinstance(model, TransformerXL):
            uncached = CausalLMObjective(self.objective.segment_length, use_cache=False)
            scores["loss_without_cache"], _ = self._loss(model, uncached)
        return scores

    def _plain_scores(self, model: nn.Module, max_batches: int | None) -> dict[str, float]:
        loss, _ = self._loss(model, self.objective, max_batches)
        return {"loss": loss, "perplexity": math.exp(min(loss, 80.0))}

    def _fit_gate(self, model: Any, max_batches: int | None) -> dict[str, float]:
        """Scores of the mix with the n-grams, and the loss of attention alone."""
        batches = (to_device(simplify_batch(batch), self.device) for batch in self.stream.iter_in_order())
        tokens = predict_tokens(model, ((batch, model_inputs(batch)) for batch in islice(batches, max_batches)))
        model.ngrams.gate.copy_(fit_gate(tokens))
        loss = mix_loss(tokens, model.ngrams.gate)
        attention_loss = -float(tokens.attention.mean())
        return {"loss": loss, "perplexity": math.exp(min(loss, 80.0)), "attention_loss": attention_loss}

    def _loss(
        self, model: nn.Module, objective: CausalLMObjective, max_batches: int | None = None
    ) -> tuple[float, int]:
        total, count = 0.0, 0
        for loss in islice(self._losses(model, objective), max_batches):
            total += float(loss.total)
            count += int(loss.count)
        return total / max(count, 1), count

    def _losses(self, model: nn.Module, objective: CausalLMObjective) -> Iterator[Loss]:
        if isinstance(getattr(model, "module", model), TransformerXL):
            state = SegmentState(objective.segment_length)
            lanes = contiguous_lanes(self.stream)
            return (objective(model, to_device(batch, self.device), state) for batch in lanes)
        batches = self.stream.iter_in_order()
        return (objective(model, to_device(simplify_batch(batch), self.device)) for batch in batches)

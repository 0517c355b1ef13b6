"""Decoding sessions: a model, its KV cache and the sequences of a batch."""

from inspect import signature
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.beam_cache import BeamCache
from softlook.blocks.fast_weights import FastWeightCache
from softlook.blocks.kv_cache import DynamicCache, KVCache
from softlook.blocks.recurrent import RecurrentCache
from softlook.blocks.segments import SegmentCache
from softlook.decode.cpu import FusedSelfAttention
from softlook.decode.token_tensors import pad_right
from softlook.models import ConvolutionalLM, FastWeightLM, RNNSearch, TransformerXL
from softlook.ops.masks import padding

UNLIMITED = 1 << 40
"""Memory length of a Transformer-XL that keeps all hidden states."""


@runtime_checkable
class DecodingSession(Protocol):
    """A batch of sequences that a model continues token by token."""

    @property
    def device(self) -> torch.device:
        """Device of the input ids."""
        ...

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of a sequence, prompt included; None for no limit."""
        ...

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        """Append new token ids to each sequence and return the logits of the next token.

        Rows of different lengths are padded on the left, with any id; `lengths` is the number of real ids of each row.
        Only the first call accepts `lengths`.
        """
        ...

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        """Select sequences of the batch, in this order. A row may be repeated or left out."""
        ...


@runtime_checkable
class RewindableSession(DecodingSession, Protocol):
    """A session that can remove tokens again, as speculative decoding requires."""

    def all_logits(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        """Append new token ids and return the logits after each of them."""
        ...

    def crop(self, count: int) -> None:
        """Remove the last `count` tokens of every sequence."""
        ...


class LeftPadding:
    """Left padding of the prompts: the attention mask that hides it, and the positions of the tokens behind it."""

    def __init__(self) -> None:
        self.num_pad: Int[Tensor, " N"] | None = None
        """Number of padding positions of each row; None without padding."""

    def begin(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None) -> None:
        self.num_pad = None if lengths is None else ids.shape[1] - lengths.to(ids.device)

    def model_kwargs(
        self, ids: Tensor, lengths: Tensor | None, start: int, *, positions: bool, keys: int | None = None
    ) -> dict[str, Any]:
        """Mask and positions of ids after `start` others; the last `keys` of all are attended to."""
        if start == 0:
            self.begin(ids, lengths)
        if self.num_pad is None:
            return {}
        stop = start + ids.shape[1]
        keys = stop if keys is None else keys
        kwargs: dict[str, Any] = {"mask": padding((stop - self.num_pad).clamp(max=keys), side="left", length=keys)}
        if positions:
            indices = torch.arange(start, stop, device=self.num_pad.device)
            kwargs["positions"] = (indices - self.num_pad[:, None]).clamp(min=0)
        return kwargs

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.num_pad = None if self.num_pad is None else self.num_pad.index_select(0, rows)


class CausalLMSession:
    """A decoder-only model with a KV cache; `class_label` conditions each row, where the model supports it."""

    def __init__(self, model: Any, cache: KVCache | None = None, class_label: Int[Tensor, " N"] | None = None) -> None:
        self.model, self.cache, self.padding = model, KVCache() if cache is None else cache, LeftPadding()
        self.class_label, self.device, self.max_length = class_label, model_device(model), model.config.context
        self.last = {"logits_to_keep": 1} if "logits_to_keep" in signature(model.forward).parameters else {}
        """Arguments for the logits of the last position only: those of a whole prompt may take gigabytes."""

    def all_logits(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        return self._forward(ids, lengths)

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        return self._forward(ids, lengths, **self.last)[:, -1]

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.cache.reorder(rows)
        self.padding.reorder(rows)
        self.class_label = None if self.class_label is None else self.class_label.index_select(0, rows)

    def crop(self, count: int) -> None:
        self.cache.crop(count)

    def _forward(self, ids: Tensor, lengths: Tensor | None, **kwargs: Any) -> Tensor:
        kwargs |= self.padding.model_kwargs(ids, lengths, self.cache.length, positions=True)
        kwargs |= {} if self.class_label is None else {"class_label": self.class_label}
        return self.model(ids, cache=self.cache, **kwargs)


class Seq2SeqSession:
    """An encoder-decoder model with a KV cache. The source is encoded once."""

    def __init__(self, model: Any, source: Int[Tensor, "N S"], source_mask: Bool[Tensor, "N S"] | None = None) -> None:
        self.model, self.cache, self.source_mask, self.padding = model, KVCache(), source_mask, LeftPadding()
        self.device, self.max_length = model_device(model), max_target_length(model)
        self.takes_positions = "positions" in signature(model.decode).parameters
        with torch.no_grad():
            self.encoder_states = model.encode(source, padding_mask=source_mask)

    def all_logits(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        kwargs = self.padding.model_kwargs(ids, lengths, self.cache.length, positions=self.takes_positions)
        return self.model.decode(
            ids, self.encoder_states, source_padding_mask=self.source_mask, cache=self.cache, **kwargs
        )

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        return self.all_logits(ids, lengths)[:, -1]

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.cache.reorder(rows)
        self.padding.reorder(rows)
        self.select_sources(rows)

    def select_sources(self, rows: Int[Tensor, " M"]) -> None:
        """Select encoded sources, in this order."""
        self.encoder_states = self.encoder_states.index_select(0, rows)
        self.source_mask = None if self.source_mask is None else self.source_mask.index_select(0, rows)

    def crop(self, count: int) -> None:
        self.cache.crop(count)


class TransformerXLSession:
    """A Transformer-XL that keeps the hidden states of the last `mem_length` tokens (Dai et al. 2019)."""

    def __init__(self, model: TransformerXL, mem_length: int = UNLIMITED) -> None:
        self.model, self.cache, self.padding, self.length = model, SegmentCache(mem_length), LeftPadding(), 0
        self.device, self.max_length = model_device(model), None

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        keys = self.cache.held + ids.shape[1]
        kwargs = self.padding.model_kwargs(ids, lengths, self.length, positions=False, keys=keys)
        self.length += ids.shape[1]
        return self.model(ids, cache=self.cache, **kwargs)[:, -1]

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.cache.reorder(rows)
        self.padding.reorder(rows)


class FastWeightSession:
    """A language model of fast weights, whose state does not grow with the sequence."""

    def __init__(self, model: FastWeightLM) -> None:
        self.model, self.cache = model, FastWeightCache()
        self.device, self.max_length = model_device(model), None

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        mask = None
        if lengths is not None:
            starts = ids.shape[1] - lengths.to(ids.device)
            mask = torch.arange(ids.shape[1], device=ids.device) >= starts[:, None]
        return self.model(ids, padding_mask=mask, cache=self.cache, logits_to_keep=1)[:, -1]

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.cache.reorder(rows)


class RNNSearchSession:
    """A recurrent encoder-decoder with attention (Bahdanau et al. 2014). The source is encoded once."""

    def __init__(
        self, model: RNNSearch, source: Int[Tensor, "N S"], source_mask: Bool[Tensor, "N S"] | None = None
    ) -> None:
        self.model, self.source, self.source_mask, self.cache = model, source, source_mask, RecurrentCache()
        self.device, self.max_length = model_device(model), None

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        if lengths is not None:
            raise ShapeError("a recurrent decoder needs prompts of equal length")
        return self.model(self.source, ids, source_padding_mask=self.source_mask, cache=self.cache)[:, -1]

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.cache.reorder(rows)
        self.source = self.source.index_select(0, rows)
        self.source_mask = None if self.source_mask is None else self.source_mask.index_select(0, rows)


class UncachedSession:
    """A decoder-only model without a KV cache: each step recomputes the last `window` tokens.

    Exact where no logit depends on more tokens than that.
    """

    def __init__(self, model: Any, window: int) -> None:
        self.model, self.window, self.sequences = model, window, list[list[int]]()
        self.device, self.max_length = model_device(model), None

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        self._append(ids, lengths)
        return self._logits(1)[:, 0]

    def all_logits(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        self._append(ids, lengths)
        return self._logits(ids.shape[1])

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.sequences = [list(self.sequences[row]) for row in rows.tolist()]

    def crop(self, count: int) -> None:
        self.sequences = [row[: len(row) - count] for row in self.sequences]

    def _append(self, ids: Tensor, lengths: Tensor | None) -> None:
        rows: list[list[int]] = ids.tolist()
        if lengths is not None:
            rows = [row[-length:] for row, length in zip(rows, lengths.tolist(), strict=True)]
        self.sequences = [[*old, *new] for old, new in zip(self.sequences or [[] for _ in rows], rows, strict=True)]

    def _logits(self, count: int) -> Tensor:
        """Logits after each of the last `count` tokens. Rows are padded on the right, which a causal model ignores."""
        rows = [row[-(self.window + count - 1) :] for row in self.sequences]
        ids, _ = pad_right(rows, self.device)
        last = torch.tensor([[len(row) - count + i for i in range(count)] for row in rows], device=self.device)
        logits = self.model(ids)
        return logits.gather(1, last.clamp(min=0)[..., None].expand(-1, -1, logits.shape[-1]))


class BeamSession:
    """Several beams of each sequence of a session. Rows are ordered by sequence, then by beam.

    The beams of a sequence share its encoded source, where the session's cache supports it.
    """

    def __init__(self, session: DecodingSession, num_beams: int) -> None:
        self.session, self.num_beams = session, num_beams
        is_known = type(session) in (CausalLMSession, Seq2SeqSession)
        self.shared: Any = session if is_known and getattr(session, "class_label", None) is None else None
        """The session, if its beams share an encoded source."""
        modules = () if self.shared is None else self.shared.model.modules()
        self.is_fused = any(isinstance(module, FusedSelfAttention) for module in modules)
        """Whether the model is an inference-only copy made by `prepack_for_cpu` or `quantize_dynamic_int8`."""
        if self.shared is not None and self.is_fused and is_empty_cache(self.shared.cache):
            self.shared.cache = BeamCache()

    def prefill(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        """Read the prompts, return the logits of the first token, and repeat each sequence once per beam."""
        logits = self.session.step(ids) if lengths is None else self.session.step(ids, lengths)
        rows = torch.arange(len(ids), device=ids.device).repeat_interleave(self.num_beams)
        if self.shared is None:
            self.session.reorder(rows)
        else:
            self.shared.cache.expand_beams(rows, self.num_beams)
            self.shared.padding.reorder(rows)
        return logits

    def reorder(self, rows: Int[Tensor, " NK"], sequences: Int[Tensor, " N"] | None) -> None:
        """Select beams; if some sequences are finished, `sequences` are the remaining ones."""
        if self.shared is None:
            self.session.reorder(rows)
            return
        self.shared.cache.reorder_beams(rows, sequences)
        self.shared.padding.reorder(rows)
        if sequences is not None and isinstance(self.shared, Seq2SeqSession):
            self.shared.select_sources(sequences)

    def step(self, tokens: Int[Tensor, "NK 1"]) -> Float[Tensor, "NK V"]:
        return self.session.step(tokens)


def is_empty_cache(cache: Any) -> bool:
    """Whether a cache is of the standard type, which others may replace, and has no tokens yet."""
    return type(cache) is KVCache and cache.make is DynamicCache and cache.length == 0


def create_session(
    model: nn.Module, source: Int[Tensor, "N S"] | None = None, source_mask: Bool[Tensor, "N S"] | None = None
) -> DecodingSession:
    """The decoding session of a model; an encoder-decoder needs the source ids.

    >>> from softlook.models import GPT, GPTConfig
    >>> type(create_session(GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)))).__name__
    'CausalLMSession'
    """
    name, mode = type(model).__name__, getattr(model, "mode", None)
    if mode not in ("decoder-only", "encoder-decoder"):
        raise ConfigError(f"{name} does not generate text: expected a decoder or an encoder-decoder")
    head = getattr(getattr(model, "config", None), "head", "causal_lm")
    if head != "causal_lm":
        raise ConfigError(f"this {name} has a {head!r} head: only a language-modeling head generates text")
    if mode == "encoder-decoder" and source is None:
        raise ConfigError(f"{name} is an encoder-decoder and needs a source")
    if mode == "decoder-only" and source is not None:
        raise ConfigError(f"{name} is a decoder-only model and takes no source: put it in the prompt")
    if source is not None:
        return (RNNSearchSession if isinstance(model, RNNSearch) else Seq2SeqSession)(model, source, source_mask)  # pyright: ignore[reportArgumentType]
    return _decoder_session(model)


def _decoder_session(model: nn.Module) -> DecodingSession:
    match model:
        case TransformerXL():
            return TransformerXLSession(model)
        case FastWeightLM():
            return FastWeightSession(model)
        case ConvolutionalLM():
            return UncachedSession(model, model.receptive_field)
        case _:
            return CausalLMSession(model)


def model_device(model: Any) -> torch.device:
    """Device of the model's first parameter."""
    return next(model.parameters()).device


def max_target_length(model: Any) -> int | None:
    """Maximum target length of an encoder-decoder; None unless its positions are learned."""
    return model.config.context if getattr(model.config, "positions", None) == "learned" else None

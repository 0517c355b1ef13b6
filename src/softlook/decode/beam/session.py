"""Beams of a decoding session, and the recorder of its cross-attention."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, CrossAttention
from softlook.blocks.beam_cache import BeamCache
from softlook.blocks.kv_cache import DynamicCache, KVCache
from softlook.decode.cpu import FusedCrossAttention, FusedSelfAttention
from softlook.decode.sessions import CausalLMSession, DecodingSession, Seq2SeqSession


class BeamSession:
    """Several beams of each sequence of a session. Rows are ordered by sequence, then by beam.

    The beams of a sequence share its encoded source, where the session's cache supports it.
    """

    def __init__(self, session: DecodingSession, num_beams: int) -> None:
        self.session, self.num_beams = session, num_beams
        shares_source = isinstance(session, CausalLMSession | Seq2SeqSession) and _is_unconditional(session)
        self.shared: Any = session if shares_source else None
        """The session, if its beams share an encoded source."""
        self.is_fused = shares_source and _is_fused(self.shared.model)
        """Whether the model is an inference-only copy made by `prepack_for_cpu` or `quantize_dynamic_int8`."""
        if self.is_fused and _is_empty(self.shared.cache):
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


class CrossAttentionRecorder:
    """Forward hook that keeps the cross-attention weights of the last layer, mean over heads."""

    def __init__(self, core: AttentionCore) -> None:
        self.core, self.last = core, torch.empty(0)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        self.last = self.core.weights(query, key, *rest).mean(1)  # (N, KT, S)

    def weights(self, sequences: int, num_beams: int) -> Float[Tensor, "N K S"]:
        """Weights of the last token of each beam."""
        return self.last.reshape(sequences, num_beams, -1, self.last.shape[-1])[:, :, -1]


@contextmanager
def record_cross_attention(session: DecodingSession) -> Iterator[CrossAttentionRecorder]:
    """Record the cross-attention of a session while the context is active."""
    model = getattr(session, "model", None)
    modules = [] if model is None else model.modules()
    layers = [module for module in modules if isinstance(module, CrossAttention | FusedCrossAttention)]
    core = layers[-1].core if layers else None
    if not isinstance(core, AttentionCore) or not isinstance(session, Seq2SeqSession):
        raise ConfigError(
            f"{type(model).__name__} has no cross-attention to record: expected an encoder-decoder Transformer"
        )
    recorder = CrossAttentionRecorder(core)
    hook = core.register_forward_hook(recorder)
    try:
        yield recorder
    finally:
        hook.remove()


def _is_unconditional(session: CausalLMSession | Seq2SeqSession) -> bool:
    is_known = type(session) in (CausalLMSession, Seq2SeqSession)
    return is_known and getattr(session, "class_label", None) is None


def _is_fused(model: nn.Module) -> bool:
    return any(isinstance(module, FusedSelfAttention) for module in model.modules())


def _is_empty(cache: KVCache) -> bool:
    return type(cache) is KVCache and cache.make is DynamicCache and cache.length == 0

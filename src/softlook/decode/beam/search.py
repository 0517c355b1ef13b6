"""`beam_search`: beam search with penalties, groups and constraints."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext

import torch
from jaxtyping import Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore
from softlook.decode.alignment import last_cross_attention, record_weights
from softlook.decode.beam.constraints import PhraseConstraint
from softlook.decode.beam.hypotheses import BeamSearchParams, EarlyStopping, Hypothesis, LengthPenalty, StepCallback
from softlook.decode.beam.loop import BeamSearch
from softlook.decode.cuda_graphs.beam_search import CudaGraphBeamSearch
from softlook.decode.cuda_graphs.session import CudaGraphSession, graph_unsupported_reason
from softlook.decode.logits_processors import LogitsProcessor
from softlook.decode.sessions import DecodingSession, Seq2SeqSession
from softlook.decode.token_tensors import pad_left

MIN_TOKENS_TO_CAPTURE = 4
"""Minimum number of new tokens for which capturing a CUDA graph pays off."""


@torch.no_grad()
def beam_search(  # noqa: PLR0913  (every parameter is a keyword)
    session: DecodingSession,
    prompts: Int[Tensor, "N T"] | Sequence[Sequence[int]],
    *,
    eos_ids: int | Collection[int],
    max_new_tokens: int,
    num_beams: int = 4,
    length_penalty: float | LengthPenalty = 1.0,
    coverage_penalty: float = 0.0,
    min_new_tokens: int = 0,
    num_beam_groups: int = 1,
    diversity_penalty: float = 0.0,
    logits_processors: Sequence[LogitsProcessor] = (),
    early_stopping: EarlyStopping = "never",
    force_words: Sequence[Sequence[Sequence[int]]] | None = None,
    return_alignment: bool = False,
    on_step: StepCallback | None = None,
) -> list[list[Hypothesis]]:
    """The best `num_beams` hypotheses of each prompt, best first, without duplicates.

    - `prompts`: prompt ids, or decoder prefixes, of any lengths.
    - `length_penalty`: exponent of the length by which log-probabilities are divided, or a function of the length such
      as `gnmt_penalty`.
    - `coverage_penalty`: weight of the penalty for source tokens without attention (Wu et al. 2016).
    - `min_new_tokens`, `max_new_tokens`: the latter counts the end-of-sequence token.
    - `num_beam_groups`, `diversity_penalty`: diverse beam search (Vijayakumar et al. 2016); the penalty stays in the
      score.
    - `logits_processors`: applied to log-probabilities; they may lower them, but not raise them above 0.
    - `force_words`: for each prompt, phrases that must appear, in any order.
    - `return_alignment`: return the cross-attention weights of each token.
    - `on_step`: called at every step with all candidates.

    Sequences whose logits are NaN or infinite fail; the others are completed, and a `LogitsError` is raised with the
    failed `rows` and the `outputs` of the others.

    The search ends when no better hypothesis is possible; with `early_stopping` False or True earlier, as in Hugging
    Face's `generate`.

    >>> from softlook.decode import CausalLMSession
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> found = beam_search(CausalLMSession(model), torch.tensor([[3, 1]]), eos_ids=0, max_new_tokens=5, num_beams=3)
    >>> len(found[0]), found[0][0].score >= found[0][1].score
    (3, True)
    """
    params = BeamSearchParams(
        eos_ids=(eos_ids,) if isinstance(eos_ids, int) else tuple(eos_ids),
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        num_beams=num_beams,
        num_beam_groups=num_beam_groups,
        diversity_penalty=diversity_penalty,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        early_stopping=early_stopping,
    )
    constraints = None if force_words is None else _build_constraints(force_words, len(prompts), params)
    if not len(prompts):
        return []
    if not isinstance(prompts, Tensor) and not all(prompts):
        raise ConfigError("every prompt must have at least one id, got an empty one")
    ids, lengths = (prompts, None) if isinstance(prompts, Tensor) else pad_left(prompts, session.device)
    needs_host = (
        logits_processors
        or constraints is not None
        or return_alignment
        or coverage_penalty
        or on_step is not None
        or num_beam_groups > 1
        or early_stopping is True
    )
    fits = session.max_length is None or ids.shape[1] + max_new_tokens - 1 <= session.max_length
    can_capture = not needs_host and fits and max_new_tokens >= MIN_TOKENS_TO_CAPTURE
    if can_capture and graph_unsupported_reason(session) is None:
        graph_session = CudaGraphSession(session, ids.shape[1] + max_new_tokens)  # pyright: ignore[reportArgumentType]  (supported)
        return CudaGraphBeamSearch(graph_session, ids, lengths, params).run()
    needs_attention = return_alignment or coverage_penalty > 0
    with record_weights(_cross_attention(session)) if needs_attention else nullcontext() as weights:
        return BeamSearch(
            session,
            ids,
            lengths,
            params,
            logits_processors=logits_processors,
            constraints=constraints,
            cross_attention=weights,
            return_alignment=return_alignment,
            on_step=on_step,
        ).run()


def _cross_attention(session: DecodingSession) -> AttentionCore:
    if not isinstance(session, Seq2SeqSession):
        raise ConfigError(
            f"{type(session).__name__} has no cross-attention to record: expected an encoder-decoder Transformer"
        )
    return last_cross_attention(session.model)


def _build_constraints(
    force_words: Sequence[Sequence[Sequence[int]]], count: int, params: BeamSearchParams
) -> list[PhraseConstraint]:
    if len(force_words) != count:
        raise ConfigError(f"force_words needs a list of phrases for each of {count} prompts, got {len(force_words)}")
    if params.num_beam_groups > 1:
        raise ConfigError("force_words cannot be combined with num_beam_groups > 1")
    constraints = [PhraseConstraint(phrases) for phrases in force_words]
    for constraint in constraints:
        if constraint.num_missing([]) > params.max_new_tokens:
            raise ConfigError(
                f"force_words need {constraint.num_missing([])} tokens, but max_new_tokens is {params.max_new_tokens}"
            )
        if any(token in params.eos_ids for phrase in constraint.phrases for token in phrase):
            raise ConfigError(f"force_words must not contain an end-of-sequence token: {constraint.phrases}")
    return constraints

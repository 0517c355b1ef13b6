"""Text generation: `stream` for one prompt, `generate` for a batch."""

from collections.abc import Collection, Generator, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.decode.context_shift import ContextShift, DecodeSteps, shifted_steps
from softlook.decode.cuda_graphs.async_runner import can_run_async, run_async
from softlook.decode.cuda_graphs.session import CudaGraphSession, graph_unsupported_reason
from softlook.decode.detokenizer import StopStrings
from softlook.decode.logits_processors import LogitsProcessor, as_id_set
from softlook.decode.outputs import FinishReason, GeneratedToken, GenerationOutput, merge_row_errors
from softlook.decode.sampling import Greedy, Sampler, SequenceState, TokenSelector, try_select_tokens
from softlook.decode.sessions import DecodingSession, create_session, model_device
from softlook.decode.speculative import DraftFunction, speculative_steps
from softlook.decode.token_tensors import pad_left, pad_right

Ids = Sequence[int]
GREEDY = Greedy()
MIN_TOKENS_TO_CAPTURE = 16
"""Minimum number of new tokens for which capturing a CUDA graph pays off."""


def stream(
    model: nn.Module | DecodingSession,
    prompt: Ids,
    *,
    source: Ids | None = None,
    sampler: Sampler = GREEDY,
    logits_processors: Sequence[LogitsProcessor] = (),
    eos_ids: int | Collection[int] = (),
    max_new_tokens: int | None = None,
    stop_strings: StopStrings | None = None,
    num_logprobs: int = 0,
    index: int = 0,
    draft: DraftFunction | None = None,
    context_shift: ContextShift | None = None,
) -> Generator[GeneratedToken, None, FinishReason]:
    """Generate the continuation of a prompt token by token; the generator returns the finish reason.

    - `source`: encoder input of an encoder-decoder; the prompt is then the decoder prefix.
    - `eos_ids`: end-of-sequence ids, which are not yielded.
    - `max_new_tokens`: default: as many as fit into the model's context.
    - `num_logprobs`: number of most likely tokens returned with each token.
    - `index`: index of the sequence, which selects its random numbers for a sampler with a seed.
    - `draft`: proposes several tokens that are verified in one forward pass (speculative decoding); the output is the
      same as without.
    - `context_shift`: generate beyond the model's context, after prompts of any length; default: raise an error if
      prompt and new tokens do not fit into it.

    Closing or deleting the generator frees the KV cache.

    >>> from softlook.decode import Multinomial
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=16, dim=16, depth=1, heads=2)).eval()
    >>> sampler = Multinomial(temperature=0.8, top_p=0.95, seed=1)
    >>> for token in stream(model, [3, 1, 4], sampler=sampler, max_new_tokens=5):
    ...     assert 0 <= token.id < 10 and token.logprob < 0
    """
    session = _open_session(model, None if source is None else [source], context_shift)
    context = session.max_length if context_shift is None else None
    sequences = _start_sequences([prompt], context, max_new_tokens, stop_strings, [index])
    selector = TokenSelector(sampler, tuple(logits_processors), as_id_set(eos_ids), num_logprobs)

    def steps(session: DecodingSession, sequences: Sequence[SequenceState]) -> Iterator[list[GeneratedToken]]:
        if draft is None:
            return decode_steps(session, sequences, selector)
        return speculative_steps(session, sequences[0], selector, draft)

    return _yield_tokens(_steps_of_rounds(model, session, sequences, context_shift, steps), sequences[0])


def generate(
    model: nn.Module | DecodingSession,
    prompts: Sequence[Ids],
    *,
    sources: Sequence[Ids] | None = None,
    sampler: Sampler = GREEDY,
    logits_processors: Sequence[LogitsProcessor] = (),
    eos_ids: int | Collection[int] = (),
    max_new_tokens: int | None = None,
    stop_strings: StopStrings | None = None,
    num_logprobs: int = 0,
    context_shift: ContextShift | None = None,
) -> list[GenerationOutput]:
    """Generate continuations of several prompts, of any lengths, in one batch.

    Each output equals that of `stream` for the prompt alone, with its index in the list. Finished sequences leave the
    batch. If no token can be selected for some rows (the model's logits are NaN or infinite, or the logits processors
    mask every token), the other rows are completed first; then a `RowError` is raised with the failed `rows` and the
    `outputs` of the others.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=16, dim=16, depth=1, heads=2)).eval()
    >>> [len(output.ids) for output in generate(model, [[3, 1, 4], [1]], max_new_tokens=5)]
    [5, 5]
    """
    if sources is not None and len(sources) != len(prompts):
        raise ConfigError(f"expected one prompt per source, got {len(sources)} sources and {len(prompts)} prompts")
    if not prompts:
        return []
    session = _open_session(model, sources, context_shift)
    context = session.max_length if context_shift is None else None
    sequences = _start_sequences(prompts, context, max_new_tokens, stop_strings, range(len(prompts)))
    selector = TokenSelector(sampler, tuple(logits_processors), as_id_set(eos_ids), num_logprobs)
    steps = partial(decode_steps, selector=selector)
    for _ in _steps_of_rounds(model, session, sequences, context_shift, steps):
        pass
    outputs = [_to_output(sequence) for sequence in sequences]
    errors = {sequence.index: sequence.error for sequence in sequences if sequence.error is not None}
    if errors:
        raise merge_row_errors(errors, outputs)
    return [output for output in outputs if output is not None]


def _steps_of_rounds(
    model: nn.Module | DecodingSession,
    session: DecodingSession,
    sequences: Sequence[SequenceState],
    context_shift: ContextShift | None,
    steps: DecodeSteps,
) -> Iterator[list[GeneratedToken]]:
    """The steps of one round or, with a context shift, of as many as necessary."""
    if context_shift is None or not isinstance(model, nn.Module):
        return steps(session, sequences)
    return shifted_steps(session, partial(create_session, model), sequences, context_shift, steps)


@torch.no_grad()
def decode_steps(
    session: DecodingSession, sequences: Sequence[SequenceState], selector: TokenSelector
) -> Iterator[list[GeneratedToken]]:
    """Decode while any sequence is running; yield the tokens of each step, which are appended to the sequences."""
    ids, lengths = pad_left([sequence.window for sequence in sequences], session.device)
    new_tokens = max(sequence.remaining for sequence in sequences)
    if new_tokens >= MIN_TOKENS_TO_CAPTURE and graph_unsupported_reason(session) is None:
        session = CudaGraphSession(session, ids.shape[1] + new_tokens)  # pyright: ignore[reportArgumentType]  (supported)
    try:
        yield from _decode_loop(session, sequences, selector, ids, lengths)
    finally:
        if isinstance(session, CudaGraphSession):
            session.close()


def _decode_loop(
    session: DecodingSession,
    sequences: Sequence[SequenceState],
    selector: TokenSelector,
    ids: Tensor,
    lengths: Tensor | None,
) -> Iterator[list[GeneratedToken]]:
    while sequences:
        is_captured = isinstance(session, CudaGraphSession) and session.state is not None
        if is_captured and lengths is None and can_run_async(selector):
            yield from run_async(session, sequences, ids, selector)  # pyright: ignore[reportArgumentType]  (captured)
            return
        logits = session.step(ids) if lengths is None else session.step(ids, lengths)
        tokens, lengths = try_select_tokens(logits, [sequence.view() for sequence in sequences], selector), None
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.append(token, selector.eos_ids)
        yield [token for token in tokens if isinstance(token, GeneratedToken)]
        running = [row for row, sequence in enumerate(sequences) if sequence.is_running]
        if running and len(running) < len(sequences):
            session.reorder(torch.tensor(running, device=session.device))
        sequences = [sequences[row] for row in running]
        ids = torch.tensor([sequence.generated[-1:] for sequence in sequences], device=session.device)


def _yield_tokens(
    steps: Iterator[list[GeneratedToken]], sequence: SequenceState
) -> Generator[GeneratedToken, None, FinishReason]:
    for tokens in steps:
        if tokens and sequence.finish_reason != "eos":
            yield tokens[0]
    if sequence.error is not None:
        raise sequence.error
    assert sequence.finish_reason is not None
    return sequence.finish_reason


def _to_output(sequence: SequenceState) -> GenerationOutput | None:
    if sequence.finish_reason is None:
        return None
    checker = sequence.stop_checker
    if checker is not None:
        checker.finish()
    text = None if checker is None else checker.text
    return GenerationOutput(sequence.tokens, sequence.finish_reason, sequence.eos_token, text)


def _open_session(
    model: nn.Module | DecodingSession, sources: Sequence[Ids] | None, context_shift: ContextShift | None
) -> DecodingSession:
    if context_shift is not None and sources is not None:
        raise ConfigError("context_shift needs a decoder-only model, got a source for an encoder-decoder")
    if not isinstance(model, nn.Module):
        if context_shift is not None and model.max_length is not None:
            raise ConfigError("context_shift encodes tokens again and needs the model, got a decoding session")
        if sources is not None:
            raise ConfigError("a decoding session has its own source; pass the model to decode from this one")
        return model
    if model.training:
        raise ConfigError("the model is in training mode and applies dropout. Call model.eval() first")
    if sources is None:
        return create_session(model)
    ids, source_mask = pad_right(sources, model_device(model))
    same_length = len(set(map(len, sources))) == 1
    return create_session(model, ids) if same_length else create_session(model, ids, source_mask)


def _start_sequences(
    prompts: Sequence[Ids],
    context: int | None,
    max_new_tokens: int | None,
    stop_strings: StopStrings | None,
    indices: Sequence[int],
) -> list[SequenceState]:
    sequences = []
    for prompt, index in zip(prompts, indices, strict=True):
        limit = resolve_max_new_tokens(len(prompt), context, max_new_tokens)
        checker = None if stop_strings is None else stop_strings.checker(prompt)
        sequences.append(SequenceState(list(prompt), index, limit, checker))
    return sequences


def resolve_max_new_tokens(prompt_length: int, max_length: int | None, max_new_tokens: int | None) -> int:
    """Maximum number of new tokens after a prompt of this length.

    >>> resolve_max_new_tokens(10, 16, None), resolve_max_new_tokens(10, None, 7)
    (6, 7)
    """
    if prompt_length < 1:
        raise ConfigError("the prompt must have at least one id. To generate from nothing, pass the BOS token")
    available = None if max_length is None else max_length - prompt_length
    if max_new_tokens is None and available is None:
        raise ConfigError("there is no maximum length: set max_new_tokens")
    if available is not None and available < max(max_new_tokens or 1, 1):
        raise ConfigError(
            f"{max_new_tokens or 1} new tokens after a prompt of {prompt_length} exceed the context of {max_length}. "
            f"Shorten the prompt{f', set max_new_tokens={available},' if available > 0 else ''} or pass a context_shift"
        )
    if max_new_tokens is not None and max_new_tokens < 1:
        raise ConfigError(f"max_new_tokens must be >= 1, got {max_new_tokens}")
    return available if max_new_tokens is None else max_new_tokens  # pyright: ignore[reportReturnType]  (one is set)


def explain(
    model: nn.Module,
    *,
    sampler: Sampler = GREEDY,
    logits_processors: Sequence[LogitsProcessor] = (),
    has_source: bool = False,
) -> str:
    """Whether `stream`, `generate` and `beam_search` run this model as CUDA graphs, and if not, why.

    `has_source`: is the model an encoder-decoder?

    >>> from softlook.models import GPT, GPTConfig
    >>> explain(GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval())
    'eager: CUDA graphs need a GPU, and the model is on cpu'
    """
    device = next(model.parameters()).device
    with torch.no_grad():
        session = create_session(model, torch.zeros(1, 1, dtype=torch.long, device=device) if has_source else None)
    reason = graph_unsupported_reason(session)
    if reason is not None:
        return f"eager: {reason}"
    if not can_run_async(TokenSelector(sampler, tuple(logits_processors), frozenset(), 0)):
        return "CUDA graph per step, tokens selected in Python: logits processors and custom samplers run on the host"
    return "CUDA graph per step, tokens selected on the device"

"""Asynchronous decoding: the GPU selects tokens by itself, and the host reads them some steps later.

Tokens after the end of a sequence are discarded. Rows are independent, so the result equals that of decoding step by
step.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.decode.cuda_graphs.session import COMPACT_RATIO, CudaGraphSession
from softlook.decode.cuda_graphs.step import GraphedCallable, HostCopy, StepState, copy_to_host, step_logits
from softlook.decode.cuda_graphs.torch_ops import TorchOps
from softlook.decode.cuda_graphs.weights import DecoderWeights
from softlook.decode.outputs import GeneratedToken, LogitsError
from softlook.decode.sampling import (
    Greedy,
    Multinomial,
    SequenceState,
    TokenLogprobs,
    TokenSelector,
    gather_logprobs,
    sample_inverse_cdf,
    seeded_uniform,
    to_generated_tokens,
)

MAX_STEPS, FIRST_STEPS = 32, 4
"""Number of steps that are submitted together: at most, and at first."""


def can_run_async(selector: TokenSelector) -> bool:
    """Whether tokens can be selected on the device. Logits processors and custom samplers run in Python."""
    return not selector.logits_processors and isinstance(selector.sampler, Greedy | Multinomial)


def run_async(
    session: CudaGraphSession, sequences: Sequence[SequenceState], ids: Tensor, selector: TokenSelector
) -> Iterator[list[GeneratedToken]]:
    """Decode after these ids until every sequence is finished; yield the tokens of each step."""
    sequences = list(sequences)
    while sequences:
        yield from _run_batch(session, sequences, ids, selector)
        running = [row for row, sequence in enumerate(sequences) if sequence.is_running]
        sequences = [sequences[row] for row in running]
        if sequences:
            session.reorder(torch.tensor(running, device=session.device))
            ids = torch.tensor([sequence.generated[-1:] for sequence in sequences], device=session.device)


def _run_batch(
    session: CudaGraphSession, sequences: list[SequenceState], ids: Tensor, selector: TokenSelector
) -> Iterator[list[GeneratedToken]]:
    """Decode until all sequences are finished, or so few are left that a smaller batch pays off."""
    left = max(sequence.remaining for sequence in sequences)
    session.compact()
    session.reserve(left)
    assert session.state is not None
    session.state.ids.copy_(ids[:, 0])
    graph = _graphed_selection(session, selector)
    first, steps, pending = len(sequences[0].generated), FIRST_STEPS, list[HostCopy]()
    while True:
        count = min(steps, left) if len(pending) < 2 and not _few_running(sequences) else 0
        if count:
            pending.append(graph.run(count, graph.uniforms(selector.sampler, sequences, first, count)))
            session.length += count
            left, first, steps = left - count, first + count, min(2 * steps, MAX_STEPS)
            if left and len(pending) < 2:
                continue
        if not pending:
            return
        for selected in zip(*pending.pop(0).wait(), strict=True):
            yield from _append(sequences, to_generated_tokens(TokenLogprobs(*selected)), selector)
            if not any(sequence.is_running for sequence in sequences):
                return


def _few_running(sequences: list[SequenceState]) -> bool:
    running = sum(sequence.is_running for sequence in sequences)
    return running < len(sequences) and running * COMPACT_RATIO <= len(sequences)


def _append(
    sequences: list[SequenceState], tokens: list[GeneratedToken], selector: TokenSelector
) -> Iterator[list[GeneratedToken]]:
    """Append one token to each running sequence."""
    running = [(sequence, token) for sequence, token in zip(sequences, tokens, strict=True) if sequence.is_running]
    for sequence, token in running:
        is_nan = token.logprob != token.logprob
        error = LogitsError.for_rows([sequence.index], len(sequence.generated) + 1) if is_nan else None
        sequence.append(error or token, selector.eos_ids)
    yield [token for sequence, token in running if sequence.error is None]


def _graphed_selection(session: CudaGraphSession, selector: TokenSelector) -> "GraphedSelection":
    """The graph for these buffers and this sampler, captured once."""
    state = session.state
    assert state is not None
    key = selector.sampler, selector.num_logprobs
    if key not in state.graphs:
        state.graphs = {key: GraphedSelection(session.weights, session.ops, state, *key)}
    return state.graphs[key]


class GraphedSelection:
    """A captured step that selects the tokens and writes them to a history of `MAX_STEPS` steps."""

    def __init__(
        self, weights: DecoderWeights, ops: TorchOps, state: StepState, sampler: Any, num_logprobs: int
    ) -> None:
        rows, device = len(state.ids), state.ids.device
        integers, floats = {"dtype": torch.long, "device": device}, {"dtype": torch.float32, "device": device}
        top = min(num_logprobs, len(weights.lm_head.weight))
        self.history = TokenLogprobs(
            torch.zeros(MAX_STEPS, rows, **integers),
            torch.zeros(MAX_STEPS, rows, **floats),
            torch.ones(MAX_STEPS, rows, **integers),
            torch.zeros(MAX_STEPS, rows, top, **integers),
            torch.zeros(MAX_STEPS, rows, top, **floats),
        )
        self.random = torch.zeros(MAX_STEPS, rows, dtype=torch.float64, device=device)
        self.state = state
        self.graph = GraphedCallable(
            lambda: _select_step(weights, ops, state, sampler, self.history, self.random), device
        )

    def run(self, count: int, uniforms: Tensor | None) -> HostCopy:
        """Submit `count` steps; the host does not wait for their `TokenLogprobs`, (count, M) each."""
        self.state.step.zero_()
        if uniforms is not None:
            self.random[:count].copy_(uniforms, non_blocking=True)
        for _ in range(count):
            self.graph()
        return copy_to_host(*(part[:count] for part in self.history))

    def uniforms(self, sampler: Any, sequences: list[SequenceState], first: int, count: int) -> Tensor | None:
        """Random numbers of `count` steps, the same as when decoding step by step."""
        if not isinstance(sampler, Multinomial):
            return None
        if sampler.seed is None:
            return torch.rand(count, len(sequences), dtype=torch.float64)
        steps = range(first, first + count)
        values = [[seeded_uniform(sampler.seed, sequence.index, step) for sequence in sequences] for step in steps]
        return torch.tensor(values, dtype=torch.float64)


def _select_step(
    weights: DecoderWeights, ops: TorchOps, state: StepState, sampler: Any, history: TokenLogprobs, random: Tensor
) -> None:
    """Compute logits, select tokens, write them to the history and make them the next input."""
    logits = step_logits(weights, ops, state)
    if isinstance(sampler, Greedy) and not history.top_ids.shape[-1]:
        ops.greedy(logits, state.ids, history.ids, history.logprobs, state.step)
    else:
        logits = logits.float()
        ids = logits.argmax(-1)
        if isinstance(sampler, Multinomial):
            ids = sample_inverse_cdf(sampler.warp_logits(logits), random.index_select(0, state.step)[0])
        selected = gather_logprobs(logits.log_softmax(-1), ids, history.top_ids.shape[-1])
        for buffer, part in zip(history, selected, strict=True):
            buffer.index_copy_(0, state.step, part[None])
        state.ids.copy_(ids)
    state.positions.column.add_(1)
    state.step.add_(1)

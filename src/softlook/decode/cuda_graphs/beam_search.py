"""Beam search on the GPU: candidates, beams and finished hypotheses are computed in the captured step.

It finds what `BeamSearch` finds, where only the best hypotheses are requested. The host only checks now and then
whether any sequence is still running; buffers and graphs are kept for the next search.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from softlook.decode.beam.hypotheses import BeamSearchParams, Hypothesis
from softlook.decode.cuda_graphs.beam_workspace import (
    BeamWorkspace,
    WorkspaceSize,
    allocate_workspace,
    round_up_count,
)
from softlook.decode.cuda_graphs.session import CudaGraphSession, source_lengths
from softlook.decode.cuda_graphs.step import HostCopy, StepState, copy_to_host, step_logits
from softlook.decode.cuda_graphs.torch_ops import BeamState, SearchLimits, TorchOps
from softlook.decode.cuda_graphs.weights import DecoderWeights
from softlook.decode.outputs import LogitsError, RowError, merge_row_errors

CHECK_EVERY = 4
"""Steps between two checks of how many sequences are running."""
MIN_ROWS_TO_SHRINK = 64
"""A step with fewer rows takes as long as with one, so finished sequences stay in the batch."""
MIN_STEPS_TO_CAPTURE = 12
"""With fewer steps left, capturing a graph for a smaller batch does not pay off."""


class CudaGraphBeamSearch:
    """A beam search in progress."""

    def __init__(
        self, session: CudaGraphSession, prompts: Tensor, lengths: Tensor | None, params: BeamSearchParams
    ) -> None:
        self.session, self.prompts, self.lengths, self.params = session, prompts, lengths, params
        self.weights, self.ops = session.weights, session.ops
        self.width = params.num_candidates + len(params.eos_ids)
        self.indices = torch.empty(0, dtype=torch.long)
        """Index of the sequence in each row; those beyond the batch are unused rows."""
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in prompts]
        self.pending: list[HostCopy] = []
        self.errors: dict[int, RowError] = {}
        """Errors of failed sequences, by index."""

    @torch.inference_mode(mode=False)  # cached buffers must be usable outside of inference mode
    @torch.no_grad()
    def run(self) -> list[list[Hypothesis]]:
        logits, own, cross = self.session.prefill(self.prompts, self.lengths)
        workspace = self._workspace(own, cross)
        rows = self._first_step(workspace, logits, own, cross)
        rows = self._remaining_steps(workspace, rows)
        self._send(workspace, torch.arange(rows, device=logits.device))
        self._receive()
        self.session.graph_cache.put_workspace(workspace)
        if self.errors:
            raise merge_row_errors(self.errors, self.hypotheses)
        return self.hypotheses

    def _workspace(self, own: list, cross: list) -> BeamWorkspace:
        """An idle workspace, or a new one."""
        params, source = self.params, None if cross[0] is None else cross[0][0].shape[2]
        columns = self.prompts.shape[1] + params.max_new_tokens
        size = WorkspaceSize(len(self.prompts), params.num_beams, columns, source, len(params.eos_ids)).rounded_up()
        workspace = self.session.graph_cache.take_workspace(size) or allocate_workspace(size, self.weights, own)
        workspace.set_params(params)
        return workspace

    def _first_step(self, workspace: BeamWorkspace, logits: Tensor, own: list, cross: list) -> int:
        """The first token: each sequence has one beam as yet. The number of sequence rows in use."""
        N, K, state = len(logits), self.params.num_beams, workspace.state
        lengths = source_lengths(self.session.session, cross[0])
        rows = workspace.begin(own, cross, lengths, self.session.session.padding.num_pad)
        self.indices = torch.arange(rows, device=logits.device)
        top, scores = self.ops.top_tokens(logits, self.width), logits.new_zeros(N, 1, dtype=torch.float32)
        self.ops.advance_beams(
            top,
            scores,
            workspace.beams.first(N),
            workspace.limits,
            ids=state.ids[: N * K],
            owners=None,
            length=state.step,
        )
        state.step.add_(1)
        return rows

    def _remaining_steps(self, workspace: BeamWorkspace, rows: int) -> int:
        """Steps until no sequence is running, with fewer rows when few are left. The final number of rows."""
        length, checks = 1, [_count_running(workspace, rows)]
        while length < self.params.max_new_tokens:
            count = min(CHECK_EVERY, self.params.max_new_tokens - length)
            graph = workspace.graph(rows, partial(beam_step, self.weights, self.ops, self.width))
            for _ in range(count):
                graph()
            length += count
            checks.append(_count_running(workspace, rows))
            self._receive(wait=False)
            running = int(checks.pop(0).wait()[0])
            if running == 0:
                break
            if self._should_shrink(workspace, rows, running, self.params.max_new_tokens - length):
                rows = self._shrink(workspace, rows, round_up_count(running))
        return rows

    def _should_shrink(self, workspace: BeamWorkspace, rows: int, running: int, steps_left: int) -> bool:
        """Whether it is faster to continue without the sequences that are done."""
        new_rows = round_up_count(running)
        is_smaller = 2 * new_rows <= rows and rows * self.params.num_beams > MIN_ROWS_TO_SHRINK
        return is_smaller and steps_left > 0 and (new_rows in workspace.graphs or steps_left > MIN_STEPS_TO_CAPTURE)

    def _shrink(self, workspace: BeamWorkspace, rows: int, new_rows: int) -> int:
        """Send the results of surplus sequences that are done, and continue with the others."""
        order = workspace.beams.done[:rows].to(torch.uint8).argsort(stable=True)
        self._send(workspace, order[new_rows:])
        workspace.move_to_front(order[:new_rows])
        self.indices = self.indices.index_select(0, order[:new_rows])
        return new_rows

    def _send(self, workspace: BeamWorkspace, rows: Tensor) -> None:
        """Start copying the hypotheses of these sequences to the host."""
        beams, params = workspace.beams, self.params
        tokens, logprobs = self.ops.backtrace(beams, rows, params.max_new_tokens)
        parts = (self.indices, beams.finished, beams.finished_length, beams.finished_token, beams.scores)
        self.pending.append(copy_to_host(*(part.index_select(0, rows) for part in parts), tokens, logprobs))

    def _receive(self, *, wait: bool = True) -> None:
        """Collect hypotheses that have arrived, or wait for all of them."""
        while self.pending and (wait or self.pending[0].is_ready):
            received = ReceivedHypotheses(*self.pending.pop(0).wait())
            for index, hypotheses in received.hypotheses(self.params.eos_ids, len(self.hypotheses)):
                self.hypotheses[index] = hypotheses
            failed = received.failed(len(self.hypotheses))
            self.errors |= {index: LogitsError.for_rows([index]) for index in failed}


def beam_step(
    weights: DecoderWeights, ops: TorchOps, width: int, state: StepState, beams: BeamState, limits: SearchLimits
) -> None:
    """One more token of all beams, from the top `width` tokens of each."""
    top = ops.top_tokens(step_logits(weights, ops, state), width)
    owners = state.positions.owners
    ops.advance_beams(top, beams.scores, beams, limits, ids=state.ids, owners=owners, length=state.step)
    state.positions.column.add_(1)
    state.step.add_(1)


def _count_running(workspace: BeamWorkspace, rows: int) -> HostCopy:
    """Start copying the number of running sequences to the host."""
    return copy_to_host((~workspace.beams.done[:rows]).sum())


@dataclass
class ReceivedHypotheses:
    """Results of some sequences in host memory."""

    indices: Tensor
    finished: Tensor
    lengths: Tensor
    last_tokens: Tensor
    beam_scores: Tensor
    tokens: Tensor
    logprobs: Tensor

    def failed(self, sequences: int) -> list[int]:
        """Indices of sequences whose logits were no distribution."""
        is_failed = self.beam_scores.isnan().any(1)
        return [index for index in self.indices[is_failed].tolist() if index < sequences]

    def hypotheses(self, eos_ids: tuple[int, ...], sequences: int) -> list[tuple[int, list[Hypothesis]]]:
        """Index and hypotheses, best first, of each sequence of the batch."""
        with gc_paused():
            flat = list(map(_hypothesis, *(part.flatten(0, 1).tolist() for part in self._columns(eos_ids))))
            K = self.finished.shape[1]
            grouped = [flat[start : start + K] for start in range(0, len(flat), K)]
            return [
                (index, [one for one in found if one.score != -torch.inf])
                for index, found in zip(self.indices.tolist(), grouped, strict=True)
                if index < sequences
            ]

    def _columns(self, eos_ids: tuple[int, ...]) -> tuple[Tensor, ...]:
        """The arguments of `_hypothesis`, (R, K) or (R, K, ...)."""
        is_eos = torch.isin(self.last_tokens, torch.tensor(eos_ids))
        lengths = torch.stack([self.lengths - is_eos.long(), self.lengths], -1)
        totals, eos = self.logprobs.double().sum(-1), torch.where(is_eos, self.last_tokens, -1)
        return self.finished, totals, lengths, eos, self.tokens, self.logprobs


def _hypothesis(
    score: float, total: float, lengths: list[int], eos_id: int, tokens: list[int], logprobs: list[float]
) -> Hypothesis:
    num_tokens, length = lengths
    return Hypothesis(score, tokens[:num_tokens], total, logprobs[:length], None if eos_id < 0 else eos_id)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector while thousands of small lists are created."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

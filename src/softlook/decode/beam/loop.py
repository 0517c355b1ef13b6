"""The beam search loop: one step for all beams of a batch."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.decode.beam.constraints import PhraseConstraint, constrained_step
from softlook.decode.beam.hypotheses import (
    BeamCandidate,
    BeamSearchParams,
    BeamSelection,
    BeamStep,
    CandidateBatch,
    FinishedHypotheses,
    Hypothesis,
    NextTokenScores,
    StepCallback,
    TopTokens,
    coverage_score,
    merge_hypotheses,
    select_beams,
    top_candidates,
)
from softlook.decode.logits_processors import LogitsProcessor
from softlook.decode.outputs import LogitsError, NoTokenLeftError, RowError, SequenceView, merge_row_errors
from softlook.decode.sessions import BeamSession, DecodingSession

Groups = list[tuple[CandidateBatch, BeamSelection]]
"""Candidates and selection of each beam group."""


class BeamSearch:
    """A beam search in progress: one beam per sequence at first, then `num_beams`."""

    def __init__(
        self,
        session: DecodingSession,
        prompts: Int[Tensor, "N T"],
        lengths: Int[Tensor, " N"] | None,
        params: BeamSearchParams,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
        constraints: list[PhraseConstraint] | None = None,
        cross_attention: list[Tensor] | None = None,
        return_alignment: bool = False,
        on_step: StepCallback | None = None,
    ) -> None:
        self.session, self.beams = session, BeamSession(session, params.num_beams)
        self.prompts, self.lengths, self.params = prompts, lengths, params
        self.logits_processors, self.constraints = logits_processors, constraints
        self.return_alignment, self.on_step = return_alignment, on_step
        self.cross_attention = cross_attention
        """The cross-attention weights that `record_weights` adds at each step."""
        self.eos_ids = torch.tensor(params.eos_ids, device=prompts.device)
        self.finished = [[FinishedHypotheses(params) for _ in range(params.num_beam_groups)] for _ in prompts]
        self.length, self.cancelled = 0, set[int]()
        """Number of new tokens; indices of sequences whose results are no longer needed."""
        self.errors: dict[int, RowError] = {}
        """Errors of failed sequences, by index."""
        self.active = list(range(len(prompts)))
        """Indices of the sequences that are still in the batch."""
        self.scores = torch.zeros(len(prompts), 1, device=prompts.device)
        """(N, K): score of each beam."""
        self.tokens = torch.empty(len(prompts), 1, 0, dtype=torch.long, device=prompts.device)
        """(N, K, t): generated tokens of each beam."""
        self.logprobs = torch.empty(len(prompts), 1, 0, device=prompts.device)
        """(N, K, t): the model's log-probabilities of `tokens`."""
        self.attention: Tensor | None = None
        """(N, K, t, S): cross-attention weights, if recorded."""

    def run(self) -> list[list[Hypothesis]]:
        # Tensors of an inference-only copy are never trained on; those of other models may be kept for training.
        with torch.inference_mode() if self.beams.is_fused else nullcontext():
            while self.advance():
                pass
        hypotheses = self.hypotheses()
        if self.logits_processors and self.constraints is None:
            for index, several in enumerate(hypotheses):
                if not several and index not in self.cancelled:
                    self.errors.setdefault(index, _no_token_error(index))
        if self.errors:
            raise merge_row_errors(self.errors, hypotheses)
        return hypotheses

    def step(self) -> bool:
        """As `advance`, but raise an error with the `rows` that failed at this step.

        They have left the search; call `step` again to continue with the others.
        """
        before = set(self.errors)
        is_running = self.advance()
        new = {index: error for index, error in self.errors.items() if index not in before}
        if new:
            raise merge_row_errors(new, ())
        return is_running

    def advance(self) -> bool:
        """One more token for all beams. False when no better hypothesis is possible for any sequence.

        A sequence whose logits are no distribution leaves the search, with its error in `errors`.
        """
        if not self.active:
            return False
        self.length += 1
        parents = self._step(self._logits())
        running = self._running_rows()
        if running:
            self._reorder(running, parents)
        else:
            self.active = []
        return bool(running)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The finished hypotheses of each sequence, best first."""
        return [merge_hypotheses(groups) for groups in self.finished]

    def cancel(self, indices: Collection[int]) -> None:
        """Remove sequences whose results are no longer needed, at the next step."""
        self.cancelled |= set(indices)

    def _logits(self) -> Float[Tensor, "B V"]:
        """Logits of the next token. They are not kept: the session may overwrite them."""
        if self.length == 1:
            return self.beams.prefill(self.prompts, self.lengths)
        return self.beams.step(self.tokens[:, :, -1].reshape(-1, 1))

    def _step(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "N K"]:
        """Extend all beams by one token; the parent of each new beam."""
        scores = NextTokenScores(logits, self.logits_processors, self._views() if self.logits_processors else ())
        self._record_attention()
        groups = self._grouped_step(scores) if self.constraints is None else self._constrained_step(scores)
        for group, (candidates, selection) in enumerate(groups):
            self._finish(candidates, selection, group)
        if self.on_step is not None:
            self._report(groups)
        return self._extend(groups)

    def _top(self, scores: NextTokenScores, width: int) -> TopTokens:
        """The top tokens after each beam; none for beams of sequences that fail."""
        top = scores.top(width)
        is_broken = top.logprobs[:, 0].isnan() | ~(top.scores[:, 0] < torch.inf)  # topk sorts NaN first
        if not bool(is_broken.any()):
            return top
        is_alive = self.scores.flatten() > -torch.inf  # unused beams fail no sequence
        for row in (is_broken & is_alive).view_as(self.scores).any(1).nonzero()[:, 0].tolist():
            index = self.active[row]
            from_model = top.logprobs[:, 0].isnan().view_as(self.scores)[row].any()
            error = LogitsError.for_rows([index], self.length) if from_model else _no_token_error(index, self.length)
            self.errors[index] = error
        return TopTokens(top.tokens, top.scores.masked_fill(is_broken[:, None], -torch.inf), top.logprobs)

    def _grouped_step(self, scores: NextTokenScores) -> Groups:
        """Diverse beam search: group by group, each penalized for tokens that earlier groups selected."""
        params, N, K = self.params, *self.scores.shape
        earlier = (params.num_beam_groups - 1) * params.group_size if params.diversity_penalty else 0
        top = self._top(scores, params.num_candidates + len(params.eos_ids) + earlier)
        groups: Groups = []
        for group in range(params.num_beam_groups):
            first = 0 if K == 1 else group * params.group_size
            beams = slice(first, first + (1 if K == 1 else params.group_size))
            selected = [candidates.tokens.gather(1, selection.kept) for candidates, selection in groups]
            own = self._penalize(_beam_rows(top, N, beams), N, selected)
            candidates = top_candidates(own, self.scores[:, beams], params.num_candidates)
            candidates = candidates._replace(beams=candidates.beams + first) if first else candidates
            is_last = self.length == params.max_new_tokens
            is_eos = self._is_eos(candidates.tokens)
            groups.append((candidates, select_beams(candidates, is_eos, params.group_size, is_last=is_last)))
        return groups

    def _constrained_step(self, scores: NextTokenScores) -> Groups:
        assert self.constraints is not None
        top = self._top(scores, self.params.num_candidates + len(self.params.eos_ids))
        top = self._penalize(top, len(self.scores), [])
        constraints = [self.constraints[index] for index in self.active]
        return [constrained_step(scores, top, self.scores, self.tokens, constraints, self.params)]

    def _is_eos(self, tokens: Int[Tensor, "B W"]) -> Bool[Tensor, "B W"]:
        return tokens == self.eos_ids if len(self.eos_ids) == 1 else torch.isin(tokens, self.eos_ids)

    def _penalize(self, top: TopTokens, sequences: int, selected: list[Tensor]) -> TopTokens:
        """Mask end-of-sequence tokens before `min_new_tokens`; apply the diversity penalty."""
        scores, tokens = top.scores, top.tokens
        if self.length <= self.params.min_new_tokens:
            scores = scores.masked_fill(self._is_eos(tokens), -torch.inf)
        if selected and self.params.diversity_penalty:
            used = torch.cat(selected, 1)[:, None, None]  # (N, 1, 1, P)
            counts = (tokens.view(sequences, -1, tokens.shape[1])[..., None] == used).sum(-1)
            scores = scores - self.params.diversity_penalty * counts.view_as(scores)
        return TopTokens(tokens, scores, top.logprobs)

    def _record_attention(self) -> None:
        if self.cross_attention is not None:
            weights = self.cross_attention.pop().mean(1)  # (N, K * T, S)
            new = weights.reshape(*self.scores.shape, -1, weights.shape[-1])[:, :, -1:]
            self.attention = new if self.attention is None else torch.cat([self.attention, new], 2)

    def _finish(self, candidates: CandidateBatch, selection: BeamSelection, group: int) -> None:
        """Add finished candidates to the hypotheses of their sequences."""
        rows, columns = selection.finished.nonzero(as_tuple=True)
        if not len(rows):
            return
        parents = candidates.beams[rows, columns]
        parts = (
            rows,
            candidates.scores[rows, columns],
            self.tokens[rows, parents],
            self.logprobs[rows, parents],
            candidates.tokens[rows, columns],
            candidates.logprobs[rows, columns],
        )
        values = zip(*(part.tolist() for part in parts), self._coverage(rows, parents), strict=True)
        for row, score, tokens, logprobs, token, logprob, (coverage, alignment) in values:
            is_eos = token in self.params.eos_ids
            logprobs = [*logprobs, logprob]
            finished = self.finished[self.active[row]][group]
            finished.add(
                Hypothesis(
                    score / finished.divisors[self.length - 1] + coverage,
                    tokens if is_eos else [*tokens, token],
                    sum(logprobs),
                    logprobs,
                    token if is_eos else None,
                    alignment,
                )
            )

    def _coverage(self, rows: Tensor, beams: Tensor) -> list[tuple[float, list[list[float]] | None]]:
        """Coverage penalty and alignment of finished candidates."""
        if self.attention is None:
            return [(0.0, None)] * len(rows)
        weights, source_mask = self.attention[rows, beams], getattr(self.session, "source_mask", None)
        scores = coverage_score(weights.sum(1), None if source_mask is None else source_mask[rows])
        alignments = weights.tolist() if self.return_alignment else [None] * len(rows)
        return list(zip((self.params.coverage_penalty * scores).tolist(), alignments, strict=True))

    def _extend(self, groups: Groups) -> Int[Tensor, "N K"]:
        """Scores and tokens of the new beams; their parents."""

        def kept(field: str) -> Tensor:
            return _join([getattr(candidates, field).gather(1, selection.kept) for candidates, selection in groups])

        parents, tokens, logprobs = kept("beams"), kept("tokens"), kept("logprobs")
        self.scores = _join([selection.scores for _, selection in groups])
        self.tokens = torch.cat([_gather_beams(self.tokens, parents), tokens[..., None]], -1)
        self.logprobs = torch.cat([_gather_beams(self.logprobs, parents), logprobs[..., None]], -1)
        if self.attention is not None:
            shape = self.attention.shape[2:]
            self.attention = _gather_beams(self.attention.flatten(2), parents).unflatten(2, shape)
        return parents

    def _running_rows(self) -> list[int]:
        """Rows of sequences that are not finished."""
        if self.length == self.params.max_new_tokens:
            return []
        best = self.scores.unflatten(1, (self.params.num_beam_groups, -1)).amax(-1).tolist()
        return [row for row, index in enumerate(self.active) if self._is_running(index, best[row])]

    def _is_running(self, index: int, best: list[float]) -> bool:
        if index in self.cancelled or index in self.errors:
            return False
        groups = zip(self.finished[index], best, strict=True)
        return not all(finished.is_done(score, self.length) for finished, score in groups)

    def _reorder(self, running: list[int], parents: Int[Tensor, "N K"]) -> None:
        """Remove finished sequences, and reorder the session's cache to the new beams."""
        keep = None if len(running) == len(self.active) else torch.tensor(running, device=parents.device)
        rows = parents + torch.arange(len(parents), device=parents.device)[:, None] * self.params.num_beams
        if keep is not None:
            rows, self.active = rows[keep], [self.active[row] for row in running]
            self.scores, self.tokens, self.logprobs = self.scores[keep], self.tokens[keep], self.logprobs[keep]
            self.attention = None if self.attention is None else self.attention[keep]
        if keep is not None or self.length > 1:  # after the first step all beams are equal
            self.beams.reorder(rows.flatten(), keep)

    def _views(self) -> list[SequenceView]:
        """The beams, as logits processors see them."""
        prompts: list[list[int]] = self.prompts.tolist()
        if self.lengths is not None:
            prompts = [row[-length:] for row, length in zip(prompts, self.lengths.tolist(), strict=True)]
        beams = zip(self.active, self.tokens.tolist(), strict=True)
        return [SequenceView(prompts[index], tokens, index) for index, several in beams for tokens in several]

    def _report(self, groups: Groups) -> None:
        assert self.on_step is not None
        is_last = self.length == self.params.max_new_tokens
        for row, index in enumerate(self.active):
            traced: list[BeamCandidate] = []
            for group, (candidates, selection) in enumerate(groups):
                first_beam = None if is_last else group * self.params.group_size
                traced += _trace(candidates, selection, row, first_beam)
            self.on_step(BeamStep(index, self.length, tuple(traced)))


def _no_token_error(index: int, length: int | None = None) -> NoTokenLeftError:
    where = "" if length is None else f" at new token {length}"
    return NoTokenLeftError(
        f"the logits processors leave no token, or no finite score, to any beam of row {index}{where}. "
        "Allow an end-of-sequence token, or use fewer logits processors",
        [index],
    )


def _trace(
    candidates: CandidateBatch, selection: BeamSelection, row: int, first_beam: int | None
) -> list[BeamCandidate]:
    """The candidates of one sequence and group; `first_beam` is the index of its first beam, None at the last step."""
    kept = zip(selection.kept[row].tolist(), selection.scores[row].tolist(), strict=True)
    beams = {candidate: beam for beam, (candidate, score) in enumerate(kept, first_beam or 0) if score > -torch.inf}
    beams = {} if first_beam is None else beams
    columns = (part[row].tolist() for part in (*candidates, selection.finished))
    return [
        BeamCandidate(
            token, parent, score, logprob,
            "finished" if is_finished else "kept" if number in beams else "dropped", beams.get(number),
        )
        for number, (score, parent, token, logprob, is_finished) in enumerate(zip(*columns, strict=True))
        if score > -torch.inf
    ]  # fmt: skip


def _beam_rows(top: TopTokens, sequences: int, beams: slice) -> TopTokens:
    """The top tokens of some of the beams of each sequence."""
    if sequences * (beams.stop - beams.start) == len(top.tokens):
        return top
    parts = (top.tokens, top.scores, top.logprobs)
    return TopTokens(*(part.view(sequences, -1, part.shape[1])[:, beams].flatten(0, 1) for part in parts))


def _gather_beams(state: Tensor, parents: Int[Tensor, "N K"]) -> Tensor:
    """The state of each new beam, from its parent."""
    return state.gather(1, parents[..., None].expand(-1, -1, state.shape[2]))


def _join(groups: list[Tensor]) -> Tensor:
    """Beams of all groups, concatenated."""
    return groups[0] if len(groups) == 1 else torch.cat(groups, 1)

"""Static batching of encoder-decoders, beam search, recurrent decoders, encoders and table models.

Requests that wait when a group starts are its members.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.decode import DecodingSession, Hypothesis, create_session, power_penalty
from softlook.decode.alignment import cross_attention_maps
from softlook.decode.beam.hypotheses import BeamSearchParams
from softlook.decode.beam.loop import BeamSearch
from softlook.decode.sessions import model_device
from softlook.decode.token_tensors import pad_left, pad_right
from softlook.serve.engine.request import EngineRequest, ScheduledRequest
from softlook.serve.engine.sampler import advance
from softlook.serve.engine.scheduler import NonFiniteError, RequestGroup, Scheduler, SinglePassGroup, group_by_length
from softlook.serve.loaded_model import ImageModel, TableModel

Encode = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(ids (B, T), padding mask (B, T), token types (B, T)) -> one row of numbers per text."""


class DecodeGroup:
    """Sequences that start together. The first step processes their prompts."""

    def __init__(self, model: Any, requests: Sequence[ScheduledRequest]) -> None:
        self.model, self.requests = model, list(requests)
        self.session: DecodingSession | None = None
        self.device = model_device(model)

    def step(self) -> "list[DecodeGroup]":
        """Generate one token for each sequence."""
        if all(scheduled.cancelled for scheduled in self.requests):
            return []
        if self.session is None:
            self.session = self._start_session()
            logits = self.session.step(*pad_left([one.token_ids for one in self.requests], self.device))
        else:
            logits = self.session.step(torch.tensor([one.row.generated[-1:] for one in self.requests]).to(self.device))
        running = advance(logits, self.requests)
        if running and len(running) < len(self.requests):
            self.session.reorder(torch.tensor(running, device=self.device))
        self.requests = [self.requests[index] for index in running]
        return [self] if running else []

    def restart(self, requests: Sequence[ScheduledRequest]) -> "DecodeGroup":
        return DecodeGroup(self.model, requests)

    def release(self) -> None:
        self.requests, self.session = [], None

    def _start_session(self) -> DecodingSession:
        sources = [scheduled.request.source for scheduled in self.requests if scheduled.request.source is not None]
        return create_session(self.model, *pad_right(sources, self.device)) if sources else create_session(self.model)


class BeamSearchGroup:
    """Beam searches with equal settings that start together. A step extends all beams by one token."""

    def __init__(self, model: Any, requests: Sequence[ScheduledRequest]) -> None:
        self.model, self.requests, self.members = model, list(requests), list(requests)
        self.beams: BeamSearch | None = None

    def step(self) -> "list[BeamSearchGroup]":
        """Extend all beams by one token, and complete the searches that are done."""
        if all(scheduled.cancelled for scheduled in self.requests):
            return []
        self.beams = self._start_search() if self.beams is None else self.beams
        self.beams.cancel([index for index, scheduled in enumerate(self.members) if scheduled.cancelled])
        running = self.beams.active if self.beams.step() else []
        self._complete({*range(len(self.members))} - {*running}, self.beams)
        self.requests = [self.members[index] for index in running]
        return [self] if running else []

    def restart(self, requests: Sequence[ScheduledRequest]) -> "BeamSearchGroup":
        """From the start: a search emits nothing before its end."""
        return BeamSearchGroup(self.model, requests)

    def release(self) -> None:
        self.requests, self.members, self.beams = [], [], None

    def _complete(self, indices: set[int], beams: BeamSearch) -> None:
        done = [index for index in indices if not (self.members[index].finished or self.members[index].cancelled)]
        hypotheses = beams.hypotheses() if done else []
        for index in done:
            if hypotheses[index] and all(map(_has_valid_score, hypotheses[index])):
                self.members[index].complete(hypotheses=hypotheses[index])
            else:
                self.members[index].fail(NonFiniteError("logits"))

    def _start_search(self) -> BeamSearch:
        requests = [scheduled.request for scheduled in self.members]
        first = requests[0]
        assert first.beam_search is not None
        sources = pad_right([request.source or () for request in requests], model_device(self.model))
        session = create_session(self.model, *sources)
        params = BeamSearchParams(
            eos_ids=tuple(sorted(first.eos_ids)),
            max_new_tokens=first.max_new_tokens,
            min_new_tokens=0,
            num_beams=first.beam_search.num_beams,
            num_beam_groups=1,
            diversity_penalty=0.0,
            length_penalty=power_penalty(first.beam_search.length_penalty),
            coverage_penalty=0.0,
            early_stopping="never" if first.generation_config is None else first.generation_config.early_stopping,
        )
        start = torch.tensor([request.prompt for request in requests], device=session.device)
        return BeamSearch(session, start, None, params, logits_processors=first.processors())


class StaticBatcher(Scheduler):
    """Several groups, each of which generates one token per step. Requests leave a group one by one."""

    batch_delay = 0.002

    def __init__(self, model: Any, *, max_requests: int = 64, max_positions: int = 1 << 20) -> None:
        super().__init__(max_requests, max_positions)
        self.model = model

    def can_admit(self, scheduled: ScheduledRequest, admitted: Sequence[ScheduledRequest]) -> bool:
        """Beam searches have their own row limit and at most half of the cache; other requests can use the rest."""
        is_search = scheduled.request.beam_search is not None
        all_requests = [*self.requests, *admitted]
        others = [one for one in all_requests if (one.request.beam_search is not None) is is_search]
        rows = scheduled.request.num_beams + sum(one.request.num_beams for one in others)
        positions = sum(map(_num_positions, others if is_search else all_requests)) + _num_positions(scheduled)
        budget = self.budget // 2 if is_search else self.budget
        return not others or (rows <= self.max_requests and positions <= budget)

    def add(self, requests: Sequence[ScheduledRequest]) -> None:
        by_key: dict[Hashable, list[ScheduledRequest]] = {}
        for scheduled in requests:
            by_key.setdefault(_group_key(scheduled), []).append(scheduled)
        groups: list[RequestGroup] = []
        for members in by_key.values():
            groups += [self._group(members[0].request, group) for group in group_by_length(members)]
        self.groups += groups

    def next_groups(self) -> Sequence[RequestGroup]:
        """All of them."""
        return self.groups

    def used_positions(self) -> int:
        return sum(map(_num_positions, self.requests))

    def _group(self, first: EngineRequest, members: Sequence[ScheduledRequest]) -> RequestGroup:
        if first.attention_only:
            return SinglePassGroup(self._align, members, "attention weights")
        return (DecodeGroup if first.beam_search is None else BeamSearchGroup)(self.model, members)

    def _align(self, requests: Sequence[ScheduledRequest]) -> Sequence[Tensor]:
        """Cross-attention weights of finished translations."""
        sources, targets = [one.request.source or () for one in requests], [one.request.prompt for one in requests]
        return cross_attention_maps(self.model, sources, targets)


def _num_positions(scheduled: ScheduledRequest) -> int:
    """Cache positions a request may occupy."""
    request = scheduled.request
    return request.num_beams * (request.max_length + len(request.source or ()))


def _group_key(scheduled: ScheduledRequest) -> Hashable:
    """Requests with equal keys run in one group: searches with equal settings, and all plain decoding.

    Encoder-decoder requests of a group have equally many decoder tokens, because a recurrent decoder steps in lockstep.
    """
    request = scheduled.request
    if request.beam_search is None:
        is_plain = request.attention_only or request.source is None
        return request.attention_only, None if is_plain else len(scheduled.token_ids)
    return request.beam_search, request.processor_key, len(request.prompt)


def _has_valid_score(hypothesis: Hypothesis) -> bool:
    """-inf is valid: the score of a forbidden token if nothing else was left."""
    return not math.isnan(hypothesis.score) and hypothesis.score < math.inf


class EncoderBatcher(Scheduler):
    """Encodes texts that arrive within a few milliseconds of each other in one batch."""

    batch_delay = 0.003

    def __init__(self, model: Any, encode: Encode, *, max_requests: int = 64, max_positions: int = 1 << 15) -> None:
        super().__init__(max_requests, max_positions)
        self.encode, self.device = encode, model_device(model)

    def can_admit(self, scheduled: ScheduledRequest, admitted: Sequence[ScheduledRequest]) -> bool:
        others = [*self.requests, *admitted]
        tokens = sum(len(one.request.prompt) for one in (*others, scheduled))
        return not others or (len(others) < self.max_requests and tokens <= self.budget)

    def add(self, requests: Sequence[ScheduledRequest]) -> None:
        name = "the output for this text"
        self.groups += [SinglePassGroup(self._encode, group, name) for group in group_by_length(requests)]

    def used_positions(self) -> int:
        return sum(len(scheduled.request.prompt) for scheduled in self.requests)

    def _encode(self, requests: Sequence[ScheduledRequest]) -> Sequence[Tensor]:
        ids, mask = pad_right([scheduled.request.prompt for scheduled in requests], self.device)
        length = ids.shape[1]
        starts = [length if one.request.second_start is None else one.request.second_start for one in requests]
        positions = torch.arange(length, device=self.device)
        token_types = (positions >= torch.tensor(starts, device=self.device)[:, None]) & mask
        return self.encode(ids, mask, token_types.long()).float().cpu().unbind()


class TableBatcher(Scheduler):
    """Predicts, or explains, table rows or images that arrive within a few milliseconds of each other in one batch."""

    batch_delay = 0.003

    def __init__(self, table: TableModel | ImageModel, *, max_rows: int = 256) -> None:
        super().__init__(max_rows, max_rows)
        self.table = table

    def can_admit(self, scheduled: ScheduledRequest, admitted: Sequence[ScheduledRequest]) -> bool:
        """Long requests have a separate budget, half as large: short ones do not wait for it."""
        is_long = scheduled.request.is_long
        others = [one for one in (*self.requests, *admitted) if one.request.is_long is is_long]
        return not others or _num_rows([*others, scheduled]) <= self.budget // (1 + is_long)

    def add(self, requests: Sequence[ScheduledRequest]) -> None:
        for scheduled in requests:
            group = self._open_group(explain=scheduled.request.attention_only)
            group.requests.append(scheduled)

    def used_positions(self) -> int:
        return _num_rows(self.requests)

    def _open_group(self, *, explain: bool) -> SinglePassGroup:
        """A waiting group of the same kind, or a new one."""
        for group in self.groups:
            assert isinstance(group, SinglePassGroup)
            if group.is_open and all(one.request.attention_only is explain for one in group.requests):
                return group
        self.groups.append(group := SinglePassGroup(self._predict, []))
        return group

    def _predict(self, requests: Sequence[ScheduledRequest]) -> Sequence[Tensor]:
        predict = self.table.explain if requests[0].request.attention_only else self.table.predict
        outputs = predict([scheduled.request.rows for scheduled in requests])
        return outputs.split([_num_rows([one]) for one in requests])


def _num_rows(requests: Sequence[ScheduledRequest]) -> int:
    """Total number of table rows."""
    return sum(len(scheduled.request.rows) for scheduled in requests if scheduled.request.rows is not None)

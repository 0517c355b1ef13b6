"""Dynamic batching of encoders and table models."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.decode.token_tensors import pad_right
from softlook.serve.engine.request import ScheduledRequest
from softlook.serve.engine.scheduler import GroupScheduler, NonFiniteError, group_by_length
from softlook.serve.loaded_model import TableModel

Encode = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(ids (B, T), padding mask (B, T), token types (B, T)) -> one row of numbers per text."""


class EncodeGroup:
    """Texts that are encoded in one batch."""

    def __init__(self, encode: Encode, device: torch.device, requests: Sequence[ScheduledRequest]) -> None:
        self.encode, self.device, self.requests = encode, device, list(requests)

    def step(self) -> "list[EncodeGroup]":
        """Encode all texts."""
        pending = [scheduled for scheduled in self.requests if not scheduled.cancelled]
        if not pending:
            return []
        ids, mask = pad_right([scheduled.request.prompt for scheduled in pending], self.device)
        length = ids.shape[1]
        starts = [length if one.request.second_start is None else one.request.second_start for one in pending]
        positions = torch.arange(length, device=self.device)
        token_types = (positions >= torch.tensor(starts, device=self.device)[:, None]) & mask
        for scheduled, output in zip(pending, self.encode(ids, mask, token_types.long()).float().cpu(), strict=True):
            if output.isfinite().all():
                scheduled.complete(output.clone())
            else:
                scheduled.fail(NonFiniteError("the output for this text"))
        return []

    def restart(self, requests: Sequence[ScheduledRequest]) -> "EncodeGroup":
        return EncodeGroup(self.encode, self.device, requests)

    def release(self) -> None:
        self.requests = []


class EncoderBatcher(GroupScheduler):
    """Encodes texts that arrive within a few milliseconds of each other in one batch."""

    batch_delay = 0.003

    def __init__(self, model: Any, encode: Encode, *, max_requests: int = 64, max_positions: int = 1 << 15) -> None:
        super().__init__(max_requests, max_positions)
        self.encode, self.device = encode, next(model.parameters()).device

    def can_admit(self, scheduled: ScheduledRequest, admitted: Sequence[ScheduledRequest]) -> bool:
        others = [*self.requests, *admitted]
        tokens = sum(len(one.request.prompt) for one in (*others, scheduled))
        return not others or (len(others) < self.max_requests and tokens <= self.budget)

    def add(self, requests: Sequence[ScheduledRequest]) -> None:
        self.groups += [EncodeGroup(self.encode, self.device, group) for group in group_by_length(requests)]

    def used_positions(self) -> int:
        return sum(len(scheduled.request.prompt) for scheduled in self.requests)


class TableGroup:
    """Table rows of several requests that are predicted, or explained, in one batch."""

    def __init__(self, table: TableModel, requests: Sequence[ScheduledRequest], *, is_open: bool = True) -> None:
        """Other requests may join an open group, but not one that is retried after an error."""
        self.table, self.requests, self.is_open = table, list(requests), is_open

    def accepts(self, scheduled: ScheduledRequest) -> bool:
        explain = scheduled.request.attention_only
        return self.is_open and all(one.request.attention_only is explain for one in self.requests)

    def step(self) -> "list[TableGroup]":
        """Predict all rows."""
        pending = [scheduled for scheduled in self.requests if not scheduled.cancelled]
        if not pending:
            return []
        predict = self.table.explain if pending[0].request.attention_only else self.table.predict
        outputs = predict([scheduled.request.rows for scheduled in pending])
        for scheduled, own in zip(pending, outputs.split([num_rows([one]) for one in pending]), strict=True):
            scheduled.complete(own.clone())
        return []

    def restart(self, requests: Sequence[ScheduledRequest]) -> "TableGroup":
        return TableGroup(self.table, requests, is_open=False)

    def release(self) -> None:
        self.requests = []


class TableBatcher(GroupScheduler):
    """Predicts table rows that arrive within a few milliseconds of each other in one batch."""

    batch_delay = 0.003

    def __init__(self, table: TableModel, *, max_rows: int = 256) -> None:
        super().__init__(max_rows, max_rows)
        self.table = table

    def can_admit(self, scheduled: ScheduledRequest, admitted: Sequence[ScheduledRequest]) -> bool:
        """Long requests have a separate budget, half as large: short ones do not wait for it."""
        is_long = scheduled.request.is_long
        others = [one for one in (*self.requests, *admitted) if one.request.is_long is is_long]
        return not others or num_rows([*others, scheduled]) <= self.budget // (1 + is_long)

    def add(self, requests: Sequence[ScheduledRequest]) -> None:
        for scheduled in requests:
            group = next((one for one in self.groups if isinstance(one, TableGroup) and one.accepts(scheduled)), None)
            if group is None:
                self.groups.append(TableGroup(self.table, [scheduled]))
            else:
                group.requests.append(scheduled)

    def used_positions(self) -> int:
        return num_rows(self.requests)


def num_rows(requests: Sequence[ScheduledRequest]) -> int:
    """Total number of table rows."""
    return sum(len(scheduled.request.rows) for scheduled in requests if scheduled.request.rows is not None)

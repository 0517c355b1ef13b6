"""Base class of schedulers, and isolation of failing requests."""

import gc
import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from softlook.base.errors import ConfigError, DataError, WeightsError, is_out_of_memory
from softlook.serve.engine.request import ScheduledRequest

log = logging.getLogger("softlook.serve")
RECOVERY_STEPS = 1024
"""Steps after which a scheduler that ran out of memory uses its whole cache again."""
REQUEST_ERRORS = ConfigError | DataError | WeightsError
"""Errors whose message is returned to the client unchanged."""
ForwardPass = Callable[[Sequence[ScheduledRequest]], Sequence[Tensor]]
"""A forward pass over several requests, with an output for each."""


class ModelError(Exception):
    """The model failed on this request."""


class NonFiniteError(ModelError):
    """The model produced NaN or infinity."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the model produced non-finite numbers (NaN or infinity) as {what}. Its weights are broken, "
            "or its activations overflow their dtype: load it in a wider one, or replace the weights"
        )


class OutOfMemoryError(ModelError):
    """There is not enough memory for this request, even alone."""

    def __init__(self) -> None:
        super().__init__(
            "the server ran out of memory on this request. Request fewer tokens or fewer sequences, or try again later"
        )


class RequestGroup(Protocol):
    """Requests that are computed together as one batch."""

    @property
    def requests(self) -> Sequence[ScheduledRequest]: ...

    def step(self) -> Sequence["RequestGroup"]:
        """Run one step of all requests; return the groups that continue."""
        ...

    def restart(self, requests: Sequence[ScheduledRequest]) -> "RequestGroup":
        """A new group of some of the requests, continuing after their generated tokens. Allocates nothing yet."""
        ...

    def release(self) -> None:
        """Drop all requests and free their memory."""


@dataclass
class StepOutcome:
    """Failures of one scheduler step."""

    errors: int = 0
    """Failed steps, not counting errors of a request or of the weights."""
    out_of_memory: bool = False
    deferred: list[ScheduledRequest] = field(default_factory=list)
    """Requests that must wait until they can run alone."""


class SinglePassGroup:
    """Requests that finish after one forward pass.

    `forward` returns a tensor for each request. `output_name` describes it in the error about non-finite numbers; if
    it is None, they are allowed.
    """

    def __init__(
        self,
        forward: ForwardPass,
        requests: Sequence[ScheduledRequest],
        output_name: str | None = None,
        *,
        is_open: bool = True,
    ) -> None:
        """Other requests may join an open group, but not one that is retried after an error."""
        self.forward, self.requests, self.output_name, self.is_open = forward, list(requests), output_name, is_open

    def step(self) -> list[RequestGroup]:
        pending = [scheduled for scheduled in self.requests if not scheduled.cancelled]
        for scheduled, output in zip(pending, self.forward(pending) if pending else (), strict=True):
            if self.output_name is None or output.isfinite().all():
                scheduled.complete(output.clone())
            else:
                scheduled.fail(NonFiniteError(self.output_name))
        return []

    def restart(self, requests: Sequence[ScheduledRequest]) -> "SinglePassGroup":
        return SinglePassGroup(self.forward, requests, self.output_name, is_open=False)

    def release(self) -> None:
        self.requests = []


class Scheduler(ABC):
    """Admits requests and advances them in groups, each of which fails on its own. Used by the engine thread only."""

    batch_delay = 0.0
    """Seconds an idle scheduler waits for more requests before its first step."""

    def __init__(self, max_requests: int, max_positions: int) -> None:
        self.max_requests, self.max_positions, self.budget = max_requests, max_positions, max_positions
        """Limits on requests and cache positions; `budget` is the number of positions that may be used now."""
        self.groups: list[RequestGroup] = []

    @abstractmethod
    def can_admit(self, scheduled: ScheduledRequest, admitted: Sequence[ScheduledRequest]) -> bool:
        """Whether a request fits, in addition to those `admitted` in the same step."""

    @abstractmethod
    def add(self, requests: Sequence[ScheduledRequest]) -> None:
        """Admit requests: all of them or, if it raises, none."""

    @abstractmethod
    def used_positions(self) -> int:
        """Cache positions the running requests may occupy."""

    @property
    def requests(self) -> list[ScheduledRequest]:
        """The running requests."""
        return [scheduled for group in self.groups for scheduled in group.requests]

    def next_groups(self) -> Sequence[RequestGroup]:
        """The groups that run in this step. Default: the first; the others wait."""
        return self.groups[:1]

    def step(self) -> StepOutcome:
        """Run one step. A request that fails gets an error; the others continue."""
        outcome = StepOutcome()
        for group in list(self.next_groups()):
            others = [other for other in self.groups if other is not group]
            running = run_step(group, outcome, alone=not any(other.requests for other in others))
            index = next(i for i, other in enumerate(self.groups) if other is group)
            self.groups[index : index + 1] = [new for new in running if not any(new is other for other in others)]
        self._adjust_budget(outcome)
        return outcome

    def clear(self) -> None:
        """Drop all requests and free their memory."""
        for group in self.groups:
            group.release()
        self.groups = []

    def _adjust_budget(self, outcome: StepOutcome) -> None:
        """Shrink the budget after running out of memory, then grow it back gradually."""
        if outcome.out_of_memory:
            free_gpu_memory()
            self.budget = max(min(self.budget, self.used_positions()) * 3 // 4, 1)
        elif self.budget < self.max_positions:
            self.budget = min(self.budget + self.max_positions // RECOVERY_STEPS + 1, self.max_positions)


def run_step(group: RequestGroup, outcome: StepOutcome, *, alone: bool) -> Sequence[RequestGroup]:
    """Run one step of a group; return the groups that continue.

    A group that fails is split into halves, which retry separately until the failing request is alone and gets the
    error. After running out of memory a request fails only if it ran `alone`; otherwise it is deferred.
    """
    try:
        return group.step()
    except BaseException as exception:
        error = exception
    remaining = [scheduled for scheduled in group.requests if not (scheduled.finished or scheduled.cancelled)]
    group.release()
    out_of_memory = is_out_of_memory(error)
    outcome.errors += not isinstance(error, REQUEST_ERRORS)
    outcome.out_of_memory = outcome.out_of_memory or out_of_memory
    _log_and_free(error, len(remaining))
    if len(remaining) > 1:
        half = (len(remaining) + 1) // 2
        return [group.restart(part) for part in (remaining[:half], remaining[half:])]
    for scheduled in remaining:
        if out_of_memory and not (alone or scheduled.deferred):
            outcome.deferred.append(scheduled)
        else:
            scheduled.fail(client_error(error))
    return []


def client_error(error: BaseException) -> Exception:
    """The error that is returned to the client."""
    if is_out_of_memory(error):
        return OutOfMemoryError()
    if isinstance(error, ModelError | REQUEST_ERRORS):
        return error
    return ModelError("the model failed on this request; see the server's log")


def free_gpu_memory() -> None:
    """Return unused cached memory to the GPU."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def _log_and_free(error: BaseException, num_requests: int) -> None:
    """Log an error, and drop the tensors its traceback refers to."""
    level = logging.INFO if isinstance(error, REQUEST_ERRORS) else logging.ERROR
    log.log(level, "a step of %d requests failed with %s", num_requests, type(error).__name__, exc_info=error)
    traceback.clear_frames(error.__traceback__)
    error.__traceback__ = None


def group_by_length(requests: Sequence[ScheduledRequest]) -> list[list[ScheduledRequest]]:
    """Batches of similar input length: padding at most about doubles a sequence."""
    groups: list[list[ScheduledRequest]] = []
    for scheduled in sorted(requests, key=lambda scheduled: -input_length(scheduled)):
        length = input_length(scheduled)
        if groups and input_length(groups[-1][0]) <= 2 * length + 16 and (len(groups[-1]) + 1) * length <= 4096:
            groups[-1].append(scheduled)
        else:
            groups.append([scheduled])
    return groups


def input_length(scheduled: ScheduledRequest) -> int:
    """Tokens processed before the first new token."""
    return len(scheduled.token_ids if scheduled.request.source is None else scheduled.request.source)

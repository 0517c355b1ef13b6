"""What happens where a step of a batch fails: the request that fails is found, and the others go on."""

import gc
import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from softlook.base.errors import ConfigError, DataError, WeightsError
from softlook.serve.asking import Ticket

log = logging.getLogger("softlook.serve")
OF_THE_REQUEST = ConfigError | DataError | WeightsError
"""Errors that say by themselves what is wrong, and are told as they are."""


class ModelError(Exception):
    """The model failed on this request."""


class NonFiniteError(ModelError):
    """The model produced NaN or infinity where numbers are expected."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the model produced non-finite numbers (NaN or infinity) as {what}. Its weights are broken, "
            "or its activations overflow their dtype: load it in a wider one, or replace the weights"
        )


class OutOfMemoryError(ModelError):
    """There is not enough memory for this request, even alone."""

    def __init__(self) -> None:
        super().__init__(
            "the server ran out of memory on this request. Ask for fewer tokens or fewer sequences, or try again later"
        )


class Group(Protocol):
    """Requests that are worked on together."""

    @property
    def tickets(self) -> Sequence[Ticket]:
        """Those it works on."""
        ...

    def turn(self) -> Sequence["Group"]:
        """One step of all of them; the groups that go on."""
        ...

    def restart(self, tickets: Sequence[Ticket]) -> "Group":
        """A new group of some of its requests, which continue behind the tokens they have. Allocates nothing yet."""
        ...

    def release(self) -> None:
        """Drop all requests, and the memory held for them."""
        ...


@dataclass
class Outcome:
    """What a turn met with."""

    faults: int = 0
    """Steps that failed for another reason than a request or the weights."""
    exhausted: bool = False
    """Did one of them run out of memory?"""
    postponed: list[Ticket] = field(default_factory=list)
    """Requests that have to wait until nobody else needs memory."""


def advance(group: Group, outcome: Outcome, *, alone: bool) -> Sequence[Group]:
    """One step of a group; the groups that go on.

    Where it fails, the group is split in halves, which try again one by one, until the request that fails is alone and
    is told why. Where memory ran out, a request fails only if it was `alone`, and is postponed until then.
    """
    try:
        return group.turn()
    except BaseException as error:
        fault = error
    left = [ticket for ticket in group.tickets if not (ticket.over or ticket.cancelled)]
    group.release()
    exhausted = _is_out_of_memory(fault)
    outcome.faults += not isinstance(fault, OF_THE_REQUEST)
    outcome.exhausted = outcome.exhausted or exhausted
    _forget(fault, len(left))
    if len(left) > 1:
        half = (len(left) + 1) // 2
        return [group.restart(some) for some in (left[:half], left[half:])]
    for ticket in left:
        if exhausted and not (alone or ticket.postponed):
            outcome.postponed.append(ticket)
        else:
            ticket.fail(explained(fault))
    return []


def explained(fault: BaseException) -> Exception:
    """The error that a client is told."""
    if _is_out_of_memory(fault):
        return OutOfMemoryError()
    if isinstance(fault, ModelError | OF_THE_REQUEST):
        return fault
    return ModelError("the model failed on this request; the server's log says why")


def _is_out_of_memory(fault: BaseException) -> bool:
    return isinstance(fault, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(fault)


def release_memory() -> None:
    """Give what is not used any more back to the GPU. On a CPU it is free as soon as nobody refers to it."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def _forget(fault: BaseException, requests: int) -> None:
    """Log a fault, and let go of the tensors that its traceback holds."""
    level = logging.INFO if isinstance(fault, OF_THE_REQUEST) else logging.ERROR
    log.log(level, "a step of %d requests failed with %s", requests, type(fault).__name__, exc_info=fault)
    traceback.clear_frames(fault.__traceback__)
    fault.__traceback__ = None

"""One request never harms another: whatever a step fails with, only the request that causes it fails."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from softlook.base.errors import WeightsError
from softlook.serve.asking import Ask, Manner, Piece, Search, Ticket
from softlook.serve.continuing import ContinuingDesk
from softlook.serve.desks import Desk
from softlook.serve.engine import OVERTAKING, BusyError, Engine
from softlook.serve.groups import GroupDesk
from softlook.serve.recovery import ModelError, NonFiniteError, Outcome, OutOfMemoryError
from softlook.serve.searching import SearchGroup
from tests.serve.halls import alone, speaker, translator
from tests.serve.test_engine import VOCAB, held, until

POISON, END = 39, frozenset({2})
GREEDY = Manner(temperature=0.0)


def answers(desk: Desk, asks: Sequence[Ask], prepare: Callable[[Engine], Any] = lambda _: None) -> list[Ticket]:
    """All tickets, once each has its answer or its error, and the desk is empty again."""
    engine, pieces = Engine(desk), dict[Ticket, Piece]()
    prepare(engine)
    tickets = engine.submit(asks, lambda ticket, piece: pieces.update({ticket: piece} if piece.last else {}))
    until(lambda: len(pieces) == len(asks), 20)
    until(lambda: engine.working == engine.waiting == 0)
    assert engine.alive and not desk.tickets
    engine.close()
    return tickets


def good(count: int = 5) -> list[Ask]:
    return [Ask((i + 3, 4), limit=4 + i, manner=GREEDY, end=END) for i in range(count)]


def failing(model: Any, name: str, when: Callable[..., BaseException | None]) -> Any:
    """The model, whose method raises what `when` returns for its arguments."""
    plain = getattr(model, name)

    def method(*values: Any, **named: Any) -> Any:
        fault = when(*values, **named)
        if fault is not None:
            raise fault
        return plain(*values, **named)

    setattr(model, name, method)
    return model


@pytest.mark.parametrize("fault", [RuntimeError("broken"), torch.OutOfMemoryError("no memory")], ids=["bug", "memory"])
@pytest.mark.parametrize("where", ["prefill", "decoding"])
def test_only_the_request_that_fails_a_step_is_failed(where: str, fault: Exception) -> None:
    def when(ids: torch.Tensor, positions: torch.Tensor | None = None, **_: Any) -> Exception | None:
        if where == "prefill":
            return fault if bool((ids == POISON).any()) else None
        return fault if positions is not None and bool((positions >= 14).any()) else None

    bad = Ask((POISON,) * 12, limit=10, manner=GREEDY)
    wanted = [alone(speaker("gpt", VOCAB), ask) for ask in good()]
    model = failing(speaker("gpt", VOCAB), "forward", when)
    tickets = answers(ContinuingDesk(model), [*good()[:2], bad, *good()[2:]])
    failed = tickets.pop(2).fault
    assert isinstance(failed, OutOfMemoryError if isinstance(fault, torch.OutOfMemoryError) else ModelError)
    assert [ticket.row.new for ticket in tickets] == wanted


@pytest.mark.parametrize("step", range(1, 8))
def test_a_fault_that_passes_harms_nobody_in_company(step: int) -> None:
    calls: list[int] = []

    def when(*_: Any, **__: Any) -> Exception | None:
        calls.append(1)
        return RuntimeError("once") if len(calls) == step else None

    wanted = [alone(speaker("gpt", VOCAB), ask) for ask in good()]
    tickets = answers(ContinuingDesk(failing(speaker("gpt", VOCAB), "forward", when)), good())
    assert [ticket.row.new for ticket in tickets] == wanted


def test_memory_that_runs_out_in_company_is_enough_for_one_after_the_other() -> None:
    def when(ids: torch.Tensor, **_: Any) -> Exception | None:
        return torch.OutOfMemoryError("no memory") if len(ids) > 1 or ids.shape[1] > 11 else None

    wanted = [alone(speaker("gpt", VOCAB), ask) for ask in good()]
    model = failing(speaker("gpt", VOCAB), "forward", when)
    tickets = answers(ContinuingDesk(model), [Ask((5,) * 12, limit=3), *good()])
    assert isinstance(tickets.pop(0).fault, OutOfMemoryError)
    assert [ticket.row.new for ticket in tickets] == wanted


def test_a_request_that_memory_fails_in_company_is_answered_alone() -> None:
    desk = ContinuingDesk(speaker("gpt", VOCAB))

    def when(ids: torch.Tensor, **_: Any) -> Exception | None:
        crowded = bool((ids == POISON).any()) and len(desk.tickets) > 1
        return torch.OutOfMemoryError("no memory") if crowded else None

    asks = [*good(), Ask((POISON, 4), limit=1, manner=GREEDY)]
    wanted = [alone(desk.model, ask) for ask in asks]
    failing(desk.model, "forward", when)
    assert [ticket.row.new for ticket in answers(desk, asks)] == wanted


@pytest.mark.parametrize("place", ["has_room", "join"])
def test_a_request_that_cannot_come_in_is_told_and_nobody_hangs(place: str) -> None:
    def when(asked: Any, *_: Any) -> Exception | None:
        several = [asked] if isinstance(asked, Ticket) else asked
        return torch.OutOfMemoryError("none") if any(POISON in one.ask.prompt for one in several) else None

    desk = failing(ContinuingDesk(speaker("gpt", VOCAB)), place, when)
    wanted = [alone(speaker("gpt", VOCAB), ask) for ask in good()]
    tickets = answers(desk, [*good()[:2], Ask((POISON,)), *good()[2:]])
    assert isinstance(tickets.pop(2).fault, OutOfMemoryError) and [one.row.new for one in tickets] == wanted


def test_a_fault_outside_of_any_request_is_told_to_all_and_survived() -> None:
    desk = failing(ContinuingDesk(speaker("gpt", VOCAB)), "turn", lambda: SystemExit("odd"))
    tickets = answers(desk, good())
    assert all(isinstance(ticket.fault, ModelError) for ticket in tickets)


@pytest.mark.parametrize("search", [None, Search(3, 1.0)], ids=["greedy", "beams"])
@pytest.mark.parametrize(("kind", "part"), [("transformer", "encode"), ("transformer", "decode"), ("rnn", "forward")])
def test_only_the_translation_that_fails_is_failed(kind: str, part: str, search: Search | None) -> None:
    def ask(source: tuple[int, ...], start: int = 1) -> Ask:
        return Ask((start,), source, limit=6, manner=GREEDY, search=search, end=END)

    def when(*values: torch.Tensor, **_: Any) -> Exception | None:
        return RuntimeError("broken") if any(bool((value == POISON).any()) for value in values) else None

    def gist(tickets: Sequence[Ticket]) -> Any:
        return [(ticket.row.new, [found.ids for found in ticket.found]) for ticket in tickets]

    asks = [ask((5, 6, 7)), ask((8, 9)), ask((10, 11, 12, 13))]
    wanted = [answers(GroupDesk(translator(kind)), [one])[0] for one in asks]
    desk = GroupDesk(failing(translator(kind), part, when))
    tickets = answers(desk, [asks[0], ask((POISON, 4, 5), POISON), *asks[1:]])
    assert isinstance(tickets.pop(1).fault, ModelError) and gist(tickets) == gist(wanted)


def test_a_search_that_fails_after_its_only_member_left_is_over() -> None:
    ticket = Ticket(Ask((1,), (5, 6), limit=5, search=Search(2, 1.0), end=END), lambda *_: None)

    def when(*_: Any, **__: Any) -> Exception:
        ticket.cancelled = True
        return WeightsError("broken")

    desk = GroupDesk(failing(translator(), "decode", when))
    desk.join([ticket])
    assert isinstance(desk.groups[0], SearchGroup)
    assert desk.turn() == Outcome() and not desk.groups and not ticket.over


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=["nan", "inf", "all -inf"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_not_finite_fail_their_own_request_alone(value: float, temperature: float) -> None:
    asks = [Ask(one.prompt, limit=4, manner=Manner(temperature), end=END, seed=7) for one in good()]
    wanted = [alone(speaker("gpt", VOCAB), ask) for ask in asks]
    model = speaker("gpt", VOCAB)
    plain = model.forward
    model.forward = lambda ids, **named: plain(ids, **named).masked_fill((ids == POISON)[..., None], value)
    tickets = answers(ContinuingDesk(model), [Ask((POISON,), manner=Manner(temperature)), *asks])
    assert isinstance(tickets.pop(0).fault, NonFiniteError) and [one.row.new for one in tickets] == wanted


def test_whoever_leaves_the_queue_makes_room_in_it_at_once() -> None:
    model, engine = held(queue=10)
    engine.submit([Ask((5,), limit=2)], lambda *_: None)
    until(lambda: engine.waiting == 0)
    waiting = engine.submit([Ask((5,), limit=2)] * 10, lambda *_: None)
    with pytest.raises(BusyError):
        engine.submit([Ask((5,))], lambda *_: None)
    engine.cancel(waiting[:9])
    assert engine.waiting == 1 and engine.counts.cancelled == 9
    engine.submit([Ask((5,), limit=1)] * 9, lambda *_: None)
    model.free.release(1000)
    until(lambda: engine.counts.finished == 11)
    engine.close()


def test_a_request_without_room_is_overtaken_but_not_for_ever() -> None:
    desk, order = ContinuingDesk(speaker("gpt", VOCAB), places=400), list[Ticket]()
    plain = desk.join

    def join(tickets: Sequence[Ticket]) -> None:
        order.extend(tickets)
        plain(tickets)

    desk.join = join
    first, large = Ask((5,), limit=40), Ask((5,) * 30, limit=30)
    small = [Ask((6,), limit=1 + i % 7) for i in range(3 * OVERTAKING)]
    desk.has_room = lambda ticket, beside: (  # the large one wants to be alone
        not (desk.tickets or beside) if ticket.ask is large else len(desk.tickets) + len(beside) < 4
    )
    tickets = answers(desk, [first, large, *small])
    place = order.index(tickets[1])
    assert 1 < place <= 1 + OVERTAKING + 4, "small ones pass a large one, and then wait for it"

"""One request never harms another: whatever a step fails with, only the request that causes it fails."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from softlook.base.errors import WeightsError
from softlook.decode.sampling import SamplingParams
from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.engine.engine import MAX_OVERTAKES, Engine, QueueFullError
from softlook.serve.engine.request import BeamParams, EngineRequest, RequestOutput, ScheduledRequest
from softlook.serve.engine.scheduler import ModelError, NonFiniteError, OutOfMemoryError, Scheduler, StepOutcome
from softlook.serve.engine.static_batcher import BeamSearchGroup, StaticBatcher
from tests.serve.test_engine import VOCAB, held, until
from tests.serve.tiny_models import alone, decoder, translator

POISON, END = 39, frozenset({2})
GREEDY = SamplingParams(temperature=0.0)


def answers(
    scheduler: Scheduler, requests: Sequence[EngineRequest], prepare: Callable[[Engine], Any] = lambda _: None
) -> list[ScheduledRequest]:
    """All tickets, once each has its answer or its error, and the desk is empty again."""
    engine, outputs = Engine(scheduler), dict[ScheduledRequest, RequestOutput]()
    prepare(engine)
    entries = engine.submit(
        requests, lambda scheduled, output: outputs.update({scheduled: output} if output.is_final else {})
    )
    until(lambda: len(outputs) == len(requests), 20)
    until(lambda: engine.num_running == engine.num_waiting == 0)
    assert engine.is_alive and not scheduler.requests
    engine.close()
    return entries


def good(count: int = 5) -> list[EngineRequest]:
    return [EngineRequest((i + 3, 4), max_new_tokens=4 + i, sampling=GREEDY, eos_ids=END) for i in range(count)]


def failing(model: Any, name: str, when: Callable[..., BaseException | None]) -> Any:
    """The model, whose method raises what `when` returns for its arguments."""
    plain = getattr(model, name)

    def method(*values: Any, **named: Any) -> Any:
        error = when(*values, **named)
        if error is not None:
            raise error
        return plain(*values, **named)

    setattr(model, name, method)
    return model


@pytest.mark.parametrize("error", [RuntimeError("broken"), torch.OutOfMemoryError("no memory")], ids=["bug", "memory"])
@pytest.mark.parametrize("where", ["prefill", "decoding"])
def test_only_the_request_that_fails_a_step_gets_an_error(where: str, error: Exception) -> None:
    def when(ids: torch.Tensor, positions: torch.Tensor | None = None, **_: Any) -> Exception | None:
        if where == "prefill":
            return error if bool((ids == POISON).any()) else None
        return error if positions is not None and bool((positions >= 14).any()) else None

    bad = EngineRequest((POISON,) * 12, max_new_tokens=10, sampling=GREEDY)
    expected = [alone(decoder("gpt", VOCAB), request) for request in good()]
    model = failing(decoder("gpt", VOCAB), "forward", when)
    requests = answers(ContinuousBatcher(model), [*good()[:2], bad, *good()[2:]])
    failed = requests.pop(2).error
    assert isinstance(failed, OutOfMemoryError if isinstance(error, torch.OutOfMemoryError) else ModelError)
    assert [scheduled.row.generated for scheduled in requests] == expected


@pytest.mark.parametrize("step", range(1, 8))
def test_a_transient_error_does_not_change_any_output(step: int) -> None:
    calls: list[int] = []

    def when(*_: Any, **__: Any) -> Exception | None:
        calls.append(1)
        return RuntimeError("once") if len(calls) == step else None

    expected = [alone(decoder("gpt", VOCAB), request) for request in good()]
    requests = answers(ContinuousBatcher(failing(decoder("gpt", VOCAB), "forward", when)), good())
    assert [scheduled.row.generated for scheduled in requests] == expected


def test_requests_run_one_by_one_after_running_out_of_memory() -> None:
    def when(ids: torch.Tensor, **_: Any) -> Exception | None:
        return torch.OutOfMemoryError("no memory") if len(ids) > 1 or ids.shape[1] > 11 else None

    expected = [alone(decoder("gpt", VOCAB), request) for request in good()]
    model = failing(decoder("gpt", VOCAB), "forward", when)
    requests = answers(ContinuousBatcher(model), [EngineRequest((5,) * 12, max_new_tokens=3), *good()])
    assert isinstance(requests.pop(0).error, OutOfMemoryError)
    assert [scheduled.row.generated for scheduled in requests] == expected


def test_a_request_is_retried_alone_after_running_out_of_memory() -> None:
    scheduler = ContinuousBatcher(decoder("gpt", VOCAB))

    def when(ids: torch.Tensor, **_: Any) -> Exception | None:
        crowded = bool((ids == POISON).any()) and len(scheduler.requests) > 1
        return torch.OutOfMemoryError("no memory") if crowded else None

    requests = [*good(), EngineRequest((POISON, 4), max_new_tokens=1, sampling=GREEDY)]
    expected = [alone(scheduler.model, request) for request in requests]
    failing(scheduler.model, "forward", when)
    assert [scheduled.row.generated for scheduled in answers(scheduler, requests)] == expected


@pytest.mark.parametrize("place", ["has_room", "join"])
def test_a_request_that_cannot_be_admitted_gets_an_error(place: str) -> None:
    def when(asked: Any, *_: Any) -> Exception | None:
        several = [asked] if isinstance(asked, ScheduledRequest) else asked
        return torch.OutOfMemoryError("none") if any(POISON in one.request.prompt for one in several) else None

    scheduler = failing(ContinuousBatcher(decoder("gpt", VOCAB)), place, when)
    expected = [alone(decoder("gpt", VOCAB), request) for request in good()]
    requests = answers(scheduler, [*good()[:2], EngineRequest((POISON,)), *good()[2:]])
    assert isinstance(requests.pop(2).error, OutOfMemoryError) and [one.row.generated for one in requests] == expected


def test_an_error_outside_of_groups_fails_all_requests_and_is_survived() -> None:
    scheduler = failing(ContinuousBatcher(decoder("gpt", VOCAB)), "turn", lambda: SystemExit("odd"))
    requests = answers(scheduler, good())
    assert all(isinstance(scheduled.error, ModelError) for scheduled in requests)


@pytest.mark.parametrize("search", [None, BeamParams(3, 1.0)], ids=["greedy", "beams"])
@pytest.mark.parametrize(("kind", "part"), [("transformer", "encode"), ("transformer", "decode"), ("rnn", "forward")])
def test_only_the_translation_that_fails_gets_an_error(kind: str, part: str, search: BeamParams | None) -> None:
    def request(source: tuple[int, ...], start: int = 1) -> EngineRequest:
        return EngineRequest((start,), source, max_new_tokens=6, sampling=GREEDY, beam_search=search, eos_ids=END)

    def when(*values: torch.Tensor, **_: Any) -> Exception | None:
        return RuntimeError("broken") if any(bool((value == POISON).any()) for value in values) else None

    def gist(requests: Sequence[ScheduledRequest]) -> Any:
        return [(scheduled.row.generated, [found.ids for found in scheduled.hypotheses]) for scheduled in requests]

    requests = [request((5, 6, 7)), request((8, 9)), request((10, 11, 12, 13))]
    expected = [answers(StaticBatcher(translator(kind)), [one])[0] for one in requests]
    scheduler = StaticBatcher(failing(translator(kind), part, when))
    entries = answers(scheduler, [requests[0], request((POISON, 4, 5), POISON), *requests[1:]])
    assert isinstance(entries.pop(1).error, ModelError) and gist(entries) == gist(expected)


def test_a_beam_search_that_fails_after_cancellation_ends() -> None:
    scheduled = ScheduledRequest(
        EngineRequest((1,), (5, 6), max_new_tokens=5, beam_search=BeamParams(2, 1.0), eos_ids=END), lambda *_: None
    )

    def when(*_: Any, **__: Any) -> Exception:
        scheduled.cancelled = True
        return WeightsError("broken")

    scheduler = StaticBatcher(failing(translator(), "decode", when))
    scheduler.add([scheduled])
    assert isinstance(scheduler.groups[0], BeamSearchGroup)
    assert scheduler.step() == StepOutcome() and not scheduler.groups and not scheduled.finished


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=["nan", "inf", "all -inf"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_not_finite_fail_their_own_request_alone(value: float, temperature: float) -> None:
    requests = [
        EngineRequest(one.prompt, max_new_tokens=4, sampling=SamplingParams(temperature), eos_ids=END, seed=7)
        for one in good()
    ]
    expected = [alone(decoder("gpt", VOCAB), request) for request in requests]
    model = decoder("gpt", VOCAB)
    plain = model.forward
    model.forward = lambda ids, **named: plain(ids, **named).masked_fill((ids == POISON)[..., None], value)
    entries = answers(
        ContinuousBatcher(model), [EngineRequest((POISON,), sampling=SamplingParams(temperature)), *requests]
    )
    assert isinstance(entries.pop(0).error, NonFiniteError) and [one.row.generated for one in entries] == expected


def test_cancelling_frees_the_queue_immediately() -> None:
    model, engine = held(max_queue=10)
    engine.submit([EngineRequest((5,), max_new_tokens=2)], lambda *_: None)
    until(lambda: engine.num_waiting == 0)
    waiting = engine.submit([EngineRequest((5,), max_new_tokens=2)] * 10, lambda *_: None)
    with pytest.raises(QueueFullError):
        engine.submit([EngineRequest((5,))], lambda *_: None)
    engine.abort(waiting[:9])
    assert engine.num_waiting == 1 and engine.stats.cancelled == 9
    engine.submit([EngineRequest((5,), max_new_tokens=1)] * 9, lambda *_: None)
    model.free.release(1000)
    until(lambda: engine.stats.finished == 11)
    engine.close()


def test_a_request_that_does_not_fit_is_overtaken_a_limited_number_of_times() -> None:
    scheduler, order = ContinuousBatcher(decoder("gpt", VOCAB), max_positions=400), list[ScheduledRequest]()
    plain = scheduler.add

    def join(requests: Sequence[ScheduledRequest]) -> None:
        order.extend(requests)
        plain(requests)

    scheduler.add = join
    first, large = EngineRequest((5,), max_new_tokens=40), EngineRequest((5,) * 30, max_new_tokens=30)
    small = [EngineRequest((6,), max_new_tokens=1 + i % 7) for i in range(3 * MAX_OVERTAKES)]
    scheduler.can_admit = lambda scheduled, admitted: (  # the large one wants to be alone
        not (scheduler.requests or admitted)
        if scheduled.request is large
        else len(scheduler.requests) + len(admitted) < 4
    )
    requests = answers(scheduler, [first, large, *small])
    place = order.index(requests[1])
    assert 1 < place <= 1 + MAX_OVERTAKES + 4, "small ones pass a large one, and then wait for it"

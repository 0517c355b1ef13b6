"""Failures are isolated: whatever error a step raises, only the request that causes it fails."""

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
from tests.serve.test_engine import VOCAB, blocked_engine, wait_until
from tests.serve.tiny_models import decoder, generate_unbatched, translator

POISON, EOS = 39, frozenset({2})
GREEDY = SamplingParams(temperature=0.0)


def run_all(
    scheduler: Scheduler, requests: Sequence[EngineRequest], prepare: Callable[[Engine], Any] = lambda _: None
) -> list[ScheduledRequest]:
    """Run requests until each has its output or its error and the scheduler is empty."""
    engine, outputs = Engine(scheduler), dict[ScheduledRequest, RequestOutput]()
    prepare(engine)
    entries = engine.submit(
        requests, lambda scheduled, output: outputs.update({scheduled: output} if output.is_final else {})
    )
    wait_until(lambda: len(outputs) == len(requests), 20)
    wait_until(lambda: engine.num_running == engine.num_waiting == 0)
    assert engine.is_alive and not scheduler.requests
    engine.close()
    return entries


def good_requests(count: int = 5) -> list[EngineRequest]:
    return [EngineRequest((i + 3, 4), max_new_tokens=4 + i, sampling=GREEDY, eos_ids=EOS) for i in range(count)]


def failing(model: Any, name: str, when: Callable[..., BaseException | None]) -> Any:
    """The model, whose method raises what `when` returns for its arguments."""
    original = getattr(model, name)

    def method(*values: Any, **named: Any) -> Any:
        error = when(*values, **named)
        if error is not None:
            raise error
        return original(*values, **named)

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
    expected = [generate_unbatched(decoder("gpt", VOCAB), request) for request in good_requests()]
    model = failing(decoder("gpt", VOCAB), "forward", when)
    requests = run_all(ContinuousBatcher(model), [*good_requests()[:2], bad, *good_requests()[2:]])
    failed = requests.pop(2).error
    assert isinstance(failed, OutOfMemoryError if isinstance(error, torch.OutOfMemoryError) else ModelError)
    assert [scheduled.row.generated for scheduled in requests] == expected


@pytest.mark.parametrize("step", range(1, 8))
def test_a_transient_error_does_not_change_any_output(step: int) -> None:
    calls: list[int] = []

    def when(*_: Any, **__: Any) -> Exception | None:
        calls.append(1)
        return RuntimeError("once") if len(calls) == step else None

    expected = [generate_unbatched(decoder("gpt", VOCAB), request) for request in good_requests()]
    requests = run_all(ContinuousBatcher(failing(decoder("gpt", VOCAB), "forward", when)), good_requests())
    assert [scheduled.row.generated for scheduled in requests] == expected


def test_requests_run_one_by_one_after_running_out_of_memory() -> None:
    def when(ids: torch.Tensor, **_: Any) -> Exception | None:
        return torch.OutOfMemoryError("no memory") if len(ids) > 1 or ids.shape[1] > 11 else None

    expected = [generate_unbatched(decoder("gpt", VOCAB), request) for request in good_requests()]
    model = failing(decoder("gpt", VOCAB), "forward", when)
    requests = run_all(ContinuousBatcher(model), [EngineRequest((5,) * 12, max_new_tokens=3), *good_requests()])
    assert isinstance(requests.pop(0).error, OutOfMemoryError)
    assert [scheduled.row.generated for scheduled in requests] == expected


def test_a_request_is_retried_alone_after_running_out_of_memory() -> None:
    scheduler = ContinuousBatcher(decoder("gpt", VOCAB))

    def when(ids: torch.Tensor, **_: Any) -> Exception | None:
        in_a_batch = bool((ids == POISON).any()) and len(scheduler.requests) > 1
        return torch.OutOfMemoryError("no memory") if in_a_batch else None

    requests = [*good_requests(), EngineRequest((POISON, 4), max_new_tokens=1, sampling=GREEDY)]
    expected = [generate_unbatched(scheduler.model, request) for request in requests]
    failing(scheduler.model, "forward", when)
    assert [scheduled.row.generated for scheduled in run_all(scheduler, requests)] == expected


@pytest.mark.parametrize("method", ["can_admit", "add"])
def test_a_request_that_cannot_be_admitted_gets_an_error(method: str) -> None:
    def when(scheduled: Any, *_: Any) -> Exception | None:
        requests = [scheduled] if isinstance(scheduled, ScheduledRequest) else scheduled
        return torch.OutOfMemoryError("none") if any(POISON in one.request.prompt for one in requests) else None

    scheduler = failing(ContinuousBatcher(decoder("gpt", VOCAB)), method, when)
    expected = [generate_unbatched(decoder("gpt", VOCAB), request) for request in good_requests()]
    requests = run_all(scheduler, [*good_requests()[:2], EngineRequest((POISON,)), *good_requests()[2:]])
    assert isinstance(requests.pop(2).error, OutOfMemoryError) and [one.row.generated for one in requests] == expected


def test_an_error_outside_of_groups_fails_all_requests_and_is_survived() -> None:
    scheduler = failing(ContinuousBatcher(decoder("gpt", VOCAB)), "step", lambda: SystemExit("unexpected"))
    requests = run_all(scheduler, good_requests())
    assert all(isinstance(scheduled.error, ModelError) for scheduled in requests)


@pytest.mark.parametrize("search", [None, BeamParams(3, 1.0)], ids=["greedy", "beams"])
@pytest.mark.parametrize(("kind", "part"), [("transformer", "encode"), ("transformer", "decode"), ("rnn", "forward")])
def test_only_the_translation_that_fails_gets_an_error(kind: str, part: str, search: BeamParams | None) -> None:
    def request(source: tuple[int, ...], start: int = 1) -> EngineRequest:
        return EngineRequest((start,), source, max_new_tokens=6, sampling=GREEDY, beam_search=search, eos_ids=EOS)

    def when(*values: torch.Tensor, **_: Any) -> Exception | None:
        return RuntimeError("broken") if any(bool((value == POISON).any()) for value in values) else None

    def outputs_of(requests: Sequence[ScheduledRequest]) -> Any:
        return [(scheduled.row.generated, [found.ids for found in scheduled.hypotheses]) for scheduled in requests]

    requests = [request((5, 6, 7)), request((8, 9)), request((10, 11, 12, 13))]
    expected = [run_all(StaticBatcher(translator(kind)), [one])[0] for one in requests]
    scheduler = StaticBatcher(failing(translator(kind), part, when))
    entries = run_all(scheduler, [requests[0], request((POISON, 4, 5), POISON), *requests[1:]])
    assert isinstance(entries.pop(1).error, ModelError) and outputs_of(entries) == outputs_of(expected)


def test_a_beam_search_that_fails_after_cancellation_ends() -> None:
    scheduled = ScheduledRequest(
        EngineRequest((1,), (5, 6), max_new_tokens=5, beam_search=BeamParams(2, 1.0), eos_ids=EOS), lambda *_: None
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
def test_non_finite_logits_fail_only_their_own_request(value: float, temperature: float) -> None:
    requests = [
        EngineRequest(one.prompt, max_new_tokens=4, sampling=SamplingParams(temperature), eos_ids=EOS, seed=7)
        for one in good_requests()
    ]
    expected = [generate_unbatched(decoder("gpt", VOCAB), request) for request in requests]
    model = decoder("gpt", VOCAB)
    original = model.forward
    model.forward = lambda ids, **named: original(ids, **named).masked_fill((ids == POISON)[..., None], value)
    entries = run_all(
        ContinuousBatcher(model), [EngineRequest((POISON,), sampling=SamplingParams(temperature)), *requests]
    )
    assert isinstance(entries.pop(0).error, NonFiniteError) and [one.row.generated for one in entries] == expected


def test_cancelling_frees_the_queue_immediately() -> None:
    model, engine = blocked_engine(max_queue=10)
    engine.submit([EngineRequest((5,), max_new_tokens=2)], lambda *_: None)
    wait_until(lambda: engine.num_waiting == 0)
    waiting = engine.submit([EngineRequest((5,), max_new_tokens=2)] * 10, lambda *_: None)
    with pytest.raises(QueueFullError):
        engine.submit([EngineRequest((5,))], lambda *_: None)
    engine.abort(waiting[:9])
    assert engine.num_waiting == 1 and engine.stats.cancelled == 9
    engine.submit([EngineRequest((5,), max_new_tokens=1)] * 9, lambda *_: None)
    model.free.release(1000)
    wait_until(lambda: engine.stats.finished == 11)
    engine.close()


def test_a_request_that_does_not_fit_is_overtaken_a_limited_number_of_times() -> None:
    scheduler, order = ContinuousBatcher(decoder("gpt", VOCAB), max_positions=400), list[ScheduledRequest]()
    original = scheduler.add

    def add(requests: Sequence[ScheduledRequest]) -> None:
        order.extend(requests)
        original(requests)

    scheduler.add = add
    first, large = EngineRequest((5,), max_new_tokens=40), EngineRequest((5,) * 30, max_new_tokens=30)
    small = [EngineRequest((6,), max_new_tokens=1 + i % 7) for i in range(3 * MAX_OVERTAKES)]
    scheduler.can_admit = lambda scheduled, admitted: (  # the large request needs the whole batch
        not (scheduler.requests or admitted)
        if scheduled.request is large
        else len(scheduler.requests) + len(admitted) < 4
    )
    requests = run_all(scheduler, [first, large, *small])
    rank = order.index(requests[1])
    assert 1 < rank <= 1 + MAX_OVERTAKES + 4, "small requests overtake a large one, then wait for it"

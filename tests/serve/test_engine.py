"""The law of the worker: whoever else is there, every answer is the one that is obtained alone."""

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from softlook.decode.sampling import SamplingParams
from softlook.models import ConvolutionalLM, ConvolutionalLMConfig, TransformerXL, TransformerXLConfig
from softlook.serve.engine import continuous_batcher
from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.engine.encoder_batcher import EncoderBatcher
from softlook.serve.engine.engine import UNHEALTHY_AFTER, Engine, EngineStoppedError, QueueFullError
from softlook.serve.engine.request import EngineRequest, RequestOutput, ScheduledRequest
from softlook.serve.engine.scheduler import ModelError, NonFiniteError, StepOutcome
from softlook.serve.engine.static_batcher import StaticBatcher
from tests.serve.tiny_models import CONTEXT, alone, decoder, encoder, lively, prompt, translator

VOCAB, END = 40, 2
MANNERS = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.8, top_p=0.9),
    SamplingParams(temperature=1.3, top_k=5, min_p=0.05),
    SamplingParams(
        temperature=0.7, presence_penalty=0.6, frequency_penalty=0.2, repetition_penalty=1.2, num_logprobs=2
    ),
)


def collected(
    engine: Engine, requests: Sequence[EngineRequest], pause: float = 0.0, seed: int = 0
) -> list[ScheduledRequest]:
    """Ask everything, a little apart, and wait for all of it."""
    over, left, rng = threading.Event(), [len(requests)], random.Random(seed)
    errors: list[Exception] = []

    def hear(scheduled: ScheduledRequest, output: RequestOutput) -> None:
        left[0] -= output.is_final
        errors.extend([output.error] if output.error is not None else [])
        if not left[0]:
            over.set()

    entries = []
    for request in requests:
        entries += engine.submit([request], hear)
        time.sleep(pause * rng.random())
    assert over.wait(60), f"{left[0]} of {len(requests)} were never answered"
    assert not errors, errors
    return entries


def many(count: int, longest: int, seed: int = 0) -> list[EngineRequest]:
    rng = random.Random(seed)
    return [
        EngineRequest(
            tuple(prompt(rng, longest, VOCAB)),
            max_new_tokens=rng.randint(1, 30),
            sampling=rng.choice(MANNERS),
            seed=rng.randrange(1000),
            sample_index=rng.randrange(3),
            eos_ids=frozenset({END}),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["gpt", "llama", "windowed"])
def test_continuous_batching_equals_unbatched_generation(kind: str) -> None:
    model = decoder(kind, VOCAB)
    engine = Engine(ContinuousBatcher(model, max_requests=8))
    requests = collected(engine, many(32, 30), pause=0.003)
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        alone(model, scheduled.request) for scheduled in requests
    ]
    assert engine.stats.steps < sum(len(scheduled.row.generated) for scheduled in requests) / 2, (
        "they were not worked on together"
    )


def test_chunked_prefill_does_not_change_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous_batcher, "PREFILL_CHUNK", 7)
    model = decoder("llama", VOCAB)
    engine = Engine(ContinuousBatcher(model, max_requests=16))
    requests = collected(engine, many(16, 30, seed=1))
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        alone(model, scheduled.request) for scheduled in requests
    ]


def test_samples_of_one_prompt_share_the_prefill_and_have_their_own_rng() -> None:
    model = decoder("gpt", VOCAB)
    scheduler = ContinuousBatcher(model)
    requests = [
        EngineRequest((5, 6, 7), max_new_tokens=8, sampling=SamplingParams(temperature=1.5), seed=3, sample_index=i)
        for i in range(6)
    ]
    scheduler.add([ScheduledRequest(request, lambda *_: None) for request in requests])
    assert [len(reading.prompts) for reading in scheduler.prefills] == [1]
    engine = Engine(ContinuousBatcher(model))
    generated = [scheduled.row.generated for scheduled in collected(engine, requests)]
    engine.close()
    assert (
        generated == [alone(model, request) for request in requests] and len({tuple(words) for words in generated}) > 3
    )


@pytest.mark.parametrize("kind", ["transformer", "t5", "rnn"])
def test_batched_translations_equal_unbatched_ones(kind: str) -> None:
    model, rng = translator(kind), random.Random(2)
    requests = [
        EngineRequest(
            (1,),
            tuple(prompt(rng, 20)),
            max_new_tokens=12,
            sampling=rng.choice(MANNERS[:2]),
            seed=i,
            eos_ids=frozenset({END}),
        )
        for i in range(16)
    ]
    engine = Engine(StaticBatcher(model, max_requests=12))
    entries = collected(engine, requests, pause=0.004)
    engine.close()
    assert [scheduled.row.generated for scheduled in entries] == [alone(model, request) for request in requests]


@pytest.mark.parametrize("kind", ["transformer-xl", "convolution"])
def test_recurrent_decoders_use_static_batches(kind: str) -> None:
    made: dict[str, Any] = {
        "transformer-xl": lambda: TransformerXL(TransformerXLConfig(vocab_size=VOCAB, dim=32, depth=2, heads=4)),
        "convolution": lambda: ConvolutionalLM(ConvolutionalLMConfig(vocab_size=VOCAB, dim=16, depth=2)),
    }
    model = lively(made[kind])
    engine = Engine(StaticBatcher(model, max_requests=8))
    requests = collected(engine, many(12, 12, seed=3), pause=0.002)
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        alone(model, scheduled.request) for scheduled in requests
    ]


def test_batched_encoding_equals_unbatched_encoding() -> None:
    model, rng = encoder(), random.Random(4)

    def request(ids: torch.Tensor, present: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return model(ids, padding_mask=present, token_types=second)

    requests = [EngineRequest(tuple(prompt(rng, 40)), second_start=None) for _ in range(50)]
    engine = Engine(EncoderBatcher(model, request, max_requests=16))
    found: dict[ScheduledRequest, torch.Tensor] = {}
    over = threading.Event()

    def hear(scheduled: ScheduledRequest, output: RequestOutput) -> None:
        assert output.tensor is not None
        found[scheduled] = output.tensor
        if len(found) == len(requests):
            over.set()

    entries = [scheduled for one in requests for scheduled in engine.submit([one], hear)]
    assert over.wait(30)
    engine.close()
    assert engine.stats.steps < len(requests) / 2
    with torch.no_grad():
        for scheduled in entries:
            expected = model(torch.tensor([scheduled.request.prompt]))[0]
            torch.testing.assert_close(found[scheduled], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_on_a_gpu_too_an_answer_is_the_answer_obtained_alone(kind: str) -> None:
    model = decoder(kind, VOCAB).cuda()
    engine = Engine(ContinuousBatcher(model, max_requests=8))
    requests = collected(engine, many(32, 30), pause=0.003)
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        alone(model, scheduled.request) for scheduled in requests
    ]


class Held:
    """A model that waits before every step until it is let go on, and fails when told to."""

    def __init__(self, model: Any) -> None:
        self.model, self.free, self.errors, self.asked = model, threading.Semaphore(0), 0, 0
        self.plain = model.forward
        model.forward = self.forward

    def forward(self, *values: Any, **named: Any) -> Any:
        assert self.free.acquire(timeout=30)
        self.asked += 1
        if self.errors:
            self.errors -= 1
            raise RuntimeError("out of memory, say")
        return self.plain(*values, **named)


def held(**settings: Any) -> tuple[Held, Engine]:
    model = Held(decoder("gpt", VOCAB))
    return model, Engine(ContinuousBatcher(model.model), **settings)


def until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def test_a_full_queue_rejects_all_sequences_of_a_request() -> None:
    model, engine = held(max_queue=3)
    first = engine.submit([EngineRequest((5,), max_new_tokens=2)], lambda *_: None)
    until(lambda: engine.num_waiting == 0)
    engine.submit([EngineRequest((5,), max_new_tokens=2)] * 2, lambda *_: None)
    with pytest.raises(QueueFullError, match="try again in 1 s"):
        engine.submit([EngineRequest((5,), max_new_tokens=2)] * 2, lambda *_: None)
    assert engine.num_waiting == 2 and engine.stats.rejected == 2
    model.free.release(100)
    until(lambda: engine.stats.finished == 3)
    assert first[0].finished
    engine.close()


def test_a_cancelled_request_leaves_the_batch_before_the_next_step() -> None:
    model, engine = held()
    requests = [
        EngineRequest((5, 6), max_new_tokens=20, sampling=MANNERS[0]),
        EngineRequest((7,), max_new_tokens=20, sampling=MANNERS[0]),
    ]
    over = threading.Event()
    going, staying = engine.submit(requests, lambda scheduled, output: over.set() if output.is_final else None)
    model.free.release(4)
    until(lambda: model.asked == 4)
    engine.abort([going])
    generated = len(going.row.generated)
    model.free.release(200)
    assert over.wait(10)
    until(lambda: engine.num_running == 0)
    engine.close()
    assert len(going.row.generated) <= generated + 1 and not going.finished and engine.stats.cancelled == 1
    assert staying.row.generated == alone(decoder("gpt", VOCAB), staying.request)


def test_a_cancelled_request_in_the_queue_never_starts() -> None:
    model, engine = held()
    engine.submit([EngineRequest((5,), max_new_tokens=1)], lambda *_: None)
    until(lambda: engine.num_waiting == 0)
    waiting = engine.submit([EngineRequest((6,), max_new_tokens=3)], lambda *_: None)
    engine.abort(waiting)
    model.free.release(50)
    until(lambda: engine.stats.cancelled == 1)
    assert waiting[0].row.generated == []
    engine.close()


def test_a_request_with_nan_logits_fails_alone() -> None:
    model = decoder("gpt", VOCAB)
    plain = model.forward

    def forward(ids: torch.Tensor, **named: Any) -> torch.Tensor:
        scores = plain(ids, **named)
        return scores.masked_fill((ids == 39)[..., None], torch.nan)

    good = [
        EngineRequest((i + 3, 4), max_new_tokens=6, sampling=MANNERS[1], seed=i, eos_ids=frozenset({39}))
        for i in range(5)
    ]
    expected = [alone(model, request) for request in good]
    model.forward = forward
    engine = Engine(ContinuousBatcher(model))
    outputs: dict[ScheduledRequest, RequestOutput] = {}
    requests = engine.submit(
        [*good[:2], EngineRequest((3, 39), sampling=MANNERS[1]), *good[2:]], lambda t, p: outputs.update({t: p})
    )
    until(lambda: len(outputs) == 6)
    engine.close()
    assert isinstance(outputs[requests.pop(2)].error, NonFiniteError)
    assert [scheduled.row.generated for scheduled in requests] == expected and engine.stats.errors == 0


def test_the_engine_survives_a_model_error() -> None:
    model, engine = held()
    model.errors = 1
    model.free.release(1000)
    with pytest.raises(ModelError, match="the model failed on this request"):
        engine.run(EngineRequest((5,), max_new_tokens=3))
    assert (
        len(engine.run(EngineRequest((5,), max_new_tokens=3)).row.generated) == 3
        and engine.is_alive
        and engine.stats.errors == 1
    )
    engine.close()


def test_repeated_failures_make_a_model_unhealthy_until_it_succeeds() -> None:
    model, engine = held()
    model.errors = UNHEALTHY_AFTER + 2
    model.free.release(1000)
    for _ in range(UNHEALTHY_AFTER + 2):
        with pytest.raises(ModelError):
            engine.run(EngineRequest((5,), max_new_tokens=3))
    until(lambda: engine.error is not None and engine.error.startswith("the model failed 5 times in a row"))
    assert engine.is_alive
    engine.run(EngineRequest((5,), max_new_tokens=3))
    until(lambda: engine.error is None)
    engine.close()


def test_pending_requests_get_an_error_at_shutdown() -> None:
    model, engine = held()
    errors: list[Exception | None] = []
    engine.submit(
        [EngineRequest((5,), max_new_tokens=50), EngineRequest((6,), max_new_tokens=50)],
        lambda scheduled, output: errors.append(output.error),
    )
    until(lambda: engine.num_waiting == 0)
    model.free.release(2)
    threading.Timer(0.05, lambda: model.free.release(1000)).start()
    engine.close()
    until(lambda: len(errors) == 2)
    assert all(isinstance(error, EngineStoppedError) for error in errors)
    with pytest.raises(EngineStoppedError):
        engine.submit([EngineRequest((5,))], lambda *_: None)


def test_the_allocated_cache_stays_within_its_budget() -> None:
    scheduler = ContinuousBatcher(decoder("gpt", VOCAB), max_requests=100, max_positions=6 * CONTEXT)
    engine = Engine(scheduler)
    held: list[int] = []
    plain = scheduler.step

    def step() -> StepOutcome:
        outcome = plain()
        held.append(sum(batch.cache.rows * batch.cache.columns for batch in scheduler.batches))
        return outcome

    scheduler.step = step
    requests = collected(engine, many(40, 30, seed=6))
    engine.close()
    assert 2 * CONTEXT < max(held) <= 6 * CONTEXT and all(scheduled.finished for scheduled in requests)
    assert not any(batch.cache.ragged_layers for batch in scheduler.batches), "what nobody needs is still held"


def test_streaming_emits_every_token() -> None:
    engine = Engine(ContinuousBatcher(decoder("gpt", VOCAB)))
    outputs: list[RequestOutput] = []
    engine.submit([EngineRequest((5, 6), max_new_tokens=7, stream=True)], lambda _, output: outputs.append(output))
    until(lambda: outputs and outputs[-1].is_final)
    engine.close()
    assert [len(output.tokens) for output in outputs] == [1] * 7 and outputs[-1].finish_reason == "length"

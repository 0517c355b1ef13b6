"""The engine's invariant: the output of a request does not depend on its batch."""

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from softlook.decode.sampling import SamplingParams
from softlook.models import (
    ConvolutionalLM,
    ConvolutionalLMConfig,
    FastWeightLM,
    FastWeightLMConfig,
    TransformerXL,
    TransformerXLConfig,
)
from softlook.serve.engine import continuous_batcher
from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.engine.engine import UNHEALTHY_AFTER, Engine, EngineStoppedError, QueueFullError
from softlook.serve.engine.request import EngineRequest, RequestOutput, ScheduledRequest
from softlook.serve.engine.scheduler import ModelError, NonFiniteError, StepOutcome
from softlook.serve.engine.static_batcher import EncoderBatcher, StaticBatcher
from tests.serve.tiny_models import (
    CONTEXT,
    decoder,
    encoder,
    generate_unbatched,
    prompt,
    translator,
    with_large_weights,
)

VOCAB, EOS = 40, 2
SAMPLING = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.8, top_p=0.9),
    SamplingParams(temperature=1.3, top_k=5, min_p=0.05),
    SamplingParams(
        temperature=0.7, presence_penalty=0.6, frequency_penalty=0.2, repetition_penalty=1.2, num_logprobs=2
    ),
)


def run_requests(
    engine: Engine, requests: Sequence[EngineRequest], pause: float = 0.0, seed: int = 0
) -> list[ScheduledRequest]:
    """Submit requests with short random pauses, and wait for all of them."""
    done, pending, rng = threading.Event(), [len(requests)], random.Random(seed)
    errors: list[Exception] = []

    def on_output(scheduled: ScheduledRequest, output: RequestOutput) -> None:
        pending[0] -= output.is_final
        errors.extend([output.error] if output.error is not None else [])
        if not pending[0]:
            done.set()

    entries = []
    for request in requests:
        entries += engine.submit([request], on_output)
        time.sleep(pause * rng.random())
    assert done.wait(60), f"{pending[0]} of {len(requests)} never finished"
    assert not errors, errors
    return entries


def random_requests(count: int, max_length: int, seed: int = 0) -> list[EngineRequest]:
    rng = random.Random(seed)
    return [
        EngineRequest(
            tuple(prompt(rng, max_length, VOCAB)),
            max_new_tokens=rng.randint(1, 30),
            sampling=rng.choice(SAMPLING),
            seed=rng.randrange(1000),
            sample_index=rng.randrange(3),
            eos_ids=frozenset({EOS}),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["gpt", "llama", "windowed"])
def test_continuous_batching_equals_unbatched_generation(kind: str) -> None:
    model = decoder(kind, VOCAB)
    engine = Engine(ContinuousBatcher(model, max_requests=8))
    requests = run_requests(engine, random_requests(32, 30), pause=0.003)
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        generate_unbatched(model, scheduled.request) for scheduled in requests
    ]
    assert engine.stats.steps < sum(len(scheduled.row.generated) for scheduled in requests) / 2, (
        "the requests were not batched"
    )


def test_chunked_prefill_does_not_change_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous_batcher, "PREFILL_CHUNK", 7)
    model = decoder("llama", VOCAB)
    engine = Engine(ContinuousBatcher(model, max_requests=16))
    requests = run_requests(engine, random_requests(16, 30, seed=1))
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        generate_unbatched(model, scheduled.request) for scheduled in requests
    ]


def test_samples_of_one_prompt_share_the_prefill_and_have_their_own_rng() -> None:
    model = decoder("gpt", VOCAB)
    scheduler = ContinuousBatcher(model)
    requests = [
        EngineRequest((5, 6, 7), max_new_tokens=8, sampling=SamplingParams(temperature=1.5), seed=3, sample_index=i)
        for i in range(6)
    ]
    scheduler.add([ScheduledRequest(request, lambda *_: None) for request in requests])
    assert [len(prefill.prompts) for prefill in scheduler.prefills] == [1]
    engine = Engine(ContinuousBatcher(model))
    generated = [scheduled.row.generated for scheduled in run_requests(engine, requests)]
    engine.close()
    assert (
        generated == [generate_unbatched(model, request) for request in requests]
        and len({tuple(words) for words in generated}) > 3
    )


@pytest.mark.parametrize("kind", ["transformer", "t5", "rnn"])
def test_batched_translations_equal_unbatched_ones(kind: str) -> None:
    model, rng = translator(kind), random.Random(2)
    requests = [
        EngineRequest(
            (1,),
            tuple(prompt(rng, 20)),
            max_new_tokens=12,
            sampling=rng.choice(SAMPLING[:2]),
            seed=i,
            eos_ids=frozenset({EOS}),
        )
        for i in range(16)
    ]
    engine = Engine(StaticBatcher(model, max_requests=12))
    entries = run_requests(engine, requests, pause=0.004)
    engine.close()
    assert [scheduled.row.generated for scheduled in entries] == [
        generate_unbatched(model, request) for request in requests
    ]


@pytest.mark.parametrize("kind", ["transformer-xl", "convolution", "fast-weights"])
def test_recurrent_decoders_use_static_batches(kind: str) -> None:
    makers: dict[str, Any] = {
        "transformer-xl": lambda: TransformerXL(TransformerXLConfig(vocab_size=VOCAB, dim=32, depth=2, heads=4)),
        "convolution": lambda: ConvolutionalLM(ConvolutionalLMConfig(vocab_size=VOCAB, dim=16, depth=2)),
        "fast-weights": lambda: FastWeightLM(FastWeightLMConfig(vocab_size=VOCAB, dim=16, depth=2, heads=2)),
    }
    model = with_large_weights(makers[kind])
    engine = Engine(StaticBatcher(model, max_requests=8))
    requests = run_requests(engine, random_requests(12, 12, seed=3), pause=0.002)
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        generate_unbatched(model, scheduled.request) for scheduled in requests
    ]


def test_batched_encoding_equals_unbatched_encoding() -> None:
    model, rng = encoder(), random.Random(4)

    def encode(ids: torch.Tensor, padding_mask: torch.Tensor, token_types: torch.Tensor) -> torch.Tensor:
        return model(ids, padding_mask=padding_mask, token_types=token_types)

    requests = [EngineRequest(tuple(prompt(rng, 40)), second_start=None) for _ in range(50)]
    engine = Engine(EncoderBatcher(model, encode, max_requests=16))
    found: dict[ScheduledRequest, torch.Tensor] = {}
    done = threading.Event()

    def on_output(scheduled: ScheduledRequest, output: RequestOutput) -> None:
        assert output.tensor is not None
        found[scheduled] = output.tensor
        if len(found) == len(requests):
            done.set()

    entries = [scheduled for one in requests for scheduled in engine.submit([one], on_output)]
    assert done.wait(30)
    engine.close()
    assert engine.stats.steps < len(requests) / 2
    with torch.no_grad():
        for scheduled in entries:
            expected = model(torch.tensor([scheduled.request.prompt]))[0]
            torch.testing.assert_close(found[scheduled], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_continuous_batching_on_a_gpu_equals_unbatched_generation(kind: str) -> None:
    model = decoder(kind, VOCAB).cuda()
    engine = Engine(ContinuousBatcher(model, max_requests=8))
    requests = run_requests(engine, random_requests(32, 30), pause=0.003)
    engine.close()
    assert [scheduled.row.generated for scheduled in requests] == [
        generate_unbatched(model, scheduled.request) for scheduled in requests
    ]


class BlockedModel:
    """A model that waits before every step until it is released, and fails `errors` times."""

    def __init__(self, model: Any) -> None:
        self.model, self.free, self.errors, self.calls = model, threading.Semaphore(0), 0, 0
        self.original = model.forward
        model.forward = self.forward

    def forward(self, *values: Any, **named: Any) -> Any:
        assert self.free.acquire(timeout=30)
        self.calls += 1
        if self.errors:
            self.errors -= 1
            raise RuntimeError("injected")
        return self.original(*values, **named)


def blocked_engine(**settings: Any) -> tuple[BlockedModel, Engine]:
    model = BlockedModel(decoder("gpt", VOCAB))
    return model, Engine(ContinuousBatcher(model.model), **settings)


def wait_until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.002)


def test_a_full_queue_rejects_all_sequences_of_a_request() -> None:
    model, engine = blocked_engine(max_queue=3)
    first = engine.submit([EngineRequest((5,), max_new_tokens=2)], lambda *_: None)
    wait_until(lambda: engine.num_waiting == 0)
    engine.submit([EngineRequest((5,), max_new_tokens=2)] * 2, lambda *_: None)
    with pytest.raises(QueueFullError, match="try again in 1 s"):
        engine.submit([EngineRequest((5,), max_new_tokens=2)] * 2, lambda *_: None)
    assert engine.num_waiting == 2 and engine.stats.rejected == 2
    model.free.release(100)
    wait_until(lambda: engine.stats.finished == 3)
    assert first[0].finished
    engine.close()


def test_a_cancelled_request_leaves_the_batch_before_the_next_step() -> None:
    model, engine = blocked_engine()
    requests = [
        EngineRequest((5, 6), max_new_tokens=20, sampling=SAMPLING[0]),
        EngineRequest((7,), max_new_tokens=20, sampling=SAMPLING[0]),
    ]
    done = threading.Event()
    aborted, kept = engine.submit(requests, lambda scheduled, output: done.set() if output.is_final else None)
    model.free.release(4)
    wait_until(lambda: model.calls == 4)
    engine.abort([aborted])
    generated = len(aborted.row.generated)
    model.free.release(200)
    assert done.wait(10)
    wait_until(lambda: engine.num_running == 0)
    engine.close()
    assert len(aborted.row.generated) <= generated + 1 and not aborted.finished and engine.stats.cancelled == 1
    assert kept.row.generated == generate_unbatched(decoder("gpt", VOCAB), kept.request)


def test_a_cancelled_request_in_the_queue_never_starts() -> None:
    model, engine = blocked_engine()
    engine.submit([EngineRequest((5,), max_new_tokens=1)], lambda *_: None)
    wait_until(lambda: engine.num_waiting == 0)
    waiting = engine.submit([EngineRequest((6,), max_new_tokens=3)], lambda *_: None)
    engine.abort(waiting)
    model.free.release(50)
    wait_until(lambda: engine.stats.cancelled == 1)
    assert waiting[0].row.generated == []
    engine.close()


def test_a_request_with_nan_logits_fails_alone() -> None:
    model = decoder("gpt", VOCAB)
    original = model.forward

    def forward(ids: torch.Tensor, **named: Any) -> torch.Tensor:
        logits = original(ids, **named)
        return logits.masked_fill((ids == 39)[..., None], torch.nan)

    good = [
        EngineRequest((i + 3, 4), max_new_tokens=6, sampling=SAMPLING[1], seed=i, eos_ids=frozenset({39}))
        for i in range(5)
    ]
    expected = [generate_unbatched(model, request) for request in good]
    model.forward = forward
    engine = Engine(ContinuousBatcher(model))
    outputs: dict[ScheduledRequest, RequestOutput] = {}
    requests = engine.submit(
        [*good[:2], EngineRequest((3, 39), sampling=SAMPLING[1]), *good[2:]],
        lambda scheduled, output: outputs.update({scheduled: output}),
    )
    wait_until(lambda: len(outputs) == 6)
    engine.close()
    assert isinstance(outputs[requests.pop(2)].error, NonFiniteError)
    assert [scheduled.row.generated for scheduled in requests] == expected and engine.stats.errors == 0


def test_the_engine_survives_a_model_error() -> None:
    model, engine = blocked_engine()
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
    model, engine = blocked_engine()
    model.errors = UNHEALTHY_AFTER + 2
    model.free.release(1000)
    for _ in range(UNHEALTHY_AFTER + 2):
        with pytest.raises(ModelError):
            engine.run(EngineRequest((5,), max_new_tokens=3))
    wait_until(lambda: engine.error is not None and engine.error.startswith("the model failed 5 times in a row"))
    assert engine.is_alive
    engine.run(EngineRequest((5,), max_new_tokens=3))
    wait_until(lambda: engine.error is None)
    engine.close()


def test_pending_requests_get_an_error_at_shutdown() -> None:
    model, engine = blocked_engine()
    errors: list[Exception | None] = []
    engine.submit(
        [EngineRequest((5,), max_new_tokens=50), EngineRequest((6,), max_new_tokens=50)],
        lambda scheduled, output: errors.append(output.error),
    )
    wait_until(lambda: engine.num_waiting == 0)
    model.free.release(2)
    threading.Timer(0.05, lambda: model.free.release(1000)).start()
    engine.close()
    wait_until(lambda: len(errors) == 2)
    assert all(isinstance(error, EngineStoppedError) for error in errors)
    with pytest.raises(EngineStoppedError):
        engine.submit([EngineRequest((5,))], lambda *_: None)


def test_the_allocated_cache_stays_within_its_budget() -> None:
    scheduler = ContinuousBatcher(decoder("gpt", VOCAB), max_requests=100, max_positions=6 * CONTEXT)
    engine = Engine(scheduler)
    allocated: list[int] = []
    original = scheduler.step

    def step() -> StepOutcome:
        outcome = original()
        allocated.append(sum(batch.cache.rows * batch.cache.columns for batch in scheduler.batches))
        return outcome

    scheduler.step = step
    requests = run_requests(engine, random_requests(40, 30, seed=6))
    engine.close()
    assert 2 * CONTEXT < max(allocated) <= 6 * CONTEXT and all(scheduled.finished for scheduled in requests)
    assert not any(batch.cache.ragged_layers for batch in scheduler.batches), "the cache was not freed"


def test_streaming_emits_every_token() -> None:
    engine = Engine(ContinuousBatcher(decoder("gpt", VOCAB)))
    outputs: list[RequestOutput] = []
    engine.submit([EngineRequest((5, 6), max_new_tokens=7, stream=True)], lambda _, output: outputs.append(output))
    wait_until(lambda: outputs and outputs[-1].is_final)
    engine.close()
    assert [len(output.tokens) for output in outputs] == [1] * 7 and outputs[-1].finish_reason == "length"

"""Translations by beam search: those of the command line, whoever else asks, and nobody waits long for them."""

import random
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from softlook.base.errors import ConfigError, WeightsError
from softlook.decode import beam_search, create_session
from softlook.decode.sampling import SamplingParams
from softlook.recipes.inference import Pipeline, load_pipeline, translate
from softlook.serve.app import create_app
from softlook.serve.engine.engine import Engine
from softlook.serve.engine.request import BeamParams, EngineRequest, RequestOutput, ScheduledRequest
from softlook.serve.engine.static_batcher import StaticBatcher
from softlook.serve.limits import ServerLimits
from softlook.serve.loaded_model import load_model
from softlook.serve.registry import ModelRegistry
from softlook.weights.assets import SpecialTokens
from tests.serve.test_engine import collected, until
from tests.serve.tiny_models import alone, loaded_model, prompt, translator

TEXTS = ["jeudi 3 mars 2022", "le 1er mai 1998", "  ", "donnerstag, den 25. dezember 1999", " 1/2/03"]
BEGIN, END = 1, 2


@pytest.fixture(scope="module")
def reader() -> Pipeline:
    return load_pipeline("dates", device="cpu")


@pytest.fixture(scope="module")
def dates() -> Iterator[TestClient]:
    registry = ModelRegistry(
        [load_model(Path(str(files("softlook.recipes.demo") / "date_reader")), "dates")],
        ServerLimits(max_batch_size=32),
    )
    yield TestClient(create_app(registry), base_url="http://localhost", raise_server_exceptions=False)
    registry.close()


def asked(client: TestClient, **body: Any) -> Any:
    found = client.post("/v1/translate", json={"model": "dates", "text": TEXTS} | body)
    assert found.status_code == 200, found.text
    return found.json()["data"]


HOW: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as the model is used to": ({}, {}),
    "the likeliest word": ({"num_beams": 1}, {"num_beams": 1}),
    "the best three": ({"n_best": 3}, {"n_best": 3}),
    "many beams": (
        {"num_beams": 12, "n_best": 12, "length_penalty": 0.5},
        {"num_beams": 12, "n_best": 12, "length_penalty": 0.5},
    ),
}


@pytest.mark.parametrize("how", HOW)
def test_translations_equal_those_of_the_command_line(dates: TestClient, reader: Pipeline, how: str) -> None:
    theirs, ours = HOW[how]
    found, expected = asked(dates, **theirs, alignments=True), translate(reader, TEXTS, **ours, with_alignment=True)
    assert [one["text"] for one in found] == [one.text for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert [best["text"] for best in one["candidates"]] == [best.text for best in other.candidates]
        for best, right in zip(one["candidates"], other.candidates, strict=True):
            assert best["score"] == pytest.approx(right.score, abs=1e-4)
            assert best["logprob"] == pytest.approx(right.log_probability, abs=1e-3)
            look = right.alignment
            assert look is not None and best["finish_reason"] == "stop"
            told = best["alignment"]
            assert (told["source"], told["target"]) == (look.source, look.target)
            assert list(map(tuple, told["words"])) == look.word_pairs()
            assert list(map(tuple, told["tokens"])) == look.token_pairs()
            torch.testing.assert_close(torch.tensor(told["weights"]), look.weights, rtol=0, atol=2e-4)


def test_explanations_are_returned_on_request_only(dates: TestClient) -> None:
    assert all(one["alignment"] is None for one in asked(dates))
    assert asked(dates, text="  ", alignments=True)[0]["candidates"] == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too many beams": ({"num_beams": 65}, "num_beams: expected at most 64"),
    "more beams than rows": ({"num_beams": 33}, "num_beams is 33, the maximum is 32"),
    "no beams": ({"num_beams": 0}, "num_beams: expected at least 1"),
    "more than there are beams": ({"num_beams": 2, "n_best": 3}, "n_best is 3, but num_beams is only 2"),
    "drawn and searched for": (
        {"num_beams": 2, "temperature": 0.5},
        "temperature 0.5 cannot be combined with beam search",
    ),
    "a penalty too large": ({"length_penalty": 6}, "length_penalty: expected at most 5"),
    "all together": ({"text": ["1/2/03"] * 64, "num_beams": 32, "max_tokens": 500}, "1,024,000 in total"),
    "alignments": (
        {"text": ["1/2/03"] * 64, "num_beams": 1, "max_tokens": 4000, "alignments": True},
        "weights; the maximum is",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_number_has_a_bound_and_so_have_products(dates: TestClient, wrong: str) -> None:
    body, message = WRONG[wrong]
    found = dates.post("/v1/translate", json={"model": "dates", "text": "3 mars"} | body)
    assert found.status_code == 400 and message in found.json()["error"]["message"], found.text


def test_an_encoder_decoder_without_a_start_token_is_rejected() -> None:
    with pytest.raises(ConfigError, match="the decoder start token or the end-of-sequence token of mute is not known"):
        loaded_model("mute", translator(), special_tokens=SpecialTokens())


def searches(count: int, seed: int = 0, **changes: Any) -> list[EngineRequest]:
    rng = random.Random(seed)
    kinds = [BeamParams(2, 1.0), BeamParams(5, 0.6), BeamParams(3, 1.0)]
    return [
        EngineRequest(
            (BEGIN,),
            tuple(prompt(rng, 20)),
            max_new_tokens=12,
            beam_search=rng.choice(kinds),
            eos_ids=frozenset({END}),
            **changes,
        )
        for _ in range(count)
    ]


def found_alone(model: Any, request: EngineRequest) -> list[list[int]]:
    search = request.beam_search
    assert search is not None and request.source is not None
    told: dict[str, Any] = {
        "eos_ids": END,
        "max_new_tokens": request.max_new_tokens,
        "num_beams": search.num_beams,
        "length_penalty": search.length_penalty,
    }
    (found,) = beam_search(
        create_session(model, torch.tensor([request.source])), torch.tensor([request.prompt]), **told
    )
    return [one.ids for one in found]


@pytest.mark.parametrize("kind", ["transformer", "t5", "rnn"])
def test_batched_beam_searches_equal_unbatched_ones(kind: str) -> None:
    model, rng = translator(kind), random.Random(1)
    plain = [
        EngineRequest(
            (BEGIN,),
            tuple(prompt(rng, 20)),
            max_new_tokens=12,
            sampling=SamplingParams(0.0),
            eos_ids=frozenset({END}),
        )
        for _ in range(4)
    ]
    requests = [*searches(8), *plain]
    rng.shuffle(requests)
    engine = Engine(StaticBatcher(model, max_requests=16))
    requests = collected(engine, requests, pause=0.004)
    engine.close()
    for scheduled in requests:
        if scheduled.request.beam_search is None:
            assert scheduled.row.generated == alone(model, scheduled.request)
        else:
            assert [one.ids for one in scheduled.hypotheses] == found_alone(model, scheduled.request)


LONG = EngineRequest(
    (BEGIN,), (5, 6, 7), max_new_tokens=4000, beam_search=BeamParams(4, 1.0), eos_ids=frozenset({10_000})
)
SHORT = EngineRequest((BEGIN,), (5, 6, 7), max_new_tokens=5, sampling=SamplingParams(0.0), eos_ids=frozenset({END}))


def test_short_requests_do_not_wait_for_long_beam_searches() -> None:
    engine = Engine(StaticBatcher(translator(), max_requests=4))
    long = engine.submit([LONG, LONG], lambda *_: None)
    until(lambda: engine.num_running == 1 and engine.num_waiting == 1)
    assert engine.run(SHORT).finished and not any(scheduled.finished for scheduled in long)
    turns = engine.stats.steps
    engine.abort(long)
    until(lambda: engine.num_running == 0 and engine.num_waiting == 0)
    assert engine.stats.cancelled == 2 and engine.stats.steps <= turns + 3
    engine.close()


def test_cancelling_one_beam_search_does_not_affect_others() -> None:
    model, outputs = translator(), dict[ScheduledRequest, RequestOutput]()
    engine = Engine(StaticBatcher(model, max_requests=16))
    requests = [
        EngineRequest((BEGIN,), source, max_new_tokens=60, beam_search=BeamParams(3, 1.0), eos_ids=frozenset({END}))
        for source in ((5, 6), (7, 8))
    ]
    leaving, staying = engine.submit(requests, lambda scheduled, output: outputs.update({scheduled: output}))
    engine.abort([leaving])
    until(lambda: staying in outputs)
    until(lambda: engine.num_running == 0)
    engine.close()
    assert leaving not in outputs and [one.ids for one in staying.hypotheses] == found_alone(model, staying.request)


def test_a_beam_search_with_nan_fails_alone() -> None:
    model = translator()
    plain = model.encode

    def encode(ids: torch.Tensor, **named: Any) -> torch.Tensor:
        return plain(ids, **named).masked_fill((ids == 39).any(1)[:, None, None], torch.nan)

    model.encode = encode
    scheduler, outputs, over = (
        StaticBatcher(model, max_requests=64),
        dict[ScheduledRequest, RequestOutput](),
        threading.Event(),
    )

    def hear(scheduled: ScheduledRequest, output: RequestOutput) -> None:
        outputs[scheduled] = output
        if len(outputs) == 3:
            over.set()

    requests = [
        EngineRequest((BEGIN,), source, max_new_tokens=8, beam_search=BeamParams(3, 1.0), eos_ids=frozenset({END}))
        for source in ((5, 6), (39, 8), (9, 4))
    ]
    engine = Engine(scheduler)
    good, bad, other = engine.submit(requests, hear)
    assert over.wait(30)
    engine.close()
    assert isinstance(outputs[bad].error, WeightsError) and engine.stats.errors == 0
    for scheduled in (good, other):
        assert [one.ids for one in scheduled.hypotheses] == found_alone(model, scheduled.request)

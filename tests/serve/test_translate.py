"""Beam search translations equal those of the command line, do not depend on the batch and block no other request."""

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
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
from softlook.serve.engine.request import BeamParams, EngineRequest, RequestOutput, ScheduledRequest, ServerLimits
from softlook.serve.engine.static_batcher import StaticBatcher
from softlook.serve.loaded_model import load_model
from softlook.serve.registry import ModelRegistry
from softlook.weights.assets import SpecialTokens
from tests.serve.test_engine import run_requests, wait_until
from tests.serve.tiny_models import generate_unbatched, loaded_model, prompt, translator

TEXTS = ["jeudi 3 mars 2022", "le 1er mai 1998", "  ", "donnerstag, den 25. dezember 1999", " 1/2/03"]
BOS, EOS = 1, 2


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return load_pipeline("dates", device="cpu")


@pytest.fixture(scope="module")
def dates() -> Iterator[TestClient]:
    registry = ModelRegistry(
        [load_model(Path(str(files("softlook.recipes.demo") / "date_reader")), "dates")],
        ServerLimits(max_batch_size=32),
    )
    yield TestClient(create_app(registry), base_url="http://localhost", raise_server_exceptions=False)
    registry.close()


def post_translate(client: TestClient, **body: Any) -> Any:
    found = client.post("/v1/translate", json={"model": "dates", "text": TEXTS} | body)
    assert found.status_code == 200, found.text
    return found.json()["data"]


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "greedy": ({"num_beams": 1}, {"num_beams": 1}),
    "three candidates": ({"n_best": 3}, {"n_best": 3}),
    "many beams": (
        {"num_beams": 12, "n_best": 12, "length_penalty": 0.5},
        {"num_beams": 12, "n_best": 12, "length_penalty": 0.5},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_translations_equal_those_of_the_command_line(dates: TestClient, pipeline: Pipeline, name: str) -> None:
    body, options = OPTIONS[name]
    found, expected = (
        post_translate(dates, **body, alignments=True),
        translate(pipeline, TEXTS, **options, with_alignment=True),
    )
    assert [one["text"] for one in found] == [one.text for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert [best["text"] for best in one["candidates"]] == [best.text for best in other.candidates]
        for best, right in zip(one["candidates"], other.candidates, strict=True):
            assert best["score"] == pytest.approx(right.score, abs=1e-4)
            assert best["logprob"] == pytest.approx(right.logprob, abs=1e-3)
            alignment = right.alignment
            assert alignment is not None and best["finish_reason"] == "stop"
            returned = best["alignment"]
            assert (returned["source"], returned["target"]) == (alignment.source, alignment.target)
            assert list(map(tuple, returned["words"])) == alignment.word_pairs()
            assert list(map(tuple, returned["tokens"])) == alignment.token_pairs()
            torch.testing.assert_close(torch.tensor(returned["weights"]), alignment.weights, rtol=0, atol=2e-4)


def test_long_texts_are_split_as_on_the_command_line(pipeline: Pipeline) -> None:
    loaded = load_model(Path(str(files("softlook.recipes.demo") / "date_reader")), "dates")
    loaded.max_length = 30
    registry = ModelRegistry([loaded], ServerLimits(max_batch_size=32))
    text = ["jeudi 3 mars 2022. 25 décembre 1999.  Le 1er mai 1998", "3 mars 2022! 4 mars"]
    try:
        client = TestClient(create_app(registry), base_url="http://localhost", raise_server_exceptions=False)
        for split in (False, True):
            found = post_translate(client, text=text, alignments=True, n_best=2, split_sentences=split)
            short = replace(pipeline, max_length=30)
            expected = translate(short, text, n_best=2, with_alignment=True, split_sentences=split)
            assert found[0]["text"] == "2022-03-03 1999-12-25  1998-05-01"
            for one, other in zip(found, expected, strict=True):
                assert [best["text"] for best in one["candidates"]] == [best.text for best in other.candidates]
                for best, right in zip(one["candidates"], other.candidates, strict=True):
                    assert best["logprob"] == pytest.approx(right.logprob, abs=1e-3)
                    assert right.alignment is not None
                    assert list(map(tuple, best["alignment"]["words"])) == right.alignment.word_pairs()
    finally:
        registry.close()


def test_alignments_are_returned_on_request_only(dates: TestClient) -> None:
    assert all(one["alignment"] is None for one in post_translate(dates))
    assert post_translate(dates, text="  ", alignments=True)[0]["candidates"] == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too many beams": ({"num_beams": 65}, "num_beams: expected at most 64"),
    "more beams than rows": ({"num_beams": 33}, "num_beams is 33, the maximum is 32"),
    "no beams": ({"num_beams": 0}, "num_beams: expected at least 1"),
    "more candidates than beams": ({"num_beams": 2, "n_best": 3}, "n_best is 3, but num_beams is only 2"),
    "sampling and beam search": (
        {"num_beams": 2, "temperature": 0.5},
        "temperature 0.5 cannot be combined with beam search",
    ),
    "a penalty too large": ({"length_penalty": 6}, "length_penalty: expected at most 5"),
    "too many tokens in total": ({"text": ["1/2/03"] * 64, "num_beams": 32, "max_tokens": 500}, "1,024,000 in total"),
    "alignments": (
        {"text": ["1/2/03"] * 64, "num_beams": 1, "max_tokens": 4000, "alignments": True},
        "weights; the maximum is",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_parameter_and_their_products_are_bounded(dates: TestClient, wrong: str) -> None:
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
            (BOS,),
            tuple(prompt(rng, 20)),
            max_new_tokens=12,
            beam_search=rng.choice(kinds),
            eos_ids=frozenset({EOS}),
            **changes,
        )
        for _ in range(count)
    ]


def search_unbatched(model: Any, request: EngineRequest) -> list[list[int]]:
    search = request.beam_search
    assert search is not None and request.source is not None
    params: dict[str, Any] = {
        "eos_ids": EOS,
        "max_new_tokens": request.max_new_tokens,
        "num_beams": search.num_beams,
        "length_penalty": search.length_penalty,
    }
    (found,) = beam_search(
        create_session(model, torch.tensor([request.source])), torch.tensor([request.prompt]), **params
    )
    return [one.ids for one in found]


@pytest.mark.parametrize("kind", ["transformer", "t5", "rnn"])
def test_batched_beam_searches_equal_unbatched_ones(kind: str) -> None:
    model, rng = translator(kind), random.Random(1)
    greedy = [
        EngineRequest(
            (BOS,),
            tuple(prompt(rng, 20)),
            max_new_tokens=12,
            sampling=SamplingParams(0.0),
            eos_ids=frozenset({EOS}),
        )
        for _ in range(4)
    ]
    requests = [*searches(8), *greedy]
    rng.shuffle(requests)
    engine = Engine(StaticBatcher(model, max_requests=16))
    requests = run_requests(engine, requests, pause=0.004)
    engine.close()
    for scheduled in requests:
        if scheduled.request.beam_search is None:
            assert scheduled.row.generated == generate_unbatched(model, scheduled.request)
        else:
            assert [one.ids for one in scheduled.hypotheses] == search_unbatched(model, scheduled.request)


LONG = EngineRequest(
    (BOS,), (5, 6, 7), max_new_tokens=4000, beam_search=BeamParams(4, 1.0), eos_ids=frozenset({10_000})
)
SHORT = EngineRequest((BOS,), (5, 6, 7), max_new_tokens=5, sampling=SamplingParams(0.0), eos_ids=frozenset({EOS}))


def test_short_requests_do_not_wait_for_long_beam_searches() -> None:
    engine = Engine(StaticBatcher(translator(), max_requests=4))
    long = engine.submit([LONG, LONG], lambda *_: None)
    wait_until(lambda: engine.num_running == 1 and engine.num_waiting == 1)
    assert engine.run(SHORT).finished and not any(scheduled.finished for scheduled in long)
    steps = engine.stats.steps
    engine.abort(long)
    wait_until(lambda: engine.num_running == 0 and engine.num_waiting == 0)
    assert engine.stats.cancelled == 2 and engine.stats.steps <= steps + 3
    engine.close()


def test_cancelling_one_beam_search_does_not_affect_others() -> None:
    model, outputs = translator(), dict[ScheduledRequest, RequestOutput]()
    engine = Engine(StaticBatcher(model, max_requests=16))
    requests = [
        EngineRequest((BOS,), source, max_new_tokens=60, beam_search=BeamParams(3, 1.0), eos_ids=frozenset({EOS}))
        for source in ((5, 6), (7, 8))
    ]
    leaving, staying = engine.submit(requests, lambda scheduled, output: outputs.update({scheduled: output}))
    engine.abort([leaving])
    wait_until(lambda: staying in outputs)
    wait_until(lambda: engine.num_running == 0)
    engine.close()
    assert leaving not in outputs and [one.ids for one in staying.hypotheses] == search_unbatched(
        model, staying.request
    )


def test_a_beam_search_with_nan_fails_alone() -> None:
    model = translator()
    original = model.encode

    def encode(ids: torch.Tensor, **named: Any) -> torch.Tensor:
        return original(ids, **named).masked_fill((ids == 39).any(1)[:, None, None], torch.nan)

    model.encode = encode
    scheduler, outputs, done = (
        StaticBatcher(model, max_requests=64),
        dict[ScheduledRequest, RequestOutput](),
        threading.Event(),
    )

    def on_output(scheduled: ScheduledRequest, output: RequestOutput) -> None:
        outputs[scheduled] = output
        if len(outputs) == 3:
            done.set()

    requests = [
        EngineRequest((BOS,), source, max_new_tokens=8, beam_search=BeamParams(3, 1.0), eos_ids=frozenset({EOS}))
        for source in ((5, 6), (39, 8), (9, 4))
    ]
    engine = Engine(scheduler)
    good, bad, other = engine.submit(requests, on_output)
    assert done.wait(30)
    engine.close()
    assert isinstance(outputs[bad].error, WeightsError) and engine.stats.errors == 0
    for scheduled in (good, other):
        assert [one.ids for one in scheduled.hypotheses] == search_unbatched(model, scheduled.request)

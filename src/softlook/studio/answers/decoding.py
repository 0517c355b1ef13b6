"""Decoding step by step: generated tokens with their candidates, and beams with those that were dropped."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pydantic import Field

from softlook.base.errors import ConfigError
from softlook.decode import beam_search, create_session, stream
from softlook.decode.beam.hypotheses import BeamStep
from softlook.decode.sampling import SamplingParams
from softlook.decode.token_tensors import pad_right
from softlook.studio.answers.interventions import Body
from softlook.studio.answers.twins import MAX_CHARS
from softlook.studio.live import LiveModel, ModelInput
from softlook.studio.session import Studio

Event = tuple[str, dict[str, Any]]
Send = Callable[[str, dict[str, Any]], None]
CANDIDATES, MAX_NEW_TOKENS = 8, 512


class Generation(Body):
    """A prompt for a language model."""

    prompt: str = Field(max_length=MAX_CHARS)
    max_new_tokens: int = Field(32, ge=1, le=MAX_NEW_TOKENS)
    temperature: float = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    seed: int = 0


class Beams(Body):
    """A text for an encoder-decoder."""

    text: str = Field(max_length=MAX_CHARS)
    beams: int = Field(4, ge=1, le=16)
    max_new_tokens: int = Field(64, ge=1, le=MAX_NEW_TOKENS)


def generate(studio: Studio, body: Generation) -> Iterator[Event]:
    """Events "token" {token, id, p, candidates}, then "done" {reason, text, trace} with a trace of the whole text."""
    live = studio.require_live("generate")
    given = live.encode(body.prompt, None, None)
    prompt = given.args[0][0].tolist()
    sampler = SamplingParams(temperature=body.temperature, top_k=body.top_k).sampler(body.seed)
    ids: list[int] = []
    with live.running() as model:
        tokens = stream(
            model,
            prompt,
            sampler=sampler,
            eos_ids=live.special.get("eos", ()),
            max_new_tokens=body.max_new_tokens,
            num_logprobs=CANDIDATES,
        )
        for one in tokens:
            ids.append(one.id)
            names = live.token_texts([one.id, *(id for id, _ in one.top_logprobs)])
            probabilities = [math.exp(logprob) for _, logprob in one.top_logprobs]
            candidates = [list(pair) for pair in zip(names[1:], probabilities, strict=True)]
            p = math.exp(one.logprob)
            yield "token", {"token": names[0], "id": one.id, "p": p, "candidates": candidates, "trace": None}
    whole = torch.tensor([[*prompt, *ids]], device=given.args[0].device)
    texts = live.token_texts(ids)
    traced = ModelInput(body.prompt + "".join(texts), (whole,), {}, [*given.tokens, *texts])
    recording = studio.add(studio.describe(live, traced, live.record(traced)))
    yield "done", {"text": "".join(texts), "trace": recording.id, "info": recording.info(), "prompt": len(prompt)}


def beams(studio: Studio, body: Beams) -> Iterator[Event]:
    """Events "step" {step, beams: [{id, parent, token, logp, score, status, kept}]}, then "done" {hypotheses}.

    `parent` is the id of the candidate that a candidate continues; null in the first step.
    """
    live = studio.require_live("beams")
    given = live.encode(body.text, None, None)
    start = list(live.special.get("start", ()))
    if not start:
        raise ConfigError(f"{live.name} has no token to start with")
    steps: list[BeamStep] = []
    with live.running() as model:
        session = create_session(model, *pad_right([given.args[0][0].tolist()], given.args[0].device))
        options = {"eos_ids": live.special["eos"], "max_new_tokens": body.max_new_tokens, "num_beams": body.beams}
        (found,) = beam_search(session, [start], on_step=steps.append, **options)
    parents: dict[int, str] = {}
    for step in steps:
        listed, parents = _step(live, step, parents)
        yield "step", {"step": step.length, "beams": listed}
    hypotheses = [{"tokens": live.token_texts(one.ids), "logp": one.logprob, "score": one.score} for one in found]
    yield "done", {"hypotheses": hypotheses, "source": given.source_tokens}


def _step(live: LiveModel, step: BeamStep, parents: dict[int, str]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The candidates of a step, and the ids of the beams after it."""
    names = live.token_texts([one.token for one in step.candidates])
    eos = live.special.get("eos", ())
    beams: dict[int, str] = {}
    listed = []
    for number, (one, name) in enumerate(zip(step.candidates, names, strict=True)):
        id = f"{step.length}.{number}"
        if one.beam is not None:
            beams[one.beam] = id
        listed.append(
            {
                "id": id,
                "parent": parents.get(one.parent),
                "token": "<eos>" if one.token in eos else name,
                "logp": one.logprob,
                "score": one.score,
                "status": one.status,
                "kept": one.status != "dropped",
            }
        )
    return listed, beams

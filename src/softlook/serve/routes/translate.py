"""POST /v1/translate."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat

from fastapi import APIRouter, Request, Response

from softlook.base.errors import DataError
from softlook.decode import Hypothesis
from softlook.decode.alignment import Alignment, build_alignment
from softlook.decode.generation_config import hypothesis_from_tokens
from softlook.decode.sampling import GREEDY_TEMPERATURE, SamplingParams
from softlook.decode.translation import ScoredTranslation, max_source_length, merge_translations, split_source
from softlook.serve.engine.request import BeamParams, EngineRequest, ScheduledRequest, ServerLimits
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.protocol import responses
from softlook.serve.protocol.openai_format import count_usage, finite_logprob
from softlook.serve.protocol.parsing import ParsingRoute
from softlook.serve.protocol.preprocess import (
    by_json_path,
    check_total_tokens,
    offload,
    resolve_max_new_tokens,
    tokenize_inputs,
)
from softlook.serve.protocol.requests import TranslationRequest
from softlook.serve.registry import Deployment
from softlook.serve.routes import MODEL_ERRORS, get_context, json_response

router = APIRouter(route_class=ParsingRoute)
WEIGHT_DIGITS = 4
"""Decimals of an attention weight."""


@router.post("/v1/translate", response_model=responses.TranslationList, responses=MODEL_ERRORS)
async def translate(body: TranslationRequest, request: Request) -> Response:
    """Translate texts."""
    context = get_context(request)
    deployment, limits = context.registry.get(body.model, "translate"), context.registry.limits
    params = TranslationParams.resolve(body, deployment.loaded, limits)
    texts = [str(text).strip() for text in by_json_path("text", body.text).values()]
    filled = [index for index, text in enumerate(texts) if text]
    sources = await params.split_sources([texts[index] for index in filled])
    requests = await _engine_requests([part.strip() for parts in sources for part in parts], params, limits)
    finished = await context.submit(deployment, requests, request).wait() if requests else []
    hypotheses = [params.best(scheduled) for scheduled in finished]
    alignments: Iterator[Alignment | None] = repeat(None)
    if body.alignments and finished:
        targets = [(one.request, own.ids) for one, several in zip(finished, hypotheses, strict=True) for own in several]
        alignments = iter(await _alignments(targets, deployment, request))
    found = iter([[await _translation(one, deployment.loaded, next(alignments)) for one in own] for own in hypotheses])
    merged = [merge_translations(parts, list(islice(found, len(parts)))) for parts in sources]
    by_index = dict(zip(filled, [[_candidate(one) for one in several] for several in merged], strict=True))
    data = [_item(index, by_index.get(index, [])) for index in range(len(texts))]
    num_generated = sum(len(one.logprobs) for several in hypotheses for one in several)  # of all returned candidates
    usage = count_usage(finished, num_generated, deployment.loaded, context.metrics)
    return json_response(responses.TranslationList(model=body.model, data=data, usage=usage))


@dataclass(frozen=True)
class TranslationParams:
    """Decoding parameters of a translation request, with all defaults resolved."""

    loaded: LoadedModel
    body: TranslationRequest
    num_beams: int
    length_penalty: float
    seed: int

    @staticmethod
    def resolve(body: TranslationRequest, loaded: LoadedModel, limits: ServerLimits) -> "TranslationParams":
        """Defaults come from the model's generation config."""
        do_sample, config = body.temperature >= GREEDY_TEMPERATURE, loaded.generation_config
        config.check_supported(beam_search=do_sample or body.num_beams is not None)
        default = 1 if do_sample else max(min(config.num_beams, limits.max_batch_size), body.n_best)
        num_beams = default if body.num_beams is None else body.num_beams
        if do_sample and max(num_beams, body.n_best) > 1:
            raise DataError(f"temperature {body.temperature} cannot be combined with beam search: remove one of them")
        if body.n_best > num_beams:
            raise DataError(f"n_best is {body.n_best}, but num_beams is only {num_beams}")
        if num_beams > limits.max_batch_size:
            raise DataError(f"num_beams is {num_beams}, the maximum is {limits.max_batch_size}")
        length_penalty = config.length_penalty if body.length_penalty is None else body.length_penalty
        seed = secrets.randbits(62) if body.seed is None else body.seed
        return TranslationParams(loaded, body, num_beams, length_penalty, seed)

    async def split_sources(self, texts: Sequence[str]) -> list[list[str]]:
        """The parts of each text that are translated one by one; most texts are one part."""
        loaded, special = self.loaded, self.loaded.special_tokens
        max_length = min(max_source_length(loaded.model, loaded.max_length), loaded.context)
        max_tokens = max_length - len(special.prefix) - len(special.suffix)

        def split() -> list[list[str]]:
            options = {"split_all_sentences": self.body.split_sentences}
            return [split_source(loaded.tokenizer, text, max_tokens, **options) for text in texts]

        return await offload(split, sum(map(len, texts)))

    def engine_request(self, source: Sequence[int], limits: ServerLimits) -> EngineRequest:
        """The request for one source text, given with its special tokens."""
        loaded, config = self.loaded, self.loaded.generation_config
        prefix, default = loaded.special_tokens.start, config.max_tokens_for(len(source))
        return EngineRequest(
            prefix,
            tuple(source),
            max_new_tokens=resolve_max_new_tokens(self.body.max_tokens, len(prefix), loaded, limits, default),
            sampling=SamplingParams(temperature=self.body.temperature),
            beam_search=BeamParams(self.num_beams, self.length_penalty) if self.num_beams > 1 else None,
            generation_config=config if config.has_logits_processors or config.early_stopping != "never" else None,
            seed=self.seed,
            eos_ids=loaded.eos_ids,
        )

    def best(self, scheduled: ScheduledRequest) -> tuple[Hypothesis, ...]:
        """The `n_best` hypotheses."""
        row = scheduled.row
        hypotheses = scheduled.hypotheses or (hypothesis_from_tokens(row.tokens, row.eos_token, self.length_penalty),)
        return hypotheses[: self.body.n_best]


async def _engine_requests(
    texts: Sequence[str], params: TranslationParams, limits: ServerLimits
) -> list[EngineRequest]:
    special, body = params.loaded.special_tokens, params.body
    check_total_tokens(len(texts), body.max_tokens or 1, params.num_beams - 1, limits)
    by_path = {f"text[{index}]": text for index, text in enumerate(texts)}
    encoded = await tokenize_inputs(params.loaded, by_path, len(special.prefix) + len(special.suffix))
    requests = [params.engine_request((*special.prefix, *ids, *special.suffix), limits) for ids in encoded]
    longest = max((request.max_new_tokens for request in requests), default=1)
    check_total_tokens(len(texts), longest, params.num_beams - 1, limits)
    weights = sum(body.n_best * request.max_new_tokens * len(request.source or ()) for request in requests)
    if body.alignments and weights > limits.max_request_tokens:
        raise DataError(
            f"alignments of these texts may have {weights:,} weights; the maximum is {limits.max_request_tokens:,}. "
            "Send fewer texts, or lower max_tokens"
        )
    return requests


async def _alignments(
    targets: Sequence[tuple[EngineRequest, Sequence[int]]], deployment: Deployment[LoadedModel], request: Request
) -> list[Alignment]:
    """The alignments of outputs, given as requests and token ids."""
    loaded = deployment.loaded
    requests = [EngineRequest((*own.prompt, *ids), own.source, attention_only=True) for own, ids in targets]
    maps = await get_context(request).submit(deployment, requests, request).tensors()
    return [
        build_alignment(loaded.tokenizer, loaded.special_tokens, weights[: len(ids)], own.source or (), ids)
        for (own, ids), weights in zip(targets, maps, strict=True)
    ]


async def _translation(hypothesis: Hypothesis, loaded: LoadedModel, alignment: Alignment | None) -> ScoredTranslation:
    return ScoredTranslation(
        await offload(lambda: loaded.tokenizer.decode(hypothesis.ids), len(hypothesis.ids)),
        hypothesis.score,
        hypothesis.logprob,
        alignment,
        "length" if hypothesis.eos_id is None else "eos",
    )


def _candidate(translation: ScoredTranslation) -> responses.TranslationCandidate:
    alignment = None
    if (own := translation.alignment) is not None:
        alignment = responses.TranslationAlignment(
            source=own.source,
            target=own.target,
            words=own.word_pairs(),
            tokens=own.token_pairs(),
            weights=[[round(finite_logprob(one), WEIGHT_DIGITS) for one in row] for row in own.weights.tolist()],
        )
    return responses.TranslationCandidate(
        text=translation.text,
        finish_reason="length" if translation.finish_reason == "length" else "stop",
        score=finite_logprob(translation.score),
        logprob=finite_logprob(translation.logprob),
        alignment=alignment,
    )


def _item(index: int, candidates: list[responses.TranslationCandidate]) -> responses.TranslationItem:
    """The best candidate, and all of them; an empty text has an empty translation."""
    empty = responses.TranslationCandidate(text="", finish_reason="stop", score=0.0, logprob=0.0)
    best = candidates[0] if candidates else empty
    return responses.TranslationItem(index=index, **dict(best), candidates=candidates)

"""POST /v1/embeddings and /v1/classify."""

import base64
import struct
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from torch import Tensor

from softlook.base.errors import DataError
from softlook.heads import class_probabilities, predicted_labels
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.protocol import responses
from softlook.serve.protocol.openai_format import finite_logprob
from softlook.serve.protocol.parsing import BadRequestError, ParsingRoute
from softlook.serve.protocol.preprocess import EncoderInput, by_json_path, encoder_inputs
from softlook.serve.protocol.requests import ClassificationRequest, EmbeddingRequest
from softlook.serve.registry import Deployment
from softlook.serve.routes import MODEL_ERRORS, get_context, json_response

router = APIRouter(route_class=ParsingRoute)


@router.post("/v1/embeddings", response_model=responses.EmbeddingList, responses=MODEL_ERRORS)
async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts."""
    deployment = get_context(request).registry.get(body.model, "embeddings")
    loaded = deployment.loaded
    prompt, texts = loaded.sentence.prompt(), by_json_path("input", body.input)
    texts = {path: prompt + one if isinstance(one, str) else one for path, one in texts.items()}
    inputs = await encoder_inputs(loaded, texts)
    tensors, usage = await _encode(deployment, inputs, request)
    vectors = [vector[: loaded.sentence.truncate_dim].tolist() for vector in tensors]
    if body.dimensions not in (None, len(vectors[0])):
        expected = f"expected {len(vectors[0])}, the embedding dimension of this model"
        raise BadRequestError(f"{expected}, got {body.dimensions}", "dimensions")
    formatted = vectors if body.encoding_format == "float" else list(map(_to_base64, vectors))
    data = [
        responses.EmbeddingItem(index=index, embedding=vector, num_tokens=one.num_tokens, truncated=one.truncated)
        for index, (vector, one) in enumerate(zip(formatted, inputs, strict=True))
    ]
    return json_response(responses.EmbeddingList(model=body.model, data=data, usage=usage))


@router.post("/v1/classify", response_model=responses.ClassificationList, responses=MODEL_ERRORS)
async def classify(body: ClassificationRequest, request: Request) -> Response:
    """Classify texts, or pairs of texts."""
    deployment = get_context(request).registry.get(body.model, "classify")
    loaded, texts = deployment.loaded, _as_list(body.text)
    pairs = [""] * len(texts) if body.text_pair is None else _as_list(body.text_pair)
    if len(pairs) != len(texts):
        raise DataError(f"text and text_pair must have the same length; got {len(texts)} and {len(pairs)}")
    filled = [index for index, text in enumerate(texts) if text.strip()]
    inputs = await encoder_inputs(
        loaded, {f"text[{index}]": texts[index] for index in filled}, [pairs[index] for index in filled]
    )
    tensors, usage = await _encode(deployment, inputs, request)
    data = [
        responses.ClassificationItem(index=index, num_tokens=0, truncated=False, label=None, score=None, scores=[])
        for index in range(len(texts))
    ]
    for index, logits, one in zip(filled, tensors, inputs, strict=True):
        data[index] = _class_scores(index, logits, one, loaded, body.top_k)
    return json_response(responses.ClassificationList(model=body.model, data=data, usage=usage))


async def _encode(
    deployment: Deployment[LoadedModel], inputs: Sequence[EncoderInput], request: Request
) -> tuple[list[Tensor], responses.EmbeddingUsage]:
    """The outputs for the inputs, and the number of tokens."""
    context, requests = get_context(request), [one.request for one in inputs]
    tensors = await context.submit(deployment, requests, request).tensors() if requests else []
    tokens = sum(len(one.prompt) for one in requests)
    context.metrics.observe_tokens(deployment.loaded.name, tokens)
    return tensors, responses.EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)


def _as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _class_scores(
    index: int, logits: Tensor, one: EncoderInput, loaded: LoadedModel, top_k: int
) -> responses.ClassificationItem:
    problem = loaded.model.config.problem
    best = class_probabilities(logits, problem).sort(descending=True, stable=True)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ranked = [(loaded.labels[int(number)], score) for number, score in pairs]
    scores = [responses.ClassScore(label=label, score=finite_logprob(score)) for label, score in ranked[:top_k]]
    return responses.ClassificationItem(
        index=index,
        num_tokens=one.num_tokens,
        truncated=one.truncated,
        label=scores[0].label,
        score=scores[0].score,
        scores=scores,
        labels=list(predicted_labels(ranked, problem)) if problem == "multi_label" else None,
        value=scores[0].score if problem == "regression" else None,
    )


def _to_base64(vector: Sequence[float]) -> str:
    """Little-endian float32, as OpenAI's clients expect it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()

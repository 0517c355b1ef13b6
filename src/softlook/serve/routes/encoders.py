"""POST /v1/embeddings and /v1/classify."""

import base64
import struct
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from torch import Tensor

from softlook.base.errors import DataError
from softlook.heads import class_probabilities
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.protocol import responses
from softlook.serve.protocol.openai_format import finite_logprob
from softlook.serve.protocol.parsing import BadRequestError, ParsingRoute
from softlook.serve.protocol.preprocess import by_json_path, encode_request, tokenize_inputs
from softlook.serve.protocol.requests import ClassificationRequest, EmbeddingRequest
from softlook.serve.registry import Deployment
from softlook.serve.routes import MODEL_ERRORS, get_context, json_response

router = APIRouter(route_class=ParsingRoute)


@router.post("/v1/embeddings", response_model=responses.EmbeddingList, responses=MODEL_ERRORS)
async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts."""
    deployment = get_context(request).registry.get(body.model, "embeddings")
    loaded = deployment.loaded
    prompt, inputs = loaded.sentence.prompt(), by_json_path("input", body.input)
    inputs = {path: prompt + one if isinstance(one, str) else one for path, one in inputs.items()}
    encoded = await tokenize_inputs(loaded, inputs, loaded.frame.num_special_single)
    tensors, usage = await _encode(deployment, [(ids, ()) for ids in encoded], request)
    vectors = [vector[: loaded.sentence.truncate_dim].tolist() for vector in tensors]
    if body.dimensions not in (None, len(vectors[0])):
        expected = f"expected {len(vectors[0])}, the embedding dimension of this model"
        raise BadRequestError(f"{expected}, got {body.dimensions}", "dimensions")
    formatted = vectors if body.encoding_format == "float" else list(map(_to_base64, vectors))
    data = [responses.EmbeddingItem(index=index, embedding=vector) for index, vector in enumerate(formatted)]
    return json_response(responses.EmbeddingList(model=body.model, data=data, usage=usage))


@router.post("/v1/classify", response_model=responses.ClassificationList, responses=MODEL_ERRORS)
async def classify(body: ClassificationRequest, request: Request) -> Response:
    """Classify texts, or pairs of texts."""
    deployment = get_context(request).registry.get(body.model, "classify")
    loaded, texts = deployment.loaded, by_json_path("text", body.text)
    pairs = {} if body.text_pair is None else by_json_path("text_pair", body.text_pair)
    if pairs and len(pairs) != len(texts):
        raise DataError(f"text and text_pair must have the same length; got {len(texts)} and {len(pairs)}")
    encoded = await tokenize_inputs(loaded, {**texts, **pairs}, loaded.frame.num_special_single)
    first, second = encoded[: len(texts)], encoded[len(texts) :] or [[]] * len(texts)
    tensors, usage = await _encode(deployment, list(zip(first, second, strict=True)), request)
    data = [_class_scores(index, logits, loaded, body.top_k) for index, logits in enumerate(tensors)]
    return json_response(responses.ClassificationList(model=body.model, data=data, usage=usage))


async def _encode(
    deployment: Deployment[LoadedModel], pairs: Sequence[tuple[Sequence[int], Sequence[int]]], request: Request
) -> tuple[list[Tensor], responses.EmbeddingUsage]:
    """The outputs for pairs of token ids, of which the second may be empty, and the number of tokens."""
    context, loaded = get_context(request), deployment.loaded
    requests = [encode_request(loaded, ids, pair_ids) for ids, pair_ids in pairs]
    tensors = await context.submit(deployment, requests, request).tensors()
    tokens = sum(len(one.prompt) for one in requests)
    context.metrics.observe_tokens(loaded.name, tokens)
    return tensors, responses.EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)


def _class_scores(index: int, logits: Tensor, loaded: LoadedModel, top_k: int) -> responses.ClassificationItem:
    best = class_probabilities(logits, loaded.model.config.problem).topk(min(top_k, len(loaded.labels)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    scores = [responses.ClassScore(label=loaded.labels[int(i)], score=finite_logprob(score)) for i, score in pairs]
    return responses.ClassificationItem(index=index, label=scores[0].label, score=scores[0].score, scores=scores)


def _to_base64(vector: Sequence[float]) -> str:
    """Little-endian float32, as OpenAI's clients expect it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()

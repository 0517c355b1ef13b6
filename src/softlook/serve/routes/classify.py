"""POST /v1/classify."""

from torch import Tensor

from softlook.base.errors import DataError
from softlook.heads import class_probabilities
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.protocol import responses
from softlook.serve.protocol.openai_format import finite_logprob
from softlook.serve.protocol.parsing import ParsingRoute
from softlook.serve.protocol.preprocess import by_json_path, encode_request, tokenize_inputs
from softlook.serve.protocol.requests import ClassificationRequest
from softlook.serve.routes import MODEL_ERRORS, count_encoded, get_context, json_response

try:
    from fastapi import APIRouter, Request, Response
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

router = APIRouter(route_class=ParsingRoute)


@router.post("/v1/classify", response_model=responses.ClassificationList, responses=MODEL_ERRORS)
async def classify(body: ClassificationRequest, request: Request) -> Response:
    """Classify texts, or pairs of texts."""
    context = get_context(request)
    deployment = context.registry.get(body.model, "classify")
    loaded, texts = deployment.loaded, by_json_path("text", body.text)
    pairs = {} if body.text_pair is None else by_json_path("text_pair", body.text_pair)
    if pairs and len(pairs) != len(texts):
        raise DataError(f"text and text_pair must have the same length; got {len(texts)} and {len(pairs)}")
    encoded = await tokenize_inputs(loaded, {**texts, **pairs}, loaded.frame.num_special_single)
    first, second = encoded[: len(texts)], encoded[len(texts) :] or [[]] * len(texts)
    requests = [encode_request(loaded, ids, pair_ids) for ids, pair_ids in zip(first, second, strict=True)]
    tensors = await context.submit(deployment, requests, request).tensors()
    data = [_item(index, logits, loaded, body.top_k) for index, logits in enumerate(tensors)]
    usage = count_encoded(requests, loaded, context.metrics)
    return json_response(responses.ClassificationList(model=body.model, data=data, usage=usage))


def _item(index: int, logits: Tensor, loaded: LoadedModel, top_k: int) -> responses.ClassificationItem:
    best = class_probabilities(logits, loaded.model.config.problem).topk(min(top_k, len(loaded.labels)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    scores = [responses.ClassScore(label=loaded.labels[int(i)], score=finite_logprob(score)) for i, score in pairs]
    return responses.ClassificationItem(index=index, label=scores[0].label, score=scores[0].score, scores=scores)

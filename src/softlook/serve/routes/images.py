"""POST /v1/images/classify."""

import base64
import binascii

from fastapi import APIRouter, Request, Response
from torch import Tensor

from softlook.base.errors import DataError
from softlook.serve.engine.request import EngineRequest
from softlook.serve.loaded_model import ImageModel
from softlook.serve.protocol import responses
from softlook.serve.protocol.parsing import BadRequestError, ParsingRoute
from softlook.serve.protocol.preprocess import INLINE_SIZE, offload
from softlook.serve.protocol.requests import ImageRequest
from softlook.serve.routes import MODEL_ERRORS, get_context, json_response

router = APIRouter(route_class=ParsingRoute)
ATTENTION_DIGITS = 6
"""Decimals of the attention to a patch."""


@router.post("/v1/images/classify", response_model=responses.ImageList, responses=MODEL_ERRORS)
async def classify(body: ImageRequest, request: Request) -> Response:
    """Classify images."""
    context = get_context(request)
    deployment = context.registry.get_images(body.model)
    images = deployment.loaded.images
    pixels = await offload(lambda: _decode_all(body.images, images), INLINE_SIZE + 1)
    requests = [EngineRequest((), rows=one) for one in pixels]
    if body.attention:
        requests += [EngineRequest((), rows=one, attention_only=True) for one in pixels]
    outputs = await context.submit(deployment, requests, request).tensors()
    maps = [one[0] for one in outputs[len(pixels) :]] if body.attention else [None] * len(pixels)
    data = [
        _item(index, probabilities[0], attention, images.labels, body.top_k)
        for index, (probabilities, attention) in enumerate(zip(outputs[: len(pixels)], maps, strict=True))
    ]
    return json_response(responses.ImageList(model=body.model, data=data))


def _decode_all(images: list[str], model: ImageModel) -> list[Tensor]:
    decoded = []
    for index, text in enumerate(images):
        try:
            decoded.append(model.decode(decode_base64(text)))
        except DataError as error:
            message = f"{error.what} ({error.why})" if error.why else error.what
            raise BadRequestError(message, f"images[{index}]") from None
    return decoded


def decode_base64(text: str) -> bytes:
    """The bytes of a string in base64, or of a data URL.

    >>> decode_base64("AAEC") == decode_base64("data:image/png;base64,AAEC") == bytes([0, 1, 2])
    True
    """
    header, comma, content = text.partition(",")
    if comma and not (header.startswith("data:") and header.endswith(";base64")):
        raise DataError("expected base64, or a data URL as data:image/png;base64,...")
    try:
        return base64.b64decode(content if comma else text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError("expected the bytes of an image file in base64") from None


def _item(
    index: int, probabilities: Tensor, attention: Tensor | None, labels: list[str], top_k: int
) -> responses.ImageItem:
    best = probabilities.sort(descending=True, stable=True)
    ranked = zip(best.indices.tolist()[:top_k], best.values.tolist()[:top_k], strict=True)
    scores = [responses.ClassScore(label=labels[number], score=score) for number, score in ranked]
    grid = None
    if attention is not None:
        grid = [[round(cell, ATTENTION_DIGITS) for cell in row] for row in attention.tolist()]
    return responses.ImageItem(index=index, label=scores[0].label, score=scores[0].score, scores=scores, attention=grid)

"""POST /v1/embeddings."""

import base64
import struct
from collections.abc import Sequence

from softlook.serve.protocol import responses
from softlook.serve.protocol.parsing import BadRequestError, ParsingRoute
from softlook.serve.protocol.preprocess import by_json_path, encode_request, tokenize_inputs
from softlook.serve.protocol.requests import EmbeddingRequest
from softlook.serve.routes import MODEL_ERRORS, count_encoded, get_context, json_response

try:
    from fastapi import APIRouter, Request, Response
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

router = APIRouter(route_class=ParsingRoute)


@router.post("/v1/embeddings", response_model=responses.EmbeddingList, responses=MODEL_ERRORS)
async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts."""
    context = get_context(request)
    deployment = context.registry.get(body.model, "embeddings")
    loaded = deployment.loaded
    prompt, inputs = loaded.sentence.prompt(), by_json_path("input", body.input)
    inputs = {path: prompt + one if isinstance(one, str) else one for path, one in inputs.items()}
    encoded = await tokenize_inputs(loaded, inputs, loaded.frame.num_special_single)
    requests = [encode_request(loaded, ids) for ids in encoded]
    tensors = await context.submit(deployment, requests, request).tensors()
    vectors = [vector[: loaded.sentence.truncate_dim].tolist() for vector in tensors]
    if body.dimensions not in (None, len(vectors[0])):
        expected = f"expected {len(vectors[0])}, the embedding dimension of this model"
        raise BadRequestError(f"{expected}, got {body.dimensions}", "dimensions")
    formatted = vectors if body.encoding_format == "float" else list(map(_to_base64, vectors))
    data = [responses.EmbeddingItem(index=index, embedding=vector) for index, vector in enumerate(formatted)]
    usage = count_encoded(requests, loaded, context.metrics)
    return json_response(responses.EmbeddingList(model=body.model, data=data, usage=usage))


def _to_base64(vector: Sequence[float]) -> str:
    """Little-endian float32, as OpenAI's clients expect it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()

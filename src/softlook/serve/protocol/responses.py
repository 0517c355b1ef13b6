"""Response schemas, in OpenAI's format where it has one."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(BaseModel):
    """Every response that is not a success."""

    error: ErrorDetail


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ColumnCard(BaseModel):
    name: str
    type: str
    """number, boolean, category, ordinal, date or text."""


ClassLabel = str | float | int | bool


class TableCard(BaseModel):
    """Feature columns, target and classes of a table model."""

    target: list[str]
    columns: list[ColumnCard]
    classes: list[ClassLabel]
    """Empty for regression."""


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "softlook"
    capabilities: list[str]
    """The routes that accept this model (not in OpenAI's API)."""
    context: int | None = None
    """Maximum number of tokens of a sequence."""
    table: TableCard | None = None
    labels: list[str] | None = None
    """Classes of an image model."""


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None


class EncodedItem(BaseModel):
    """What the items of embeddings and classifications share (not in OpenAI's API)."""

    index: int
    num_tokens: int
    """Tokens of the input with special tokens, before truncation."""
    truncated: bool
    """Whether tokens beyond the model's maximum were removed."""


class EmbeddingItem(EncodedItem):
    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens that the model has read, without those removed by truncation."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[EmbeddingItem]
    usage: EmbeddingUsage


class TranslationAlignment(BaseModel):
    """Word alignment: pairs are (source index, target index), from 0."""

    source: list[str]
    """Text of each source token."""
    target: list[str]
    words: list[tuple[int, int]]
    tokens: list[tuple[int, int]]
    weights: list[list[float]]
    """Attention weights: a row for each target token, a column for each source token."""


class TranslationCandidate(BaseModel):
    text: str
    finish_reason: Literal["stop", "length"]
    score: float
    """Log-probability with the length penalty applied."""
    logprob: float
    alignment: TranslationAlignment | None = None


class TranslationItem(TranslationCandidate):
    index: int
    candidates: list[TranslationCandidate]
    """The `n_best` candidates, best first; empty for an empty text."""


class TranslationList(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[TranslationItem]
    usage: Usage


class ClassScore(BaseModel):
    label: str
    score: float


class ClassificationItem(EncodedItem):
    label: str | None
    """Null for an empty text, which has no class."""
    score: float | None
    scores: list[ClassScore]
    labels: list[str] | None = None
    """Of a multi-label model: the labels with a probability above 0.5, most likely first."""
    value: float | None = None
    """Of a regression model."""


class ClassificationList(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[ClassificationItem]
    usage: EmbeddingUsage


class ImageItem(BaseModel):
    index: int
    label: str
    score: float
    scores: list[ClassScore]
    attention: list[list[float]] | None = None
    """Attention to each patch of the image, in rows from top to bottom; sums to one."""


class ImageList(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[ImageItem]


class PredictionList(BaseModel):
    """Every list has one entry per row, in order."""

    object: Literal["table.predictions"] = "table.predictions"
    model: str
    target: list[str]
    classes: list[ClassLabel]
    """Empty for regression."""
    predictions: list[ClassLabel | list[float]]
    """Classes, numbers, or lists of numbers for several targets."""
    probabilities: list[dict[str, float]] | None = None
    explanations: list[dict[str, float | None]] | None = None
    """Attention on each column, summing to 1; null for a column the model never attends to."""


class Health(BaseModel):
    status: Literal["ok", "unhealthy"]
    models: dict[str, str]


STATUSES = {
    400: ("invalid_request_error", "The request is invalid; the message names the first error."),
    401: ("authentication_error", "A token is required: `Authorization: Bearer ...`."),
    403: ("permission_error", "The Host or Origin header is not allowed."),
    404: ("not_found_error", "There is no such model or route."),
    405: ("invalid_request_error", "The HTTP method is not allowed on this route."),
    408: ("timeout_error", "The request did not arrive in time."),
    413: ("invalid_request_error", "The request is too large."),
    429: ("rate_limit_error", "The queue is full; retry after the seconds in the Retry-After header."),
    500: ("server_error", "The model failed on this request."),
    503: ("server_error", "The model is not available."),
}
"""OpenAI's type of an error, and its description, by status."""


def error_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Error responses of a route, for its OpenAPI description."""
    return {code: {"model": ErrorResponse, "description": STATUSES[code][1]} for code in codes}


def error_response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error in OpenAI's format."""
    error_type = STATUSES.get(status, STATUSES[400])[0]
    error = {"message": message, "type": error_type, "param": param, "code": code}
    return JSONResponse({"error": error}, status, headers)

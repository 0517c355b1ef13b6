"""What a server answers with, in the shapes that OpenAI's clients know, and two of its own."""

from typing import Any, Literal

from pydantic import BaseModel


class Fault(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Refusal(BaseModel):
    """Every answer that is not a success."""

    error: Fault


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Column(BaseModel):
    name: str
    kind: str
    """number, boolean, category, ordinal, date or text."""


Label = str | float | int | bool


class TableCard(BaseModel):
    """What a table's model reads, and what it answers."""

    target: list[str]
    columns: list[Column]
    classes: list[Label]
    """None where numbers are predicted."""


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "softlook"
    abilities: list[str]
    """Not in OpenAI's: which of the routes it answers on."""
    context: int | None = None
    """Tokens of a sequence."""
    table: TableCard | None = None


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


class TopToken(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatToken(TopToken):
    top_logprobs: list[TopToken]


class ChatLogprobs(BaseModel):
    content: list[ChatToken]


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class Chat(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None


class EmbeddingItem(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[EmbeddingItem]
    usage: EmbeddingUsage


class Alignment(BaseModel):
    """Where a translation looked: pairs are of a place in the source and one in the translation, from 0."""

    source: list[str]
    """What each token of the source stands for."""
    target: list[str]
    words: list[tuple[int, int]]
    tokens: list[tuple[int, int]]
    weights: list[list[float]]
    """A row for each token of the translation, a column for each of the source."""


class TranslationCandidate(BaseModel):
    text: str
    finish_reason: Literal["stop", "length"]
    score: float
    """The log-probability, set against the length."""
    log_probability: float
    alignment: Alignment | None = None


class TranslationItem(TranslationCandidate):
    index: int
    best: list[TranslationCandidate]
    """As many as were asked for, best first; of a text without a word none."""


class Translations(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[TranslationItem]
    usage: Usage


class ClassScore(BaseModel):
    label: str
    score: float


class ClassItem(BaseModel):
    index: int
    label: str
    score: float
    scores: list[ClassScore]


class Classes(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[ClassItem]
    usage: EmbeddingUsage


class Predictions(BaseModel):
    """Of every list an entry for each row, in their order."""

    object: Literal["table.predictions"] = "table.predictions"
    model: str
    target: list[str]
    classes: list[Label]
    """None where numbers are predicted."""
    predictions: list[Label | list[float]]
    """Classes; or numbers, and of several targets lists of them."""
    probabilities: list[dict[str, float]] | None = None
    explanations: list[dict[str, float | None]] | None = None
    """How much was looked at each column, of 1; null for one that this model never looks at."""


class Health(BaseModel):
    status: Literal["ok", "broken"]
    models: dict[str, str]


SUCCESS = "Answered."
STATUSES = {
    400: "The request is not as it should be; the message says what was wanted.",
    401: "A token is wanted: `Authorization: Bearer ...`.",
    403: "Asked under a name, or from a page, that this server does not answer.",
    404: "There is no such model, or no such page.",
    405: "This page is asked in another way.",
    408: "The request did not arrive in time.",
    413: "The request is larger than is taken.",
    429: "The queue is full; the header Retry-After says when to try again.",
    500: "The model failed on this request; the message says how.",
    503: "The model cannot answer now.",
}


def statuses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """What a page may answer with beside success, for its description."""
    return {code: {"model": Refusal, "description": STATUSES[code]} for code in codes}

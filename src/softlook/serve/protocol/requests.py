"""Request schemas. Every number and every list is bounded."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, StringConstraints, ValidationInfo, field_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from softlook.serve.protocol.parsing import (
    IDS,
    LISTS,
    PARTS,
    TEXT,
    TEXTS,
    BoundedList,
    NullDefault,
    ShapeUnion,
    SingleError,
    StrictModel,
    UnsupportedField,
    max_entries,
)

MAX_TOKEN_ID = 10_000_000
MAX_TEXT_CHARS = 1_000_000
MAX_PROMPTS = 64
MAX_INPUTS = 256
MAX_CHOICES = 16
MAX_LOGPROBS = 20
MAX_BEAMS = 64
MAX_LOGIT_BIASES = 1024
MAX_ROWS = 10_000
MAX_COLUMNS = 2_000
MAX_CELL_CHARS = 20_000

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_CHARS)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Id = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_TOKEN_ID})]
"""A token id; checked against the model's vocabulary later."""
Ids = Annotated[list[Id], BoundedList(131_072)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0), NullDefault(0.0)]
Flag = Annotated[bool, NullDefault(False)]
TokenCount = Annotated[int, Field(ge=1, le=1_000_000)]
Identifier = Annotated[str, StringConstraints(max_length=256)]
"""Accepted and ignored."""
Texts = Annotated[list[Text], BoundedList(MAX_PROMPTS)]
Inputs = Annotated[list[Text], BoundedList(MAX_INPUTS)]
A_TEXT = "a string or a list of strings"
TEXT_OR_IDS = "a string, a list of strings, a list of token ids or a list of lists of them"


def parse_logit_bias(value: Any) -> dict[int, float]:
    """Token ids and their biases, validated up to the first invalid one."""
    if not isinstance(value, dict):
        raise PydanticCustomError("expected", "expected an object of token ids and numbers")
    max_entries(MAX_LOGIT_BIASES, "token ids")(value)
    for key, bias in value.items():
        is_number = type(bias) in (int, float) and -100 <= bias <= 100
        if not is_number or not (key.isascii() and key.isdecimal() and len(key) <= 8):
            message = "expected a token id and a number from -100 to 100"
            raise PydanticCustomError("expected", message, {"name": key[:80]})
    return {int(key): float(bias) for key, bias in value.items()}


LogitBias = Annotated[
    dict[int, float],
    PlainValidator(
        parse_logit_bias,
        json_schema_input_type=Annotated[
            dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,8}$")], Annotated[float, Field(ge=-100, le=100)]],
            Field(max_length=MAX_LOGIT_BIASES),
        ],
    ),
]


class StreamOptions(StrictModel):
    include_usage: Flag = False
    include_obfuscation: Annotated[bool | None, UnsupportedField(None, False)] = None


class GenerationFields(StrictModel):
    """Fields shared by completion and chat requests."""

    model: ModelName
    temperature: Annotated[float, Field(ge=0.0, le=2.0), NullDefault(1.0)] = 1.0
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=1, le=MAX_TOKEN_ID)] | None = None
    min_p: Probability | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10.0), NullDefault(1.0)] = 1.0
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), NullDefault(1)] = 1
    seed: Int64 | None = None
    stop: Annotated[StopText | Annotated[list[StopText], BoundedList(4, 0)], ShapeUnion(A_TEXT, TEXT, TEXTS)] | None = (
        None
    )
    stream: Flag = False
    stream_options: StreamOptions | None = None
    user: Identifier | None = None
    cache_salt: Annotated[Identifier, NullDefault("")] = ""
    """Requests share cached prefixes only with requests of the same salt, as in vLLM."""
    logit_bias: LogitBias | None = None
    """Token ids, as strings, and the values added to their logits."""

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(GenerationFields):
    """Continue a prompt."""

    prompt: Annotated[
        Text | Annotated[list[Text], BoundedList(MAX_PROMPTS)] | Ids | Annotated[list[Ids], BoundedList(MAX_PROMPTS)],
        ShapeUnion(TEXT_OR_IDS, TEXT, TEXTS, IDS, LISTS),
        NullDefault(""),
    ]
    max_tokens: TokenCount | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    echo: Annotated[bool | None, UnsupportedField(None, False)] = None
    suffix: Annotated[str | None, UnsupportedField(None, "")] = None

    @field_validator("best_of")
    @classmethod
    def _equal_to_n(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Only `best_of` equal to `n` is supported, which returns all samples."""
        if value not in (None, info.data.get("n", value)):
            message = "not supported by this server: remove it, or send the value of n"
            raise PydanticCustomError("unsupported", message)
        return value


class TextPart(StrictModel):
    type: Literal["text"]
    text: Text


class Message(StrictModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        Text | Annotated[list[TextPart], BoundedList(64)], ShapeUnion("a string or a list of parts", TEXT, PARTS)
    ]
    name: ModelName | None = None
    refusal: Annotated[str | None, UnsupportedField(None)] = None
    audio: Annotated[Any, UnsupportedField(None)] = None
    function_call: Annotated[Any, UnsupportedField(None)] = None
    tool_calls: Annotated[list[Any] | None, UnsupportedField(None, [])] = None
    annotations: Annotated[list[Any] | None, UnsupportedField(None, [])] = None

    def for_template(self) -> dict[str, str]:
        """As chat templates expect it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": content}


class JSONSchema(StrictModel):
    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    description: Text | None = None
    definition: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None
    """The schema is enforced either way."""


class ResponseFormat(StrictModel):
    """Format of the answer: any text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JSONSchema | None = None

    @property
    def definition(self) -> dict[str, Any] | None:
        """The JSON schema; None for plain text."""
        if self.type == "text":
            return None
        return {"type": "object"} if self.json_schema is None else self.json_schema.definition or {}


class ChatRequest(GenerationFields):
    """Continue a conversation."""

    messages: Annotated[list[Message], BoundedList(256)]
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    logprobs: Flag = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    prompt_cache_key: Identifier | None = None
    safety_identifier: Identifier | None = None
    audio: Annotated[Any, UnsupportedField(None)] = None
    function_call: Annotated[str | None, UnsupportedField(None, "none", "auto")] = None
    functions: Annotated[list[Any] | None, UnsupportedField(None, [])] = None
    metadata: Annotated[dict[str, Any] | None, UnsupportedField(None, {})] = None
    modalities: Annotated[list[str] | None, UnsupportedField(None, ["text"])] = None
    moderation: Annotated[Any, UnsupportedField(None)] = None
    parallel_tool_calls: Annotated[bool | None, UnsupportedField(None, True, False)] = None
    prediction: Annotated[Any, UnsupportedField(None)] = None
    prompt_cache_options: Annotated[dict[str, Any] | None, UnsupportedField(None, {})] = None
    prompt_cache_retention: Annotated[str | None, UnsupportedField(None, "in_memory")] = None
    reasoning_effort: Annotated[str | None, UnsupportedField(None, "none")] = None
    service_tier: Annotated[str | None, UnsupportedField(None, "auto", "default")] = None
    store: Annotated[bool | None, UnsupportedField(None, False)] = None
    tool_choice: Annotated[str | None, UnsupportedField(None, "none", "auto")] = None
    tools: Annotated[list[Any] | None, UnsupportedField(None, [])] = None
    verbosity: Annotated[str | None, UnsupportedField(None, "medium")] = None
    web_search_options: Annotated[Any, UnsupportedField(None)] = None


class EmbeddingRequest(StrictModel):
    """Embed one or several texts."""

    model: ModelName
    input: Annotated[
        Text | Inputs | Ids | Annotated[list[Ids], BoundedList(MAX_INPUTS)],
        ShapeUnion(TEXT_OR_IDS, TEXT, TEXTS, IDS, LISTS),
    ]
    dimensions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Must equal the model's embedding dimension."""
    encoding_format: Annotated[Literal["float", "base64"], NullDefault("float")] = "float"
    user: Identifier | None = None


class TranslationRequest(StrictModel):
    """Translate one or several texts."""

    model: ModelName
    text: Annotated[Text | Texts, ShapeUnion(A_TEXT, TEXT, TEXTS)]
    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """Above 0: sampling instead of beam search."""
    seed: Int64 | None = None
    num_beams: Annotated[int, Field(ge=1, le=MAX_BEAMS)] | None = None
    """Default: the value of the model's generation config. 1 is greedy decoding."""
    n_best: Annotated[int, Field(ge=1, le=MAX_BEAMS)] = 1
    """Number of candidates returned per text."""
    length_penalty: Annotated[float, Field(ge=-2.0, le=5.0)] | None = None
    """Exponent of the length by which a log-probability is divided: above 0 favors longer translations."""
    alignments: bool = False
    """Return word alignments from the cross-attention."""
    split_sentences: bool = False
    """Translate sentence by sentence; default: only texts longer than those in training."""


class ClassificationRequest(StrictModel):
    """Classify one or several texts, or pairs of texts."""

    model: ModelName
    text: Annotated[Text | Inputs, ShapeUnion(A_TEXT, TEXT, TEXTS)]
    text_pair: Annotated[Text | Inputs, ShapeUnion(A_TEXT, TEXT, TEXTS)] | None = None
    top_k: Annotated[int, Field(ge=1, le=100)] = 10
    """Number of classes returned per text."""


class ImageRequest(StrictModel):
    """Classify images: the bytes of files in base64, or data URLs."""

    model: ModelName
    images: Annotated[list[str], BoundedList(MAX_PROMPTS)]
    top_k: Annotated[int, Field(ge=1, le=100)] = 10
    """Number of classes returned per image."""
    attention: Flag = False
    """Also return the attention to each patch."""


CellValue = Annotated[
    Annotated[str, StringConstraints(max_length=MAX_CELL_CHARS)] | bool | Int64 | float,
    SingleError(f"expected a string of at most {MAX_CELL_CHARS:,} characters, a number, true, false or null"),
]
ColumnName = Annotated[str, StringConstraints(max_length=1024)]
TableRow = Annotated[
    dict[ColumnName, CellValue | None],
    Field(max_length=MAX_COLUMNS),
    BeforeValidator(max_entries(MAX_COLUMNS, "columns")),
]
ColumnCells = Annotated[list[CellValue | None], BoundedList(MAX_ROWS)]


class PredictionRequest(StrictModel):
    """Predict table rows, given as `rows` (cells by column name) or as `columns` (lists of cells by column name).

    A cell that is null or absent is missing.
    """

    model: ModelName
    rows: Annotated[list[TableRow], BoundedList(MAX_ROWS)] | None = None
    columns: (
        Annotated[
            dict[ColumnName, ColumnCells],
            Field(min_length=1, max_length=MAX_COLUMNS),
            BeforeValidator(max_entries(MAX_COLUMNS, "columns")),
        ]
        | None
    ) = None
    probabilities: bool = False
    """Return class probabilities."""
    explain: bool = False
    """Return the attention on each column."""

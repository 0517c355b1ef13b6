"""What a request may hold. Every number has a least and a greatest value, every list a greatest length."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, StringConstraints, ValidationInfo, field_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from softlook.serve.fields import (
    IDS,
    LISTS,
    PARTS,
    TEXT,
    TEXTS,
    ByShape,
    NullIs,
    Only,
    Plainly,
    Request,
    Several,
    at_most,
)

LARGEST_ID = 10_000_000
LONGEST_TEXT = 1_000_000
"""Characters."""
MOST_TEXTS = 64
MOST_INPUTS = 256
MOST_CHOICES = 16
MOST_ALTERNATIVES = 20
MOST_BEAMS = 64
MOST_BIASES = 1024
MOST_ROWS = 10_000
MOST_COLUMNS = 2_000
LONGEST_CELL = 20_000
"""Characters."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Said = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Id = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": LARGEST_ID})]
"""Which ids there are, the model says."""
Ids = Annotated[list[Id], Several(131_072)]
Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0), NullIs(0.0)]
Flag = Annotated[bool, NullIs(False)]
Most = Annotated[int, Field(ge=1, le=1_000_000)]
Identifier = Annotated[str, StringConstraints(max_length=256)]
"""Whom or what a request is for: taken, and not looked at."""
Texts = Annotated[list[Said], Several(MOST_TEXTS)]
Inputs = Annotated[list[Said], Several(MOST_INPUTS)]
A_TEXT = "a string or a list of strings"
TEXT_OR_IDS = "a string, a list of strings, a list of token ids or a list of lists of them"


def biases(value: Any) -> dict[int, float]:
    """Token ids and what is added to their logits, up to the first wrong one."""
    if not isinstance(value, dict):
        raise PydanticCustomError("expected", "expected an object of token ids and numbers")
    at_most(MOST_BIASES, "token ids")(value)
    for key, bias in value.items():
        number = type(bias) in (int, float) and -100 <= bias <= 100
        if not number or not (key.isascii() and key.isdecimal() and len(key) <= 8):
            message = "expected a token id and a number from -100 to 100"
            raise PydanticCustomError("expected", message, {"name": key[:80]})
    return {int(key): float(bias) for key, bias in value.items()}


LogitBias = Annotated[
    dict[int, float],
    PlainValidator(
        biases,
        json_schema_input_type=Annotated[
            dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,8}$")], Annotated[float, Field(ge=-100, le=100)]],
            Field(max_length=MOST_BIASES),
        ],
    ),
]


class StreamOptions(Request):
    include_usage: Flag = False
    include_obfuscation: Annotated[bool | None, Only(None, False)] = None


class Sampled(Request):
    """What completions and chats have in common."""

    model: Name
    temperature: Annotated[float, Field(ge=0.0, le=2.0), NullIs(1.0)] = 1.0
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=1, le=LARGEST_ID)] | None = None
    min_p: Share | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10.0), NullIs(1.0)] = 1.0
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES), NullIs(1)] = 1
    seed: Whole | None = None
    stop: Annotated[StopText | Annotated[list[StopText], Several(4, 0)], ByShape(A_TEXT, TEXT, TEXTS)] | None = None
    stream: Flag = False
    stream_options: StreamOptions | None = None
    user: Identifier | None = None
    logit_bias: LogitBias | None = None
    """Token ids, as texts, and what is added to their logits."""

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def tells_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Sampled):
    """What comes after a prompt?"""

    prompt: Annotated[
        Text | Annotated[list[Text], Several(MOST_TEXTS)] | Ids | Annotated[list[Ids], Several(MOST_TEXTS)],
        ByShape(TEXT_OR_IDS, TEXT, TEXTS, IDS, LISTS),
        NullIs(""),
    ]
    max_tokens: Most | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    echo: Annotated[bool | None, Only(None, False)] = None
    suffix: Annotated[str | None, Only(None, "")] = None

    @field_validator("best_of")
    @classmethod
    def _best_of_all(cls, value: int | None, info: ValidationInfo) -> int | None:
        """The best n of n are all of them: nothing is chosen here among more."""
        if value not in (None, info.data.get("n", value)):
            message = "not supported by this server: leave it out, or send the value of n"
            raise PydanticCustomError("unsupported", message)
        return value


class TextPart(Request):
    type: Literal["text"]
    text: Text


class Message(Request):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        Text | Annotated[list[TextPart], Several(64)], ByShape("a string or a list of parts", TEXT, PARTS)
    ]
    name: Name | None = None
    refusal: Annotated[str | None, Only(None)] = None
    audio: Annotated[Any, Only(None)] = None
    function_call: Annotated[Any, Only(None)] = None
    tool_calls: Annotated[list[Any] | None, Only(None, [])] = None
    annotations: Annotated[list[Any] | None, Only(None, [])] = None

    def plain(self) -> dict[str, str]:
        """As templates know it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": content}


class JSONSchema(Request):
    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    description: Text | None = None
    form: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None
    """The schema is followed either way."""


class ResponseFormat(Request):
    """The form of an answer: any text, any JSON object, or JSON by a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JSONSchema | None = None

    @property
    def form(self) -> dict[str, Any] | None:
        """A JSON schema; None where any text will do."""
        if self.type == "text":
            return None
        return {"type": "object"} if self.json_schema is None else self.json_schema.form or {}


class ChatRequest(Sampled):
    """What comes after a conversation?"""

    messages: Annotated[list[Message], Several(256)]
    max_tokens: Most | None = None
    max_completion_tokens: Most | None = None
    logprobs: Flag = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    response_format: ResponseFormat | None = None
    prompt_cache_key: Identifier | None = None
    safety_identifier: Identifier | None = None
    audio: Annotated[Any, Only(None)] = None
    function_call: Annotated[str | None, Only(None, "none", "auto")] = None
    functions: Annotated[list[Any] | None, Only(None, [])] = None
    metadata: Annotated[dict[str, Any] | None, Only(None, {})] = None
    modalities: Annotated[list[str] | None, Only(None, ["text"])] = None
    moderation: Annotated[Any, Only(None)] = None
    parallel_tool_calls: Annotated[bool | None, Only(None, True, False)] = None
    prediction: Annotated[Any, Only(None)] = None
    prompt_cache_options: Annotated[dict[str, Any] | None, Only(None, {})] = None
    prompt_cache_retention: Annotated[str | None, Only(None, "in_memory")] = None
    reasoning_effort: Annotated[str | None, Only(None, "none")] = None
    service_tier: Annotated[str | None, Only(None, "auto", "default")] = None
    store: Annotated[bool | None, Only(None, False)] = None
    tool_choice: Annotated[str | None, Only(None, "none", "auto")] = None
    tools: Annotated[list[Any] | None, Only(None, [])] = None
    verbosity: Annotated[str | None, Only(None, "medium")] = None
    web_search_options: Annotated[Any, Only(None)] = None


class EmbeddingRequest(Request):
    """A vector for each text."""

    model: Name
    input: Annotated[
        Said | Inputs | Ids | Annotated[list[Ids], Several(MOST_INPUTS)],
        ByShape(TEXT_OR_IDS, TEXT, TEXTS, IDS, LISTS),
    ]
    dimensions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How long vectors are; only the model's own length is answered."""
    encoding_format: Annotated[Literal["float", "base64"], NullIs("float")] = "float"
    user: Identifier | None = None


class TranslationRequest(Request):
    """A text in other words, or several."""

    model: Name
    text: Annotated[Said | Texts, ByShape(A_TEXT, TEXT, TEXTS)]
    max_tokens: Most | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """Above 0 words are drawn, and there are no beams."""
    seed: Whole | None = None
    beams: Annotated[int, Field(ge=1, le=MOST_BEAMS)] | None = None
    """Beginnings that are kept at once: as many as the model was tested with where not told; 1 is the fastest."""
    best: Annotated[int, Field(ge=1, le=MOST_BEAMS)] = 1
    """How many of what the beams found are told."""
    penalty: Annotated[float, Field(ge=-2.0, le=5.0)] | None = None
    """The power of its length by which a log-probability is divided: above 0 favours longer answers."""
    alignments: bool = False
    """Tell which word comes from which."""


class ClassificationRequest(Request):
    """Which class a text belongs to, or each of several; `pair` holds the second text of each."""

    model: Name
    text: Annotated[Said | Inputs, ByShape(A_TEXT, TEXT, TEXTS)]
    pair: Annotated[Said | Inputs, ByShape(A_TEXT, TEXT, TEXTS)] | None = None
    top: Annotated[int, Field(ge=1, le=100)] = 10
    """How many of the likeliest classes are told."""


Filled = Annotated[
    Annotated[str, StringConstraints(max_length=LONGEST_CELL)] | bool | Whole | float,
    Plainly(f"expected a string of at most {LONGEST_CELL:,} characters, a number, true, false or null"),
]
Column = Annotated[str, StringConstraints(max_length=1024)]
Row = Annotated[
    dict[Column, Filled | None], Field(max_length=MOST_COLUMNS), BeforeValidator(at_most(MOST_COLUMNS, "columns"))
]
Cells = Annotated[list[Filled | None], Several(MOST_ROWS)]


class PredictionRequest(Request):
    """What a table's model says of rows: as `rows`, each with its cells by name, or as `columns`, each with all of its.

    A cell that is null, or not there, is missing.
    """

    model: Name
    rows: Annotated[list[Row], Several(MOST_ROWS)] | None = None
    columns: (
        Annotated[
            dict[Column, Cells],
            Field(min_length=1, max_length=MOST_COLUMNS),
            BeforeValidator(at_most(MOST_COLUMNS, "columns")),
        ]
        | None
    ) = None
    probabilities: bool = False
    """Tell how likely each class is."""
    explain: bool = False
    """Tell how much was looked at each column."""

"""What a request may hold. Every number has a least and a greatest value, every list a greatest length."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

LARGEST_ID = 10_000_000
LONGEST_TEXT = 1_000_000
"""Characters."""
MOST_TEXTS = 64
MOST_INPUTS = 256
MOST_CHOICES = 16
MOST_ALTERNATIVES = 20
MOST_BEAMS = 64
MOST_ROWS = 10_000
MOST_COLUMNS = 2_000
LONGEST_CELL = 20_000
"""Characters."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Said = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Id = Annotated[int, Field(ge=0, le=LARGEST_ID)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=131_072)]
Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0)]


class Request(BaseModel):
    """Nothing is guessed: a field that is not known is refused, and so is a number that comes as a text."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class StreamOptions(Request):
    include_usage: bool = False


class Sampled(Request):
    """What completions and chats have in common."""

    model: Name
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 1.0
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=1, le=LARGEST_ID)] | None = None
    min_p: Share | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10.0)] = 1.0
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] = 1
    seed: Whole | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=4)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Annotated[str, StringConstraints(max_length=256)] | None = None
    """Taken, and not looked at."""

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def tells_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Sampled):
    """What comes after a prompt?"""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS)]
    )
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None


class TextPart(Request):
    type: Literal["text"]
    text: Text


class Message(Request):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(min_length=1, max_length=64)]
    name: Name | None = None

    def plain(self) -> dict[str, str]:
        """As templates know it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": content}


class ChatRequest(Sampled):
    """What comes after a conversation?"""

    messages: Annotated[list[Message], Field(min_length=1, max_length=256)]
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None


class EmbeddingRequest(Request):
    """A vector for each text."""

    model: Name
    input: (
        Said
        | Annotated[list[Said], Field(min_length=1, max_length=MOST_INPUTS)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_INPUTS)]
    )
    encoding_format: Literal["float", "base64"] = "float"
    user: Annotated[str, StringConstraints(max_length=256)] | None = None


class TranslationRequest(Request):
    """A text in other words, or several."""

    model: Name
    text: Said | Annotated[list[Said], Field(min_length=1, max_length=MOST_TEXTS)]
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
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
    text: Said | Annotated[list[Said], Field(min_length=1, max_length=MOST_INPUTS)]
    pair: Said | Annotated[list[Said], Field(min_length=1, max_length=MOST_INPUTS)] | None = None
    top: Annotated[int, Field(ge=1, le=100)] = 10
    """How many of the likeliest classes are told."""


class FirstFault:
    """Of a list that is wrong in many places the first is enough: to find them all would keep everybody waiting."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "fail_fast": True}


def narrow(columns: Any) -> Any:
    """Before any of them is looked at: are they few enough?"""
    if isinstance(columns, dict) and len(columns) > MOST_COLUMNS:
        told = {"most": f"{MOST_COLUMNS:,}", "count": f"{len(columns):,}"}
        raise PydanticCustomError("too_wide", "there are at most {most} columns; {count} came", told)
    return columns


class Plainly:
    """Of a value that may be of several kinds, one sentence says what was wanted, not one for each kind."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "custom_error_type": "wanted", "custom_error_message": self.wanted}


Filled = Annotated[
    Annotated[str, StringConstraints(max_length=LONGEST_CELL)] | bool | Whole | float,
    Plainly(f"a cell is a text of at most {LONGEST_CELL:,} characters, a number, true, false or null"),
]
Column = Annotated[str, StringConstraints(max_length=1024)]
Row = Annotated[dict[Column, Filled | None], Field(max_length=MOST_COLUMNS), BeforeValidator(narrow)]
Cells = Annotated[list[Filled | None], Field(min_length=1, max_length=MOST_ROWS), FirstFault()]


class PredictionRequest(Request):
    """What a table's model says of rows: as `rows`, each with its cells by name, or as `columns`, each with all of its.

    A cell that is null, or not there, is missing.
    """

    model: Name
    rows: Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS), FirstFault()] | None = None
    columns: (
        Annotated[dict[Column, Cells], Field(min_length=1, max_length=MOST_COLUMNS), BeforeValidator(narrow)] | None
    ) = None
    probabilities: bool = False
    """Tell how likely each class is."""
    explain: bool = False
    """Tell how much was looked at each column."""

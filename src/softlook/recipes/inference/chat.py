"""Conversations with a causal language model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from softlook import decode
from softlook.base.errors import DataError
from softlook.decode import stream_text
from softlook.decode.chat_template import ChatTemplate, load_chat_template
from softlook.recipes.inference.generation import DEFAULT_MAX_NEW_TOKENS, GenerationParams, TextGenerator
from softlook.recipes.inference.pipeline import Pipeline
from softlook.weights.assets import read_generation_config

SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class ConversationMessage(TypedDict):
    """A message of a conversation, in OpenAI's format."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass
class Chat:
    """A conversation with a causal language model, which remembers its messages.

    With a chat template, the messages are rendered as in the model's training. Without one, the model continues the
    text of all messages. If the conversation exceeds the context, the oldest messages are dropped.
    """

    pipeline: Pipeline
    template: ChatTemplate | None = None
    params: GenerationParams = field(default_factory=GenerationParams)
    system: str | None = None
    """The system message, which is never dropped."""
    messages: list[ConversationMessage] = field(default_factory=list)
    """Without the system message."""
    num_dropped: int = 0
    """Number of messages dropped so far."""

    def __post_init__(self) -> None:
        self.pipeline = _with_eos_of(self.pipeline, self.template)
        self.generator = TextGenerator(self.pipeline, self.params)
        self.num_answers = 0

    def answer(self, text: str) -> Iterator[str]:
        """Add a message and yield the answer as it is generated.

        The part that was generated before the iterator is closed becomes the answer in the conversation.
        """
        if self.messages and self.messages[-1]["role"] == "user":  # never answered
            self.messages.pop()
        self.messages.append({"role": "user", "content": text})
        try:
            row = self._fit()
        except BaseException:
            self.messages.pop()
            raise
        return self._stream(row)

    def reset(self) -> None:
        """Forget all messages but the system message."""
        self.messages.clear()

    def _stream(self, row: Sequence[int]) -> Iterator[str]:
        options: dict[str, Any] = self.generator.options(row, [self.num_answers])
        if self.template is not None and self.generator.context is not None:
            # Answers end by themselves, or with the context.
            options |= {"max_new_tokens": self.params.max_new_tokens, "context_shift": None}
        self.num_answers += 1
        pieces: list[str] = []
        tokens = decode.stream(self.pipeline.model, row, **options)
        try:
            for piece in stream_text(tokens, self.generator.stop_strings, row):
                pieces.append(piece)
                yield piece
        finally:  # also if the answer is interrupted
            self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def _fit(self) -> list[int]:
        """The ids of the conversation, after dropping as many of the oldest messages as necessary."""
        context, row = self.generator.context, self._encode(self.messages)
        if context is None:
            return row
        reserved = self.params.max_new_tokens or min(DEFAULT_MAX_NEW_TOKENS, context // 2)
        messages = list(self.messages)
        while len(row) + reserved > context and len(messages) > 1:
            messages = messages[_next_turn(messages) :]
            row = self._encode(messages)
        needed = self.params.max_new_tokens or 1
        if len(row) + needed > context:
            message = f"a message of {len(row):,} tokens and an answer of up to {needed:,} exceed the context of"
            raise DataError(f"{message} {context:,}", help="a shorter message, or a smaller --max-new-tokens")
        self.num_dropped += len(self.messages) - len(messages)
        self.messages = messages
        return row

    def _encode(self, messages: Sequence[ConversationMessage]) -> list[int]:
        tokenizer, special = self.pipeline.tokenizer, self.pipeline.special_tokens
        if self.template is not None:
            system: list[ConversationMessage] = (
                [] if self.system is None else [{"role": "system", "content": self.system}]
            )
            row = tokenizer.encode([self.template.render([*system, *messages])], parse_special=True)[0]
            if not row:
                raise DataError("the model's chat template renders this conversation as an empty text")
            return row
        lines = [] if self.system is None else [self.system + "\n"]
        lines += [one["content"] + "\n" * (one["role"] == "assistant") for one in messages]
        return [*special.prefix, *tokenizer.encode(["".join(lines)])[0]] or list(special.start)


def load_chat(
    pipeline: Pipeline, folder: Path | str, params: GenerationParams | None = None, *, system: str | None = None
) -> Chat:
    """A conversation with the model in a folder, by its chat template if it has one.

    Default sampling parameters are those of its generation config.
    """
    folder = Path(folder)
    template = load_chat_template(folder) if folder.is_dir() else None
    params = GenerationParams(**default_sampling(folder)) if params is None else params
    return Chat(pipeline.require("generate"), template, params, system)


def default_sampling(folder: Path | str) -> dict[str, Any]:
    """The sampling parameters that a model's generation_config.json recommends."""
    recommended = read_generation_config(Path(folder))
    if recommended.get("do_sample") is False:
        return {"temperature": 0.0}
    found = {name: recommended.get(name, 0) for name in SAMPLING_FIELDS}
    return {name: value for name, value in found.items() if type(value) in (int, float) and value > 0}


def _with_eos_of(pipeline: Pipeline, template: ChatTemplate | None) -> Pipeline:
    """The same pipeline; answers also end with the end-of-sequence token of the template."""
    id = None if template is None or not template.eos else pipeline.tokenizer.tokenizer.token_to_id(template.eos)
    special = pipeline.special_tokens
    if id is None or id in special.eos:
        return pipeline
    return replace(pipeline, special_tokens=replace(special, eos=(*special.eos, id)))


def _next_turn(messages: Sequence[ConversationMessage]) -> int:
    """The index of the second user message.

    >>> _next_turn([{"role": role, "content": ""} for role in ("user", "assistant", "user")])
    2
    """
    return next(index for index, one in enumerate(messages) if index and one["role"] == "user")

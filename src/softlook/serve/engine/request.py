"""Requests to the engine, their limits and their outputs."""

import logging
import time
from collections.abc import Callable, Hashable, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field

from torch import Tensor

from softlook.decode import FinishReason, GeneratedToken, Hypothesis, LogitsProcessor, StopStrings
from softlook.decode.generation_config import GenerationConfig
from softlook.decode.sampling import SamplingParams, SequenceState

log = logging.getLogger("softlook.serve")
SMALL_TABLE_ROWS = 16
"""Table requests with at most this many rows are short."""


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Limits set by the operator. Every field of a request has its own bounds in addition."""

    max_queue: int = 1024
    """Sequences in the queue. Further requests get status 429."""
    max_batch_size: int = 64
    """Sequences processed together."""
    kv_cache_gib: float | None = None
    """GiB for the KV cache of each model. None: a share of the free memory."""
    prefix_caching: bool = True
    """Whether language models keep the keys and values of prompts for later prompts with the same beginning."""
    max_new_tokens: int = 4096
    """Tokens of one completion."""
    max_request_tokens: int = 1_000_000
    """Sequences of a request times their new tokens times the logprobs returned with each; or cells of a table."""
    max_body_bytes: int = 1 << 20
    read_timeout: float = 20.0
    """Seconds in which the body of a request must arrive."""
    send_timeout: float = 20.0
    """Seconds a client may take to accept a chunk of a stream."""


@dataclass(frozen=True)
class BeamParams:
    """Beam search settings of a request."""

    num_beams: int
    length_penalty: float
    """Exponent of the length by which the log-probability of a hypothesis is divided."""


@dataclass(frozen=True)
class EngineRequest:
    """A sequence to continue, a text to encode, or table rows to predict."""

    prompt: tuple[int, ...]
    """Token ids: the prompt, the text of an encoder, or the decoder prefix of an encoder-decoder."""
    source: tuple[int, ...] | None = None
    """Encoder input ids of an encoder-decoder."""
    second_start: int | None = None
    """Index at which the second text of a pair starts (encoders)."""
    rows: Sized | None = None
    """Table rows or images, instead of a prompt."""
    max_new_tokens: int = 1
    sampling: SamplingParams = field(default_factory=SamplingParams)
    beam_search: BeamParams | None = None
    """Beam search instead of sampling (translation)."""
    generation_config: GenerationConfig | None = None
    """The model's own logits processors, applied before those of the request."""
    attention_only: bool = False
    """Return attention weights of the given tokens instead of new tokens: an alignment, or a table's columns."""
    cache_salt: str = ""
    """Requests share cached prefixes only with requests of the same salt."""
    seed: int = 0
    sample_index: int = 0
    """Index among the samples of the same prompt."""
    eos_ids: frozenset[int] = frozenset()
    stop: StopStrings | None = None
    """Stop strings and detokenizer. None: text is decoded only at the end."""
    stream: bool = False
    """Emit an output for every token."""

    @property
    def max_length(self) -> int:
        """Positions the sequence can occupy in the KV cache."""
        return len(self.prompt) + self.max_new_tokens

    @property
    def num_beams(self) -> int:
        return 1 if self.beam_search is None else self.beam_search.num_beams

    @property
    def is_long(self) -> bool:
        """Whether the request has its own queue, so that short requests do not wait behind it."""
        return self.beam_search is not None or (self.rows is not None and len(self.rows) > SMALL_TABLE_ROWS)

    def processors(self) -> tuple[LogitsProcessor, ...]:
        """Logits processors: those of the model's generation config, then those of the request."""
        config, own = self.generation_config, self.sampling.processors()
        if config is None:
            return own
        eos_ids = tuple(self.eos_ids)
        return (*config.logits_processors(self.max_new_tokens, eos_ids, lambda _: self.source or ()), *own)

    @property
    def processor_key(self) -> Hashable:
        """Requests with equal keys have equal processors of the model's generation config."""
        config = self.generation_config
        source = self.source if config is not None and config.uses_source else None
        return config, self.max_new_tokens, self.eos_ids, source


@dataclass(frozen=True)
class RequestOutput:
    """An output of a request. The final output has a finish reason, a tensor, hypotheses or an error."""

    tokens: tuple[GeneratedToken, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    tensor: Tensor | None = None
    """Class logits or an embedding (encoders), attention weights (alignments), predictions (tables)."""
    hypotheses: tuple[Hypothesis, ...] = ()
    """Beam search results, best first."""
    error: Exception | None = None

    @property
    def is_final(self) -> bool:
        return bool(self.finish_reason or self.hypotheses or self.error) or self.tensor is not None


OutputCallback = Callable[["ScheduledRequest", RequestOutput], None]
"""Called on the engine thread. It must return immediately and must not raise."""


@dataclass(eq=False)
class ScheduledRequest:
    """A request and its state in the engine."""

    request: EngineRequest
    callback: OutputCallback
    cancelled: bool = False
    """Set when the client is gone; the engine drops the request before its next step."""
    finished: bool = False
    error: Exception | None = None
    """Why the request failed, if it did."""
    times_overtaken: int = 0
    """Number of later requests admitted first because this one did not fit."""
    deferred: bool = False
    """Whether the request waits until it runs alone, after running out of memory in a batch."""
    num_sent_tokens: int = 0
    num_sent_chars: int = 0
    hypotheses: tuple[Hypothesis, ...] = ()
    """Beam search results, best first."""
    arrival_time: float = field(default_factory=time.monotonic)
    token_times: list[float] = field(default_factory=list)
    """When each token was generated, for latency metrics."""
    row: SequenceState = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        stop_checker = None if request.stop is None else request.stop.checker(request.prompt[-16:])
        self.row = SequenceState(list(request.prompt), request.sample_index, request.max_new_tokens, stop_checker)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The prompt and the tokens generated so far."""
        return (*self.request.prompt, *self.row.generated)

    def append_token(self, token: GeneratedToken) -> None:
        """Append a generated token, and emit it when streaming."""
        self.token_times.append(time.monotonic())
        self.row.append(token, self.request.eos_ids)
        if self.row.finish_reason is not None:
            self._finish(self.row.finish_reason)
        elif self.request.stream:
            self._emit(self._new_output())

    def complete(self, tensor: Tensor | None = None, hypotheses: Sequence[Hypothesis] = ()) -> None:
        """Finish with the tensor of an encoder, an alignment or a table, or with the results of a beam search."""
        self.hypotheses = tuple(hypotheses)
        self._emit_final(RequestOutput(tensor=tensor, hypotheses=self.hypotheses))

    def fail(self, error: Exception) -> None:
        """Finish with an error."""
        if not self.finished:
            self.error = error
            self._emit_final(RequestOutput(error=error))

    def _finish(self, finish_reason: FinishReason) -> None:
        if self.row.stop_checker is not None:
            self.row.stop_checker.finish()
        output = self._new_output()
        self._emit_final(RequestOutput(output.tokens, output.text, finish_reason))

    def _new_output(self) -> RequestOutput:
        """Tokens and text that were not emitted yet."""
        tokens = tuple(self.row.tokens[self.num_sent_tokens :])
        text = self.row.stop_checker.text if self.row.stop_checker else ""
        output = RequestOutput(tokens, text[self.num_sent_chars :])
        self.num_sent_tokens, self.num_sent_chars = len(self.row.tokens), len(text)
        return output

    def _emit_final(self, output: RequestOutput) -> None:
        if not self.finished:
            self.finished = True
            self._emit(output)

    def _emit(self, output: RequestOutput) -> None:
        try:
            self.callback(self, output)
        except Exception as error:  # this client cannot be reached; the others can
            log.error("the output of a request could not be delivered", exc_info=error)
            self.finished, self.error = True, error
            with suppress(Exception):
                self.callback(self, RequestOutput(error=error))

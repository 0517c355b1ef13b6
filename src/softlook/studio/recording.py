"""Recordings: a trace with its description for the page, and recorded answers of its model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from softlook.base.errors import DataError
from softlook.lens.attention_trace import AttentionTrace
from softlook.lens.trace import Trace
from softlook.lens.trace_description import column_tokens, describe_attentions, dtype_name, row_tokens
from softlook.studio.live import LiveModel

Task = Literal["lm", "masked_lm", "seq2seq", "classification", "table", "image", "other"]
MODEL_ANSWERS = ("logit_lens", "contributions", "intervene", "twins", "generate", "beams")
"""Capabilities that need the model."""
_numbers = count(1)


@dataclass(eq=False)
class StudioTrace:
    """A trace in the studio."""

    trace: Trace
    title: str
    model: str = ""
    """The name of the model."""
    task: Task = "other"
    live: LiveModel | None = None
    """The model, if it is loaded."""
    predicted: list[str] | None = None
    """The tokens that the rows predict, where they are known: in a decoder, row i reads token i, predicts the next."""
    made_live: bool = False
    """Whether a loaded model made it just now, though no other text can be given to it."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Recorded answers that need the model: "next", "logit_lens"."""
    image: str | None = None
    """The image that the model read, as a data URL."""
    id: str = field(default_factory=lambda: f"t{next(_numbers)}")

    def layer(self, path: str) -> AttentionTrace:
        """The attention at a path, or by its number in `info`."""
        paths = list(self.trace)
        if path.isdecimal() and int(path) < len(paths):
            return self.trace[paths[int(path)]]
        if path not in paths:
            raise DataError(f"no attention {path:.80}: expected one of {', '.join(paths)}")
        return self.trace[path]

    def path(self, text: str) -> str:
        """The path of an attention that is given by its path or its number."""
        self.layer(text)
        return list(self.trace)[int(text)] if text.isdecimal() else text

    @property
    def capabilities(self) -> list[str]:
        """Requests that can be answered about the trace: everything that its model can do, or what was recorded."""
        own = set(self.answers) if self.live is None else {*self.answers, *self.live.capabilities}
        return [name for name in (*MODEL_ANSWERS, "next") if name in own]

    def info(self) -> dict[str, Any]:
        """The description that the page reads."""
        return {
            "id": self.id,
            "title": self.title,
            "model": self.model,
            "live": self.made_live or self.live is not None,
            "dtype": dtype_name(self.trace),
            "rowTokens": row_tokens(self.trace),
            "columnTokens": column_tokens(self.trace),
            "predictedTokens": self.predicted,
            "attentions": describe_attentions(self.trace),
            "capabilities": self.capabilities,
            "task": self.task,
            "image": self.image,
        }

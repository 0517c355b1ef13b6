"""Recordings: a trace with what the page says about it, and answers that would need its model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from softlook.base.errors import DataError
from softlook.lens.attention_trace import AttentionTrace
from softlook.lens.trace import Trace
from softlook.ops.masks.base import And, Mask
from softlook.ops.masks.masks import WindowMask
from softlook.studio.live import LiveModel

AttentionKind = Literal["self", "causal", "cross"]
Task = Literal["lm", "masked_lm", "seq2seq", "classification", "table", "image", "other"]
MODEL_ANSWERS = ("logit_lens", "contributions", "intervene", "twins", "generate", "beams")
"""Capabilities that need the model."""
_numbers = count(1)


@dataclass(eq=False)
class Recording:
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
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Recorded answers that need the model: "next", "logit_lens"."""
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
    def row_tokens(self) -> list[str]:
        return _fill(self.trace.tokens, max((layer.shape[2] for layer in self._of("row")), default=0))

    @property
    def column_tokens(self) -> list[str]:
        given = self.trace.source_tokens if self.trace.source_tokens is not None else self.trace.tokens
        return _fill(given, max((layer.shape[3] for layer in self._of("column")), default=0))

    def tokens_of(self, path: str) -> tuple[list[str], list[str]]:
        """The tokens of the rows and of the columns of an attention."""
        layer, kind, rows, columns = self.layer(path), self.kind(path), self.row_tokens, self.column_tokens
        if kind == "cross":
            return rows, columns
        return (rows, rows) if layer.shape[2] == len(rows) and kind == "causal" else (columns, columns)

    def kind(self, path: str) -> AttentionKind:
        """Whether an attention reads other tokens, only earlier ones, or all."""
        return attention_kind(path, self.trace[self.path(path)])

    @property
    def capabilities(self) -> list[str]:
        """What can be asked about the trace: everything that its model can do, or what was recorded."""
        own = set(self.answers) if self.live is None else {*self.answers, *self.live.capabilities}
        return [name for name in (*MODEL_ANSWERS, "next") if name in own]

    def info(self) -> dict[str, Any]:
        """The description that the page reads."""
        return {
            "id": self.id,
            "title": self.title,
            "model": self.model,
            "live": self.live is not None,
            "dtype": self._dtype,
            "rowTokens": self.row_tokens,
            "columnTokens": self.column_tokens,
            "predictedTokens": self.predicted,
            "attentions": self._attentions(),
            "capabilities": self.capabilities,
            "task": self.task,
        }

    @property
    def _dtype(self) -> str:
        layer = next(iter(self.trace.values()), None)
        return "float32" if layer is None else str(layer.calls[0].query.dtype).removeprefix("torch.")

    def _attentions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path, layer in self.trace.items():
            kind, (_, H, T, S) = attention_kind(path, layer), layer.shape
            stack = path.partition(".")[0] if "coder" in path.partition(".")[0] else ""
            number = sum((one["kind"], one["stack"]) == (kind, stack) for one in found)
            found.append(
                {"path": path, "layer": number, "kind": kind, "stack": stack, "heads": H, "rows": T, "columns": S}
            )
        return found

    def _of(self, side: Literal["row", "column"]) -> list[AttentionTrace]:
        """The layers whose rows, or columns, are the tokens of that name."""
        kinds = {path: attention_kind(path, layer) for path, layer in self.trace.items()}
        if "cross" not in kinds.values():
            return list(self.trace.values())
        return [self.trace[path] for path, kind in kinds.items() if kind == "cross"]


def attention_kind(path: str, layer: AttentionTrace) -> AttentionKind:
    """The kind of an attention, by its mask, its shape and its name.

    >>> import torch
    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> with torch.no_grad(), trace(model) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> attention_kind("blocks.0.attn", recorded["blocks.0.attn"])
    'causal'
    """
    call = layer.calls[0]
    queries, keys = call.query.shape[2], call.key.shape[2]
    if "cross" in path or (len(layer.calls) == 1 and queries not in (1, keys)):
        return "cross"  # a single query is that of [CLS], or of the last token
    grows = len(layer.calls) > 1 and layer.calls[-1].key.shape[2] > call.key.shape[2]
    if grows or hides_future(call.args.mask):
        return "causal"
    return "cross" if len(layer.calls) > 1 else "self"


def hides_future(mask: Mask | None) -> bool:
    """Whether a mask, or one that it is combined of, hides the keys after the query."""
    if isinstance(mask, And):
        return hides_future(mask.one) or hides_future(mask.other)
    return isinstance(mask, WindowMask) and mask.right == 0


def _fill(tokens: Any, count: int) -> list[str]:
    """The texts of the tokens; of those without a text, their numbers."""
    known = list(tokens or ())[:count]
    return [*known, *(str(index) for index in range(len(known), count))]

"""Description of a trace: the type of each attention, and the tokens of its rows and columns."""

from typing import Any, Literal

from softlook.lens.attention_trace import AttentionTrace
from softlook.lens.trace import Trace
from softlook.ops.masks.base import And, Mask
from softlook.ops.masks.masks import WindowMask

AttentionKind = Literal["self", "causal", "cross"]


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
    grows = len(layer.calls) > 1 and layer.calls[-1].key.shape[2] > keys
    if grows or hides_future(call.args.mask):
        return "causal"
    return "cross" if len(layer.calls) > 1 else "self"


def hides_future(mask: Mask | None) -> bool:
    """Whether a mask, or one that it is combined of, hides the keys after the query."""
    if isinstance(mask, And):
        return hides_future(mask.one) or hides_future(mask.other)
    return isinstance(mask, WindowMask) and mask.right == 0


def describe_attentions(trace: Trace) -> list[dict[str, Any]]:
    """Path, number, kind, stack and sizes of each attention, in order."""
    found: list[dict[str, Any]] = []
    for path, layer in trace.items():
        kind, (_, H, T, S) = attention_kind(path, layer), layer.shape
        first = path.partition(".")[0]
        stack = first if first in ("encoder", "decoder") else ""
        number = sum((one["kind"], one["stack"]) == (kind, stack) for one in found)
        found.append({"path": path, "layer": number, "kind": kind, "stack": stack, "heads": H, "rows": T, "columns": S})
    return found


def row_tokens(trace: Trace) -> list[str]:
    """The tokens of the rows: of an encoder-decoder, those of the decoder."""
    return _fill(trace.tokens, max((one["rows"] for one in _main(trace)), default=0))


def column_tokens(trace: Trace) -> list[str]:
    """The tokens of the columns: of an encoder-decoder, those of the encoder."""
    given = trace.tokens if trace.source_tokens is None else trace.source_tokens
    return _fill(given, max((one["columns"] for one in _main(trace)), default=0))


def attention_tokens(trace: Trace, path: str) -> tuple[list[str], list[str]]:
    """The tokens of the rows and of the columns of one attention."""
    (own,) = [one for one in describe_attentions(trace) if one["path"] == path]
    rows, columns = row_tokens(trace), column_tokens(trace)
    if own["kind"] == "self":
        rows = columns if own["columns"] == len(columns) else rows
    elif own["kind"] == "causal":
        columns = rows if own["columns"] == len(rows) else columns
    return _fill(rows, own["rows"]), _fill(columns, own["columns"])


def dtype_name(trace: Trace) -> str:
    """The dtype of the recorded queries and keys."""
    layer = next(iter(trace.values()), None)
    return "float32" if layer is None else str(layer.calls[0].query.dtype).removeprefix("torch.")


def _main(trace: Trace) -> list[dict[str, Any]]:
    """The attentions whose rows and columns are the tokens of the trace: cross-attention, if there is some."""
    attentions = describe_attentions(trace)
    return [one for one in attentions if one["kind"] == "cross"] or attentions


def _fill(tokens: Any, count: int) -> list[str]:
    """The texts of the tokens; of those without a text, their numbers."""
    known = list(tokens or ())[:count]
    return [*known, *(str(index) for index in range(len(known), count))]

"""Traces as one HTML file: the page of the studio with the recording inside. It opens without a server."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.base.version import VERSION
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.lens.trace import Trace
from softlook.lens.trace_description import column_tokens, describe_attentions, dtype_name, row_tokens
from softlook.ops.masks.base import Mask
from softlook.ops.masks.masks import WindowMask
from softlook.ops.selection import scores_at
from softlook.weights.atomic_folder import check_not_exists, disk_errors

MAX_DENSE = 1 << 23
"""Numbers of a mask, a bias, or of a map that is stored as it is."""
FULL_PRECISION = 1 << 21
"""Queries and keys of a trace with more numbers are stored in half precision."""
UNIT = 1e-38
"""Stands for weights of 0 in the logarithm of a map."""
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<script type="application/json" id="softlook-config">{config}</script>
</head>
<body class="softlook-page">
<div id="softlook"></div>
<script type="module">{script}</script>
</body>
</html>
"""


def trace_page(trace: Trace, info: Mapping[str, Any] | None = None, answers: Mapping[str, Any] | None = None) -> str:
    """The page of a trace; `info` adds to its description, `answers` are those of the model, such as "next".

    >>> from softlook.models import GPT, GPTConfig
    >>> from softlook.lens import trace
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> with torch.no_grad(), trace(model, tokens=["</script>", "b"]) as recorded:
    ...     logits = model(torch.tensor([[3, 1]]))
    >>> page = trace_page(recorded, {"title": "two tokens"})
    >>> page.count("</script>"), "http://" in page.replace("http://www.w3.org/", "")
    (2, False)
    """
    recording = record(trace, info or {}, answers or {})
    config = json.dumps({"transport": "inline", "recording": recording}, allow_nan=False).replace("<", "\\u003c")
    style, script = _bundle()
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    title = escape(recording["info"]["title"])
    return TEMPLATE.format(policy=policy, title=title, style=style, config=config, script=script)


def write_page(path: Path, trace: Trace, info: Mapping[str, Any] | None = None, **answers: Any) -> None:
    """Write the page of a trace to a new file."""
    check_not_exists(path)
    with disk_errors("write", path):
        path.write_text(trace_page(trace, {"title": path.stem, **(info or {})}, answers), encoding="utf-8")


def record(trace: Trace, info: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """A trace as JSON types: queries, keys, log-sum-exp, mask and bias of each attention."""
    size = sum(call.query[0].numel() + call.key[0].numel() for layer in trace.values() for call in layer.calls)
    dtype = torch.float32 if size <= FULL_PRECISION else torch.float16
    description = {
        "id": "recording",
        "title": "trace",
        "model": "",
        "live": False,
        "dtype": dtype_name(trace) if dtype == torch.float32 else "float16",
        "rowTokens": row_tokens(trace),
        "columnTokens": column_tokens(trace),
        "predictedTokens": None,
        "attentions": describe_attentions(trace),
        "capabilities": list(answers),
        "task": "other",
        "image": None,
    }
    attentions = [{"path": path, **_record_layer(path, layer, dtype)} for path, layer in trace.items()]
    kept = {name: value for name, value in info.items() if name in description and name not in ("id", "live", "dtype")}
    known = {**description, **kept, "capabilities": list(answers)}
    return {"version": VERSION, "info": known, "attentions": attentions, **answers}


def _record_layer(path: str, layer: AttentionTrace, dtype: torch.dtype) -> dict[str, Any]:
    if len(layer.calls) != 1 or layer.calls[0].args.score is not None:
        return _record_weights(path, layer)
    call = layer.calls[0]
    args = call.args
    softcap = {} if args.softcap is None else {"softcap": args.softcap}
    bias = {} if args.bias is None else {"bias": _array(_bias(path, call), torch.float32)}
    return {
        "query": _array(args.query[0], dtype),
        "key": _array(args.key[0], dtype),
        "lse": _array(call.lse()[0], torch.float32),
        "value_norm": _array(call.value_norm[0], torch.float32),
        "scale": args.scale,
        "mask": _mask(path, call, args.mask),
        **softcap,
        **bias,
    }


def _record_weights(path: str, layer: AttentionTrace) -> dict[str, Any]:
    """The map of several calls, or of scores that are no dot products: its logarithm, times unit vectors as keys."""
    _, H, T, S = layer.shape
    _check_size(path, H * T * S)
    weights = layer.weights()[0].float()
    norms = layer.calls[-1].value_norm[0].float()
    norms = torch.nn.functional.pad(norms, (S - norms.shape[1], 0), value=1.0)
    return {
        "query": _array(weights.clamp(min=UNIT).log(), torch.float32),
        "key": _array(torch.eye(S).expand(1, S, S), torch.float32),
        "lse": _array(torch.zeros(H, T), torch.float32),
        "value_norm": _array(norms[:1], torch.float32),
        "scale": 1.0,
        "mask": {"causal": False, "dense": _array(weights > 0, torch.uint8)},
    }


def _mask(path: str, call: AttentionCall, mask: Mask | None) -> dict[str, Any]:
    """Which keys a query sees: all, the earlier ones, those of a window, or those of a matrix."""
    if mask is None:
        return {"causal": False}
    if isinstance(mask, WindowMask) and mask.right == 0:
        return {"causal": True, **({} if mask.left is None else {"window": mask.left + 1})}
    B, H, T, S = call.args.sizes
    _check_size(path, H * T * S)
    visible = mask.to_dense((B, H, T, S), call.query.device).expand(B, -1, T, S)[0]
    return {"causal": False, "dense": _array(visible, torch.uint8)}


def _bias(path: str, call: AttentionCall) -> Tensor:
    """What the bias adds to each score: the scores less the scaled and capped products."""
    args = call.args
    _, H, T, S = args.sizes
    _check_size(path, H * T * S)
    rows, columns = (torch.arange(count, device=args.query.device) for count in (T, S))
    with torch.no_grad():
        scores = scores_at(args, rows, columns)[0]
        products = args.query[0].float() @ args.key[0].float().repeat_interleave(args.group_size, 0).mT * args.scale
    capped = products if args.softcap is None else args.softcap * (products / args.softcap).tanh()
    return (scores.float() - capped).masked_fill(scores == -torch.inf, 0)


def _check_size(path: str, count: int) -> None:
    if count > MAX_DENSE:
        raise ConfigError(
            f"the map of {path} has {count:,} entries that a page would hold one by one, and {MAX_DENSE:,} are the "
            "maximum. Save the trace as .safetensors, and open it with softlook studio"
        )


def _array(values: Tensor, dtype: torch.dtype) -> dict[str, Any]:
    """An array as base64."""
    content = values.detach().to(dtype).cpu().contiguous().numpy().tobytes()
    name = {torch.float32: "f32", torch.float16: "f16", torch.uint8: "u8"}[dtype]
    return {"dtype": name, "shape": list(values.shape), "data": base64.b64encode(content).decode("ascii")}


@cache
def _bundle() -> tuple[str, str]:
    """Style and script of the studio's page, such that no tag in them ends early."""
    folder = files("softlook") / "studio" / "static"
    style, script = ((folder / f"studio.{suffix}").read_text(encoding="utf-8") for suffix in ("css", "js"))
    for name in ("/script", "script"):
        script = script.replace(f"<{name}", f"\\x3c{name}")
    return style.replace("</", "<\\/"), script


def _digest(text: str) -> str:
    """A source of the content security policy: the digest of an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"

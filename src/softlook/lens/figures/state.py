"""Figures of the views of the studio that need only a trace, from the address of its page."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import torch
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.lens.figures.attention_map import attention_figure
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.maps import alignment_figure, head_map_figure
from softlook.lens.rollout import attention_rollout
from softlook.lens.trace import Trace
from softlook.lens.trace_description import attention_tokens, describe_attentions

MAX_TOKENS = 256
"""Rows and columns of a figure; of longer maps, the first ones."""
RESIDUAL = 0.5


def from_url(url: str, trace: Trace) -> Figure:
    """What the studio shows at an address, drawn from a trace: one head, all heads, an alignment or a rollout.

    The part of the address after # names the view and what is chosen in it. Views that need the model, and chapters,
    are drawn as the head that they show; `softlook.studio.view_figure` draws these views.

    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with torch.no_grad(), trace(model, tokens=["a", "b", "c"]) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> from_url("http://127.0.0.1:8000/#/view/head?attention=blocks.1.attn&head=2", recorded)
    Figure('blocks.1.attn, head 2', 760 x ...)
    >>> from_url("http://127.0.0.1:8000/#/view/heads", recorded)
    Figure('Attention of every head', 760 x ...)
    """
    view, chosen = parse_state(url)
    if view == "/view/heads":
        return _heads(trace, chosen)
    if view == "/view/rollout":
        return _rollout(trace, chosen)
    path = chosen_path(trace, chosen, cross_only=view == "/view/alignment")
    return _head(trace, path, chosen, is_alignment=view == "/view/alignment")


def parse_state(url: str) -> tuple[str, dict[str, str]]:
    """The view that an address shows, and what is chosen in it.

    >>> parse_state("http://127.0.0.1:8000/#/view/head?head=2")
    ('/view/head', {'head': '2'})
    """
    view, _, query = url.partition("#")[2].partition("?")
    return view, dict(parse_qsl(query))


def _head(trace: Trace, path: str, chosen: Mapping[str, str], *, is_alignment: bool) -> Figure:
    head = chosen.get("head", "mean" if is_alignment else "0")
    weights, queries, keys = _weights(trace, path)
    if head == "mean":
        one = weights.mean(0)
    elif head.isdecimal() and int(head) < len(weights):
        one = weights[int(head)]
    else:
        raise ConfigError(f"{path} has the heads 0 to {len(weights) - 1} and their mean, got {head!r:.40}")
    title = f"{path}, mean over heads" if head == "mean" else f"{path}, head {head}"
    if is_alignment:
        return alignment_figure(one, source=keys, target=queries, title=title)
    entropy = -torch.xlogy(one, one).sum(-1)
    return attention_figure(one, queries=queries, keys=keys, title=title, lanes={"entropy": entropy})


def _heads(trace: Trace, chosen: Mapping[str, str]) -> Figure:
    """All heads of the layers whose maps have the same tokens as the chosen one."""
    path = chosen_path(trace, chosen)
    shape = trace[path].shape[2:]
    _, queries, keys = _weights(trace, path)
    maps = {other: _weights(trace, other)[0] for other, layer in trace.items() if layer.shape[2:] == shape}
    return head_map_figure(maps, queries=queries, keys=keys)


def _rollout(trace: Trace, chosen: Mapping[str, str]) -> Figure:
    stacks: dict[str, list[str]] = {}
    for one in describe_attentions(trace):
        if one["kind"] != "cross" and one["rows"] == one["columns"]:
            stacks.setdefault(one["stack"], []).append(one["path"])
    paths = stacks.get(chosen.get("stack", ""), next(iter(stacks.values()), []))
    if not paths:
        raise ConfigError("a rollout needs self-attention, and the trace has none")
    flow = attention_rollout(trace, layers=paths, residual=RESIDUAL)[0, :MAX_TOKENS, :MAX_TOKENS]
    _, queries, keys = _weights(trace, paths[0])
    caption = f"Product over {len(paths)} layers of {RESIDUAL:g} × identity + {1 - RESIDUAL:g} × mean over heads."
    return attention_figure(flow.cpu(), queries=queries, keys=keys, title="Attention rollout", caption=caption)


def chosen_path(trace: Trace, chosen: Mapping[str, str], *, cross_only: bool = False) -> str:
    """The chosen attention, or the first; of an alignment, the last cross-attention."""
    known = describe_attentions(trace)
    cross = [one["path"] for one in known if one["kind"] == "cross"]
    if cross_only and not cross:
        raise ConfigError("an alignment needs cross-attention, and the trace has none")
    name = chosen.get("attention", cross[-1] if cross_only else "")
    paths = [one["path"] for one in known]
    if name and name not in paths:
        raise ConfigError(f"no attention {name!r:.80}: expected one of {', '.join(paths)}")
    return name or paths[0]


def _weights(trace: Trace, path: str) -> tuple[Tensor, list[str], list[str]]:
    """The first part of the maps of a layer, and its tokens."""
    part: dict[str, Any] = {"rows": slice(MAX_TOKENS), "columns": slice(MAX_TOKENS)}
    weights = trace[path].weights(**part)[0].float().cpu()
    queries, keys = attention_tokens(trace, path)
    return weights, queries[:MAX_TOKENS], keys[:MAX_TOKENS]

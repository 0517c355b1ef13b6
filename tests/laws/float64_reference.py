"""Attention implemented from its definition, in float64, for tests: imports nothing from softlook.

A problem is plain data (`Problem`). Masks and position biases are evaluated entry by entry from their published
definitions; gradients come from torch's autograd through the plain formula.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Spec = tuple[Any, ...]
"""The name of a mask, bias or score, and its arguments; parameters are keys of the leaves."""
Leaves = dict[str, Tensor]


@dataclass
class Problem:
    """One call of attention as plain data."""

    sizes: tuple[int, int, int, int]
    """B, H, T, S"""
    kv_heads: int
    dtype: torch.dtype
    numbers: Leaves
    """float64 values that every dtype represents exactly: query, key, value, and parameters of score, bias and sink."""
    layouts: dict[str, str]
    """The memory layout of each leaf."""
    mask: Spec | None = None
    bias: Spec | None = None
    score: Spec | None = None
    plain: dict[str, float] = field(default_factory=dict)
    """scale, softcap and sink, if they are numbers."""


@dataclass(frozen=True)
class Entry:
    """One entry of the attention map."""

    b: int
    h: int
    i: int
    j: int
    position: int
    """Position of the query among the keys: the last query is aligned with the last key."""
    keys: int


def to_dense(mask: Spec, sizes: tuple[int, int, int, int]) -> Tensor:
    """The mask as booleans (B, H, T, S), evaluated entry by entry."""
    B, H, T, S = sizes
    entries = (Entry(b, h, i, j, i + S - T, S) for b in range(B) for h in range(H) for i in range(T) for j in range(S))
    return torch.tensor([_is_visible(mask, entry) for entry in entries], dtype=torch.bool).view(B, H, T, S)


def _is_visible(mask: Spec, entry: Entry) -> bool:
    name, *given = mask
    if name in ("and", "or", "not"):
        parts = [_is_visible(part, entry) for part in given]
        return all(parts) if name == "and" else any(parts) if name == "or" else not parts[0]
    return MASKS[name](entry, *given)


def _window(entry: Entry, left: int | None, right: int | None) -> bool:
    position = entry.position
    return (left is None or entry.j >= position - left) and (right is None or entry.j <= position + right)


def _documents(entry: Entry, keys: list[list[int]], queries: list[list[int]] | None) -> bool:
    row = keys[entry.b % len(keys)]
    own = row[entry.position] if queries is None else queries[entry.b % len(queries)][entry.i]
    return own == row[entry.j]


def _graph(entry: Entry, edges: frozenset[tuple[int, int]], loops: bool) -> bool:
    i, j = entry.i, entry.j
    return (i, j) in edges or (loops and i == j and any(i in edge for edge in edges))


def _dense(entry: Entry, visible: Tensor) -> bool:
    indices = zip((entry.b, entry.h, entry.i, entry.j), visible.shape, strict=True)
    return bool(visible[tuple(index if size > 1 else 0 for index, size in indices)])


MASKS: dict[str, Callable[..., bool]] = {
    "window": _window,
    "prefix": lambda entry, length: entry.j < (length if isinstance(length, int) else length[entry.b]),
    "padding": lambda entry, lengths: entry.j < lengths[entry.b],
    "left padding": lambda entry, lengths: entry.j >= entry.keys - lengths[entry.b],
    "documents": _documents,
    "graph": _graph,
    "dense": _dense,
}


def solve(problem: Problem, leaves: Leaves) -> tuple[Tensor, Tensor, Tensor]:
    """Output (B, H, T, E), weights (B, H, T, S) and log-sum-exp (B, H, T)."""
    B, H, T, S = problem.sizes
    query, key, value = (leaves[name] for name in ("query", "key", "value"))
    group = H // problem.kv_heads
    key, value = ((tensor[:, [h // group for h in range(H)]]) for tensor in (key, value))
    raw, scale = _scores(problem, query, key, leaves)
    scores = raw * scale
    if "softcap" in problem.plain:
        scores = problem.plain["softcap"] * torch.tanh(scores / problem.plain["softcap"])
    visible = torch.ones(B, H, T, S, dtype=torch.bool)
    biases = () if problem.bias is None else problem.bias[1:] if problem.bias[0] == "sum" else (problem.bias,)
    relative_values = []
    for bias in biases:
        added, hidden, relative = _bias(bias, query, key, scale, leaves)
        scores, visible = scores + added, visible & ~hidden
        relative_values += [] if relative is None else [relative]
    if problem.mask is not None:
        visible = visible & to_dense(problem.mask, problem.sizes)
    weights, lse = _softmax(scores, visible, _sink(problem, leaves))
    added_values = torch.zeros(B, H, T, value.shape[3], dtype=torch.float64)
    for relative in relative_values:
        added_values = added_values + torch.einsum("bhts,tse->bhte", weights, relative)
    return torch.einsum("bhts,bhse->bhte", weights, value) + added_values, weights, lse


def _sink(problem: Problem, leaves: Leaves) -> Tensor | None:
    if "sink" in leaves:
        return leaves["sink"]
    return torch.full((problem.sizes[1],), problem.plain["sink"]).double() if "sink" in problem.plain else None


def _softmax(scores: Tensor, visible: Tensor, sink: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weights over the keys and the log-sum-exp; zeros and -inf for fully masked rows."""
    B, H, T, S = scores.shape
    largest = scores.detach().masked_fill(~visible, -1e300)
    top = largest.amax(-1, keepdim=True) if S else torch.full((B, H, T, 1), -1e300, dtype=torch.float64)
    if sink is not None:
        top = torch.maximum(top, sink.detach()[:, None, None])
    top = top.masked_fill(top == -1e300, 0)
    exps = (scores - top).masked_fill(~visible, -1e300).exp()  # exp(-1e300) is 0
    total = exps.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink[:, None, None] - top).exp()
    empty = total == 0
    weights = exps / total.masked_fill(empty, 1)
    lse = (total.masked_fill(empty, 1).log() + top).masked_fill(empty, -math.inf)
    return weights, lse[..., 0]


def _scores(problem: Problem, query: Tensor, key: Tensor, leaves: Leaves) -> tuple[Tensor, float]:
    """Unscaled scores, and the scale."""
    spec: Spec = problem.score or ("scaled_dot", None)
    name, *given = spec
    products = torch.einsum("bhtd,bhsd->bhts", query, key)
    scale = 1.0
    match name:
        case "dot":
            raw = products
        case "scaled_dot":
            raw, scale = products, query.shape[3] ** -0.5 if given[0] is None else 1 / given[0]
        case "cosine":
            norms = query.norm(dim=-1).clamp(min=1e-12)[..., None] * key.norm(dim=-1).clamp(min=1e-12)[:, :, None]
            raw, scale = products / norms, 1 / given[0]
        case "squared_distance":
            raw, scale = products - key.square().sum(-1)[:, :, None] / 2, 1 / given[0]
        case "bilinear":
            weight = leaves[given[0]].expand(query.shape[1], -1, -1)
            raw, scale = torch.einsum("bhtd,hde,bhse->bhts", query, weight, key), 1 / given[1]
        case "additive":
            to_query, to_key, vector = (leaves[part] for part in given)
            hidden = (query @ to_query)[:, :, :, None] + (key @ to_key)[:, :, None]
            raw = hidden.tanh() @ vector
        case "minus L1":
            raw = -(query[:, :, :, None] - key[:, :, None]).abs().sum(-1)
        case _:
            raise AssertionError(name)
    return raw, problem.plain.get("scale", scale)


def _bias(bias: Spec, query: Tensor, key: Tensor, scale: float, leaves: Leaves) -> tuple[Tensor, Tensor, Tensor | None]:
    """Addends of the scores, the entries that it masks, and the vectors added to the values (T, S, E)."""
    (name, *given), (B, H, T, _), S = bias, query.shape, key.shape[2]
    behind = torch.tensor([[i + S - T - j for j in range(S)] for i in range(T)], dtype=torch.long).view(T, S)
    hidden = torch.zeros(B, H, T, S, dtype=torch.bool)
    match name:
        case "dense":
            tensor = leaves[given[0]].view((1,) * (4 - leaves[given[0]].ndim) + leaves[given[0]].shape)
            if given[1] is not None:
                hidden = hidden | given[1]
            return tensor.expand(B, H, T, S), hidden, None
        case "alibi":
            slopes = _slopes(H) if given[0] is None else leaves[given[0]]
            return -slopes[:, None, None] * behind.abs(), hidden, None
        case "t5":
            table, bidirectional, max_distance = leaves[given[0]], given[1], given[2]
            indices = [_bucket(d, len(table), bidirectional, max_distance) for d in behind.flatten().tolist()]
            return table[indices].T.reshape(H, T, S), hidden, None
        case "shaw":
            keys, clip = leaves[given[0]], len(leaves[given[0]]) // 2
            offset = (-behind).clamp(-clip, clip) + clip  # row 0 is for keys `clip` or more positions before the query
            added = torch.einsum("bhtd,tsd->bhts", query, keys[offset]) * scale
            return added, hidden, None if given[1] is None else leaves[given[1]][offset]
        case "transformer-xl":
            relative, content, position = (leaves[part] for part in given)
            vectors = relative[:, behind.clamp(min=0)]
            added = torch.einsum("bhtd,htsd->bhts", query + position[:, None], vectors)
            added = added + torch.einsum("hd,bhsd->bhs", content, key)[:, :, None]
            return added * scale, hidden | (behind < 0), None
    raise AssertionError(name)


def _slopes(heads: int) -> Tensor:
    """Press et al. (2022): a geometric series for a power of two; otherwise every other slope of the next power."""
    power = 2 ** math.floor(math.log2(heads))
    series = lambda count: [2.0 ** (-8.0 * n / count) for n in range(1, count + 1)]  # noqa: E731
    return torch.tensor(series(power) + series(2 * power)[0::2][: heads - power], dtype=torch.float64)


def _bucket(behind: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """Raffel et al. (2020): half of the buckets for exact distances, half for logarithmic ones."""
    first = 0
    if bidirectional:
        buckets //= 2
        first, distance = (buckets if behind < 0 else 0), abs(behind)
    else:
        distance = max(behind, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    logarithmic = exact + int(math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact))
    return first + min(logarithmic, buckets - 1)

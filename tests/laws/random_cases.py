"""Random problems: masks x biases x scores x dtypes x layouts x sizes, and the arguments of `attention` for them."""

import random
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook import masks, positions, scores
from softlook.ops.bias import as_bias
from tests.laws.float64_reference import Leaves, Problem, Spec

DTYPES = (torch.float64, torch.float64, torch.float32, torch.float32, torch.bfloat16, torch.float16)
LAYOUTS = ("contiguous", "contiguous", "heads inside", "strided", "offset")


class ProblemSampler:
    """Draws one problem from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.torch = torch.Generator().manual_seed(seed)
        self.numbers: Leaves = {}

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def leaf(self, name: str, *shape: int, over: float = 1.0) -> str:
        """Odd multiples of 1/16: exact in every dtype, and no vector is 0, where the cosine is not differentiable."""
        drawn = torch.randn(shape, generator=self.torch, dtype=torch.float64).clamp(-3, 3)
        self.numbers[name] = ((drawn / over * 8).floor() + 0.5) / 8
        return name

    def integers(self, low: int, high: int, count: int) -> list[int]:
        return [self.random.randint(low, high) for _ in range(count)]

    def coin(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.torch) < self.random.choice([0.3, 0.7, 0.95])

    def length(self) -> int:
        kind = self.random.random()
        return 0 if kind < 0.04 else self.random.randint(33, 45) if kind > 0.95 else self.random.randint(1, 9)

    def problem(self) -> Problem:
        """One call of attention."""
        B, G, R = self.random.randint(1, 2), self.random.randint(1, 2), self.random.randint(1, 3)
        T, S = self.length(), self.length()
        T = S if self.chance(0.4) else T
        D, E, H = self.random.choice([1, 2, 4, 5, 8]), self.random.choice([1, 3, 4, 8]), G * R
        for name, shape in (("query", (B, H, T, D)), ("key", (B, G, S, D)), ("value", (B, G, S, E))):
            self.leaf(name, *shape)
        score = self.score(H, D) if self.chance(0.4) else None
        problem = Problem((B, H, T, S), G, self.random.choice(DTYPES), self.numbers, {}, score=score)
        if self.chance(0.7):
            problem.mask = self.mask(problem.sizes, depth=self.random.choice([0, 0, 1, 2]))
        if self.chance(0.5):
            one = self.bias("one", problem, D, E)
            problem.bias = ("sum", one, self.bias("two", problem, D, E)) if self.chance(0.2) else one
        if self.chance(0.2):
            problem.plain["scale"] = self.random.choice([0.25, 1.0, 2.0, -0.5, 0.0])
        if self.chance(0.2):
            problem.plain["softcap"] = self.random.choice([0.5, 3.0, 30.0])
        if self.chance(0.25):
            if self.chance(0.5):
                self.leaf("sink", H)
            else:
                problem.plain["sink"] = self.random.choice([0.0, -1.5, 4.0])
        problem.layouts = {name: self.random.choice(LAYOUTS) for name in self.numbers}
        return problem

    def mask(self, sizes: tuple[int, int, int, int], depth: int) -> Spec:
        """A mask of any kind, or a combination of several."""
        if depth:
            how = self.random.choice(["and", "or", "not"])
            return (how, *(self.mask(sizes, depth - 1) for _ in range(1 if how == "not" else 2)))
        (B, H, T, S), limit = sizes, lambda: self.random.choice([None, self.random.randint(0, sizes[3])])
        makers: dict[str, Any] = {
            "causal": lambda: ("window", None, 0),
            "window": lambda: ("window", limit(), limit()),
            "prefix": lambda: ("prefix", self.random.randint(0, S)),
            "prefixes": lambda: ("prefix", self.integers(0, S, B)),
            "padding": lambda: ("padding", self.integers(0, S, B)),
            "left padding": lambda: ("left padding", self.integers(0, S, B)),
            "documents for both": lambda: ("documents", self.rows(B, S), self.rows(B, T)),
            "dense": lambda: ("dense", self.coin(*(self.random.choice([1, n]) for n in (B, H, T)), S)),
        }
        if T <= S:
            makers["documents"] = lambda: ("documents", self.rows(self.random.choice([1, B]), S), None)
        if T and S:
            edges = lambda: zip(self.integers(0, T - 1, 2 * S), self.integers(0, S - 1, 2 * S), strict=True)  # noqa: E731
            makers["graph"] = lambda: ("graph", frozenset(edges()), T == S and self.chance(0.5))
        return self.random.choice(list(makers.values()))()

    def rows(self, count: int, length: int) -> list[list[int]]:
        """Document ids, sorted or in any order."""
        rows = [self.integers(0, 2, length) for _ in range(count)]
        return [sorted(row) for row in rows] if self.chance(0.5) else rows

    def score(self, H: int, D: int) -> Spec:
        A = self.random.randint(1, 3)
        own = lambda *shape: self.random.choice([shape, (H, *shape)])  # noqa: E731
        makers: list[Any] = [
            lambda: ("dot",),
            lambda: ("scaled_dot", 2.0),
            lambda: ("cosine", 0.5),
            lambda: ("squared_distance", 4.0),
            lambda: ("bilinear", self.leaf("weight", *own(D, D), over=4), 1.5),
            lambda: (
                "additive",
                self.leaf("to_query", *own(D, A), over=2),
                self.leaf("to_key", *own(D, A), over=2),
                self.leaf("vector", A),
            ),
            lambda: ("minus L1",),
        ]
        return self.random.choice(makers)()

    def bias(self, name: str, problem: Problem, D: int, E: int) -> Spec:
        """A bias of any kind. Content-dependent ones need a score that does not transform the query."""
        B, H, T, S = problem.sizes
        shape = (*(self.random.choice([1, n]) for n in (B, H, T)), S)
        makers: list[Any] = [
            lambda: ("dense", self.leaf(name, *shape), None),
            lambda: ("dense", self.leaf(name, *shape), ~self.coin(*shape)),
            lambda: ("dense", self.leaf(name, T, S), None),
            lambda: ("alibi", None),
            lambda: ("alibi", self.leaf(name, H)),
            lambda: ("t5", self.leaf(name, 8, H), True, 7),
            lambda: ("t5", self.leaf(name, 6, H), False, 11),
        ]
        if problem.score is None or problem.score[0] in ("dot", "scaled_dot"):
            vectors = lambda end, *shape: self.leaf(name + end, *shape)  # noqa: E731
            makers += [
                lambda: ("shaw", vectors("keys", 5, D), None),
                lambda: ("shaw", vectors("keys", 3, D), vectors("values", 3, E)),
                lambda: (
                    "transformer-xl",
                    vectors("relative", H, max(S, 1), D),
                    vectors("content", H, D),
                    vectors("position", H, D),
                ),
            ]
        return self.random.choice(makers)()


def with_layout(tensor: Tensor, layout: str) -> Tensor:
    """The same values in another memory layout."""
    if layout == "heads inside" and tensor.ndim == 4:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "strided":
        return torch.stack([tensor, tensor + 1], -1)[..., 0]
    if layout == "offset":
        return pad(tensor, (1, 2))[..., 1:-2]
    return tensor


def arguments(problem: Problem, leaves: Leaves) -> dict[str, Any]:
    """The arguments of `attention` for the problem."""
    tensors = {name: with_layout(leaf, problem.layouts[name]) for name, leaf in leaves.items()}
    named: dict[str, Any] = {name: tensors[name] for name in ("query", "key", "value", "sink") if name in tensors}
    named |= problem.plain
    if problem.mask is not None:
        named["mask"] = _mask(problem.mask, problem.sizes[3])
    if problem.score is not None:
        named["score"] = _score(problem.score, tensors)
    if problem.bias is not None:
        named["bias"] = _bias(problem.bias, problem.sizes[1], tensors)
    return named


def _mask(mask: Spec, keys: int) -> masks.Mask:
    name, *given = mask
    match name:
        case "and":
            return _mask(given[0], keys) & _mask(given[1], keys)
        case "or":
            return _mask(given[0], keys) | _mask(given[1], keys)
        case "not":
            return ~_mask(given[0], keys)
        case "window":
            return masks.causal() if given == [None, 0] else masks.window(*given)
        case "prefix":
            return masks.prefix(given[0])
        case "padding":
            return masks.padding(given[0])
        case "left padding":
            return masks.padding(given[0], side="left", length=keys)
        case "documents":
            rows = [None if ids is None else torch.tensor(ids, dtype=torch.long) for ids in given]
            assert rows[0] is not None
            return masks.documents(rows[0], rows[1])
        case "graph":
            return masks.graph(torch.tensor(sorted(given[0]), dtype=torch.long).T, loops=given[1])
        case _:
            return masks.dense(given[0])


def _score(score: Spec, leaves: Leaves) -> Any:
    name, *given = score
    if name == "minus L1":
        return lambda query, key: -torch.cdist(query.double(), key.double(), p=1.0)
    given = [leaves[part] if isinstance(part, str) else part for part in given]
    return getattr(scores, name)(*given)


def _bias(bias: Spec, heads: int, leaves: Leaves) -> Any:
    name, *given = bias
    if name == "sum":
        return as_bias(_bias(given[0], heads, leaves)) + _bias(given[1], heads, leaves)
    parts: list[Any] = [leaves[part] if isinstance(part, str) else part for part in given]
    match name:
        case "dense":
            return parts[0] if parts[1] is None else parts[0].masked_fill(parts[1], -torch.inf)
        case "alibi":
            return positions.alibi(heads if parts[0] is None else parts[0])
        case "t5":
            return positions.t5(parts[0], bidirectional=parts[1], max_distance=parts[2])
        case "shaw":
            return positions.shaw(*parts)
        case _:
            return positions.transformer_xl(*parts)

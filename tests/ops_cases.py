"""How the tests ask: where to run, what to draw, and how two answers are compared.

Hypothesis draws the structure of a case (sizes, kinds of mask, which options); the numbers inside come from a
generator whose seed is drawn too, so that a failing example is small and comes back the same.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from hypothesis import strategies as st
from torch import Tensor

from softlook import attention, attention_weights, explain, masks, positions, scores
from softlook.base.errors import BackendError
from softlook.base.shapes import Tile
from softlook.ops import statistics
from softlook.ops.arguments import AttentionArgs, prepare_args
from softlook.ops.backends import tiled
from softlook.ops.bias import as_bias
from softlook.ops.masks import Mask
from softlook.ops.masks.base import as_mask
from softlook.ops.scores import SquaredDistance

DEVICE = torch.device(os.environ.get("SOFTLOOK_DEVICE", "cpu"))
EAGER = ("reference", "sdpa", "tiled")
"""The paths that need no compiler."""
Draw = Callable[..., Any]


@dataclass(frozen=True)
class Made:
    """Numbers by the handful, the same for the same seed on every device."""

    generator: torch.Generator
    dtype: torch.dtype

    def normal(self, *shape: int) -> Tensor:
        """Numbers around 0 that the coarsest type holds exactly, so that a type changes the sums and not the inputs."""
        numbers = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return numbers.to(torch.bfloat16).to(DEVICE, self.dtype)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator).to(DEVICE)

    def coin(self, *shape: int) -> Tensor:
        return self.whole(0, 2, *shape).bool()

    def order(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator).to(DEVICE)


@dataclass(frozen=True, repr=False, eq=False)
class Case:
    """One call of the operation: tensors, options, and more numbers from the same seed."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict[str, Any]
    made: Made
    backend: Any = "reference"

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        B, H, T, _ = self.query.shape
        return B, H, T, self.key.shape[2]

    def attend(self, **changes: Any) -> Tensor:
        return attention(self.query, self.key, self.value, **({"backend": self.backend} | self.options | changes))

    def weights(self, **changes: Any) -> Tensor:
        return attention_weights(self.query, self.key, **(self.options | changes))

    def question(self, **changes: Any) -> AttentionArgs:
        return prepare_args(self.query, self.key, **(self.options | changes))

    def but(self, **changes: Any) -> "Case":
        """The same case with other tensors or other options."""
        tensors = {name: changes.pop(name) for name in ("query", "key", "value") if name in changes}
        return replace(self, **tensors, options=self.options | changes)

    def seen(self) -> Tensor:
        """Who may look where, mask and -inf biases together. (B, H, T, S)"""
        options = self.written_out().options
        seen = torch.ones(self.sizes, dtype=torch.bool, device=DEVICE)
        if options.get("mask") is not None:
            seen = seen & options["mask"]
        return seen if options.get("bias") is None else seen & ~options["bias"].isneginf()

    def written_out(self) -> "Case":
        """Mask and bias as tensors with all four axes, (B, H, T, S)."""
        mask, bias = self.options.get("mask"), self.options.get("bias")
        dense = {}
        if mask is not None:
            dense["mask"] = as_mask(mask).to_dense(self.sizes, DEVICE).expand(self.sizes)
        if bias is not None:
            question, tile = self.question(), Tile.whole(self.sizes, self.query.device)
            numbers = as_bias(bias).tile(question.query, question.key, question.scale, tile)
            dense["bias"] = numbers.expand(self.sizes).to(self.query.dtype)
        return self.but(**dense)

    def can(self, backend: Any) -> bool:
        """Can this path answer the question?"""
        try:
            explain(self.query, self.key, self.value, **self.options, backend=backend)
        except BackendError:
            return False
        return True

    def __repr__(self) -> str:
        tensors = {"query": self.query, "key": self.key, "value": self.value}
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        return f"Case({shapes}, {self.query.dtype}, {self.backend}, {self.options})"


# --- what may be drawn ------------------------------------------------------------------------------------------------


@st.composite
def cases(
    draw: Draw,
    *,
    dtype: torch.dtype = torch.float64,
    lengths: str = "any",
    without: tuple[str, ...] = (),
    kinds: str = "all",
) -> Case:
    """A call with any options but those in `without`, by any path that can answer it without a compiler.

    `lengths`: "any", "square" (T = S) or "cached" (T <= S). `kinds`: "all" masks and biases, "relative" ones, which go
    by the distance and so mean the same wherever the queries stand, or "every" kind, also biases that add to values.
    """
    made = Made(torch.Generator().manual_seed(draw(st.integers(0, 2**16))), dtype)
    B, G, R, D, E = (draw(st.integers(1, most)) for most in (2, 2, 2, 5, 4))
    S = draw(st.integers(1, 8))
    T = S if lengths == "square" else draw(st.integers(1, S if lengths == "cached" else 8))
    H = G * R
    options: dict[str, Any] = {}
    drawn = {
        "score": lambda: draw(some_scores(H, D, made)),
        "mask": lambda: draw(some_masks((B, H, T, S), made, kinds=kinds)),
        "bias": lambda: draw(
            some_biases((B, H, T, S), (D + 2 * isinstance(options.get("score"), SquaredDistance), E), made, kinds)
        ),
        "scale": lambda: draw(st.sampled_from([0.25, 1.0, 2.0, -0.5, 0.0])),
        "softcap": lambda: draw(st.sampled_from([0.5, 3.0, 30.0])),
        "sink": lambda: draw(st.sampled_from([0.0, -1.5, made.normal(H)])),
    }
    for name, make in drawn.items():
        if name not in without and draw(st.booleans()):
            with preserve_python_rng():
                options[name] = make()
    case = Case(made.normal(B, H, T, D), made.normal(B, G, S, D), made.normal(B, G, S, E), options, made)
    backend = draw(st.sampled_from(EAGER))
    with preserve_python_rng():
        return replace(case, backend=backend if backend != "sdpa" or case.can("sdpa") else "tiled")


@st.composite
def some_masks(draw: Draw, sizes: tuple[int, int, int, int], made: Made, *, kinds: str = "all", depth: int = 2) -> Mask:
    """A mask of any kind, or a combination of several."""
    how = draw(st.sampled_from(["plain", "plain", "&", "|", "~"])) if depth else "plain"
    if how == "plain":
        make = draw(st.sampled_from(list(plain_masks(sizes, made, kinds).values())))
        with preserve_python_rng():
            return make()
    one = draw(some_masks(sizes, made, kinds=kinds, depth=depth - 1))
    if how == "~":
        return ~one
    other = draw(some_masks(sizes, made, kinds=kinds, depth=depth - 1))
    return one & other if how == "&" else one | other


def plain_masks(sizes: tuple[int, int, int, int], made: Made, kinds: str = "all") -> dict[str, Callable[[], Mask]]:
    """One maker for each kind of mask that fits."""
    B, H, T, S = sizes
    limit = lambda: int(made.whole(0, S + 1))  # noqa: E731
    relative = {
        "causal": masks.causal,
        "window back": lambda: masks.window(limit()),
        "window both": lambda: masks.window(limit(), limit()),
        "window ahead": lambda: masks.window(None, limit()),
        "prefix": lambda: masks.prefix(limit()),
        "prefixes": lambda: masks.prefix(made.whole(0, S + 1, B)),
        "padding": lambda: masks.padding(made.whole(0, S + 1, B)),
        "left padding": lambda: masks.padding(made.whole(0, S + 1, B), side="left", length=S),
    }
    if T <= S:
        relative["documents"] = lambda: masks.documents(made.whole(0, 3, B, S))
        relative["one row of documents"] = lambda: masks.documents(made.whole(0, 3, S))
    if kinds == "relative":
        return relative
    edges = lambda: torch.stack([made.whole(0, T, 2 * S), made.whole(0, S, 2 * S)])  # noqa: E731
    return relative | {
        "documents for both": lambda: masks.documents(made.whole(0, 3, B, S), made.whole(0, 3, B, T)),
        "graph": lambda: masks.graph(edges()),
        "graph without edges": lambda: masks.graph(torch.zeros(2, 0, dtype=torch.long, device=DEVICE)),
        "dense": lambda: masks.dense(made.coin(T, S)),
        "dense per head": lambda: masks.dense(made.coin(B, H, T, S)),
        "dense per key": lambda: masks.dense(made.coin(B, 1, 1, S)),
    }


@st.composite
def some_biases(draw: Draw, sizes: tuple[int, int, int, int], widths: tuple[int, int], made: Made, kinds: str) -> Any:
    """A bias of any kind, or the sum of two."""
    (B, H, T, S), (D, E) = sizes, widths
    relative = {
        "alibi": lambda: positions.alibi(made.normal(H).abs()),
        "t5": lambda: positions.t5(made.normal(8, H), max_distance=6),
        "t5 one way": lambda: positions.t5(made.normal(4, H), bidirectional=False, max_distance=6),
        "shaw": lambda: positions.shaw(made.normal(5, D)),
        "transformer-xl": lambda: positions.transformer_xl(made.normal(H, S, D), made.normal(H, D), made.normal(H, D)),
    }
    others: dict[str, Callable[[], Any]] = {
        "dense": lambda: made.normal(T, S),
        "dense per head": lambda: made.normal(B, H, T, S),
        "dense per key": lambda: made.normal(1, H, 1, S),
        "dense that hides": lambda: made.normal(B, 1, T, S).masked_fill(made.coin(B, 1, T, S), -torch.inf),
    }
    if kinds == "every":
        others["shaw with values"] = lambda: positions.shaw(made.normal(5, D), made.normal(5, E))
    makers = list((relative if kinds == "relative" else relative | others).values())
    one = draw(st.sampled_from(makers))()
    return as_bias(one) + draw(st.sampled_from(makers))() if draw(st.integers(0, 3)) == 0 else one


@st.composite
def some_scores(draw: Draw, H: int, D: int, made: Made) -> Any:
    """Any kind of score."""
    small = lambda *shape: made.normal(*shape) / 4  # noqa: E731
    makers = {
        "dot": scores.dot,
        "scaled": lambda: scores.scaled_dot(temperature=2.0),
        "cosine": lambda: scores.cosine(temperature=0.5),
        "distance": lambda: scores.squared_distance(temperature=4.0),
        "bilinear": lambda: scores.bilinear(small(D, D)),
        "bilinear per head": lambda: scores.bilinear(small(H, D, D)),
        "additive": lambda: scores.additive(small(D, 3), small(D, 3), made.normal(3)),
        "additive per head": lambda: scores.additive(small(H, D, 3), small(H, D, 3), made.normal(3)),
        "by hand": lambda: lambda query, key: -torch.cdist(query.double(), key.double(), p=1.0),
    }
    return makers[draw(st.sampled_from(list(makers)))]()


@contextmanager
def preserve_python_rng() -> Iterator[None]:
    """Put back Python's random state: beartype looks at a random item of a sequence, and hypothesis minds."""
    state = random.getstate()
    yield
    random.setstate(state)


# --- how it is worked out and compared -------------------------------------------------------------------------------


@contextmanager
def small_tiles() -> Iterator[None]:
    """Every block-wise path walks in tiles of two rows, one set of heads and three keys, as with long inputs."""
    usual = AttentionArgs.tiles

    def tiles(self: AttentionArgs, *_: Any, **__: Any) -> Any:
        return usual(self, 4, 2)

    with (
        mock.patch.object(AttentionArgs, "tiles", tiles),
        mock.patch.multiple(tiled, TILE_COLUMNS=3, RECOMPUTE_ABOVE=0),
        mock.patch.object(statistics, "RECOMPUTE_ABOVE", 0),
    ):
        yield


def close(one: Tensor, other: Tensor, tolerance: float = 1e-10) -> None:
    """Equal but for rounding; NaN equals NaN."""
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)

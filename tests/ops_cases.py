"""Random cases of attention calls for property tests, and comparison of results.

Hypothesis draws the structure of a case (sizes, mask types, options); values come from a generator whose seed is drawn
too, so that a failing example is small and reproducible.
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
"""Backends that need no compiler."""
Draw = Callable[..., Any]


@dataclass(frozen=True)
class TensorRNG:
    """Random tensors, equal on every device for equal seeds."""

    generator: torch.Generator
    dtype: torch.dtype

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers that bfloat16 represents exactly, so that dtypes differ in sums only, not in inputs."""
        numbers = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return numbers.to(torch.bfloat16).to(DEVICE, self.dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator).to(DEVICE)

    def booleans(self, *shape: int) -> Tensor:
        return self.integers(0, 2, *shape).bool()

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator).to(DEVICE)


@dataclass(frozen=True, repr=False, eq=False)
class Case:
    """One call of attention: tensors, options, and a generator for further tensors."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict[str, Any]
    rng: TensorRNG
    backend: Any = "reference"

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        B, H, T, _ = self.query.shape
        return B, H, T, self.key.shape[2]

    def attend(self, **changes: Any) -> Tensor:
        return attention(self.query, self.key, self.value, **({"backend": self.backend} | self.options | changes))

    def weights(self, **changes: Any) -> Tensor:
        return attention_weights(self.query, self.key, **(self.options | changes))

    def args(self, **changes: Any) -> AttentionArgs:
        return prepare_args(self.query, self.key, **(self.options | changes))

    def replace(self, **changes: Any) -> "Case":
        """Return the case with other tensors or other options."""
        tensors = {name: changes.pop(name) for name in ("query", "key", "value") if name in changes}
        return replace(self, **tensors, options=self.options | changes)

    def visible(self) -> Tensor:
        """Return which keys each query attends to, by mask and -inf biases. (B, H, T, S)"""
        options = self.materialize().options
        visible = torch.ones(self.sizes, dtype=torch.bool, device=DEVICE)
        if options.get("mask") is not None:
            visible = visible & options["mask"]
        return visible if options.get("bias") is None else visible & ~options["bias"].isneginf()

    def materialize(self) -> "Case":
        """Return the case with mask and bias as dense tensors, (B, H, T, S)."""
        mask, bias = self.options.get("mask"), self.options.get("bias")
        dense = {}
        if mask is not None:
            dense["mask"] = as_mask(mask).to_dense(self.sizes, DEVICE).expand(self.sizes)
        if bias is not None:
            args, tile = self.args(), Tile.whole(self.sizes, self.query.device)
            values = as_bias(bias).tile(args.query, args.key, args.scale, tile)
            dense["bias"] = values.expand(self.sizes).to(self.query.dtype)
        return self.replace(**dense)

    def supports(self, backend: Any) -> bool:
        """Return whether a backend supports this call."""
        try:
            explain(self.query, self.key, self.value, **self.options, backend=backend)
        except BackendError:
            return False
        return True

    def __repr__(self) -> str:
        tensors = {"query": self.query, "key": self.key, "value": self.value}
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        return f"Case({shapes}, {self.query.dtype}, {self.backend}, {self.options})"


# --- strategies -------------------------------------------------------------------------------------------------------


@st.composite
def cases(
    draw: Draw,
    *,
    dtype: torch.dtype = torch.float64,
    lengths: str = "any",
    without: tuple[str, ...] = (),
    kinds: str = "all",
) -> Case:
    """A call with any options except those in `without`, and an eager backend that supports it.

    `lengths`: "any", "square" (T = S) or "cached" (T <= S). `kinds`: "all" masks and biases, "relative" ones, which
    depend on distances only, or "every" one, including biases with relative values.
    """
    rng = TensorRNG(torch.Generator().manual_seed(draw(st.integers(0, 2**16))), dtype)
    B, G, R, D, E = (draw(st.integers(1, high)) for high in (2, 2, 2, 5, 4))
    S = draw(st.integers(1, 8))
    T = S if lengths == "square" else draw(st.integers(1, S if lengths == "cached" else 8))
    H = G * R
    options: dict[str, Any] = {}
    drawn = {
        "score": lambda: draw(some_scores(H, D, rng)),
        "mask": lambda: draw(some_masks((B, H, T, S), rng, kinds=kinds)),
        "bias": lambda: draw(
            some_biases((B, H, T, S), (D + 2 * isinstance(options.get("score"), SquaredDistance), E), rng, kinds)
        ),
        "scale": lambda: draw(st.sampled_from([0.25, 1.0, 2.0, -0.5, 0.0])),
        "softcap": lambda: draw(st.sampled_from([0.5, 3.0, 30.0])),
        "sink": lambda: draw(st.sampled_from([0.0, -1.5, rng.normal(H)])),
    }
    for name, make in drawn.items():
        if name not in without and draw(st.booleans()):
            with preserve_python_rng():
                options[name] = make()
    case = Case(rng.normal(B, H, T, D), rng.normal(B, G, S, D), rng.normal(B, G, S, E), options, rng)
    backend = draw(st.sampled_from(EAGER))
    with preserve_python_rng():
        return replace(case, backend=backend if backend != "sdpa" or case.supports("sdpa") else "tiled")


@st.composite
def some_masks(
    draw: Draw, sizes: tuple[int, int, int, int], rng: TensorRNG, *, kinds: str = "all", depth: int = 2
) -> Mask:
    """A mask of any type, or a combination of several."""
    operator = draw(st.sampled_from(["plain", "plain", "&", "|", "~"])) if depth else "plain"
    if operator == "plain":
        make = draw(st.sampled_from(list(plain_masks(sizes, rng, kinds).values())))
        with preserve_python_rng():
            return make()
    one = draw(some_masks(sizes, rng, kinds=kinds, depth=depth - 1))
    if operator == "~":
        return ~one
    other = draw(some_masks(sizes, rng, kinds=kinds, depth=depth - 1))
    return one & other if operator == "&" else one | other


def plain_masks(sizes: tuple[int, int, int, int], rng: TensorRNG, kinds: str = "all") -> dict[str, Callable[[], Mask]]:
    """Factories of all mask types that fit the sizes."""
    B, H, T, S = sizes
    limit = lambda: int(rng.integers(0, S + 1))  # noqa: E731
    relative = {
        "causal": masks.causal,
        "window back": lambda: masks.window(limit()),
        "window both": lambda: masks.window(limit(), limit()),
        "window forward": lambda: masks.window(None, limit()),
        "prefix": lambda: masks.prefix(limit()),
        "prefixes": lambda: masks.prefix(rng.integers(0, S + 1, B)),
        "padding": lambda: masks.padding(rng.integers(0, S + 1, B)),
        "left padding": lambda: masks.padding(rng.integers(0, S + 1, B), side="left", length=S),
    }
    if T <= S:
        relative["documents"] = lambda: masks.documents(rng.integers(0, 3, B, S))
        relative["one row of documents"] = lambda: masks.documents(rng.integers(0, 3, S))
    if kinds == "relative":
        return relative
    edges = lambda: torch.stack([rng.integers(0, T, 2 * S), rng.integers(0, S, 2 * S)])  # noqa: E731
    return relative | {
        "documents for both": lambda: masks.documents(rng.integers(0, 3, B, S), rng.integers(0, 3, B, T)),
        "graph": lambda: masks.graph(edges()),
        "graph without edges": lambda: masks.graph(torch.zeros(2, 0, dtype=torch.long, device=DEVICE)),
        "dense": lambda: masks.dense(rng.booleans(T, S)),
        "dense per head": lambda: masks.dense(rng.booleans(B, H, T, S)),
        "dense per key": lambda: masks.dense(rng.booleans(B, 1, 1, S)),
    }


@st.composite
def some_biases(
    draw: Draw, sizes: tuple[int, int, int, int], widths: tuple[int, int], rng: TensorRNG, kinds: str
) -> Any:
    """A bias of any type, or the sum of two."""
    (B, H, T, S), (D, E) = sizes, widths
    relative = {
        "alibi": lambda: positions.alibi(rng.normal(H).abs()),
        "t5": lambda: positions.t5(rng.normal(8, H), max_distance=6),
        "t5 unidirectional": lambda: positions.t5(rng.normal(4, H), bidirectional=False, max_distance=6),
        "shaw": lambda: positions.shaw(rng.normal(5, D)),
        "transformer-xl": lambda: positions.transformer_xl(rng.normal(H, S, D), rng.normal(H, D), rng.normal(H, D)),
    }
    others: dict[str, Callable[[], Any]] = {
        "dense": lambda: rng.normal(T, S),
        "dense per head": lambda: rng.normal(B, H, T, S),
        "dense per key": lambda: rng.normal(1, H, 1, S),
        "dense with -inf": lambda: rng.normal(B, 1, T, S).masked_fill(rng.booleans(B, 1, T, S), -torch.inf),
    }
    if kinds == "every":
        others["shaw with values"] = lambda: positions.shaw(rng.normal(5, D), rng.normal(5, E))
    makers = list((relative if kinds == "relative" else relative | others).values())
    one = draw(st.sampled_from(makers))()
    return as_bias(one) + draw(st.sampled_from(makers))() if draw(st.integers(0, 3)) == 0 else one


@st.composite
def some_scores(draw: Draw, H: int, D: int, rng: TensorRNG) -> Any:
    """Any score function."""
    small = lambda *shape: rng.normal(*shape) / 4  # noqa: E731
    makers = {
        "dot": scores.dot,
        "scaled": lambda: scores.scaled_dot(temperature=2.0),
        "cosine": lambda: scores.cosine(temperature=0.5),
        "distance": lambda: scores.squared_distance(temperature=4.0),
        "bilinear": lambda: scores.bilinear(small(D, D)),
        "bilinear per head": lambda: scores.bilinear(small(H, D, D)),
        "additive": lambda: scores.additive(small(D, 3), small(D, 3), rng.normal(3)),
        "additive per head": lambda: scores.additive(small(H, D, 3), small(H, D, 3), rng.normal(3)),
        "custom": lambda: lambda query, key: -torch.cdist(query.double(), key.double(), p=1.0),
    }
    return makers[draw(st.sampled_from(list(makers)))]()


@contextmanager
def preserve_python_rng() -> Iterator[None]:
    """Restore Python's RNG state: beartype checks a random item of a sequence, which hypothesis would report."""
    state = random.getstate()
    yield
    random.setstate(state)


# --- execution and comparison -----------------------------------------------------------------------------------------


@contextmanager
def small_tiles() -> Iterator[None]:
    """Use tiles of two rows, one group of heads and three keys, so that small inputs have several tiles."""
    original = AttentionArgs.tiles

    def tiles(self: AttentionArgs, *_: Any, **__: Any) -> Any:
        return original(self, 4, 2)

    with (
        mock.patch.object(AttentionArgs, "tiles", tiles),
        mock.patch.multiple(tiled, TILE_COLUMNS=3, RECOMPUTE_ABOVE=0),
        mock.patch.object(statistics, "RECOMPUTE_ABOVE", 0),
    ):
        yield


def close(one: Tensor, other: Tensor, tolerance: float = 1e-10) -> None:
    """Assert equality up to rounding; NaN equals NaN."""
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)

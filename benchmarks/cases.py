"""Benchmark cases: sizes, mask, options and input tensors; independent of softlook."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

SOFTCAP = 5.0
BUCKETS, MAX_DISTANCE = 32, 128
"""Of T5's relative position bias."""


@dataclass(frozen=True)
class Case:
    """One benchmark case. `shape` is (B, H, T, S, D)."""

    name: str
    shape: tuple[int, int, int, int, int]
    mask: str = "full"
    """full, causal, padding, "causal and padding" or window"""
    dtype: torch.dtype = torch.float32
    backward: bool = False
    kv_heads: int = 0
    """0: as many as query heads."""
    window: int = 0
    """Visible keys, including the query's own."""
    extra: str = "plain"
    """plain, alibi, t5, softcap or sink"""
    dropout: float = 0.0
    device: str = "cpu"

    @property
    def groups(self) -> int:
        return self.kv_heads or self.shape[1]

    @property
    def group_size(self) -> int:
        return self.shape[1] // self.groups

    @property
    def scale(self) -> float:
        return self.shape[4] ** -0.5

    @property
    def dtype_name(self) -> str:
        """fp32, bf16 ..."""
        return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[self.dtype]

    @property
    def passes(self) -> str:
        return "fwd+bwd" if self.backward else "fwd"

    @property
    def sizes(self) -> str:
        B, H, T, S, D = self.shape
        heads = f"H{H}" if self.groups == H else f"H{H}/{self.groups}"
        length = f"N{T}" if T == S else f"T{T} S{S}"
        return f"B{B} {heads} {length} D{D}"

    @property
    def flops(self) -> float:
        """Floating-point operations: two matrix products, and five in the backward pass."""
        B, H, T, S, D = self.shape
        visible = {"causal": (S - (T - 1) / 2) / S, "window": min(self.window, S) / S}.get(self.mask, 1.0)
        return 4 * B * H * T * S * D * visible * (3.5 if self.backward else 1.0)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The tensors of a case."""

    query: Tensor
    key: Tensor
    value: Tensor
    grad: Tensor
    """The gradient of the output."""
    lengths: Tensor
    """(B,): real keys, for padding."""
    slopes: Tensor
    """(H,): for ALiBi."""
    table: Tensor
    """(buckets, H): for T5."""
    sink: Tensor
    """(H,)"""
    cache: dict[str, Tensor] = field(default_factory=dict)
    """Derived tensors, such as a materialized mask."""

    def leaves(self, case: Case) -> tuple[Tensor, ...]:
        """Return the tensors that require a gradient."""
        return (self.query, self.key, self.value) + ((self.table,) if case.extra == "t5" else ())


def make_inputs(case: Case, seed: int = 0) -> Inputs:
    """Return fresh random tensors."""
    B, H, T, S, D = case.shape
    device, generator = case.device, torch.Generator(case.device).manual_seed(seed)

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, device=device, dtype=torch.float32)

    def leaf(*sizes: int) -> Tensor:
        return random(*sizes).to(case.dtype).requires_grad_(case.backward)

    lengths = torch.randint(max(1, S // 2), S + 1, (B,), generator=generator, device=device)
    lengths[0] = S
    slopes = torch.tensor([2 ** (-8 * (h + 1) / H) for h in range(H)], device=device)
    return Inputs(
        query=leaf(B, H, T, D),
        key=leaf(B, case.groups, S, D),
        value=leaf(B, case.groups, S, D),
        grad=random(B, H, T, D).to(case.dtype),
        lengths=lengths,
        slopes=slopes,
        table=random(BUCKETS, H).requires_grad_(case.backward and case.extra == "t5"),
        sink=random(H),
    )


def visible_keys(case: Case, inputs: Inputs, rows: Tensor | None = None) -> Tensor | None:
    """Return the boolean mask of these queries, (B or 1, 1, t or 1, S); None: all keys are visible."""
    _, _, T, S, _ = case.shape
    device = inputs.query.device
    keys = torch.arange(S, device=device)
    if case.mask == "full" or (case.mask == "causal" and T == 1):
        return None
    real = (keys < inputs.lengths[:, None])[:, None, None, :]
    if case.mask == "padding":
        return real
    positions = (torch.arange(T, device=device) if rows is None else rows)[:, None] + S - T
    allowed = keys <= positions
    if case.mask == "window":
        allowed = allowed & (keys > positions - case.window)
    return allowed & real if case.mask == "causal and padding" else allowed[None, None]


def distance_bias(case: Case, inputs: Inputs, rows: Tensor | None = None) -> Tensor | None:
    """Return the ALiBi or T5 bias of these queries, (1, H, t, S)."""
    _, _, T, S, _ = case.shape
    if case.extra not in ("alibi", "t5"):
        return None
    device = inputs.query.device
    positions = (torch.arange(T, device=device) if rows is None else rows)[:, None] + S - T
    relative = torch.arange(S, device=device) - positions  # positive: a future key
    if case.extra == "alibi":
        return -inputs.slopes[None, :, None, None] * relative.abs()
    return inputs.table[t5_buckets(relative)].permute(2, 0, 1)[None]


def t5_buckets(relative: Tensor) -> Tensor:
    """Return the T5 bucket of each relative position (bidirectional)."""
    half = BUCKETS // 2
    exact, distance = half // 2, relative.abs()
    scaled_log = (distance.clamp(min=1).float() / exact).log() / math.log(MAX_DISTANCE / exact)
    logarithmic = exact + (scaled_log * (half - exact)).long()
    return (relative > 0).long() * half + torch.where(distance < exact, distance, logarithmic.clamp(max=half - 1))

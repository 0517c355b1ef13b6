"""Plan of training a language model on many GPUs: memory, step time and communication.

Compute and memory come from figures measured on one NVIDIA H200, docs/benchmarks/2026-11-19-h200-speed.md.
Bandwidths between GPUs were not measured: they are those that the hardware is specified with.
"""

import math
from dataclasses import dataclass

from softlook.base.errors import ConfigError

PRODUCT_RATE = 695e12
"""FLOP/s of the matrix products of a step, forward and backward, in bfloat16."""
ATTENTION_RATES = {
    64: {1024: 236e12, 4096: 393e12, 16384: 438e12},
    128: {1024: 350e12, 4096: 484e12, 16384: 544e12},
}
"""FLOP/s of causal attention, forward and backward, by width of a head and length."""
WIDE = 2048
"""From this width on, heads are taken to have width 128."""
ELEMENTWISE_SECONDS = 43.6e-12
"""Per token, layer and dimension: norms, activations, residuals, casts."""
LOGIT_SECONDS, UPDATE_SECONDS, OVERHEAD_SECONDS = 1.74e-12, 11.8e-12, 2.95e-3
"""Of the cross entropy per logit, of clipping and AdamW per parameter on a GPU, and of a step beyond its kernels."""
ACTIVATION_BYTES = 50
"""Per token, layer and dimension, without recomputation."""
RECOMPUTED_BYTES = 4
"""The same if each layer keeps its input alone and computes the rest again."""
STATE_BYTES = 16
"""Per parameter: weight, gradient and AdamW's two moments in float32."""
GATHERED_BYTES = 4
"""Per parameter and collective of FSDP: weights are gathered in float32, twice, and gradients are reduced once."""
WORKSPACE_BYTES = 2 << 30
"""Logits of a chunk, and what libraries allocate."""
GPU_BYTES = 141e9
GPUS_PER_NODE = 8
NODE_BANDWIDTH, NETWORK_BANDWIDTH = 450e9, 50e9
"""Bytes per second of a GPU, in each direction: NVLink within a node, 400 Gbit/s between nodes. Not measured."""
USABLE_BANDWIDTH = 0.8
"""The share of it that large collectives are assumed to reach."""
VOCABULARY = 50_304


@dataclass(frozen=True)
class ModelShape:
    """A GPT's sizes."""

    depth: int
    dim: int
    vocabulary: int = VOCABULARY

    @property
    def block_parameters(self) -> int:
        """Weights of the blocks, which every token is multiplied with."""
        return 12 * self.depth * self.dim**2

    @property
    def parameters(self) -> int:
        """With the embedding, which is also the head."""
        return self.block_parameters + self.vocabulary * self.dim


@dataclass(frozen=True)
class ClusterPlan:
    """What a run takes. Times are seconds of a step, sizes bytes on a GPU."""

    shape: ModelShape
    gpus: int
    context: int
    rows: int
    """Sequences on each GPU in a step."""
    micro_batches: int
    """Parts of a step whose gradients are accumulated: as few as fit into memory."""
    state: float
    """Weights, gradients and optimizer state, sharded over all GPUs, with the gathered weights of two blocks."""
    activations: float
    recomputed_activations: float
    """If each layer kept its input alone."""
    products: float
    attention: float
    elementwise: float
    update: float
    communication: float
    """Seconds of collectives, which overlap with computation."""
    communicated: float
    """Bytes that a GPU sends in a step."""

    @property
    def memory(self) -> float:
        """Bytes of a GPU."""
        return self.state + self.activations + WORKSPACE_BYTES

    @property
    def fits(self) -> bool:
        """Whether the memory of an H200 suffices."""
        return self.memory <= GPU_BYTES

    @property
    def fits_recomputed(self) -> bool:
        """Whether it would suffice if each layer kept its input alone."""
        return self.state + self.recomputed_activations + WORKSPACE_BYTES <= GPU_BYTES

    @property
    def compute(self) -> float:
        """Seconds of a step without communication."""
        return self.products + self.attention + self.elementwise + self.update + OVERHEAD_SECONDS

    @property
    def step(self) -> float:
        """Seconds of a step: communication that computation does not hide is waited for."""
        return max(self.compute, self.communication)

    @property
    def tokens(self) -> int:
        """Tokens of a step, on all GPUs."""
        return self.gpus * self.rows * self.context

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs."""
        return self.tokens / self.step


def plan_cluster(shape: ModelShape, *, gpus: int, context: int, batch_tokens: int) -> ClusterPlan:
    """Plan a run of FSDP over all GPUs with about `batch_tokens` tokens a step.

    >>> plan = plan_cluster(ModelShape(12, 768), gpus=1, context=1024, batch_tokens=32 * 1024)
    >>> round(1e3 * plan.step, 1), round(plan.memory / 2**30, 1)
    (64.6, 17.9)
    """
    if min(gpus, context, batch_tokens) < 1:
        raise ConfigError(f"expected numbers above 0, got {gpus} GPUs, {context} and {batch_tokens} tokens")
    rows = max(1, round(batch_tokens / (gpus * context)))
    tokens, blocks = rows * context, shape.depth * shape.dim
    share = shape.parameters / gpus
    gathered = GATHERED_BYTES * 2 * shape.block_parameters / shape.depth if gpus > 1 else 0.0
    weights = shape.block_parameters + shape.vocabulary * shape.dim
    forward = 2 * context * tokens * blocks  # FLOP of causal attention
    state, row_bytes = STATE_BYTES * share + gathered, ACTIVATION_BYTES * context * blocks
    fitting = max(1, int((GPU_BYTES - WORKSPACE_BYTES - state) // row_bytes))
    micro_batches = -(-rows // fitting)
    micro_tokens = -(-rows // micro_batches) * context
    collectives = 2 * micro_batches + 1  # weights for both passes, and gradients
    communicated = collectives * GATHERED_BYTES * shape.parameters * (gpus - 1) / gpus
    bandwidth = USABLE_BANDWIDTH * (NODE_BANDWIDTH if gpus <= GPUS_PER_NODE else NETWORK_BANDWIDTH)
    return ClusterPlan(
        shape,
        gpus,
        context,
        rows,
        micro_batches,
        state=state,
        activations=ACTIVATION_BYTES * micro_tokens * blocks,
        recomputed_activations=RECOMPUTED_BYTES * micro_tokens * blocks + ACTIVATION_BYTES * micro_tokens * shape.dim,
        products=6 * tokens * weights / PRODUCT_RATE,
        attention=3.5 * forward / attention_rate(128 if shape.dim >= WIDE else 64, context),
        elementwise=ELEMENTWISE_SECONDS * tokens * blocks + LOGIT_SECONDS * tokens * shape.vocabulary,
        update=UPDATE_SECONDS * share,
        communication=communicated / bandwidth,
        communicated=communicated,
    )


def shape_of(parameters: float) -> ModelShape:
    """The GPT of about so many parameters: layers of width 128 times their number.

    >>> shape_of(6.7e9), f"{shape_of(6.7e9).parameters:.2g}"
    (ModelShape(depth=32, dim=4096, vocabulary=50304), '6.6e+09')
    """
    depth = max(1, round((parameters / (12 * 128**2)) ** (1 / 3)))
    while depth > 1 and ModelShape(depth, 128 * depth).parameters > 1.05 * parameters:
        depth -= 1
    return ModelShape(depth, 128 * depth)


def attention_rate(head_dim: int, context: int) -> float:
    """FLOP/s of attention at this length, between the measured ones by the logarithm; beyond them, the nearest."""
    rates = ATTENTION_RATES[head_dim]
    context = min(max(context, min(rates)), max(rates))
    below, above = max(one for one in rates if one <= context), min(one for one in rates if one >= context)
    share = math.log(context / below) / math.log(above / below) if below < above else 0.0
    return rates[below] ** (1 - share) * rates[above] ** share

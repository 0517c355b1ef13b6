"""Automatic model size, batch size and schedule.

The rule: a time limit allows a number of FLOPs, and a model of P parameters takes 6 P FLOPs per training token. The
largest model is selected that still sees enough tokens, and for which there is enough data.
"""

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from softlook.recipes.config.default_minutes import DEFAULT_MINUTES
from softlook.recipes.profiling.threads import use_threads
from softlook.train.mixed_precision import choose_dtype

SIZES = (
    (64, 2, 2),
    (128, 2, 4),
    (128, 4, 4),
    (192, 4, 6),
    (256, 4, 4),
    (256, 6, 8),
    (384, 6, 6),
    (512, 6, 8),
    (512, 8, 8),
)
"""(dim, depth, heads), each about twice as large as the one before."""
MIN_TOKENS_PER_PARAMETER = 2.0
"""Training tokens per parameter; a model that sees fewer is too large for the time limit."""
MAX_PARAMETERS_PER_TOKEN = 12
"""Parameters per token of the data; a larger model overfits."""
UTILIZATION = {"cpu": 0.5, "mps": 0.2, "cuda": 0.08}
"""Fraction of a device's matmul FLOPs that small models reach."""
MAX_TOKENS = {"cpu": 40e6, "mps": 100e6, "cuda": 600e6}
"""Training tokens over all epochs; larger data is read for three epochs."""
MIN_FLOPS = {"cpu": 4e9, "mps": 1e11, "cuda": 1e12}
"""FLOPs per second of a slow device: a lower measurement means that other processes are running."""
NUM_PROBES, PROBE_SECONDS = 7, 0.05
"""Measurements of the speed, and the duration of each."""
MIN_BPE_CHARACTERS = 100_000
"""Characters of text below which no BPE tokenizer is trained."""


@dataclass(frozen=True)
class ComputeBudget:
    """The device, its speed and the time limit."""

    device: torch.device
    flops_per_second: float
    """FLOPs per second that a small model reaches."""
    minutes: float
    is_explicit: bool
    """Whether the user set the time limit."""

    @property
    def flops(self) -> float:
        return self.flops_per_second * 60 * self.minutes


@dataclass
class AutoSettings:
    """Automatic values by dotted name, and messages that explain them."""

    values: dict[str, Any] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


def measure_budget(device: torch.device, minutes: float | None, precision: Any = "auto") -> ComputeBudget:
    """Measure the speed of a device, to the nearest power of two: the same command then selects the same size again."""
    speed = UTILIZATION.get(device.type, 0.1) * _measure_flops(device, choose_dtype(precision, device))
    speed = 2.0 ** round(math.log2(max(speed, MIN_FLOPS.get(device.type, 1e9))))
    return ComputeBudget(device, speed, minutes or DEFAULT_MINUTES.get(device.type, 5.0), minutes is not None)


@dataclass(frozen=True)
class TransformerSize:
    """Model dimensions, and the number of epochs that fit into the budget."""

    dim: int
    depth: int
    heads: int
    epochs: float


def select_model_size(
    tokens: float,
    budget: ComputeBudget,
    *,
    block_factor: int = 12,
    vocab_size: int = 0,
    min_tokens: float = MIN_TOKENS_PER_PARAMETER,
) -> TransformerSize:
    """The largest size that the budget and the data allow.

    - `block_factor`: parameters of a block / dim².
    - `min_tokens`: training tokens per parameter of the blocks.
    """
    best: TransformerSize | None = None
    for dim, depth, heads in SIZES:
        parameters = block_factor * depth * dim * dim
        seen = min(budget.flops / (6 * (parameters + vocab_size * dim)), max_training_tokens(tokens, budget.device))
        is_too_large = parameters > MAX_PARAMETERS_PER_TOKEN * tokens or seen < min_tokens * parameters
        if best is not None and is_too_large:
            break
        best = TransformerSize(dim, depth, heads, seen / max(tokens, 1))
    assert best is not None
    return best


def training_tokens(tokens: float, limit: float, *, min_epochs: int = 3, max_epochs: int = 40) -> float:
    """Training tokens over all epochs: many epochs of small data, while the total stays below a limit.

    >>> training_tokens(1e4, 1e6), training_tokens(1e5, 1e6), training_tokens(1e6, 1e6)
    (400000.0, 1000000.0, 3000000.0)
    """
    return max(min_epochs * tokens, min(max_epochs * tokens, limit))


def max_training_tokens(tokens: float, device: torch.device) -> float:
    """Training tokens over all epochs, for a device."""
    return training_tokens(tokens, MAX_TOKENS.get(device.type, 40e6))


def select_dropout(epochs: float, maximum: float) -> float:
    """Dropout probability: more epochs need more dropout."""
    return next((p for limit, p in ((5, 0.0), (12, 0.1), (25, 0.2)) if epochs < limit), maximum)


def select_vocab_size(characters: int, budget: ComputeBudget) -> int:
    """One token per 400 characters of text; fewer if time is short, since each costs compute at every position."""
    maximum = 4000 if budget.device.type == "cpu" and budget.minutes <= 10 else 32000
    return int(min(max(round(characters / 400, -2), 500), maximum))


def autosize(
    characters: int,
    overrides: Any,
    budget: ComputeBudget,
    *,
    block_factor: int,
    max_dropout: float,
    min_tokens: float = MIN_TOKENS_PER_PARAMETER,
) -> tuple[AutoSettings, float]:
    """The values most text tasks share: tokenizer, model size, batch, learning rate. Also the estimated token count."""
    tokenizer = overrides.get("tokenizer.type") or ("characters" if characters < MIN_BPE_CHARACTERS else "bpe")
    vocab_size = overrides.get("tokenizer.vocab_size") or select_vocab_size(characters, budget)
    tokens = characters / {"characters": 1.0, "bytes": 1.0}.get(tokenizer, 3.5)
    vocab_cost = vocab_size if tokenizer == "bpe" else 100
    size = select_model_size(tokens, budget, block_factor=block_factor, vocab_size=vocab_cost, min_tokens=min_tokens)
    dim = overrides.get("model.dim") or size.dim
    values = {
        "tokenizer.type": tokenizer,
        "tokenizer.vocab_size": vocab_size,
        "model.dim": dim,
        "model.depth": size.depth,
        "model.heads": size.heads,
        "model.dropout": select_dropout(size.epochs, max_dropout),
        "batch.max_tokens": int(min(max(tokens / 40, 256), 4096 if budget.device.type == "cuda" else 2048)),
        "optim.lr": select_learning_rate(dim),
        "optim.schedule": "cosine",
    }
    message = (
        f"About {tokens:,.0f} training tokens ({tokenizer}) and {budget.minutes:g} minutes on {budget.device.type}: "
        f"{overrides.get('model.depth') or size.depth} blocks of dimension {dim}."
    )
    return AutoSettings(values, [message]), tokens


def select_learning_rate(dim: int) -> float:
    """Peak learning rate: lower for wider models."""
    return float(f"{1e-3 * min(math.sqrt(256 / dim), 2.0):.2g}")


def select_warmup(steps: int | None, norm: str | None = None) -> int | float:
    """Warmup: a tenth of the run; a quarter for post-norm, which is unstable without. A share without `steps`.

    >>> select_warmup(1000), select_warmup(1000, "post"), select_warmup(None)
    (100, 250, 0.1)
    """
    if steps is None:
        return 0.25 if norm == "post" else 0.1
    return max(min(steps // 4, 4000) if norm == "post" else min(steps // 10, 1000), 1)


def epochs_to_steps(epochs: float, epoch_tokens: float, batch_tokens: int) -> int:
    """Steps of a number of passes over the training data.

    >>> epochs_to_steps(2.5, epoch_tokens=20_000, batch_tokens=1000)
    50
    """
    return max(round(epochs * epoch_tokens / batch_tokens), 1)


def plan_schedule(
    seconds_per_step: float,
    total_tokens: float,
    batch_tokens: int,
    budget: ComputeBudget,
    overrides: Mapping[str, Any],
    epoch_tokens: float = 0.0,
) -> AutoSettings:
    """The limit of a run, in steps or in minutes, with warmup, EMA decay and the interval of log lines.

    With a limit in minutes the learning rate and the evaluations follow the clock: the measured `seconds_per_step`,
    which another process may have slowed down, then only decides how long the EMA is and how often is logged.
    """
    useful = max(int(total_tokens / batch_tokens), 100)
    fitting = max(int(0.9 * 60 * budget.minutes / seconds_per_step), 20)
    epochs, minutes = overrides.get("epochs"), overrides.get("training.max_minutes")
    steps = overrides.get("training.max_steps")
    if steps is None and epochs is not None:
        steps = epochs_to_steps(epochs, epoch_tokens, batch_tokens)
    if steps is None and minutes is None:
        steps, is_slow = useful, budget.device.type == "cpu" and fitting < useful
        minutes = budget.minutes if is_slow else None
    expected = fitting if steps is None else min(steps, fitting) if minutes else steps
    # A limit in steps alone gives the same run on every machine; with one in minutes, the clock decides.
    by_steps = steps if minutes is None else None
    interval = None if by_steps is None else max(by_steps // 10, min(int(30 / seconds_per_step), by_steps // 4), 1)
    values = {
        "training.max_steps": steps,
        "training.max_minutes": minutes,
        "training.evaluate_every": interval,
        "training.save_every": interval,
        "training.log_every": max(min(int(1 / seconds_per_step), expected // 20), 1),
        "training.ema_decay": round(min(max(1 - 20 / expected, 0.0), 0.9995), 4),
        "optim.warmup": select_warmup(by_steps, overrides.get("model.norm")),
    }
    messages = [f"About {expected:,} steps of about {seconds_per_step:.2g} s."]
    if minutes is not None:
        messages = [f"{minutes:g} minute{'s' * (minutes != 1)} in all: {messages[0][0].lower()}{messages[0][1:]}"]
    if minutes is not None and not budget.is_explicit:
        limit = f"On this {budget.device.type} a run is limited to {minutes:g} minutes"
        messages.insert(0, f"{limit}; --max-minutes 60 allows a longer run and a larger model.")
    return AutoSettings({name: value for name, value in values.items() if value is not None}, messages)


def format_duration(seconds: float) -> str:
    """A duration for people.

    >>> format_duration(42), format_duration(150), format_duration(9000)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _measure_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Matmul FLOPs per second: the median of several probes, which is what remains beside other processes."""
    size = 512 if device.type == "cpu" else 4096
    matrix = torch.randn(size, size, device=device).to(dtype)
    _probe_flops(matrix)  # warmup
    counts = {1, torch.get_num_threads()} if device.type == "cpu" else {torch.get_num_threads()}
    return max(statistics.median(_probe(matrix, count) for _ in range(NUM_PROBES)) for count in counts)


def _probe(matrix: torch.Tensor, threads: int) -> float:
    """FLOPs per second with so many threads: on a busy machine, one may be faster than all."""
    with use_threads(threads):
        return _probe_flops(matrix)


def _probe_flops(matrix: torch.Tensor) -> float:
    """FLOPs per second over a short time."""
    began, count = time.monotonic(), 0
    while time.monotonic() < began + PROBE_SECONDS or not count:
        (matrix @ matrix)[0, 0].item()  # reading a value waits for the device
        count += 1
    return count * 2 * len(matrix) ** 3 / (time.monotonic() - began)

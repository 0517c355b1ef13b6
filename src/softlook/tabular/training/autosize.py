"""Automatic model size, dropout, batch size and epochs; and model construction."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from softlook.embed.features import compute_bins
from softlook.models.ft_transformer import FTTransformer, FTTransformerConfig
from softlook.models.optimize import optimize_for_cpu
from softlook.models.tab_transformer import TabTransformer, TabTransformerConfig
from softlook.models.table_transformer import TableTransformer, TableTransformerConfig
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.presets import AUTO_DROPOUT, AUTO_SIZES, Hyperparameters
from softlook.tabular.training.runtime import best_time

DEFAULT_EPOCHS, MIN_STEPS, MAX_STEPS = 40, 300, 8_000
"""Epochs of a cosine schedule, and bounds on its steps."""
SMALL_TABLE_ROWS, LARGE_TABLE_ROWS = 10_000, 100_000
"""Rows up to which a model is narrow, and from which on it is as large as the device allows."""
MIN_COMPILE_SECONDS = 60.0
"""A shorter run would be over before compiled steps have saved the time of their compilation."""
LARGE_BATCH_ROWS = 50_000
"""Rows from which on the default batch size is larger."""
MACS_PER_ROW, MAX_MACS = 7.5e8, 1e13
"""CPU budget of multiply-accumulate operations: per training row, and in total."""
TRAINING_FACTOR = 3
"""Cost of a training step in forward passes: forward, and backward to inputs and to weights."""
TRAINING_FRACTION = 0.8
"""Fraction of a time limit that is spent on training steps; the rest on evaluations."""
SPEED_MACS = 3e8
"""Multiply-accumulate operations of the training step by which the speed of a CPU is measured."""
MAX_STEP_BYTES = 4 << 30
"""Memory of the activations of a step on a CPU."""
MAX_STEP_MACS = 2e11
"""Cost of a step on a CPU: some seconds, between which the clock is not checked."""
MAX_STEP_FRACTION = 0.02
"""Fraction of a time limit that a step on a CPU may take."""
TOKEN_COPIES, MAP_COPIES = 10, 4
"""How often a block stores the tokens of a row, and its attention maps if dropout is applied to them, as measured.
Without attention dropout maps are never materialized; in the last block of an FT-Transformer only [CLS] attends."""


@dataclass(frozen=True)
class TrainingContext:
    """What automatic choices depend on."""

    rows: int
    """Training rows."""
    tokens: int
    device: str
    is_regression: bool = False
    seconds: float | None = None
    """Time limit."""

    @property
    def is_large(self) -> bool:
        return self.rows >= LARGE_TABLE_ROWS

    @property
    def repays_compilation(self) -> bool:
        """Whether a run on a GPU is so long that compiled steps save more time than their compilation takes."""
        return self.device == "cuda" and self.is_large and (self.seconds is None or self.seconds >= MIN_COMPILE_SECONDS)

    def max_macs(self, hparams: Hyperparameters) -> float:
        """CPU budget of training: grows with the rows, and is bounded by the time limit."""
        budget = min(self.rows * MACS_PER_ROW, MAX_MACS)
        return budget if self.seconds is None else min(budget, TRAINING_FRACTION * self._limited_macs(hparams))

    def max_step_macs(self, hparams: Hyperparameters) -> float:
        """Cost of a step on a CPU."""
        limit = MAX_STEP_MACS
        return limit if self.seconds is None else min(limit, MAX_STEP_FRACTION * self._limited_macs(hparams))

    def _limited_macs(self, hparams: Hyperparameters) -> float:
        """Multiply-accumulate operations of training that fit within the time limit."""
        assert self.seconds is not None
        sizes = hparams.dim, hparams.depth, hparams.heads
        return self.seconds * training_macs_per_second(*sizes, self.tokens, torch.get_num_threads())

    def model_size(self) -> Hyperparameters:
        """Sizes and dropout, as measured (docs/log.md): large tables need no dropout, regression suffers from much."""
        attention, hidden = (0.0, 0.0) if self.is_large else (0.1, 0.0) if self.is_regression else (0.2, 0.1)
        dropout = Hyperparameters(attention_dropout=attention, hidden_dropout=hidden)
        if self.is_large and self.device != "cpu":
            return replace(dropout, dim=256, depth=3, n_members=4, bins=256)
        dim, bins = (64, 96) if self.rows < SMALL_TABLE_ROWS else (96, 256)
        return replace(dropout, dim=dim, depth=2, n_members=8, bins=bins)


def resolve_hyperparameters(hparams: Hyperparameters, context: TrainingContext) -> Hyperparameters:
    """The hyperparameters with nothing left open. On a CPU, a compute budget determines the ensemble size.

    It is the largest power of two within a budget of multiply-accumulate operations, which grows with the rows up to
    some minutes of two cores. The budget does not depend on the CPU, unless time is limited: few members trained to the
    end are better than many that were cut short. If time does not suffice for one member, the depth is 1: in the last
    block only [CLS] attends, which makes members several times cheaper, the more so the more columns there are.

    >>> from softlook.tabular.presets import PRESETS
    >>> default = PRESETS["table"]["default"]
    >>> contexts = [TrainingContext(rows=13_209, tokens=9, device=device) for device in ("cuda", "cpu")]
    >>> [resolve_hyperparameters(default, context).n_members for context in contexts]
    [8, 4]
    """
    size, is_depth_open = context.model_size(), not hparams.depth
    if hparams.compile is None and context.repays_compilation:
        hparams = replace(hparams, compile=True)
    if context.device == "cpu" and context.rows < SMALL_TABLE_ROWS:  # fast anyway, so it may as well be exact
        hparams = replace(hparams, mixed_precision=False)
    hparams = fill_sizes(hparams, replace(size, n_members=0) if context.device == "cpu" else size)
    if hparams.n_members:
        return hparams
    members = affordable_members(hparams, context)
    if is_depth_open and context.seconds is not None and members < 1:
        hparams = replace(hparams, depth=1)
        members = affordable_members(hparams, context)
    members = max(1, members)
    return replace(hparams, n_members=min(size.n_members, 1 << (members.bit_length() - 1)))


def affordable_members(hparams: Hyperparameters, context: TrainingContext) -> int:
    """How many ensemble members can be trained to the end within the CPU budget."""
    steps = -(-context.rows // batch_size_for(hparams, context.rows))
    epochs = hparams.epochs or scheduled_epochs(hparams, steps) or DEFAULT_EPOCHS
    member_macs = TRAINING_FACTOR * context.rows * epochs * macs_per_row(hparams, context.tokens)
    return int(context.max_macs(hparams) // member_macs)


def fill_sizes(hparams: Hyperparameters, size: Hyperparameters) -> Hyperparameters:
    """The hyperparameters with the sizes and dropout of others where they are open."""
    sizes = {name: getattr(size, name) for name in AUTO_SIZES if not getattr(hparams, name)}
    dropout = {name: getattr(size, name) for name in AUTO_DROPOUT if getattr(hparams, name) is None}
    return replace(hparams, **sizes, **dropout)


def limit_step_cost(hparams: Hyperparameters, context: TrainingContext, *, may_drop_dropout: bool) -> Hyperparameters:
    """Limit memory and time of a step on a CPU for wide tables: attention maps grow with the square of the columns.

    If they do not fit, attention dropout is disabled where the preset leaves it open. If that is not enough, the batch
    size is reduced, unless it was given.

    >>> from softlook.tabular.presets import PRESETS
    >>> wide = TrainingContext(rows=1_000, tokens=3_001, device="cpu")
    >>> hparams = resolve_hyperparameters(PRESETS["table"]["default"], wide)
    >>> limited = limit_step_cost(hparams, wide, may_drop_dropout=True)
    >>> limited.attention_dropout, limited.batch_size
    (0.0, 52)
    """
    if context.device != "cpu":
        return hparams
    size = min(batch_size_for(hparams, context.rows), context.rows)
    if may_drop_dropout and size * bytes_per_row(hparams, context.tokens) > MAX_STEP_BYTES:
        return limit_step_cost(replace(hparams, attention_dropout=0.0), context, may_drop_dropout=False)
    row_macs = TRAINING_FACTOR * hparams.n_members * macs_per_row(hparams, context.tokens)
    affordable = int(
        min(MAX_STEP_BYTES // bytes_per_row(hparams, context.tokens), context.max_step_macs(hparams) // row_macs)
    )
    if hparams.batch_size or size <= max(1, affordable):
        return hparams
    return replace(hparams, batch_size=max(1, affordable))


def macs_per_row(hparams: Hyperparameters, tokens: int) -> int:
    """Approximate multiply-accumulate operations of one member's forward pass for a row."""
    linear = (8 * hparams.depth - 6) * hparams.dim**2
    attention = 2 * (hparams.depth - 1) * tokens * hparams.dim
    return tokens * (linear + attention)


def bytes_per_row(hparams: Hyperparameters, tokens: int) -> int:
    """Bytes of activations per row of a training step, in single precision."""
    blocks = hparams.depth if hparams.model == "TabTransformer" else hparams.depth - 1
    maps = MAP_COPIES * blocks * hparams.heads * tokens if hparams.attention_dropout else 0
    return 4 * hparams.n_members * tokens * (TOKEN_COPIES * hparams.depth * hparams.dim + maps)


def batch_size_for(hparams: Hyperparameters, rows: int) -> int:
    """Rows per step: 256 as in the paper, 1,024 for a large table."""
    return hparams.batch_size or (256 if rows < LARGE_BATCH_ROWS else 1024)


def scheduled_epochs(hparams: Hyperparameters, steps_per_epoch: int) -> int | None:
    """Epochs of a cosine schedule: more if epochs are short, fewer if they are long; None if the rate is constant.

    >>> from softlook.tabular.presets import PRESETS
    >>> [scheduled_epochs(PRESETS["table"]["default"], steps) for steps in (1, 50, 5_000)]
    [300, 40, 4]
    """
    if hparams.schedule == "constant":
        return None
    return max(min(DEFAULT_EPOCHS, MAX_STEPS // steps_per_epoch), -(-MIN_STEPS // steps_per_epoch), 4)


@lru_cache(maxsize=64)
def training_macs_per_second(dim: int, depth: int, heads: int, tokens: int, threads: int) -> float:
    """Multiply-accumulate operations per second of a training step on this CPU with this many threads, measured."""
    sizes: dict[str, Any] = {"dim": dim, "depth": depth, "heads": heads, "ensemble_size": 1}
    config = TableTransformerConfig(n_numeric=tokens - 1, num_embeddings="linear", **sizes)
    row_macs = TRAINING_FACTOR * macs_per_row(Hyperparameters(dim=dim, depth=depth), tokens)
    numbers = torch.zeros(int(max(1, min(256, SPEED_MACS // row_macs))), tokens - 1)
    categories = torch.zeros(len(numbers), 0, dtype=torch.long)
    with torch.random.fork_rng(devices=[]):  # the random state of a fit does not depend on whether this ran before
        model = TableTransformer(config).float()
        return len(numbers) * row_macs / best_time(lambda: model(numbers, categories).sum().backward())


# --- model construction -----------------------------------------------------------------------------------------------


def build_model(
    hparams: Hyperparameters, preprocessor: TablePreprocessor, numbers: Tensor | None, outputs: int
) -> nn.Module:
    """A new model. `numbers` are those of the training rows, from which the bins of piecewise embeddings are computed.

    They are None if weights will be loaded, which contain the bins. The model is in single precision, whatever torch's
    default dtype is.
    """
    n_numeric, cardinalities = preprocessor.n_numbers, preprocessor.cardinalities
    common: dict[str, Any] = {
        "n_numeric": n_numeric,
        "cardinalities": cardinalities,
        "classes": outputs,
        "dim": hparams.dim,
        "heads": hparams.heads,
        "dropout": hparams.dropout,
        "linear_skip": hparams.linear_skip,
    }
    if hparams.model == "TabTransformer":
        width = len(cardinalities) * hparams.dim + n_numeric
        first = max(4, -(-hparams.min_mlp_dim // width))  # the paper's 4 and 2 times the input width; more if narrow
        config = TabTransformerConfig(
            **common,
            depth=hparams.depth if cardinalities else 0,  # without categories the model is an MLP
            mlp_factors=(first, first // 2),
            norm_numbers=hparams.numeric_norm,
        )
        return optimize_for_cpu(TabTransformer(config).float())
    common |= {
        "depth": hparams.depth,
        "hidden": hparams.hidden,
        "attention_dropout": hparams.attention_dropout or 0.0,
        "hidden_dropout": hparams.hidden_dropout or 0.0,
    }
    if hparams.model == "FTTransformer":
        return optimize_for_cpu(FTTransformer(FTTransformerConfig(**common)).float())
    config = TableTransformerConfig(
        **common,
        ensemble_size=hparams.n_members,
        shared_blocks=hparams.shared_blocks,
        num_embeddings=hparams.num_embeddings,
        bins=hparams.bins,
        sigma=hparams.sigma,
    )
    edges = None
    if numbers is not None and hparams.num_embeddings == "piecewise":
        edges = compute_bins(numbers, max_bins=hparams.bins)
    return optimize_for_cpu(TableTransformer(config, edges=edges).float())

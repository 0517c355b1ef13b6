"""Hyperparameters of the table models, and their presets.

This module is the one place of every default and of the help text of every hyperparameter; the estimators' docstrings
and the settings of `softlook train table` are made from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, TypeGuard, get_args

from softlook.base.errors import ConfigError

Family = Literal["table", "ft", "tab"]
"""TableTransformer, softlook's own model; FT-Transformer, every column a token; TabTransformer, every category one."""
ScalingMethod = Literal["quantile", "standard", "none"]
ModelName = Literal["TableTransformer", "FTTransformer", "TabTransformer"]
NumericEmbeddingName = Literal["piecewise", "periodic", "linear"]
EarlyStoppingMetric = str
"""'loss', 'score', 'auto', or the name of a scikit-learn scorer."""
ScheduleName = Literal["constant", "cosine"]
EnsembleName = Literal["auto", "attention", "single"]


def _hp(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """How a model for a table is built and trained.

    The value 0 of `dim`, `depth`, `n_members` or `bins`, and None of `attention_dropout` or `hidden_dropout`, leave the
    choice to `tabular.training.autosize`.
    """

    model: ModelName = _hp("FTTransformer", "Model class of `softlook.models`.")
    scaling: ScalingMethod = _hp("quantile", "Scaling of numbers: 'quantile', 'standard' or 'none'.")
    collapse_one_hot: bool = _hp(False, "Whether one-hot columns are collapsed into one categorical feature.")
    dim: int = _hp(192, "Embedding width. TableTransformer: 64 to 256 by rows and device; papers: 192 and 32.")
    depth: int = _hp(3, "Number of Transformer blocks.")
    heads: int = _hp(8, "Attention heads per block; they divide `dim`.")
    hidden: int | None = _hp(None, "Hidden width of the feed-forward layers; default: 4/3 of `dim`.")
    n_members: int = _hp(1, "Ensemble members that share most weights (TabM's k); by default up to 8, fewer on a CPU.")
    num_embeddings: NumericEmbeddingName = _hp("linear", "Embedding of numbers: 'piecewise', 'periodic' or 'linear'.")
    linear_skip: bool = _hp(False, "Whether a linear model of the inputs is added to the output; set after `pretrain`.")
    bins: int = _hp(48, "Maximum number of bins of piecewise embeddings; frequencies of periodic ones.")
    sigma: float = _hp(0.1, "Standard deviation of the frequencies of periodic embeddings.")
    shared_blocks: int | None = _hp(None, "Blocks that all ensemble members share; default: all but the last.")
    numeric_norm: bool = _hp(True, "TabTransformer's LayerNorm over the numbers of a row.")
    min_mlp_dim: int = _hp(1, "Minimum width of the first layer of TabTransformer's MLP.")
    dropout: float = _hp(0.0, "Dropout probability on residual branches.")
    attention_dropout: float | None = _hp(0.2, "Dropout probability of attention weights.")
    hidden_dropout: float | None = _hp(0.1, "Dropout probability inside the feed-forward layers.")
    lr: float = _hp(1e-4, "Learning rate of AdamW; the peak of the schedule.")
    weight_decay: float = _hp(1e-5, "Weight decay of AdamW, on matrices only.")
    batch_size: int | None = _hp(None, "Rows per step; default: 256, and 1,024 from 50,000 rows on.")
    epochs: int | None = _hp(None, "Maximum number of epochs; by default early stopping and the schedule decide.")
    schedule: ScheduleName = _hp("constant", "Learning rate schedule: constant, or warmup and cosine decay to 0.")
    warmup: float = _hp(0.05, "Fraction of the steps that are warmup.")
    mixed_precision: bool = _hp(False, "bfloat16 autocast in training, on GPUs and on CPUs with bfloat16 units.")
    compile: bool | None = _hp(
        None, "Whether torch.compile builds the kernels of a step on a GPU; by default for 100,000 rows or more."
    )
    retrieval_rows: int | None = _hp(None, "Maximum number of rows kept for retrieval (`tabular.training.retrieval`).")
    patience: int = _hp(16, "Evaluations without improvement before early stopping.")
    eval_every: int = _hp(1, "Minimum number of steps between evaluations, which happen at the end of an epoch.")
    early_stopping_metric: EarlyStoppingMetric = _hp(
        "score",
        "Validation metric for early stopping: 'loss', 'score' (accuracy), a scikit-learn scorer such as 'roc_auc', or "
        "'auto': the score with 20,000 validation rows or more.",
    )
    min_delta: float = _hp(0.0, "Minimum improvement that resets the patience.")
    grad_clip: float | None = _hp(None, "Maximum gradient norm.")
    steps_without_validation: int = _hp(300, "Training steps if there are no validation rows and no `epochs`.")


HELP: Mapping[str, str] = {one.name: one.metadata["help"] for one in fields(Hyperparameters)}
"""The help text of each hyperparameter."""

AUTO_SIZES = ("dim", "depth", "n_members", "bins")
"""Hyperparameters for which 0 means: chosen for the table."""
AUTO_DROPOUT = ("attention_dropout", "hidden_dropout")
"""Hyperparameters for which None means: chosen for the table."""
ARCHITECTURE = (
    "model",
    "scaling",
    "collapse_one_hot",
    "heads",
    "hidden",
    "num_embeddings",
    "sigma",
    "numeric_norm",
    "min_mlp_dim",
)
"""Hyperparameters that, besides the automatic sizes, must not change once there are weights."""
POSITIVE_INTS = (
    *AUTO_SIZES,
    "heads",
    "patience",
    "batch_size",
    "epochs",
    "hidden",
    "eval_every",
    "steps_without_validation",
    "retrieval_rows",
)
FRACTIONS = ("dropout", *AUTO_DROPOUT, "warmup")
CHOICES = {
    "scaling": ScalingMethod,
    "num_embeddings": NumericEmbeddingName,
    "schedule": ScheduleName,
}

FT_PAPER = Hyperparameters()
"""Gorishniy et al. 2021: default model and training."""
TAB_PAPER = Hyperparameters(
    model="TabTransformer",
    scaling="standard",
    dim=32,
    depth=6,
    dropout=0.1,
    attention_dropout=0.1,
    hidden_dropout=0.0,
    lr=1e-4,
    patience=15,
)
"""Huang et al. 2020: width, depth, heads and patience; what the paper tunes is set to the middle of its range."""
PRESETS: Mapping[Family, Mapping[str, Hyperparameters]] = MappingProxyType(
    {
        "table": {
            "default": Hyperparameters(
                model="TableTransformer",
                collapse_one_hot=True,
                dim=0,
                depth=0,
                n_members=0,
                shared_blocks=0,
                num_embeddings="piecewise",
                bins=0,
                attention_dropout=None,
                hidden_dropout=None,
                lr=1e-3,
                weight_decay=0.05,
                schedule="cosine",
                mixed_precision=True,
                retrieval_rows=16_384,
                eval_every=16,
                early_stopping_metric="auto",
                min_delta=1e-4,
                grad_clip=1.0,
            )
        },
        "ft": {"paper": FT_PAPER},
        "tab": {
            "paper": TAB_PAPER,
            "improved": replace(
                TAB_PAPER,
                scaling="quantile",
                collapse_one_hot=True,
                numeric_norm=False,
                min_mlp_dim=64,
                depth=3,
                lr=1e-3,
                weight_decay=1e-4,
                eval_every=16,
                early_stopping_metric="loss",
                min_delta=1e-4,
                grad_clip=1.0,
            ),
        },
    }
)
"""By family and name. "paper": the hyperparameters of the paper. "improved": TabTransformer without the LayerNorm over
numbers, with a wider MLP and softlook's training defaults."""
MODELS: Mapping[Family, ModelName] = {"table": "TableTransformer", "ft": "FTTransformer", "tab": "TabTransformer"}
RELIABLE_SCORE_ROWS = 20_000
"""Validation rows from which on their accuracy is precise to a fraction of a percent."""
MIN_ROWS_TO_SPLIT = 50
"""With fewer rows there is no validation split: a score of fewer than ten rows is not informative, and training needs
them."""


def select_hyperparameters(
    family: Family, preset: str | Hyperparameters, overrides: Mapping[str, Any]
) -> Hyperparameters:
    """A preset with the user's overrides; None keeps the preset's value.

    >>> select_hyperparameters("ft", "paper", {"dim": 64, "depth": None}).dim
    64
    """
    presets = PRESETS[family]
    if not isinstance(preset, Hyperparameters) and preset not in presets:
        raise ConfigError(f"preset: expected {' or '.join(map(repr, presets))}, or Hyperparameters; got {preset!r}")
    hparams = preset if isinstance(preset, Hyperparameters) else presets[preset]
    given = {name: value for name, value in overrides.items() if name in HELP and value is not None}
    for name in AUTO_SIZES:
        _check_int(name, given.get(name, 1), least=1)
    hparams = _validate(replace(hparams, **given))
    if hparams.model != MODELS[family]:
        raise ConfigError(f"model: expected {MODELS[family]!r} for this estimator; got {hparams.model!r}")
    return hparams


def _validate(hparams: Hyperparameters) -> Hyperparameters:
    """The hyperparameters as plain Python numbers, after all checks."""
    for name in POSITIVE_INTS:
        _check_int(name, getattr(hparams, name), least=0 if name in AUTO_SIZES else 1)
    for name in FRACTIONS:
        value = getattr(hparams, name)
        if not (_is_number(value) and 0 <= value < 1) and not (value is None and name in AUTO_DROPOUT):
            raise ConfigError(f"{name}: expected a number in [0, 1); got {value!r}")
    if not (_is_number(hparams.lr) and hparams.lr > 0):
        raise ConfigError(f"lr: expected a number > 0; got {hparams.lr!r}")
    if not (_is_number(hparams.weight_decay) and hparams.weight_decay >= 0):
        raise ConfigError(f"weight_decay: expected a number >= 0; got {hparams.weight_decay!r}")
    for name, choices in CHOICES.items():
        if getattr(hparams, name) not in get_args(choices):
            raise ConfigError(f"{name}: expected one of {', '.join(get_args(choices))}; got {getattr(hparams, name)!r}")
    if hparams.model != "TableTransformer" and (hparams.n_members > 1 or hparams.num_embeddings != "linear"):
        raise ConfigError(
            f"the papers' models have one member and linear embeddings; got n_members={hparams.n_members} and "
            f"num_embeddings={hparams.num_embeddings!r}. Use a TableTransformer."
        )
    plain: dict[str, Any] = {
        name: int(value) for name in POSITIVE_INTS if (value := getattr(hparams, name)) is not None
    }
    numbers = {name: getattr(hparams, name) for name in (*FRACTIONS, "lr", "weight_decay")}
    plain |= {name: float(value) for name, value in numbers.items() if value is not None}
    return replace(hparams, **plain)


def _check_int(name: str, value: object, *, least: int) -> None:
    if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least):
        raise ConfigError(f"{name}: expected an integer >= {least}; got {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)

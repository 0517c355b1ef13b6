"""Model construction from hyperparameters and a preprocessor."""

from typing import Any

from torch import Tensor, nn

from softlook.embed.features import compute_bins
from softlook.models.ft_transformer import FTTransformer, FTTransformerConfig
from softlook.models.optimize import optimize_for_cpu
from softlook.models.tab_transformer import TabTransformer, TabTransformerConfig
from softlook.models.table_transformer import TableTransformer, TableTransformerConfig
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.presets import Hyperparameters


def build_model(
    hparams: Hyperparameters, preprocessor: TablePreprocessor, numbers: Tensor | None, outputs: int
) -> nn.Module:
    """A new model. `numbers` are those of the training rows, from which the bins of piecewise embeddings are computed.

    They are None if weights will be loaded, which contain the bins. The model is in single precision, whatever torch's
    default dtype is.
    """
    shape: dict[str, Any] = {"n_numeric": preprocessor.n_numbers, "cardinalities": preprocessor.cardinalities}
    return optimize_for_cpu(_build(hparams, shape, numbers, outputs).float())


def _build(hparams: Hyperparameters, shape: dict[str, Any], numbers: Tensor | None, outputs: int) -> nn.Module:
    common = shape | {
        "classes": outputs,
        "dim": hparams.dim,
        "heads": hparams.heads,
        "dropout": hparams.dropout,
        "linear_skip": hparams.linear_skip,
    }
    if hparams.model == "TabTransformer":
        n_numeric, cardinalities = shape["n_numeric"], shape["cardinalities"]
        return TabTransformer(
            TabTransformerConfig(
                **common,
                depth=hparams.depth if cardinalities else 0,  # without categories the model is an MLP
                mlp_factors=_mlp_factors(hparams, len(cardinalities) * hparams.dim + n_numeric),
                norm_numbers=hparams.numeric_norm,
            )
        )
    common |= {
        "depth": hparams.depth,
        "hidden": hparams.hidden,
        "attention_dropout": hparams.attention_dropout or 0.0,
        "hidden_dropout": hparams.hidden_dropout or 0.0,
    }
    if hparams.model == "FTTransformer":
        return FTTransformer(FTTransformerConfig(**common))
    config = TableTransformerConfig(
        **common,
        ensemble_size=hparams.n_members,
        shared_blocks=hparams.shared_blocks,
        num_embeddings=hparams.num_embeddings,
        bins=hparams.bins,
        sigma=hparams.sigma,
    )
    if numbers is None or hparams.num_embeddings != "piecewise":
        return TableTransformer(config)
    return TableTransformer(config, edges=compute_bins(numbers, max_bins=hparams.bins))


def _mlp_factors(hparams: Hyperparameters, width: int) -> tuple[int, int]:
    """The paper's 4 and 2 times the input width; more if the input is narrow."""
    first = max(4, -(-hparams.min_mlp_dim // width))
    return first, first // 2

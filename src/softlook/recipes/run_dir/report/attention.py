"""Section of a report with the attention of a few texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from softlook.lens import attention_figure
from softlook.recipes.run_dir.report.data import ReportData
from softlook.recipes.run_dir.report.formatting import escape_html, section

ATTENTION = "attention"
"""The key of the samples in the scores: tokens and weights, as from `softlook.recipes.text.attention`."""
NOTE = (
    "Last layer, mean over heads. The stronger the color of a token, the more attention it receives from all tokens. "
    "In the map, tokens in rows attend to tokens in columns."
)


def attention(run: ReportData) -> str:
    """Texts whose tokens are colored by the attention they receive, with their attention maps."""
    samples: Sequence[Mapping[str, Any]] = run.scores.get(ATTENTION) or []
    return section("Attention", *map(_sample, samples), note=NOTE)


def _sample(sample: Mapping[str, Any]) -> str:
    tokens, weights = sample["tokens"], torch.tensor(sample["weights"])
    received = weights.mean(0)
    share = (received / received.max().clamp(min=1e-9)).tolist()
    spans = " ".join(
        f'<span class="token" style="--share:{100 * one:.0f}%" title="{value:.3f}">{escape_html(token)}</span>'
        for token, one, value in zip(tokens, share, received.tolist(), strict=True)
    )
    figure = attention_figure(weights, queries=tokens, keys=tokens).svg()
    folded = f'<details><summary>Attention map</summary><div class="fit">{figure}</div></details>'
    return f'<div class="card"><p class="tokens">{spans}</p>{folded}</div>'

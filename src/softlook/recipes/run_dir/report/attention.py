"""Section of a report with the attention of a few texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from softlook.lens import attention_figure, heads_figure
from softlook.recipes.run_dir.report.data import ReportData
from softlook.recipes.run_dir.report.formatting import escape_html, section

MAX_EVALUATIONS = 6
"""Evaluations whose maps of the first text are shown side by side."""
NOTE = (
    "Last layer, mean over heads. The stronger the color of a token, the more attention it receives from all tokens. "
    "In the map, tokens in rows attend to tokens in columns."
)


def attention(run: ReportData) -> str:
    """Texts whose tokens are colored by the attention they receive, with their attention maps over training."""
    events = [event for event in run.of("sampled") if event.get("attention")]
    if not events:
        return ""
    steps = [round(n * (len(events) - 1) / (MAX_EVALUATIONS - 1)) for n in range(MAX_EVALUATIONS)]
    shown = [events[number] for number in dict.fromkeys(steps)] if len(events) > MAX_EVALUATIONS else events
    return section("Attention", *map(_sample, events[-1]["attention"]), _training(shown), note=NOTE)


def _training(events: Sequence[Mapping[str, Any]]) -> str:
    """The maps of the first text at several steps, on one scale."""
    tokens = events[-1]["attention"][0]["tokens"]
    maps = {f"step {event['step']:,}": torch.tensor(event["attention"][0]["weights"]) for event in events}
    figure = heads_figure(maps, queries=tokens, keys=tokens).svg()
    summary = "<summary>The map of the first text during training</summary>"
    return f'<div class="card"><details>{summary}<div class="fit">{figure}</div></details></div>'


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

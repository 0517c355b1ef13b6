"""Traces of models, attention maps, interventions on heads, and figures of attention."""

from softlook.lens.ablation import ablate as ablate
from softlook.lens.figures.attention_map import attention_figure as attention_figure
from softlook.lens.figures.attention_map import heads_figure as heads_figure
from softlook.lens.rollout import attention_rollout as attention_rollout
from softlook.lens.trace import AttentionTrace as AttentionTrace
from softlook.lens.trace import Trace as Trace
from softlook.lens.trace import attention_maps as attention_maps
from softlook.lens.trace import trace as trace

__all__ = [
    "AttentionTrace",
    "Trace",
    "ablate",
    "attention_figure",
    "attention_maps",
    "attention_rollout",
    "heads_figure",
    "trace",
]

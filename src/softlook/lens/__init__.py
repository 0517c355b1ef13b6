"""Traces of models, attention maps, interventions on heads, and figures of attention."""

from softlook.lens.ablation import ablate as ablate
from softlook.lens.contributions import LogitContributions as LogitContributions
from softlook.lens.contributions import logit_contributions as logit_contributions
from softlook.lens.copying import copying_scores as copying_scores
from softlook.lens.figure import attention_figure as attention_figure
from softlook.lens.figure import heads_figure as heads_figure
from softlook.lens.head_scores import head_table as head_table
from softlook.lens.head_table import HeadTable as HeadTable
from softlook.lens.logit_lens import logit_lens as logit_lens
from softlook.lens.rollout import attention_rollout as attention_rollout
from softlook.lens.score_decomposition import ScoreParts as ScoreParts
from softlook.lens.score_decomposition import decompose_scores as decompose_scores
from softlook.lens.trace import AttentionTrace as AttentionTrace
from softlook.lens.trace import Trace as Trace
from softlook.lens.trace import attention_maps as attention_maps
from softlook.lens.trace import trace as trace
from softlook.lens.value_weighted import value_weighted_attention as value_weighted_attention

__all__ = [
    "AttentionTrace",
    "HeadTable",
    "LogitContributions",
    "ScoreParts",
    "Trace",
    "ablate",
    "attention_figure",
    "attention_maps",
    "attention_rollout",
    "copying_scores",
    "decompose_scores",
    "head_table",
    "heads_figure",
    "logit_contributions",
    "logit_lens",
    "trace",
    "value_weighted_attention",
]

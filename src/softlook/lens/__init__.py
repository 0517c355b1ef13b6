"""Traces of models, attention maps, interventions on heads, and figures of attention."""

from softlook.lens.ablation import ablate as ablate
from softlook.lens.contributions import LogitContributions as LogitContributions
from softlook.lens.contributions import logit_contributions as logit_contributions
from softlook.lens.copying import copying_scores as copying_scores
from softlook.lens.effects import head_effects as head_effects
from softlook.lens.figures.attention_map import attention_figure as attention_figure
from softlook.lens.figures.attention_map import heads_figure as heads_figure
from softlook.lens.flow import attention_flow as attention_flow
from softlook.lens.head_scores import head_table as head_table
from softlook.lens.head_table import HeadTable as HeadTable
from softlook.lens.interventions import attention_temperature as attention_temperature
from softlook.lens.interventions import mask_keys as mask_keys
from softlook.lens.logit_lens import logit_lens as logit_lens
from softlook.lens.patching import patch as patch
from softlook.lens.rollout import attention_rollout as attention_rollout
from softlook.lens.score_decomposition import ScoreParts as ScoreParts
from softlook.lens.score_decomposition import decompose_scores as decompose_scores
from softlook.lens.trace import AttentionTrace as AttentionTrace
from softlook.lens.trace import Trace as Trace
from softlook.lens.trace import attention_maps as attention_maps
from softlook.lens.trace import decode_tokens as decode_tokens
from softlook.lens.trace import load_trace as load_trace
from softlook.lens.trace import trace as trace
from softlook.lens.twins import Twins as Twins
from softlook.lens.twins import twins as twins
from softlook.lens.value_weighted import value_weighted_attention as value_weighted_attention

__all__ = [
    "AttentionTrace",
    "HeadTable",
    "LogitContributions",
    "ScoreParts",
    "Trace",
    "Twins",
    "ablate",
    "attention_figure",
    "attention_flow",
    "attention_maps",
    "attention_rollout",
    "attention_temperature",
    "copying_scores",
    "decompose_scores",
    "head_effects",
    "head_table",
    "decode_tokens",
    "heads_figure",
    "load_trace",
    "logit_contributions",
    "logit_lens",
    "mask_keys",
    "patch",
    "trace",
    "twins",
    "value_weighted_attention",
]

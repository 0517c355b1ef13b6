"""Attention maps of models, and figures of them."""

from softlook.lens.attention_maps import attention_maps as attention_maps
from softlook.lens.attention_maps import record_attention as record_attention
from softlook.lens.figure import attention_figure as attention_figure
from softlook.lens.figure import heads_figure as heads_figure

__all__ = ["attention_figure", "attention_maps", "heads_figure", "record_attention"]

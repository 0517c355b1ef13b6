"""Figures of attention maps."""

from softlook.lens.figure import attention_figure as attention_figure
from softlook.lens.figure import heads_figure as heads_figure

__all__ = ["attention_figure", "heads_figure"]

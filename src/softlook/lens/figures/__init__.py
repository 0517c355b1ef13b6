"""Figures of attention as SVG, PNG or HTML, drawn from numbers that the library computes."""

from softlook.lens.figures.attention_map import attention_figure as attention_figure
from softlook.lens.figures.attention_map import heads_figure as heads_figure
from softlook.lens.figures.decoding import BeamNode as BeamNode
from softlook.lens.figures.decoding import beam_tree_figure as beam_tree_figure
from softlook.lens.figures.decoding import translation_figure as translation_figure
from softlook.lens.figures.figure import Figure as Figure
from softlook.lens.figures.maps import alignment_figure as alignment_figure
from softlook.lens.figures.maps import head_map_figure as head_map_figure
from softlook.lens.figures.maps import patches_figure as patches_figure
from softlook.lens.figures.maps import twins_figure as twins_figure
from softlook.lens.figures.scores import contributions_figure as contributions_figure
from softlook.lens.figures.scores import curves_figure as curves_figure
from softlook.lens.figures.scores import head_scores_figure as head_scores_figure
from softlook.lens.figures.scores import probabilities_figure as probabilities_figure
from softlook.lens.figures.state import from_url as from_url
from softlook.lens.figures.summaries import look_figure as look_figure
from softlook.lens.figures.summaries import mask_figure as mask_figure
from softlook.lens.figures.summaries import trace_figure as trace_figure

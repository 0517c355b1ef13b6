"""Attention as a soft look-up."""

from softlook.ops import Look, attention, attention_and_look, attention_scores, attention_weights, explain, look, masks, scores

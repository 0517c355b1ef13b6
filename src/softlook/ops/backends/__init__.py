"""Attention backends: reference, SDPA, FlexAttention, tiled."""

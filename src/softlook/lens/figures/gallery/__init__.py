"""The gallery: pictures of the ideas of attention, each drawn from numbers that the library computes."""

from collections.abc import Callable

from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery import (
    architecture,
    costs,
    equivalences,
    heads,
    matrices,
    memories,
    norms,
    operation,
    positions,
    pronoun,
)

FIGURES: dict[str, Callable[[], Figure]] = {
    "notation": operation.notation,
    "dot_product": operation.dot_product,
    "basic_attention": operation.basic_attention,
    "queries_keys_values": operation.queries_keys_values,
    "soft_dictionary": operation.soft_dictionary,
    "pixel_projection": matrices.pixel_projection,
    "matrix_attention": matrices.matrix_attention,
    "softmax_temperature": matrices.softmax_temperature,
    "why_sqrt_d": matrices.why_sqrt_d,
    "permutation": heads.permutation,
    "pronoun": pronoun.pronoun,
    "multi_head": heads.multi_head,
    "fully_connected": equivalences.fully_connected,
    "convolution": equivalences.convolution,
    "causal_mask": heads.causal_mask,
    "encoder_decoder": architecture.encoder_decoder,
    "norm_placement": architecture.norm_placement,
    "norm_axes": norms.norm_axes,
    "gradient_flow": norms.gradient_flow,
    "path_and_cost": costs.path_and_cost,
    "position_encodings": positions.position_encodings,
    "positions_without_residuals": positions.positions_without_residuals,
    "fast_weights": memories.fast_weights_by_rule,
    "transformer_xl": memories.transformer_xl,
    "product_keys": memories.product_keys,
}
"""The figures by name, in the order of a chapter."""

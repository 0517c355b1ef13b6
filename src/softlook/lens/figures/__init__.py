"""Figures of attention as SVG, PNG or HTML, drawn from numbers that the library computes."""

from softlook.lens.figures.figure import Figure as Figure
from softlook.lens.figures.matrix import attention_map as attention_map
from softlook.lens.figures.matrix import matrix as matrix

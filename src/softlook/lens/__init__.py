"""Seeing inside: from maps to plain data and figures."""

from softlook.lens.figure import map_figure as map_figure
from softlook.lens.figure import maps_figure as maps_figure

__all__ = ["map_figure", "maps_figure"]

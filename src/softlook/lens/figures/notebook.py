"""IPython extension: notebooks show masks, looks and traces as figures.

    %load_ext softlook.lens.figures.notebook

Figures show themselves. Masks and looks belong to lower layers, which do not import figures: the extension registers
a formatter for each class instead.
"""

from collections.abc import Callable
from typing import Any

from softlook.base.errors import MaskError
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.summaries import look_figure, mask_figure, trace_figure
from softlook.lens.trace import Trace
from softlook.ops.look import Look
from softlook.ops.masks.base import Mask

FIGURES: dict[type, Callable[[Any], Figure]] = {Mask: mask_figure, Look: look_figure, Trace: trace_figure}
"""The figure of each class."""


def load_ipython_extension(shell: Any) -> None:
    """Register the figures with the HTML formatter of IPython; called by `%load_ext`."""
    formatter = shell.display_formatter.formatters["text/html"]
    for cls in FIGURES:
        formatter.for_type(cls, html_of)


def html_of(value: Any) -> str | None:
    """The HTML of a mask, look or trace; None if it has no figure, such as a mask of unknown size.

    >>> from softlook import masks
    >>> html_of(masks.causal())[:10]
    '<img alt="'
    """
    make = next(make for cls, make in FIGURES.items() if isinstance(value, cls))
    try:
        return make(value)._repr_html_()
    except MaskError:
        return None

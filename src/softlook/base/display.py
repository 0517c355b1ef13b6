"""Notebook display of values, by figures that are imported when they are needed."""

from importlib import import_module
from typing import Any


class Displayed:
    """Base of values that a notebook shows as a figure. Where there is none, it prints their repr."""

    def _repr_html_(self) -> str | None:
        figures: Any = import_module("softlook.lens.figures.summaries")  # a higher layer
        return figures.summary_html(self)

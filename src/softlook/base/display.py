"""Notebook display of values, by figures of a higher layer."""

from collections.abc import Callable
from typing import Any, ClassVar


class Displayed:
    """Base of values that a notebook shows as a figure. Where there is none, it prints their repr."""

    to_html: ClassVar[Callable[[Any], str | None]] = staticmethod(lambda value: None)
    """The figure of a value; `import softlook` sets it."""

    def _repr_html_(self) -> str | None:
        return Displayed.to_html(self)

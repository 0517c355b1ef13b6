"""What a model that goes on learning cannot heed: it is refused, rather than passed over in silence."""

from collections.abc import Mapping

from softlook.base.errors import ConfigError
from softlook.tabular.defaults import OPEN, OPEN_SHARES, Recipe
from softlook.tabular.unlabelled.pretraining_loop import SHAPE

BUILT = (*SHAPE, *OPEN, "shared", "dropout", *OPEN_SHARES)
"""What a model is built by; all else a recipe has may change while it learns."""


def check_same_model(before: Recipe, now: Recipe) -> None:
    """That a recipe asks for the model that there is, in whatever it does not leave open.

    >>> check_same_model(Recipe(dim=16), Recipe(dim=0, lr=1e-3))
    >>> check_same_model(Recipe(dim=16), Recipe(dim=32))
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: a warm start goes on with the model that there is, with dim=16; dim=32 came...
    """
    for name in BUILT:
        had, asked = getattr(before, name), getattr(now, name)
        is_open = (name in OPEN and not asked) or (name in OPEN_SHARES and asked is None)
        if had != asked and not is_open:
            raise _changed("the model that there is", f"{name}={had!r}", f"{name}={asked!r}")


def check_same_kinds(known: Mapping[str, str], told: Mapping[str, str]) -> None:
    """That columns are told to be what they are already read as."""
    for name, kind in told.items():
        if known[name] != kind:
            raise _changed("the columns as they were read", f"{name!r} as {known[name]!r}", repr(kind))


def _changed(what: str, had: str, came: str) -> ConfigError:
    return ConfigError(
        f"a warm start goes on with {what}, with {had}; {came} came. "
        "Leave it as it was, or begin anew: warm_start=False."
    )

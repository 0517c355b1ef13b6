"""Runs to be asked, made in a few seconds: hardly trained, for what is asked here is not how good they are."""

from pathlib import Path

from softlook.recipes import classify, fill, lm, translate, vectors
from tests.recipes.small import classifying, filling, language, near, translating

MAKERS = {
    "translate": (translate, translating),
    "lm": (lm, language),
    "classify": (classify, classifying),
    "fill": (fill, filling),
    "vectors": (vectors, near),
}


def made_runs(folder: Path, *tasks: str) -> dict[str, Path]:
    """A run of each task, or of some, by its name."""
    found = {}
    for name in tasks or MAKERS:
        learn, settings = MAKERS[name]
        (folder / name).mkdir()
        found[name] = learn(settings(folder / name)).folder  # pyright: ignore[reportArgumentType]
    return found

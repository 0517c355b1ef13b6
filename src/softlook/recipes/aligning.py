"""Where each word of a run's translations looked while it was said."""

from collections.abc import Sequence

from softlook.decode.alignment import Alignment as Alignment
from softlook.decode.alignment import aligned, looks
from softlook.decode.alignment import pharaoh as pharaoh
from softlook.recipes.opened import Opened

TOGETHER = 32
"""Translations that are looked at together."""


def alignments(run: Opened, sources: Sequence[Sequence[int]], said: Sequence[Sequence[int]]) -> list[Alignment]:
    """For sources, as they were read with their signs, and what was said of each."""
    found: list[Alignment] = []
    for start in range(0, len(sources), TOGETHER):
        ones, others = sources[start : start + TOGETHER], said[start : start + TOGETHER]
        maps = looks(run.model, ones, [[*run.signs.begin, *target] for target in others])
        for weights, source, target in zip(maps, ones, others, strict=True):
            found.append(aligned(run.tokenizer, run.signs, weights[: len(target)], source, target))
    return found

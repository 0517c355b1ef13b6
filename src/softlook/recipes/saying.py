"""Texts in, translations out: many at once, the longest first."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from softlook.decode import Hypothesis, Said, beam, generate, speaker_for
from softlook.decode.habits import Habits, alone, usual
from softlook.decode.rules import ends_of
from softlook.tokens import TextTokenizer
from softlook.train.examples import padded, there

ROOM, LARGE = 8192, 262_144
"""Tokens that are worked on at once, over all beams: a GPU is at its best with thousands of rows, if it has room."""
BYTES = 1 << 19
"""Memory of a GPU for each such token, with all that is made of it."""
MOST = 1024
"""Texts that are worked on at once."""
ENDLESS = 8192
"""Words of an answer where neither the model nor anybody else says how many there may be."""
PLAIN = Habits()


def translated(
    model: nn.Module, tokenizer: TextTokenizer, texts: Sequence[str], *, beams: int = 1, penalty: float = 1.0
) -> list[str]:
    """Each text in the other language: the likeliest word after the other, or by beam search."""
    rows = [[*ids, tokenizer.end] for ids in tokenizer.encode(texts)]
    signs: dict[str, Any] = {"begin": tokenizer.begin, "end": tokenizer.end, "pad": tokenizer.pad}
    return [tokenizer.decode(said[0].ids) for said in candidates(model, rows, beams=beams, penalty=penalty, **signs)]


def candidates(
    model: nn.Module,
    sources: Sequence[Sequence[int]],
    *,
    begin: int,
    end: int | Collection[int],
    pad: int = 0,
    beams: int = 1,
    penalty: float = 1.0,
    habits: Habits = PLAIN,
) -> list[list[Hypothesis]]:
    """For each source, as it is read, the answers that were found, best first: as many as beams, or the likeliest.

    Of habits, the rules, the lengths and the early stopping are kept; beams and penalty are those that are told.
    """
    device = next(model.parameters()).device
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for numbers in batches([len(row) for row in sources], beams, room_on(device)):
        rows = [sources[number] for number in numbers]
        speaker = speaker_for(model, padded(rows, pad).to(device), there(rows).to(device))
        longest = min(habits.room(len(rows[0])), (speaker.context or ENDLESS) - 1)
        rules = habits.rules(longest, tuple(ends_of(end)), partial(_source, rows))
        told: dict[str, Any] = {"end": end, "longest": longest, "rules": rules}
        if beams == 1:
            answers = generate(speaker, [[begin]] * len(rows), **told)
            said = [[alone(answer.tokens, answer.end, penalty)] for answer in answers]
        else:
            start = torch.full((len(rows), 1), begin, device=device)
            said = beam(speaker, start, beams=beams, penalty=penalty, early_stopping=habits.early, **told)
        for number, hypotheses in zip(numbers, said, strict=True):
            found[number] = [replace(one, cut=habits.is_cut(one, longest)) for one in hypotheses]
    return found


def _source(rows: Sequence[Sequence[int]], said: Said) -> Sequence[int]:
    return rows[said.number]


def room_on(device: torch.device) -> int:
    """Tokens that are worked on at once on a device.

    >>> room_on(torch.device("cpu"))
    8192
    """
    if device.type != "cuda":
        return ROOM
    return max(ROOM, min(LARGE, torch.cuda.get_device_properties(device).total_memory // BYTES))


def batches(lengths: Sequence[int], beams: int, room: int) -> Iterator[list[int]]:
    """Numbers of texts that are alike in length, their answers too, as many as there is room for.

    >>> list(batches([3, 9, 2, 8], beams=2, room=36))
    [[1], [3, 0], [2]]
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        is_full = batch and ((len(batch) + 1) * lengths[batch[0]] * beams > room or len(batch) == MOST)
        if is_full or (batch and usual(lengths[number]) != usual(lengths[batch[0]])):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch

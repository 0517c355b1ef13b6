"""Texts as ids, made on the spot: of natural lengths, and with something in them that can be learned."""

import torch

PAD, END, FIRST, SEPARATOR, WORDS = range(5)
"""Ids that mean something; from WORDS on they are words."""
Text = list[int]


def corpus(length: int, vocab: int, seed: int = 0) -> Text:
    """One long text. Each word is drawn by the one before it, among a few of which the first are the likeliest."""
    dice = torch.Generator().manual_seed(seed)
    steps = _rare(length, 8, dice).tolist()
    ids, word = [], 0
    for step in steps:
        word = (word * 5 + step + 1) % (vocab - WORDS)
        ids.append(WORDS + word)
    return ids


def classed(count: int, vocab: int, *, longest: int, seed: int = 0) -> list[tuple[Text, int]]:
    """Texts of two classes, which like even and odd words better."""
    dice = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=dice).tolist()
    made = []
    for length, label in zip(lengths(count, 32, 0.7, longest, dice), labels, strict=True):
        words = _rare(length, vocab - WORDS - 1, dice)
        swayed = torch.rand(length, generator=dice) < 0.3
        words = torch.where(swayed, words // 2 * 2 + label, words)
        made.append((words.clamp(max=vocab - WORDS - 1).add(WORDS).tolist(), label))
    return made


def translated(count: int, vocab: int, *, longest: int, seed: int = 0) -> list[tuple[Text, Text]]:
    """Texts and their translations: word by word another one, with some left out or said twice."""
    dice = torch.Generator().manual_seed(seed)
    made = []
    for length in lengths(count, 22, 0.6, longest, dice):
        source = _rare(length, vocab - WORDS, dice)
        repeats = torch.tensor([0, 1, 1, 1, 1, 1, 1, 2])[torch.randint(8, (length,), generator=dice)]
        target = source.flip(0).repeat_interleave(repeats) if int(repeats.sum()) else source
        made.append(((source + WORDS).tolist(), (target + WORDS).tolist()[:longest]))
    return made


def lengths(count: int, middle: float, spread: float, longest: int, dice: torch.Generator) -> list[int]:
    """Log-normal, as lengths of sentences and reviews are: many near the middle, some several times as long."""
    drawn = middle * (spread * torch.randn(count, generator=dice)).exp()
    return drawn.round().long().clamp(3, longest).tolist()


def _rare(count: int, kinds: int, dice: torch.Generator) -> torch.Tensor:
    """Numbers below `kinds`; as with words, each is about as rare as its place in the list is far."""
    return (kinds ** torch.rand(count, generator=dice) - 1).long().clamp(0, kinds - 1)

"""Synthetic token sequences with realistic lengths and learnable structure."""

import torch

PAD, EOS, CLS, SEP, WORDS = range(5)
"""Special tokens; words start at WORDS."""
Text = list[int]


def make_corpus(length: int, vocab: int, seed: int = 0) -> Text:
    """One long text from a Markov chain with few successors per word."""
    generator = torch.Generator().manual_seed(seed)
    steps = _zipf(length, 8, generator).tolist()
    ids, word = [], 0
    for step in steps:
        word = (word * 5 + step + 1) % (vocab - WORDS)
        ids.append(WORDS + word)
    return ids


def labeled_texts(count: int, vocab: int, *, max_length: int, seed: int = 0) -> list[tuple[Text, int]]:
    """Texts of two classes, with more even or more odd words."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator).tolist()
    examples = []
    for length, label in zip(lengths(count, 32, 0.7, max_length, generator), labels, strict=True):
        words = _zipf(length, vocab - WORDS - 1, generator)
        biased = torch.rand(length, generator=generator) < 0.3
        words = torch.where(biased, words // 2 * 2 + label, words)
        examples.append((words.clamp(max=vocab - WORDS - 1).add(WORDS).tolist(), label))
    return examples


def translation_pairs(count: int, vocab: int, *, max_length: int, seed: int = 0) -> list[tuple[Text, Text]]:
    """Texts and their reversals, with some words dropped or repeated."""
    generator = torch.Generator().manual_seed(seed)
    examples = []
    for length in lengths(count, 22, 0.6, max_length, generator):
        source = _zipf(length, vocab - WORDS, generator)
        repeats = torch.tensor([0, 1, 1, 1, 1, 1, 1, 2])[torch.randint(8, (length,), generator=generator)]
        target = source.flip(0).repeat_interleave(repeats) if int(repeats.sum()) else source
        examples.append(((source + WORDS).tolist(), (target + WORDS).tolist()[:max_length]))
    return examples


def lengths(count: int, median: float, sigma: float, max_length: int, generator: torch.Generator) -> list[int]:
    """Log-normal lengths, as of sentences and reviews."""
    samples = median * (sigma * torch.randn(count, generator=generator)).exp()
    return samples.round().long().clamp(3, max_length).tolist()


def _zipf(count: int, count_words: int, generator: torch.Generator) -> torch.Tensor:
    """Numbers below `count_words` with Zipf-like frequencies."""
    return (count_words ** torch.rand(count, generator=generator) - 1).long().clamp(0, count_words - 1)

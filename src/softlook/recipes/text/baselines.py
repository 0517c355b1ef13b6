"""Baselines of text tasks: simple models, fitted on the same data, to which a trained model is compared.

Each function returns rows for the table of scores: the name of the model, the scores that the task computes for its
own model on the same examples, and the seconds it took.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.data import TextPair
from softlook.losses import IGNORE_INDEX
from softlook.recipes.text.metrics import translation_scores
from softlook.recipes.text.neighbor_model import NeighborModel
from softlook.recipes.text.ngram_lm import KneserNeyModel
from softlook.recipes.text.translation_memory import TranslationMemory
from softlook.train.batching.collate import MaskedLMBatch
from softlook.train.batching.masking import DocumentStore
from softlook.train.batching.packed_stream import TokenizedDocuments
from softlook.train.batching.token_store import TokenStore

DEFAULT_SECONDS = 60.0
MAX_UNIGRAM_TOKENS = 10_000_000
"""Tokens in which the frequency of each token is counted."""
TRIAL_TOKENS = 200_000
"""Tokens that a model is first fitted on, to measure its time."""
MAX_TOKENS, MAX_SENTENCE_TOKENS = 10_000_000, 5_000_000
"""Training tokens of a baseline, in documents and in sentences: an 8-gram model takes about 160 bytes for each."""
SLOWDOWN = 2.5
"""How much slower a token is in a large text, whose n-grams do not fit into the caches of a processor."""
BLOCK_TOKENS = 1 << 16
"""Consecutive tokens of a sample of the training text."""
SUBWORD_ORDER, CHARACTER_ORDER = 5, 8
SUBWORD_BYTES = 2.0
"""Bytes per token from which tokens count as subwords."""
MAX_PAIRS = 200_000
"""Pairs of the translation memory."""
Row = dict[str, Any]


def causal_lm_baselines(
    train: TokenizedDocuments,
    valid: TokenizedDocuments,
    *,
    vocab_size: int,
    num_bytes: int,
    order: int | None = None,
    seconds: float = DEFAULT_SECONDS,
) -> list[Row]:
    """An n-gram language model: loss and perplexity per token, bits per byte, on all of the validation text.

    `num_bytes` is the size of the validation text. `order` defaults to 5, and to 8 for characters.

    >>> documents = TokenizedDocuments(torch.tensor([1, 2, 3] * 20), torch.tensor([0]))
    >>> [row] = causal_lm_baselines(documents, documents, vocab_size=4, num_bytes=60)
    >>> row["model"], row["perplexity"] < 1.1
    ('8-gram (modified Kneser-Ney)', True)
    """
    start = time.perf_counter()
    order = ngram_order(num_bytes, len(valid.ids)) if order is None else order

    def fit(documents: TokenizedDocuments) -> KneserNeyModel:
        return KneserNeyModel(documents, vocab_size=vocab_size, order=order)

    logprobs = fit_within(fit, train, seconds).logprobs(valid)
    loss, count = -float(logprobs.mean()) if len(logprobs) else 0.0, len(logprobs)
    row = {"model": f"{order}-gram (modified Kneser-Ney)", "loss": loss, "perplexity": math.exp(min(loss, 80.0))}
    row["bits_per_byte"] = loss * count / max(num_bytes, 1) / math.log(2)
    return [row | {"seconds": time.perf_counter() - start}]


def ngram_order(size: int, tokens: int) -> int:
    """Length of the longest n-grams for a text of so many bytes or characters in so many tokens.

    >>> ngram_order(300, 100), ngram_order(100, 100)
    (5, 8)
    """
    return SUBWORD_ORDER if size / max(tokens, 1) >= SUBWORD_BYTES else CHARACTER_ORDER


def masked_lm_baselines(
    train: DocumentStore,
    batches: Sequence[MaskedLMBatch],
    *,
    vocab_size: int,
    special_ids: Sequence[int],
    mask_id: int,
    seconds: float = DEFAULT_SECONDS,
) -> list[Row]:
    """The frequency of tokens, and their frequency between two neighbors, at the masked positions of batches.

    `special_ids` are all special tokens; `batches` are those of the evaluation, on the CPU.
    """
    if not any((batch.labels != IGNORE_INDEX).any() for batch in batches):
        return []
    start = time.perf_counter()
    known = [id for id in special_ids if id != mask_id]

    def fit(documents: TokenizedDocuments) -> NeighborModel:
        return NeighborModel(documents, vocab_size=vocab_size)

    model = fit_within(fit, sample_sentences(train.sentences, MAX_SENTENCE_TOKENS), seconds)
    left, right, labels = (torch.cat(parts) for parts in zip(*map(_masked_positions, batches), strict=True))
    left, right = (_neighbors(side, known, mask_id, vocab_size) for side in (left, right))
    unigram = model.unigram[labels].log()
    likeliest = int(model.unigram.argmax())
    rows = [
        {
            "model": "unigram",
            "loss": -float(unigram.mean()),
            "accuracy": float((labels == likeliest).double().mean()),
            "seconds": time.perf_counter() - start,
        }
    ]
    probabilities, predictions = model.predict(left, right, labels)
    rows.append(
        {
            "model": "left and right neighbor",
            "loss": -float(probabilities.log().mean()),
            "accuracy": float((predictions == labels).double().mean()),
            "seconds": time.perf_counter() - start,
        }
    )
    return rows


def _masked_positions(batch: MaskedLMBatch) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens left and right of each masked position, and its label."""
    row, column = (batch.labels != IGNORE_INDEX).nonzero(as_tuple=True)
    last = batch.ids.shape[1] - 1
    left, right = batch.ids[row, (column - 1).clamp(min=0)], batch.ids[row, (column + 1).clamp(max=last)]
    return left, right, batch.labels[row, column]


def _neighbors(ids: Tensor, special_ids: Sequence[int], mask_id: int, vocab_size: int) -> Tensor:
    """Special tokens as the end of a sentence, and masked tokens as unknown."""
    ids = ids.masked_fill(torch.isin(ids, torch.tensor(list(special_ids), dtype=ids.dtype)), vocab_size)
    return ids.masked_fill(ids == mask_id, NeighborModel.UNKNOWN)


def fit_within(fit: Callable[[TokenizedDocuments], Any], train: TokenizedDocuments, seconds: float) -> Any:
    """Fit on all of the training text, or on a sample of it that takes about this many seconds."""
    if not len(train.ids):
        raise DataError("a baseline needs training text, got none")
    start = time.perf_counter()
    model = fit(sample_documents(train, TRIAL_TOKENS))
    passed = time.perf_counter() - start
    if len(train.ids) <= TRIAL_TOKENS:
        return model
    affordable = int(TRIAL_TOKENS * max(seconds - passed, 0) / max(SLOWDOWN * passed, 1e-6))
    return model if affordable <= TRIAL_TOKENS else fit(sample_documents(train, min(affordable, MAX_TOKENS)))


def sample_documents(documents: TokenizedDocuments, count: int) -> TokenizedDocuments:
    """About `count` tokens, in blocks evenly spaced over all documents; all of them if there are no more.

    >>> documents = TokenizedDocuments(torch.arange(1 << 20), torch.tensor([0]))
    >>> len(sample_documents(documents, 200_000).ids), len(sample_documents(documents, 1 << 20).starts)
    (200000, 1)
    """
    total = len(documents.ids)
    if total <= count:
        return documents
    num_blocks = -(-count // BLOCK_TOKENS)
    length = count // num_blocks
    begins = torch.linspace(0, total - length, num_blocks).long()
    starts, ids = [], []
    for number, begin in enumerate(begins.tolist()):
        first, last = torch.searchsorted(documents.starts, torch.tensor([begin + 1, begin + length])).tolist()
        inner = documents.starts[first:last] - begin
        starts.append(torch.cat([inner.new_zeros(1), inner]) + number * length)
        ids.append(documents.ids[begin : begin + length].long())
    return TokenizedDocuments(torch.cat(ids), torch.cat(starts))


def sample_sentences(store: TokenStore, count: int) -> TokenizedDocuments:
    """About `count` tokens of the first row of examples, evenly spaced; all of them if there are no more.

    >>> from softlook.train.batching.token_store import store_in_memory
    >>> sample_sentences(store_in_memory([([5, 6], [1]), ([7], [])], vocab_size=10, rows=2), 100)
    TokenizedDocuments(ids=tensor([5, 6, 7]), starts=tensor([0, 2]))
    """
    step = -(-int(store.lengths().sum()) // count)
    rows = [store[number][0] for number in range(0, len(store), max(step, 1))]
    lengths = torch.tensor([len(row) for row in rows])
    return TokenizedDocuments(torch.tensor(list(chain.from_iterable(rows))), lengths.cumsum(0) - lengths)


def translation_baselines(
    train: Iterable[TextPair],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    max_pairs: int = MAX_PAIRS,
    seconds: float = DEFAULT_SECONDS,
) -> list[Row]:
    """BLEU and chrF of copying the source, of the most frequent target, and of a translation memory.

    The translation memory answers with the target of the training pair with the most similar source: the cosine of
    TF-IDF vectors of words.

    >>> train = [TextPair("a red car", "rotes Auto"), TextPair("a blue car", "blaues Auto")]
    >>> rows = translation_baselines(train, ["the blue car"], ["blaues Auto"])
    >>> [row["model"] for row in rows], rows[-1]["chrf"]
    (['copy of the source', 'most frequent target', 'translation memory (TF-IDF)'], 100.0)
    """
    if not sources:
        return []
    begin = time.perf_counter()
    pairs = [(pair.source, pair.target) for pair in islice(train, max_pairs)]
    if not pairs:
        raise DataError("a baseline needs training pairs, got none")
    frequent = Counter(target for _, target in pairs).most_common(1)[0][0]
    memory = TranslationMemory(pairs)
    outputs = {
        "copy of the source": lambda: list(sources),
        "most frequent target": lambda: [frequent] * len(sources),
        "translation memory (TF-IDF)": lambda: memory.translate(sources, seconds - (time.perf_counter() - begin)),
    }
    rows = []
    for name, translate in outputs.items():
        start = time.perf_counter()
        scores = translation_scores(translate(), references)
        row = {"model": name, "bleu": scores["bleu"], "chrf": scores["chrf"], "seconds": time.perf_counter() - start}
        rows.append(row)
    return rows


def unigram_loss(train: Tensor, valid: Tensor, vocab_size: int) -> float:
    """The loss of predicting every token by its frequency alone.

    >>> round(unigram_loss(torch.tensor([1, 1, 2]), torch.tensor([1, 2]), 3), 2)
    0.9
    """
    some = (ids[:MAX_UNIGRAM_TOKENS].long() for ids in (train, valid))
    counts, expected = (torch.bincount(ids, minlength=vocab_size).float() for ids in some)
    frequency = (counts + 1) / (counts + 1).sum()
    return float(-(expected * frequency.log()).sum() / expected.sum().clamp(min=1))

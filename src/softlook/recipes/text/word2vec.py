"""Word vectors: word2vec's skip-gram with negative sampling."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError, DataError
from softlook.data import TextExample, read_sentences
from softlook.losses import negative_sampling
from softlook.models import SkipGram, SkipGramConfig
from softlook.ops.word2vec import most_similar, negative_distribution, skipgram_pairs
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, training_tokens
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides
from softlook.recipes.config.schema import Files, Word2VecConfig
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.text.corpus import Corpus, CorpusSplit, TokenCache, chunk_by_size
from softlook.recipes.text.pretrained import apply_lora, load_pretrained
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.tokens import TextTokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.collate import Ids, make_padding_mask, pad_sequences
from softlook.train.batching.token_store import CHUNK, TokenStore
from softlook.train.events import Callback
from softlook.train.objectives import make_loss_evaluator
from softlook.train.rng import make_generator
from softlook.train.train_step import Loss

VECTORS_FILE = "vectors.txt"
SUBSAMPLING_THRESHOLD = 1e-3
"""Relative frequency above which words are subsampled (Mikolov et al., 2013)."""
NUM_SAMPLES, EVAL_LINES = 8, 500


def train_word2vec(
    config: ConfigLike[Word2VecConfig], callbacks: Sequence[Callback] = (), *, progress: bool = True
) -> TrainResult:
    """Train word vectors: `softlook train word2vec --data corpus.txt`. The run directory contains them as vectors.txt.

    >>> from softlook.recipes import Word2VecConfig
    >>> from softlook.train import TrainingConfig
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles hang\\n" for n in range(99)))
    >>> result = train_word2vec(Word2VecConfig(data=(Path("corpus.txt"),), training=TrainingConfig(max_steps=2)))
    >>> (result.run_dir / "vectors.txt").exists()
    True
    """
    return run_task(Word2VecTask(), config, callbacks, progress=progress)


@dataclass(frozen=True)
class SkipGramBatch:
    """Words, and for each a context word followed by negative samples."""

    center: Int[Tensor, " B"]
    candidates: Int[Tensor, "B K"]


class Word2VecTask(TextTask[Word2VecConfig, TextExample]):
    """Sentences, a skip-gram model, and nearest neighbors as samples."""

    config, reader = Word2VecConfig, staticmethod(read_sentences)

    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        words = characters / 5.5
        dim = 100 if words < 20e6 else 300
        values = {
            "tokenizer.type": "words",
            "tokenizer.vocab_size": int(min(max(words / 20, 500), 50_000)),
            "model.dim": dim,
            "batch.max_tokens": int(min(max(words / 40, 256), 4096)),
            "batch.max_length": 512,
            "optim.lr": 5e-3,
            "optim.schedule": "cosine",
            "optim.weight_decay": 0.0,
        }
        return AutoSettings(values, [f"About {words:,.0f} words: vectors of dimension {dim}."])

    def build_plan(
        self, corpus: Corpus[TextExample], config: Word2VecConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        if config.test:
            raise ConfigError("word vectors have no score on test data. Remove --test.")
        max_length = config.batch.max_length or 512
        encode = partial(encode_lines, tokenizer=tokenizer, max_length=max_length)
        cache = TokenCache(corpus, tokenizer, config.run_dir)
        train = cache.store(encode(corpus.train), f"words {max_length}")
        if not len(train):
            raise DataError("no line has two words", help="skip-gram needs context words")
        valid = list(islice(encode(corpus.valid), EVAL_LINES)) or train[:EVAL_LINES]
        sampler = SkipGramSampler(train, tokenizer, config)
        max_tokens, seed = config.batch.max_tokens or 4096, config.training.seed
        buckets = LengthBucketedBatches(train, train.lengths(), list, max_tokens=max_tokens, seed=seed)
        tokens = float(len(train.ids))
        return TrainingPlan(
            model=build_model(config, tokenizer),
            batches=SeededTransform(buckets, sampler, seed=seed),
            objective=skipgram_loss,
            evaluate=make_loss_evaluator([sampler(valid, make_generator(0))], skipgram_loss, device),
            sample=partial(sample_neighbors, tokenizer, sampler.counts),
            epoch_tokens=tokens,
            batch_tokens=max_tokens,
            total_tokens=training_tokens(tokens, 40e6, max_epochs=20),
            finalize=partial(write_word2vec, tokenizer),
        )

    def evaluate(self, config: Word2VecConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        raise ConfigError(f"word vectors have no score on other data. See {VECTORS_FILE} in the run directory.")


def build_model(config: Word2VecConfig, tokenizer: TextTokenizer) -> nn.Module:
    """New or pretrained word vectors."""
    vocab_size = tokenizer.vocab_size
    if config.init_from is not None:
        model = load_pretrained(config.init_from, SkipGram, "embed words", vocab_size=vocab_size)
        return apply_lora(model, config.lora)
    return SkipGram(SkipGramConfig(vocab_size=vocab_size, dim=config.model.dim or 100))


def encode_lines(split: CorpusSplit[TextExample], *, tokenizer: TextTokenizer, max_length: int) -> Iterator[tuple[Ids]]:
    """Word ids of each line that has at least two."""
    for chunk in chunk_by_size(split, lambda example: len(example.text)):
        for row in tokenizer.encode([example.text[:MAX_TEXT_CHARS] for example in chunk]):
            if len(row) > 1:
                yield (row[:max_length],)


class SkipGramSampler:
    """Turns sentences into words with a context word and negative samples; frequent words are subsampled."""

    def __init__(self, store: TokenStore, tokenizer: TextTokenizer, config: Word2VecConfig) -> None:
        self.window, self.negatives = config.window, config.negatives
        self.counts = torch.zeros(tokenizer.vocab_size, dtype=torch.long)
        for chunk in store.tensors()[0].split(CHUNK):
            self.counts += torch.bincount(chunk.long(), minlength=tokenizer.vocab_size)
        special = list(tokenizer.special_ids)
        self.counts[special] = 0
        self.negative_distribution = negative_distribution(self.counts)
        frequency = self.counts / self.counts.sum().clamp(min=1)
        self.keep_probability = (SUBSAMPLING_THRESHOLD / frequency.clamp(min=1e-12)).sqrt().clamp(max=1.0)
        self.keep_probability[special] = 0.0

    def __call__(self, items: Sequence[Sequence[Ids]], generator: torch.Generator) -> SkipGramBatch:
        rows = [row for (row,) in items]
        ids, mask = pad_sequences(rows), make_padding_mask(rows)
        mask = mask & (torch.rand(ids.shape, generator=generator) < self.keep_probability[ids])
        center, context = skipgram_pairs(ids, self.window, padding_mask=mask)
        count = max(len(center), 1) * self.negatives
        negatives = torch.multinomial(self.negative_distribution, count, replacement=True, generator=generator)
        negatives = negatives.view(-1, self.negatives)[: len(center)]
        return SkipGramBatch(center, torch.cat([context[:, None], negatives], 1))


def skipgram_loss(model: nn.Module, batch: SkipGramBatch) -> Loss:
    """Negative-sampling loss, summed over the words."""
    count = len(batch.center)
    if not count:
        return Loss(sum(p.sum() for p in model.parameters()) * 0.0, 0)  # pyright: ignore[reportArgumentType]
    return Loss(negative_sampling(model(batch.center, batch.candidates)) * count, count)


def sample_neighbors(tokenizer: TextTokenizer, counts: Tensor, model: nn.Module) -> list[Sample]:
    """The nearest neighbors of some frequent words."""
    assert isinstance(model, SkipGram)
    by_frequency = counts.argsort(descending=True)[: int((counts > 0).sum())]
    words = by_frequency[len(by_frequency) // 20 :][:NUM_SAMPLES]
    if len(by_frequency) < 6:
        return []
    neighbors = most_similar(model.input_vectors.weight.detach().cpu(), words, 5)

    def word(id: Tensor) -> str:
        return tokenizer.tokenizer.id_to_token(int(id)) or ""

    return [
        {"word": word(id), "nearest": ", ".join(word(other) for other in others)}
        for id, others in zip(words, neighbors, strict=True)
    ]


def write_word2vec(tokenizer: TextTokenizer, folder: Path, model: nn.Module) -> None:
    """Write the vectors in word2vec's text format: count and dimension, then one word and its vector per line."""
    assert isinstance(model, SkipGram)
    vectors = model.input_vectors.weight.detach().cpu().tolist()
    special = set(tokenizer.special_ids)
    rows = [(tokenizer.tokenizer.id_to_token(i), row) for i, row in enumerate(vectors) if i not in special]
    with (folder / VECTORS_FILE).open("w", encoding="utf-8") as file:
        file.write(f"{len(rows)} {len(vectors[0])}\n")
        file.writelines(f"{word} {' '.join(f'{number:.5f}' for number in row)}\n" for word, row in rows)

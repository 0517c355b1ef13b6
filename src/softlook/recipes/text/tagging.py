"""Token tagging, such as named entity recognition: encoders with a token classification head."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from softlook.base.errors import DataError
from softlook.data import TaggedText, read_tagged
from softlook.data.tags import OUTSIDE, find_entities, split_tag
from softlook.losses import IGNORE_INDEX
from softlook.models import Bert, BertConfig, Deberta
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize, training_tokens
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import Files, TaggingConfig
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.inference.tagging import word_logits
from softlook.recipes.text.corpus import MAX_VALIDATION_EXAMPLES, Corpus, TokenCache, chunk_by_size
from softlook.recipes.text.entity_metrics import per_label_scores, tagging_scores
from softlook.recipes.text.pretrained import (
    apply_lora,
    fine_tuning_lr,
    fine_tuning_tokens,
    load_pretrained,
    replace_head,
)
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.tokens import TextTokenizer
from softlook.tokens.words import WordEncoder
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.collate import Ids, TokenClassificationBatch, collate_token_classification
from softlook.train.batching.token_store import StoredExample
from softlook.train.events import Callback
from softlook.train.objectives import classification

TOTAL_TOKENS = 4e6
"""Tokens over all epochs from scratch, below which small data are read up to forty times."""
MAX_TAGS = 10_000
"""Number of different tags above which the last column is not one of tags."""
SMALL_DATA_CHARACTERS = 20_000_000
"""Characters of text below which a large model overfits."""
SMALL_DATA_VALUES: dict[str, Any] = {
    "model.dim": 128,
    "model.depth": 2,
    "model.heads": 4,
    "model.dropout": 0.1,
    "optim.lr": 1e-3,
}


def train_tagging(
    config: ConfigLike[TaggingConfig], callbacks: Sequence[Callback] = (), *, progress: bool = True
) -> TrainResult:
    """Train a token tagger: `softlook train tag --data train.conll`.

    >>> from pathlib import Path
    >>> from softlook.recipes import TaggingConfig
    >>> from softlook.train import TrainingConfig
    >>> rows = "".join(f"Ada{n} B-PER\\nsings O\\n\\n" for n in range(40))
    >>> _ = Path("train.conll").write_text(rows)
    >>> config = TaggingConfig(data=(Path("train.conll"),), training=TrainingConfig(max_steps=2))
    >>> sorted(train_tagging(config).scores)
    ['accuracy', 'error', 'f1', 'loss', 'precision', 'recall']
    """
    return run_task(TaggingTask(), config, callbacks, progress=progress)


class TaggingTask(TextTask[TaggingConfig, TaggedText]):
    """Tagged sentences, an encoder with a token classification head, F1 of entities."""

    config, reader, max_valid = TaggingConfig, staticmethod(read_tagged), MAX_VALIDATION_EXAMPLES
    columns: ClassVar[dict[str, str]] = {}

    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        given = {"tokenizer.type": "bpe", **overrides.values}  # characters would make the text needlessly long
        overrides = ConfigOverrides(overrides.schema, given, overrides.origins)
        auto, _ = autosize(characters, overrides, budget, block_factor=12, max_dropout=0.3)
        auto.values["batch.max_length"] = 128
        if overrides.get("init_from"):
            auto.values |= {"optim.lr": fine_tuning_lr(overrides), "model.dropout": 0.1, "batch.max_tokens": 1024}
            auto.messages = [f"Fine-tuning {overrides.get('init_from')}: a few epochs at a low learning rate."]
        else:
            auto.values["reg.word_dropout"] = 0.1  # the context of a name must be enough
            if characters < SMALL_DATA_CHARACTERS:
                auto.values |= SMALL_DATA_VALUES
                auto.messages = ["Small data: a small model, with word dropout against overfitting."]
        return auto

    def build_plan(
        self, corpus: Corpus[TaggedText], config: TaggingConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        counts, valid = count_tags(corpus.train), list(corpus.valid)
        # An automatic split may hold out the only example of a tag.
        held_out = {tag for example in valid for tag in example.tags} if corpus.train.split is not None else set()
        names = sorted(counts.keys() | held_out, key=_tag_order)
        if len(names) < 2:
            raise DataError(f"all tokens have the tag {names[0]!r:.40}", help="the tag is the last column of a line")
        model = build_model(config, tokenizer, len(names))
        encoder = WordEncoder(tokenizer, min(config.batch.max_length or 128, model.config.context))
        cache, format = TokenCache(corpus, tokenizer, config.run_dir), f"tagged {encoder.max_ids} {names}"
        store = cache.store(label_rows(encoder, corpus.train, names), format, rows=3, num_ids=len(names) + 1)
        lengths, max_tokens, seed = store.lengths(0), config.batch.max_tokens or 2048, config.training.seed
        collate = partial(collate_stored, tokenizer.pad_id)
        batches = LengthBucketedBatches(store, lengths, collate, max_tokens=max_tokens, seed=seed)
        if config.reg.word_dropout:
            drop = partial(drop_words, config.reg.word_dropout, tokenizer.mask_id, encoder.num_before)
            batches = SeededTransform(batches, drop, seed=seed)
        tokens = float(lengths.sum())
        return TrainingPlan(
            model=model,
            batches=batches,
            objective=classification(config.reg.label_smoothing),
            evaluate=partial(evaluate_tags, encoder, valid, names, config.monitor),
            sample=partial(sample_predictions, encoder, valid, names),
            epoch_tokens=tokens,
            batch_tokens=max_tokens,
            total_tokens=fine_tuning_tokens(tokens) if config.init_from else training_tokens(tokens, TOTAL_TOKENS),
            test_cost=corpus.test_count / max(len(valid), 1),
            labels=names,
            messages=[_describe_tags(counts)],
        )

    def evaluate(self, config: TaggingConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        """Scores overall and of each label."""
        encoder = WordEncoder(pipeline.tokenizer, pipeline.max_input_length)
        examples = list(self.read(explicit_overrides(config), data))
        predicted = predict_tags(pipeline.model, encoder, examples, pipeline.labels)
        labels = [example.tags for example in examples]
        scores = tagging_scores(predicted, labels)
        return {"examples": len(examples), **scores, "labels": per_label_scores(predicted, labels)}


def build_model(config: TaggingConfig, tokenizer: TextTokenizer, num_tags: int) -> Any:
    """A new or a pretrained encoder with a token classification head."""
    vocab_size, dropout = tokenizer.vocab_size, config.model.dropout or 0.0
    if config.init_from is not None:
        encoder = load_pretrained(config.init_from, Bert | Deberta, "tag", vocab_size=vocab_size)
        model = replace_head(encoder, head="token_classification", classes=num_tags, dropout=dropout)
        return apply_lora(model, config.lora, pretrained=encoder, trainable=["head.to_classes"])
    sizes = {"context": config.batch.max_length or 128, "classes": num_tags, **config.model.model_dump()}
    return Bert(BertConfig(vocab_size=vocab_size, head="token_classification", **sizes))


def label_rows(
    encoder: WordEncoder, examples: Iterable[TaggedText], names: Sequence[str]
) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Ids and token types of each chunk, and the labels of its tokens plus one; 0 where a token has no label."""
    index = {name: number for number, name in enumerate(names, 1)}
    for group in chunk_by_size(examples, lambda example: sum(map(len, example.tokens))):
        for example, chunks in zip(group, encoder.encode([example.tokens for example in group]), strict=True):
            tags = iter(example.tags)
            for chunk in chunks:
                labels = [0] * len(chunk.ids)
                for position in chunk.positions:
                    labels[position] = index[next(tags)]
                yield chunk.ids, chunk.token_types, labels


def collate_stored(pad_id: int, items: Sequence[StoredExample]) -> TokenClassificationBatch:
    """A batch of items from a token store."""
    rows = [(ids, types, [label - 1 if label else IGNORE_INDEX for label in labels]) for ids, types, labels in items]
    return collate_token_classification(rows, pad_id=pad_id)


def drop_words(
    p: float, mask_id: int, num_before: int, batch: TokenClassificationBatch, generator: torch.Generator
) -> TokenClassificationBatch:
    """Word dropout: replace tokens by the mask token with probability `p`, except the special ones in front."""
    drop = torch.rand(batch.ids.shape, generator=generator) < p
    drop[:, :num_before] = False
    return replace(batch, ids=batch.ids.masked_fill(drop & batch.padding_mask, mask_id))


def predict_tags(
    model: nn.Module, encoder: WordEncoder, examples: Sequence[TaggedText], names: Sequence[str]
) -> list[list[str]]:
    """The most likely tag of each word, for each sentence."""
    logits = word_logits(model, encoder, [example.tokens for example in examples])
    return [[names[int(number)] for number in row.argmax(-1)] for row in logits]


def evaluate_tags(
    encoder: WordEncoder,
    examples: Sequence[TaggedText],
    names: Sequence[str],
    monitor: str,
    model: nn.Module,
    share: float = 1.0,
) -> dict[str, float]:
    """Validation scores, on a share of the examples. The first one, lower is better, selects the best checkpoint."""
    examples = examples[: math.ceil(share * len(examples))]
    index = {name: number for number, name in enumerate(names)}
    logits = word_logits(model, encoder, [example.tokens for example in examples])
    predicted = [[names[int(number)] for number in row.argmax(-1)] for row in logits]
    # A tag of given validation data that is not in the training data has no loss; its entities are counted as missed.
    numbers = [index.get(tag, IGNORE_INDEX) for example in examples for tag in example.tags]
    loss = nn.functional.cross_entropy(torch.cat(logits), torch.tensor(numbers), ignore_index=IGNORE_INDEX).item()
    scores = {"loss": loss, **tagging_scores(predicted, [example.tags for example in examples])}
    return {"error": 1 - scores["f1"], **scores} if monitor == "f1" else scores


def sample_predictions(
    encoder: WordEncoder, valid: Sequence[TaggedText], names: Sequence[str], model: nn.Module
) -> list[Sample]:
    """Predictions for a few validation sentences."""
    shown = valid[:3]
    predicted = predict_tags(model, encoder, shown, names)
    return [
        {
            "text": " ".join(example.tokens),
            "prediction": _format_entities(example.tokens, tags),
            "label": _format_entities(example.tokens, example.tags),
        }
        for example, tags in zip(shown, predicted, strict=True)
    ]


def _format_entities(tokens: Sequence[str], tags: Sequence[str]) -> str:
    entities = find_entities(tags)
    return ", ".join(f"{' '.join(tokens[start:end])} ({label})" for label, start, end in entities) or "none"


def count_tags(examples: Iterable[TaggedText]) -> Counter[str]:
    """The number of tokens with each tag."""
    counts: Counter[str] = Counter()
    for example in examples:
        counts.update(example.tags)
        if len(counts) > MAX_TAGS:
            message = f"there are more than {MAX_TAGS:,} different tags, the last of them {example.tags[-1]!r:.40}"
            raise DataError(message, help="the tag is the last column of a line")
    return counts


def _tag_order(tag: str) -> tuple[bool, str, str]:
    """O first, then by label; B before I."""
    prefix, label = split_tag(tag)
    return tag != OUTSIDE, label, prefix


def _describe_tags(counts: Counter[str]) -> str:
    labels = Counter[str]()
    for tag, count in counts.items():
        prefix, label = split_tag(tag)
        labels[label] += count if prefix in "BS" else 0
    listed = ", ".join(f"{label!r:.40}" for label, _ in labels.most_common(8) if label)
    share = counts[OUTSIDE] / counts.total()
    return f"{len(counts)} tags; labels: {listed}; {share:.0%} of the tokens are outside any entity."

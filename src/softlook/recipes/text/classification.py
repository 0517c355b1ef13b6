"""Text classification: encoders with a classification head."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from softlook.base.errors import DataError
from softlook.base.tensors import supported_token_types, truncate_pair
from softlook.data import Examples, LabeledText, read_labeled
from softlook.models import Bert, BertConfig, Deberta, ModernBert
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize
from softlook.recipes.config.resolve import ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import ClassificationConfig, Files
from softlook.recipes.text.corpus import MAX_VALIDATION_EXAMPLES, Corpus, read_corpus
from softlook.recipes.text.metrics import classification_scores, per_class_scores
from softlook.recipes.text.pretrained import apply_lora, fine_tuning_lr, load_pretrained, replace_head
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.recipes.text.token_cache import TokenCache, chunk_by_size
from softlook.tokens import TextTokenizer
from softlook.tokens.template import template_from_tokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.collate import ClassificationBatch, Ids, collate_classification, to_device
from softlook.train.batching.token_store import StoredExample, TokenStore
from softlook.train.events import Callback
from softlook.train.objectives import classification

IMBALANCE_RATIO = 4
"""Ratio of the largest to the smallest class from which a warning is logged."""
FINE_TUNING_EPOCHS, FINE_TUNING_TOKENS = 4, 2e6
"""Epochs from pretrained weights; up to ten epochs while the total stays below so many tokens."""
EPOCHS, TOTAL_TOKENS = 3, 2e6
"""Epochs from scratch; up to forty epochs while the total stays below so many tokens."""
SMALL_FINE_TUNING_CHARACTERS = 2_000_000
"""Characters of text below which a pretrained model is regularized more."""
SMALL_DATA_CHARACTERS = 20_000_000
"""Characters of text below which a deep model overfits."""
SMALL_DATA_VALUES: dict[str, Any] = {
    "model.dim": 64,
    "model.depth": 2,
    "model.heads": 2,
    "model.hidden": 128,
    "model.dropout": 0.3,
    "reg.word_dropout": 0.4,
    "reg.label_smoothing": 0.2,
    "optim.lr": 1.5e-3,
    "optim.weight_decay": 1.0,
}
"""A small model with regularization."""
SMALL_DATA_MESSAGE = "Small data: a small model, with word dropout and label smoothing against overfitting."
MAX_CLASSES = 100_000
"""Number of distinct labels above which a column is rejected."""
EVAL_BATCH_SIZE = 64
Item = tuple[Ids, Ids, int]
"""Ids of both texts, and the class index."""


def train_classification(
    config: ClassificationConfig | ConfigOverrides[ClassificationConfig], callbacks: Sequence[Callback] = ()
) -> TrainResult:
    """Train a text classifier: `softlook train classify --data reviews.csv`.

    >>> from pathlib import Path
    >>> from softlook.recipes import ClassificationConfig
    >>> from softlook.train import TrainingConfig
    >>> rows = "".join(f"film {n},{'good' if n % 2 else 'bad'}\\n" for n in range(40))
    >>> _ = Path("reviews.csv").write_text(f"text,label\\n{rows}")
    >>> config = ClassificationConfig(data=(Path("reviews.csv"),), training=TrainingConfig(max_steps=2))
    >>> sorted(train_classification(config).scores)
    ['accuracy', 'error', 'f1', 'loss', 'mcc']
    """
    overrides = explicit_overrides(config) if isinstance(config, ClassificationConfig) else config
    return run_task(ClassificationTask(), overrides, callbacks)


class ClassificationTask(TextTask[ClassificationConfig, LabeledText]):
    """Labeled texts, an encoder with a classification head, accuracy and F1."""

    config = ClassificationConfig

    def load_corpus(self, overrides: ConfigOverrides[ClassificationConfig]) -> Corpus[LabeledText]:
        return read_corpus(
            partial(load_labeled, overrides),
            overrides.get("data"),
            overrides.get("valid"),
            max_valid=MAX_VALIDATION_EXAMPLES,
            columns=(overrides.get("text"), overrides.get("text_pair"), overrides.get("label")),
        )

    def autosize(
        self, corpus: Corpus[LabeledText], overrides: ConfigOverrides[ClassificationConfig], budget: ComputeBudget
    ) -> AutoSettings:
        vocab_size = int(min(max(round(corpus.characters / 200, -2), 500), 32000))  # cheap without an output softmax
        given = {"tokenizer.vocab_size": vocab_size, **overrides.values}
        overrides = ConfigOverrides(overrides.schema, given, overrides.origins)
        auto, _ = autosize(corpus.characters, overrides, budget, block_factor=12, max_dropout=0.3)
        auto.values |= {
            "batch.max_length": 128 if auto.values["tokenizer.type"] == "bpe" else 512,
            "pooling": "mean",
            "training.patience": 10,
        }
        if overrides.get("init_from"):
            auto.values |= {"optim.lr": fine_tuning_lr(overrides), "model.dropout": 0.1, "batch.max_tokens": 1024}
            # R-Drop doubles the compute, which a GPU can afford and small data needs.
            is_small, cuda = corpus.characters < SMALL_FINE_TUNING_CHARACTERS, budget.device.type == "cuda"
            auto.values["reg.rdrop_alpha"] = 3.0 if is_small else 1.0 if cuda else 0.0
            auto.messages = [f"Fine-tuning {overrides.get('init_from')}: a few epochs at a low learning rate."]
        elif corpus.characters < SMALL_DATA_CHARACTERS:
            auto.values |= SMALL_DATA_VALUES
            auto.messages = [SMALL_DATA_MESSAGE]
        return auto

    def build_plan(
        self, corpus: Corpus[LabeledText], config: ClassificationConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        counts, valid = count_labels(corpus.train), list(corpus.valid)
        # An automatic split may hold out the only example of a class; given validation data may have no new classes.
        held_out = {example.label for example in valid} if corpus.train.split is not None else set()
        names = sorted(counts.keys() | held_out, key=_label_order)
        if len(names) < 2:
            raise DataError(f"all examples have the label {names[0]!r:.40}", help="name the label column: --label")
        model = build_model(config, tokenizer, len(names))
        collator = ClassificationCollator(tokenizer, min(config.batch.max_length or 128, model.config.context))
        cache = TokenCache(corpus, tokenizer, config.run_dir)
        format = f"labeled {collator.max_length} {names}"
        store = cache.train_store(collator.rows(corpus.train, names), format, rows=3, num_ids=len(names))
        lengths = collator.lengths(store)
        max_tokens, seed = config.batch.max_tokens or 2048, config.training.seed
        batches = LengthBucketedBatches(store, lengths, collator.collate_stored, max_tokens=max_tokens, seed=seed)
        if config.reg.word_dropout:
            batches = SeededTransform(batches, partial(drop_words, config.reg.word_dropout), seed=seed)
        check_labels(valid, names)
        items, tokens = collator.encode(valid, names), float(lengths.sum())
        return TrainingPlan(
            model=model,
            batches=batches,
            objective=classification(config.reg.label_smoothing, config.reg.rdrop_alpha),
            evaluate=partial(evaluate_items, collator, items, names, config.monitor),
            sample=partial(sample_predictions, collator, valid, names, device),
            epoch_tokens=tokens,
            batch_tokens=max_tokens,
            total_tokens=_total_tokens(tokens, is_pretrained=config.init_from is not None),
            test=partial(score_test_data, config, collator, names, device),
            labels=names,
            messages=_describe_balance(counts),
        )

    def evaluate(
        self,
        config: ClassificationConfig,
        data: Files,
        model: nn.Module,
        tokenizer: TextTokenizer,
        labels: Sequence[str],
        device: torch.device,
    ) -> dict[str, Any]:
        max_length = min(config.batch.max_length or 128, model.config.context)  # pyright: ignore[reportAttributeAccessIssue,reportArgumentType]
        collator = ClassificationCollator(tokenizer, max_length)
        return score_test_data(config.model_copy(update={"test": data}), collator, labels, device, model)["test"]


def _total_tokens(tokens: float, *, is_pretrained: bool) -> float:
    """Training tokens over all epochs: more epochs for small data, fewer from pretrained weights."""
    if is_pretrained:
        return max(FINE_TUNING_EPOCHS * tokens, min(10 * tokens, FINE_TUNING_TOKENS))
    return max(EPOCHS * tokens, min(40 * tokens, TOTAL_TOKENS))


def load_labeled(overrides: ConfigOverrides[ClassificationConfig], files: Files) -> Examples[LabeledText]:
    """Labeled texts from files."""
    return read_labeled(
        files,
        text=overrides.get("text"),
        pair=overrides.get("text_pair"),
        label=overrides.get("label"),
        max_bad_rows=int(overrides.get("max_bad_rows")),
        max_line_chars=int(overrides.get("max_line_chars")),
    )


def build_model(config: ClassificationConfig, tokenizer: TextTokenizer, num_classes: int) -> Any:
    """A new or a pretrained encoder with a classification head."""
    size, vocab_size = config.model, tokenizer.vocab_size
    if config.init_from is not None:
        encoder = load_pretrained(config.init_from, Bert | Deberta | ModernBert, "classify", vocab_size=vocab_size)
        pooling = config.pooling or encoder.config.pooling
        model = replace_head(
            encoder, head="classification", classes=num_classes, pooling=pooling, dropout=size.dropout or 0.0
        )
        # The head is trained in full, even if the pretrained one has the same number of classes.
        return apply_lora(model, config.lora, pretrained=encoder, trainable=["head.to_classes"])
    assert size.dim is not None and size.depth is not None and size.heads is not None and size.dropout is not None
    return Bert(
        BertConfig(
            vocab_size=vocab_size,
            context=config.batch.max_length or 128,
            dim=size.dim,
            depth=size.depth,
            heads=size.heads,
            hidden=size.hidden,
            dropout=size.dropout,
            head="classification",
            classes=num_classes,
            pooling=config.pooling or "mean",
        )
    )


class ClassificationCollator:
    """Encodes labeled texts with special tokens, at most `max_length` tokens each, and collates them."""

    def __init__(self, tokenizer: TextTokenizer, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self.template = template_from_tokenizer(tokenizer)
        self.max_ids = max_length - self.template.num_special_pair

    def encode(self, examples: Sequence[LabeledText], names: Sequence[str]) -> list[Item]:
        """Ids of both texts, truncated, and the class index."""
        index = {name: number for number, name in enumerate(names)}
        first = self.tokenizer.encode([example.text[:MAX_TEXT_CHARS] for example in examples])
        second = self.tokenizer.encode([(example.pair or "")[:MAX_TEXT_CHARS] for example in examples])
        labels = [index.get(example.label, 0) for example in examples]
        return [
            (*truncate_pair(one, other, self.max_ids), label)
            for one, other, label in zip(first, second, labels, strict=True)
        ]

    def rows(self, examples: Iterable[LabeledText], names: Sequence[str]) -> Iterator[tuple[Ids, Ids, Ids]]:
        """The same lazily, with the class index as a row of one id."""
        for chunk in chunk_by_size(examples, lambda example: len(example.text) + len(example.pair or "")):
            for first, second, label in self.encode(chunk, names):
                yield first, second, [label]

    def length(self, item: Item) -> int:
        """Tokens of an item, special tokens included."""
        special = self.template.num_special_pair if item[1] else self.template.num_special_single
        return len(item[0]) + len(item[1]) + special

    def lengths(self, store: TokenStore) -> torch.Tensor:
        """Tokens of each stored item, special tokens included."""
        first, second = store.lengths(0), store.lengths(1)
        special = torch.where(second > 0, self.template.num_special_pair, self.template.num_special_single)
        return first + second + special

    def collate_stored(self, items: Sequence[StoredExample]) -> ClassificationBatch:
        """A batch of items from a token store."""
        return self([(first, second, label) for first, second, (label,) in items])

    def __call__(self, items: Sequence[Item]) -> ClassificationBatch:
        """A batch."""
        return collate_classification(
            items, join=self.template.apply, max_length=self.max_ids, pad_id=self.tokenizer.pad_id
        )


def drop_words(p: float, batch: ClassificationBatch, generator: torch.Generator) -> ClassificationBatch:
    """Word dropout: hide tokens from attention with probability `p`, except the class token."""
    keep = torch.rand(batch.padding_mask.shape, generator=generator) >= p
    keep[:, 0] = True
    return replace(batch, padding_mask=batch.padding_mask & keep)


@torch.no_grad()
def predict_logits(
    model: nn.Module, collator: ClassificationCollator, items: Sequence[Item], device: torch.device
) -> torch.Tensor:
    """Class logits of each item, in their order."""
    order = sorted(range(len(items)), key=lambda number: collator.length(items[number]))
    outputs: list[torch.Tensor] = []
    for start in range(0, len(order), EVAL_BATCH_SIZE):
        batch = to_device(collator([items[number] for number in order[start : start + EVAL_BATCH_SIZE]]), device)
        types = supported_token_types(model, batch.token_types)
        outputs.append(model(batch.ids, padding_mask=batch.padding_mask, token_types=types).float().cpu())
    return torch.cat(outputs)[torch.tensor(order).argsort()]


def evaluate_items(
    collator: ClassificationCollator, items: Sequence[Item], names: Sequence[str], monitor: str, model: nn.Module
) -> dict[str, float]:
    """Validation scores. The first one, lower is better, selects the best checkpoint."""
    device = next(model.parameters()).device
    logits, labels = predict_logits(model, collator, items, device), [label for *_, label in items]
    loss = nn.functional.cross_entropy(logits, torch.tensor(labels)).item()
    scores = {"loss": loss, **classification_scores(logits.argmax(-1).tolist(), labels, len(names))}
    return {"error": 1 - scores["accuracy"], **scores} if monitor == "accuracy" else scores


def sample_predictions(
    collator: ClassificationCollator,
    valid: Sequence[LabeledText],
    names: Sequence[str],
    device: torch.device,
    model: nn.Module,
) -> list[Sample]:
    """Predictions for a few validation texts."""
    shown = valid[:3]
    probabilities = predict_logits(model, collator, collator.encode(shown, names), device).softmax(-1)
    return [
        {
            "text": " | ".join(example.texts.values()),
            "prediction": f"{names[int(row.argmax())]} ({row.max():.0%})",
            "label": example.label,
        }
        for example, row in zip(shown, probabilities, strict=True)
    ]


def score_test_data(
    config: ClassificationConfig,
    collator: ClassificationCollator,
    names: Sequence[str],
    device: torch.device,
    model: nn.Module,
) -> dict[str, Any]:
    """Scores on the test data, overall and per class."""
    if not config.test:
        return {}
    examples = list(load_labeled(explicit_overrides(config), config.test))
    check_labels(examples, names)
    items = collator.encode(examples, names)
    predicted = predict_logits(model, collator, items, device).argmax(-1).tolist()
    labels = [label for *_, label in items]
    scores = classification_scores(predicted, labels, len(names))
    return {"test": {"examples": len(items), **scores, "classes": per_class_scores(predicted, labels, names)}}


def count_labels(examples: Iterable[LabeledText]) -> Counter[str]:
    """The number of examples of each class."""
    counts: Counter[str] = Counter()
    for example in examples:
        counts[example.label] += 1
        if len(counts) > MAX_CLASSES:
            message = f"there are more than {MAX_CLASSES:,} classes, the last of them {example.label!r:.40}"
            raise DataError(message, help="is this the label column? Name it: --label")
    return counts


def check_labels(examples: Sequence[LabeledText], names: Sequence[str]) -> None:
    """Raise an error at the first example whose class is not in the training data."""
    known = set(names)
    for example in examples:
        if example.label not in known:
            message = f"the class {example.label!r:.40} is not in the training data: {', '.join(names):.80}"
            raise example.origin.error(message) if example.origin else DataError(message)


def _label_order(label: str) -> tuple[int, float, str]:
    """Numbers by value, then strings alphabetically."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _describe_balance(counts: Counter[str]) -> list[str]:
    (largest, most), (smallest, least) = counts.most_common()[0], counts.most_common()[-1]
    message = f"{len(counts)} classes, the largest {largest!r:.40} ({most / counts.total():.0%})."
    if most <= IMBALANCE_RATIO * least:
        return [message]
    return [message, f"Imbalanced: {smallest!r:.40} has only {least:,} examples; prefer f1 and mcc to accuracy."]

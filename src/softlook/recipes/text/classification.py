"""Text classification: encoders with a classification head."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from softlook.base.errors import DataError
from softlook.base.tensors import supported_token_types
from softlook.data import LabeledText, read_labeled
from softlook.heads.ngrams import NGramClassifier, build_ngrams
from softlook.models import Bert, BertConfig, Deberta, ModernBert
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import ClassificationConfig, Files
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.text.corpus import MAX_VALIDATION_EXAMPLES, Corpus, TokenCache
from softlook.recipes.text.labeled_texts import (
    MAX_LENGTH,
    ClassificationCollator,
    Item,
    check_labels,
    count_labels,
    describe_balance,
    describe_lengths,
    drop_words,
    label_order,
    select_batch_tokens,
    select_max_length,
)
from softlook.recipes.text.metrics import classification_report, classification_scores
from softlook.recipes.text.ngram_classifier import fit_mix, fit_ngrams, known_bigrams
from softlook.recipes.text.pretrained import apply_lora, fine_tuning_lr, load_pretrained, replace_head
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.tokens import TextTokenizer
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.collate import to_device
from softlook.train.batching.token_store import TokenStore
from softlook.train.events import Callback
from softlook.train.objectives import classification

FINE_TUNING_EPOCHS, FINE_TUNING_TOKENS = 4, 2e6
"""Epochs from pretrained weights; up to ten epochs while the total stays below so many tokens."""
EPOCHS, TOTAL_TOKENS = 3, 2e6
"""Epochs from scratch; up to forty epochs while the total stays below so many tokens."""
SMALL_FINE_TUNING_CHARACTERS = 2_000_000
"""Characters of text below which a pretrained model is regularized more."""
SIZES: dict[float, tuple[str, tuple[Any, ...]]] = {
    20e6: ("Small data: a small model", (64, 2, 2, 128, 0.3, 0.4, 0.1, 1.5e-3, 1.0)),
    200e6: ("Medium data: a medium model", (128, 2, 4, 256, 0.2, 0.3, 0.1, 1e-3, 0.3)),
    math.inf: ("Large data: a large model", (256, 4, 4, 1024, 0.1, 0.1, 0.1, 5e-4, 0.1)),
}
"""Values by the characters of text up to which they apply: a larger model only overfits."""
SIZE_FIELDS = (
    "model.dim",
    "model.depth",
    "model.heads",
    "model.hidden",
    "model.dropout",
    "reg.word_dropout",
    "reg.label_smoothing",
    "optim.lr",
    "optim.weight_decay",
)
EVAL_BATCH_SIZE = 64


def train_classification(
    config: ConfigLike[ClassificationConfig], callbacks: Sequence[Callback] = (), *, progress: bool = True
) -> TrainResult:
    """Train a text classifier: `softlook train classify --data reviews.csv`.

    >>> from pathlib import Path
    >>> from softlook.recipes import ClassificationConfig
    >>> from softlook.train import TrainingConfig
    >>> rows = "".join(f"film {n},{'good' if n % 2 else 'bad'}\\n" for n in range(40))
    >>> _ = Path("reviews.csv").write_text(f"text,label\\n{rows}")
    >>> config = ClassificationConfig(data=(Path("reviews.csv"),), training=TrainingConfig(max_steps=2))
    >>> sorted(train_classification(config).scores)
    ['accuracy', 'attention_loss', 'compared', 'compared_on', 'f1', 'loss', 'mcc']
    """
    return run_task(ClassificationTask(), config, callbacks, progress=progress)


class ClassificationTask(TextTask[ClassificationConfig, LabeledText]):
    """Labeled texts, an encoder with a classification head, accuracy and F1."""

    config, reader, max_valid = ClassificationConfig, staticmethod(read_labeled), MAX_VALIDATION_EXAMPLES
    columns: ClassVar[dict[str, str]] = {"text": "text", "pair": "text_pair", "label": "label"}

    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        vocab_size = int(min(max(round(characters / 50, -2), 500), 16000))  # cheap without an output softmax
        given = {"tokenizer.vocab_size": vocab_size, **overrides.values}
        overrides = ConfigOverrides(overrides.schema, given, overrides.origins)
        auto, _ = autosize(characters, overrides, budget, block_factor=12, max_dropout=0.3)
        del auto.values["batch.max_tokens"]
        auto.values |= {"pooling": "mean", "tokenizer.lowercase": auto.values["tokenizer.type"] == "bpe" or None}
        if overrides.get("init_from"):
            auto.values |= {"optim.lr": fine_tuning_lr(overrides), "model.dropout": 0.1}
            # R-Drop doubles the compute, which a GPU can afford and small data needs.
            is_small, cuda = characters < SMALL_FINE_TUNING_CHARACTERS, budget.device.type == "cuda"
            auto.values["reg.rdrop_alpha"] = 3.0 if is_small else 1.0 if cuda else 0.0
            auto.messages = [f"Fine-tuning {overrides.get('init_from')}: a few epochs at a low learning rate."]
            return auto
        message, values = next(size for limit, size in SIZES.items() if characters < limit)
        auto.values |= dict(zip(SIZE_FIELDS, values, strict=True))
        auto.messages = [f"{message}, with word dropout and label smoothing against overfitting."]
        return auto

    def build_plan(
        self, corpus: Corpus[LabeledText], config: ClassificationConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        counts, valid = count_labels(corpus.train), list(corpus.valid)
        # An automatic split may hold out the only example of a class; given validation data may have no new classes.
        held_out = {example.label for example in valid} if corpus.train.split is not None else set()
        names = sorted(counts.keys() | held_out, key=label_order)
        if len(names) < 2:
            raise DataError(f"all examples have the label {names[0]!r:.40}", help="name the label column: --label")
        check_labels(valid, names)
        encoder = ClassificationCollator(tokenizer, config.batch.max_length or MAX_LENGTH)
        store = TokenCache(corpus, tokenizer, config.run_dir).store(
            encoder.rows(corpus.train, names), f"labeled {encoder.max_length} {names}", rows=3, num_ids=len(names)
        )
        lengths = encoder.lengths(store)
        max_length = config.batch.max_length or select_max_length(lengths)
        model = build_model(config, tokenizer, len(names), max_length, store)
        collator = ClassificationCollator(tokenizer, min(max_length, model.config.context))
        mean_length = float(lengths.clamp(max=collator.max_length).float().mean())
        max_tokens, seed = config.batch.max_tokens or select_batch_tokens(mean_length, config), config.training.seed
        batches = LengthBucketedBatches(
            store, lengths.clamp(max=collator.max_length), collator.collate_stored, max_tokens=max_tokens, seed=seed
        )
        plain = batches
        if config.reg.word_dropout:
            batches = SeededTransform(batches, partial(drop_words, config.reg.word_dropout), seed=seed)
        items, tokens = collator.encode(valid, names), mean_length * len(store)
        evaluator = ClassificationEvaluator(collator, items, names, config.monitor)
        return TrainingPlan(
            model=model,
            batches=batches,
            objective=classification(config.reg.label_smoothing, config.reg.rdrop_alpha),
            evaluate=evaluator,
            sample=partial(sample_predictions, collator, valid, names),
            epoch_tokens=tokens,
            batch_tokens=max_tokens,
            total_tokens=_total_tokens(tokens, is_pretrained=config.init_from is not None),
            test=partial(self._score_test_data, config, collator, names),
            test_cost=corpus.test_count / max(len(items), 1),
            initialize=partial(evaluator.fit_ngrams, plain),
            baselines=evaluator.baselines,
            uninformed_loss=_entropy([label for *_, label in items]),
            labels=names,
            label_counts=dict(counts.most_common()),
            messages=[*describe_balance(counts), *describe_lengths(encoder, lengths, collator.max_length)],
        )

    def evaluate(self, config: ClassificationConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        collator = ClassificationCollator(pipeline.tokenizer, pipeline.model.config.context)
        config = config.model_copy(update={"test": data})
        return self._score_test_data(config, collator, pipeline.labels, pipeline.model)["test"]

    def _score_test_data(
        self, config: ClassificationConfig, collator: "ClassificationCollator", names: Sequence[str], model: nn.Module
    ) -> dict[str, Any]:
        """Scores on the test data, overall and per class."""
        if not config.test:
            return {}
        examples = list(self.read(explicit_overrides(config), config.test))
        check_labels(examples, names)
        items = collator.encode(examples, names)
        probabilities = predict_logits(model, collator, items).softmax(-1)
        texts = [" | ".join(example.texts.values()) for example in examples]
        return {"test": classification_report(probabilities, [label for *_, label in items], names, texts)}


def _total_tokens(tokens: float, *, is_pretrained: bool) -> float:
    """Training tokens over all epochs: more epochs for small data, fewer from pretrained weights."""
    if is_pretrained:
        return max(FINE_TUNING_EPOCHS * tokens, min(10 * tokens, FINE_TUNING_TOKENS))
    return max(EPOCHS * tokens, min(40 * tokens, TOTAL_TOKENS))


def build_model(
    config: ClassificationConfig, tokenizer: TextTokenizer, num_classes: int, max_length: int, store: TokenStore
) -> Any:
    """A new or a pretrained encoder with a classification head and, unless disabled, an n-gram classifier."""
    vocab_size, dropout = tokenizer.vocab_size, config.model.dropout or 0.0
    if config.init_from is not None:
        encoder = load_pretrained(config.init_from, Bert | Deberta | ModernBert, "classify", vocab_size=vocab_size)
        pooling = config.pooling or encoder.config.pooling
        has_ngrams = not config.no_ngrams and isinstance(encoder, Bert)
        ngrams = _new_ngrams(tokenizer, store, num_classes, encoder.config.vocab_size) if has_ngrams else None
        head = {"head": "classification", "classes": num_classes, "pooling": pooling, "dropout": dropout}
        model = replace_head(encoder, **head, **({"ngrams": ngrams.config} if ngrams is not None else {}))
        # The head is trained in full, even if the pretrained one has the same number of classes.
        model = apply_lora(model, config.lora, pretrained=encoder, trainable=["head.to_classes"])
    else:
        ngrams = _new_ngrams(tokenizer, store, num_classes, vocab_size) if not config.no_ngrams else None
        sizes = {"context": max_length, "classes": num_classes, **config.model.model_dump()}
        options = {"head": "classification", "pooling": config.pooling or "mean", "ngrams": ngrams and ngrams.config}
        model = Bert(BertConfig(vocab_size=vocab_size, **options, **sizes))
    if ngrams is not None:
        model.ngrams = ngrams
    return model


def _new_ngrams(tokenizer: TextTokenizer, store: TokenStore, num_classes: int, vocab_size: int) -> NGramClassifier:
    known = tokenizer.tokenizer.get_vocab_size()
    vocabulary = [tokenizer.tokenizer.id_to_token(id) or "" if id < known else "" for id in range(vocab_size)]
    return build_ngrams(vocabulary, known_bigrams(store, vocab_size, num_classes), num_classes)


@torch.no_grad()
def predict_logits(model: nn.Module, collator: ClassificationCollator, items: Sequence[Item]) -> torch.Tensor:
    """Class logits of each item, in their order."""
    device = next(model.parameters()).device
    order = sorted(range(len(items)), key=lambda number: collator.length(items[number]))
    outputs: list[torch.Tensor] = []
    for start in range(0, len(order), EVAL_BATCH_SIZE):
        batch = to_device(collator([items[number] for number in order[start : start + EVAL_BATCH_SIZE]]), device)
        types = supported_token_types(model, batch.token_types)
        outputs.append(model(batch.ids, padding_mask=batch.padding_mask, token_types=types).float().cpu())
    return torch.cat(outputs)[torch.tensor(order).argsort()]


class ClassificationEvaluator:
    """Validation scores; fits an n-gram classifier, if the model has one, and its mix with the attention.

    The mix is fitted in every evaluation, on the examples of that evaluation: two numbers, which also calibrate the
    probabilities. The n-gram classifier's part are the predictions that it made before it saw the validation data.
    """

    def __init__(
        self, collator: ClassificationCollator, items: Sequence[Item], names: Sequence[str], monitor: str
    ) -> None:
        order = torch.randperm(len(items), generator=torch.Generator().manual_seed(0)).tolist()
        self.collator, self.items, self.names, self.monitor = collator, [items[i] for i in order], names, monitor
        self.labels = torch.tensor([label for *_, label in self.items])
        self.ngram_log_probs: torch.Tensor | None = None
        self.attention_loss = math.inf

    def __call__(self, model: nn.Module, share: float = 1.0) -> dict[str, float]:
        """Scores on a share of the examples. The first one, lower is better, selects the best checkpoint."""
        count = max(math.ceil(share * len(self.items)), 1)
        logits, labels = self.predict(model, count), self.labels[:count]
        loss = nn.functional.cross_entropy(logits, labels).item()
        scores = {"loss": loss, **classification_scores(logits.argmax(-1).tolist(), labels.tolist(), len(self.names))}
        scores |= {"attention_loss": self.attention_loss} if self.ngram_log_probs is not None else {}
        return {"error": 1 - scores["accuracy"], **scores} if self.monitor == "accuracy" else scores

    def predict(self, model: nn.Module, count: int) -> torch.Tensor:
        """Logits of the first `count` examples."""
        ngrams = getattr(model, "ngrams", None)
        if ngrams is None or self.ngram_log_probs is None:
            return predict_logits(model, self.collator, self.items[:count])
        ngrams.enabled = False
        try:
            attention = predict_logits(model, self.collator, self.items[:count]).log_softmax(-1)
        finally:
            ngrams.enabled = True
        self.attention_loss = nn.functional.nll_loss(attention, self.labels[:count]).item()
        own = self.ngram_log_probs[:count]
        weights = fit_mix(attention, own, self.labels[:count])
        ngrams.weights.copy_(torch.tensor(weights))
        return weights[0] * attention + weights[1] * own

    def fit_ngrams(self, batches: LengthBucketedBatches[Any, Any], model: nn.Module, seconds: float) -> None:
        """Fit the model's n-gram classifier on the training data, within so many seconds."""
        ngrams = getattr(model, "ngrams", None)
        if ngrams is None:
            return
        device = ngrams.weight.device
        train = (batches.collate([batches.items[i] for i in numbers]) for numbers in batches.epoch(0))
        size = EVAL_BATCH_SIZE
        valid = [self.collator(self.items[start : start + size]) for start in range(0, len(self.items), size)]
        self.ngram_log_probs = fit_ngrams(ngrams.cpu(), train, valid, seconds=seconds)
        ngrams.to(device)

    def baselines(self, seconds: float) -> list[dict[str, Any]]:
        """Scores of the most common class, and of logistic regression on n-grams."""
        frequencies = torch.bincount(self.labels, minlength=len(self.names)) / max(len(self.labels), 1)
        rows = [("most common class", frequencies.clamp(min=1e-9).log().expand(len(self.labels), -1))]
        if self.ngram_log_probs is not None:
            rows.append(("TF-IDF + logistic regression", self.ngram_log_probs))
        return [
            {
                "model": name,
                "loss": nn.functional.nll_loss(log_probs, self.labels).item(),
                **classification_scores(log_probs.argmax(-1).tolist(), self.labels.tolist(), len(self.names)),
            }
            for name, log_probs in rows
        ]


def _entropy(labels: Sequence[int]) -> float:
    """The loss of predicting the frequencies of the classes."""
    shares = torch.bincount(torch.tensor(labels)).float() / max(len(labels), 1)
    return float(-(shares * shares.clamp(min=1e-9).log()).sum())


def sample_predictions(
    collator: ClassificationCollator, valid: Sequence[LabeledText], names: Sequence[str], model: nn.Module
) -> list[Sample]:
    """Predictions for a few validation texts."""
    shown = valid[:3]
    probabilities = predict_logits(model, collator, collator.encode(shown, names)).softmax(-1)
    return [
        {
            "text": " | ".join(example.texts.values()),
            "prediction": f"{names[int(row.argmax())]} ({row.max():.0%})",
            "label": example.label,
        }
        for example, row in zip(shown, probabilities, strict=True)
    ]

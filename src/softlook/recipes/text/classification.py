"""Text classification, multi-label classification and regression: encoders with a classification head."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from softlook.base.errors import ConfigError
from softlook.base.tensors import supported_token_types
from softlook.blocks.scaled_linear import ScaledLinear
from softlook.data import LabeledText, read_labeled
from softlook.heads.classification import Problem, normalize_logits
from softlook.heads.ngrams import NGramClassifier, build_ngrams
from softlook.models import Bert, BertConfig, Deberta, ModernBert
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import ClassificationConfig, Files
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.text.attention import sample_attention
from softlook.recipes.text.corpus import MAX_VALIDATION_EXAMPLES, Corpus, TokenCache
from softlook.recipes.text.labeled_texts import (
    MAX_LENGTH,
    ClassificationCollator,
    Item,
    describe_lengths,
    drop_words,
    select_batch_tokens,
    select_max_length,
)
from softlook.recipes.text.ngram_classifier import fit_ngrams, known_bigrams
from softlook.recipes.text.pretrained import apply_lora, fine_tuning_lr, load_pretrained, replace_head
from softlook.recipes.text.problems import PROBLEMS
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.recipes.text.text_problem import TextProblem
from softlook.tokens import TextTokenizer
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.collate import to_device
from softlook.train.batching.token_store import TokenStore
from softlook.train.events import Callback

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
    ['accuracy', 'attention_loss', 'compared', 'compared_on', 'f1', 'loss', 'mcc', 'validation']
    """
    return run_task(ClassificationTask(), config, callbacks, progress=progress)


class ClassificationTask(TextTask[ClassificationConfig, LabeledText]):
    """Labeled texts, an encoder with a classification head, and the scores of its problem."""

    config, reader, max_valid = ClassificationConfig, staticmethod(read_labeled), MAX_VALIDATION_EXAMPLES
    columns: ClassVar[dict[str, str]] = {
        "text": "text",
        "pair": "text_pair",
        "label": "label",
        "problem": "problem",
        "label_separator": "label_separator",
    }

    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        # Whole words are the best n-grams, also of few texts, and without an output softmax they are cheap.
        vocab_size = max(min(characters // 15, max(characters // 50, 4000), 16000), 500)
        given = {"tokenizer.type": "bpe", "tokenizer.vocab_size": vocab_size, **overrides.values}
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
        problem = overrides.get("problem") or "single_label"
        auto.values["reg.label_smoothing"] *= problem == "single_label"
        auto.values["reg.word_dropout"] *= problem != "regression"  # a number without some of its words is another one
        used = {"word dropout": "reg.word_dropout", "label smoothing": "reg.label_smoothing"}
        names = " and ".join(name for name, field in used.items() if auto.values[field]) or "dropout"
        auto.messages = [f"{message}, with {names} against overfitting."]
        return auto

    def build_plan(
        self, corpus: Corpus[LabeledText], config: ClassificationConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        check_monitor(config)
        valid = list(corpus.valid)
        problem = PROBLEMS[config.problem].fit(corpus, valid)
        problem.check(valid)
        encoder = ClassificationCollator(tokenizer, config.batch.max_length or MAX_LENGTH, problem)
        format = f"{problem.problem} {encoder.max_length} {problem.names}"
        store = TokenCache(corpus, tokenizer, config.run_dir).store(
            encoder.rows(corpus.train), format, rows=3, num_ids=problem.num_ids
        )
        lengths = encoder.lengths(store)
        max_length = config.batch.max_length or select_max_length(lengths)
        model = build_model(config, tokenizer, problem, max_length, store)
        collator = ClassificationCollator(tokenizer, min(max_length, model.config.context), problem)
        mean_length = float(lengths.clamp(max=collator.max_length).float().mean())
        max_tokens, seed = config.batch.max_tokens or select_batch_tokens(mean_length, config), config.training.seed
        batches = LengthBucketedBatches(
            store, lengths.clamp(max=collator.max_length), collator.collate_stored, max_tokens=max_tokens, seed=seed
        )
        plain = batches
        if config.reg.word_dropout:
            batches = SeededTransform(batches, partial(drop_words, config.reg.word_dropout), seed=seed)
        items, tokens = collator.encode(valid), mean_length * len(store)
        evaluator = ClassificationEvaluator(collator, items, config.monitor)
        return TrainingPlan(
            model=model,
            batches=batches,
            objective=problem.objective(config.reg),
            evaluate=evaluator,
            sample=partial(sample_predictions, collator, valid),
            attention=partial(sample_attention, tokenizer=tokenizer, texts=[example.text for example in valid[:3]]),
            epoch_tokens=tokens,
            batch_tokens=max_tokens,
            total_tokens=_total_tokens(tokens, is_pretrained=config.init_from is not None),
            test=partial(self._final_scores, config, evaluator, valid),
            test_cost=corpus.test_count / max(len(items), 1) if config.test else 1.0,
            initialize=partial(evaluator.fit_ngrams, plain),
            baselines=evaluator.baselines,
            uninformed_loss=problem.loss(problem.baseline(evaluator.targets)[1], evaluator.targets),
            labels=problem.names,
            label_counts=dict(problem.counts.most_common()),
            messages=[*problem.messages, *describe_lengths(encoder, lengths, collator.max_length)],
        )

    def evaluate(self, config: ClassificationConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        problem = PROBLEMS[config.problem](pipeline.labels)
        collator = ClassificationCollator(pipeline.tokenizer, pipeline.model.config.context, problem)
        config = config.model_copy(update={"test": data})
        return self._score_test_data(config, collator, pipeline.model)["test"]

    def _final_scores(
        self,
        config: ClassificationConfig,
        evaluator: "ClassificationEvaluator",
        valid: Sequence[LabeledText],
        model: Any,
    ) -> dict[str, Any]:
        """Scores on the test data, or else in detail on the validation data."""
        tested = self._score_test_data(config, evaluator.collator, model)
        return tested or {"validation": evaluator.report(model, valid)}

    def _score_test_data(
        self, config: ClassificationConfig, collator: ClassificationCollator, model: nn.Module
    ) -> dict[str, Any]:
        """Scores on the test data, overall and per class."""
        if not config.test:
            return {}
        examples, problem = list(self.read(explicit_overrides(config), config.test)), collator.problem
        problem.check(examples)
        items = collator.encode(examples)
        targets = problem.collate([target for *_, target in items])
        return {"test": problem.report(predict_logits(model, collator, items), targets, joined_texts(examples))}


def check_monitor(config: ClassificationConfig) -> None:
    """Raise an error if the metric that selects the best checkpoint is not one of the problem."""
    if config.monitor == "accuracy" and config.problem not in (None, "single_label"):
        raise ConfigError(f"--monitor accuracy is for one class per text; with --problem {config.problem} use loss")


def _total_tokens(tokens: float, *, is_pretrained: bool) -> float:
    """Training tokens over all epochs: more epochs for small data, fewer from pretrained weights."""
    if is_pretrained:
        return max(FINE_TUNING_EPOCHS * tokens, min(10 * tokens, FINE_TUNING_TOKENS))
    return max(EPOCHS * tokens, min(40 * tokens, TOTAL_TOKENS))


def build_model(
    config: ClassificationConfig, tokenizer: TextTokenizer, problem: TextProblem, max_length: int, store: TokenStore
) -> Any:
    """A new or a pretrained encoder with a classification head and, unless disabled, an n-gram classifier."""
    vocab_size, dropout = tokenizer.vocab_size, config.model.dropout or 0.0
    classes = {"classes": len(problem.names), "problem": config.problem}
    if config.init_from is not None:
        encoder = load_pretrained(config.init_from, Bert | Deberta | ModernBert, "classify", vocab_size=vocab_size)
        pooling = config.pooling or encoder.config.pooling
        has_ngrams = not config.no_ngrams and isinstance(encoder, Bert)
        ngrams = _new_ngrams(tokenizer, store, encoder.config.vocab_size, **classes) if has_ngrams else None
        head = {"head": "classification", **classes, "pooling": pooling, "dropout": dropout}
        model = replace_head(encoder, **head, **({"ngrams": ngrams.config} if ngrams is not None else {}))
        # The head is trained in full, even if the pretrained one has the same number of classes.
        model = apply_lora(model, config.lora, pretrained=encoder, trainable=["head.to_classes"])
    else:
        ngrams = _new_ngrams(tokenizer, store, vocab_size, **classes) if not config.no_ngrams else None
        sizes = {"context": max_length, **classes, **config.model.model_dump()}
        options = {"head": "classification", "pooling": config.pooling or "mean", "ngrams": ngrams and ngrams.config}
        model = Bert(BertConfig(vocab_size=vocab_size, **options, **sizes))
    if ngrams is not None:
        model.ngrams = ngrams
    if (problem.scale, problem.shift) != (1.0, 0.0):
        head: Any = model.head
        head.to_classes = ScaledLinear(head.to_classes, scale=problem.scale, shift=problem.shift)
    return model


def _new_ngrams(
    tokenizer: TextTokenizer, store: TokenStore, vocab_size: int, *, classes: int, problem: Problem | None
) -> NGramClassifier:
    known = tokenizer.tokenizer.get_vocab_size()
    vocabulary = [tokenizer.tokenizer.id_to_token(id) or "" if id < known else "" for id in range(vocab_size)]
    return build_ngrams(vocabulary, known_bigrams(store, vocab_size, classes), classes, problem=problem)


@torch.no_grad()
def predict_logits(model: nn.Module, collator: ClassificationCollator, items: Sequence[Item]) -> torch.Tensor:
    """The output of the model for each item, in their order: logits, or numbers."""
    device = next(model.parameters()).device
    order = sorted(range(len(items)), key=lambda number: collator.length(items[number]))
    outputs: list[torch.Tensor] = []
    for start in range(0, len(order), EVAL_BATCH_SIZE):
        batch = to_device(collator([items[number] for number in order[start : start + EVAL_BATCH_SIZE]]), device)
        types = supported_token_types(model, batch.token_types)
        outputs.append(model(batch.ids, padding_mask=batch.padding_mask, token_types=types).float().cpu())
    return torch.cat(outputs)[torch.tensor(order).argsort()]


def joined_texts(examples: Sequence[LabeledText]) -> list[str]:
    """The text of each example; of a pair, both."""
    return [" | ".join(example.texts.values()) for example in examples]


class ClassificationEvaluator:
    """Validation scores; fits an n-gram classifier, if the model has one, and its mix with the attention.

    The mix is fitted in every evaluation, on the examples of that evaluation: two weights, which also calibrate
    probabilities. The n-gram classifier's part are the predictions that it made before it saw the validation data.
    """

    def __init__(self, collator: ClassificationCollator, items: Sequence[Item], monitor: str) -> None:
        self.order = torch.randperm(len(items), generator=torch.Generator().manual_seed(0)).tolist()
        self.collator, self.items, self.monitor = collator, [items[i] for i in self.order], monitor
        self.problem = collator.problem
        self.targets = self.problem.collate([target for *_, target in self.items])
        self.ngram_outputs: torch.Tensor | None = None
        self.attention_loss = math.inf

    def __call__(self, model: nn.Module, share: float = 1.0) -> dict[str, float]:
        """Scores on a share of the examples. The first one, lower is better, selects the best checkpoint."""
        count = max(math.ceil(share * len(self.items)), 1)
        scores = self._scores(self.predict(model, count), count)
        scores |= {"attention_loss": self.attention_loss} if self.ngram_outputs is not None else {}
        return {"error": 1 - scores["accuracy"], **scores} if self.monitor == "accuracy" else scores

    def _scores(self, outputs: torch.Tensor, count: int) -> dict[str, float]:
        targets = self.targets[:count]
        return {"loss": self.problem.loss(outputs, targets), **self.problem.scores(outputs, targets)}

    def predict(self, model: nn.Module, count: int) -> torch.Tensor:
        """Outputs for the first `count` examples."""
        ngrams = getattr(model, "ngrams", None)
        if ngrams is None or self.ngram_outputs is None:
            return predict_logits(model, self.collator, self.items[:count])
        ngrams.enabled = False
        try:
            attention = normalize_logits(predict_logits(model, self.collator, self.items[:count]), self.problem.problem)
        finally:
            ngrams.enabled = True
        own, targets = self.ngram_outputs[:count], self.targets[:count]
        self.attention_loss = self.problem.loss(attention, targets)
        weights = self.problem.mix_weights(attention, own, targets)
        ngrams.weights.copy_(torch.tensor(weights))
        return weights[0] * attention + weights[1] * own

    def report(self, model: nn.Module, examples: Sequence[LabeledText]) -> dict[str, Any]:
        """Scores on all examples, overall and per class."""
        texts = joined_texts([examples[number] for number in self.order])
        return self.problem.report(self.predict(model, len(self.items)), self.targets, texts)

    def fit_ngrams(self, batches: LengthBucketedBatches[Any, Any], model: nn.Module, seconds: float) -> None:
        """Fit the model's n-gram classifier on the training data, within so many seconds."""
        ngrams = getattr(model, "ngrams", None)
        if ngrams is None:
            return
        device = ngrams.weight.device
        train = (batches.collate([batches.items[i] for i in numbers]) for numbers in batches.epoch(0))
        size = EVAL_BATCH_SIZE
        valid = [self.collator(self.items[start : start + size]) for start in range(0, len(self.items), size)]
        fitted = fit_ngrams(ngrams.cpu(), train, valid, self.problem, seconds=seconds)
        self.ngram_outputs = normalize_logits(fitted, self.problem.problem)
        ngrams.to(device)

    def baselines(self, seconds: float) -> list[dict[str, Any]]:
        """Scores of the best constant prediction, and of a linear model on n-grams."""
        rows = [self.problem.baseline(self.targets)]
        if self.ngram_outputs is not None:
            rows.append((self.problem.linear_model, self.ngram_outputs))
        return [{"model": name, **self._scores(outputs, len(self.targets))} for name, outputs in rows]


def sample_predictions(
    collator: ClassificationCollator, valid: Sequence[LabeledText], model: nn.Module
) -> list[Sample]:
    """Predictions for a few validation texts."""
    shown = valid[:3]
    outputs = predict_logits(model, collator, collator.encode(shown))
    return [
        {
            "text": " | ".join(example.texts.values()),
            "prediction": collator.problem.describe(row),
            "label": example.label,
        }
        for example, row in zip(shown, outputs, strict=True)
    ]

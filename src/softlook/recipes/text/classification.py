"""Text classification, multi-label classification and regression: encoders with a classification head."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from softlook.base.errors import ConfigError
from softlook.blocks.scaled_linear import ScaledLinear
from softlook.data import LabeledText, read_labeled
from softlook.heads.classification import Problem
from softlook.heads.ngrams import NGramClassifier, build_ngrams
from softlook.models import Bert, BertConfig, Deberta, ModernBert
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize, training_tokens
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import ClassificationConfig, Files
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.text.attention import sample_attention
from softlook.recipes.text.classification_scores import (
    ClassificationEvaluator,
    joined_texts,
    predict_logits,
    sample_predictions,
)
from softlook.recipes.text.corpus import MAX_VALIDATION_EXAMPLES, Corpus, TokenCache
from softlook.recipes.text.labeled_texts import (
    MAX_LENGTH,
    ClassificationCollator,
    describe_lengths,
    drop_words,
    select_batch_tokens,
    select_max_length,
)
from softlook.recipes.text.ngram_classifier import known_bigrams
from softlook.recipes.text.pretrained import (
    apply_lora,
    fine_tuning_lr,
    fine_tuning_tokens,
    load_pretrained,
    replace_head,
)
from softlook.recipes.text.problems import PROBLEMS
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import TextTask, TrainingPlan, TrainResult
from softlook.recipes.text.text_problem import TextProblem
from softlook.tokens import TextTokenizer
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.token_store import TokenStore
from softlook.train.events import Callback

TOTAL_TOKENS = 2e6
"""Tokens over all epochs from scratch, below which small data are read up to forty times."""
SHORT_MINUTES = 10.0
"""Time limit up to which a CPU takes few steps from pretrained weights."""
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
            is_short = budget.device.type == "cpu" and budget.minutes <= SHORT_MINUTES
            auto.values |= {"optim.lr": fine_tuning_lr(overrides, is_short=is_short), "model.dropout": 0.1}
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
            validate=partial(evaluator.validate, valid),
            attention=partial(sample_attention, tokenizer=tokenizer, texts=[example.text for example in valid[:3]]),
            epoch_tokens=tokens,
            batch_tokens=max_tokens,
            total_tokens=fine_tuning_tokens(tokens) if config.init_from else training_tokens(tokens, TOTAL_TOKENS),
            values={"batch.max_length": collator.max_length, "batch.max_tokens": max_tokens},
            test_cost=corpus.test_count / max(len(items), 1),
            initialize=partial(evaluator.fit_ngrams, plain),
            baselines=evaluator.baselines,
            uninformed_loss=problem.loss(problem.baseline(evaluator.targets)[1], evaluator.targets),
            labels=problem.names,
            label_counts=dict(problem.counts.most_common()),
            messages=[*problem.messages, *describe_lengths(encoder, lengths, collator.max_length)],
        )

    def evaluate(self, config: ClassificationConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        """Scores overall and of each class."""
        problem = PROBLEMS[config.problem](pipeline.labels)
        collator = ClassificationCollator(pipeline.tokenizer, pipeline.max_input_length, problem)
        examples = list(self.read(explicit_overrides(config), data))
        problem.check(examples)
        items = collator.encode(examples)
        targets = problem.collate([target for *_, target in items])
        return problem.report(predict_logits(pipeline.model, collator, items), targets, joined_texts(examples))


def check_monitor(config: ClassificationConfig) -> None:
    """Raise an error if the metric that selects the best checkpoint is not one of the problem."""
    if config.monitor == "accuracy" and config.problem not in (None, "single_label"):
        raise ConfigError(f"--monitor accuracy is for one class per text; with --problem {config.problem} use loss")


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

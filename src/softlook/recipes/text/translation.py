"""Translation: encoder-decoders trained on pairs of texts, with optional BPE dropout."""

import math
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch import nn

from softlook.data import TextPair, read_pairs
from softlook.models import RNNSearch, RNNSearchConfig, Transformer, TransformerConfig
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize, select_vocab_size
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import Files, TranslationConfig
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.inference.translation import translate_texts
from softlook.recipes.text.baselines import translation_baselines
from softlook.recipes.text.corpus import MAX_VALIDATION_EXAMPLES, Corpus
from softlook.recipes.text.metrics import corpus_bleu, translation_scores
from softlook.recipes.text.pair_batches import build_pair_batches, split_sides
from softlook.recipes.text.pretrained import apply_lora, load_pretrained
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.tokens import TextTokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS
from softlook.train.batching.batches import LengthBucketedBatches
from softlook.train.batching.collate import collate_seq2seq
from softlook.train.events import Callback
from softlook.train.objectives import make_loss_evaluator, translation

SMALL_DATA_TOKENS = 5_000_000
"""Tokens below which a GPU trains for so many epochs that a model overfits without regularization."""
SMALL_DATA_VALUES: dict[str, Any] = {
    "model.dim": 512,
    "model.depth": 4,
    "model.heads": 8,
    "model.hidden": 1024,
    "model.dropout": 0.3,
    "tokenizer.vocab_size": 8000,
    "tokenizer.bpe_dropout": 0.1,
    "reg.rdrop_alpha": 5.0,
    "batch.max_tokens": 4096,
    "optim.lr": 1e-3,
}
"""A wide model with regularization, for small data on a GPU."""
SMALL_DATA_MESSAGE = "Small data on a fast device: a wide model, with R-Drop and BPE dropout against overfitting."
REGULARIZATION_MINUTES = 5.0
"""Time from which a GPU overfits small data: R-Drop, and BPE dropout on the host, only slow down a shorter run."""
TOKENS_PER_PARAMETER, SHORT_TOKENS_PER_PARAMETER = 5.0, 20.0
"""Training tokens per parameter of the blocks: translations are useless until cross-attention has learned to align.

In a short run on a GPU the host decides how many steps there are, and the FLOPs of the GPU are not used.
"""
SHORT_VOCAB_SIZE = 8000
"""Largest vocabulary of a short run on a GPU: rare tokens are learned late."""
CPU_LR_FACTOR = 1.5
"""A small model that is trained for few steps learns to align sooner at a higher learning rate."""
NUM_SAMPLES = 3
"""Sample translations in each evaluation."""


def train_translation(
    config: ConfigLike[TranslationConfig], callbacks: Sequence[Callback] = (), *, progress: bool = True
) -> TrainResult:
    """Train a translation model: `softlook train translate --data pairs.tsv`. Calling it again resumes the run.

    On Multi30k, English to German, test 2016, with automatic settings on a third of an H200 (three runs at once, each
    at most 9 min 20 s), seeds 0, 1 and 2: 41.7, 41.9 and 41.5 BLEU (cased, 13a) on the raw text; 42.2, 42.5 and 42.5
    on the lower-cased, pre-tokenized text.

    >>> from pathlib import Path
    >>> from softlook.recipes import TranslationConfig
    >>> from softlook.train import TrainingConfig
    >>> _ = Path("pairs.tsv").write_text("".join(f"number {n}\\tZahl {n}\\n" for n in range(50)))
    >>> result = train_translation(TranslationConfig(data=(Path("pairs.tsv"),), training=TrainingConfig(max_steps=2)))
    >>> result.run_dir.as_posix(), result.progress.step
    ('runs/translate-pairs', 2)
    """
    return run_task(TranslationTask(), config, callbacks, progress=progress)


class TranslationTask(TextTask[TranslationConfig, TextPair]):
    """Pairs of texts, a Transformer or RNNsearch, and BLEU."""

    config, reader, max_valid = TranslationConfig, staticmethod(read_pairs), MAX_VALIDATION_EXAMPLES
    columns: ClassVar[dict[str, str]] = {"source": "source", "target": "target"}

    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        device = budget.device.type
        is_short = device == "cuda" and budget.minutes < REGULARIZATION_MINUTES
        if is_short:
            sizes = {"tokenizer.vocab_size": min(select_vocab_size(characters, budget), SHORT_VOCAB_SIZE)}
            overrides = ConfigOverrides(overrides.schema, sizes | overrides.values, overrides.origins)
        min_tokens = SHORT_TOKENS_PER_PARAMETER if is_short else TOKENS_PER_PARAMETER
        auto, tokens = autosize(characters, overrides, budget, block_factor=28, max_dropout=0.3, min_tokens=min_tokens)
        is_bpe = auto.values["tokenizer.type"] == "bpe"
        auto.values["batch.max_length"] = 256 if is_bpe else 512
        if device == "cuda":
            auto.values["batch.pad_to_multiple_of"] = 8
        if device == "cuda" and is_bpe and tokens < SMALL_DATA_TOKENS and not is_short:
            auto.values |= SMALL_DATA_VALUES
            auto.messages = [SMALL_DATA_MESSAGE]
        if device == "cpu":
            auto.values |= {"decode.eval_samples": 60, "optim.lr": round(CPU_LR_FACTOR * auto.values["optim.lr"], 5)}
        return auto

    def build_plan(
        self, corpus: Corpus[TextPair], config: TranslationConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        valid = [pair for pair in corpus.valid if max(map(len, pair[:2])) <= MAX_TEXT_CHARS]
        model = build_model(config, tokenizer)
        train = build_pair_batches(corpus, config, tokenizer)
        plan = TrainingPlan(
            model=model,
            batches=train.batches,
            objective=translation(config.reg.label_smoothing, config.reg.rdrop_alpha),
            evaluate=TranslationEvaluator(valid, config, tokenizer, device),
            sample=partial(sample_translations, valid, tokenizer),
            epoch_tokens=train.tokens,
            batch_tokens=config.batch.max_tokens or 2048,
            baselines=partial(baselines, corpus, valid[: config.decode.eval_samples]),
            # Beam search takes longer than greedy search, but its batches are larger than those of few samples.
            test_cost=2 * corpus.test_count / max(min(config.decode.eval_samples, len(valid)), 1),
        )
        if dropped := corpus.counts[0] - train.count:
            plan.messages.append(f"Skipping {dropped:,} pairs longer than {config.batch.max_length} tokens.")
        return plan

    def evaluate(self, config: TranslationConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        """BLEU and chrF of beam search."""
        sources, references = split_sides(list(self.read(explicit_overrides(config), data)))
        search = {"num_beams": config.decode.num_beams, "length_penalty": config.decode.length_penalty}
        hypotheses = translate_texts(pipeline.model, pipeline.tokenizer, sources, **search)
        return {"examples": len(sources), **translation_scores(hypotheses, references)}


def baselines(corpus: Corpus[TextPair], valid: Sequence[TextPair], seconds: float) -> list[dict[str, Any]]:
    """Scores of copying the source, of the most frequent target, and of the target of the most similar source."""
    return translation_baselines(corpus.train, *split_sides(valid), seconds=seconds) if valid else []


def build_model(config: TranslationConfig, tokenizer: TextTokenizer) -> nn.Module:
    """A new or a pretrained encoder-decoder."""
    vocab_size = tokenizer.vocab_size
    if config.init_from is not None:
        model = load_pretrained(config.init_from, Transformer | RNNSearch, "translate", vocab_size=vocab_size)
        return apply_lora(model, config.lora)
    sizes = config.model.model_dump()
    if config.arch == "rnn_search":
        dim, hidden, dropout = sizes["dim"], sizes["hidden"] or 2 * sizes["dim"], sizes["dropout"]
        vocabulary: dict[str, Any] = {"source_vocab_size": vocab_size, "target_vocab_size": vocab_size}
        return RNNSearch(RNNSearchConfig(**vocabulary, dim=dim, hidden=hidden, readout=dim, dropout=dropout))
    return Transformer(TransformerConfig(vocab_size=vocab_size, **sizes))


class TranslationEvaluator:
    """Validation loss and, on some of the pairs, BLEU of greedy translations."""

    def __init__(
        self, valid: Sequence[TextPair], config: TranslationConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> None:
        self.valid, self.config, self.tokenizer = valid[: config.decode.eval_samples], config, tokenizer
        max_length = config.batch.max_length or 256
        sources, targets = (tokenizer.encode(side) for side in split_sides(valid))
        items = [(one[:max_length], other[:max_length]) for one, other in zip(sources, targets, strict=True)]
        ids = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id, "pad_id": tokenizer.pad_id}
        collate = partial(collate_seq2seq, **ids)
        buckets = LengthBucketedBatches(items, lambda pair: max(map(len, pair)) + 1, collate, max_tokens=4096, seed=0)
        batches = [collate([items[i] for i in numbers]) for numbers in buckets.epoch(0)]
        self.loss = make_loss_evaluator(batches, translation(0.0), device)

    def __call__(self, model: nn.Module, share: float = 1.0) -> dict[str, float]:
        scores = self.loss(model, share)
        if find_spec("sacrebleu") is None:
            return scores
        valid = self.valid[: math.ceil(share * len(self.valid))]
        hypotheses = translate_texts(model, self.tokenizer, [pair.source for pair in valid])
        scores["bleu"] = corpus_bleu(hypotheses, [pair.target for pair in valid])
        # The first score selects the best checkpoint: lower is better.
        return {"missing_bleu": 100 - scores["bleu"], **scores} if self.config.decode.monitor == "bleu" else scores


def sample_translations(valid: Sequence[TextPair], tokenizer: TextTokenizer, model: nn.Module) -> list[Sample]:
    """Translations of a few validation examples."""
    shown = valid[:NUM_SAMPLES]
    hypotheses = translate_texts(model, tokenizer, [pair.source for pair in shown])
    return [
        {"source": pair.source, "prediction": hypothesis, "reference": pair.target}
        for pair, hypothesis in zip(shown, hypotheses, strict=True)
    ]

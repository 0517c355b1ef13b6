"""Masked language models: BERT-style pretraining."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn

from softlook.base.tensors import supported_token_types
from softlook.data import TextExample, read_sentences
from softlook.heads.ngram_lm import NeighborLM
from softlook.losses import IGNORE_INDEX
from softlook.models import Bert, BertConfig, Deberta, ModernBert
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import Files, MaskedLMConfig
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.text.baselines import masked_lm_baselines, sample_sentences
from softlook.recipes.text.corpus import Corpus, CorpusSplit, TokenCache, chunk_by_size, contiguous_texts
from softlook.recipes.text.neighbor_model import NeighborModel
from softlook.recipes.text.ngram_mix import (
    MAX_TOKENS,
    HeldOutTokens,
    fit_gate,
    has_ngrams,
    held_out_tokens,
    without_ngrams,
)
from softlook.recipes.text.pretrained import apply_lora, fine_tuning_lr, load_pretrained, replace_head
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.tokens import TextTokenizer
from softlook.tokens.template import template_from_tokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.collate import Ids, MaskedLMBatch, to_device
from softlook.train.batching.masking import (
    DocumentStore,
    MaskingConfig,
    SentencePairIndex,
    collate_masked_lm,
    sample_sentence_pairs,
)
from softlook.train.batching.token_store import store_in_memory
from softlook.train.events import Callback
from softlook.train.objectives import masked_lm, masked_lm_loss
from softlook.train.rng import make_generator

EVAL_BATCH_SIZE, MAX_EVAL_EXAMPLES = 64, 2000
MIN_SAMPLE_TOKENS = 6
"""Tokens of a sentence that tell something about the masked one."""
STARTS_DOCUMENT = 1
"""Flag stored with the first sentence of a document."""
FINE_TUNING_EPOCHS = 4
MaskedLMExamples = tuple[Sequence[Any], torch.Tensor, Callable[[Any, torch.Generator], MaskedLMBatch]]
"""Examples, their lengths, and a function that masks and collates some of them."""


def train_masked_lm(
    config: ConfigLike[MaskedLMConfig], callbacks: Sequence[Callback] = (), *, progress: bool = True
) -> TrainResult:
    """Train a masked language model: `softlook train mlm --data corpus.txt`.

    >>> from pathlib import Path
    >>> from softlook.recipes import MaskedLMConfig
    >>> from softlook.train import TrainingConfig
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles\\n" for n in range(99)))
    >>> config = MaskedLMConfig(data=(Path("corpus.txt"),), training=TrainingConfig(max_steps=2))
    >>> sorted(train_masked_lm(config).scores)
    ['accuracy', 'attention_loss', 'compared', 'compared_on', 'loss']
    """
    return run_task(MaskedLMTask(), config, callbacks, progress=progress)


class MaskedLMTask(TextTask[MaskedLMConfig, TextExample]):
    """Sentences with masked tokens, and an encoder with a masked-LM head."""

    config, reader = MaskedLMConfig, staticmethod(read_sentences)

    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        auto, _ = autosize(characters, overrides, budget, block_factor=12, max_dropout=0.1)
        auto.values["batch.max_length"] = 128
        if overrides.get("init_from"):
            auto.values["optim.lr"] = fine_tuning_lr(overrides)
        return auto

    def build_plan(
        self, corpus: Corpus[TextExample], config: MaskedLMConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        max_length, max_tokens = config.batch.max_length or 128, config.batch.max_tokens or 2048
        seed = config.training.seed
        collator = MaskedLMCollator(tokenizer, config)
        cache, format = TokenCache(corpus, tokenizer, config.run_dir), f"sentences {max_length}"
        encoded = encode_sentences(corpus.train, tokenizer, max_length)
        held_out = encode_sentences(corpus.valid, tokenizer, max_length)
        train = DocumentStore(cache.store(encoded, format, rows=2))
        valid = DocumentStore(cache.store(held_out, format, rows=2, is_validation=True))
        examples, lengths, collate = collator.examples(train)
        # Tokens are masked when a batch is made, by a generator that depends on its position only.
        buckets = LengthBucketedBatches(examples, lengths, list, max_tokens=max_tokens, seed=seed)
        tokens = float(train.sentences.lengths().sum())
        evaluator = MaskedLMEvaluator(collator.examples(valid or train), device, fits_gate=True)
        return TrainingPlan(
            model=build_model(config, tokenizer, build_neighbors(config, tokenizer, train)),
            batches=SeededTransform(buckets, collate, seed=seed),
            objective=masked_lm,
            evaluate=evaluator,
            test_cost=corpus.test_count / max(corpus.counts[1], 1),
            baselines=partial(baselines, train, evaluator.batches, tokenizer),
            sample=partial(sample_predictions, valid or train, tokenizer, device),
            epoch_tokens=tokens,
            batch_tokens=max_tokens,
            total_tokens=None if config.init_from is None else FINE_TUNING_EPOCHS * tokens,
        )

    def evaluate(self, config: MaskedLMConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        split, tokenizer = CorpusSplit(self.read(explicit_overrides(config), data)), pipeline.tokenizer
        encoded = encode_sentences(split, tokenizer, config.batch.max_length or 128)
        documents = DocumentStore(store_in_memory(encoded, vocab_size=tokenizer.vocab_size, rows=2))
        examples = MaskedLMCollator(tokenizer, config).examples(documents)
        return {**MaskedLMEvaluator(examples, pipeline.device)(pipeline.model)}


def baselines(
    train: DocumentStore, batches: Sequence[MaskedLMBatch], tokenizer: TextTokenizer, seconds: float
) -> list[dict[str, Any]]:
    """Scores of models that see no token, or the neighbors of the masked one."""
    ids = {"vocab_size": tokenizer.vocab_size, "special_ids": tokenizer.special_ids, "mask_id": tokenizer.mask_id}
    return masked_lm_baselines(train, batches, **ids, seconds=seconds)


def build_neighbors(config: MaskedLMConfig, tokenizer: TextTokenizer, train: DocumentStore) -> NeighborLM | None:
    """The counts of neighboring tokens beside the attention of a new model."""
    if config.no_ngrams or config.init_from is not None or config.next_sentence:
        return None
    counted = NeighborModel(sample_sentences(train.sentences, MAX_TOKENS), vocab_size=tokenizer.vocab_size)
    return counted.to_module(mask_id=tokenizer.mask_id, special_ids=tokenizer.special_ids)


def build_model(config: MaskedLMConfig, tokenizer: TextTokenizer, neighbors: NeighborLM | None = None) -> nn.Module:
    """A new or a pretrained encoder with a masked-LM head and, if configured, one for next-sentence prediction."""
    head, vocab_size = "pretraining" if config.next_sentence else "masked_lm", tokenizer.vocab_size
    if config.init_from is not None:
        allowed = Bert if config.next_sentence else Bert | Deberta | ModernBert
        encoder = load_pretrained(config.init_from, allowed, "predict masked tokens", vocab_size=vocab_size)
        return apply_lora(replace_head(encoder, head=head), config.lora, pretrained=encoder)
    sizes = {"context": config.batch.max_length or 128, **config.model.model_dump()}
    model = Bert(BertConfig(vocab_size=vocab_size, head=head, neighbors=neighbors and neighbors.config, **sizes))
    model.ngrams = neighbors
    return model


def encode_sentences(
    split: CorpusSplit[TextExample], tokenizer: TextTokenizer, max_length: int
) -> Iterator[tuple[Ids, Ids]]:
    """Ids of each sentence, with a flag if it starts a document; one that is too long is split."""
    max_ids = max_length - template_from_tokenizer(tokenizer).num_special_pair
    documents = (texts for texts, _, _ in contiguous_texts(split))
    for chunk in chunk_by_size(documents, lambda texts: sum(len(text.text) for text in texts)):
        parts = [[part for text in texts for part in split_text(text.text)] for texts in chunk]
        encoded = iter(tokenizer.encode([part for document in parts for part in document]))
        for document in parts:
            rows = (
                row[start : start + max_ids]
                for row in islice(encoded, len(document))
                for start in range(0, len(row), max_ids)
            )
            for number, row in enumerate(rows):
                yield row, [] if number else [STARTS_DOCUMENT]


def split_text(text: str) -> list[str]:
    """A text in parts that the tokenizer accepts."""
    return [text[start : start + MAX_TEXT_CHARS] for start in range(0, len(text), MAX_TEXT_CHARS)]


class MaskedLMCollator:
    """Masks and collates sentences or, for next-sentence prediction, pairs of sentences."""

    def __init__(self, tokenizer: TextTokenizer, config: MaskedLMConfig) -> None:
        masking = MaskingConfig(
            mask_id=tokenizer.mask_id,
            vocab_size=tokenizer.vocab_size,
            special_ids=tokenizer.special_ids,
            mask_prob=config.mask_prob,
        )
        template = template_from_tokenizer(tokenizer)
        max_ids = (config.batch.max_length or 128) - template.num_special_pair
        self.next_sentence = config.next_sentence
        self.collate = partial(
            collate_masked_lm, masking=masking, join=template.apply, max_length=max_ids, pad_id=tokenizer.pad_id
        )

    def examples(self, documents: DocumentStore) -> MaskedLMExamples:
        """Single sentences, or pairs of sentences."""
        candidates = range(len(documents))

        def collate(batch: Sequence[tuple[Ids, Ids]], generator: torch.Generator) -> MaskedLMBatch:
            return self.collate([(row, [], IGNORE_INDEX) for row, _ in batch], generator)

        def collate_pairs(batch: Sequence[tuple[int, int]], generator: torch.Generator) -> MaskedLMBatch:
            return self.collate(sample_sentence_pairs(documents, batch, generator, candidates=candidates), generator)

        if not self.next_sentence:
            return documents.sentences, documents.sentences.lengths(), collate
        pairs = SentencePairIndex(documents)
        return pairs, pairs.lengths(), collate_pairs


class MaskedLMEvaluator:
    """Validation loss and accuracy; the same tokens are masked in every evaluation.

    With a model of neighboring tokens, `fits_gate` fits the gate between it and attention in every evaluation.
    """

    def __init__(self, examples: MaskedLMExamples, device: torch.device, *, fits_gate: bool = False) -> None:
        items, _, collate = examples
        starts = range(0, min(len(items), MAX_EVAL_EXAMPLES), EVAL_BATCH_SIZE)
        self.batches = [collate(items[start : start + EVAL_BATCH_SIZE], make_generator(0, start)) for start in starts]
        self.device, self.fits_gate = device, fits_gate

    def __call__(self, model: nn.Module, share: float = 1.0) -> dict[str, float]:
        batches = self.batches[: math.ceil(share * len(self.batches))]
        if self.fits_gate and has_ngrams(model):
            return self._fit_gate(model, batches)
        return self._scores(model, batches)

    def _fit_gate(self, model: Any, batches: Sequence[MaskedLMBatch]) -> dict[str, float]:
        """Scores of the mix with the model of neighboring tokens, and the loss of attention alone."""
        predicted = predict_masked(model, (to_device(batch, self.device) for batch in batches))
        model.ngrams.gate.copy_(fit_gate(predicted))
        return {**self._scores(model, batches), "attention_loss": -float(predicted.attention.mean())}

    def _scores(self, model: nn.Module, batches: Sequence[MaskedLMBatch]) -> dict[str, float]:
        total, count, correct = 0.0, 0, 0
        next_correct: list[bool] = []
        for batch in batches:
            batch = to_device(batch, self.device)
            logits = predict_logits(model, batch)
            loss = masked_lm_loss(logits, batch)
            token_logits = logits if isinstance(logits, torch.Tensor) else logits.masked_lm
            correct += int((token_logits.argmax(-1) == batch.labels).sum())
            if not isinstance(logits, torch.Tensor):
                next_correct += (logits.next_sentence.argmax(-1) == batch.next_sentence_labels).tolist()
            total, count = total + float(loss.total), count + int(loss.count)
        scores = {"loss": total / max(count, 1), "accuracy": correct / max(count, 1)}
        return scores | ({"next_sentence_accuracy": sum(next_correct) / len(next_correct)} if next_correct else {})


def predict_logits(model: nn.Module, batch: MaskedLMBatch) -> Any:
    """The output of a model for a batch."""
    types = supported_token_types(model, batch.token_types)
    return model(batch.ids, padding_mask=batch.padding_mask, token_types=types)


@torch.no_grad()
def predict_masked(model: Any, batches: Iterable[MaskedLMBatch]) -> HeldOutTokens:
    """The predictions of a model's attention and of its counts of neighboring tokens for the labels of batches."""
    parts = []
    for batch in batches:
        has_label = batch.labels != IGNORE_INDEX
        with without_ngrams(model):
            attention = predict_logits(model, batch)[has_label].float().log_softmax(-1)
        own, kind = model.ngrams.logprobs(batch.ids, has_label)
        parts.append(held_out_tokens(model.ngrams, attention, own, kind, batch.labels[has_label]))
    return HeldOutTokens(*(torch.cat(part) for part in zip(*parts, strict=True)))


def sample_predictions(
    documents: DocumentStore, tokenizer: TextTokenizer, device: torch.device, model: nn.Module
) -> list[Sample]:
    """Predictions for the masked middle token of a few validation sentences."""
    samples: list[Sample] = []
    template = template_from_tokenizer(tokenizer)
    rows = dict.fromkeys(tuple(document[0]) for document in islice(documents, MAX_EVAL_EXAMPLES))
    for row in sorted(rows, key=lambda row: len(row) < MIN_SAMPLE_TOKENS)[:3]:  # different ones, and not too short
        ids = template.apply(row).ids
        position = len(ids) // 2
        label, ids[position] = ids[position], tokenizer.mask_id
        logits: Any = model(torch.tensor([ids], device=device))
        token_logits = logits if isinstance(logits, torch.Tensor) else logits.masked_lm
        predicted = token_logits[0, position].topk(3).indices.tolist()
        before, after = tokenizer.decode(ids[:position]), tokenizer.decode(ids[position + 1 :])
        samples.append(
            {
                "text": f"{before} ___ {after}",
                "prediction": ", ".join(tokenizer.decode([id]) for id in predicted),
                "label": tokenizer.decode([label]),
            }
        )
    return samples

"""Models and data of the training benchmark, for softlook and for transformers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    default_data_collator,
)

from benchmarks.model_costs import ModelPair, make_pair
from benchmarks.training_data import CLS, EOS, PAD, Text, labeled_texts, make_corpus, translation_pairs
from softlook.losses import IGNORE_INDEX
from softlook.recipes.text.packed_lm import CausalLMObjective, LanguageModelBatches, SingleDocumentBatch
from softlook.train.batching.batches import Batches, DataCursor, LengthBucketedBatches
from softlook.train.batching.collate import ClassificationBatch, Seq2SeqBatch, collate_classification, collate_seq2seq
from softlook.train.batching.packed_stream import PackedStream, TokenizedDocuments
from softlook.train.objectives import classification, translation
from softlook.train.train_step import Objective

CONTEXT = 128
VOCAB = {"letters": 68, "words": 4000}
Feature = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model and its training texts, batched on each side as its users would."""

    name: str
    make: Callable[[float], ModelPair]
    """The same model for both sides, with this dropout probability."""
    features: Sequence[Feature]
    """Examples for transformers."""
    collate: Callable[[list[Feature]], Any]
    """Collate function for transformers."""
    batches: Batches
    """Batches for softlook."""
    objective: Objective
    to_softlook: Callable[[list[Feature]], Any]
    """The batch of these examples for softlook, to compare losses."""
    strategies: tuple[str, ...] = ("random",)
    """Sampling strategies of transformers.Trainer."""
    steps: int = 60

    @property
    def trainer_batch_size(self) -> int:
        """Examples per batch of the Trainer, so that both sides have equally many tokens per batch."""
        tokens = [batch_tokens(batch) for _, batch in islice(self.batches.iter_from(DataCursor()), 100)]
        return max(round(sum(tokens) / len(tokens) * len(self.features) / sum(map(feature_tokens, self.features))), 1)


def feature_tokens(feature: Feature) -> int:
    """Input and target tokens of an example for transformers."""
    labels = feature["labels"]
    is_pair = isinstance(labels, list) and IGNORE_INDEX not in labels
    return len(feature["input_ids"]) + (len(labels) if is_pair else 0)


def batch_tokens(batch: SingleDocumentBatch | ClassificationBatch | Seq2SeqBatch) -> int:
    """Input and target tokens of a softlook batch, without padding."""
    if isinstance(batch, ClassificationBatch):
        return int(batch.padding_mask.sum())
    source = int(batch.source_mask.sum()) if isinstance(batch, Seq2SeqBatch) else 0
    return source + int((batch.labels != IGNORE_INDEX).sum())


def cases(quick: bool) -> list[Case]:
    """All cases, the smaller models first."""
    tiny: dict[str, int] = {"dim": 32, "depth": 1, "heads": 2} if quick else {}
    return [
        causal_lm_case("GPT-2 shape, 128 x 4", **({"dim": 128, "depth": 4, "heads": 4} | tiny)),
        causal_lm_case("GPT-2 shape, 384 x 6", **({"dim": 384, "depth": 6, "heads": 6} | tiny), steps=20),
        classification_case("BERT shape, 128 x 4", **({"dim": 128, "depth": 4, "heads": 4} | tiny)),
        translation_case("Marian shape, 256 x 3 + 3", **({"dim": 256, "depth": 3, "heads": 4} | tiny), steps=24),
    ]


def causal_lm_case(name: str, *, dim: int, depth: int, heads: int, steps: int = 60) -> Case:
    """A character-level decoder on rows of one long text, as in `softlook train lm` on a CPU."""
    vocab = VOCAB["letters"]
    ids = make_corpus(200_000, vocab)
    rows = [ids[start : start + CONTEXT] for start in range(0, len(ids) - CONTEXT, CONTEXT)]
    text = TokenizedDocuments(torch.tensor(ids), torch.tensor([0]))

    def make(dropout: float) -> ModelPair:
        config = GPT2Config(
            vocab_size=vocab,
            n_positions=CONTEXT,
            n_embd=dim,
            n_layer=depth,
            n_head=heads,
            bos_token_id=CLS,
            eos_token_id=EOS,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout),
        )
        return make_pair(name, GPT2LMHeadModel, config)

    def to_softlook(features: list[Feature]) -> SingleDocumentBatch:
        ids = torch.tensor([feature["input_ids"] for feature in features])
        return SingleDocumentBatch(ids, torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], IGNORE_INDEX)], 1))

    return Case(
        name=name,
        make=make,
        # The first token is no label: Trainer would count it among the targets of its mean.
        features=[{"input_ids": row, "labels": [IGNORE_INDEX, *row[1:]]} for row in rows],
        collate=default_data_collator,
        batches=LanguageModelBatches(PackedStream(text, context=CONTEXT, batch_size=12, seed=0)),
        objective=CausalLMObjective(CONTEXT),
        to_softlook=to_softlook,
        steps=steps,
    )


def _join(first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
    """`[CLS] text`, as in the examples for transformers."""
    return [CLS, *first], [0] * (1 + len(first))


def classification_case(name: str, *, dim: int, depth: int, heads: int, steps: int = 60) -> Case:
    """An encoder with a classification head, on texts of different lengths."""
    vocab, max_tokens = VOCAB["words"], 2048
    texts = labeled_texts(4000, vocab, max_length=CONTEXT - 1)
    collate = partial(collate_classification, join=_join, max_length=CONTEXT - 1, pad_id=PAD)

    def make(dropout: float) -> ModelPair:
        config = BertConfig(
            vocab_size=vocab,
            max_position_embeddings=CONTEXT,
            hidden_size=dim,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=4 * dim,
            **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout),
        )
        return make_pair(name, BertForSequenceClassification, config)

    return Case(
        name=name,
        make=make,
        features=[{"input_ids": [CLS, *text], "labels": label} for text, label in texts],
        collate=DataCollatorWithPadding(padding_tokenizer(vocab)),
        batches=LengthBucketedBatches(
            [(text, (), label) for text, label in texts],
            lambda item: len(item[0]) + 1,
            collate,
            max_tokens=max_tokens,
            seed=0,
        ),
        objective=classification(),
        to_softlook=lambda features: collate(
            [(feature["input_ids"][1:], (), feature["labels"]) for feature in features]
        ),
        strategies=("random", "group_by_length"),
        steps=steps,
    )


def translation_case(name: str, *, dim: int, depth: int, heads: int, steps: int = 60) -> Case:
    """An encoder-decoder, on pairs of different lengths."""
    vocab, max_tokens = VOCAB["words"], 2048
    pairs = translation_pairs(6000, vocab, max_length=CONTEXT - 1)
    # Marian starts decoding with the padding token, whose embedding transformers does not train; CLS is trained.
    collate = partial(collate_seq2seq, bos_id=CLS, eos_id=EOS, pad_id=PAD)

    def make(dropout: float) -> ModelPair:
        layers = ("encoder_layers", "decoder_layers"), ("encoder_attention_heads", "decoder_attention_heads")
        config = MarianConfig(
            vocab_size=vocab,
            max_position_embeddings=CONTEXT,
            d_model=dim,
            pad_token_id=PAD,
            eos_token_id=EOS,
            forced_eos_token_id=EOS,
            decoder_start_token_id=CLS,
            activation_function="relu",
            **dict.fromkeys(layers[0], depth),
            **dict.fromkeys(layers[1], heads),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 4 * dim),
            **dict.fromkeys(("dropout", "attention_dropout"), dropout),
        )
        pair = make_pair(name, MarianMTModel, config)
        pair.softlook.lm_head.bias.requires_grad_(False)  # a buffer in transformers, which is not trained
        return pair

    def length(pair: tuple[Text, Text]) -> int:
        return max(map(len, pair)) + 1

    return Case(
        name=name,
        make=make,
        features=[{"input_ids": [*source, EOS], "labels": [*target, EOS]} for source, target in pairs],
        collate=DataCollatorForSeq2Seq(padding_tokenizer(vocab)),
        batches=LengthBucketedBatches(pairs, length, collate, max_tokens=max_tokens, seed=0),
        objective=translation(label_smoothing=0.0),
        to_softlook=lambda features: collate([(each["input_ids"][:-1], each["labels"][:-1]) for each in features]),
        strategies=("random", "group_by_length"),
        steps=steps,
    )


def padding_tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """A tokenizer for the collators of transformers, which pad with one."""
    tokenizer = Tokenizer(WordLevel({str(number): number for number in range(vocab)}, unk_token=str(EOS)))
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=str(PAD), model_input_names=inputs)

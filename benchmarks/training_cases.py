"""What part J trains: the same model twice, and the same texts as each side wants them."""

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

from benchmarks.model_costs import Pair, paired
from benchmarks.training_texts import END, FIRST, PAD, Text, classed, corpus, translated
from softlook.losses import NOTHING
from softlook.recipes.language import Following, Packed, Whole
from softlook.train.batches import Batches, Place, Shuffled
from softlook.train.examples import Labels, labelled, pairs
from softlook.train.examples import Pairs as Sides
from softlook.train.objectives import classification, translation
from softlook.train.step import Objective
from softlook.train.stream import Stream, Tokens

CONTEXT = 128
VOCAB = {"letters": 68, "words": 4000}
Feature = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model and texts. What each side makes of the texts is what its users make of them."""

    name: str
    make: Callable[[float], Pair]
    """The model twice, with this share of dropout."""
    features: Sequence[Feature]
    """The texts for Hugging Face."""
    collate: Callable[[list[Feature]], Any]
    """A batch for Hugging Face."""
    batches: Batches
    """The texts for us."""
    objective: Objective
    same: Callable[[list[Feature]], Any]
    """The same batch for us, to compare losses on."""
    strategies: tuple[str, ...] = ("random",)
    """How their batches are drawn."""
    steps: int = 60

    @property
    def together(self) -> int:
        """How many texts make a batch of theirs, so that there are as many tokens in it as in ours."""
        some = [heard(batch) for _, batch in islice(self.batches.start(Place()), 100)]
        return max(round(sum(some) / len(some) * len(self.features) / sum(map(spoken, self.features))), 1)


def spoken(feature: Feature) -> int:
    """Tokens of an example for Hugging Face: what is read, and what is to be said about it."""
    said = feature["labels"]
    is_pair = isinstance(said, list) and NOTHING not in said
    return len(feature["input_ids"]) + (len(said) if is_pair else 0)


def heard(batch: Whole | Labels | Sides) -> int:
    """Tokens of a batch of ours. Where padding stands there is none."""
    if isinstance(batch, Labels):
        return int(batch.present.sum())
    read = int(batch.source_present.sum()) if isinstance(batch, Sides) else 0
    return read + int((batch.wanted != NOTHING).sum())


def cases(quick: bool) -> list[Case]:
    """The smaller ones first."""
    tiny: dict[str, int] = {"dim": 32, "depth": 1, "heads": 2} if quick else {}
    return [
        continuing("GPT-2 shape, 128 x 4", **({"dim": 128, "depth": 4, "heads": 4} | tiny)),
        continuing("GPT-2 shape, 384 x 6", **({"dim": 384, "depth": 6, "heads": 6} | tiny), steps=20),
        classifying("BERT shape, 128 x 4", **({"dim": 128, "depth": 4, "heads": 4} | tiny)),
        translating("Marian shape, 256 x 3 + 3", **({"dim": 256, "depth": 3, "heads": 4} | tiny), steps=24),
    ]


def continuing(name: str, *, dim: int, depth: int, heads: int, steps: int = 60) -> Case:
    """A decoder-only model of letters, on rows cut from one long text: as `softlook train lm` does on a CPU."""
    vocab = VOCAB["letters"]
    ids = corpus(200_000, vocab)
    rows = [ids[start : start + CONTEXT] for start in range(0, len(ids) - CONTEXT, CONTEXT)]
    text = Tokens(torch.tensor(ids), torch.tensor([0]))

    def make(dropout: float) -> Pair:
        config = GPT2Config(
            vocab_size=vocab,
            n_positions=CONTEXT,
            n_embd=dim,
            n_layer=depth,
            n_head=heads,
            bos_token_id=FIRST,
            eos_token_id=END,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout),
        )
        return paired(name, GPT2LMHeadModel, config)

    def same(features: list[Feature]) -> Whole:
        ids = torch.tensor([feature["input_ids"] for feature in features])
        return Whole(ids, torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], NOTHING)], 1))

    return Case(
        name=name,
        make=make,
        # What comes first is asked by nobody; Trainer would count it among the targets, and its mean be off by it.
        features=[{"input_ids": row, "labels": [NOTHING, *row[1:]]} for row in rows],
        collate=default_data_collator,
        batches=Packed(Stream(text, context=CONTEXT, rows=12, seed=0)),
        objective=Following(CONTEXT),
        same=same,
        steps=steps,
    )


def _framed(one: Sequence[int], other: Sequence[int]) -> tuple[list[int], list[int]]:
    """`[CLS] text`, as the features of the other side have it."""
    return [FIRST, *one], [0] * (1 + len(one))


def classifying(name: str, *, dim: int, depth: int, heads: int, steps: int = 60) -> Case:
    """An encoder with a head for classes, on texts of uneven length."""
    vocab, most = VOCAB["words"], 2048
    texts = classed(4000, vocab, longest=CONTEXT - 1)
    collate = partial(labelled, join=_framed, room=CONTEXT - 1, pad=PAD)

    def make(dropout: float) -> Pair:
        config = BertConfig(
            vocab_size=vocab,
            max_position_embeddings=CONTEXT,
            hidden_size=dim,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=4 * dim,
            **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout),
        )
        return paired(name, BertForSequenceClassification, config)

    return Case(
        name=name,
        make=make,
        features=[{"input_ids": [FIRST, *text], "labels": label} for text, label in texts],
        collate=DataCollatorWithPadding(words(vocab)),
        batches=Shuffled(
            [(text, (), label) for text, label in texts], lambda item: len(item[0]) + 1, collate, most=most, seed=0
        ),
        objective=classification(),
        same=lambda features: collate([(feature["input_ids"][1:], (), feature["labels"]) for feature in features]),
        strategies=("random", "group_by_length"),
        steps=steps,
    )


def translating(name: str, *, dim: int, depth: int, heads: int, steps: int = 60) -> Case:
    """An encoder-decoder, on pairs of uneven length."""
    vocab, most = VOCAB["words"], 2048
    sides = translated(6000, vocab, longest=CONTEXT - 1)
    # Marian begins with the padding by custom, whose vector Hugging Face does not train; with FIRST both train alike.
    collate = partial(pairs, begin=FIRST, end=END, pad=PAD)

    def make(dropout: float) -> Pair:
        layers = ("encoder_layers", "decoder_layers"), ("encoder_attention_heads", "decoder_attention_heads")
        config = MarianConfig(
            vocab_size=vocab,
            max_position_embeddings=CONTEXT,
            d_model=dim,
            pad_token_id=PAD,
            eos_token_id=END,
            forced_eos_token_id=END,
            decoder_start_token_id=FIRST,
            activation_function="relu",
            **dict.fromkeys(layers[0], depth),
            **dict.fromkeys(layers[1], heads),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 4 * dim),
            **dict.fromkeys(("dropout", "attention_dropout"), dropout),
        )
        pair = paired(name, MarianMTModel, config)
        pair.ours.head.bias.requires_grad_(False)  # with them it is no weight, and stays as it is
        return pair

    def length(pair: tuple[Text, Text]) -> int:
        return max(map(len, pair)) + 1

    return Case(
        name=name,
        make=make,
        features=[{"input_ids": [*source, END], "labels": [*target, END]} for source, target in sides],
        collate=DataCollatorForSeq2Seq(words(vocab)),
        batches=Shuffled(sides, length, collate, most=most, seed=0),
        objective=translation(smoothing=0.0),
        same=lambda features: collate([(each["input_ids"][:-1], each["labels"][:-1]) for each in features]),
        strategies=("random", "group_by_length"),
        steps=steps,
    )


def words(vocab: int) -> PreTrainedTokenizerFast:
    """A tokenizer of as many words, for those who fill rows up with one."""
    known = Tokenizer(WordLevel({str(number): number for number in range(vocab)}, unk_token=str(END)))
    asked = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=known, pad_token=str(PAD), model_input_names=asked)

"""Marian: translation models, which are BART's without its norms behind the embedding, and with positions of sines."""

from typing import Any

from pydantic import PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.transformer import Transformer
from softlook.weights.families import bart
from softlook.weights.families.bart import TABLES, BartLike, config_of, describe_like, rules_like, table_rules, without
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Tensors


class Marian(BartLike):
    """Hugging Face's MarianConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 58101
    decoder_vocab_size: PositiveInt | None = None
    normalize_embedding: bool = False
    static_position_embeddings: bool = True


def build(theirs: Marian, head: str) -> Transformer:
    if theirs.normalize_embedding or not theirs.static_position_embeddings:
        raise WeightsError(
            "this Marian has a norm behind its embedding, or learned positions; Hugging Face's has neither"
        )
    target = theirs.decoder_vocab_size or theirs.vocab_size
    if theirs.share_encoder_decoder_embeddings:
        return Transformer(config_of(theirs, places="sinusoidal_half"))
    return Transformer(config_of(theirs, target_vocab=target, places="sinusoidal_half"))


def settle(config: Marian, tensors: Tensors) -> tuple[Any, Tensors]:
    bart.check_places(config.d_model, tensors)
    if config.share_encoder_decoder_embeddings:
        config = config.model_copy(update={"decoder_vocab_size": config.vocab_size})  # the other number is not used
    config, tensors, tables = bart.settle_like(config, tensors)
    if config.share_encoder_decoder_embeddings and config.tie_word_embeddings:
        return config, bart.whole(tensors, tables)
    return config, without(tensors, tables.shared)


def rules(model: Transformer) -> list[Rule]:
    tables = table_rules(model)
    if len(tables) > 1:
        tables.pop(TABLES.shared)  # it has such a table only where it is the only one
    return [*tables.values(), *rules_like(model)]


def describe(model: Transformer) -> dict[str, Any]:
    c = model.config
    words = c.vocab if c.target_vocab is None else c.target_vocab
    last = min(c.vocab, words) - 1
    return {
        "architectures": ["MarianMTModel"],
        **describe_like(model),
        "decoder_vocab_size": words,
        "share_encoder_decoder_embeddings": len(table_rules(model)) == 1,
        "tie_word_embeddings": c.tied,
        # By their custom the last token fills up and begins, and the first one ends.
        "pad_token_id": last,
        "decoder_start_token_id": last,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }


def writes(model: nn.Module) -> bool:
    if not isinstance(model, Transformer) or not bart.writes_like(model):
        return False
    return model.config.places == "sinusoidal_half" and not model.config.embedding_norm and not model.config.offset


FAMILY = Family(
    name="Marian",
    model_type="marian",
    schema=Marian,
    harmless=bart.HARMLESS,
    architectures={"MarianMTModel": "words", "MarianModel": "words"},
    prefix=bart.PREFIX,
    settle=settle,
    build=build,
    rules=rules,
    ignored=lambda model: (bart.PLACES,),
    writes=writes,
    describe=describe,
)

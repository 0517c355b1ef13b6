"""mBART, Pegasus and M2M-100 (NLLB too): BART with a norm before each layer, and one to close each stack."""

from dataclasses import replace
from typing import Any

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.transformer import Transformer
from softlook.weights.families import bart
from softlook.weights.families.bart import BIAS, Bart, BartLike, config_of, rules_like, table_rules, without
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Tensors


class Pegasus(BartLike):
    """Hugging Face's PegasusConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 50265
    normalize_embedding: bool = False
    static_position_embeddings: bool = True


class M2M(BartLike):
    """Hugging Face's M2M100Config, as far as it changes the numbers."""

    vocab_size: PositiveInt = 128112
    activation_function: str = "relu"
    scale_embedding: bool = True
    pad_token_id: NonNegativeInt = 1
    decoder_start_token_id: NonNegativeInt | None = 2


def build_mbart(theirs: Bart, head: str) -> Transformer:
    if not theirs.normalize_embedding or theirs.static_position_embeddings:
        raise WeightsError(
            "normalize_embedding should be true and static_position_embeddings false, as in Hugging Face's code for "
            "mBART; the config says otherwise"
        )
    return _built(theirs, places="learned", offset=2, embedding_norm=True)


def build_pegasus(theirs: Pegasus, head: str) -> Transformer:
    if theirs.normalize_embedding or not theirs.static_position_embeddings:
        raise WeightsError(
            "normalize_embedding should be false and static_position_embeddings true, as in Hugging Face's code for "
            "Pegasus; the config says otherwise"
        )
    return _built(theirs, places="sinusoidal_half")


def build_m2m(theirs: M2M, head: str) -> Transformer:
    if theirs.decoder_start_token_id == theirs.pad_token_id:
        raise WeightsError(
            f"decoder_start_token_id and pad_token_id are both {theirs.pad_token_id}: Hugging Face's M2M-100 gives "
            "padding no position, so that answers would begin without one; softlook's Transformer does not"
        )
    offset = theirs.pad_token_id + 1  # positions up to the padding's own are never a token's
    return _built(theirs, places="sinusoidal_tensor2tensor", offset=offset, head_bias=False)


def _built(theirs: BartLike, **changes: Any) -> Transformer:
    target = None if theirs.share_encoder_decoder_embeddings else theirs.vocab_size
    return Transformer(config_of(theirs, norm="pre", target_vocab=target, **changes))


def settle_pegasus(config: Pegasus, tensors: Tensors) -> tuple[Any, Tensors]:
    bart.check_places(config.d_model, tensors)
    return bart.settle(config, tensors)


def settle_m2m(config: M2M, tensors: Tensors) -> tuple[Any, Tensors]:
    """Without scores of the words' own, which it does not have."""
    config, tensors = bart.settle(config, tensors)
    return config, without(tensors, BIAS)


def rules(model: Transformer) -> list[Rule]:
    return [*table_rules(model).values(), *rules_like(model)]


def rules_mbart(model: Transformer) -> list[Rule]:
    return [*rules(model), *bart.place_rules()]


def _describe(model: Transformer, name: str) -> dict[str, Any]:
    return {**bart.describe(model), "architectures": [f"{name}ForConditionalGeneration"]}


def describe_m2m(model: Transformer) -> dict[str, Any]:
    return {**_describe(model, "M2M100"), "pad_token_id": model.config.offset - 1}


def _writes(model: nn.Module, places: str) -> bool:
    if not isinstance(model, Transformer) or not bart.writes_like(model, "pre"):
        return False
    return model.config.places == places and model.config.target_vocab in (None, model.config.vocab)


def writes_mbart(model: nn.Module) -> bool:
    return _writes(model, "learned") and model.config.offset == 2 and model.config.embedding_norm  # pyright: ignore


def writes_pegasus(model: nn.Module) -> bool:
    if not isinstance(model, Transformer) or not _writes(model, "sinusoidal_half"):
        return False
    return not model.config.embedding_norm and not model.config.offset


def writes_m2m(model: nn.Module) -> bool:
    if not isinstance(model, Transformer) or not _writes(model, "sinusoidal_tensor2tensor"):
        return False
    return not model.config.embedding_norm and not model.config.head_bias and model.config.offset > 0


MBART = Family(
    name="mBART",
    model_type="mbart",
    schema=Bart,
    harmless=bart.HARMLESS,
    architectures={"MBartForConditionalGeneration": "words", "MBartModel": "words"},
    prefix=bart.PREFIX,
    settle=bart.settle,
    build=build_mbart,
    rules=rules_mbart,
    ignored=bart.FAMILY.ignored,
    writes=writes_mbart,
    describe=lambda model: _describe(model, "MBart"),
)
PEGASUS = replace(
    MBART,
    name="Pegasus",
    model_type="pegasus",
    schema=Pegasus,
    architectures={"PegasusForConditionalGeneration": "words", "PegasusModel": "words"},
    settle=settle_pegasus,
    build=build_pegasus,
    rules=rules,
    ignored=lambda model: (bart.PLACES,),
    writes=writes_pegasus,
    describe=lambda model: _describe(model, "Pegasus"),
)
M2M100 = replace(
    MBART,
    name="M2M-100",
    model_type="m2m_100",
    schema=M2M,
    architectures={"M2M100ForConditionalGeneration": "words", "M2M100Model": "words"},
    settle=settle_m2m,
    build=build_m2m,
    rules=rules,
    ignored=lambda model: (bart.PLACES, r"(model\.)?(encoder|decoder)\.version"),
    writes=writes_m2m,
    describe=describe_m2m,
)

"""BERT with all its heads; shared by RoBERTa and ELECTRA."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classification import ClassificationHead, SpanHead, TokenClassificationHead
from softlook.heads.lm import MaskedLMHead
from softlook.heads.pooling import Pooler
from softlook.models.bert import Bert, BertConfig
from softlook.weights.architectures import encoders
from softlook.weights.architectures.base import HFArchitecture, from_hf_activation, to_hf_activation
from softlook.weights.sentence_transformers import sentence_head
from softlook.weights.tensor_map import Rename, TensorRule, rename_layer

HEAD_BY_CLASS = {
    "BertModel": "pooled",
    "BertForMaskedLM": "masked_lm",
    "BertForNextSentencePrediction": "next_sentence",
    "BertForPreTraining": "pretraining",
    "BertForSequenceClassification": "classification",
    "BertForMultipleChoice": "multiple_choice",
    "BertForTokenClassification": "token_classification",
    "BertForQuestionAnswering": "question_answering",
}

LM_HEAD_NAMES = encoders.LMHeadNames(
    embedding="bert.embeddings.word_embeddings.weight",
    weight="cls.predictions.decoder.weight",
    bias="cls.predictions.bias",
    bias_copy="cls.predictions.decoder.bias",
)


class HFBertConfig(encoders.HFEncoderConfig):
    """Hugging Face's BertConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    type_vocab_size: PositiveInt = 2
    hidden_size: PositiveInt = 768
    num_hidden_layers: PositiveInt = 12
    num_attention_heads: PositiveInt = 12
    intermediate_size: PositiveInt = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    layer_norm_eps: NonNegativeFloat = 1e-12
    position_embedding_type: str = "absolute"
    is_decoder: bool = False
    add_cross_attention: bool = False


def build(hf_config: HFBertConfig, head: str) -> Bert:
    return Bert(encoder_config(hf_config, head))


def encoder_config(hf_config: HFBertConfig, head: str) -> BertConfig:
    """Convert a config of BERT, RoBERTa, ELECTRA or MPNet to a BertConfig."""
    if hf_config.is_decoder or hf_config.add_cross_attention:
        raise WeightsError("is_decoder and add_cross_attention are not supported")
    if hf_config.position_embedding_type != "absolute":
        raise WeightsError(
            f"position_embedding_type {hf_config.position_embedding_type!r:.40} is not supported, only 'absolute'"
        )
    config = BertConfig(
        vocab_size=hf_config.vocab_size,
        context=hf_config.max_position_embeddings,
        token_types=hf_config.type_vocab_size,
        dim=hf_config.hidden_size,
        depth=hf_config.num_hidden_layers,
        heads=hf_config.num_attention_heads,
        hidden=hf_config.intermediate_size,
        activation=from_hf_activation(hf_config.hidden_act),
        dropout=hf_config.hidden_dropout_prob,
        eps=hf_config.layer_norm_eps,
    )
    return encoders.with_head(config, head, hf_config)


def detect_head(head: str, folder: Path, names: Collection[str]) -> str:
    """A base model may be a sentence-transformers folder, or have no pooler."""
    if head != "pooled":
        return head
    return sentence_head(folder) or (
        head if any(name.endswith("pooler.dense.weight") for name in names) else "hidden_states"
    )


def tensor_map(model: Bert) -> list[TensorRule]:
    found = encoder_rules(model, "bert.")
    if pool := encoders.find_module(model, Pooler):
        found += rename_layer(f"{pool}.dense", "bert.pooler.dense")
    if words := encoders.find_module(model, MaskedLMHead):
        found += rename_layer(f"{words}.dense", "cls.predictions.transform.dense")
        found += rename_layer(f"{words}.norm", "cls.predictions.transform.LayerNorm")
        found += LM_HEAD_NAMES.rules(words, tied=model.config.tie_embeddings)
    if classes := encoders.find_module(model, ClassificationHead, TokenClassificationHead):
        pair = model.config.head in ("next_sentence", "pretraining")
        found += rename_layer(f"{classes}.to_classes", "cls.seq_relationship" if pair else "classifier")
    if ends := encoders.find_module(model, SpanHead):
        found += rename_layer(f"{ends}.to_span", "qa_outputs")
    return found


def encoder_rules(model: Bert, prefix: str) -> list[TensorRule]:
    """Tensor rules of the encoder of BERT, RoBERTa and ELECTRA."""
    found: list[TensorRule] = [
        Rename("token_embedding.weight", f"{prefix}embeddings.word_embeddings.weight"),
        Rename("position_embedding.weight", f"{prefix}embeddings.position_embeddings.weight"),
        Rename("type_embedding.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
        *rename_layer("embedding_norm", f"{prefix}embeddings.LayerNorm"),
    ]
    for i in range(model.config.depth):
        target, source = f"blocks.{i}", f"{prefix}encoder.layer.{i}"
        for part in ("query", "key", "value"):
            found += rename_layer(f"{target}.attn.to_{part}", f"{source}.attention.self.{part}")
        found += [
            *rename_layer(f"{target}.attn.to_out", f"{source}.attention.output.dense"),
            *rename_layer(f"{target}.attn_norm", f"{source}.attention.output.LayerNorm"),
            *rename_layer(f"{target}.ffn.to_up", f"{source}.intermediate.dense"),
            *rename_layer(f"{target}.ffn.to_out", f"{source}.output.dense"),
            *rename_layer(f"{target}.ffn_norm", f"{source}.output.LayerNorm"),
        ]
    return found


def ignored_tensors(model: Bert) -> tuple[str, ...]:
    ignored = (r"(bert\.)?embeddings\.position_ids",)
    if model.config.head == "masked_lm":
        ignored += (r"cls\.seq_relationship\.(weight|bias)",)  # part of BERT's published checkpoints
    return ignored if encoders.find_module(model, Pooler) else (*ignored, r"(bert\.)?pooler\.dense\.(weight|bias)")


def rename_legacy(name: str) -> str:
    """Legacy names of the norms' weight and bias: gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def to_config(model: Bert) -> dict[str, Any]:
    return {"architectures": [encoders.hf_class(model, HEAD_BY_CLASS)], **encoder_fields(model)}


def encoder_fields(model: Bert) -> dict[str, Any]:
    """Shared fields of config.json for BERT, RoBERTa, ELECTRA and MPNet."""
    c = model.config
    return {
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.context,
        "type_vocab_size": c.token_types,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
        "hidden_act": to_hf_activation(c.activation),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.dropout,
        "layer_norm_eps": c.eps,
        **encoders.hf_tie_field(c),
        **encoders.hf_label_fields(c),
    }


def can_export(model: nn.Module) -> bool:
    if not isinstance(model, Bert) or model.config.position_offset or not model.config.token_types:
        return False
    return encoders.is_plain_bert(model.config) and encoders.has_hf_pooler(model.config, "tanh")


IGNORED = """
    attention_probs_dropout_prob classifier_dropout directionality pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type
"""
ARCHITECTURE = HFArchitecture(
    name="BERT",
    model_type="bert",
    config_class=HFBertConfig,
    ignored_fields=frozenset(IGNORED.split()),
    head_by_class=HEAD_BY_CLASS,
    base_model_prefix="bert.",
    rename_legacy=rename_legacy,
    detect_head=detect_head,
    resolve_tying=LM_HEAD_NAMES.resolve_tying,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    is_base_model=encoders.is_base_model,
    to_config=to_config,
    extra_files=encoders.sentence_files_of,
)

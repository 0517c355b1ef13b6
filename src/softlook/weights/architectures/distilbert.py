"""DistilBERT: BERT without token types and pooler."""

from typing import Any

from pydantic import PositiveInt
from torch import nn

from softlook.heads.classification import ClassificationHead, SpanHead, TokenClassificationHead
from softlook.heads.lm import MaskedLMHead
from softlook.heads.pooling import Pooler
from softlook.models.bert import Bert, BertConfig
from softlook.weights.architectures import encoders
from softlook.weights.architectures.base import HFArchitecture, from_hf_activation, to_hf_activation
from softlook.weights.tensor_map import Rename, TensorRule, rename_layer

HEAD_BY_CLASS = {
    "DistilBertModel": "hidden_states",
    "DistilBertForMaskedLM": "masked_lm",
    "DistilBertForSequenceClassification": "classification",
    "DistilBertForMultipleChoice": "multiple_choice",
    "DistilBertForTokenClassification": "token_classification",
    "DistilBertForQuestionAnswering": "question_answering",
}
LM_HEAD_NAMES = encoders.LMHeadNames(
    embedding="distilbert.embeddings.word_embeddings.weight",
    weight="vocab_projector.weight",
    bias="vocab_projector.bias",
)
EPS = 1e-12
"""Epsilon of the norms; not part of the config."""


class HFDistilBertConfig(encoders.HFEncoderConfig):
    """Hugging Face's DistilBertConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    dim: PositiveInt = 768
    n_layers: PositiveInt = 6
    n_heads: PositiveInt = 12
    hidden_dim: PositiveInt = 3072
    activation: str = "gelu"
    dropout: float = 0.1


def build(hf_config: HFDistilBertConfig, head: str) -> Bert:
    config = BertConfig(
        vocab_size=hf_config.vocab_size,
        context=hf_config.max_position_embeddings,
        token_types=0,
        dim=hf_config.dim,
        depth=hf_config.n_layers,
        heads=hf_config.n_heads,
        hidden=hf_config.hidden_dim,
        activation=from_hf_activation(hf_config.activation),
        dropout=hf_config.dropout,
        eps=EPS,
        pooler="relu",
    )
    return Bert(encoders.with_head(config, head, hf_config))


def tensor_map(model: Bert) -> list[TensorRule]:
    found = encoder_rules(model)
    if pool := encoders.find_module(model, Pooler):
        found += rename_layer(f"{pool}.dense", "pre_classifier")
    if words := encoders.find_module(model, MaskedLMHead):
        found += rename_layer(f"{words}.dense", "vocab_transform")
        found += rename_layer(f"{words}.norm", "vocab_layer_norm")
        found += LM_HEAD_NAMES.rules(words, tied=model.config.tie_embeddings)
    if classes := encoders.find_module(model, ClassificationHead, TokenClassificationHead):
        found += rename_layer(f"{classes}.to_classes", "classifier")
    if ends := encoders.find_module(model, SpanHead):
        found += rename_layer(f"{ends}.to_span", "qa_outputs")
    return found


def encoder_rules(model: Bert) -> list[TensorRule]:
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "distilbert.embeddings.word_embeddings.weight"),
        Rename("position_embedding.weight", "distilbert.embeddings.position_embeddings.weight"),
        *rename_layer("embedding_norm", "distilbert.embeddings.LayerNorm"),
    ]
    for i in range(model.config.depth):
        target, source = f"blocks.{i}", f"distilbert.transformer.layer.{i}"
        found += [
            *rename_layer(f"{target}.attn.to_query", f"{source}.attention.q_lin"),
            *rename_layer(f"{target}.attn.to_key", f"{source}.attention.k_lin"),
            *rename_layer(f"{target}.attn.to_value", f"{source}.attention.v_lin"),
            *rename_layer(f"{target}.attn.to_out", f"{source}.attention.out_lin"),
            *rename_layer(f"{target}.attn_norm", f"{source}.sa_layer_norm"),
            *rename_layer(f"{target}.ffn.to_up", f"{source}.ffn.lin1"),
            *rename_layer(f"{target}.ffn.to_out", f"{source}.ffn.lin2"),
            *rename_layer(f"{target}.ffn_norm", f"{source}.output_layer_norm"),
        ]
    return found


def ignored_tensors(model: Bert) -> tuple[str, ...]:
    return (r"(distilbert\.)?embeddings\.position_ids",)


def to_config(model: Bert) -> dict[str, Any]:
    c = model.config
    return {
        "architectures": [encoders.hf_class(model, HEAD_BY_CLASS)],
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.context,
        "dim": c.dim,
        "n_layers": c.depth,
        "n_heads": c.heads,
        "hidden_dim": 4 * c.dim if c.hidden is None else c.hidden,
        "activation": to_hf_activation(c.activation),
        **dict.fromkeys(("dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout"), c.dropout),
        **encoders.hf_tie_field(c),
        **encoders.hf_label_fields(c),
    }


def can_export(model: nn.Module) -> bool:
    if (
        not isinstance(model, Bert)
        or model.config.position_offset
        or model.config.token_types
        or model.config.eps != EPS
    ):
        return False
    c = model.config
    if c.head in ("next_sentence", "pretraining") or (c.head == "pooled" and c.pooler is not None):
        return False
    return encoders.is_plain_bert(c) and encoders.has_hf_pooler(c, "relu")


IGNORED = "attention_dropout qa_dropout seq_classif_dropout sinusoidal_pos_embds tie_weights_"
ARCHITECTURE = HFArchitecture(
    name="DistilBERT",
    model_type="distilbert",
    config_class=HFDistilBertConfig,
    ignored_fields=frozenset(IGNORED.split()),  # sinusoidal positions are stored in the file like learned ones
    head_by_class=HEAD_BY_CLASS,
    base_model_prefix="distilbert.",
    detect_head=encoders.detect_sentence_head,
    resolve_tying=LM_HEAD_NAMES.resolve_tying,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    is_base_model=encoders.is_base_model,
    to_config=to_config,
    extra_files=encoders.sentence_files_of,
)

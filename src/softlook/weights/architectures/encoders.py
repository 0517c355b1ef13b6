"""Shared code of BERT-like encoders: heads, labels, sentence embeddings."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from softlook.base.errors import WeightsError
from softlook.blocks.feed_forward import ActivationName
from softlook.heads.classification import ClassificationHead, SpanHead, TokenClassificationHead
from softlook.heads.lm import MaskedLMHead
from softlook.heads.pooling import Pooler
from softlook.models.bert import Bert, BertConfig, BertHead
from softlook.models.deberta import Deberta, DebertaConfig
from softlook.weights.architectures.base import HFLabelConfig, fill_shared, label_fields, same_tensor
from softlook.weights.sentence_transformers import SENTENCE_HEADS, SentencePooling, sentence_files, sentence_head
from softlook.weights.tensor_map import Rename, TensorRule, Tensors, rename_layer

UNPOOLED_HEADS = ("hidden_states", "masked_lm", "replaced_token", "token_classification", "question_answering")
LM_HEADS = ("masked_lm", "pretraining")


def encoder_heads(name: str, base: str = "hidden_states") -> dict[str, str]:
    """Hugging Face classes of an encoder -> head; `base` is that of the base model."""
    return {
        f"{name}Model": base,
        f"{name}ForMaskedLM": "masked_lm",
        f"{name}ForSequenceClassification": "classification",
        f"{name}ForMultipleChoice": "multiple_choice",
        f"{name}ForTokenClassification": "token_classification",
        f"{name}ForQuestionAnswering": "question_answering",
    }


class HFEncoderConfig(HFLabelConfig):
    """Head fields of config.json shared by all encoders."""

    tie_word_embeddings: bool = True


def with_head(config: BertConfig, head: str, hf_config: HFEncoderConfig) -> BertConfig:
    """The config with this head, which may be one of SENTENCE_HEADS."""
    config = replace(config, tie_embeddings=hf_config.tie_word_embeddings or head not in LM_HEADS)
    if head in SENTENCE_HEADS:
        return replace(config, pooler=None, **pooling_fields(head))
    return replace(config, head=cast(BertHead, head), **label_fields(hf_config, head))


def pooling_fields(head: str) -> dict[str, Any]:
    """Head and pooling of one of SENTENCE_HEADS; other heads are returned as they are."""
    if head not in SENTENCE_HEADS:
        return {"head": head}
    pooling = SENTENCE_HEADS[head]
    return {"head": "embedding" if pooling.normalize else "pooled", "pooling": pooling.pooling}


def detect_sentence_head(head: str, folder: Path, names: Collection[str]) -> str:
    """One of SENTENCE_HEADS for a base model in a sentence-transformers folder, else `head`."""
    return sentence_head(folder) or head if head == "hidden_states" else head


@dataclass(frozen=True)
class HeadNames:
    """Tensor names of the heads of an encoder, and of the token embedding, to which a masked LM head may be tied."""

    embedding: str
    weight: str
    """The output layer of the masked LM head."""
    bias: str
    bias_copy: str | None = None
    """A second name of the bias, which takes precedence."""
    dense: str = ""
    """The other layers of the masked LM head."""
    norm: str = ""
    pooler: str = ""
    classifier: str = "classifier"
    has_own_pooler: bool = False
    """Whether the classification head of a text contains its own pooler."""

    def resolve_tying(self, config: Any, tensors: Tensors) -> tuple[Any, Tensors]:
        """Decide tying by the tensors, as Hugging Face does: a head in the file that differs from the embedding is
        used, and a tied tensor may have any of its names. `tie_word_embeddings: false` requires the head."""
        tensors = self._merge_biases(tensors)
        if not config.tie_word_embeddings:
            return config, tensors
        tensors = fill_shared(tensors, self.embedding, self.weight)
        if self.embedding in tensors and not same_tensor(tensors, self.embedding, self.weight):
            return config.model_copy(update={"tie_word_embeddings": False}), tensors
        return config, {name: tensor for name, tensor in tensors.items() if name not in (self.weight, self.bias_copy)}

    def _merge_biases(self, tensors: Tensors) -> Tensors:
        names = [name for name in (self.bias_copy, self.bias) if name is not None]
        kept = next((tensors[name] for name in names if name in tensors), None)
        return tensors if kept is None else tensors | dict.fromkeys(names, kept)

    def rules(self, model: Bert | Deberta) -> list[TensorRule]:
        """Tensor rules of the head of a model."""
        names = self
        if self.has_own_pooler and model.config.head == "classification":
            names = replace(self, pooler="classifier.dense", classifier="classifier.out_proj")
        found: list[TensorRule] = []
        if pool := find_module(model, Pooler):
            found += rename_layer(f"{pool}.dense", names.pooler)
        if words := find_module(model, MaskedLMHead):
            found += rename_layer(f"{words}.dense", names.dense)
            found += rename_layer(f"{words}.norm", names.norm)
            biases = (self.bias,) if model.config.tie_embeddings else filter(None, (self.bias, self.bias_copy))
            found += [Rename(f"{words}.to_logits.bias", bias) for bias in biases]
            found += [] if model.config.tie_embeddings else [Rename(f"{words}.to_logits.weight", self.weight)]
        if classes := find_module(model, ClassificationHead, TokenClassificationHead):
            found += rename_layer(f"{classes}.to_classes", names.classifier)
        if ends := find_module(model, SpanHead):
            found += rename_layer(f"{ends}.to_span", "qa_outputs")
        return found


def check_head_activation(activation: str, head: str, name: str) -> None:
    """Raise WeightsError if the layers do not use GELU, which the masked LM head always does."""
    if head == "masked_lm" and activation != "gelu":
        raise WeightsError(
            f"hidden_act {activation!r:.40} is not supported for {name} with a masked LM head, which uses gelu; "
            "softlook's Bert has one activation for both"
        )


def is_plain_bert(c: BertConfig) -> bool:
    """Whether a config has nothing specific to MPNet or ELECTRA."""
    return not c.buckets and c.embedding_dim in (None, c.dim) and c.head != "replaced_token"


def hf_tie_field(c: BertConfig | DebertaConfig) -> dict[str, Any]:
    """tie_word_embeddings of config.json, if there is a masked LM head."""
    return {"tie_word_embeddings": c.tie_embeddings} if c.head in LM_HEADS else {}


def find_module(model: nn.Module, *types: type[nn.Module]) -> str | None:
    """The name of the first module of these types, or None."""
    return next((name for name, module in model.named_modules() if isinstance(module, types)), None)


def sentence_files_of(model: nn.Module) -> dict[str, Any]:
    """sentence-transformers files, if the model gives sentence embeddings, without a dense layer."""
    c: Any = model.config
    if getattr(c, "head", None) not in ("pooled", "embedding") or getattr(c, "pooler", None) is not None:
        return {}
    return sentence_files(SentencePooling(c.pooling, normalize=c.head == "embedding"), c.dim, c.context)


def has_hf_pooler(c: BertConfig, activation: ActivationName) -> bool:
    """Whether Hugging Face's pooler with this activation, or sentence-transformers without one, pools like this."""
    if c.head in UNPOOLED_HEADS:
        return True
    if c.pooler is None:
        return c.head in ("pooled", "embedding")
    return c.head != "embedding" and (c.pooling, c.pooler) == ("cls", activation)

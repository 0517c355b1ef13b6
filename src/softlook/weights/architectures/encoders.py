"""Shared code of BERT-like encoders: heads, labels, sentence embeddings."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.blocks.feed_forward import ActivationName
from softlook.heads.classification import Problem
from softlook.models.bert import Bert, BertConfig, BertHead
from softlook.models.deberta import Deberta, DebertaConfig
from softlook.models.gpt import GPTConfig
from softlook.models.llama import LlamaConfig
from softlook.models.modern_bert import ModernBertConfig
from softlook.weights.architectures.base import fill_shared, same_tensor
from softlook.weights.schema import HFConfigBase
from softlook.weights.sentence_transformers import SENTENCE_HEADS, SentencePooling, sentence_files, sentence_head
from softlook.weights.tensor_map import Copy, Rename, TensorRule, Tensors

ModelConfig = BertConfig | DebertaConfig | ModernBertConfig | GPTConfig | LlamaConfig
UNPOOLED_HEADS = ("hidden_states", "masked_lm", "replaced_token", "token_classification", "question_answering")
LM_HEADS = ("masked_lm", "pretraining")
PROBLEM_TYPES: dict[str | None, Problem | None] = {
    None: None,
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
"""Hugging Face's problem_type -> softlook's."""


class HFLabelConfig(HFConfigBase):
    """Label fields of config.json."""

    id2label: dict[str, Any] | None = None
    num_labels: PositiveInt = 2
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None


class HFEncoderConfig(HFLabelConfig):
    """Head fields of config.json shared by all encoders."""

    tie_word_embeddings: bool = True


def with_head(config: BertConfig, head: str, hf_config: HFEncoderConfig) -> BertConfig:
    """The config with this head, which may be one of SENTENCE_HEADS."""
    config = replace(config, tie_embeddings=hf_config.tie_word_embeddings or head not in LM_HEADS)
    if head in SENTENCE_HEADS:
        return replace(config, pooler=None, **pooling_fields(head))
    return replace(config, head=cast(BertHead, head), **label_fields(hf_config, head))


def label_fields(hf_config: HFLabelConfig, head: str) -> dict[str, Any]:
    """Number of classes and problem type, if the head has classes."""
    if head not in ("classification", "token_classification"):
        return {}
    problem = {"problem": PROBLEM_TYPES[hf_config.problem_type]} if head == "classification" else {}
    return {"classes": count_labels(hf_config.id2label, hf_config.num_labels), **problem}


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
class LMHeadNames:
    """Tensor names of the output layer of a masked LM head."""

    embedding: str
    """The token embedding."""
    weight: str
    bias: str
    bias_copy: str | None = None
    """A second name of the bias, which takes precedence."""

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

    def rules(self, head: str, *, tied: bool) -> list[TensorRule]:
        """Tensor rules for the head module of this name."""
        target = f"{head}.to_logits"
        if tied:
            return [Rename(f"{target}.bias", self.bias)]
        biases = [name for name in (self.bias, self.bias_copy) if name is not None]
        return [Rename(f"{target}.weight", self.weight), *(Copy(f"{target}.bias", name) for name in biases)]


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


def count_labels(names: dict[str, Any] | None, count: int) -> int:
    """Number of classes: that of their names, if given."""
    return len(names) if names else count


def hf_label_fields(c: ModelConfig) -> dict[str, Any]:
    """Label fields of config.json."""
    if c.head not in ("classification", "token_classification"):
        return {}
    names = [f"LABEL_{i}" for i in range(c.classes)]
    problem = next(name for name, problem in PROBLEM_TYPES.items() if problem == c.problem)
    return {
        **({} if problem is None else {"problem_type": problem}),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def hf_tie_field(c: ModelConfig) -> dict[str, Any]:
    """tie_word_embeddings of config.json, if there is a masked LM head."""
    return {"tie_word_embeddings": c.tie_embeddings} if c.head in LM_HEADS else {}


def hf_class(model: nn.Module, head_by_class: dict[str, str]) -> str:
    """Hugging Face's class for the head of a model; the base model if there is none."""
    base_class, config = next(iter(head_by_class)), cast(ModelConfig, model.config)
    return next((name for name, head in head_by_class.items() if head == config.head), base_class)


def find_module(model: nn.Module, *types: type[nn.Module]) -> str | None:
    """The name of the first module of these types, or None."""
    return next((name for name, module in model.named_modules() if isinstance(module, types)), None)


def is_base_model(model: Any) -> bool:
    return model.config.head in ("hidden_states", "pooled", "embedding")


def sentence_files_of(model: Bert | Deberta) -> dict[str, Any]:
    """sentence-transformers files, if the model pools without a dense layer."""
    c = model.config
    if c.head not in ("pooled", "embedding") or c.pooler is not None:
        return {}
    return sentence_files(SentencePooling(c.pooling, normalize=c.head == "embedding"), c.dim, c.context)


def has_hf_pooler(c: BertConfig, activation: ActivationName) -> bool:
    """Whether Hugging Face's pooler with this activation, or sentence-transformers without one, pools like this."""
    if c.head in UNPOOLED_HEADS:
        return True
    if c.pooler is None:
        return c.head in ("pooled", "embedding")
    return c.head != "embedding" and (c.pooling, c.pooler) == ("cls", activation)

"""The models that a checkpoint may name. A file chooses from this list; it can name no other code."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from softlook import models


@dataclass(frozen=True)
class Known:
    """A model and the config it is made from."""

    model: type[nn.Module]
    config: Any


MODELS: dict[str, Known] = {
    "Bert": Known(models.Bert, models.BertConfig),
    "ConvolutionalLM": Known(models.ConvolutionalLM, models.ConvolutionalLMConfig),
    "Deberta": Known(models.Deberta, models.DebertaConfig),
    "FTTransformer": Known(models.FTTransformer, models.FTTransformerConfig),
    "GPT": Known(models.GPT, models.GPTConfig),
    "Llama": Known(models.Llama, models.LlamaConfig),
    "ModernBert": Known(models.ModernBert, models.ModernBertConfig),
    "RNNSearch": Known(models.RNNSearch, models.RNNSearchConfig),
    "SkipGram": Known(models.SkipGram, models.SkipGramConfig),
    "T5": Known(models.T5, models.T5Config),
    "T5Encoder": Known(models.T5Encoder, models.T5EncoderConfig),
    "TabTransformer": Known(models.TabTransformer, models.TabTransformerConfig),
    "TableTransformer": Known(models.TableTransformer, models.TableTransformerConfig),
    "Transformer": Known(models.Transformer, models.TransformerConfig),
    "TransformerXL": Known(models.TransformerXL, models.TransformerXLConfig),
    "ViT": Known(models.ViT, models.ViTConfig),
}

"""The architectures of Hugging Face's that softlook reads and writes, one file each."""

from softlook.weights.families import (
    bart,
    bert,
    deberta,
    distilbert,
    electra,
    gpt2,
    llama,
    marian,
    mbart,
    mistral,
    modern_bert,
    mpnet,
    qwen2,
    roberta,
    t5,
    vit,
)
from softlook.weights.family import Family

FAMILIES: tuple[Family, ...] = (
    bart.FAMILY,
    bert.FAMILY,
    deberta.FAMILY,
    distilbert.FAMILY,
    electra.FAMILY,
    gpt2.FAMILY,
    llama.FAMILY,
    marian.FAMILY,
    mbart.MBART,
    mbart.PEGASUS,
    mbart.M2M100,
    mistral.FAMILY,
    modern_bert.FAMILY,
    mpnet.FAMILY,
    qwen2.FAMILY,
    roberta.FAMILY,
    roberta.XLM_ROBERTA,
    roberta.CAMEMBERT,
    t5.FAMILY,
    t5.MT5,
    vit.FAMILY,
)
"""In the order in which they are asked whether they write a model."""

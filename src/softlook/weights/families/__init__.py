"""The architectures of Hugging Face's that softlook reads and writes, one file each."""

from softlook.weights.families import (
    bart,
    bert,
    bloom,
    distilbert,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    llama,
    marian,
    mistral,
    opt,
    phi3,
    qwen2,
    qwen3,
    roberta,
    t5,
    vit,
)
from softlook.weights.family import Family

FAMILIES: tuple[Family, ...] = (
    bart.FAMILY,
    bert.FAMILY,
    bloom.FAMILY,
    distilbert.FAMILY,
    gemma2.FAMILY,
    gemma3.FAMILY,
    gpt2.FAMILY,
    gpt_neox.FAMILY,
    llama.FAMILY,
    marian.FAMILY,
    mistral.FAMILY,
    opt.FAMILY,
    phi3.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    roberta.FAMILY,
    t5.FAMILY,
    vit.FAMILY,
)
"""In the order in which they are asked whether they write a model."""

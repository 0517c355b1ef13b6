"""Supported Hugging Face architectures."""

from softlook.weights.architectures import (
    bart,
    bert,
    deberta,
    gpt2,
    gpt_neox,
    llama,
    mbart,
    modern_bert,
    qwen_gemma,
    roberta,
    t5,
    vit,
)
from softlook.weights.architectures.base import HFArchitecture

ARCHITECTURES: tuple[HFArchitecture, ...] = (
    bart.BART,
    bert.BERT,
    gpt_neox.BLOOM,
    deberta.DEBERTA,
    bert.DISTILBERT,
    bert.ELECTRA,
    qwen_gemma.GEMMA2,
    qwen_gemma.GEMMA3,
    gpt2.GPT2,
    gpt_neox.GPT_NEOX,
    llama.LLAMA,
    mbart.MARIAN,
    mbart.MBART,
    mbart.PEGASUS,
    mbart.M2M100,
    llama.MISTRAL,
    modern_bert.MODERN_BERT,
    roberta.MPNET,
    gpt2.OPT,
    llama.PHI3,
    qwen_gemma.QWEN2,
    qwen_gemma.QWEN3,
    roberta.ROBERTA,
    roberta.XLM_ROBERTA,
    roberta.CAMEMBERT,
    t5.T5_MODEL,
    t5.MT5,
    vit.VIT,
)
"""In this order: the first one that can export a model writes it."""

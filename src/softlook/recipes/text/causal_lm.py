"""Causal language models: next-token prediction on packed documents."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from softlook.base.errors import ConfigError
from softlook.blocks import ProductKeyConfig
from softlook.data import Examples, TextExample, find_files, read_documents
from softlook.decode import Multinomial, TransformerXLSession, create_session, generate
from softlook.heads.ngram_lm import NGramLM
from softlook.models import (
    GPT,
    ConvolutionalLM,
    ConvolutionalLMConfig,
    FastWeightLM,
    FastWeightLMConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    TransformerXL,
    TransformerXLConfig,
)
from softlook.recipes.config.autosize import AutoSettings, ComputeBudget, autosize, select_vocab_size
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, explicit_overrides
from softlook.recipes.config.schema import CausalLMConfig, Files
from softlook.recipes.inference.pipeline import Pipeline
from softlook.recipes.text.baselines import causal_lm_baselines, unigram_loss
from softlook.recipes.text.corpus import (
    Corpus,
    CorpusSplit,
    TokenCache,
    count_utf8_bytes,
    tokenize_corpus,
    tokenize_split,
)
from softlook.recipes.text.document_labels import with_labels
from softlook.recipes.text.ngram_mix import build_ngram_lm
from softlook.recipes.text.packed_lm import CausalLMObjective, LanguageModelBatches, PerplexityEvaluator
from softlook.recipes.text.pretrained import apply_lora, fine_tuning_lr, load_pretrained
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import Sample, TextTask, TrainingPlan, TrainResult
from softlook.tokens import TextTokenizer
from softlook.train.batching.packed_stream import PackedStream, TokenizedDocuments
from softlook.train.events import Callback

LARGE_GPU_TOKENS = 10_000_000
"""Tokens from which a GPU gets larger batches and a longer context."""
CPU_BATCH_TOKENS = 50
"""Tokens of a batch on a CPU, for each minute of the time limit: a short run needs steps more than exact gradients."""
FINE_TUNING_EPOCHS = 2
SHORT_RUN_MESSAGE = "There is time for a few epochs only: a Llama, which learns more from each token."
SAMPLE_TEMPERATURE, SAMPLE_TOKENS = 0.8, 100
SEGMENTS_PER_ROW = 4
"""Segments of a row, over which Transformer-XL carries its cache."""
PRODUCT_KEY_SLOTS = 128**2
"""Slots of a product-key memory by default."""
MAX_EVAL_TOKENS = {"cuda": 1_000_000}
"""Validation tokens in each evaluation; 32,768 on other devices."""
Model = GPT | Llama | TransformerXL | ConvolutionalLM | FastWeightLM


def train_causal_lm(
    config: ConfigLike[CausalLMConfig], callbacks: Sequence[Callback] = (), *, progress: bool = True
) -> TrainResult:
    """Train a causal language model: `softlook train lm --data corpus.txt`.

    >>> from pathlib import Path
    >>> from softlook.recipes import CausalLMConfig
    >>> from softlook.train import TrainingConfig
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles\\n" for n in range(99)))
    >>> result = train_causal_lm(CausalLMConfig(data=(Path("corpus.txt"),), training=TrainingConfig(max_steps=2)))
    >>> sorted(result.scores["validation"])
    ['bits_per_byte', 'bytes', 'loss', 'perplexity', 'tokens']
    """
    return run_task(CausalLMTask(), config, callbacks, progress=progress)


class CausalLMTask(TextTask[CausalLMConfig, TextExample]):
    """Packed documents, a decoder-only model, perplexity and bits per byte."""

    config, reader = CausalLMConfig, staticmethod(read_documents)
    columns: ClassVar = {"text": "text", "label": "label"}

    def read(self, overrides: ConfigOverrides[CausalLMConfig], files: Files, **options: Any) -> Examples[TextExample]:
        """Documents, in chunks small enough to hold some of them out."""
        size = sum(path.stat().st_size for path in find_files(files))
        return super().read(overrides, files, chunk_chars=min(max(size // 200, 200), 1 << 16))

    def build_tokenizer(self, corpus: Corpus[TextExample], config: CausalLMConfig) -> TextTokenizer:
        """The tokenizer, with a token for each label of the texts."""
        return with_labels(super().build_tokenizer(corpus, config), corpus, config)

    def autosize(self, characters: int, overrides: ConfigOverrides[Any], budget: ComputeBudget) -> AutoSettings:
        vocab_size = min(lm_vocab_size(characters), select_vocab_size(characters, budget))
        sizes = {"tokenizer.vocab_size": vocab_size}
        overrides = ConfigOverrides(overrides.schema, sizes | overrides.values, overrides.origins)
        auto, tokens = autosize(characters, overrides, budget, block_factor=12, max_dropout=0.2)
        cuda = budget.device.type == "cuda"
        large = cuda and tokens > LARGE_GPU_TOKENS
        context = overrides.get("batch.max_length") or (512 if cuda else 256)
        cpu_batch = min(max(CPU_BATCH_TOKENS * budget.minutes, 512), 2048)
        auto.values |= {
            "batch.max_length": int(min(context, max(tokens // 20, 8))),
            "batch.max_tokens": int(min(max(tokens / 40, 256), 32768 if large else 16384 if cuda else cpu_batch)),
            "optim.lr": 2 * auto.values["optim.lr"],
            "optim.weight_decay": 0.1,
        }
        if overrides.get("init_from"):
            auto.values |= {"optim.lr": fine_tuning_lr(overrides), "model.dropout": 0.1}
        elif not cuda and not auto.values["model.dropout"] and overrides.get("memory") is None:
            auto.values["arch"] = "llama"
            auto.messages.append(SHORT_RUN_MESSAGE)
        return auto

    def build_plan(
        self, corpus: Corpus[TextExample], config: CausalLMConfig, tokenizer: TextTokenizer, device: torch.device
    ) -> TrainingPlan:
        batch_tokens = config.batch.max_tokens or 1536
        label_dropout = config.label_dropout if config.label else 0.0
        train, valid = tokenize_corpus(TokenCache(corpus, tokenizer, config.run_dir), label_dropout)
        ngrams = None
        if has_ngram_model(config):
            ngrams = build_ngram_lm(train, vocab_size=tokenizer.vocab_size, characters=corpus.characters)
        model = build_model(config, tokenizer, ngrams)
        context, row_length = context_and_row_length(model, config)
        batch_size = max(batch_tokens // row_length, 1)
        stream = PackedStream(train, context=row_length, batch_size=batch_size, seed=config.training.seed)
        objective = CausalLMObjective(context)
        eval_size = max(batch_size, 4096 // row_length)
        eval_stream = PackedStream(valid, context=row_length, batch_size=eval_size, seed=0)
        evaluator, num_bytes = PerplexityEvaluator(eval_stream, objective, device), count_utf8_bytes(corpus.valid)
        return TrainingPlan(
            model=model,
            batches=LanguageModelBatches(stream),
            objective=objective,
            evaluate=evaluator,
            sample=partial(sample_completions, valid, tokenizer, context),
            epoch_tokens=len(train.ids),
            batch_tokens=batch_size * row_length,
            validate=partial(validate, evaluator, num_bytes),
            test_cost=corpus.test_count / max(corpus.counts[1], 1),
            baselines=partial(baselines, train, valid, tokenizer.vocab_size, num_bytes),
            uninformed_loss=unigram_loss(train.ids, valid.ids, tokenizer.vocab_size),
            eval_share=min(MAX_EVAL_TOKENS.get(device.type, 32_768) / max(len(valid.ids), 1), 1.0),
            total_tokens=None if config.init_from is None else FINE_TUNING_EPOCHS * float(len(train.ids)),
        )

    def evaluate(self, config: CausalLMConfig, data: Files, pipeline: Pipeline) -> dict[str, Any]:
        """Perplexity per token and bits per byte."""
        split, model = CorpusSplit(self.read(explicit_overrides(config), data)), pipeline.model
        context, row_length = context_and_row_length(model, config)
        documents = tokenize_split(split, pipeline.tokenizer)
        stream = PackedStream(documents, context=row_length, batch_size=max(8192 // row_length, 1), seed=0)
        evaluator = PerplexityEvaluator(stream, CausalLMObjective(context), pipeline.device)
        return evaluator.evaluate_all(count_utf8_bytes(split), model)


def validate(evaluator: PerplexityEvaluator, num_bytes: int, model: nn.Module) -> dict[str, Any]:
    """Scores on all of the validation text."""
    return {"validation": evaluator.evaluate_all(num_bytes, model)}


def baselines(
    train: TokenizedDocuments, valid: TokenizedDocuments, vocab_size: int, num_bytes: int, seconds: float
) -> list[dict[str, Any]]:
    """Scores of an n-gram model."""
    return causal_lm_baselines(train, valid, vocab_size=vocab_size, num_bytes=num_bytes, seconds=seconds)


def lm_vocab_size(characters: int) -> int:
    """Vocabulary size of a language model: proportional to the root of the text's length.

    >>> lm_vocab_size(90_000_000), lm_vocab_size(6_000_000)
    (8100, 2100)
    """
    return int(min(max(round(0.85 * math.sqrt(characters), -2), 500), 32000))


def context_and_row_length(model: nn.Module, config: CausalLMConfig) -> tuple[int, int]:
    """Tokens per forward pass, and per row; Transformer-XL reads a row in segments."""
    context = config.batch.max_length or 128
    context = min(context, getattr(model.config, "context", context))  # pyright: ignore[reportArgumentType]
    return context, SEGMENTS_PER_ROW * context if isinstance(model, TransformerXL) else context


def has_ngram_model(config: CausalLMConfig) -> bool:
    """Whether a new model gets an n-gram model beside its attention; n-grams would not see the label of a text."""
    has_part = config.arch in ("gpt", "llama", None) and config.label is None
    return has_part and not config.no_ngrams and config.init_from is None


def build_model(config: CausalLMConfig, tokenizer: TextTokenizer, ngrams: NGramLM | None = None) -> nn.Module:
    """A new or a pretrained language model."""
    vocab_size = tokenizer.vocab_size
    check_memory(config)
    if config.init_from is not None:
        model = load_pretrained(config.init_from, Model, "predict the next token", vocab_size=vocab_size)
        return apply_lora(model, config.lora)
    sizes, context = {"vocab_size": vocab_size, **config.model.model_dump()}, config.batch.max_length or 128
    if config.arch == "convolution":
        del sizes["heads"], sizes["hidden"]
        return ConvolutionalLM(ConvolutionalLMConfig(**sizes | {"depth": 3 * sizes["depth"], "dilation_cycle": 6}))
    if config.arch == "transformer_xl":
        hidden = sizes["hidden"] or 4 * sizes["dim"]
        return TransformerXL(TransformerXLConfig(**sizes | {"hidden": hidden, "pre_norm": True}))
    if config.arch == "fast_weights":
        return FastWeightLM(FastWeightLMConfig(**sizes))
    sizes |= {"context": context, "ngrams": ngrams and ngrams.config}
    memory = memory_fields(config)
    model = Llama(LlamaConfig(**sizes)) if config.arch == "llama" else GPT(GPTConfig(**sizes, **memory))
    model.ngrams = ngrams
    return model


def check_memory(config: CausalLMConfig) -> None:
    """Raise ConfigError if a memory is set for a model that has no place for it."""
    if config.memory is None and config.memory_slots is not None:
        raise ConfigError("memory_slots needs a memory: set memory to product_key or all_attention")
    if config.memory is not None and (config.arch not in (None, "gpt") or config.init_from is not None):
        given = f"arch={config.arch}" if config.init_from is None else "init_from"
        raise ConfigError(f"memory={config.memory} is an option of a new model with arch=gpt, got {given}: remove one")


def memory_fields(config: CausalLMConfig) -> dict[str, Any]:
    """The fields of a GPTConfig for the memory, with the sizes of the model resolved.

    >>> from softlook.recipes.config.schema import ModelConfig
    >>> config = CausalLMConfig(memory="product_key", memory_slots=100, model=ModelConfig(dim=16, depth=4))
    >>> memory_fields(config)
    {'product_keys': ProductKeyConfig(layer=2, heads=4, n_subkeys=10, top_k=10)}
    """
    sizes, slots = config.model, config.memory_slots
    if config.memory == "all_attention":
        return {"persistent": slots or sizes.hidden or 4 * (sizes.dim or 0)}
    if config.memory == "product_key":
        n_subkeys = math.isqrt(slots or PRODUCT_KEY_SLOTS)
        top_k = min(ProductKeyConfig.top_k, n_subkeys)
        return {"product_keys": ProductKeyConfig(layer=(sizes.depth or 1) // 2, n_subkeys=n_subkeys, top_k=top_k)}
    return {}


def sample_completions(
    valid: TokenizedDocuments, tokenizer: TextTokenizer, context: int, model: nn.Module
) -> list[Sample]:
    """A completion of the beginning of the validation text."""
    prompt = [int(id) for id in valid.ids[: min(16, len(valid.ids) // 2, context // 2)]]
    session = TransformerXLSession(model, context) if isinstance(model, TransformerXL) else create_session(model)
    output = generate(
        session,
        [prompt],
        sampler=Multinomial(SAMPLE_TEMPERATURE, seed=0),
        eos_ids=tokenizer.eos_id,
        max_new_tokens=min(SAMPLE_TOKENS, context - len(prompt)),
    )[0]
    return [{"prompt": tokenizer.decode(prompt), "completion": tokenizer.decode(output.ids)}]

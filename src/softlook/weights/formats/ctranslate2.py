"""Export of translation and language models to CTranslate2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.attention import MultiHeadAttention
from softlook.blocks.feed_forward import ActivationName
from softlook.embed.positions import LearnedPositions, SinusoidalPositions
from softlook.models.gpt import GPT
from softlook.models.transformer import InputEmbedding, Transformer
from softlook.weights.architectures.gpt2 import matches_gpt
from softlook.weights.atomic_folder import atomic_folder
from softlook.weights.structure import check_structure
from softlook.weights.tokenizer_files import copy_tokenizer, read_tokenizer

try:
    from ctranslate2 import specs
except ImportError as fault:
    raise ImportError("CTranslate2 export needs: pip install softlook[ctranslate2]") from fault

Quantization = Literal[
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"
]
ACTIVATIONS: dict[ActivationName, Any] = {
    "relu": specs.Activation.RELU,
    "gelu": specs.Activation.GELU,
    "gelu_tanh": specs.Activation.GELUTanh,
    "silu": specs.Activation.SWISH,
    "tanh": specs.Activation.Tanh,
    "sigmoid": specs.Activation.Sigmoid,
}
LAYER_NORM_EPS = nn.LayerNorm(1).eps


def to_ctranslate2(
    model: nn.Module,
    folder: str | Path,
    *,
    vocabulary: Sequence[str] | None = None,
    target_vocabulary: Sequence[str] | None = None,
    tokenizer: str | Path | None = None,
    start: str = "<s>",
    end: str = "</s>",
    unknown: str = "<unk>",
    quantization: Quantization | None = None,
) -> Path:
    """Export a Transformer or GPT as a new folder for CTranslate2's Translator or Generator.

    - `vocabulary`: the tokens in the order of their ids; default: those of `tokenizer`, a tokenizer.json.
    - `target_vocabulary`: the target tokens, if the model has two vocabularies.
    - `start`, `end`, `unknown`: the decoder start, EOS and UNK tokens.
    - `quantization`: the storage type of the weights; default: that of the model.

    Sinusoidal positions are written up to the model's `context`.

    >>> import tempfile
    >>> from softlook.models import GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=4, context=8, dim=16, depth=2, heads=2))
    >>> with tempfile.TemporaryDirectory() as made:
    ...     folder = to_ctranslate2(model, Path(made) / "gpt", vocabulary=["<s>", "</s>", "<unk>", "a"])
    ...     sorted(path.name for path in folder.iterdir())
    ['config.json', 'model.bin', 'vocabulary.json']
    """
    if not isinstance(model, GPT | Transformer) or model.config.num_class_labels:
        labelled = " with class labels" if isinstance(model, GPT | Transformer) else ""
        name = f"{type(model).__name__}{labelled}"
        raise WeightsError(f"CTranslate2 export supports GPT and Transformer without class labels, got {name}")
    if isinstance(model, GPT) and not model.config.causal:
        raise WeightsError("CTranslate2 export supports causal GPTs only, got causal=False")
    check_structure(model)
    if quantization not in (None, *get_args(Quantization)):
        raise WeightsError(f"quantization must be one of {', '.join(get_args(Quantization))}, got {quantization!r}")
    tokens = _source_tokens(vocabulary, tokenizer, model.config.vocab_size)
    if isinstance(model, GPT):
        if not matches_gpt(model) or model.config.head != "causal_lm":
            raise WeightsError("CTranslate2 export supports GPTs with the architecture and LM head of GPT-2 only")
        spec = _gpt(model)
        _check_tokens(tokens, start, end, unknown)
        spec.register_vocabulary(tokens)
    else:
        spec = _transformer(model)
        target_tokens = _target_tokens(model, tokens, target_vocabulary)
        _check_tokens(target_tokens, start, end, unknown)
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(target_tokens)
        spec.config.decoder_start_token = start
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = start, end, unknown
    spec.validate()
    spec.optimize(quantization=quantization)
    with atomic_folder(Path(folder)) as partial:
        spec.save(str(partial))
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), partial)
    return Path(folder)


def _gpt(model: GPT) -> Any:
    c = model.config
    spec: Any = specs.TransformerDecoderModelSpec.from_config(c.depth, c.heads, activation=ACTIVATIONS[c.activation])
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = _to_cpu(model.token_embedding.weight)
    parts: Any = model
    decoder.position_encodings.encodings = _positions(parts.position_embedding, c.context)
    _stack(decoder, model.blocks, model.final_norm)
    _linear(decoder.projection, parts.lm_head)
    spec.config.layer_norm_epsilon = c.eps
    return spec


def _transformer(model: Transformer) -> Any:
    c, encoder, decoder = model.config, model.encoder, model.decoder
    spec: Any = specs.TransformerSpec.from_config(
        (len(encoder.blocks), len(decoder.blocks)),
        c.heads,
        pre_norm=c.norm == "pre",
        activation=ACTIVATIONS[c.activation],
        layernorm_embedding=c.embedding_norm,
    )
    _embedding(spec.encoder, spec.encoder.embeddings[0], encoder.embedding, c.context)
    _embedding(spec.decoder, spec.decoder.embeddings, decoder.embedding, c.context)
    _stack(spec.encoder, encoder.blocks, encoder.final_norm)
    _stack(spec.decoder, decoder.blocks, decoder.final_norm)
    _linear(spec.decoder.projection, model.lm_head)
    spec.config.layer_norm_epsilon = LAYER_NORM_EPS
    return spec


def _embedding(spec: Any, embeddings: Any, embedding: InputEmbedding, context: int) -> None:
    spec.scale_embeddings = float(embedding.token_embedding.scale)
    embeddings.weight = _to_cpu(embedding.token_embedding.weight)
    spec.position_encodings.encodings = _positions(embedding.position_embedding, context)
    if isinstance(embedding.norm, nn.LayerNorm):
        _norm(spec.layernorm_embedding, embedding.norm)


def _stack(spec: Any, blocks: Any, final_norm: nn.Module) -> None:
    if isinstance(final_norm, nn.LayerNorm):
        _norm(spec.layer_norm, final_norm)
    for layer, block in zip(spec.layer, blocks, strict=True):
        _attention(layer.self_attention, block, "attn")
        if hasattr(block, "cross_attn"):
            _attention(layer.attention, block, "cross_attn")
        _linear(layer.ffn.linear_0, block.ffn.to_up)
        _linear(layer.ffn.linear_1, block.ffn.to_out)
        _norm(layer.ffn.layer_norm, block.ffn_norm)


def _attention(spec: Any, block: Any, name: Literal["attn", "cross_attn"]) -> None:
    """Self-attention has fused query, key and value; cross-attention has fused key and value."""
    attn: MultiHeadAttention = getattr(block, name)
    parts: list[Any] = [attn.to_query, attn.to_key, attn.to_value]
    pieces = [parts] if name == "attn" else [parts[:1], parts[1:]]
    for linear, piece in zip(spec.linear, pieces, strict=False):
        linear.weight = torch.cat([_to_cpu(part.weight) for part in piece])
        linear.bias = torch.cat([_to_cpu(part.bias) for part in piece])
    _linear(spec.linear[-1], attn.to_out)
    _norm(spec.layer_norm, getattr(block, f"{name}_norm"))


def _linear(spec: Any, layer: nn.Linear) -> None:
    spec.weight = _to_cpu(layer.weight)
    if layer.bias is not None:
        spec.bias = _to_cpu(layer.bias)


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _to_cpu(norm.weight), _to_cpu(norm.bias)


def _positions(embedding: nn.Module, context: int) -> Tensor:
    if isinstance(embedding, LearnedPositions):
        return _to_cpu(embedding.weight)[embedding.offset :]
    assert isinstance(embedding, SinusoidalPositions)
    return embedding(torch.arange(context))


def _to_cpu(tensor: Tensor) -> Tensor:
    """A copy on the CPU, float32 instead of float64: CTranslate2 quantizes in place."""
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.dtype == torch.float64 else tensor.clone()


def _source_tokens(vocabulary: Sequence[str] | None, tokenizer: str | Path | None, size: int) -> list[str]:
    """The source tokens in the order of their ids."""
    if vocabulary is None and tokenizer is None:
        raise WeightsError("CTranslate2 needs tokens: give vocabulary= or tokenizer=")
    if vocabulary is None and tokenizer is not None:
        known = {number: token for token, number in read_tokenizer(tokenizer).get_vocab().items()}
        if max(known, default=0) >= size:
            raise WeightsError(f"the tokenizer has ids up to {max(known)}, but the model only up to {size - 1}")
        # Vocabularies of models are often padded.
        vocabulary = [known.get(number, f"<unused {number}>") for number in range(size)]
    return _check_vocabulary(vocabulary or (), size)


def _target_tokens(model: Transformer, tokens: list[str], target: Sequence[str] | None) -> list[str]:
    size = model.config.target_vocab_size
    if size is None and target is not None:
        raise WeightsError("target_vocabulary must not be given: this model has one vocabulary")
    if size is not None and target is None:
        raise WeightsError(f"target_vocabulary is required: this model has {size} target tokens")
    return tokens if size is None or target is None else _check_vocabulary(target, size)


def _check_vocabulary(vocabulary: Sequence[str], size: int) -> list[str]:
    tokens = list(vocabulary)
    if len(tokens) != size:
        raise WeightsError(f"the model has {size} tokens, got {len(tokens)}")
    if len(set(tokens)) != size:
        duplicate = next(token for token in tokens if tokens.count(token) > 1)
        raise WeightsError(f"the token {duplicate!r} occurs more than once in the vocabulary")
    return tokens


def _check_tokens(tokens: list[str], *special: str) -> None:
    for token in special:
        if token not in tokens:
            raise WeightsError(f"{token!r} is not in the vocabulary. Give start=, end= and unknown=")

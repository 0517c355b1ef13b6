"""Folders that CTranslate2 runs: translation and language models, fast, and without torch.

Its own package says what such a folder holds; here its forms are filled in with our weights.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.attention import MultiHead
from softlook.blocks.feed_forward import ActivationName
from softlook.embed.places import LearnedPlaces, SinusoidalPlaces
from softlook.models.gpt import GPT
from softlook.models.transformer import Entrance, Transformer
from softlook.weights.families.gpt2 import is_gpt
from softlook.weights.folders import new_folder
from softlook.weights.structure import check_structure
from softlook.weights.tokenizer import copy_tokenizer, read_tokenizer

try:
    from ctranslate2 import specs
except ImportError as fault:
    raise ImportError("to write for CTranslate2, install its package: pip install softlook[ctranslate2]") from fault

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
    """Write a Transformer or a GPT as a new folder that CTranslate2's Translator or Generator reads.

    - `vocabulary`: the tokens in the order of their ids; those of `tokenizer`, a tokenizer.json, where not told.
    - `target_vocabulary`: those of the target, where the model has two vocabularies.
    - `start`, `end`, `unknown`: the tokens that what is said begins with and ends with, and that unknown ones become.
    - `quantization`: in which precision weights are kept; in the model's own where not told.

    Positions without end are written out up to the model's `context`.

    >>> import tempfile
    >>> from softlook.models import GPTConfig
    >>> model = GPT(GPTConfig(vocab=4, context=8, dim=16, depth=2, heads=2))
    >>> with tempfile.TemporaryDirectory() as made:
    ...     folder = to_ctranslate2(model, Path(made) / "gpt", vocabulary=["<s>", "</s>", "<unk>", "a"])
    ...     sorted(path.name for path in folder.iterdir())
    ['config.json', 'model.bin', 'vocabulary.json']
    """
    if not isinstance(model, GPT | Transformer) or model.config.labels:
        raise WeightsError(f"CTranslate2 is written for GPT and Transformer without labels; a {_called(model)} came")
    if isinstance(model, GPT) and not model.config.causal:
        raise WeightsError("CTranslate2 generates text; this GPT looks both ways (causal=False) and cannot")
    check_structure(model)
    if quantization not in (None, *get_args(Quantization)):
        raise WeightsError(f"quantization wants one of {', '.join(get_args(Quantization))}; {quantization!r} came")
    words = _words(vocabulary, tokenizer, model.config.vocab)
    if isinstance(model, GPT):
        if not is_gpt(model) or model.config.head != "words":
            raise WeightsError("CTranslate2 is written for GPTs with the parts and the head of GPT-2; this has others")
        spec = _gpt(model)
        _check_tokens(words, start, end, unknown)
        spec.register_vocabulary(words)
    else:
        spec = _transformer(model)
        said = _said(model, words, target_vocabulary)
        _check_tokens(said, start, end, unknown)
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(said)
        spec.config.decoder_start_token = start
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = start, end, unknown
    spec.validate()
    spec.optimize(quantization=quantization)
    with new_folder(Path(folder)) as made:
        spec.save(str(made))
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), made)
    return Path(folder)


def _gpt(model: GPT) -> Any:
    c = model.config
    spec: Any = specs.TransformerDecoderModelSpec.from_config(c.depth, c.heads, activation=ACTIVATIONS[c.activation])
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = _numbers(model.tokens.table.weight)
    parts: Any = model
    decoder.position_encodings.encodings = _positions(parts.places, c.context)
    _stack(decoder, model.blocks, model.norm)
    _linear(decoder.projection, parts.head)
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
    _entrance(spec.encoder, spec.encoder.embeddings[0], encoder.entrance, c.context)
    _entrance(spec.decoder, spec.decoder.embeddings, decoder.entrance, c.context)
    _stack(spec.encoder, encoder.blocks, encoder.norm)
    _stack(spec.decoder, decoder.blocks, decoder.norm)
    _linear(spec.decoder.projection, model.head)
    spec.config.layer_norm_epsilon = LAYER_NORM_EPS
    return spec


def _entrance(spec: Any, embeddings: Any, entrance: Entrance, context: int) -> None:
    spec.scale_embeddings = float(entrance.tokens.scale)
    embeddings.weight = _numbers(entrance.tokens.table.weight)
    spec.position_encodings.encodings = _positions(entrance.places, context)
    if isinstance(entrance.norm, nn.LayerNorm):
        _norm(spec.layernorm_embedding, entrance.norm)


def _stack(spec: Any, blocks: Any, closing: nn.Module) -> None:
    if isinstance(closing, nn.LayerNorm):
        _norm(spec.layer_norm, closing)
    for layer, block in zip(spec.layer, blocks, strict=True):
        _attention(layer.self_attention, block, "attend")
        if hasattr(block, "cross"):
            _attention(layer.attention, block, "cross")
        _linear(layer.ffn.linear_0, block.feed.to_hidden)
        _linear(layer.ffn.linear_1, block.feed.to_out)
        _norm(layer.ffn.layer_norm, block.around_feed.norm)


def _attention(spec: Any, block: Any, name: Literal["attend", "cross"]) -> None:
    """Queries, keys and values in one piece where a sequence looks at itself; keys and values where at another."""
    attend: MultiHead = getattr(block, name)
    parts: list[Any] = [attend.to_query, attend.to_key, attend.to_value]
    pieces = [parts] if name == "attend" else [parts[:1], parts[1:]]
    for linear, piece in zip(spec.linear, pieces, strict=False):
        linear.weight = torch.cat([_numbers(part.weight) for part in piece])
        linear.bias = torch.cat([_numbers(part.bias) for part in piece])
    _linear(spec.linear[-1], attend.to_out)
    _norm(spec.layer_norm, getattr(block, f"around_{name}").norm)


def _linear(spec: Any, layer: nn.Linear) -> None:
    spec.weight = _numbers(layer.weight)
    if layer.bias is not None:
        spec.bias = _numbers(layer.bias)


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)


def _positions(places: nn.Module, context: int) -> Tensor:
    if isinstance(places, LearnedPlaces):
        return _numbers(places.table.weight)[places.offset :]
    assert isinstance(places, SinusoidalPlaces)
    return places(torch.arange(context))


def _numbers(tensor: Tensor) -> Tensor:
    """CTranslate2 knows 16 and 32 bits. A copy: it rounds in place what is written with fewer bits."""
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.dtype == torch.float64 else tensor.clone()


def _words(vocabulary: Sequence[str] | None, tokenizer: str | Path | None, size: int) -> list[str]:
    """The tokens in the order of their ids, one for each."""
    if vocabulary is None and tokenizer is None:
        raise WeightsError("CTranslate2 works with tokens, not with ids: give vocabulary= or tokenizer=")
    if vocabulary is None:
        vocabulary = _of_tokenizer(tokenizer, size)
    return _checked(vocabulary, size)


def _of_tokenizer(tokenizer: Any, size: int) -> list[str]:
    known = {number: token for token, number in read_tokenizer(tokenizer).get_vocab().items()}
    if max(known, default=0) >= size:
        raise WeightsError(
            f"the tokenizer knows ids up to {max(known)}, the model up to {size - 1}: they do not belong"
        )
    # Models often have room for a few more words than there are.
    return [known.get(number, f"<nothing {number}>") for number in range(size)]


def _said(model: Transformer, words: list[str], target: Sequence[str] | None) -> list[str]:
    size = model.config.target_vocab
    if size is None and target is not None:
        raise WeightsError("this model has one vocabulary for both sides: leave target_vocabulary out")
    if size is not None and target is None:
        raise WeightsError(f"this model has a vocabulary of {size} tokens for the target: give target_vocabulary=")
    return words if size is None or target is None else _checked(target, size)


def _checked(vocabulary: Sequence[str], size: int) -> list[str]:
    words = list(vocabulary)
    if len(words) != size:
        raise WeightsError(f"the model has {size} tokens; {len(words)} came")
    if len(set(words)) != size:
        twice = next(word for word in words if words.count(word) > 1)
        raise WeightsError(f"the token {twice!r} stands in the vocabulary more than once")
    return words


def _check_tokens(words: list[str], *special: str) -> None:
    for word in special:
        if word not in words:
            raise WeightsError(
                f"{word!r} is no token of this vocabulary. Say which one is meant: start=, end=, unknown="
            )


def _called(model: nn.Module) -> str:
    labelled = isinstance(model, GPT | Transformer)
    return f"{type(model).__name__} with labels" if labelled else type(model).__name__

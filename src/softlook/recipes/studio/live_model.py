"""A pipeline as the live model of the studio."""

from softlook.base.errors import ConfigError
from softlook.lens.unembedding import find_unembedding
from softlook.models import TextEncoder
from softlook.recipes.inference.inspection import encode_text, token_labels
from softlook.recipes.inference.pipeline import Pipeline
from softlook.studio.live import LiveModel, ModelInput
from softlook.studio.recording import StudioTrace, Task

TASKS: dict[str, Task] = {"decoder-only": "lm", "encoder-decoder": "seq2seq"}
CAPABILITIES = {"decoder-only": ("generate", "contributions"), "encoder-decoder": ("beams",)}
"""What a model can do in addition, by its mode."""


def live_model(pipeline: Pipeline) -> LiveModel:
    """The model of a pipeline, with its tokenizer.

    >>> from softlook.recipes.inference.pipeline import load_pipeline
    >>> live_model(load_pipeline("dates", device="cpu")).capabilities
    ('intervene', 'twins', 'logit_lens', 'next', 'beams')
    """

    def encode(text: str, pair: str | None, target: str | None) -> ModelInput:
        encoded = encode_text(pipeline, text, pair, target=target)
        args = tuple(pipeline.to_tensor(ids) for ids in encoded.ids)
        title = text if pair is None else f"{text} / {pair}"
        return ModelInput(title, args, encoded.inputs, encoded.tokens, encoded.source_tokens, encoded.predicted)

    special = pipeline.special_tokens
    return LiveModel(
        pipeline.name,
        pipeline.model,
        model_task(pipeline),
        encode,
        lambda ids: token_labels(pipeline.tokenizer, list(ids)),
        _capabilities(pipeline),
        {"start": special.start, "eos": special.eos},
        pipeline.labels if isinstance(pipeline.model, TextEncoder) else (),
    )


def record_text(live: LiveModel, text: str, pair: str | None = None, target: str | None = None) -> StudioTrace:
    """The recording of a model reading a text."""
    given = live.encode(text, pair, target)
    return StudioTrace(live.record(given), given.title, live.name, live.task, live, given.predicted)


def model_task(pipeline: Pipeline) -> Task:
    """The task of a model, as the page names it."""
    mode, head = getattr(pipeline.model, "mode", ""), getattr(pipeline.model.config, "head", "")
    if mode in TASKS:
        return TASKS[mode]
    return "masked_lm" if head == "masked_lm" else "classification" if head == "classification" else "other"


def _capabilities(pipeline: Pipeline) -> tuple[str, ...]:
    names = ("intervene", "twins", *(("logit_lens", "next") if _predicts_tokens(pipeline) else ()))
    names += ("next",) if model_task(pipeline) == "classification" else ()
    return (*names, *CAPABILITIES.get(getattr(pipeline.model, "mode", ""), ()))


def _predicts_tokens(pipeline: Pipeline) -> bool:
    """Whether the model has a head to the vocabulary after its blocks."""
    try:
        find_unembedding(pipeline.model)
    except ConfigError:
        return False
    return model_task(pipeline) in ("lm", "seq2seq", "masked_lm")

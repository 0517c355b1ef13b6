"""Figures of a model for a text: all heads, rollout, statistics of the last layer, alignment, beam tree."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from softlook.base.errors import ConfigError
from softlook.decode import beam_search, create_session
from softlook.decode.beam.hypotheses import BeamCandidate, BeamStep
from softlook.decode.token_tensors import pad_right
from softlook.lens.contributions import logit_contributions
from softlook.lens.figures.attention_map import attention_figure
from softlook.lens.figures.decoding import BeamNode, beam_tree_figure, translation_figure
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery import FIGURES
from softlook.lens.figures.maps import alignment_figure, head_map_figure
from softlook.lens.figures.scores import contributions_figure, head_scores_figure
from softlook.lens.rollout import attention_rollout
from softlook.recipes.inference.inspection import (
    TITLES,
    AttentionType,
    LayerAttention,
    attention_labels,
    encode_text,
    inspect_attention,
    inspect_heads,
    model_inputs,
    token_labels,
    trace_encoded,
)
from softlook.recipes.inference.pipeline import Pipeline, TextInput, load_pipeline

FigureKind = Literal["heads", "rollout", "statistics", "scores", "contributions", "alignment", "beams"]
RESIDUAL = 0.5
"""The share of the residual connection in a rollout."""
AMBIGUOUS_DATE = "5 4 2003"
"""A date whose day and month can be read in two ways."""
BEAMS, MAX_NEW_TOKENS = 2, 16


def run_figure(pipeline: Pipeline, text: str, kind: FigureKind = "heads", *, num_beams: int = BEAMS) -> Figure:
    """A figure of a model for a text.

    >>> from softlook.recipes.inference import load_pipeline
    >>> run_figure(load_pipeline("dates", device="cpu"), "3 mars 2022", "alignment")
    Figure('3 mars 2022 → 2022-03-03', 760 x ...)
    """
    if kind == "beams":
        title = f"{pipeline.name}: beam search"
        return beam_tree_figure(search_tree(pipeline, text, num_beams), source=text, title=title, beams=num_beams)
    if kind == "scores":
        return _scores(pipeline, text)
    if kind == "contributions":
        return _contributions(pipeline, text)
    if kind == "rollout":
        return _rollout(pipeline, text)
    layers = inspect_attention(pipeline, text)
    kinds: list[AttentionType] = [layer.type for layer in layers]
    chosen: AttentionType = "cross" if "cross" in kinds else kinds[0]
    if kind == "alignment":
        return _alignment([layer for layer in layers if layer.type == "cross"], pipeline.name)
    shown = [layer for layer in layers if layer.type == chosen]
    if kind == "statistics":
        return _statistics(shown[-1], text)
    maps = {f"layer {layer.layer}": layer.weights for layer in shown}
    title = f"{TITLES[chosen].capitalize()} of “{text}”"
    return head_map_figure(maps, queries=shown[0].queries, keys=shown[0].keys, title=title)


def search_tree(pipeline: Pipeline, text: str, num_beams: int = BEAMS) -> list[BeamNode]:
    """The candidates of a beam search for a translation, as the nodes of a tree."""
    special, tokenizer = pipeline.special_tokens, pipeline.tokenizer
    source = _encode(pipeline, text)
    steps: list[BeamStep] = []
    limit = min(MAX_NEW_TOKENS, pipeline.generation_config.max_tokens_for(len(source)))
    session = create_session(pipeline.model, *pad_right([source], pipeline.device))
    options = {"eos_ids": special.eos, "max_new_tokens": limit, "num_beams": num_beams}
    beam_search(session, [list(special.start)], on_step=steps.append, **options)
    nodes: list[BeamNode] = []
    beams: dict[int, int] = {}
    for step in steps:
        present: dict[int, int] = {}
        for candidate in _shown(step, num_beams):
            label = "<eos>" if candidate.token in special.eos else token_labels(tokenizer, [candidate.token])[0]
            if candidate.beam is not None:
                present[candidate.beam] = len(nodes)
            nodes.append(BeamNode(label, step.length, beams.get(candidate.parent), candidate.score, candidate.status))
        beams = present
    return nodes


def translation() -> Figure:
    """Training and decoding of a translation by the included model, with its beam tree."""
    pipeline = load_pipeline("dates", device="cpu")
    nodes, target = search_tree(pipeline, AMBIGUOUS_DATE), "2003-04-05"
    ids = [*pipeline.tokenizer.encode([target])[0], pipeline.special_tokens.eos[0]]
    source, read = _encode(pipeline, AMBIGUOUS_DATE), [*pipeline.special_tokens.start, *ids[:-1]]
    with torch.no_grad():
        logits = pipeline.model(torch.tensor([source]), torch.tensor([read]))[0]
    probabilities = logits.softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)].tolist()
    labels = [*token_labels(pipeline.tokenizer, ids[:-1]), "<eos>"]
    return translation_figure(AMBIGUOUS_DATE, labels, probabilities, nodes, beams=BEAMS)


GALLERY: dict[str, Callable[[], Figure]] = {**FIGURES, "translation": translation}
"""All pictures that need no run."""


def _scores(pipeline: Pipeline, text: str) -> Figure:
    """The head table as grids."""
    return head_scores_figure(inspect_heads(pipeline, text).grids(), title=f"Heads of {pipeline.name} on “{text}”")


def _contributions(pipeline: Pipeline, text: str) -> Figure:
    """What adds to the logit of the token that a language model predicts after a text."""
    if getattr(pipeline.model, "mode", "") != "decoder-only":
        raise ConfigError(f"contributions need a language model, which {pipeline.name} is not: try --kind scores")
    ids = torch.tensor([list(model_inputs(pipeline, TextInput(text))[0])], device=pipeline.device)
    with torch.no_grad():
        token = int(pipeline.model(ids)[0, -1].argmax())
    parts = logit_contributions(pipeline.model, ids, token=token)
    named = {"embedding": parts.embedding, **parts.layers, "bias": parts.bias}
    heads = torch.cat(list(parts.heads.values())).cpu()
    sources = torch.stack([one[0].sum(0) for one in parts.sources.values()]).sum(0).cpu()
    predicted, words = token_labels(pipeline.tokenizer, [token])[0], token_labels(pipeline.tokenizer, ids[0].tolist())
    title = f"What adds to the logit of “{predicted}” after “{text}”"
    return contributions_figure(
        {name: float(one[0]) for name, one in named.items()}, heads, sources, tokens=words, title=title
    )


def _encode(pipeline: Pipeline, text: str) -> list[int]:
    """Source ids with special tokens."""
    model, special = pipeline.model, pipeline.special_tokens
    if getattr(model, "mode", "") != "encoder-decoder" or not special.start or not special.eos:
        raise ConfigError(f"{pipeline.name} does not translate: a beam tree needs an encoder-decoder")
    return [*special.prefix, *pipeline.tokenizer.encode([text.strip()])[0], *special.suffix]


def _shown(step: BeamStep, num_beams: int) -> list[BeamCandidate]:
    """Kept and finished candidates, and as many dropped ones as there are beams."""
    dropped = [one for one in step.candidates if one.status == "dropped"][:num_beams]
    return [one for one in step.candidates if one.status != "dropped" or one in dropped]


def _alignment(layers: list[LayerAttention], name: str) -> Figure:
    if not layers:
        raise ConfigError(f"{name} has no cross-attention: an alignment needs an encoder-decoder")
    last = layers[-1]
    return alignment_figure(last.weights.mean(0)[:-1, :-1], source=last.keys[:-1], target=last.queries[:-1])


def _rollout(pipeline: Pipeline, text: str) -> Figure:
    """The product of the mean maps of the self-attention, each mixed with the identity of the residual connection."""
    encoded = encode_text(pipeline, text)
    recorded = trace_encoded(pipeline, encoded)
    labels = {path: attention_labels(pipeline, encoded, path) for path in recorded}
    paths = [path for path, (kind, _) in labels.items() if kind in ("self", "encoder")]
    if not paths:
        raise ConfigError(f"a rollout needs self-attention, which {pipeline.name} does not have")
    queries, keys = labels[paths[0]][1]
    return attention_figure(
        attention_rollout(recorded, layers=paths, residual=RESIDUAL)[0].float().cpu(),
        queries=queries,
        keys=keys,
        title=f"Attention rollout of “{text}”",
        subtitle="How much of each input token (columns) reaches each output (rows) through all layers.",
        caption=f"Product over {len(paths)} layers of {RESIDUAL:g} × identity + {1 - RESIDUAL:g} × mean over heads.",
    )


def _statistics(layer: LayerAttention, text: str) -> Figure:
    """The mean map of a layer, with the entropy of each query and the weight of its strongest key."""
    weights = layer.weights.mean(0)
    lanes = {
        "entropy": nn.functional.relu(-torch.xlogy(layer.weights, layer.weights).sum(-1)).mean(0),
        "largest weight": layer.weights.amax(-1).mean(0),
    }
    return attention_figure(
        weights,
        queries=layer.queries,
        keys=layer.keys,
        lanes=lanes,
        title=f"Layer {layer.layer} of “{text}”",
        subtitle="Mean over heads. Beside each query: the entropy in nats and the largest weight, means over heads.",
    )

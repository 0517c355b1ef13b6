"""Figures of the views of the studio, from the address of its page."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import torch

from softlook.base.errors import ConfigError
from softlook.lens.figures.attention_map import attention_figure
from softlook.lens.figures.decoding import BeamNode, beam_tree_figure
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.maps import patches_figure, twins_figure
from softlook.lens.figures.scores import curves_figure, probabilities_figure
from softlook.lens.figures.state import chosen_path, from_url, parse_state
from softlook.lens.trace_description import attention_tokens
from softlook.studio.answers.decoding import Beams, Generation, beams, generate
from softlook.studio.answers.interventions import Ablation, Intervention, Temperature, intervene
from softlook.studio.answers.predictions import next_tokens
from softlook.studio.answers.twins import TwinTexts, make_twins
from softlook.studio.recording import StudioTrace
from softlook.studio.session import Studio

Chosen = Mapping[str, str]
CANDIDATES = 10


def view_figure(studio: Studio, url: str) -> Figure:
    """What the page shows at an address, computed again and drawn as a figure.

    Views of a trace are those of `softlook.lens.figures.from_url`; all others ask the model, the runs or the table of
    the studio. A chapter is drawn as the head that it ends with.

    >>> from softlook.studio.recordings import load_example
    >>> view_figure(Studio([load_example()]), "#/view/predict?position=3")
    Figure('Prediction at position 3', 760 x ...)
    """
    view, chosen = parse_state(url)
    if view in WITHOUT_TRACE:
        return WITHOUT_TRACE[view](studio, chosen)
    recording = _recording(studio, chosen.get("trace", ""))
    return VIEWS[view](studio, recording, chosen) if view in VIEWS else from_url(url, recording.trace)


def _recording(studio: Studio, id: str) -> StudioTrace:
    """The recording of an address; the first where it is none of this studio."""
    known = {one["id"] for one in studio.info()["traces"]}
    return studio.recording(id) if id in known else studio.first()


def _predict(studio: Studio, recording: StudioTrace, chosen: Chosen) -> Figure:
    position = int(chosen.get("position", -1))
    found = {token: p for token, *_, p in next_tokens(recording, position, CANDIDATES)}
    place = f" at position {position}" if position >= 0 else ""
    return probabilities_figure({recording.title: found}, title=f"Prediction{place}")


def _intervene(studio: Studio, recording: StudioTrace, chosen: Chosen) -> Figure:
    layer, heads = chosen_path(recording.trace, chosen), _integers(chosen.get("heads", ""))
    amount, temperature = float(chosen.get("amount", 1)), float(chosen.get("temperature", 1))
    body = Intervention(
        ablate=[_ablation(layer, heads, amount, chosen)] if heads and amount > 0 else [],
        temperature=[Temperature(layer=layer, heads=heads, value=temperature)] if heads and temperature != 1 else [],
        mask=_integers(chosen.get("mask", "")),
        position=int(chosen.get("position", -1)),
    )
    found = intervene(studio, recording, body)
    return probabilities_figure({name: dict(found[name]) for name in ("before", "after")}, title="Intervention")


def _ablation(layer: str, heads: list[int], amount: float, chosen: Chosen) -> Ablation:
    replacement = chosen.get("replacement", "zero")
    return Ablation.model_validate({"layer": layer, "heads": heads, "amount": amount, "replacement": replacement})


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split() if part.isdecimal()]


def _generate(studio: Studio, recording: StudioTrace, chosen: Chosen) -> Figure:
    body = Generation(
        prompt=chosen.get("prompt", recording.title),
        max_new_tokens=int(chosen.get("count", 24)),
        temperature=float(chosen.get("temperature", 1)),
        top_k=int(chosen.get("top_k", 50)),
        seed=int(chosen.get("seed", 0)),
    )
    tokens = [data for name, data in generate(studio, body) if name == "token"]
    step = min(int(chosen.get("step", len(tokens))), len(tokens))
    text = body.prompt + "".join(one["token"] for one in tokens[:step])
    return probabilities_figure(
        {f"step {step}": dict(tokens[step - 1]["candidates"])}, title="Generation", subtitle=text
    )


def _twins(studio: Studio, chosen: Chosen) -> Figure:
    if "first" not in chosen or "second" not in chosen:
        raise ConfigError("the address of two texts has both: #/view/twins?first=...&second=...")
    pair = make_twins(studio, TwinTexts(first=chosen["first"], second=chosen["second"], target=None))
    path = chosen_path(pair.first.trace, chosen)
    (first, queries, keys), (second, *_, other_keys) = (
        _weights(one, path, chosen) for one in (pair.first, pair.second)
    )
    if len(queries) == len(keys):
        return twins_figure(first, second, first_tokens=keys, second_tokens=other_keys, title=path)
    return attention_figure(second - first, queries=queries, keys=keys, title=f"{path}: second text minus first")


def _weights(recording: StudioTrace, path: str, chosen: Chosen) -> tuple[torch.Tensor, list[str], list[str]]:
    """The map of the chosen head, or the mean of all heads, and its tokens."""
    weights, head = recording.trace[path].weights()[0].float().cpu(), chosen.get("head", "0")
    return (weights.mean(0) if head == "mean" else weights[int(head)]), *attention_tokens(recording.trace, path)


def _beams(studio: Studio, chosen: Chosen) -> Figure:
    text = chosen.get("text", studio.first().title.split(" → ")[0])
    body = Beams.model_validate({"text": text, "beams": chosen.get("beams", 4)})
    steps = [data for name, data in beams(studio, body) if name == "step"]
    steps = steps[: int(chosen.get("step", _last_step(steps)))]
    indices: dict[str, int] = {}
    nodes: list[BeamNode] = []
    for step in steps:
        for one in step["beams"]:
            indices[one["id"]] = len(nodes)
            nodes.append(BeamNode(one["token"], step["step"], indices.get(one["parent"]), one["score"], one["status"]))
    return beam_tree_figure(nodes, source=text, beams=body.beams)


def _last_step(steps: list[dict[str, Any]]) -> int:
    """The number of steps until the best hypothesis is complete."""
    finished = [
        (one["score"], number)
        for number, step in enumerate(steps, start=1)
        for one in step["beams"]
        if one["status"] == "finished"
    ]
    return max(finished, default=(0.0, len(steps)))[1]


def _table(studio: Studio, chosen: Chosen) -> Figure:
    if studio.table is None:
        raise ConfigError("the studio has no table model")
    described = studio.table.columns()
    types = {one["name"]: one["type"] for one in described["columns"]}
    edits = {name: _cell(text, types.get(name, "")) for name, text in parse_qsl(chosen.get("cells", ""), True)}
    answer, recording = studio.table.predict({**described["row"], **edits})
    path = chosen_path(recording.trace, chosen)
    weights, queries, keys = _weights(recording, path, {"head": "mean", **chosen})
    return attention_figure(weights, queries=queries, keys=keys, title=f"Prediction: {answer['prediction']}")


def _cell(text: str, kind: str) -> str | float | None:
    if not text:
        return None
    return float(text.replace(",", ".")) if kind == "number" else text


def _runs(studio: Studio, chosen: Chosen) -> Figure:
    if studio.runs is None:
        raise ConfigError("the studio has no training runs")
    listed = {run["id"]: run["title"] for run in studio.runs.all()}
    ids = [id for id in chosen.get("runs", "").split() if id in listed] or list(listed)[:1]
    series = {listed[id]: studio.runs.curves(id)["series"] for id in ids}
    names = list(dict.fromkeys(name for one in series.values() for name in one))
    name = chosen.get("curve", names[0] if names else "")
    curves = {title: [(step, value) for step, value in one[name]] for title, one in series.items() if one.get(name)}
    if not curves:
        raise ConfigError(f"no run has a curve {name!r:.40}; there are {', '.join(names) or 'none yet'}")
    return curves_figure(curves, y_label=name)


def _patches(studio: Studio, recording: StudioTrace, chosen: Chosen) -> Figure:
    path, row = chosen_path(recording.trace, chosen), int(chosen.get("row", 0))
    weights, _, keys = _weights(recording, path, chosen)
    side = int(len(keys) ** 0.5)
    return patches_figure({f"query {keys[row]}": weights[row, -side * side :].view(side, side)}, title=recording.title)


VIEWS: dict[str, Callable[[Studio, StudioTrace, Chosen], Figure]] = {
    "/view/predict": _predict,
    "/view/intervene": _intervene,
    "/view/generate": _generate,
    "/view/patches": _patches,
}
WITHOUT_TRACE: dict[str, Callable[[Studio, Chosen], Figure]] = {
    "/view/twins": _twins,
    "/view/beams": _beams,
    "/view/table": _table,
    "/view/runs": _runs,
}

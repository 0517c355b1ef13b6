"""`softlook inspect`: the attention of a model in the terminal."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from softlook.base.errors import ConfigError
from softlook.cli.console import OutputStream
from softlook.cli.options import DeviceOption, ModelArg

if TYPE_CHECKING:
    from torch import Tensor

    from softlook.lens import HeadTable
    from softlook.recipes.inference.inspection import HeadSummary, LayerAttention

log = logging.getLogger("softlook.cli")
DIGITS = 6
"""Significant digits of weights as JSON."""
PIPE_WIDTH = 100
"""Width of lines if stdout is not a terminal."""
TOP_HEADS, UNRANKED = 3, ("offset",)
"""Heads listed for each kind, and columns that are no scores."""
SeqAttention = Literal["encoder", "decoder", "cross"]
Layers = tuple[int | Literal["all"], ...]
Heads = tuple[int | Literal["mean", "all"], ...]
Maps = dict[str, "Tensor"]
"""Attention maps of a layer by name."""


def inspect(
    model: ModelArg,
    text: Annotated[str, Parameter(help="text in quotes")],
    text_pair: Annotated[str | None, Parameter(help="second text, for encoders that read pairs")] = None,
    /,
    *,
    layer: Annotated[Layers, Parameter(help="layers from 0, -1 for the last, or all")] = (-1,),
    head: Annotated[Heads, Parameter(help="heads from 0, mean, or all")] = ("mean",),
    attention: Annotated[
        tuple[SeqAttention, ...], Parameter(help="attention of an encoder-decoder; default: cross")
    ] = (),
    target: Annotated[
        str | None, Parameter(help="target of an encoder-decoder; default: its greedy translation")
    ] = None,
    scores: Annotated[
        bool, Parameter(help="also find the heads of each kind: sink, previous token, induction ...")
    ] = False,
    html: Annotated[
        Path | None, Parameter(help="new HTML page that shows the whole trace, as softlook studio does")
    ] = None,
    svg: Annotated[Path | None, Parameter(help="new SVG figure with all heads of the layers")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Show the attention weights of a model for a text: rows are queries, columns are keys."""
    from softlook.recipes.inference.inspection import inspect_attention, inspect_heads  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415
    from softlook.recipes.studio.live_model import live_model, record_text  # noqa: PLC0415
    from softlook.studio.export import save_page  # noqa: PLC0415
    from softlook.weights.atomic_folder import check_not_exists, disk_errors  # noqa: PLC0415

    for path in filter(None, (html, svg)):
        check_not_exists(path)
    pipeline = load_pipeline(model, device=device)
    layers = _of_types(inspect_attention(pipeline, text, text_pair, target=target), attention, model)
    chosen = _choose_layers(layers, layer)
    maps = [_choose_heads(one, head) for one in chosen]
    title = text if text_pair is None else f"{text} / {text_pair}"
    if html is not None:
        save_page(record_text(live_model(pipeline), text, text_pair, target), html)
        log.info("Wrote %s", html)
    if svg is not None:
        with disk_errors("write", svg):
            svg.write_text(_figure(chosen, title), encoding="utf-8")
        log.info("Wrote %s", svg)
    table, output = inspect_heads(pipeline, text, text_pair) if scores else None, OutputStream()
    if output.json:
        output.write_object(_to_object(text, layers, chosen, maps) | ({} if table is None else _scores_object(table)))
        return
    console = _console()
    for one, several in zip(chosen, maps, strict=True):
        console.print(_heading(one), style="bold")
        console.print(_draw(one, several, console))
    console.print(_summary_table(layers, chosen))
    if table is not None:
        console.print()
        console.print(_scores_table(table))
    output.flush()


def _console() -> Console:
    """stdout as a console; rich handles NO_COLOR, dumb terminals and redirection."""
    console = Console(highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(width=PIPE_WIDTH, highlight=False, markup=False, emoji=False)


def _of_types(layers: Sequence["LayerAttention"], types: Sequence[str], name: str) -> list["LayerAttention"]:
    """The layers of the requested attention; of an encoder-decoder without a request, the cross-attention."""
    found = {layer.type for layer in layers}
    missing = next((one for one in types if one not in found), None)
    if missing is not None:
        known = "only self-attention" if "self" in found else f"no {missing} attention"
        raise ConfigError(f"--attention {missing}: {name} has {known}")
    selected = types or (("cross",) if "cross" in found else tuple(found))
    return [layer for layer in layers if layer.type in selected]


def _choose_layers(layers: Sequence["LayerAttention"], numbers: Layers) -> list["LayerAttention"]:
    by_type: dict[str, list[LayerAttention]] = {}
    for layer in layers:
        by_type.setdefault(layer.type, []).append(layer)
    chosen = []
    for several in by_type.values():
        chosen += several if "all" in numbers else [several[_index("layer", one, len(several))] for one in numbers]
    return chosen


def _index(name: str, number: int | str, count: int) -> int:
    if not isinstance(number, int) or not -count <= number < count:
        raise ConfigError(f"--{name}: expected a number from 0 to {count - 1}, or -{count} to -1; got {number}")
    return number % count


def _choose_heads(layer: "LayerAttention", heads: Heads) -> Maps:
    """Maps of the requested heads by name."""
    count = len(layer.weights)
    numbers = list(range(count)) if "all" in heads else [_index("head", one, count) for one in heads if one != "mean"]
    maps = {"mean over heads": layer.weights.mean(0)} if "mean" in heads else {}
    return maps | {f"head {number}": layer.weights[number] for number in numbers}


def _heading(layer: "LayerAttention") -> str:
    from softlook.recipes.inference.inspection import TITLES  # noqa: PLC0415  (imports torch)

    return f"layer {layer.layer}: {TITLES[layer.type]}"


def _draw(layer: "LayerAttention", maps: Maps, console: Console) -> Text:
    from softlook.lens.terminal import terminal_maps  # noqa: PLC0415  (imports torch)

    color = console.is_terminal and console.color_system is not None and not console.no_color
    return terminal_maps(maps, queries=layer.queries, keys=layer.keys, width=console.width, color=color)


def _summary_table(layers: Sequence["LayerAttention"], chosen: Sequence["LayerAttention"]) -> Table:
    """A line for each layer, and for each head of the chosen ones."""
    table = Table("", "entropy", "attends most to", "weight", box=None, header_style="dim", pad_edge=False)
    for layer in layers:
        table.add_row(*_summary_cells(_heading(layer), layer.summary()))
        if layer in chosen:
            for head in range(len(layer.weights)):
                table.add_row(*_summary_cells(f"  head {head}", layer.summary(head)))
    return table


def _summary_cells(name: str, summary: "HeadSummary") -> tuple[str, str, str, str]:
    return name, f"{summary.entropy:.2f}", summary.attends_to, f"{summary.weight:.3f}"


def _scores_table(scores: "HeadTable") -> Table:
    """The heads with the largest score of each kind, and how it is measured."""
    table = Table("kind", "layer.head, score", "measured as", box=None, header_style="dim", pad_edge=False)
    numbers = {path: number for number, path in enumerate(dict(scores.heads))}
    for name in scores.columns:
        best = [f"{numbers[path]}.{head} {score:.2f}" for path, head, score in scores.top(name, TOP_HEADS)]
        if best and name not in UNRANKED:
            table.add_row(name, "  ".join(best), scores.measured.get(name, ""))
    return table


def _scores_object(scores: "HeadTable") -> dict[str, Any]:
    """The scores of every head as JSON types; null where a head has none."""
    columns = {name: column.tolist() for name, column in scores.columns.items()}
    return {
        "scores": [
            {
                "path": path,
                "head": head,
                **{name: None if math.isnan(column[row]) else column[row] for name, column in columns.items()},
            }
            for row, (path, head) in enumerate(scores.heads)
        ]
    }


def _figure(layers: Sequence["LayerAttention"], title: str) -> str:
    from softlook.lens import heads_figure  # noqa: PLC0415  (imports torch)

    if len({layer.type for layer in layers}) > 1:
        raise ConfigError("a figure shows one type of attention. Name it with --attention, or write --html.")
    names = [f"layer {layer.layer}, " if len(layers) > 1 else "" for layer in layers]
    maps = {
        f"{name}head {head}": weights
        for name, layer in zip(names, layers, strict=True)
        for head, weights in enumerate(layer.weights)
    }
    return heads_figure(maps, queries=layers[0].queries, keys=layers[0].keys, title=title).svg()


def _to_object(
    text: str, layers: Sequence["LayerAttention"], chosen: Sequence["LayerAttention"], maps: Sequence[Maps]
) -> dict[str, Any]:
    """Statistics of all layers and heads; the tokens and weights of the chosen ones."""
    summaries = [
        {
            "layer": layer.layer,
            "attention": layer.type,
            "path": layer.path,
            "heads": [vars(layer.summary(head)) for head in range(len(layer.weights))],
        }
        for layer in layers
    ]
    weights_of_maps = [
        {
            "layer": layer.layer,
            "attention": layer.type,
            "head": name,
            "queries": layer.queries,
            "keys": layer.keys,
            "weights": [[float(f"{weight:.{DIGITS}g}") for weight in row] for row in weights.tolist()],
        }
        for layer, several in zip(chosen, maps, strict=True)
        for name, weights in several.items()
    ]
    return {"text": text, "layers": summaries, "maps": weights_of_maps}

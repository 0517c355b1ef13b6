"""Sections of the report: header, tiles, data, curves, scores, comparison, samples, settings, environment."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softlook.recipes.config.autosize import format_duration
from softlook.recipes.config.resolve import ValueOrigin
from softlook.recipes.run_dir.report.data import COMPARED, IMPORTANCES, ON, Event, ReportData
from softlook.recipes.run_dir.report.formatting import (
    Cell,
    Row,
    card,
    escape_html,
    facts,
    format_count,
    format_score,
    format_score_name,
    grid,
    is_lower_better,
    is_scalar,
    number_cell,
    section,
    table,
)
from softlook.recipes.run_dir.report.plots import SMALL, PlotLine, line_plot, loss_figure

SPLITS = {"training": "data", "validation": "valid", "test": "test"}
"""The setting with the files of each split."""
MAX_LABELS, MAX_WARNINGS = 10, 20
GIVEN = (ValueOrigin.ARGUMENT, ValueOrigin.FLAG, ValueOrigin.ENVIRONMENT, ValueOrigin.FILE)
"""Origins of settings that the user has set."""
OUTPUTS = ("prediction", "completion", "neighbors")
"""Fields of a sample that the model generates; the others are its input and the reference."""
MAX_EVALUATIONS, MAX_LONG_EVALUATIONS, LONG = 5, 3, 200
"""Evaluations whose samples are shown; fewer if the outputs have more characters than LONG."""


def header(run: ReportData) -> str:
    """Title, state and command."""
    ended = next((event for event in reversed(run.events) if event["event"] in ("started", "finished")), {})
    state, is_complete = str(ended.get("reason", "running")), bool(ended.get("complete"))
    started = next(iter(run.of("started")), {})
    badges = [
        f'<span class="badge"><i class="{"complete" if is_complete else "open"}"></i>{escape_html(state)}</span>',
        *(
            f'<span class="badge">{escape_html(text)}</span>'
            for text in (
                str(run.folder),
                str(run.metadata.get("started", "")).replace("T", " ")[:16],
                " · ".join(str(started[name]) for name in ("device", "precision") if name in started),
            )
            if text
        ),
    ]
    command = shlex.join(run.metadata.get("command", []))
    return (
        f'<header><div class="product">softlook training run</div><h1>{escape_html(run.title)}</h1>'
        f'<div class="badges">{"".join(badges)}</div>'
        f"{f'<pre>{escape_html(command)}</pre>' if command else ''}</header>"
    )


def tiles(run: ReportData) -> str:
    """The headline numbers."""
    best, name, parts = run.best, run.headline, []
    if best is not None:
        # Evaluations during training may have used a share of the validation data, the final scores all of it.
        scores = {**best["scores"], **run.scores, **run.scores.get("validation", {})}
        label, step = f"validation {format_score_name(name)}", f"at step {best['step']:,}"
        parts.append((label, format_score(scores[name], name), step))
    test = run.scores.get("test")
    if isinstance(test, Mapping) and isinstance(test.get(name), float):
        size = f"{test['examples']:,} examples" if "examples" in test else "best checkpoint"
        parts.append((f"test {format_score_name(name)}", format_score(test[name], name), size))
    started, logged = next(iter(run.of("started")), {}), run.of("step_logged")
    last, seconds = max((event["step"] for event in run.events), default=0), _seconds(run)
    limit = started.get("steps")
    parts.append(("steps", f"{last:,}", f"of {limit:,}" if limit else "no limit"))
    if seconds is not None:
        parts.append(("training time", format_duration(seconds), "evaluation included"))
    if logged:
        unit = "rows" if run.task == "table" else "tokens"
        speeds = sorted(event["tokens_per_second"] for event in logged)
        parts.append(("speed", f"{format_count(speeds[len(speeds) // 2])}/s", f"{unit}, median"))
    if "parameters" in started:
        parts.append(("parameters", format_count(started["parameters"]), f"{started['parameters']:,}"))
    content = "".join(_tile(*part, is_first=not number) for number, part in enumerate(parts))
    return f'<div class="tiles">{content}</div>'


def _tile(label: str, number: str, detail: str, *, is_first: bool) -> str:
    texts = zip(("label", "number", "detail"), (label, number, detail), strict=True)
    spans = "".join(f'<span class="{name}">{escape_html(text)}</span>' for name, text in texts)
    return f'<div class="tile{" first" if is_first else ""}">{spans}</div>'


def _seconds(run: ReportData) -> float | None:
    return next((event["seconds"] for event in reversed(run.events) if "seconds" in event), None)


def warnings(run: ReportData) -> str:
    """Warnings, skipped steps and splits of batches."""
    messages = [f"Step {event['step']:,}: {event['message']}" for event in run.of("warned")]
    messages += [
        f"Step {event['step']:,} had non-finite gradients and was skipped." for event in run.of("step_skipped")
    ]
    messages += [
        f"Step {event['step']:,}: out of memory; batches are split into {event['micro_batches']} micro-batches."
        for event in run.of("batch_split")
    ]
    return section("Warnings", card(table([[message] for message in messages[:MAX_WARNINGS]]))) if messages else ""


def _data(run: ReportData) -> str:
    """Files and sizes of the splits, and the distribution of the labels."""
    splits: Mapping[str, Mapping[str, int]] = run.data.get("splits", {})
    test = run.scores.get("test")
    if "test" not in splits and isinstance(test, Mapping) and "examples" in test:
        splits = {**splits, "test": {"examples": test["examples"]}}
    units = list(dict.fromkeys(unit for sizes in splits.values() for unit in sizes))
    rows = []
    for split, setting in SPLITS.items():
        files = run.files(setting)
        if not files and split not in splits:
            continue
        names = ", ".join(Path(file).name for file in files) or "held out of the training files"
        sizes = [number_cell(splits.get(split, {}).get(unit)) for unit in units]
        rows.append([Cell(split, "name"), Cell(names, "value", title=", ".join(files)), *sizes])
    summary = table(rows, head=["split", "files", *(Cell(unit, "num") for unit in units)])
    return summary + _label_counts(run.data.get("labels", {}))


def _label_counts(labels: Mapping[str, int]) -> str:
    if not labels:
        return ""
    ranked = sorted(labels.items(), key=lambda item: -item[1])
    total, largest = sum(labels.values()), ranked[0][1]
    rows = [
        [Cell(name, "name"), Cell(f"{count / total:.1%}", bar=count / largest), number_cell(count)]
        for name, count in ranked[:MAX_LABELS]
    ]
    more = len(ranked) - MAX_LABELS
    rest = f'<p class="note">And {more:,} more.</p>' if more > 0 else ""
    return f"<h4>Labels of the training data</h4>{table(rows)}{rest}"


def curves(run: ReportData) -> str:
    """Loss, scores, learning rate, gradient norm and speed by step."""
    best_step = run.best["step"] if run.best is not None else None
    evaluations, logged = run.of("evaluated"), run.of("step_logged")
    names = dict.fromkeys(name for event in evaluations for name in event["scores"] if not name.endswith("loss"))
    others = [name for name in names if name != run.headline and not (name == "error" and "accuracy" in names)]
    lines = {
        name: [(event["step"], event["scores"].get(name, float("nan"))) for event in evaluations] for name in names
    }
    unit = "Rows" if run.task == "table" else "Tokens"
    details = {"lr": "Learning rate", "grad_norm": "Gradient norm", "tokens_per_second": f"{unit} per second"}
    main, small = [loss_plot(run)], []
    if run.headline in lines:
        line = PlotLine("validation", lines[run.headline], "key", has_dots=True)
        main.append(line_plot(_capitalized(run.headline), [line], best_step=best_step))
    if others:
        two = zip(others, ("key", "query"), strict=False)
        shown = [PlotLine(format_score_name(name), lines[name], color, has_dots=True) for name, color in two]
        small.append(line_plot("Validation", shown, size=SMALL))
    small += [
        line_plot(title, [PlotLine("", [(event["step"], event[name]) for event in logged])], size=SMALL)
        for name, title in details.items()
    ]
    figures = grid(*map(_figure, main)), grid(*map(_figure, small[:3]), columns=3)
    return section("Curves", *figures, note=_curves_note(run))


def _capitalized(name: str) -> str:
    title = format_score_name(name)
    return title[0].upper() + title[1:]


def _curves_note(run: ReportData) -> str:
    has_smoothing = any(run.setting(name) not in ("", "0.0") for name in ("reg.label_smoothing", "reg.rdrop_alpha"))
    plain = " Both losses are the plain cross entropy, without label smoothing and R-Drop." if has_smoothing else ""
    alone = " The validation loss is that of attention alone, as in training." if _has_ngrams(run) else ""
    return f"The training loss is measured with dropout, on batches as they are trained.{plain}{alone}"


def _has_ngrams(run: ReportData) -> bool:
    """Whether scores are those of a mix with an n-gram classifier, which the training loss does not include."""
    return any("attention_loss" in event["scores"] for event in run.of("evaluated"))


def loss_plot(run: ReportData) -> str:
    """The training and validation loss by step, with the best step marked."""
    train = [(event["step"], event["loss"]) for event in run.of("step_logged")]
    name = "attention_loss" if _has_ngrams(run) else "loss"
    valid = [(event["step"], event["scores"].get(name, float("nan"))) for event in run.of("evaluated")]
    return loss_figure(train, valid, best_step=run.best["step"] if run.best is not None else None)


def _figure(svg: str) -> str:
    return f'<div class="card figure">{svg}</div>' if svg else ""


def summary(run: ReportData) -> str:
    """Scores and data next to each other."""
    return section("Summary", grid(card(_scores(run), "Scores"), card(_data(run), "Data")))


def _scores(run: ReportData) -> str:
    """All scores that are numbers: of the best step, and on validation and test data."""
    columns = {"best step": {name: value for name, value in run.scores.items() if is_scalar(value) and name != ON}}
    columns |= {
        name: {key: value for key, value in values.items() if is_scalar(value)}
        for name, values in run.scores.items()
        if isinstance(values, Mapping) and name != IMPORTANCES
    }
    columns = {name: _without_error(values) for name, values in columns.items() if values}
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    numbers = [name for name in names if any(not isinstance(values.get(name, ""), str) for values in columns.values())]
    rows: list[Row] = [
        [Cell(format_score_name(name), "name"), *(number_cell(values.get(name), name) for values in columns.values())]
        for name in numbers
    ]
    head = ["", *(Cell(name, "num") for name in columns)]
    texts = {
        f"{column} {format_score_name(name)}": values[name]
        for column, values in columns.items()
        for name in names
        if name not in numbers and name in values
    }
    return table(rows, head=head) + (facts(texts) if texts else "") if rows else ""


def _without_error(values: Mapping[str, Any]) -> dict[str, Any]:
    """The scores without the error rate, if there is the accuracy."""
    return {name: value for name, value in values.items() if name != "error" or "accuracy" not in values}


def comparison(run: ReportData) -> str:
    """Scores of the model and of baselines; the best of each column is bold."""
    models: Sequence[Mapping[str, Any]] = run.scores.get(COMPARED) or []
    if not models:
        return ""
    names = list(models[0])
    rows = []
    for number, model in enumerate(models):
        cells = [Cell(str(model[names[0]]), "name own" if number == 0 else "name")]
        for name in names[1:]:
            values = [other[name] for other in models if isinstance(other.get(name), float)]
            top = min(values, default=None) if is_lower_better(name) else max(values, default=None)
            is_best = top is not None and model.get(name) == top and name != "seconds"
            cells.append(number_cell(model.get(name), name, "best" if is_best else ""))
        rows.append(cells)
    head = [format_score_name(names[0]), *(Cell(format_score_name(name), "num") for name in names[1:])]
    on = f"On the {run.scores[ON]}. The best value of each column is bold." if run.scores.get(ON) else ""
    return section("Comparison", card(table(rows, head=head)), note=on)


def samples(run: ReportData) -> str:
    """Outputs for the same examples in several evaluations: one row per example."""
    events = [event for event in run.of("sampled") if event["samples"]]
    if not events:
        return ""
    size = min(len(event["samples"]) for event in events)
    longest = max(len(text) for event in events for sample in event["samples"] for text in sample.values())
    is_long = longest > LONG
    events = spread(events, MAX_LONG_EVALUATIONS if is_long else MAX_EVALUATIONS)
    names = list(events[-1]["samples"][0])
    outputs = [name for name in names if name in OUTPUTS] or names[-1:]
    inputs = [name for name in names if name not in outputs]
    rows = [
        [
            *(Cell(events[-1]["samples"][number].get(name, ""), "input") for name in inputs),
            *(event["samples"][number].get(name, "") for name in outputs for event in events),
        ]
        for number in range(size)
    ]
    head = [*inputs, *(f"{name}, step {event['step']:,}" for name in outputs for event in events)]
    return section("Samples", card(table(rows, head=head, style=f"samples{' long' * is_long}")))


def spread(events: Sequence[Event], count: int) -> list[Event]:
    """At most `count` of the events, at equal distances, with the first and the last.

    >>> [event["step"] for event in spread([{"step": step} for step in range(1, 11)], 4)]
    [1, 4, 7, 10]
    """
    if len(events) <= count:
        return list(events)
    return [events[round(number * (len(events) - 1) / (count - 1))] for number in range(count)]


def settings(run: ReportData) -> str:
    """Settings with their origins: first those that were given, then automatic ones; defaults are folded."""
    groups: dict[str, list[Row]] = {"given": [], "auto": [], "default": []}
    for name, value, origin in run.settings:
        is_given = origin.split()[0] in GIVEN
        group = "given" if is_given else "default" if origin == ValueOrigin.DEFAULT else "auto"
        groups[group].append([Cell(name, "mono"), Cell(value, "value mono"), Cell(origin, "origin")])
    head = ["setting", "value", "origin"]
    changed = [
        card(table(groups[group], head=head), title)
        for group, title in (("given", "Given"), ("auto", "Selected for the data and the device"))
        if groups[group]
    ]
    count = len(groups["default"])
    defaults = table(groups["default"], head=head) if count else ""
    folded = f"<details><summary>{count} defaults</summary>{card(defaults)}</details>" if count else ""
    return section("Settings", grid(*changed), folded)


def environment(run: ReportData) -> str:
    """Versions, machine, device and the digest of the data."""
    started = next(iter(run.of("started")), {})
    values = {name: value for name, value in run.metadata.items() if name not in ("command", "data")}
    values |= {name: started[name] for name in ("device", "precision") if name in started}
    if digest := run.metadata.get("data"):
        values["data digest"] = digest
    return section("Environment", card(facts(values))) if values else ""

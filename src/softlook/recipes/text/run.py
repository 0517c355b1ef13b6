"""A training run from config to scores, and the evaluation of a trained run."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softlook.base.device import choose_device
from softlook.blocks.lora import merge_lora
from softlook.blocks.scaled_linear import fold_scaled_layers
from softlook.recipes.config.resolve import (
    ConfigLike,
    as_overrides,
    resolve_config,
)
from softlook.recipes.config.schema import Files, ImageConfig
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.inference.pipeline import Pipeline, load_pipeline
from softlook.recipes.loggers.async_logger import open_loggers, select_loggers
from softlook.recipes.profiling.threads import use_threads
from softlook.recipes.run_dir.layout import (
    EvaluationCallback,
    RunWriter,
    load_run_config,
    load_scores,
    run_dir_path,
)
from softlook.recipes.run_dir.report.data import COMPARED, ON
from softlook.recipes.run_dir.report.formatting import format_table
from softlook.recipes.tasks import text_task
from softlook.recipes.text.prepare import AnyTask, PreparedRun, join_run, load_data, start_run
from softlook.recipes.text.pretrained import export_adapters, load_auto
from softlook.recipes.text.task import TrainResult
from softlook.train.checkpoint.run_dir import RunDir
from softlook.train.distributed.world import World, process_group
from softlook.train.events import Callback, EventLog, Finished, read_scores
from softlook.train.progress import progress_bar
from softlook.train.schedule import RunClock
from softlook.train.trainer import fit
from softlook.weights.assets import special_tokens_of

log = logging.getLogger("softlook.recipes")
PREPARATION_SHARE, DEFAULT_SECONDS = 0.15, 600.0
"""Share of a time limit for fitting what is not trained by gradient descent; the time without a limit."""
FINAL_SECONDS = 1.5
"""Seconds for reports and loggers after a run."""


def run_task(
    task: AnyTask,
    config: ConfigLike[Any],
    callbacks: Sequence[Callback] = (),
    *,
    started_at: float | None = None,
    progress: bool = True,
) -> TrainResult:
    """Train, or resume, a run. Rank zero prepares it; the other ranks load what it wrote.

    `started_at`, a time of `time.monotonic`, is when `training.max_minutes` began; default: now. In a terminal or a
    notebook, `progress` shows a progress bar.
    """
    clock = RunClock() if started_at is None else RunClock(started_at)
    overrides = as_overrides(config)
    corpus, folder = load_data(task, overrides), RunDir(run_dir_path(task.config.task, overrides))
    training = resolve_config(overrides, {}).config.training
    group = process_group(
        choose_device(training.device),
        is_sharded=training.parallel == "fsdp",
        heartbeat_timeout=training.heartbeat_timeout,
    )
    with group as world, folder.lock():
        run = start_run(task, overrides, corpus, folder) if world.is_rank_zero else None
        world.barrier()
        run = run or join_run(task, overrides, corpus, folder)
        with use_threads(run.threads), progress_bar(progress and world.is_rank_zero) as shown:
            return train_and_test(task, folder, run, [*callbacks, *shown], world, clock)


def train_and_test(
    task: AnyTask, folder: RunDir, run: PreparedRun, callbacks: Sequence[Callback], world: World, clock: RunClock
) -> TrainResult:
    """Train, then test the best model. The loggers are closed however the run ends."""
    config, plan = run.resolved.config, run.plan
    has_final_validation = plan.validate is not None or config.eval_fraction < 1
    clock.final_evaluations = 1 + (has_final_validation + plan.test_cost) / config.eval_fraction
    clock.final_seconds = FINAL_SECONDS
    seconds = PREPARATION_SHARE * (config.training.time_limit or DEFAULT_SECONDS)
    plan.initialize(plan.model, seconds)
    baselines = [] if config.no_baseline or not world.is_rank_zero else plan.baselines(seconds)
    names = select_loggers(config.loggers) if world.is_rank_zero else ()
    with open_loggers(names, folder.path, run.resolved.rows()) as loggers:
        writer = RunWriter(folder.path, run.resolved.rows())
        own = [EventLog(folder.events), writer, loggers, *callbacks] if world.is_rank_zero else []
        evaluation = EvaluationCallback(
            partial(plan.evaluate, share=config.eval_fraction), plan.sample, own, plan.attention, clock
        )
        progress = fit(
            plan.model,
            plan.batches,
            plan.objective,
            evaluate=evaluation.evaluate,
            training=config.training,
            optim=config.optim,
            run_dir=folder.path,
            tokenizer=folder.tokenizer,
            callbacks=[evaluation],
            clock=clock,
            uninformed_loss=plan.uninformed_loss,
            progress=False,  # `run_task` shows it
        )
        if not world.is_sharded:
            fold_scaled_layers(plan.model)
            if world.is_rank_zero:
                export_adapters(plan.model, folder.path, config.init_from)
            merge_lora(plan.model)
        finished = evaluation.finished or Finished(progress.step, "finished on rank zero", progress.seconds)
        scores = load_scores(folder.path) | read_scores(folder.events, progress.best_step)
        if world.is_rank_zero and finished.complete:
            device = choose_device(config.training.device)
            model = load_auto(folder.path).to(device) if world.is_sharded else plan.model
            scores |= final_scores(task, folder, run, model)
            if baselines:
                scores |= compare(scores, baselines)
            plan.finalize(folder.path, model)
            writer.finish(scores)
            loggers.scores = scores
        return TrainResult(folder.path, plan.model, run.tokenizer, progress, finished, scores, run.resolved)


@torch.no_grad()
def final_scores(task: AnyTask, folder: RunDir, run: PreparedRun, model: nn.Module) -> dict[str, Any]:
    """Scores of the trained model on all validation data, and on the test data if there are some."""
    config, plan, tokenizer = run.resolved.config, run.plan, run.tokenizer
    scores: dict[str, Any] = {}
    if plan.validate is not None:
        scores = plan.validate(model)
    elif config.eval_fraction < 1:
        scores = {**plan.evaluate(model)}
    if config.test:
        pipeline = Pipeline(
            folder.path.name,
            model,
            tokenizer,
            special_tokens_of(tokenizer, {}, model),
            plan.labels,
            choose_device(config.training.device),
            is_run=True,
            max_length=config.batch.max_length,
        )
        scores["test"] = task.evaluate(config, config.test, pipeline)
    return scores


def compare(scores: Mapping[str, Any], baselines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The baselines beside the model, as scores of a report, with a warning if the model is no better."""
    measured = {**scores, **scores.get("validation", {})}
    names = [name for name in baselines[0] if name in measured]
    rows = [{"model": "softlook", **{name: measured[name] for name in names}}]
    rows += [{"model": row["model"], **{name: row[name] for name in names if name in row}} for row in baselines]
    log.info("\n".join(["Scores on the validation data:", *format_table(rows)]))
    if "loss" in names:
        better = [row["model"] for row in baselines if row["loss"] < measured["loss"]]
    else:
        better = [row["model"] for row in baselines if row["bleu"] > measured["bleu"]]
    if better:
        log.warning(
            f"The model is no better than a baseline: {', '.join(better)}. Give it more time (--max-minutes), "
            "more data, or a lower learning rate (--lr); check columns and labels with `softlook check`."
        )
    return {COMPARED: rows, ON: "validation data"}


def evaluate(run: Path, data: Files, *, device: str = "auto") -> dict[str, Any]:
    """Scores of a run's best checkpoint on `data`: BLEU and chrF, perplexity and bits per byte, accuracy, RMSE."""
    config = load_run_config(run)
    if isinstance(config, TabularConfig):
        return import_module("softlook.recipes.tabular.predict").evaluate_table(run, data, device=device)
    if isinstance(config, ImageConfig):
        return import_module("softlook.recipes.images.predict").evaluate_images(run, data, device=device)
    with torch.no_grad():
        return text_task(config.task).evaluate(config, data, load_pipeline(run, device=device))

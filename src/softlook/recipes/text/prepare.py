"""Preparation of a training run: data, config, sizes, tokenizer, plan and measurements."""

import logging
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from softlook.base.device import check_trainable, choose_device
from softlook.data.split import SPLIT_VERSION
from softlook.recipes.config.autosize import epochs_to_steps, max_training_tokens, measure_budget, plan_schedule
from softlook.recipes.config.resolve import (
    ConfigOverrides,
    ResolvedConfig,
    resolve_config,
    unflatten,
    with_inferred,
)
from softlook.recipes.config.schema import ModelConfig
from softlook.recipes.loggers.async_logger import select_loggers
from softlook.recipes.profiling.step_benchmark import (
    MemoryEstimate,
    measure_threads,
    profile_text_step,
    size_in_memory,
)
from softlook.recipes.profiling.threads import use_threads
from softlook.recipes.run_dir.layout import (
    LABELS_FILE,
    SETTINGS_FILE,
    fixed_values,
    load_previous_values,
    run_dir_path,
    write_settings,
)
from softlook.recipes.run_dir.report import write_data_summary
from softlook.recipes.text.corpus import DISK_THRESHOLD, Corpus, CorpusSplit, count_examples
from softlook.recipes.text.pretrained import check_lora
from softlook.recipes.text.task import TextTask, TrainingPlan
from softlook.tokens import TextTokenizer
from softlook.train.checkpoint.run_dir import RunDir, write_json
from softlook.train.distributed import is_rank_zero
from softlook.train.rng import preserve_rng_states
from softlook.weights import read_tokenizer
from softlook.weights.atomic_folder import atomic_write_text
from softlook.weights.manifest import read_checksummed

log = logging.getLogger("softlook.recipes")
AnyTask = TextTask[Any, Any]
AnyOverrides = ConfigOverrides[Any]
PRETRAINED_FIELDS = (
    "tokenizer.type",
    "tokenizer.vocab_size",
    "tokenizer.lowercase",
    "model.dim",
    "model.depth",
    "model.heads",
    "pooling",
)
"""Fields that pretrained weights determine."""
EVALUATION_SHARE, MIN_EVAL_FRACTION = 0.007, 0.02
"""Share of a time limit that one of about ten evaluations may take; the least share of the validation data."""


@dataclass(frozen=True)
class PreparedRun:
    """Everything that is known about a run before it starts."""

    resolved: ResolvedConfig[Any]
    tokenizer: TextTokenizer
    plan: TrainingPlan
    seconds_per_step: float | None = None
    """None if a run is resumed and nothing was measured."""
    memory: MemoryEstimate | None = None
    threads: int | None = None
    """CPU threads; None: torch's default."""

    def measurements(self) -> dict[str, Any]:
        """What was measured, as JSON types."""
        memory = self.memory and self.memory.to_json()
        return {"seconds_per_step": self.seconds_per_step, "memory": memory, "threads": self.threads}


def dry_run(task: AnyTask, overrides: AnyOverrides) -> PreparedRun:
    """Prepare a run without starting it."""
    folder = RunDir(run_dir_path(task.config.task, overrides))
    return prepare_run(task, overrides, load_data(task, overrides), folder)


def load_data(task: AnyTask, overrides: AnyOverrides) -> Corpus[Any]:
    """Check the config, read the data and log what was found."""
    config = resolve_config(overrides, {}).config
    choose_device(config.training.device)
    if is_rank_zero():
        select_loggers(config.loggers)
    check_lora(overrides)
    corpus = task.load_corpus(overrides)
    train, valid = corpus.counts
    if config.test:  # an error in the test data is raised before training, not after
        test = task.read(overrides, config.test, **corpus.train.examples.inferred)
        corpus = replace(corpus, test_count=count_examples(CorpusSplit(test))[0])
    for message in (*corpus.messages, f"{train:,} training examples, {valid:,} validation examples."):
        log.info(message[0].upper() + message[1:])
    return corpus


def prepare_run(
    task: AnyTask,
    overrides: AnyOverrides,
    corpus: Corpus[Any],
    folder: RunDir | None = None,
    *,
    sample: Corpus[Any] | None = None,
) -> PreparedRun:
    """Resolve every value, build the plan and measure a few steps.

    The automatic values and the tokenizer of an existing run in `folder` are kept. With a `sample` of the corpus, the
    tokenizer and the batches are built from it alone: a quick estimate for a large corpus.
    """
    overrides = with_inferred(overrides, (sample or corpus).train.examples.inferred)
    previous = None if folder is None else load_previous_values(folder, overrides)
    device, given = choose_device(overrides.get("training.device")), sample or corpus
    budget = measure_budget(device, overrides.get("training.max_minutes"), overrides.get("training.precision"))
    fixed = previous or {}
    auto = task.autosize(corpus.characters, overrides, budget)
    if overrides.get("init_from"):
        auto.values = {name: value for name, value in auto.values.items() if name not in PRETRAINED_FIELDS}
    resolved = resolve_config(overrides, auto.values | fixed)
    if not overrides.get("init_from"):
        check_trainable(_min_parameters(getattr(resolved.config, "model", ModelConfig())), device)
    torch.manual_seed(resolved.config.training.seed)
    if folder is not None and folder.exists():
        tokenizer = TextTokenizer(read_tokenizer(folder.tokenizer))
    else:
        tokenizer = task.build_tokenizer(given, resolved.config)
    plan = task.build_plan(given, resolved.config, tokenizer, device)
    precision = resolved.config.training.precision
    threads = measure_threads(plan.model, plan.batches, plan.objective, device, precision)
    if previous is not None:
        return PreparedRun(_with_epochs(resolved, overrides, plan), tokenizer, plan, threads=threads)
    scale = corpus.characters / max(given.characters, 1) if sample else 1.0
    with use_threads(threads):
        seconds, memory = profile_text_step(plan.model, plan.batches, plan.objective, device, precision)
    epoch_tokens = scale * plan.epoch_tokens
    tokens = scale * plan.total_tokens if plan.total_tokens else max_training_tokens(epoch_tokens, device)
    schedule = plan_schedule(seconds, tokens, plan.batch_tokens, budget, overrides.values, epoch_tokens)
    with use_threads(threads):
        schedule.values["eval_fraction"] = select_eval_fraction(
            plan, schedule.values.get("training.max_minutes"), device
        )
    resolved = resolve_config(overrides, auto.values | plan.values | schedule.values)
    size = round(scale * size_in_memory([plan.batches])) + size_in_memory([plan.evaluate, plan.sample])
    memory = replace(memory, **{"data_on_disk" if corpus.characters > DISK_THRESHOLD else "data": size})
    memory = replace(memory, ema=memory.weights if resolved.config.training.ema_decay > 0 else 0)
    if folder is not None:
        messages = (*auto.messages, *schedule.messages, *plan.messages)
        log.info("\n".join((*messages, f"{describe_parameters(plan.model)}; memory: {memory}.", *resolved.lines())))
    return PreparedRun(resolved, tokenizer, plan, seconds, memory, threads)


def _with_epochs(resolved: ResolvedConfig[Any], overrides: AnyOverrides, plan: TrainingPlan) -> ResolvedConfig[Any]:
    """The config of a resumed run, with `epochs` as a number of steps if it was given."""
    epochs, steps = overrides.values.get("epochs"), overrides.values.get("training.max_steps")
    if epochs is None or steps is not None:
        return resolved
    steps = epochs_to_steps(epochs, plan.epoch_tokens, plan.batch_tokens)
    training = resolved.config.training.model_copy(update={"max_steps": steps})
    return replace(resolved, config=resolved.config.model_copy(update={"training": training}))


def select_eval_fraction(plan: TrainingPlan, minutes: float | None, device: torch.device) -> float:
    """Share of the validation data for evaluations during training: each takes at most 0.7 % of a time limit."""
    if minutes is None:
        return plan.eval_share
    model, share = plan.model.to(device).eval(), 1 / 64
    with torch.no_grad(), preserve_rng_states(device):
        plan.evaluate(model, share)  # the first forward pass of a GPU loads its kernels
        while True:
            began = time.monotonic()
            plan.evaluate(model, share)
            seconds, allowed = time.monotonic() - began, 60 * minutes * EVALUATION_SHARE
            if share == 1 or seconds > allowed / 8:
                return float(f"{min(1.0, max(share * allowed / seconds, MIN_EVAL_FRACTION)):.2g}")
            share = min(8 * share, 1.0)


def _min_parameters(model: ModelConfig) -> int:
    """A lower bound on the parameters of attention and feed-forward layers of these dimensions."""
    dim, hidden = model.dim or 1, model.hidden or model.dim or 1
    return (model.depth or 1) * (4 * dim * dim + 2 * dim * hidden)


def describe_parameters(model: nn.Module) -> str:
    """The number of parameters, and how many of them are trained."""
    count = sum(parameter.numel() for parameter in model.parameters())
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return f"{count:,} parameters" if trainable == count else f"LoRA: {trainable:,} of {count:,} parameters are trained"


def start_run(task: AnyTask, overrides: AnyOverrides, corpus: Corpus[Any], folder: RunDir) -> PreparedRun:
    """Prepare a run and write its tokenizer, labels and settings to the run directory."""
    run = prepare_run(task, overrides, corpus, folder)
    # A run of an earlier version has another validation split: it must not resume with this one.
    split = {} if corpus.train.split is None else {"validation_split": SPLIT_VERSION}
    settings = {"task": task.config.task, **split, **unflatten(fixed_values(run.resolved))}
    is_resumed = folder.open(settings, corpus.digest)
    if not folder.tokenizer.exists():
        atomic_write_text(folder.tokenizer, run.tokenizer.tokenizer.to_str(pretty=True))
    if run.plan.labels:
        write_json(folder.path / LABELS_FILE, {"labels": run.plan.labels})
    write_data_summary(folder.path, corpus.summary(), run.plan.label_counts)
    write_settings(folder, task.config.task, run.resolved)  # last: it contains digests of the others
    log.info(f"{'Resuming' if is_resumed else 'Starting'} {folder.path}")
    return run


def join_run(task: AnyTask, overrides: AnyOverrides, corpus: Corpus[Any], folder: RunDir) -> PreparedRun:
    """Load the run that rank zero has prepared."""
    settings = read_checksummed(folder.path / SETTINGS_FILE)
    config = overrides.schema.model_validate(unflatten(settings["values"]))
    tokenizer = TextTokenizer(read_tokenizer(folder.tokenizer))
    torch.manual_seed(config.training.seed)
    plan = task.build_plan(corpus, config, tokenizer, choose_device(overrides.get("training.device")))
    return PreparedRun(ResolvedConfig(config, settings["origins"]), tokenizer, plan)

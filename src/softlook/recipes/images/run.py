"""Training runs on images: `softlook train images --data FOLDER`."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softlook.base.activity import report_activity
from softlook.base.device import choose_device
from softlook.models import ViT
from softlook.recipes.config.autosize import epochs_to_steps, max_training_tokens, measure_budget, plan_schedule
from softlook.recipes.config.resolve import (
    ConfigLike,
    ConfigOverrides,
    ResolvedConfig,
    as_overrides,
    resolve_config,
    unflatten,
)
from softlook.recipes.config.schema import ImageConfig
from softlook.recipes.images import plan
from softlook.recipes.images.batches import ImageBatches
from softlook.recipes.images.files import describe_images, read_labeled_images
from softlook.recipes.images.predict import save_attention
from softlook.recipes.images.pretrained import check_sizes, load_vit
from softlook.recipes.loggers.async_logger import open_loggers, select_loggers
from softlook.recipes.profiling.step_benchmark import MemoryEstimate, measure_threads, profile_text_step
from softlook.recipes.profiling.threads import use_threads
from softlook.recipes.run_dir.layout import (
    LABELS_FILE,
    EvaluationCallback,
    RunWriter,
    fixed_values,
    load_previous_values,
    load_scores,
    run_dir_path,
    write_settings,
)
from softlook.recipes.run_dir.report import write_data_summary
from softlook.recipes.run_dir.run_result import RunResult
from softlook.recipes.text.prepare import describe_parameters
from softlook.recipes.text.run import FINAL_SECONDS, compare
from softlook.train.checkpoint.run_dir import RunDir, write_json
from softlook.train.events import Callback, EventLog, Finished, read_scores
from softlook.train.progress import progress_bar
from softlook.train.schedule import RunClock
from softlook.train.trainer import fit

log = logging.getLogger("softlook.recipes")


@dataclass(frozen=True)
class PreparedImageRun:
    """Everything that is known about a run before it starts."""

    resolved: ResolvedConfig[ImageConfig]
    model: nn.Module
    batches: ImageBatches
    train: plan.ImageSet
    valid: plan.ImageSet
    test: plan.ImageSet | None
    classes: list[str]
    digest: str
    """Of all image files."""
    seconds_per_step: float | None = None
    """None if a run is resumed."""
    memory: MemoryEstimate | None = None
    threads: int | None = None
    """CPU threads; None: torch's default."""

    def measurements(self) -> dict[str, Any]:
        """What was measured, as JSON types."""
        memory = self.memory and self.memory.to_json()
        return {"seconds_per_step": self.seconds_per_step, "memory": memory, "threads": self.threads}


@dataclass(frozen=True, repr=False)
class ImageTrainResult(RunResult):
    """The result of a run."""

    run_dir: Path
    model: nn.Module
    finished: Finished
    scores: dict[str, Any]
    """Of the best checkpoint: on validation images and, if given, on test images."""
    resolved: ResolvedConfig[ImageConfig]


def train_images(
    config: ConfigLike[ImageConfig],
    callbacks: Sequence[Callback] = (),
    *,
    progress: bool = True,
    started_at: float | None = None,
) -> ImageTrainResult:
    """Train an image classifier: `softlook train images --data photos`, a folder with a folder for each class.

    >>> from PIL import Image
    >>> from softlook.recipes.config.schema import ImageModelConfig
    >>> from softlook.train import TrainingConfig
    >>> for number in range(40):
    ...     path = Path("squares", ("dark", "light")[number % 2], f"{number}.png")
    ...     path.parent.mkdir(parents=True, exist_ok=True)
    ...     Image.new("L", (8, 8), color=number + 150 * (number % 2)).save(path)
    >>> small, short = ImageModelConfig(dim=8, depth=1, heads=2), TrainingConfig(max_steps=2)
    >>> result = train_images(ImageConfig(data=(Path("squares"),), model=small, training=short))
    >>> sorted(result.scores["validation"])[:3]
    ['accuracy', 'calibration', 'classes']
    """
    clock = RunClock() if started_at is None else RunClock(started_at)
    overrides = as_overrides(config)
    folder = RunDir(run_dir_path(ImageConfig.task, overrides))
    with folder.lock(), progress_bar(progress) as shown:
        run = prepare_run(overrides, folder)
        start_run(run, folder)
        with use_threads(run.threads):
            return train_and_test(run, folder, [*callbacks, *shown], clock)


def dry_run(overrides: ConfigOverrides[ImageConfig]) -> PreparedImageRun:
    """Prepare a run without starting it."""
    return prepare_run(overrides, RunDir(run_dir_path(ImageConfig.task, overrides)))


def prepare_run(overrides: ConfigOverrides[ImageConfig], folder: RunDir) -> PreparedImageRun:
    """Read the images, resolve every value, build the model and measure a few steps."""
    config = resolve_config(overrides, {}).config
    device = choose_device(config.training.device)
    select_loggers(config.loggers)
    report_activity("reading the images")
    files = plan.find_files(config)
    pretrained = _load_pretrained(overrides)
    if pretrained is None:
        automatic = plan.auto_values(config, files, device)
    else:
        automatic = plan.auto_fine_tuning(config, pretrained)
    previous = load_previous_values(folder, overrides)
    resolved = resolve_config(overrides, automatic | (previous or {}))
    run = build_run(resolved, files, pretrained)
    counts = f"{len(run.train.labels):,} training images, {len(run.valid.labels):,} validation images"
    log.info("\n".join([*(note[0].upper() + note[1:] + "." for note in files.train.notes), f"{counts}."]))
    precision = config.training.precision
    threads = measure_threads(run.model, run.batches, plan.objective, device, precision)
    if previous is not None:
        return replace(run, resolved=_with_epochs(run, overrides), threads=threads)
    with use_threads(threads):
        seconds, memory = profile_text_step(run.model, run.batches, plan.objective, device, precision)
    size, count = run.batches.batch_size, len(run.train.labels)
    budget = measure_budget(device, config.training.max_minutes, precision)
    total = max_training_tokens(count, device) if pretrained is None else plan.FINE_TUNING_EPOCHS * count
    schedule = plan_schedule(seconds, total, size, budget, overrides.values, count)
    resolved = resolve_config(overrides, automatic | schedule.values)
    log.info("\n".join((*schedule.messages, f"{describe_parameters(run.model)}; memory: {memory}.", *resolved.lines())))
    return replace(run, resolved=resolved, seconds_per_step=seconds, memory=memory, threads=threads)


def _load_pretrained(overrides: ConfigOverrides[ImageConfig]) -> ViT | None:
    init_from = overrides.get("init_from")
    if init_from is None:
        return None
    check_sizes(overrides)
    log.info(f"Fine-tuning {init_from}: a few epochs at a low learning rate.")
    return load_vit(init_from)


def build_run(
    resolved: ResolvedConfig[ImageConfig], files: plan.ImageFiles, pretrained: ViT | None
) -> PreparedImageRun:
    """Load the pixels and build the model."""
    config, size = resolved.config, resolved.config.model.image_size or 1
    channels = describe_images(files.train.paths)[1] if pretrained is None else pretrained.config.channels
    train, valid = (plan.load_images(one, files.classes, size, channels) for one in (files.train, files.valid))
    test = None
    if config.test:
        found = read_labeled_images(config.test, image=config.image, label=config.label)
        test = plan.load_images(found, files.classes, size, channels)
    torch.manual_seed(config.training.seed)
    model = plan.build_model(config, channels, len(files.classes), pretrained)
    batch_size, seed = config.batch_size or 1, config.training.seed
    batches = ImageBatches(train.images, train.labels, config.augment, batch_size=batch_size, seed=seed)
    return PreparedImageRun(resolved, model, batches, train, valid, test, files.classes, files.digest)


def _with_epochs(run: PreparedImageRun, overrides: ConfigOverrides[ImageConfig]) -> ResolvedConfig[ImageConfig]:
    """The config of a resumed run, with `epochs` as a number of steps if it was given."""
    epochs, steps = overrides.values.get("epochs"), overrides.values.get("training.max_steps")
    if epochs is None or steps is not None:
        return run.resolved
    steps = epochs_to_steps(epochs, len(run.train.labels), run.batches.batch_size)
    return resolve_config(overrides, {**run.resolved.values(), "training.max_steps": steps})


def start_run(run: PreparedImageRun, folder: RunDir) -> None:
    """Write labels and settings to the run directory."""
    settings = {"task": ImageConfig.task, **unflatten(fixed_values(run.resolved))}
    is_resumed = folder.open(settings, run.digest)
    write_json(folder.path / LABELS_FILE, {"labels": run.classes})
    sizes = {"training": len(run.train.labels), "validation": len(run.valid.labels)}
    write_data_summary(folder.path, {name: {"examples": size} for name, size in sizes.items()})
    write_settings(folder, ImageConfig.task, run.resolved)  # last: it contains digests of the others
    log.info(f"{'Resuming' if is_resumed else 'Starting'} {folder.path}")


def train_and_test(
    run: PreparedImageRun, folder: RunDir, callbacks: Sequence[Callback], clock: RunClock
) -> ImageTrainResult:
    """Train, then score the best model."""
    config = run.resolved.config
    clock.final_evaluations, clock.final_seconds = 2, FINAL_SECONDS
    rows = [] if config.no_baseline else plan.baselines(run.train, run.valid, len(run.classes))
    with open_loggers(select_loggers(config.loggers), folder.path, run.resolved.rows()) as loggers:
        writer = RunWriter(folder.path, run.resolved.rows())
        own: list[Callback] = [EventLog(folder.events), writer, loggers, *callbacks]
        evaluation = EvaluationCallback(partial(plan.evaluate, run.valid), lambda model: [], own)
        progress = fit(
            run.model,
            run.batches,
            plan.objective,
            evaluate=evaluation.evaluate,
            training=config.training,
            optim=config.optim,
            run_dir=folder.path,
            callbacks=[evaluation],
            clock=clock,
            progress=False,  # `train_images` shows it
        )
        finished = evaluation.finished or Finished(progress.step, "finished", progress.seconds)
        scores = load_scores(folder.path) | read_scores(folder.events, progress.best_step)
        if finished.complete:
            scores |= final_scores(run)
            scores |= compare(scores, rows) if rows else {}
            save_attention(folder.path / "attention.svg", run.model, run.valid.images[:4], run.classes)
            writer.finish(scores)
            loggers.scores = scores
    return ImageTrainResult(folder.path, run.model, finished, scores, run.resolved)


def final_scores(run: PreparedImageRun) -> dict[str, Any]:
    """Scores in detail on the test images, or else on the validation images."""
    run.model.eval()
    name, data = ("validation", run.valid) if run.test is None else ("test", run.test)
    return {name: plan.report(data, run.classes, run.model)}

"""Task registry: configs, training and dry runs by task name."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from softlook.recipes.config.resolve import ConfigOverrides
from softlook.recipes.config.schema import (
    CausalLMConfig,
    ClassificationConfig,
    ImageConfig,
    MaskedLMConfig,
    RunConfig,
    TaggingConfig,
    TranslationConfig,
    Word2VecConfig,
)
from softlook.recipes.config.tabular_schema import TabularConfig

if TYPE_CHECKING:
    from softlook.recipes.images.run import ImageTrainResult, PreparedImageRun
    from softlook.recipes.tabular.dry_run import TableRunEstimate
    from softlook.recipes.tabular.run import TableTrainResult
    from softlook.recipes.text.prepare import PreparedRun
    from softlook.recipes.text.task import TextTask, TrainResult
    from softlook.train.events import Callback

REGISTRY: dict[type[RunConfig], str] = {
    TranslationConfig: "softlook.recipes.text.translation:TranslationTask",
    CausalLMConfig: "softlook.recipes.text.causal_lm:CausalLMTask",
    MaskedLMConfig: "softlook.recipes.text.masked_lm:MaskedLMTask",
    ClassificationConfig: "softlook.recipes.text.classification:ClassificationTask",
    TaggingConfig: "softlook.recipes.text.tagging:TaggingTask",
    Word2VecConfig: "softlook.recipes.text.word2vec:Word2VecTask",
    ImageConfig: "softlook.recipes.images.run",
    TabularConfig: "softlook.recipes.tabular.run",
}
"""Every task: its config, which holds its name and help, and where its implementation is. Nothing is imported yet."""
TASKS: dict[str, type[RunConfig]] = {config.task: config for config in REGISTRY}


def train(
    task: str,
    overrides: ConfigOverrides[Any],
    callbacks: "Sequence[Callback]" = (),
    *,
    progress: bool = True,
    started_at: float | None = None,
) -> "TrainResult | TableTrainResult | ImageTrainResult":
    """Train a task's model, or resume its run.

    `started_at`, a time of `time.monotonic`, is when the time limit of a text run began; default: now.
    """
    if TASKS[task] is TabularConfig:
        return _module(TabularConfig).train_table(overrides, callbacks, progress=progress)
    if TASKS[task] is ImageConfig:
        return _module(ImageConfig).train_images(overrides, callbacks, progress=progress, started_at=started_at)
    run_task = import_module("softlook.recipes.text.run").run_task
    return run_task(text_task(task), overrides, callbacks, progress=progress, started_at=started_at)


def dry_run(task: str, overrides: ConfigOverrides[Any]) -> "PreparedRun | TableRunEstimate | PreparedImageRun":
    """Resolve every value and measure a few steps, without starting a run."""
    if TASKS[task] in (TabularConfig, ImageConfig):
        return _module(TASKS[task]).dry_run(overrides)
    return import_module("softlook.recipes.text.prepare").dry_run(text_task(task), overrides)


def text_task(task: str) -> "TextTask[Any, Any]":
    """The implementation of a text task."""
    module, name = REGISTRY[TASKS[task]].split(":")
    return getattr(import_module(module), name)()


def _module(config: type[RunConfig]) -> Any:
    """The module of a task that needs optional packages: tables and images."""
    return import_module(REGISTRY[config])

"""Preparing a run: resolved config, tokenizer, plan, step time and memory."""

from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import nn

from softlook.base.device import check_trainable, choose_device
from softlook.data.examples import Example
from softlook.recipes.config.autosize import max_training_tokens, measure_budget, plan_schedule
from softlook.recipes.config.resolve import ConfigOverrides, ResolvedConfig, TextConfigT, resolve_config
from softlook.recipes.config.schema import ModelConfig
from softlook.recipes.profiling.memory import MemoryEstimate, estimate_memory, size_in_memory
from softlook.recipes.profiling.step_benchmark import profile_text_step
from softlook.recipes.run_dir.layout import PreviousRun
from softlook.recipes.text.corpus import Corpus
from softlook.recipes.text.task import TextTask, TrainingPlan
from softlook.recipes.text.token_cache import DISK_THRESHOLD
from softlook.tokens import TextTokenizer

PRETRAINED_FIELDS = (
    "tokenizer.type",
    "tokenizer.vocab_size",
    "model.dim",
    "model.depth",
    "model.heads",
    "pooling",
)
"""Fields that pretrained weights determine."""


@dataclass(frozen=True)
class PreparedRun(Generic[TextConfigT]):
    """Everything that is known about a run before it starts."""

    resolved: ResolvedConfig[TextConfigT]
    tokenizer: TextTokenizer
    plan: TrainingPlan
    messages: list[str]
    seconds_per_step: float | None = None
    """None if a run is resumed and nothing was measured."""
    memory: MemoryEstimate | None = None

    def measurements(self) -> dict[str, Any]:
        """What was measured, as JSON types."""
        return {"seconds_per_step": self.seconds_per_step, "memory": self.memory and self.memory.to_json()}


def prepare_run(
    task: TextTask[TextConfigT, Example],
    overrides: ConfigOverrides[TextConfigT],
    corpus: Corpus[Example],
    *,
    sample: Corpus[Example] | None = None,
    previous: PreviousRun | None = None,
    tokenizer: TextTokenizer | None = None,
) -> PreparedRun[TextConfigT]:
    """Resolve every value, build the plan and measure a few steps. The automatic values of a `previous` run stay.

    With a `sample` of the corpus, the tokenizer and the batches are built from it alone: a quick estimate for a large
    corpus.
    """
    device = choose_device(overrides.get("training.device"))
    budget = measure_budget(device, overrides.get("training.max_minutes"), overrides.get("training.precision"))
    fixed = {} if previous is None else previous.values
    auto = task.autosize(corpus, overrides, budget)
    if overrides.get("init_from"):
        auto.values = {name: value for name, value in auto.values.items() if name not in PRETRAINED_FIELDS}
    resolved = resolve_config(overrides, auto.values | fixed)
    if not overrides.get("init_from"):
        check_trainable(_min_parameters(getattr(resolved.config, "model", ModelConfig())), device)
    torch.manual_seed(resolved.config.training.seed)
    tokenizer = tokenizer or task.build_tokenizer(sample or corpus, resolved.config)
    plan = task.build_plan(sample or corpus, resolved.config, tokenizer, device)
    if previous is not None and not previous.needs_schedule:
        return PreparedRun(resolved, tokenizer, plan, auto.messages + plan.messages)
    scale = 1.0 if sample is None else corpus.characters / max(sample.characters, 1)
    profile = profile_text_step(plan.model, plan.batches, plan.objective, device, resolved.config.training.precision)
    total_tokens = (
        scale * plan.total_tokens if plan.total_tokens else max_training_tokens(scale * plan.epoch_tokens, device)
    )
    schedule = plan_schedule(profile.seconds, total_tokens, plan.batch_tokens, budget, overrides.values)
    resolved = resolve_config(overrides, auto.values | schedule.values | fixed)
    memory = estimate_memory(
        profile,
        round(scale * size_in_memory([plan.batches])) + size_in_memory([plan.evaluate, plan.sample]),
        has_ema=resolved.config.training.ema_decay > 0,
        is_on_disk=corpus.characters > DISK_THRESHOLD,
    )
    size = f"{describe_parameters(plan.model)}; memory: {memory}."
    messages = [*auto.messages, *schedule.messages, *plan.messages, size]
    return PreparedRun(resolved, tokenizer, plan, messages, profile.seconds, memory)


def _min_parameters(model: ModelConfig) -> int:
    """A lower bound on the parameters of attention and feed-forward layers of these dimensions."""
    dim, hidden = model.dim or 1, model.hidden or model.dim or 1
    return (model.depth or 1) * (4 * dim * dim + 2 * dim * hidden)


def describe_parameters(model: nn.Module) -> str:
    """The number of parameters, and how many of them are trained."""
    count = sum(parameter.numel() for parameter in model.parameters())
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if trainable == count:
        return f"{count:,} parameters"
    return f"LoRA: {trainable:,} of {count:,} parameters are trained"

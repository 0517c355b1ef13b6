"""Training and optimizer configuration.

One closed schema: the same names in Python, on the command line and in a config file.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Precision = Literal["auto", "float32", "bfloat16", "float16"]
Parallel = Literal["ddp", "fsdp"]
OptimizerName = Literal["adamw", "muon"]
ScheduleName = Literal["inverse_sqrt", "cosine", "constant", "wsd"]
HEARTBEAT_TIMEOUT = 30.0
"""Seconds."""
DEFAULT_STEPS, DEFAULT_INTERVAL = 4000, 500
"""Steps of a run without limits, and between its evaluations and checkpoints."""


class BaseConfig(BaseModel):
    """Base of all configs: frozen, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*")
    @classmethod
    def _fits_64_bits(cls, value: Any) -> Any:
        """Reject integers that neither torch nor a checkpoint can hold."""
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"expected an integer of 64 bits, got one of {value.bit_length()} bits")
        return value


class OptimizerConfig(BaseConfig):
    """The optimizer and its learning-rate schedule."""

    optimizer: OptimizerName = Field(
        default="adamw", description="adamw, or muon: orthogonalized momentum for the matrices of the blocks"
    )
    lr: float = Field(default=1e-3, gt=0, description="peak learning rate")
    schedule: ScheduleName = Field(default="inverse_sqrt", description="learning-rate schedule")
    warmup: int | float = Field(default=400, ge=0, description="steps of linear warmup; below 1, a share of the run")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's weight decay, on matrices only")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="AdamW's beta1")
    beta2: float = Field(default=0.98, ge=0, lt=1, description="AdamW's beta2")
    grad_clip: float = Field(default=1.0, gt=0, description="maximum gradient norm")


class TrainingConfig(BaseConfig):
    """Duration, precision, evaluation, checkpoints and logging of a run."""

    max_steps: int | None = Field(
        default=None, ge=1, description="optimizer steps; default: 4000, or as many as max_minutes allows"
    )
    max_minutes: float | None = Field(
        default=None,
        gt=0,
        description="time limit in minutes, set-up and final scores included; the learning rate decays until then",
    )
    gradient_accumulation_steps: int = Field(default=1, ge=1, description="batches accumulated per optimizer step")
    precision: Precision = Field(default="auto", description="compute dtype; auto: bfloat16 on a GPU")
    compile: bool | Literal["auto"] = Field(
        default="auto",
        description="compile the training step with torch.compile; auto: on a GPU, in long runs, for common shapes",
    )
    device: str = Field(default="auto", description="auto: cuda, then mps, then cpu")
    parallel: Parallel = Field(default="ddp", description="ddp: replicate the model; fsdp: shard it")
    seed: int = Field(default=0, ge=0, description="random seed")
    evaluate_every: int | None = Field(
        default=None, ge=1, description="steps between evaluations; default: 500, or by the clock with max_minutes"
    )
    save_every: int | None = Field(
        default=None, ge=1, description="steps between checkpoints; default: 500, or by the clock with max_minutes"
    )
    keep_checkpoints: int = Field(default=2, ge=1, description="newest checkpoints to keep besides the best one")
    patience: int | None = Field(default=None, ge=1, description="early stopping: evaluations without improvement")
    ema_decay: float = Field(default=0.0, ge=0, lt=1, description="EMA decay of the weights; 0: no EMA")
    prefetch: int = Field(default=2, ge=0, description="batches prepared in the background")
    log_every: int = Field(default=20, ge=1, description="steps between log lines")
    max_nonfinite_steps: int = Field(default=10, ge=0, description="consecutive NaN or infinite steps to skip")
    heartbeat_timeout: float = Field(
        default=HEARTBEAT_TIMEOUT, ge=0, description="seconds until a silent rank is given up; 0: never"
    )

    @property
    def step_limit(self) -> int | None:
        """The last step; None if only the time is limited."""
        return DEFAULT_STEPS if self.max_steps is None and self.max_minutes is None else self.max_steps

    @property
    def time_limit(self) -> float | None:
        """Seconds of the whole run."""
        return None if self.max_minutes is None else 60 * self.max_minutes

    def interval(self, name: Literal["evaluate_every", "save_every"]) -> int | None:
        """Steps between evaluations or checkpoints; None if they follow the clock."""
        given = getattr(self, name)
        return DEFAULT_INTERVAL if given is None and self.max_minutes is None else given


_MUTABLE = """
    max_steps max_minutes patience compile device parallel save_every keep_checkpoints log_every max_nonfinite_steps
    prefetch heartbeat_timeout
"""
MUTABLE_FIELDS = {*_MUTABLE.split()}
"""Fields of TrainingConfig that may change when a run resumes."""


def fixed_settings(training: TrainingConfig, optim: OptimizerConfig) -> dict[str, Any]:
    """The settings that must stay the same when a run resumes."""
    fixed = training.model_dump(mode="json", exclude=MUTABLE_FIELDS)
    newer = {"optimizer"} if optim.optimizer == "adamw" else set[str]()  # older runs have no such field
    return {"training": fixed, "optim": optim.model_dump(mode="json", exclude=newer)}

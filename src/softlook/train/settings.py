"""Every setting of a training run in one closed schema: the same names in Python, on the command line, in a file."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from softlook.train.schedule import ScheduleName

Precision = Literal["auto", "float32", "bfloat16", "float16"]


Parallel = Literal["ddp", "fsdp"]
SILENCE = 30.0
"""Seconds. Long enough for whatever may keep a process from saying that it lives."""


class Settings(BaseModel):
    """Closed: an unknown name is an error, not a guess."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*")
    @classmethod
    def _fits_64_bits(cls, value: Any) -> Any:
        """Python's integers have no end; those of torch and of the checkpoint do."""
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"expected an integer of 64 bits, got one of {value.bit_length()} bits")
        return value


class Optim(Settings):
    """How weights are changed."""

    lr: float = Field(default=1e-3, gt=0, description="learning rate at its peak")
    schedule: ScheduleName = Field(default="inverse_root", description="how the learning rate goes")
    warmup: int = Field(default=400, ge=0, description="steps until the peak")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's pull towards nought, on matrices only")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="memory of the gradient")
    beta2: float = Field(default=0.98, ge=0, lt=1, description="memory of its square")
    clip: float = Field(default=1.0, gt=0, description="longest gradient that is taken as it is")


class Training(Settings):
    """How long, how much at a time, and what is kept."""

    steps: int = Field(default=4000, ge=1, description="updates of the weights")
    minutes: float | None = Field(default=None, gt=0, description="stop after so long, whatever the step")
    accumulate: int = Field(default=1, ge=1, description="batches added up before each update")
    precision: Precision = Field(default="auto", description="numbers to compute with; auto: bfloat16 on a GPU")
    device: str = Field(default="auto", description="auto: cuda, then mps, then cpu")
    parallel: Parallel = Field(default="ddp", description="on several devices: ddp, a copy each; fsdp, a part each")
    seed: int = Field(default=0, ge=0, description="of everything that is left to chance")
    evaluate_every: int = Field(default=500, ge=1, description="steps between two looks at the held-out data")
    save_every: int = Field(default=500, ge=1, description="steps between two checkpoints")
    keep: int = Field(default=2, ge=1, description="checkpoints that are kept beside the best one")
    patience: int | None = Field(default=None, ge=1, description="stop after so many looks without a better one")
    average: float = Field(default=0.0, ge=0, lt=1, description="decay of a moving average of the weights; 0: none")
    ahead: int = Field(default=2, ge=0, description="batches made ready in the background")
    report_every: int = Field(default=20, ge=1, description="steps between two words about the loss")
    bad_steps: int = Field(default=10, ge=0, description="steps in a row that may give NaN or infinity and be skipped")
    silence: float = Field(
        default=SILENCE, ge=0, description="seconds without a sign of life until a process is given up; 0: never"
    )


FREE = {
    "steps",
    "minutes",
    "patience",
    "device",
    "parallel",
    "save_every",
    "keep",
    "report_every",
    "bad_steps",
    "ahead",
    "silence",
}


def lasting(training: Training, optim: Optim) -> dict[str, Any]:
    """The settings that a run keeps to its end: all but those which do not touch what was learned so far."""
    return {"training": training.model_dump(mode="json", exclude=FREE), "optim": optim.model_dump(mode="json")}

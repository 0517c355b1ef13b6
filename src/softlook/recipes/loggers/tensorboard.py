"""TensorBoard logger: event files in the run directory."""

from collections.abc import Mapping, Sequence
from importlib import import_module

from softlook.recipes.loggers.base import RunInfo, Sample, format_sample


class TensorBoardLogger:
    """Writes event files: `tensorboard --logdir runs`."""

    id, message, rewinds = "tensorboard", "", True

    def __init__(self, info: RunInfo) -> None:
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        # Metrics that a killed process logged after its last checkpoint are purged and logged again.
        purge = {"purge_step": info.step + 1} if info.step else {}
        self.writer = writer(str(info.folder / "tensorboard"), **purge)
        rows = "\n".join(f"| {name} | {value} |" for name, value in info.settings.items())
        self.writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", info.step)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None:
        for number, sample in enumerate(samples):
            self.writer.add_text(f"sample/{number}", format_sample(sample, "\n\n"), step)
        self.writer.flush()

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        self.log_metrics(step, scores)
        self.writer.close()

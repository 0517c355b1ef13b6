"""A run's numbers for TensorBoard."""

from collections.abc import Mapping, Sequence
from importlib import import_module

from softlook.recipes.sinks.sink import About, Sample, in_lines


class TensorBoard:
    """Event files in the run's folder: `tensorboard --logdir runs`."""

    id, said, forgets = "tensorboard", "", True

    def __init__(self, about: About) -> None:
        writer = import_module("torch.utils.tensorboard").SummaryWriter  # there only where TensorBoard is
        # Numbers that an earlier process wrote of steps behind the checkpoint are taken back, and written again.
        again = {"purge_step": about.step + 1} if about.step else {}
        self.writer = writer(str(about.folder / "tensorboard"), **again)
        rows = "\n".join(f"| {name} | {value} |" for name, value in about.settings.items())
        self.writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", about.step)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        for number, sample in enumerate(samples):
            self.writer.add_text(f"sample/{number}", in_lines(sample, "\n\n"), step)
        self.writer.flush()

    def close(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        self.numbers(step, scores)
        self.writer.close()

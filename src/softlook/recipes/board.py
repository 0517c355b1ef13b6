"""A run's numbers for TensorBoard, where that is installed."""

from pathlib import Path

from softlook.train.events import Evaluated, Event, Finished, Sampled, Trained


class Board:
    """Writes what happens as TensorBoard reads it."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (there only where TensorBoard is)

        self.writer = SummaryWriter(str(folder))

    def __call__(self, event: Event) -> None:
        if isinstance(event, Trained):
            for name in ("loss", "lr", "gradient", "tokens_per_second"):
                self.writer.add_scalar(f"train/{name}", getattr(event, name), event.step)
        elif isinstance(event, Evaluated):
            for name, score in event.scores.items():
                self.writer.add_scalar(f"held_out/{name}", score, event.step)
        elif isinstance(event, Sampled):
            for number, sample in enumerate(event.samples):
                self.writer.add_text(
                    f"sample/{number}", "\n\n".join(f"{k}: {v}" for k, v in sample.items()), event.step
                )
        elif isinstance(event, Finished):
            self.writer.close()

"""Words that keep the same company get vectors that point the same way."""

from pathlib import Path

from softlook.recipes import vectors
from softlook.train.events import Event, Sampled, Trained
from tests.recipes.small import near, said


def test_the_loss_falls_and_the_vectors_are_written(tmp_path: Path) -> None:
    heard: list[Event] = []
    trained = vectors(near(tmp_path, steps=60, optim={"lr": 0.02}), [heard.append])
    losses = [event.loss for event in said(heard, Trained)]
    assert losses[-1] < 0.9 * losses[0]
    first, *rows = (trained.folder / "vectors.txt").read_text(encoding="utf-8").splitlines()
    count, width = map(int, first.split(" "))
    assert len(rows) == count == trained.tokenizer.vocab - len(trained.tokenizer.special)
    assert all(len(row.split(" ")) == 1 + width for row in rows)
    assert said(heard, Sampled)[0].samples[0].keys() == {"word", "nearest"}

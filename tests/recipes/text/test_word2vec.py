"""Word vectors."""

from pathlib import Path

from softlook.recipes import train_word2vec
from softlook.train.events import Event, Sampled, StepLogged
from tests.recipes.small import events_of, word2vec_config


def test_the_loss_falls_and_the_vectors_are_written(tmp_path: Path) -> None:
    events: list[Event] = []
    trained = train_word2vec(word2vec_config(tmp_path, steps=60, optim={"lr": 0.02}), [events.append])
    losses = [event.loss for event in events_of(events, StepLogged)]
    assert losses[-1] < 0.9 * losses[0]
    first, *rows = (trained.run_dir / "vectors.txt").read_text(encoding="utf-8").splitlines()
    count, width = map(int, first.split(" "))
    assert len(rows) == count == trained.tokenizer.vocab_size - len(trained.tokenizer.special_ids)
    assert all(len(row.split(" ")) == 1 + width for row in rows)
    assert events_of(events, Sampled)[0].samples[0].keys() == {"word", "nearest"}

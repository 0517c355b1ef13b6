"""Transformer-XL uses what it remembers, and held-out text is read on and on."""

import random
from pathlib import Path

import pytest
import torch

from softlook.data import documents
from softlook.models import TransformerXL, TransformerXLConfig
from softlook.recipes import lm
from softlook.recipes.corpus import Part
from softlook.recipes.language import Following, Look, in_lanes
from softlook.recipes.packing import tokens_of
from softlook.recipes.settings import Batch, Sizes, Tokens
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train import Optim
from softlook.train.stream import Stream
from softlook.train.stream import Tokens as Ids
from tests.recipes.small import language

SEGMENT = 16
CPU = torch.device("cpu")


def echoes(path: Path, count: int = 600) -> Path:
    """Documents that say the same letters again and again: what comes next was last said one segment ago, and the
    letters between tell nothing about it."""
    dice = random.Random(0)
    said = ["".join(dice.choices("abcdefgh", k=SEGMENT + 1)) * 12 for _ in range(count)]
    path.write_text("\n\n".join(said) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_what_was_said_a_segment_ago_is_known_with_memory_and_unknown_without(tmp_path: Path) -> None:
    trained = lm(
        language(
            tmp_path,
            steps=400,
            data=(echoes(tmp_path / "echoes.txt"),),
            model="transformer_xl",
            tokens=Tokens(kind="characters"),
            size=Sizes(dim=32, depth=2, heads=2, dropout=0.0),
            batch=Batch(tokens=1024, longest=SEGMENT),
            optim=Optim(lr=5e-3, warmup=30, schedule="cosine"),
        )
    )
    held = trained.scores["held_out"]
    assert held["loss_without_memory"] > 2.0  # of eight letters each is as likely: 2.08
    assert held["loss"] < 1.0  # 0.65 was seen; the first time a letter is said, nobody can know it


def model_and_text(tmp_path: Path) -> tuple[TransformerXL, Ids]:
    tokenizer = TextTokenizer(train_tokenizer(["abcdefgh"], kind="characters", vocab=30))
    ids = tokens_of(Part(documents(echoes(tmp_path / "echoes.txt", 3))), tokenizer)
    model = TransformerXL(TransformerXLConfig(vocab=tokenizer.vocab, dim=16, depth=2, heads=2, hidden=32)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # so that what is remembered makes a difference
    return model, ids


@torch.no_grad()
def test_the_loss_on_held_out_text_does_not_depend_on_where_rows_are_cut(tmp_path: Path) -> None:
    """Nor on documents that begin within them."""
    model, ids = model_and_text(tmp_path)
    looks = [Look(Stream(ids, context=n * SEGMENT, rows=1, seed=0), Following(SEGMENT), CPU) for n in (1, 3, 50)]
    scores = [look.whole(1, model)["held_out"] for look in looks]
    for other in scores[1:]:
        assert other == pytest.approx(scores[0], rel=1e-5)
    assert abs(scores[0]["loss"] - scores[0]["loss_without_memory"]) > 1e-2


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_lanes_go_on_where_they_were_and_read_every_token_once(rows: int, tmp_path: Path) -> None:
    _, ids = model_and_text(tmp_path)
    lanes = torch.cat([batch.ids for batch in in_lanes(Stream(ids, context=SEGMENT, rows=rows, seed=0))], 1)
    read = lanes.flatten()
    assert lanes.shape[0] == rows
    assert torch.equal(read[: len(ids.ids)], ids.ids.long())
    assert not read[len(ids.ids) :].any()

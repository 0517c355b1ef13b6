"""`--lora.rank 8`: few weights learn, the run holds plain models, and it goes on only as it began."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import ConfigError, TrainingError
from softlook.blocks.lora import lora_layers
from softlook.models import Bert
from softlook.recipes import Trained, classify, evaluate, fill, lm, translate, vectors
from softlook.recipes.settings import Classify, Lm, Lora
from softlook.recipes.told import gather
from softlook.train.events import Trained as Stepped
from softlook.train.settings import Optim
from softlook.weights import load, save
from softlook.weights.files import read_file
from softlook.weights.runs import best_of
from tests.recipes.small import classifying, filling, language, near, reviews, translating

TASKS: dict[str, tuple[Callable[..., Trained], Callable[..., Any]]] = {
    "translate": (translate, translating),
    "lm": (lm, language),
    "fill": (fill, filling),
}
LORA = Lora(rank=4)


def encoder(folder: Path) -> Path:
    return fill(filling(folder, run=folder / "encoder")).folder


def tuned(folder: Path, base: Path, steps: int = 4, listeners: Any = (), **more: Any) -> Trained:
    asked = classifying(folder, steps, **{"run": folder / "tuned", "from": base, "lora": LORA, **more})
    return classify(asked, listeners)


@pytest.mark.parametrize("task", TASKS)
def test_only_what_is_adapted_changes_in_the_plain_model_that_is_left(task: str, tmp_path: Path) -> None:
    run, asked = TASKS[task]
    base = run(asked(tmp_path, run=tmp_path / "base")).folder
    trained = run(asked(tmp_path, run=tmp_path / "tuned", lora=LORA, **{"from": base}))
    before, after = load(base).state_dict(), load(trained.folder).state_dict()
    assert before.keys() == after.keys()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.endswith(("to_query.weight", "to_value.weight"))}
    assert not lora_layers(trained.model)
    for name, tensor in trained.model.state_dict().items():
        assert torch.equal(tensor, after[name]), name
    assert (trained.folder / "adapter").is_dir() == (task == "fill")  # PEFT has no such layers, or models, for others


def test_a_head_for_classes_learns_whole_even_where_another_was_there(tmp_path: Path) -> None:
    base = classify(classifying(tmp_path, run=tmp_path / "base")).folder
    for name, start, new in (("one", base, set()), ("other", encoder(tmp_path), {"head.pool.to_pooled"})):
        trained = tuned(tmp_path, start, run=tmp_path / name, train={"average": 0.9})
        learned = {name.rpartition(".")[0] for name in read_file(best_of(trained.folder) / "raw.safetensors")}
        assert {name for name in learned if name.startswith("head")} == {"head.to_classes"} | new
        assert {name for name in learned if not name.startswith("head")} == {
            "blocks.0.attend.to_query",
            "blocks.0.attend.to_value",
        }


def flipped(path: Path, count: int) -> Path:
    """Where the others say good, bad, and the other way round."""
    rows = reviews(path, count).read_text(encoding="utf-8").replace(",good", ",?").replace(",bad", ",good")
    path.write_text(rows.replace(",?", ",bad"), encoding="utf-8")
    return path


def test_what_is_taught_is_learned_and_the_run_gives_the_same_scores_again(tmp_path: Path) -> None:
    base = classify(classifying(tmp_path, 60, run=tmp_path / "base", train={"average": 0.0})).folder
    data, test = flipped(tmp_path / "flipped.csv", 200), flipped(tmp_path / "test.csv", 40)
    assert evaluate(base, (test,), device="cpu")["accuracy"] == 0.0
    trained = tuned(tmp_path, base, 60, data=(data,), test=(test,), optim=Optim(lr=1e-2))
    assert trained.scores["test"]["accuracy"] == 1.0
    assert evaluate(trained.folder, (test,), device="cpu") == trained.scores["test"]


def test_how_few_weights_learn_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = encoder(tmp_path)
    with caplog.at_level("INFO", "softlook"):
        trained = tuned(tmp_path, base)
    learn = 2 * 4 * (32 + 32) + 2 * 32 + 2 + 32 * 32 + 32
    count = sum(parameter.numel() for parameter in trained.model.parameters()) + 2 * 4 * (32 + 32)
    assert f"LoRA: {learn:,} of {count:,} weights learn" in caplog.text


class DyingError(Exception):
    """What stands for a process that ends without a word."""


@pytest.mark.parametrize("average", [0.0, 0.9], ids=str)
def test_a_run_that_dies_goes_on_bit_for_bit(average: float, tmp_path: Path) -> None:
    base, train = encoder(tmp_path), {"save_every": 2, "evaluate_every": 3, "average": average}

    def dying(event: Any) -> None:
        if isinstance(event, Stepped) and event.step == 5:
            raise DyingError

    whole = tuned(tmp_path, base, 8, run=tmp_path / "whole", train=train)
    with pytest.raises(DyingError):
        tuned(tmp_path, base, 8, [dying], train=train)
    moved = base.rename(tmp_path / "elsewhere")  # known by what it holds, not by where it lies
    again = tuned(tmp_path, moved, 8, train=train)
    files = sorted(path.name for path in best_of(whole.folder).glob("*.safetensors"))
    assert files == sorted(path.name for path in best_of(again.folder).glob("*.safetensors"))
    assert "adapters.safetensors" in files
    last = "checkpoints/step-000000008"
    for file in files:
        assert (whole.folder / last / file).read_bytes() == (again.folder / last / file).read_bytes(), file
    assert (again.progress.best, again.progress.best_step) == (whole.progress.best, whole.progress.best_step)
    assert again.scores == whole.scores


def test_it_goes_on_only_as_it_began(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    tuned(tmp_path, base)
    for changed, said in (
        (Lora(rank=8), "lora.rank: 4 then, 8 now"),
        (Lora(rank=4, alpha=4.0), "lora.alpha: None then, 4.0 now"),
        (Lora(rank=4, targets=("to_key",)), r"lora.targets: \['to_query', 'to_value'\] then, \['to_key'\] now"),
        (Lora(), "lora.rank: 4 then, 0 now"),
    ):
        with pytest.raises(TrainingError, match=said):
            tuned(tmp_path, base, lora=changed)


def test_it_does_not_go_on_over_other_weights(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    tuned(tmp_path, base)
    model = load(base)
    assert isinstance(model, Bert)
    nn.init.normal_(model.blocks[0].attend.to_query.weight)  # pyright: ignore[reportArgumentType,reportAttributeAccessIssue,reportCallIssue,reportIndexIssue]
    other = save(model, tmp_path / "other", tokenizer=base / "tokenizer.json")
    with pytest.raises(TrainingError, match="lora.base: '.*' then, '.*' now"):
        tuned(tmp_path, other)


def test_adapters_alone_are_those_of_the_best_checkpoint_also_when_a_run_is_called_again(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    for steps in (4, 4, 8):
        run = fill(filling(tmp_path, steps, lora=LORA, **{"from": base, "train": {"evaluate_every": 4}}))
        alone = read_file(run.folder / "adapter" / "adapter_model.safetensors")
        best = read_file(best_of(run.folder) / "adapters.safetensors")
        name = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
        assert torch.equal(alone[name], best["blocks.0.attend.to_query.down"])


def test_a_tuned_run_can_be_tuned_again(tmp_path: Path) -> None:
    first = tuned(tmp_path, encoder(tmp_path), run=tmp_path / "first").folder
    assert tuned(tmp_path, first, run=tmp_path / "second").progress.step == 4


def test_without_weights_to_start_from_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LoRA adapts weights that are there already, .* Say which with --from"):
        classify(classifying(tmp_path, lora=LORA))


def test_without_a_rank_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lora.alpha does nothing by itself. .*: --lora.rank 8"):
        classify(classifying(tmp_path, lora=Lora(alpha=3.0)))


def test_layers_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no linear layer 'to_qurey' to adapt. Did you mean 'to_query'\?"):
        tuned(tmp_path, encoder(tmp_path), lora=Lora(rank=2, targets=("to_qurey",)))
    base = vectors(near(tmp_path, run=tmp_path / "vectors")).folder
    with pytest.raises(ConfigError, match="no linear layer 'to_query' to adapt. It has none at all."):
        vectors(near(tmp_path, 4, run=tmp_path / "more", lora=LORA, **{"from": base}))


def test_steps_are_larger_than_where_all_weights_learn(tmp_path: Path) -> None:
    base = encoder(tmp_path)
    few = tuned(tmp_path, base, run=tmp_path / "few", optim={}).settled.settings.optim.lr
    every = tuned(tmp_path, base, run=tmp_path / "all", optim={}, lora=Lora()).settled.settings.optim.lr
    assert few == 10 * every


def test_layers_can_be_named_in_a_file_and_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('data = "a.txt"\n[lora]\nrank = 8\ntargets = ["to_key", "to_out"]\n')
    told = gather(Lm(), config=tmp_path / "run.toml")
    assert (told.get("lora.rank"), told.get("lora.targets")) == (8, ("to_key", "to_out"))
    assert told.get("data") == (tmp_path / "a.txt",)
    told = gather(Classify(), environ={"SOFTLOOK_LORA__TARGETS": "to_key to_out", "SOFTLOOK_LORA__RANK": "2"})
    assert (told.get("lora.rank"), told.get("lora.targets")) == (2, ("to_key", "to_out"))

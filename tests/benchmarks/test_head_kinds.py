"""The benchmark of head kinds ablates the heads that it names."""

from pathlib import Path

import torch

from benchmarks.head_kinds import compare_ablations, list_kinds, loss, sample_same_layers
from benchmarks.report import Report
from softlook.lens import head_table
from softlook.models import GPT, GPTConfig


def test_the_report_lists_kinds_and_compares_ablations(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=30, context=32, dim=32, depth=3, heads=4)).eval()
    ids = torch.randint(30, (2, 16))
    report = Report("cpu", "test", tmp_path, "heads")
    table = head_table(model, ids, repeat_length=8)
    list_kinds(report, "a model", table, ("induction",))
    compare_ablations(report, model, table, ids.repeat(1, 2), ids)
    text = report.path.read_text(encoding="utf-8")
    best = table.top("induction", 1)[0]
    assert f"| induction | {best[0].split('.')[1]}.{best[1]}: {best[2]:.2f} |" in text
    without = loss(model, ids.repeat(1, 2), [best[:2]])
    assert f"| 1 induction | {without:.3f} |" in text
    assert without != loss(model, ids.repeat(1, 2))
    assert f"Loss on repeated tokens without 1 induction heads: {without:.2f}; without 1 random other heads:" in text


def test_heads_of_the_same_layers_are_as_many_in_each_layer() -> None:
    heads = [(f"blocks.{layer}.attn", head) for layer in range(3) for head in range(4)]
    like = [("blocks.0.attn", 3), ("blocks.2.attn", 0), ("blocks.0.attn", 1)]
    chosen = sample_same_layers([head for head in heads if head not in like], like, torch.Generator())
    assert sorted(layer for layer, _ in chosen) == sorted(layer for layer, _ in like)
    assert len(set(chosen)) == 3 and not set(chosen) & set(like)

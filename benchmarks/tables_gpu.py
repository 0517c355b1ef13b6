"""Training rows per second of table models on a GPU, on data of Covertype's shape."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from softlook.models import FTTransformer, FTTransformerConfig, TableTransformer, TableTransformerConfig
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.presets import PRESETS, Hyperparameters
from softlook.tabular.training.train_step import TableTrainStep
from softlook.train.rng import make_generator

ROWS, CLASSES, SECONDS = 200_000, 7, 0.8
PAPER, DEFAULT = PRESETS["ft"]["paper"], PRESETS["table"]["default"]


class ClassTarget:
    """Cross entropy of classes, which is all that a training step needs of a target."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        N, E, K = outputs.shape
        losses = F.cross_entropy(outputs.reshape(N * E, K), targets[:, None].expand(N, E).reshape(-1), reduction="none")
        return losses.view(N, E)


def make_rows(numbers: int, categories: tuple[int, ...]) -> TableTensors:
    generator = torch.Generator("cuda").manual_seed(0)
    made = torch.randn(ROWS, numbers, device="cuda", generator=generator)
    codes = [torch.randint(count, (ROWS, 1), device="cuda", generator=generator) for count in categories]
    targets = torch.randint(CLASSES, (ROWS,), device="cuda", generator=generator)
    columns = torch.cat(codes, 1) if codes else torch.zeros(ROWS, 0, dtype=torch.long, device="cuda")
    return TableTensors(made, columns, targets, torch.ones(ROWS, device="cuda"))


def rows_per_second(model: nn.Module, rows: TableTensors, hparams: Hyperparameters, size: int) -> dict[str, Any]:
    """The trainer's epochs, after a first step that captures and compiles."""
    target: Any = ClassTarget()
    step = TableTrainStep(model.cuda().train(), target, hparams)
    started = time.perf_counter()
    first = float(step.step(rows.take(slice(size)), 1e-4, size))
    compiled = time.perf_counter() - started
    seen, losses = 0, torch.zeros((), device="cuda")
    torch.cuda.synchronize()
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        for number, batch in enumerate(rows.batches(size, make_generator(0, seen), 0)):
            if len(batch) == size:
                losses += step.step(batch, 1e-4, size)
                seen += size
            if number % 16 == 15:
                torch.cuda.synchronize()
                if time.perf_counter() - started > SECONDS:
                    break
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return {
        "kernels": slowest_kernels(step, rows.take(slice(size)), size),
        "rows_per_second": seen / seconds,
        "compile_s": compiled,
        "first_loss": first,
        "loss": float(losses / (seen / size)),
    }


def slowest_kernels(step: TableTrainStep, rows: TableTensors, size: int) -> list[str]:
    """Milliseconds of a step by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(5):
            step.step(rows, 1e-4, size)
        torch.cuda.synchronize()
    events = sorted(profiler.key_averages(), key=lambda one: -one.self_device_time_total)
    return [f"{one.self_device_time_total / 5e3:.3f} ms, {one.count / 5:.0f} x {one.key:.70}" for one in events[:16]]


def measure() -> Iterator[dict[str, Any]]:
    """Each preset as it is, and with other precisions, compilation and batch sizes."""
    wide, narrow = make_rows(54, ()), make_rows(10, (4, 40))

    def paper() -> FTTransformer:
        torch.manual_seed(0)
        return FTTransformer(FTTransformerConfig(n_numeric=54, cardinalities=(), classes=CLASSES))

    def default() -> TableTransformer:
        torch.manual_seed(0)
        no_dropout: dict[str, Any] = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
        config = TableTransformerConfig(
            n_numeric=10,
            cardinalities=(4, 40),
            classes=CLASSES,
            ensemble_size=4,
            dim=256,
            depth=3,
            bins=256,
            **no_dropout,
        )
        return TableTransformer(config)

    variants: list[tuple[str, Any, TableTensors, Hyperparameters, int]] = [
        ("paper, bfloat16, compiled", paper, wide, replace(PAPER, mixed_precision=True, compile=True), 1024),
        ("default, compiled", default, narrow, replace(DEFAULT, compile=True), 1024),
        ("paper, bfloat16, compiled, 4096", paper, wide, replace(PAPER, mixed_precision=True, compile=True), 4096),
        ("default, as it is", default, narrow, DEFAULT, 1024),
        ("paper, bfloat16", paper, wide, replace(PAPER, mixed_precision=True), 1024),
        ("paper, as it is", paper, wide, PAPER, 1024),
        ("paper, compiled", paper, wide, replace(PAPER, compile=True), 1024),
    ]
    for name, make, rows, hparams, size in variants:
        try:
            yield {"case": name, "batch": size} | rows_per_second(make(), rows, hparams, size)
        except Exception as error:
            yield {"case": name, "error": f"{type(error).__name__}: {error!s:.300}"}
        torch.cuda.empty_cache()

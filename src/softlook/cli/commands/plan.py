"""`softlook plan`: memory, step time and communication of training on many GPUs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import ConfigError
from softlook.cli.console import CommandResult

if TYPE_CHECKING:
    from softlook.train.cluster_plan import ClusterPlan

UNITS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
DAY = 86_400


def plan(
    *,
    params: Annotated[str, Parameter(help="parameters of the model: 124M, 7B")],
    gpus: Annotated[int, Parameter(help="number of NVIDIA H200")] = 1,
    context: Annotated[str, Parameter(help="tokens of a sequence: 1024, 32k")] = "1024",
    batch: Annotated[str, Parameter(help="tokens of a step on all GPUs: 512k, 4M")] = "512k",
    tokens: Annotated[str | None, Parameter(help="tokens of the whole run: 10B, 1T; not required")] = None,
) -> CommandResult:
    """Plan the training of a GPT on many GPUs: memory, step time, communication."""
    from softlook.train.cluster_plan import plan_cluster, shape_of  # noqa: PLC0415  (imports torch)

    length, batch_tokens = int(parse_count("--context", context)), int(parse_count("--batch", batch))
    found = plan_cluster(
        shape_of(parse_count("--params", params)), gpus=gpus, context=length, batch_tokens=batch_tokens
    )
    total = None if tokens is None else parse_count("--tokens", tokens)
    seconds = None if total is None else total / found.tokens_per_second
    details = {
        "parameters": found.shape.parameters,
        "depth": found.shape.depth,
        "dim": found.shape.dim,
        "rows_per_gpu": found.rows,
        "micro_batches": found.micro_batches,
        "memory_bytes": round(found.memory),
        "fits": found.fits,
        "fits_recomputed": found.fits_recomputed,
        "step_seconds": found.step,
        "compute_seconds": found.compute,
        "communication_seconds": found.communication,
        "communicated_bytes": round(found.communicated),
        "tokens_per_second": found.tokens_per_second,
        "run_seconds": seconds,
    }
    return CommandResult(Path(), details, "\n".join(f"{name:<15}{text}" for name, text in _lines(found, seconds)))


def _lines(found: "ClusterPlan", seconds: float | None) -> list[tuple[str, str]]:
    shape, gigabyte = found.shape, 1e9
    memory = f"{found.memory / gigabyte:.1f} of 141 GB: {found.state / gigabyte:.1f} of weights, gradients and AdamW, "
    memory += f"{found.activations / gigabyte:.1f} of activations"
    if not found.fits:
        without = "fits" if found.fits_recomputed else "does not fit either"
        memory += f". It does not fit; with layers that keep their input alone it {without}"
    parts = "" if found.micro_batches == 1 else f" in {found.micro_batches} micro-batches"
    waiting = "hidden behind computation" if found.communication <= found.compute else "longer than computation"
    lines = [
        ("model", f"{shape.parameters / gigabyte:.2f}B parameters: {shape.depth} layers of width {shape.dim:,}"),
        ("step", f"{found.rows} x {found.context:,} tokens per GPU{parts}, {found.tokens:,} on {found.gpus} GPUs"),
        ("memory", memory),
        ("time", f"{found.step:.3g} s a step, {found.tokens_per_second:,.0f} tokens/s"),
        (
            "computation",
            f"{found.compute:.3g} s: products {found.products:.3g}, attention {found.attention:.3g}, element-wise "
            f"{found.elementwise:.3g}, update {found.update:.3g}",
        ),
    ]
    if found.gpus > 1:
        sent = f"{found.communicated / gigabyte:.1f} GB per GPU, {found.communication:.3g} s, {waiting}"
        lines.append(("communication", f"{sent} (bandwidth as specified, not measured)"))
    return lines + ([] if seconds is None else [("whole run", f"{seconds / DAY:.3g} days")])


def parse_count(option: str, text: str) -> float:
    """A number with a unit.

    >>> parse_count("--params", "7B"), parse_count("--context", "32k")
    (7000000000.0, 32768.0)
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmbgt]?)", text.strip().lower())
    if match is None or not float(match[1]):
        raise ConfigError(f"{option} expects a number such as 512, 32k, 124M, 7B or 1T, got {text!r:.40}")
    is_power = match[2] == "k" and option in ("--context", "--batch")
    return float(match[1]) * (1024 if is_power else UNITS[match[2]])

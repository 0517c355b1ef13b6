"""Training throughput on one GPU: `softlook.train.fit` beside a plain GPT-2 compiled by hand, GPT-2 124M in bfloat16.

    PYTHONPATH=src python -m benchmarks.training_step --minutes 4 --out "$OUT"

Both train on the same batches from pinned memory, with clipping and fused AdamW, in alternating blocks of steps. The
other parts compare the losses of compiled and eager steps, the kernels of a step, variants of the compiled step, the
chunks of the fused loss, and batches of a few lengths. A part that fails is reported, and the next one runs.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.timing import Deadline
from benchmarks.training_fit import (
    BLOCK,
    CLASSES,
    CONTEXT,
    DEPTH,
    DIM,
    FLOP_PER_TOKEN,
    HEADS,
    OPTIM,
    PEAK,
    WARMUP,
    HostTime,
    Results,
    Run,
    make_batches,
    make_model,
    profile,
    train,
)
from benchmarks.training_peer import PlainGPT2, PlainTrainer
from softlook.blocks import attention as attention_module
from softlook.ops.backends import sdpa_cuda
from softlook.ops.linear_cross_entropy import function as fused_loss
from softlook.ops.linear_cross_entropy import kernel as loss_kernel
from softlook.train import objectives


def measure_fit(report: "Results", options: argparse.Namespace) -> None:
    """Both trainers in alternating blocks, then a profile of a few steps."""
    batches, tokens = make_batches(options.batch, [CONTEXT]), options.batch * CONTEXT
    torch.manual_seed(1)
    peer = PlainTrainer(PlainGPT2(CLASSES, CONTEXT, DIM, DEPTH, HEADS).cuda(), lr=OPTIM.lr)
    peer_batches = [(one.ids.pin_memory(), one.labels.pin_memory()) for one in batches]
    started = time.perf_counter()
    peer_losses = peer.run(peer_batches, 12)
    report.add("peer: compile and 12 steps, s", time.perf_counter() - started)
    report.add("peer: first and last loss", f"{peer_losses[0]:.4f} {peer_losses[-1]:.4f}")
    peer_seconds: list[float] = []

    def turn() -> None:
        peer.run(peer_batches, 2)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        peer.run(peer_batches, BLOCK)
        torch.cuda.synchronize()
        peer_seconds.append((time.perf_counter() - begin) / BLOCK)

    run = Run(options.blocks, between=turn, last=lambda: profile(report, options.out))
    host = HostTime()
    started = time.perf_counter()
    with host.measure():
        message = train(make_model(), batches, run)
    report.add("fit: whole run, s", time.perf_counter() - started)
    report.add("fit: step", message)
    report.add("fit: peak memory, GiB", torch.cuda.max_memory_allocated() / 2**30)
    report.add("fit: host time of a launch, ms", 1e3 * statistics.median(host.seconds[WARMUP:]))
    speed, other = (statistics.median(seconds) for seconds in (run.seconds, peer_seconds))
    ratio = statistics.median(b / a for a, b in zip(run.seconds, peer_seconds, strict=False))
    for name, seconds, samples in (("fit", speed, run.seconds), ("peer", other, peer_seconds)):
        report.add(f"{name}: ms per step", 1e3 * seconds)
        report.add(f"{name}: tokens/s", tokens / seconds)
        report.add(f"{name}: share of the peak", FLOP_PER_TOKEN * tokens / seconds / PEAK)
        report.add(f"{name}: blocks, ms", " ".join(f"{1e3 * one:.2f}" for one in samples))
    report.add("RATIO fit / peer", ratio)
    report.losses["compiled"] = run.losses[:WARMUP]


def measure_eager(report: "Results", options: argparse.Namespace) -> None:
    """The same run without compilation: speed, and the difference of the losses."""
    batches, tokens = make_batches(options.batch, [CONTEXT]), options.batch * CONTEXT
    run = Run(1)
    message = train(make_model(), batches, run, compile=False)
    report.add("eager: step", message)
    report.add("eager: tokens/s", tokens / statistics.median(run.seconds))
    report.add("eager: peak memory, GiB", torch.cuda.max_memory_allocated() / 2**30)
    report.losses["eager"] = run.losses[:WARMUP]
    again = Run(0)
    train(make_model(), batches, again, compile=False)
    report.losses["eager again"] = again.losses[:WARMUP]
    reference = report.losses["eager"]
    for name in ("compiled", "eager again"):
        differences = [abs(a - b) for a, b in zip(report.losses.get(name, []), reference, strict=False)]
        if differences:
            report.add(f"largest loss difference in {len(differences)} steps, {name} - eager", max(differences))
    report.add("losses: first, 10th, last", " ".join(f"{reference[i]:.4f}" for i in (0, 9, -1)))


VARIANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "base": ExitStack,
    "plain-ce": lambda: mock.patch.object(objectives, "can_fuse_head", lambda model, labels: False),
    "separate-qkv": lambda: mock.patch.object(
        attention_module.MultiHeadAttention,
        "project_qkv",
        lambda self, x: (self.project_q(x), *self.project_kv(x)),
    ),
    "flash": lambda: mock.patch.object(sdpa_cuda, "suits_cudnn", lambda *args: False),
    "one-chunk": lambda: mock.patch.object(fused_loss, "CHUNK_BYTES", 1 << 34),
    "no-mix-order": lambda: inductor(**{"triton.mix_order_reduction": False}),
    "coordinate-descent": lambda: inductor(coordinate_descent_tuning=True),
    "max-autotune": lambda: inductor(max_autotune=True, coordinate_descent_tuning=True),
    "gemm-epilogues": lambda: inductor(max_autotune_gemm=True, max_autotune_gemm_backends="ATEN,TRITON"),
    "half-residual": lambda: mock.patch.object(torch.nn.Identity, "forward", lambda self, x: x.bfloat16()),
    "cuda-graphs": lambda: inductor(**{"triton.cudagraphs": True}),
    "combo-kernels": lambda: inductor(combo_kernels=True),
    "no-shape-padding": lambda: inductor(shape_padding=False),
}
"""Contexts in which the step is compiled."""
DEFAULT_VARIANTS = (
    "base",
    "one-chunk",
    "plain-ce",
    "separate-qkv",
    "flash",
    "half-residual",
    "cuda-graphs",
    "coordinate-descent",
)


def inductor(**settings: Any) -> AbstractContextManager[Any]:
    return torch._inductor.config.patch(settings)  # pyright: ignore[reportAttributeAccessIssue]


def measure_variants(report: "Results", options: argparse.Namespace) -> None:
    """Milliseconds of a step of a model with fewer layers, which compiles sooner."""
    batches = make_batches(options.batch, [CONTEXT], 8)
    for name in options.variants.split(","):
        if report.deadline.passed():
            report.add(f"variant {name}", "not measured: out of time")
            continue
        with report.guard(f"variant {name}"), VARIANTS[name]():
            run, started = Run(3, warmup=10), time.perf_counter()
            train(make_model(options.variant_depth), batches, run)
            seconds = time.perf_counter() - started
            text = f"{1e3 * statistics.median(run.seconds):.3f} ms (blocks "
            text += " ".join(f"{1e3 * one:.2f}" for one in run.seconds)
            report.add(f"variant {name}", f"{text}), {seconds:.0f} s, loss {run.losses[9]:.5f}")
        release()


def measure_loss(report: "Results", options: argparse.Namespace) -> None:
    """The fused loss, forward and backward, by the size of its chunks; and its error."""
    rows = options.batch * CONTEXT
    hidden = torch.randn(rows, DIM, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = (0.02 * torch.randn(CLASSES, DIM, device="cuda")).requires_grad_()
    labels = torch.randint(CLASSES, (rows,), device="cuda")
    labels[:100] = -100
    few = slice(0, 2048)
    logits = F.linear(hidden[few].float(), weight)
    expected = F.cross_entropy(logits, labels[few], reduction="sum")
    exact = torch.autograd.grad(expected, [hidden, weight])
    total, _ = fused_loss.linear_cross_entropy(hidden[few], weight, None, labels[few])
    found = torch.autograd.grad(total, [hidden, weight])
    errors = [float((a.float() - b.float()).norm() / b.float().norm()) for a, b in zip(found, exact, strict=True)]
    report.add("fused loss: errors of loss and gradients", f"{float(total / expected - 1):.1e} {errors}")
    del logits, exact, found
    for mebibytes in (256, 512, 1024, 2048, 4096):
        with mock.patch.object(fused_loss, "CHUNK_BYTES", mebibytes << 20):
            report.add(f"fused loss, {mebibytes} MiB, ms", milliseconds(lambda: _loss_step(hidden, weight, labels)))
    buffer = torch.randn(8192, 50304, device="cuda", dtype=torch.bfloat16)
    arguments: Any = {"ignore": -100, "smoothing": 0.0, "with_grads": True}
    call = partial(loss_kernel.cross_entropy_triton_, buffer, labels[:8192], CLASSES, **arguments)
    for block, warps in ((2048, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16)):
        with report.guard(f"kernel {block}"), mock.patch.multiple(loss_kernel, BLOCK=block, NUM_WARPS=warps):
            report.add(f"kernel block {block}, {warps} warps: ms of 8192 rows", milliseconds(call))


def _loss_step(hidden: Tensor, weight: Tensor, labels: Tensor) -> None:
    total, _ = fused_loss.linear_cross_entropy(hidden, weight, None, labels)
    torch.autograd.grad(total, [hidden, weight])


def milliseconds(call: Callable[[], Any], repeats: int = 10) -> float:
    """Median device time of a call."""
    samples = []
    for number in range(repeats + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if number >= 3:
            samples.append(begin.elapsed_time(end))
    return statistics.median(samples)


def measure_ragged(report: "Results", options: argparse.Namespace) -> None:
    """Batches of three lengths and equally many tokens, eager and compiled."""
    lengths, rows = [512, 256, 128], options.batch
    batches = make_batches(rows, lengths, 30)
    losses = {}
    for mode in (False, True):
        run = Run(4, warmup=30)
        message = train(make_model(options.variant_depth), batches, run, compile=mode)
        name = "compiled" if mode else "eager"
        report.add(f"ragged {name}: tokens/s", rows * lengths[0] / statistics.median(run.seconds))
        report.add(f"ragged {name}: step", message)
        losses[name] = run.losses
    difference = max(abs(a - b) for a, b in zip(losses["eager"], losses["compiled"], strict=False))
    report.add("ragged: largest loss difference", difference)


def measure_ceilings(report: "Results", options: argparse.Namespace) -> None:
    """The matrix products of a step, and a copy."""
    big = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    report.add("8192³ product, TFLOP/s", 2 * 8192**3 / milliseconds(lambda: big[0] @ big[1]) / 1e9)
    rows = options.batch * CONTEXT
    x = torch.randn(rows, DIM, device="cuda", dtype=torch.bfloat16)
    for name, width in (("768", DIM), ("2304", 3 * DIM), ("3072", 4 * DIM), ("50304", 50304)):
        weight = torch.randn(width, DIM, device="cuda", dtype=torch.bfloat16)
        grad = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
        products = (lambda: x @ weight.T, lambda: grad @ weight, lambda: grad.T @ x)  # noqa: B023
        speeds = [2 * rows * width * DIM / milliseconds(product) / 1e9 for product in products]
        report.add(f"768 x {name} forward, input, weight, TFLOP/s", " ".join(f"{one:.0f}" for one in speeds))


PARTS: dict[str, Callable[[Results, argparse.Namespace], None]] = {
    "fit": measure_fit,
    "eager": measure_eager,
    "loss": measure_loss,
    "ceilings": measure_ceilings,
    "variants": measure_variants,
    "ragged": measure_ragged,
}


def release() -> None:
    """Free the memory and the graphs of earlier parts."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument(
        "--variants", default="base,one-chunk,plain-ce,separate-qkv,flash,half-residual,cuda-graphs,coordinate-descent"
    )
    parser.add_argument("--variant-depth", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    report = Results(Deadline(options.minutes), options.out)
    report.add("device", f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name in options.parts.split(","):
        if report.deadline.passed():
            report.add(f"part {name}", "not run: out of time")
            continue
        with report.guard(name):
            PARTS[name](report, options)
        release()


if __name__ == "__main__":
    main()

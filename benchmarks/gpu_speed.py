"""Speed on a GPU beside the best peers: `python -m benchmarks.gpu_speed PART ... --out FOLDER --minutes M`.

Each part writes FOLDER/PART.json: rows of one table, measured in one run, medians of interleaved rounds. Device times
are those between two events behind a queue of work; `wall` is the time per call of many calls in a row, the host's part
included. `python -m benchmarks.gpu_speed_page FOLDER` makes a page of the files.
"""

import argparse
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import look_gpu, tables_gpu
from benchmarks.timing import CudaTimer, Deadline, Entry, median, time_interleaved
from softlook import attention, explain, masks, positions
from softlook.models import Bert, BertConfig
from softlook.ops.backends import look_triton
from softlook.ops.packing import pack

Row = dict[str, Any]
BF16 = torch.bfloat16
CAUSAL = masks.causal()


def tensors(B: int, H: int, T: int, D: int, S: int | None = None, *, grad: bool = False) -> list[Tensor]:
    generator = torch.Generator("cuda").manual_seed(T)
    sizes = (T, S or T, S or T)
    made = [torch.randn(B, N, H, D, device="cuda", generator=generator).to(BF16).transpose(1, 2) for N in sizes]
    return [tensor.requires_grad_(grad) for tensor in made]


def compare(case: str, calls: Mapping[str, Callable[[], object]], seconds: float = 0.6) -> Iterator[Row]:
    """Device and wall milliseconds of each call; one that fails is named with its error."""
    entries = []
    for name, call in calls.items():
        try:
            call()
            torch.cuda.synchronize()
            entries.append(Entry(name, call))
        except Exception as error:
            yield {"case": case, "call": name, "error": f"{type(error).__name__}: {error!s:.200}"}
            torch.cuda.empty_cache()
    if not entries:
        return
    samples = time_interleaved(entries, CudaTimer(), seconds)
    base = median(samples[entries[0].name])
    for entry in entries:
        device = median(samples[entry.name])
        wall = look_gpu.wall(entry.call)
        yield {
            "case": case,
            "call": entry.name,
            "device_ms": 1e3 * device,
            "wall_ms": 1e3 * wall,
            "times": device / base,
        }


def fused(inputs: Sequence[Tensor], **options: Any) -> Tensor:
    query, key, value = inputs
    return scaled_dot_product_attention(query, key, value, **options)


def with_backward(call: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], object]:
    upstream = torch.randn_like(call())
    return lambda: torch.autograd.grad(call(), leaves, upstream)


def relative_error(given: Tensor, expected: Tensor) -> float:
    return ((given.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


# --- parts ------------------------------------------------------------------------------------------------------------


def errors() -> Iterator[Row]:
    """Largest errors of outputs and gradients against plain torch in float64, relative to the largest value."""
    lengths = (700, 1, 1333, 62, 2500)
    ids = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).cuda()
    cases = {
        "documents": {"mask": CAUSAL & masks.documents(ids)},
        "documents, bidirectional": {"mask": masks.documents(ids)},
        "documents, window": {"mask": masks.window(256) & CAUSAL & masks.documents(ids)},
        "window": {"mask": CAUSAL & masks.window(512)},
        "alibi": {"mask": CAUSAL, "bias": positions.alibi(4)},
    }
    for name, options in cases.items():
        inputs = tensors(1, 4, sum(lengths), 64, grad=True)
        exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
        output = attention(*inputs, **options)
        expected = attention(*exact, **options, backend="reference")
        upstream = torch.randn_like(output)
        grads = torch.autograd.grad(output, inputs, upstream)
        exact_grads = torch.autograd.grad(expected, exact, upstream.double())
        found = [relative_error(a, b) for a, b in zip(grads, exact_grads, strict=True)]
        row = {"case": name, "kernel": explain(*inputs, **options).kernel, "output": relative_error(output, expected)}
        yield row | dict(zip(("query", "key", "value"), found, strict=True))


GATHERS = ((1, 32, 1), (1, 64, 1), (2, 16, 1), (2, 32, 2), (4, 16, 2), (1, 16, 1), (2, 64, 4), (1, 64, 2))
TOP_BLOCKS = ((64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 4, 3), (64, 128, 8, 2))


def top() -> Iterator[Row]:
    """Milliseconds of the two kernels of top keys at 8,192 tokens by their block sizes; the fastest are used."""
    for width in (64, 128):
        call = look_gpu.tuned_call("top", width, 8192)
        for found, name in ((TOP_BLOCKS, "cells"), (GATHERS, "gather")):
            times = []
            for sizes in found:
                set_top(name, width, sizes)
                try:
                    seconds = device_seconds(call)
                except Exception as error:
                    yield {"case": f"{name} {sizes}, width {width}", "error": f"{type(error).__name__}: {error!s:.100}"}
                    continue
                times.append((seconds, sizes))
                yield {"case": f"{name} {sizes}, width {width}", "device_ms": 1e3 * seconds}
            set_top(name, width, min(times)[1])


def set_top(name: str, width: int, sizes: tuple[int, ...]) -> None:
    if name == "cells":
        look_gpu.BLOCKS["top"][width] = look_gpu.Blocks(*sizes)
    else:
        look_triton.TOP_GATHER = look_triton.Gather(*sizes)


def device_seconds(call: Callable[[], object]) -> float:
    call()
    entry, timer = Entry("call", call), CudaTimer()
    timer.once(entry)
    return median([timer.sample(entry, 1.0) for _ in range(7)])


def look() -> Iterator[Row]:
    """The output and all statistics as multiples of cuDNN's forward pass; full: see `look_gpu.FULL`."""
    yield from look_at(((64, 2048), (64, 8192), (128, 2048), (128, 8192)), 0.4)


def look_long() -> Iterator[Row]:
    """As `look`, with 32k and 64k tokens, and the memory beyond inputs."""
    yield from look_at(((64, 32768), (64, 65536), (128, 32768), (128, 65536)), 0.6)


def look_at(shapes: Sequence[tuple[int, int]], seconds: float) -> Iterator[Row]:
    for D, N in shapes:
        query, key, value = look_gpu.inputs(N, D)

        def both(stats: tuple[str, ...], q: Tensor = query, k: Tensor = key, v: Tensor = value) -> object:
            return look_gpu.attention_and_look(q, k, v, mask=CAUSAL, stats=stats)

        calls = {
            "cuDNN forward": lambda q=query, k=key, v=value: look_gpu.cudnn(q, k, v),
            "entropy": lambda q=query, k=key: look_gpu.look(q, k, mask=CAUSAL, stats="entropy"),
            "full": lambda b=both: b(look_gpu.FULL),
            "full + top 8": lambda b=both: b((*look_gpu.FULL, "top_weights", "top_indices")),
        }
        yield from compare(f"N {N}, width {D}", calls, seconds)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        both(look_gpu.FULL)
        yield {"case": f"N {N}, width {D}", "call": "memory", "GB": (torch.cuda.max_memory_allocated() - before) / 1e9}


def short() -> Iterator[Row]:
    """Many short sequences, 8 heads of width 64: softlook beside each of SDPA's kernels, without and with dropout."""
    for N, B in ((16, 16384), (32, 16384), (55, 8192), (64, 16384), (128, 8192)):
        for dropout in (0.0, 0.2):
            for grad in (False, True):
                inputs = tensors(B, 8, N, 64, grad=grad)

                def sdpa(backend: SDPBackend, i: list[Tensor] = inputs, p: float = dropout) -> Callable[[], Tensor]:
                    def run() -> Tensor:
                        with sdpa_kernel(backend):
                            return fused(i, dropout_p=p)

                    return run

                calls: dict[str, Callable[[], Any]] = {
                    "efficient": sdpa(SDPBackend.EFFICIENT_ATTENTION),
                    "flash": sdpa(SDPBackend.FLASH_ATTENTION),
                    "cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION),
                    "softlook": lambda i=inputs, p=dropout: attention(*i, dropout=p),
                }
                if dropout:
                    del calls["cuDNN"]
                if grad:
                    calls = {name: with_backward(call, inputs) for name, call in calls.items()}
                name = f"N {N}, B {B}, dropout {dropout}, {'forward and backward' if grad else 'forward'}"
                yield from compare(name, calls, 0.12)


def rollout() -> Iterator[Row]:
    """Rollout of 64 columns through 12 layers, beside that many forward passes."""
    layers, columns = 12, 64
    for N in (4096, 65536):
        query, key, value = look_gpu.inputs(N, 64, 12)
        call = look_gpu.AttentionCall(look_gpu.AttentionCore(), query, key, CAUSAL, None, value.float().norm(dim=-1))
        trace = look_gpu.Trace({f"blocks.{n}.attn": look_gpu.AttentionTrace([call]) for n in range(layers)}, {})
        sources = torch.zeros(N, columns, device="cuda")
        sources[torch.arange(N), torch.arange(N) * columns // N] = 1
        calls = {
            "flash forward": lambda q=query, k=key, v=value: [look_gpu.flash(q, k, v) for _ in range(layers)],
            "cuDNN forward": lambda q=query, k=key, v=value: [look_gpu.cudnn(q, k, v) for _ in range(layers)],
            "rollout": lambda t=trace, s=sources: look_gpu.attention_rollout(t, s),
        }
        yield from compare(f"N {N}", calls, 1.0)


def packed() -> Iterator[Row]:
    """Packed documents: torch's varlen attention, a loop over flash, softlook; forward, and with backward."""
    lengths = (62, 1800, 300, 750, 1200, 90, 520, 1400)
    offsets = torch.tensor((0, *lengths), device="cuda").cumsum(0).int()
    ids = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).cuda()
    mask = CAUSAL & masks.documents(ids)
    for grad in (False, True):
        inputs = tensors(1, 16, sum(lengths), 64, grad=grad)

        def peer(inputs: list[Tensor] = inputs) -> Tensor:
            rows = (tensor.transpose(1, 2)[0] for tensor in inputs)
            bounds = (offsets, offsets, max(lengths), max(lengths))
            try:
                return varlen_attn(*rows, *bounds, window_size=(-1, 0))  # pyright: ignore
            except TypeError:  # the interface of torch before 2.12
                rows = (tensor.transpose(1, 2)[0] for tensor in inputs)
                return varlen_attn(*rows, *bounds, is_causal=True)  # pyright: ignore

        def loop(inputs: list[Tensor] = inputs) -> Tensor:
            parts = zip(*(tensor.split(lengths, 2) for tensor in inputs), strict=True)
            return torch.cat([fused(part, is_causal=True) for part in parts], 2)

        calls = {"varlen_attn": peer, "softlook": lambda i=inputs: attention(*i, mask=mask), "loop": loop}
        if grad:
            calls = {name: with_backward(call, inputs) for name, call in calls.items()}
        yield from compare("forward and backward" if grad else "forward", calls)


def window() -> Iterator[Row]:
    """A causal window of 512: FlexAttention with a block mask that is kept, flash's own window, softlook."""
    flex: Any = torch.compile(flex_attention, fullgraph=True)
    mask = CAUSAL & masks.window(512)
    for N in (2048, 6000, 16384):
        blocks = create_block_mask(lambda b, h, i, j: (j <= i) & (i - j <= 512), None, None, N, N, device="cuda")
        for grad in (False, True):
            inputs = tensors(1, 16, N, 64, grad=grad)

            def flash(i: list[Tensor] = inputs, N: int = N) -> Tensor:
                rows = (tensor.transpose(1, 2) for tensor in i)
                forward = torch.ops.aten._flash_attention_forward
                bounds = {"window_size_left": 512, "window_size_right": 0}
                return forward(*rows, None, None, N, N, 0.0, False, False, scale=0.125, **bounds)[0].transpose(1, 2)

            calls: dict[str, Callable[[], Any]] = {
                "flex": lambda i=inputs, b=blocks: flex(*i, block_mask=b),
                "flash window": flash,
                "softlook": lambda i=inputs: attention(*i, mask=mask),
            }
            if grad:
                calls = {name: with_backward(call, inputs) for name, call in calls.items()}
            yield from compare(f"N {N}, {'forward and backward' if grad else 'forward'}", calls, 0.4)


def bias() -> Iterator[Row]:
    """ALiBi and a learned T5 bias, B 4, 12 heads, N 4096, width 64: beside cuDNN without a bias."""
    inputs = tensors(4, 12, 4096, 64, grad=True)
    table = torch.randn(32, 12, device="cuda", requires_grad=True)
    t5 = positions.t5(table)
    own = {
        "cuDNN, causal, no bias": (lambda: fused(inputs, is_causal=True), inputs),
        "cuDNN, full, no bias": (lambda: fused(inputs), inputs),
        "ALiBi, causal": (lambda: attention(*inputs, mask=CAUSAL, bias=positions.alibi(12)), inputs),
        "T5, full": (lambda: attention(*inputs, bias=t5), [*inputs, table]),
    }
    yield from compare("forward", {name: call for name, (call, _) in own.items()})
    yield from compare("forward and backward", {name: with_backward(*pair) for name, pair in own.items()}, 1.0)


def calls() -> Iterator[Row]:
    """Small calls: SDPA on the same inputs, the host's time included."""
    shapes = {"cross 40x55": (8, 8, 40, 64, 55), "full 700": (2, 12, 700, 64), "decode 1x300": (8, 8, 1, 64, 300)}
    for name, sizes in shapes.items():
        inputs = tensors(*sizes)
        pair = {
            "sdpa": lambda i=inputs: fused(i),
            "softlook": lambda i=inputs: attention(*i),
        }
        yield from compare(name, pair, 0.3)
    inputs = tensors(2, 12, 700, 64)
    pair = {
        "sdpa": lambda: fused(inputs, is_causal=True),
        "softlook": lambda: attention(*inputs, mask=CAUSAL),
    }
    yield from compare("causal 700", pair, 0.3)


def bert() -> Iterator[Row]:
    """BERT-base on 256 ragged texts: packed into one row, padded, and Hugging Face's with SDPA on the padded batch."""
    transformers: Any = importlib.import_module("transformers")  # slow to import

    generator = torch.Generator().manual_seed(0)
    lengths = (torch.rand(256, generator=generator) ** 3 * 508 + 4).long().tolist()
    texts = [torch.randint(5, 30000, (length,), generator=generator).cuda() for length in lengths]
    own = Bert(BertConfig(vocab_size=30522, head="hidden_states")).cuda().bfloat16().eval()
    config = transformers.BertConfig(attn_implementation="sdpa")
    other = transformers.BertModel(config, add_pooling_layer=False).cuda().bfloat16().eval()
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    real = torch.arange(ids.shape[1], device="cuda") < torch.tensor(lengths, device="cuda")[:, None]

    @torch.inference_mode()
    def packed_row() -> Tensor:
        row = pack(texts)
        return own(row.ids, mask=row.mask, positions=row.positions)

    calls = {
        "Hugging Face, padded": torch.inference_mode()(
            lambda: other(ids, attention_mask=real.long()).last_hidden_state
        ),
        "softlook, packed": packed_row,
        "softlook, padded": torch.inference_mode()(lambda: own(ids, padding_mask=real)),
    }
    yield from compare(f"256 texts, mean {sum(lengths) / 256:.0f}, longest {max(lengths)}", calls, 2.0)


def tables() -> Iterator[Row]:
    """Rows per second of training on Covertype's shape: 10 numbers, 2 categories or 44 more numbers; 7 classes."""
    yield from tables_gpu.measure()


PARTS = {
    one.__name__: one
    for one in (errors, top, look, look_long, rollout, packed, window, bias, calls, short, bert, tables)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=5.0, help="no further part starts after this time")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    deadline = Deadline(options.minutes)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name in options.parts:
        if deadline.passed():
            print(f"{name}: not measured, out of time", flush=True)
            continue
        rows: list[Row] = []
        started = time.monotonic()
        try:
            for row in PARTS[name]():
                rows.append(row)
                print(f"{deadline.elapsed():5.0f} s {name}: {row}", flush=True)
        except Exception as error:
            traceback.print_exc(file=sys.stdout)
            rows.append({"case": "failed", "error": f"{type(error).__name__}: {error!s:.300}"})
        torch.cuda.empty_cache()
        content = {**about, "about": PARTS[name].__doc__, "seconds": time.monotonic() - started, "rows": rows}
        (options.out / f"{name}.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()

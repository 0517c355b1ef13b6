"""The plan: which kernel is selected, why, and that execution obeys it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from softlook import BackendError, attention, bias, explain, masks, positions, scores
from softlook.ops.arguments import prepare_args
from softlook.ops.backends import flex, reference, sdpa, sdpa_cpu, sdpa_cuda, tiled, varlen
from softlook.ops.backends import plan as planning
from tests.ops_cases import DEVICE, TensorRNG

RNG = TensorRNG(torch.Generator().manual_seed(23), torch.float32)
QUERY, KEY, VALUE = RNG.normal(1, 4, 6, 8), RNG.normal(1, 2, 6, 8), RNG.normal(1, 2, 6, 8)
CPU_ONLY = pytest.mark.skipif(DEVICE.type != "cpu", reason="CUDA selects other kernels")

SELECTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "plain": ({}, "sdpa", "torch's fused kernel computes this directly"),
    "causal": ({"mask": masks.causal()}, "sdpa", "torch's fused kernel has a built-in causal mask"),
    "window": ({"mask": masks.window(2)}, "sdpa", "mask and bias are materialized"),
    "dense bias": ({"bias": RNG.normal(6, 6)}, "sdpa", "mask and bias are materialized"),
    "cosine": ({"score": scores.cosine()}, "sdpa", "torch's fused kernel computes this directly"),
    "softcap": ({"softcap": 5.0}, "tiled", "torch's kernels have no softcap"),
    "sink": ({"sink": 0.0}, "tiled", "torch's kernels have no attention sink"),
    "alibi": ({"bias": positions.alibi(4)}, "tiled", "torch's kernels need the bias as a tensor"),
    "relative values": (
        {"bias": positions.shaw(RNG.normal(3, 8), RNG.normal(3, 8))},
        "tiled",
        "torch's kernels have no relative values",
    ),
    "additive score": (
        {"score": scores.additive(RNG.normal(8, 3), RNG.normal(8, 3), RNG.normal(3))},
        "tiled",
        "torch's kernels support dot-product scores only",
    ),
    "score function": (
        {"bias": bias.from_function(lambda score, b, h, q_idx, kv_idx: 2 * score)},
        "tiled",
        "torch's kernels have no score functions",
    ),
}


@CPU_ONLY
@pytest.mark.parametrize("name", SELECTED)
def test_explain_names_the_backend_and_the_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_QUERIES", 0)
    options, backend, reason = SELECTED[name]
    plan = explain(QUERY, KEY, VALUE, **options)
    assert plan.backend == backend
    assert reason in plan.reason
    assert str(plan).startswith(backend) and " MiB" in str(plan)
    assert repr(plan).startswith(f"Plan(kernel='{plan.kernel}', reason=")


@CPU_ONLY
@pytest.mark.parametrize("name", SELECTED)
def test_execution_runs_the_planned_backend(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, backend, _ = SELECTED[name]
    ran: list[str] = []
    functions = {"tiled": (tiled, "tiled_attention"), "reference": (reference, "reference_attention")}
    functions |= {"flex": (flex, "flex_attention"), "sdpa": (sdpa, "sdpa_attention")}
    for path, (module, function) in functions.items():
        monkeypatch.setattr(module, function, spy(ran, path, getattr(module, function)))
    attention(QUERY, KEY, VALUE, **options)
    assert ran == [backend]


def spy(ran: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        ran.append(name)
        return function(*args, **kwargs)

    return run


KERNEL_EVENTS: dict[str, tuple[str, ...]] = {
    "math": ("aten::baddbmm",),
    "fused": ("aten::_scaled_dot_product_flash_attention_for_cpu",),
    "unfused": ("aten::_scaled_dot_product_attention_math",),
    "varlen": ("aten::split_with_sizes", "aten::_scaled_dot_product_flash_attention_for_cpu"),
    "tiled": ("aten::bmm", "aten::amax"),
    "reference": ("aten::repeat_interleave",),
}
"""Operations by which the profiler recognizes each kernel."""
PROFILED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "few queries": ("math", 8, {}),
    "few queries, causal": ("math", 8, {"mask": masks.causal()}),
    "plain": ("fused", 64, {}),
    "causal": ("fused", 64, {"mask": masks.causal()}),
    "padding": ("fused", 64, {"mask": masks.padding([40])}),
    "dense bias": ("fused", 64, {"bias": torch.randn(64, 64)}),
    "dropout": ("unfused", 64, {"dropout": 0.1}),
    "documents": ("varlen", 80, {"mask": masks.documents(torch.arange(80) // 40)}),
    "softcap": ("tiled", 64, {"softcap": 5.0}),
    "alibi": ("tiled", 64, {"bias": positions.alibi(2)}),
    "narrow window": ("tiled", 1024, {"mask": masks.window(16)}),
    "score function": ("tiled", 64, {"bias": bias.from_function(lambda score, b, h, q_idx, kv_idx: score / 2)}),
    "reference": ("reference", 64, {"backend": "reference"}),
}


@CPU_ONLY
@pytest.mark.parametrize("name", PROFILED)
def test_the_profiler_sees_the_kernel_that_explain_names(name: str) -> None:
    kernel, length, options = PROFILED[name]
    query = torch.randn(1, 2, length, 16)
    with torch.no_grad():
        plan = explain(query, query, query, **options)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            attention(query, query, query, **options)
    operations = {event.key for event in profiler.key_averages()}
    assert plan.kernel == kernel
    assert set(KERNEL_EVENTS[kernel]) <= operations
    others = {event for other, events in KERNEL_EVENTS.items() if other != kernel for event in events}
    assert not operations & (others - set(KERNEL_EVENTS[kernel]) - {"aten::bmm", "aten::amax"})


def test_no_reason_is_built_unless_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: planning.Plan) -> str:
        raise AssertionError("the reason was built during execution")

    monkeypatch.setattr(planning.Plan, "reason", property(fail))
    attention(QUERY, KEY, VALUE, mask=masks.causal())
    attention(QUERY, KEY, VALUE, softcap=5.0)


@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled"])
def test_a_requested_backend_is_used(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = explain(QUERY, KEY, VALUE, backend=backend)
    assert (plan.backend, plan.reason) == (backend, "requested by backend=")
    module = {"reference": reference, "sdpa": sdpa, "tiled": tiled}[backend]
    monkeypatch.setattr(module, f"{backend}_attention", lambda *_: torch.full_like(QUERY, 7))
    assert attention(QUERY, KEY, VALUE, backend=backend).eq(7).all()


UNSUPPORTED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "softcap": ("sdpa", {"softcap": 5.0}, "torch's kernels have no softcap"),
    "sink": ("sdpa", {"sink": 0.0}, "torch's kernels have no attention sink"),
    "score": ("sdpa", {"score": lambda q, k: q @ k.mT}, "torch's kernels support dot-product scores only"),
    "relative values": (
        "sdpa",
        {"bias": positions.shaw(RNG.normal(3, 8), RNG.normal(3, 8))},
        "torch's kernels have no relative values",
    ),
    "flex score": ("flex", {"score": lambda q, k: q @ k.mT}, "it supports dot-product scores only"),
    "flex dropout": ("flex", {"dropout": 0.1}, "it has no dropout"),
    "flex content": ("flex", {"bias": positions.shaw(RNG.normal(3, 8))}, "the bias shaw depends on queries or keys"),
    "flex graph": (
        "flex",
        {"mask": masks.graph(torch.tensor([[0], [1]])) & masks.causal()},
        r"the mask graph\(1 edges\) & causal\(\) cannot be compiled into a kernel",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_backend_raises_an_error_that_names_another(name: str) -> None:
    backend, options, reason = UNSUPPORTED[name]
    for call in (attention, explain):
        with pytest.raises(BackendError, match=f"backend='{backend}' does not support this: {reason}.*'auto' uses"):
            call(QUERY, KEY, VALUE, **options, backend=backend)


def test_flex_rejects_double_precision_and_empty_sizes() -> None:
    with pytest.raises(BackendError, match="it has no float64"):
        attention(QUERY.double(), KEY.double(), VALUE.double(), backend="flex")
    with pytest.raises(BackendError, match="a size is 0"):
        attention(QUERY[:, :, :0], KEY, VALUE, backend="flex")


@CPU_ONLY
def test_flex_rejects_gradients_and_sinks_on_the_cpu() -> None:
    with pytest.raises(BackendError, match="on the CPU it has no gradient.*uses 'sdpa'"):
        attention(QUERY.clone().requires_grad_(), KEY, VALUE, backend="flex")
    with pytest.raises(BackendError, match="on the CPU it returns no log-sum-exp, which a sink needs.*uses 'tiled'"):
        attention(QUERY, KEY, VALUE, sink=0.0, backend="flex")


@pytest.mark.usefixtures("no_shape_checks")
def test_an_unknown_backend_raises_an_error_that_lists_the_known_ones() -> None:
    unknown: Any = "flash"
    with pytest.raises(BackendError, match="backend expects one of auto, reference, sdpa, flex, tiled, got 'flash'"):
        attention(QUERY, KEY, VALUE, backend=unknown)


def test_the_bytes_of_the_reference_are_those_of_its_maps() -> None:
    assert explain(QUERY, KEY, VALUE, backend="reference").bytes >= 4 * 6 * 6 * 4
    doubled = (torch.cat([tensor, tensor], 2) for tensor in (QUERY, KEY, VALUE))
    assert explain(*doubled, backend="reference").bytes == 4 * explain(QUERY, KEY, VALUE, backend="reference").bytes


def test_only_a_materialized_mask_needs_temporary_memory() -> None:
    long = torch.zeros(1, 1, 200, 8, device=DEVICE)
    assert explain(long, long, long).bytes == 0
    assert explain(long, long, long, mask=masks.causal()).bytes == 0
    assert explain(long, long, long, mask=masks.window(150, 150)).bytes >= 200 * 200


@CPU_ONLY
def test_math_attention_needs_memory_for_its_weights() -> None:
    assert explain(QUERY, KEY, VALUE, backend="sdpa").bytes >= QUERY.shape[2] * KEY.shape[2] * 4


def test_tiled_attention_needs_less_memory_than_a_large_map() -> None:
    long = torch.zeros(1, 1, 1, 8, device=DEVICE).expand(1, 1, 1 << 17, 8)
    assert explain(long, long, long, backend="tiled").bytes < explain(long, long, long, backend="reference").bytes / 50


@pytest.mark.parametrize("backend", ["auto", "reference", "sdpa", "tiled"])
def test_explain_allocates_nothing_large(backend: Any) -> None:
    long = torch.zeros(1, 1, 1, 8, device=DEVICE).expand(1, 1, 1 << 20, 8)
    assert explain(long, long, long, mask=masks.window(3), backend=backend).bytes > 0


KERNEL_FUNCTIONS = {"math_attention": "math", "flash_attention_cpu": "fused", "torch_attention_cpu": "unfused"}
LENGTHS = [(1, 40), (33, 33), (40, 129)]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.causal()},
    "padding": {"mask": masks.padding([20])},
    "dropout": {"dropout": 0.1},
    "learned bias": {"bias": True},
}


@CPU_ONLY
@pytest.mark.parametrize("disabled", [False, True], ids=["", "flash disabled"])
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_planned_kernel_is_the_one_that_runs(
    *, name: str, learning: bool, dtype: torch.dtype, layout: str, disabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    for function, kernel in KERNEL_FUNCTIONS.items():
        monkeypatch.setattr(sdpa_cpu, function, spy(ran, kernel, getattr(sdpa_cpu, function)))
    for T, S in LENGTHS:
        ran.clear()
        query, key = torch.randn(1, 2, T, 16, dtype=dtype), torch.randn(1, 2, S, 16, dtype=dtype)
        if layout == "strided":
            query, key = query[..., ::2], key[..., ::2]
        options = dict(OPTIONS[name])
        if "bias" in options:
            options["bias"] = torch.randn(T, S, dtype=dtype, requires_grad=learning)
        query.requires_grad_(learning)
        backends = [SDPBackend.MATH] if disabled else [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
        with sdpa_kernel(backends):
            plan = explain(query, key, key, **options)
            attention(query, key, key, **options)
        assert ran == ([] if plan.kernel == "tiled" else [plan.kernel])
        assert plan.bytes >= 2 * 2 * T * S * query.element_size() or plan.kernel in ("fused", "tiled")


@pytest.mark.parametrize("backend", ["auto", "sdpa", "tiled", "reference"])
@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)], ids=str)
def test_empty_sizes_run_the_reference(backend: Any, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = RNG.normal(1, 2, sizes[0], 4), RNG.normal(1, 2, sizes[1], 4)
    monkeypatch.setattr(reference, "reference_attention", lambda *_: torch.full_like(query, 7))
    plan = explain(query, key, key, backend=backend)
    assert plan.backend == "reference" and (backend == "reference" or "a size is 0" in plan.reason)
    assert attention(query, key, key, backend=backend).eq(7).all()


@CPU_ONLY
def test_packed_documents_run_separately() -> None:
    query = RNG.normal(1, 2, 64, 4)
    mask = masks.documents(torch.arange(64) // 32)
    assert varlen.document_lengths(prepare_args(query, query, mask=mask)) == [32, 32]
    assert "each document runs through torch's kernels on its own" in explain(query, query, query, mask=mask).reason


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE.type != "cuda", reason="runs with SOFTLOOK_DEVICE=cuda")
def test_the_memory_efficient_kernel_is_not_used_where_it_is_disabled() -> None:
    query = torch.randn(1, 2, 8, 16, device=DEVICE, dtype=torch.bfloat16)
    assert sdpa_cuda.suits_efficient(query, query, None)
    with sdpa_kernel([SDPBackend.MATH]):
        assert not sdpa_cuda.suits_efficient(query, query, None)
        with profile() as profiler:
            attention(query, query, query)
    assert not any("efficient" in event.key for event in profiler.key_averages())

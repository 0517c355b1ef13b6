"""Decoding on a GPU against transformers' `generate`, with the same weights in the same run.

    python -m benchmarks.decoding_gpu [gpt1] [gpt64] [translation] [compiled] [float32] [--profile]

The implementations take turns; times are medians after a warm-up round. --profile adds a profile of softlook's
translation.
"""

import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.decoding_profile import kernels_of, parts_of, steps_of
from softlook.decode import CausalLMSession, Seq2SeqSession, beam_search, explain, generate
from softlook.weights import from_hugging_face

PROMPT, NEW = 128, 256
BEAMS, LENGTH, SENTENCES = 4, 24, 1024
VOCAB, END = 32000, 0
ROUNDS = 3
PROFILE = "--profile"
GOALS = {"gpt1": "4,000 tokens/s", "gpt64": "100,000 tokens/s", "translation": "15 times Hugging Face"}
TokenRows = list[list[int]]
Runner = Callable[[], TokenRows]


def gpt() -> tuple[Any, Any]:
    """GPT-2 124M with random weights and distinct logits: theirs and ours."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415  (optional comparison)

    torch.manual_seed(0)
    theirs: Any = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None, pad_token_id=0)).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.mul_(2.0) if weight.ndim > 1 else None
    return theirs, ours_of(theirs)


def marian() -> tuple[Any, Any]:
    """A translator of Marian's base size with random weights."""
    from transformers import MarianConfig, MarianMTModel  # noqa: PLC0415  (optional comparison)

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "max_position_embeddings": 512, "d_model": 512}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
    sizes |= {"pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1, "eos_token_id": END}
    sizes |= {"scale_embedding": True, "activation_function": "swish", "forced_eos_token_id": None}
    theirs: Any = MarianMTModel(MarianConfig(**sizes)).eval()
    with torch.no_grad():
        theirs.get_input_embeddings().weight.mul_(4.0)
    return theirs, ours_of(theirs)


def ours_of(theirs: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return from_hugging_face(Path(folder)).eval()


def on_device(kind: torch.dtype, *models: Any) -> list[Any]:
    return [model.to("cuda", kind) for model in models]


def prompts(rows: int) -> torch.Tensor:
    return torch.randint(1, 50000, (rows, PROMPT), generator=torch.Generator().manual_seed(1)).cuda()


def continuations(rows: int, ours: Any, theirs: Any) -> dict[str, Runner]:
    """Prompts of 128 tokens, 256 new tokens each."""
    ids = prompts(rows)
    rows_: list[list[int]] = ids.tolist()
    how: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    how |= {"attention_mask": torch.ones_like(ids)}
    return {
        "softlook": lambda: [output.ids for output in generate(ours, rows_, max_new_tokens=NEW)],
        "Hugging Face": at_their_best(lambda: theirs.generate(ids, **how)[:, PROMPT:].tolist()),
    }


def at_their_best(run: Runner) -> Runner:
    """Disable cuDNN attention, which plans anew for every length: transformers is several times faster without."""

    def run_without_cudnn() -> TokenRows:
        torch.backends.cuda.enable_cudnn_sdp(False)
        try:
            return run()
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)

    return run_without_cudnn


def compiled(rows: int, theirs: Any) -> Runner:
    """Hugging Face's with a static cache, compiled."""
    ids = prompts(rows)
    how: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    how |= {"attention_mask": torch.ones_like(ids), "cache_implementation": "static"}
    return at_their_best(lambda: theirs.generate(ids, **how)[:, PROMPT:].tolist())


def sources() -> TokenRows:
    """Sentences of 8 to 40 tokens, max_length first, as in file translation."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(8, 41, (SENTENCES,), generator=generator).sort(descending=True).values.tolist()
    return [torch.randint(2, VOCAB - 1, (length,), generator=generator).tolist() for length in lengths]


def translations(ours: Any, theirs: Any, sizes: dict[str, int]) -> dict[str, Runner]:
    """All sentences, in batches of each size."""
    rows = sources()
    return {
        name: lambda name=name, size=size: [
            tokens
            for first in range(0, SENTENCES, size)
            for tokens in (_ours if "softlook" in name else _theirs)(
                ours if "softlook" in name else theirs, rows[first : first + size]
            )
        ]
        for name, size in sizes.items()
    }


def _pad(rows: TokenRows) -> tuple[torch.Tensor, torch.Tensor]:
    max_length = max(map(len, rows))
    ids = torch.tensor([[*row, *[VOCAB - 1] * (max_length - len(row))] for row in rows])
    source_mask = torch.arange(max_length) < torch.tensor([[len(row)] for row in rows])
    return ids.cuda(), source_mask.cuda()


def _ours(model: Any, rows: TokenRows) -> TokenRows:
    ids, source_mask = _pad(rows)
    start = torch.full((len(rows), 1), VOCAB - 1, device="cuda")
    how: dict[str, Any] = {"eos_ids": END, "max_new_tokens": LENGTH, "min_new_tokens": LENGTH, "num_beams": BEAMS}
    return [found[0].ids for found in beam_search(Seq2SeqSession(model, ids, source_mask), start, **how)]


def _theirs(model: Any, rows: TokenRows) -> TokenRows:
    ids, source_mask = _pad(rows)
    how: dict[str, Any] = {"num_beams": BEAMS, "do_sample": False, "early_stopping": "never", "length_penalty": 1.0}
    how |= {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH, "attention_mask": source_mask.long()}
    return at_their_best(lambda: model.generate(ids, **how)[:, 1:].tolist())()


def contest(title: str, runners: dict[str, Runner], tokens: int, rounds: int = ROUNDS) -> None:
    """Time the implementations in turns and print one row each."""
    print(
        f"\n### {title}\n\n| implementation | first call, s | s | tokens/s | ratio | identical |\n"
        "|---|---|---|---|---|---|",
        flush=True,
    )
    first, outputs, times = {}, {}, {name: [] for name in runners}
    for round_ in range(rounds + 1):
        for name, run in runners.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            outputs[name] = run()
            torch.cuda.synchronize()
            spent = time.perf_counter() - start
            first.setdefault(name, spent) if round_ == 0 else times[name].append(spent)
    ours = next(iter(runners))
    for name in runners:
        median = statistics.median(times[name])
        same = _same(outputs[ours], outputs[name])
        ratio = median / statistics.median(times[ours])
        print(
            f"| {name} | {first[name]:.2f} | {median:.3f} | {tokens / median:,.0f} | {ratio:.1f} | {same} |", flush=True
        )


def _same(ours: TokenRows, theirs: TokenRows) -> str:
    rows = sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)
    pairs = [a == b for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=False)]
    return f"{rows:.0%} of rows, {sum(pairs) / max(len(pairs), 1):.0%} of tokens"


def part_gpt(rows: int) -> None:
    theirs, ours = gpt()
    ours, theirs = on_device(torch.bfloat16, ours, theirs)
    print(explain(ours))
    contest(f"GPT-2 124M, bfloat16, {rows} x ({PROMPT} + {NEW})", continuations(rows, ours, theirs), rows * NEW)


def part_compiled() -> None:
    theirs, ours = gpt()
    ours, theirs = on_device(torch.bfloat16, ours, theirs)
    runners = {"softlook": continuations(1, ours, theirs)["softlook"], "Hugging Face, compiled": compiled(1, theirs)}
    contest("GPT-2 124M, bfloat16, 1 x (128 + 256), theirs compiled", runners, NEW, rounds=2)


def part_float32() -> None:
    """The same tokens as transformers and as our own eager decoding, in float32."""
    theirs, ours = gpt()
    ours, theirs = on_device(torch.float32, ours, theirs)
    runners = continuations(3, ours, theirs)
    runners["softlook eager"] = lambda: _eager(ours, prompts(3))
    contest(f"GPT-2 124M, float32, 3 x ({PROMPT} + {NEW})", runners, 3 * NEW, rounds=1)
    theirs, ours = marian()
    ours, theirs = on_device(torch.float32, ours, theirs)
    rows = sources()[:64]
    pair: dict[str, Runner] = {"softlook": lambda: _ours(ours, rows), "Hugging Face": lambda: _theirs(theirs, rows)}
    contest("translation, float32, 64 sentences", pair, 64 * LENGTH, rounds=1)


@torch.no_grad()
def _eager(model: Any, ids: torch.Tensor) -> TokenRows:
    session, outputs = CausalLMSession(model), []
    for _ in range(NEW):
        ids = session.step(ids).argmax(-1, keepdim=True)
        outputs.append(ids)
    return torch.cat(outputs, 1).tolist()


def part_translation() -> None:
    theirs, ours = marian()
    ours, theirs = on_device(torch.bfloat16, ours, theirs)
    sizes = {"softlook, 1024 at once": 1024, "softlook, 256 at once": 256}
    sizes |= {"Hugging Face, 64 at once": 64, "Hugging Face, 1024 at once": 1024}
    runners = translations(ours, theirs, sizes)
    contest(f"translation, {BEAMS} beams, {SENTENCES} sentences, bfloat16", runners, SENTENCES * LENGTH, rounds=2)
    if PROFILE in sys.argv:
        ours_alone = {name: run for name, run in runners.items() if "softlook" in name}
        for name, run in ours_alone.items():
            parts_of(name, run)
        steps_of(ours)
        kernels_of(next(iter(ours_alone.values())))


PARTS: dict[str, Callable[[], None]] = {
    "gpt1": lambda: part_gpt(1),
    "gpt64": lambda: part_gpt(64),
    "translation": part_translation,
    "float32": part_float32,
    "compiled": part_compiled,
}


def main(names: list[str]) -> None:
    from transformers.utils import logging  # noqa: PLC0415  (optional comparison)

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print(f"# Decoding on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name in names or list(PARTS):
        start = time.perf_counter()
        try:
            PARTS[name]()
        except Exception:  # the other parts still run
            traceback.print_exc()
        print(f"\n({name}: {time.perf_counter() - start:.0f} s; goal: {GOALS.get(name, 'none')})", flush=True)


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name != PROFILE])

"""Server throughput with one and with many clients: `python -m benchmarks.serving`.

A server process with an untrained GPT on a CPU, and clients that send the next request as soon as they get a response.
All prompts differ. Responses are requested whole, and then as streams. The same prompts are also continued by
`generate` in one batch, without a server; and prompts with a common beginning are sent with and without prefix caching.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import torch

from benchmarks.report import Report, Table
from softlook.models import GPT, GPTConfig
from softlook.recipes.inference import GenerationParams, generate, load_pipeline
from softlook.tokens import train_tokenizer
from softlook.weights import save

WORDS = ["attention", "is", "a", "soft", "look-up", "of", "values", "by", "keys", "that", "match", "a", "query"]
ABOUT = (
    "Tokens per second of all clients together, {tokens} per response, from a server process with {threads} threads; "
    "the clients run on the same machine. All client counts in turn, {rounds} rounds; medians, and ratios within a "
    "round. On a machine with other load, the CPU time of the server per token is more reliable."
)
BATCH_ABOUT = (
    "The largest number of clients, and `softlook.recipes.inference.generate` with as many prompts in one batch, in "
    "another process with the same number of threads. Ratio: tokens/s of generate to those of the server. CPU ratio: "
    "CPU time per token of the server to that of generate. A response that ends early counts as a whole one in both."
)
COMMON_WORDS = 70
PREFIX_ABOUT = (
    f"Milliseconds until the first new token after a prompt of {COMMON_WORDS} words and a number, by one client: all "
    "but the number is common to all prompts."
)


def make_checkpoint(folder: Path, dim: int, depth: int) -> Path:
    """A checkpoint of an untrained GPT with a byte tokenizer."""
    tokenizer = train_tokenizer([], model_type="bytes")
    tokenizer.save(str(folder / "tokenizer.json"))
    config = GPTConfig(vocab_size=tokenizer.get_vocab_size(), context=512, dim=dim, depth=depth, heads=dim // 64)
    return save(GPT(config), folder / "model", tokenizer=folder / "tokenizer.json")


def start_server(model: Path, threads: int, *options: str) -> tuple[subprocess.Popen[str], str]:
    """A server, and its URL once it listens."""
    command = [sys.executable, "-m", "softlook", "serve", f"gpt={model}", "--port", "0", *options]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    assert server.stderr is not None
    for line in server.stderr:
        if "Listening on " in line:
            return server, line.split("Listening on ")[1].split()[0]
    raise RuntimeError("the server did not start")


def make_prompt(number: int) -> str:
    return " ".join(WORDS[(number + i) % len(WORDS)] for i in range(6))


@contextmanager
def running_server(model: Path, threads: int, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process, which ends with the context."""
    server, url = start_server(model, threads, *options)
    try:
        yield server, url
    finally:
        server.terminate()
        server.wait()


async def load(url: str, clients: int, seconds: float, *, tokens: int, stream: bool) -> tuple[float, float]:
    """Tokens per second of all clients, and the median latency in seconds."""
    received, latencies = 0, list[float]()
    end = time.perf_counter() + seconds

    async def run_client(number: int, client: httpx.AsyncClient) -> None:
        nonlocal received
        count = 0
        while time.perf_counter() < end:
            start, count = time.perf_counter(), count + 1
            body = {
                "model": "gpt",
                "prompt": make_prompt(number + count),
                "max_tokens": tokens,
                "seed": number,
                "stream": stream,
            }
            response = await client.post("/v1/completions", json=body)
            response.raise_for_status()
            received += tokens
            latencies.append(time.perf_counter() - start)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits, trust_env=False) as client:
        start = time.perf_counter()
        await asyncio.gather(*(run_client(number, client) for number in range(clients)))
        return received / (time.perf_counter() - start), sorted(latencies)[len(latencies) // 2]


@dataclass
class Measurements:
    """Results for one number of clients, round by round."""

    throughputs: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """CPU time of the server per token, in milliseconds."""


def cpu_seconds(server: subprocess.Popen[str]) -> float:
    """CPU time of a process so far, over all its threads."""
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    url: str, server: subprocess.Popen[str], args: argparse.Namespace, *, stream: bool
) -> dict[int, Measurements]:
    """All client counts in turn, several rounds, so that other load affects them alike."""
    results = {clients: Measurements() for clients in args.clients}
    for _ in range(args.rounds):
        for clients, one in results.items():
            before, start = cpu_seconds(server), time.perf_counter()
            throughput, latency = asyncio.run(load(url, clients, args.seconds, tokens=args.tokens, stream=stream))
            tokens = throughput * (time.perf_counter() - start)
            one.throughputs.append(throughput)
            one.latencies.append(latency)
            one.cpu_ms.append((cpu_seconds(server) - before) * 1000 / tokens)
    return results


def add_rows(table: Table, name: str, results: dict[int, Measurements]) -> None:
    """A row for each number of clients, with ratios to the first."""
    first = next(iter(results.values()))
    for clients, one in results.items():
        ratios = [own / base for own, base in zip(one.throughputs, first.throughputs, strict=True)]
        cpu_ratios = [base / own for own, base in zip(one.cpu_ms, first.cpu_ms, strict=True)]
        table.add(
            name,
            str(clients),
            f"{median(one.throughputs):,.0f}",
            f"{median(ratios):.1f}",
            f"{min(ratios):.1f} to {max(ratios):.1f}",
            f"{median(one.cpu_ms):.2f}",
            f"{median(cpu_ratios):.1f}",
            f"{median(one.latencies):.2f}",
        )


def generate_batch(model: Path, batch: int, tokens: int, rounds: int) -> tuple[float, float]:
    """Tokens per second of `generate` for so many prompts at once, and CPU milliseconds per token: medians."""
    pipeline, params = load_pipeline(model, device="cpu"), GenerationParams(max_new_tokens=tokens, seed=0)
    prompts, seconds, cpu = [make_prompt(number) for number in range(batch)], list[float](), list[float]()
    for _ in range(rounds + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        generate(pipeline, prompts, params)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return batch * tokens / median(seconds[1:]), 1000 * median(cpu[1:]) / (batch * tokens)  # the first is a warm-up


def first_token_ms(url: str, rounds: int) -> float:
    """Median milliseconds until one new token, after a beginning that all prompts have in common."""
    common, times = " ".join(WORDS[i % len(WORDS)] for i in range(COMMON_WORDS)), list[float]()
    with httpx.Client(base_url=url, timeout=300, trust_env=False) as client:
        for number in range(10 * rounds):
            body = {"model": "gpt", "prompt": f"{common} {number}", "max_tokens": 1, "seed": 0}
            start = time.perf_counter()
            client.post("/v1/completions", json=body).raise_for_status()
            times.append(time.perf_counter() - start)
    return 1000 * median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["256x4", "512x8"], help="width x depth")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per response")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    args = parser.parse_args()
    report = Report("cpu", f"python -m benchmarks.serving {' '.join(sys.argv[1:])}".strip(), topic="serving")
    about = ABOUT.format(tokens=args.tokens, rounds=args.rounds, threads=args.threads)
    report.section("Many clients of one server", about)
    table = report.table(
        "model", "clients", "tokens/s", "ratio", "range", "CPU ms per token", "CPU ratio", "latency in s"
    )
    batches, prefixes = list[tuple[str, ...]](), list[tuple[str, ...]]()
    torch.set_num_threads(args.threads)
    for size in args.sizes:
        dim, depth = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            model = make_checkpoint(Path(folder), dim, depth)
            with running_server(model, args.threads) as (server, url):
                asyncio.run(load(url, 4, 2.0, tokens=8, stream=False))  # warm-up
                for stream in (False, True):
                    name = f"GPT, {size}{', streaming' if stream else ''}"
                    results = measure(url, server, args, stream=stream)
                    add_rows(table, name, results)
                    if not stream:
                        clients, many = list(results.items())[-1]
                        speed, cpu_ms = generate_batch(model, clients, args.tokens, args.rounds)
                        own = median(many.throughputs)
                        ratios = f"{speed / own:.2f}", f"{median(many.cpu_ms) / cpu_ms:.2f}"
                        batches.append((f"GPT, {size}", str(clients), f"{own:,.0f}", f"{speed:,.0f}", *ratios))
                cached = first_token_ms(url, args.rounds)
            with running_server(model, args.threads, "--no-prefix-caching") as (_, url):
                uncached = first_token_ms(url, args.rounds)
            prefixes.append((f"GPT, {size}", f"{uncached:.1f}", f"{cached:.1f}", f"{uncached / cached:.1f}"))
    report.section("Many clients, and one batch without a server", BATCH_ABOUT)
    table = report.table("model", "clients", "server, tokens/s", "generate, tokens/s", "ratio", "CPU ratio")
    for row in batches:
        table.add(*row)
    report.section("Prompts with a common beginning", PREFIX_ABOUT)
    table = report.table("model", "ms without prefix caching", "ms with", "ratio")
    for row in prefixes:
        table.add(*row)


if __name__ == "__main__":
    main()
